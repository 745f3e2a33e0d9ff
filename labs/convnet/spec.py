"""The convolutions of a network as data: padding, stride, and small images by the dozen."""
from __future__ import annotations

from pathlib import Path
from typing import Any

from labkit import Case, Lab, RubricLine, Step, Tensor

TARGETS = ("trn2", "trn3")
KERNELS = ("padded", "strided", "batched")
SECTIONS = ("1. padded", "2. strided", "3. batched")


def inside(size: int, length: int, stride: int, padding: int) -> int:
    """Return how many pairs of a tap and an output of one axis meet a pixel of the image."""
    outputs = (length + 2 * padding - size) // stride + 1
    return sum(0 <= r * stride + i - padding < length
               for r in range(outputs) for i in range(size))


def conv_case(kernel: str, batch: int, c_in: int, c_out: int, size: int, height: int, width: int,
              dtype: str = "float32", stride: int = 1, padding: int = 0, **more: Any) -> Case:
    """Return a case. Products with the zeros of the padding are not needed: `flops` has none."""
    label = f"{kernel}_{batch}x{c_in}to{c_out}_{size}x{size}_{height}x{width}"
    label += f"_s{stride}" * (stride > 1) + f"_p{padding}" + f"_{dtype}" * (dtype != "float32")
    pairs = inside(size, height, stride, padding) * inside(size, width, stride, padding)
    inputs = (Tensor((batch, c_in, height, width), dtype),
              Tensor((c_out, c_in, size, size), dtype, low=-1.0), Tensor((c_out,), dtype))
    kwargs = {"padding": padding} | ({} if kernel == "padded" else {"stride": stride})
    return Case(label, kernel, "conv2d", inputs, kwargs=kwargs,
                accumulate=c_in * size * size + 1, flops=2.0 * batch * c_in * c_out * pairs,
                functions=("matmul",) if dtype == "float32" else (), targets=TARGETS, **more)


def _fast(trn2: float, trn3: float) -> dict[str, Any]:
    """Return what full credit asks for, in us; half of it is for 1.5 times the time."""
    return {"dtype": "bfloat16", "threshold_us": {"trn2": trn2, "trn3": trn3},
            "relaxed_us": {"trn2": 1.5 * trn2, "trn3": 1.5 * trn3},
            "fleets": ("full", "contest")}


CASES = (
    conv_case("padded", 1, 128, 128, 3, 10, 12, padding=1),
    conv_case("padded", 2, 128, 256, 5, 9, 14, "bfloat16", padding=2),
    conv_case("padded", 1, 256, 128, 3, 30, 40, "float16", padding=1),
    conv_case("padded", 1, 128, 128, 5, 6, 8, padding=1),
    conv_case("strided", 1, 128, 128, 3, 16, 20, stride=2, padding=1),
    conv_case("strided", 2, 256, 128, 3, 15, 13, "bfloat16", stride=2, padding=1),
    conv_case("strided", 1, 128, 256, 1, 12, 18, "float16", stride=2),
    conv_case("strided", 1, 128, 128, 5, 17, 20, stride=3, padding=2),
    conv_case("batched", 5, 128, 128, 3, 7, 7, padding=1),
    conv_case("batched", 13, 128, 256, 3, 7, 7, "bfloat16", padding=1),
    conv_case("batched", 7, 256, 128, 5, 10, 11, "bfloat16", stride=2, padding=2),
    conv_case("batched", 3, 128, 128, 3, 28, 26, "float16", padding=1),
    conv_case("padded", 4, 128, 128, 3, 56, 56, padding=1, **_fast(71, 69)),
    conv_case("padded", 8, 128, 128, 5, 28, 28, padding=2, **_fast(87.5, 86.5)),
    conv_case("strided", 8, 256, 256, 3, 28, 28, stride=2, padding=1, **_fast(47, 46)),
    conv_case("batched", 16, 256, 256, 3, 14, 14, padding=1, **_fast(69, 68.8)),
    conv_case("batched", 32, 256, 256, 3, 7, 7, padding=1, **_fast(45.5, 45)),
)


def _cases_of(kernel: str, fleet: str) -> tuple[str, ...]:
    return tuple(c.name for c in CASES if c.kernel == kernel and fleet in c.fleets)


LAB = Lab(
    name="convnet",
    title="Convolutions of a network: padding, stride, many small images",
    folder=Path(__file__).parent,
    cases=CASES,
    rubric=(
        *(RubricLine(kernel, 5, _cases_of(kernel, "quick")) for kernel in KERNELS),
        *(RubricLine(f"{case.name}, fast", 3, (case.name,), speed=True, relaxed=0.5,
                     target="trn2") for case in CASES if "contest" in case.fleets)),
    steps=tuple(Step(k, section, _cases_of(kernel, "quick"))
                for k, (kernel, section) in enumerate(zip(KERNELS, SECTIONS), 1)),
    editable=("kernels_nki.py",),
)
