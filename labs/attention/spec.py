"""The attention lab as data: five kernels, in float32 and bfloat16, small and at speed."""
from __future__ import annotations

from pathlib import Path
from typing import Any

from labkit import Case, Lab, RubricLine, Step, Tensor

TARGETS = ("trn2", "trn3")
#: q and k lie within this of 0: scores have a spread of 3, so that a few keys have most weight
SPREAD = 3.0
_FULL: dict[str, Any] = {"fleets": ("full", "contest")}


def _case(name: str, kernel: str, reference: str, shapes: tuple[tuple[int, ...], ...], dtype: str,
          terms: int, spread: float = SPREAD, **rest: Any) -> Case:
    """Return a case of a kernel; the last of `shapes` is that of v, which has no negative numbers.

    Rows of out are then means of numbers of one sign, and errors stay relative ones. In bfloat16
    the powers are rounded as well as the result. In float32, exp and the sums round, and the
    Tensor Engine takes several passes.
    """
    label = f"{kernel}_{name}" + (f"_{dtype}" if dtype != "float32" else "")
    label += f"_to{spread:g}" if spread != SPREAD else ""
    q_and_k = tuple(Tensor(shape, dtype, -spread, spread) for shape in shapes[:-1])
    return Case(label, kernel, reference, (*q_and_k, Tensor(shapes[-1], dtype)), accumulate=terms,
                functions=("exp", "matmul"), roundings=4 if dtype == "float32" else 2,
                targets=TARGETS, **rest)


def plain_case(n: int, m: int, d: int, dtype: str = "float32", kernel: str = "flash",
               **more: Any) -> Case:
    """Return a case of attend or flash: n queries, m keys of d numbers."""
    return _case(f"{n}x{m}x{d}", kernel, "attention", ((n, d), (m, d), (m, d)), dtype, m + d,
                 **more)


def causal_case(n: int, d: int, dtype: str = "float32", **more: Any) -> Case:
    """Return a case of causal: n queries and keys of d numbers."""
    return _case(f"{n}x{d}", "causal", "causal_attention", ((n, d),) * 3, dtype, n + d, **more)


def grouped_case(heads: int, groups: int, n: int, d: int, dtype: str = "float32",
                 **more: Any) -> Case:
    """Return a case of grouped; half of all pairs of a query and a key are needed."""
    keys = (groups, n, d)
    return _case(f"{heads}of{groups}x{n}x{d}", "grouped", "grouped_attention",
                 ((heads, n, d), keys, keys), dtype, n + d,
                 flops=4.0 * d * heads * n * (n + 1) / 2, **more)


def decode_case(heads: int, groups: int, capacity: int, d: int, length: int,
                dtype: str = "float32", spread: float = SPREAD, **more: Any) -> Case:
    """Return a case of decode: caches with room for `capacity` tokens that hold `length`.

    A row of each cache is written, and the caches are not.
    """
    token, cache = Tensor((groups, d), dtype, -spread, spread), (groups, capacity, d)
    found = (Tensor((heads, d), dtype, -spread, spread), token, Tensor((groups, d), dtype),
             Tensor(cache, dtype, -spread, spread), Tensor(cache, dtype),
             Tensor((1, 1), "int32", length, length + 1, anywhere=(0, capacity)))
    label = f"decode_{heads}of{groups}x{capacity}x{d}_at{length}"
    label += f"_{dtype}" if dtype != "float32" else ""
    label += f"_to{spread:g}" if spread != SPREAD else ""
    return Case(label, "decode", "decode", found,
                accumulate=capacity + d, functions=("exp", "matmul"),
                roundings=4 if dtype == "float32" else 2, targets=TARGETS,
                flops=4.0 * d * heads * (length + 1), reads=(length + 1) / (capacity + 1),
                writes=(heads + 2 * groups) / (heads + 2 * groups * capacity), **more)


def _fast(trn2: float, trn3: float) -> dict[str, Any]:
    """Return what full credit asks for, in us; half of it is for twice the time."""
    return {"dtype": "bfloat16", "threshold_us": {"trn2": trn2, "trn3": trn3},
            "relaxed_us": {"trn2": 2 * trn2, "trn3": 2 * trn3}, **_FULL}


CASES = (
    plain_case(128, 512, 64, kernel="attend"),
    plain_case(100, 300, 32, kernel="attend"),
    plain_case(128, 256, 128, "bfloat16", kernel="attend", spread=12.0),
    plain_case(128, 640, 64),
    plain_case(140, 530, 32),
    plain_case(32, 1024, 128, "bfloat16"),
    # powers of these scores overflow where their maximum is not subtracted
    plain_case(64, 640, 128, "bfloat16", spread=12.0),
    causal_case(150, 128, "bfloat16", spread=12.0),
    grouped_case(2, 1, 140, 128, "bfloat16", spread=12.0),
    decode_case(2, 1, 260, 128, 200, "bfloat16", spread=12.0),
    causal_case(640, 32),
    causal_case(200, 64),
    causal_case(256, 128, "bfloat16"),
    grouped_case(4, 2, 192, 32),
    grouped_case(3, 1, 160, 32, "bfloat16"),
    decode_case(4, 2, 640, 64, 600),
    decode_case(4, 2, 640, 64, 70, "bfloat16"),
    decode_case(2, 1, 300, 32, 0),
    grouped_case(8, 2, 512, 64, **_fast(68, 63)),
    grouped_case(2, 1, 1024, 128, **_fast(57, 52)),
    grouped_case(1, 1, 2048, 128, **_fast(85, 75)),
    decode_case(8, 2, 2048, 128, 1500, **_fast(60, 60)),
)
KERNELS = ("attend", "flash", "causal", "grouped", "decode")
SECTIONS = ("1. attend", "2. flash", "3. causal", "4. grouped", "5. decode")


def _cases_of(kernel: str, fleet: str) -> tuple[str, ...]:
    return tuple(c.name for c in CASES if c.kernel == kernel and fleet in c.fleets)


LAB = Lab(
    name="attention",
    title="Flash attention",
    folder=Path(__file__).parent,
    cases=CASES,
    rubric=(
        *(RubricLine(kernel, 6, _cases_of(kernel, "quick")) for kernel in KERNELS),
        *(RubricLine(f"{case.name}, fast", 5, (case.name,), speed=True, relaxed=0.5,
                     target="trn2") for case in CASES if "contest" in case.fleets)),
    steps=tuple(Step(k, section, _cases_of(kernel, "quick"))
                for k, (kernel, section) in enumerate(zip(KERNELS, SECTIONS), 1)),
    editable=("kernels_nki.py",),
)
