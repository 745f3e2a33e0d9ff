"""The norms lab as data: five kernels, in float32 and bfloat16, small and at speed."""
from __future__ import annotations

from pathlib import Path
from typing import Any

from labkit import Case, Lab, RubricLine, Step, Tensor

TARGETS = ("trn2", "trn3")
#: rows and columns that speed is asked for, and the contest's fleet
SPEED = (2048, 2048)
LONG = (128, 65536)
_FULL: dict[str, Any] = {"fleets": ("full", "contest")}


def _name(kernel: str, rows: int, columns: int, dtype: str, more: str = "") -> str:
    return f"{kernel}_{rows}x{columns}" + (f"_{dtype}" if dtype != "float32" else "") + more


def softmax_case(rows: int, columns: int, dtype: str = "float32", most: float = 1.0,
                 kernel: str = "softmax", **more: Any) -> Case:
    """Return a case of softmax or softmax_long, with |x| up to `most`.

    exp, the sum and the quotient round once each, and exp(x - max) has the absolute rounding error
    of the difference, twice `most` at the largest, as a relative one. In float32: in bfloat16 only
    the last rounding counts.
    """
    roundings = 4 + int(2 * most) if dtype == "float32" else 1
    name = _name(kernel, rows, columns, dtype, f"_to{most:g}" if most != 1 else "")
    return Case(name, kernel, "softmax", (Tensor((rows, columns), dtype, -most, most),),
                accumulate=columns, functions=("exp",), roundings=roundings, targets=TARGETS,
                **more)


def layer_norm_case(rows: int, columns: int, dtype: str = "float32", offset: int = 0,
                    **more: Any) -> Case:
    """Return a case of layer_norm; values lie within 1 of `offset`.

    What is summed for the mean is then `offset` times the square root of 3 as large as the spread,
    and its rounding errors are, too; a sum of that many squares more terms has such errors.
    """
    name = _name("layer_norm", rows, columns, dtype, f"_at{offset}" if offset else "")
    row = Tensor((1, columns), dtype, -1.0)
    return Case(name, "layer_norm", "layer_norm",
                (Tensor((rows, columns), dtype, offset - 1.0, offset + 1.0), row, row),
                kwargs={"epsilon": 1e-5}, accumulate=columns * max(1, 3 * offset**2),
                roundings=3 if dtype == "float32" else 1, targets=TARGETS, **more)


def rms_norm_case(rows: int, columns: int, dtype: str = "float32", most: float = 1.0,
                  **more: Any) -> Case:
    """Return a case of rms_norm, with |x| up to `most`."""
    name = _name("rms_norm", rows, columns, dtype, f"_to{most:g}" if most != 1 else "")
    return Case(name, "rms_norm", "rms_norm",
                (Tensor((rows, columns), dtype, -most, most), Tensor((1, columns), dtype, -1.0)),
                kwargs={"epsilon": 1e-5}, accumulate=columns,
                roundings=3 if dtype == "float32" else 1, targets=TARGETS, **more)


def add_case(rows: int, columns: int, dtype: str = "float32", **more: Any) -> Case:
    """Return a case of add_rms_norm; the sum is rounded to the dtype before it is normed."""
    row = Tensor((1, columns), dtype, -1.0)
    x = Tensor((rows, columns), dtype, -1.0)
    return Case(_name("add_rms_norm", rows, columns, dtype), "add_rms_norm", "add_rms_norm",
                (x, x, row), kwargs={"epsilon": 1e-5}, accumulate=columns,
                roundings=4 if dtype == "float32" else 2, targets=TARGETS, **more)


def _fast(trn2: float, trn3: float) -> dict[str, Any]:
    """Return what full credit asks for, in us; half of it is for twice the time."""
    return {"threshold_us": {"trn2": trn2, "trn3": trn3},
            "relaxed_us": {"trn2": 2 * trn2, "trn3": 2 * trn3}, **_FULL}


CASES = (
    softmax_case(256, 512),
    softmax_case(200, 77),
    softmax_case(128, 64, most=1000.0),
    softmax_case(256, 1024, "bfloat16"),
    layer_norm_case(256, 512),
    layer_norm_case(200, 600),
    layer_norm_case(128, 2048, offset=1000),
    layer_norm_case(128, 1024, "bfloat16", offset=8),
    rms_norm_case(256, 512),
    rms_norm_case(200, 77),
    rms_norm_case(256, 1024, "bfloat16"),
    add_case(256, 512),
    add_case(200, 640, "bfloat16"),
    softmax_case(16, 65536, most=100.0, kernel="softmax_long"),
    softmax_case(16, 131072, "bfloat16", kernel="softmax_long"),
    softmax_case(*SPEED, **_fast(98, 83)),
    layer_norm_case(*SPEED, **_fast(106, 90)),
    rms_norm_case(*SPEED, **_fast(98, 83)),
    add_case(*SPEED, **_fast(180, 152)),
    softmax_case(*LONG, kernel="softmax_long", **_fast(250, 215)),
)
KERNELS = ("softmax", "layer_norm", "rms_norm", "add_rms_norm", "softmax_long")
SECTIONS = ("1. softmax", "2. layer_norm", "3. rms_norm", "4. add_rms_norm", "5. softmax_long")


def _cases_of(kernel: str, fleet: str) -> tuple[str, ...]:
    return tuple(c.name for c in CASES if c.kernel == kernel and fleet in c.fleets)


LAB = Lab(
    name="norms",
    title="Softmax and normalisation",
    folder=Path(__file__).parent,
    cases=CASES,
    rubric=(
        *(RubricLine(kernel, 6, _cases_of(kernel, "quick")) for kernel in KERNELS),
        *(RubricLine(f"{kernel}, fast", 4, _cases_of(kernel, "contest"), speed=True, relaxed=0.5,
                     target="trn2") for kernel in KERNELS)),
    steps=tuple(Step(k, section, _cases_of(kernel, "quick"))
                for k, (kernel, section) in enumerate(zip(KERNELS, SECTIONS), 1)),
    editable=("kernels_nki.py",),
)
