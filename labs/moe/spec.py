"""The mixture-of-experts lab as data: seven kernels, small and at speed."""
from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from labkit import Case, Contest, Lab, RubricLine, Step, Tensor

TARGETS = ("trn2", "trn3")
_FULL: dict[str, Any] = {"fleets": ("full", "contest")}
#: exponents of MXFP8 groups of weights: factors of 2^-12 to 2^-7
EXPONENTS = (115, 121)


def _name(kernel: str, shape: str, dtype: str) -> str:
    return f"{kernel}_{shape}" + (f"_{dtype}" if dtype != "float32" else "")


def gather_case(n: int, rows: int, d: int, dtype: str = "float32") -> Case:
    """Return a case of gather: n rows of a table of `rows`."""
    return Case(_name("gather", f"{n}of{rows}x{d}", dtype), "gather", "gather",
                (Tensor((rows, d), dtype), Tensor((n, 1), "int32", 0, rows)), accumulate=0,
                targets=TARGETS, reads=0.0)


def scatter_case(n: int, rows: int, d: int, dtype: str = "float32") -> Case:
    """Return a case of scatter_add: n rows, a fifth of them for no row of the table.

    Rows that get nothing need not move, and how many these are depends on the numbers.
    """
    which = Tensor((n, 1), "int32", 0, max(n, rows * 5 // 4), distinct=n)
    return Case(_name("scatter_add", f"{n}to{rows}x{d}", dtype), "scatter_add", "scatter_add",
                (Tensor((rows, d), dtype), Tensor((n, d), dtype), which),
                targets=TARGETS, reads=0.0, writes=0.0)


def route_case(n: int, d: int, experts: int, k: int, dtype: str = "float32",
               scores: str = "softmax", **more: Any) -> Case:
    """Return a case of route: n tokens of d numbers, the k best of so many experts."""
    label = f"{n}x{d}_{k}of{experts}" + ("_sigmoid" if scores == "sigmoid" else "")
    return Case(_name("route", label, dtype), "route", "route",
                (Tensor((n, d), dtype, -1, 1), Tensor((d, experts), dtype, -1, 1)),
                kwargs={"k": k, "scores": scores}, accumulate=d, roundings=4,
                functions=("exp", "matmul"), output_dtype=("float32", "uint32"), targets=TARGETS,
                flops=2.0 * n * d * experts, **more)


def _choice(n: int, k: int, experts: int) -> tuple[Tensor, Tensor]:
    """Return the experts of n tokens, k different ones each, and their weights."""
    return Tensor((n, k), "int32", 0, experts, distinct=k), Tensor((n, k))


def _network(name: str, kernel: str, dtype: str, n: int, d: int, h: int, experts: int,
             matrices: tuple[Tensor, ...], lists: tuple[Tensor, Tensor], terms: float,
             **more: Any) -> Case:
    """Return a case of tokens that go through networks; `terms` is how often one does.

    Sums of x gate are as often below 0 as above, and silu leaves little of what is below: nearly
    all that is added up after it has one sign, and errors stay relative ones. Two experts, or two
    orders of the same numbers, are far apart.
    """
    given: dict[str, Any] = {"targets": TARGETS, "roundings": 4 if dtype == "float32" else 2}
    return Case(_name(kernel, name, dtype), kernel, kernel,
                (Tensor((n, d), dtype), *matrices, *lists), accumulate=d + h,
                functions=("sigmoid", "matmul"), flops=6.0 * d * h * terms, **(given | more))


def _matrices(d: int, h: int, experts: int, dtype: str, scale: float = 1.0) -> tuple[Tensor, ...]:
    """Return gate, up and down, for numbers that are multiplied by about `scale` later.

    x gate has a spread of 3, and no layer grows.
    """
    gate = 9 / math.sqrt(d) / scale
    return (Tensor((experts, d, h), dtype, -gate, gate),
            Tensor((experts, d, h), dtype, 0, 4 / d / scale),
            Tensor((experts, h, d), dtype, 0, 4 / h / scale))


def decode_case(n: int, k: int, experts: int, d: int, h: int, dtype: str = "float32",
                **more: Any) -> Case:
    """Return a case of decode: each of n tokens goes through k experts."""
    return _network(f"{n}x{d}_{k}of{experts}x{h}", "decode", dtype, n, d, h, experts,
                    _matrices(d, h, experts, dtype), _choice(n, k, experts), n * k,
                    **({"reads": k / experts} | more))


def fp8_case(n: int, k: int, experts: int, d: int, h: int, **more: Any) -> Case:
    """Return a case of decode_fp8: scales of about 2 / d."""
    scales = Tensor((experts, 128, (2 * h + d) // 128), "float32", 0.5 / d, 4 / d)
    return _network(f"{n}x{d}_{k}of{experts}x{h}", "decode_fp8", "bfloat16", n, d, h, experts,
                    (*_matrices(d, h, experts, "float8_e4m3", 2 / d), scales),
                    _choice(n, k, experts), n * k, **({"reads": k / experts} | more))


def experts_case(n: int, capacity: int, experts: int, d: int, h: int, dtype: str = "float32",
                 **more: Any) -> Case:
    """Return a case of experts: lists of `capacity` places, of them a fifth without a token.

    A token has a sum of as many parts as it has experts, and each sum is rounded. Tokens in no list
    need not be read: of the bytes that have to come, x counts as none.
    """
    lists = (Tensor((experts, capacity), "int32", 0, max(capacity, n * 5 // 4),
                    distinct=capacity),
             Tensor((experts, capacity)))
    item = 4 if dtype == "float32" else 2
    rest = 3 * experts * d * h * item + 2 * experts * capacity * 4
    return _network(f"{n}x{d}_{experts}x{capacity}x{h}", "experts", dtype, n, d, h, experts,
                    _matrices(d, h, experts, dtype), lists, experts * capacity / 2,
                    **({"roundings": experts + 2, "reads": rest / (rest + n * d * item)} | more))


def mx_case(n: int, k: int, experts: int, d: int, h: int, **more: Any) -> Case:
    """Return a case of decode_mx, for Trainium 3.

    Numbers between the layers are rounded to 3 bits behind the point: one rounding of them is 16
    of bfloat16.
    """
    def packs(rows: int, columns: int, low: float, high: float) -> Tensor:
        return Tensor((experts, rows // 4, columns, 4), "float8_e4m3fn", low, high)

    gate = 2500 / math.sqrt(d)

    scales = Tensor((experts, 16, 2 * (d // 512) * h + h // 512 * d), "uint8", *EXPONENTS)
    return _network(f"{n}x{d}_{k}of{experts}x{h}", "decode_mx", "bfloat16", n, d, h, experts,
                    (packs(d, h, -gate, gate), packs(d, h, 0, 1500 / d), packs(h, d, 0, 1), scales),
                    _choice(n, k, experts), n * k,
                    **({"reads": k / experts, "targets": ("trn3",), "roundings": 16} | more))


def _fast(trn3: float, trn2: float = 0.0) -> dict[str, Any]:
    """Return what full credit asks for, in us; half of it is for twice the time."""
    asked = {"trn3": trn3} | ({"trn2": trn2} if trn2 else {})
    return {"threshold_us": asked, "relaxed_us": {t: 2 * us for t, us in asked.items()}, **_FULL}


CASES = (
    gather_case(200, 300, 64), gather_case(256, 1000, 96, "bfloat16"), gather_case(50, 64, 32),
    scatter_case(200, 300, 64), scatter_case(256, 256, 32), scatter_case(60, 90, 32, "bfloat16"),
    route_case(200, 256, 32, 4), route_case(64, 128, 8, 2),
    route_case(256, 128, 64, 8, "bfloat16"), route_case(40, 128, 16, 3, scores="sigmoid"),
    decode_case(2, 2, 6, 256, 128), decode_case(1, 1, 3, 128, 256),
    decode_case(3, 2, 4, 256, 256, "bfloat16"),
    fp8_case(2, 2, 4, 256, 128), fp8_case(1, 3, 5, 128, 256),
    experts_case(100, 40, 3, 256, 128), experts_case(300, 140, 2, 128, 256),
    experts_case(200, 128, 3, 256, 256, "bfloat16"),
    mx_case(2, 2, 3, 512, 512), mx_case(1, 1, 2, 1024, 512),
    route_case(1024, 1024, 64, 8, "bfloat16", **_fast(33, 33)),
    decode_case(1, 4, 8, 1024, 512, "bfloat16", **_fast(51, 56)),
    fp8_case(1, 4, 8, 1024, 512, **_fast(37, 38)),
    experts_case(512, 128, 8, 512, 512, "bfloat16", **_fast(67, 77)),
    mx_case(1, 4, 8, 1024, 512, **_fast(51)),
)
KERNELS = ("gather", "scatter_add", "route", "decode", "decode_fp8", "experts", "decode_mx")
SECTIONS = tuple(f"{k}. {kernel}" for k, kernel in enumerate(KERNELS, 1))
#: points of a kernel's speed
SPEED = {"route": 5, "decode": 5, "decode_fp8": 5, "experts": 7}


def _cases_of(kernel: str, fleet: str) -> tuple[str, ...]:
    return tuple(c.name for c in CASES if c.kernel == kernel and fleet in c.fleets)


def target_of(kernel: str) -> str:
    """Return the generation that a kernel's points are for, "" if it is the course's."""
    return "trn3" if kernel == "decode_mx" else ""


LAB = Lab(
    name="moe",
    title="Mixture of experts",
    folder=Path(__file__).parent,
    cases=CASES,
    rubric=(
        *(RubricLine(kernel, 4, _cases_of(kernel, "quick"), target=target_of(kernel))
          for kernel in KERNELS),
        *(RubricLine(f"{name}, fast", points, (name,), speed=True, relaxed=0.5, target="trn2")
          for kernel, points in SPEED.items() for name in _cases_of(kernel, "contest"))),
    steps=tuple(Step(k, section, _cases_of(kernel, "quick"))
                for k, (kernel, section) in enumerate(zip(KERNELS, SECTIONS), 1)),
    editable=("kernels_nki.py",),
    contest=Contest(rank=("time", "bytes")),
)
