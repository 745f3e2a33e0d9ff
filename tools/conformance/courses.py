"""What the course repositories' kernels are called with, and what must come out.

The shapes are those of the courses' own test programs, some of them smaller. The references are
those of our labs, which give the same problems; tolerances are the courses'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

LABS = Path(__file__).resolve().parents[2] / "labs"


@dataclass(frozen=True)
class CourseCase:
    """A kernel, its inputs (shape, dtype, low, high), and which function of a lab is right.

    `kwargs` go to both, `options` to the kernel alone. `constants`: sizes that the kernel's
    neighbour utils.py defines, to be replaced. Without `reference` the kernel only has to run.
    `flat`: the course's test gives the output the expected shape itself.
    """

    name: str
    kernel: str
    inputs: tuple[tuple[tuple[int, ...], str, float, float], ...]
    reference: str = ""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    rtol: float = 1e-5
    atol: float = 1e-8
    constants: Mapping[str, int] = field(default_factory=dict)
    slow: bool = False
    flat: bool = False

    def arrays(self) -> list[np.ndarray]:
        """Return the inputs, the same each time."""
        rng = np.random.default_rng(149)
        return [
            (low + (high - low) * rng.random(shape, dtype=np.float32)).astype(dtype)
            for shape, dtype, low, high in self.inputs
        ]


def _vectors(kernel: str, size: int, reference: str = "add") -> CourseCase:
    one = ((size,), "float32", 0.0, 1.0)
    return CourseCase(f"{kernel} {size}", kernel, (one, one), reference, flat=True)


def _transpose(kernel: str, rows: int, columns: int, **more: Any) -> CourseCase:
    return CourseCase(
        f"{kernel} {rows}x{columns}",
        kernel,
        (((rows, columns), "float32", 0.0, 1.0),),
        "transpose",
        **more,
    )


def _conv(
    kernel: str,
    batch: int,
    c_in: int,
    c_out: int,
    size: int,
    height: int,
    width: int,
    dtype: str = "float32",
    bias: float = 1.0,
    pool: int | None = None,
    slow: bool = False,
) -> CourseCase:
    inputs = (
        ((batch, c_in, height, width), dtype, 0.0, 1.0),
        ((c_out, c_in, size, size), dtype, 0.0, 1.0),
        ((c_out,), dtype, 0.0, bias),
    )
    rtol, atol = (1e-2, 1e-4) if dtype == "float16" else (1e-5, 1e-8)
    name = f"{kernel} {c_in}->{c_out} {size}x{size} {batch}x{height}x{width} {dtype}"
    return CourseCase(
        name + (f" pool {pool}" if pool else ""),
        kernel,
        inputs,
        "conv2d_exact",
        {} if pool is None else {"pool_size": pool},
        rtol=rtol,
        atol=atol,
        slow=slow,
    )


def _stanford() -> tuple[CourseCase, ...]:
    name = "fused_conv2d_maxpool"
    small = [
        _conv(name, 4, i, o, 3, 32, 16, bias=0.0, pool=1) for i in (128, 256) for o in (128, 256)
    ]
    return (
        *small,
        _conv(name, 4, 256, 256, 3, 32, 16, pool=2),
        *(_conv(name, 1, 256, 256, 3, 32, 16, "float16", pool=p) for p in (1, 2)),
        _conv(name, 1, 128, 256, 3, 224, 224, pool=1, slow=True),
        _conv(name, 1, 128, 256, 3, 224, 224, "float16", pool=2, slow=True),
    )


def _berkeley() -> tuple[CourseCase, ...]:
    """Return shapes of two years; in the second, output pixels are multiples of 512."""
    name = "conv2d_nki"
    return (
        _conv(name, 4, 128, 256, 3, 32, 32, bias=50),
        _conv(name, 2, 256, 256, 5, 32, 32, bias=50),
        _conv(name, 2, 128, 128, 5, 32, 32, "float16", bias=50),
        _conv(name, 4, 128, 256, 3, 34, 34, bias=50),
        _conv(name, 2, 256, 256, 5, 36, 36, "float16", bias=50),
        _conv(name, 1, 128, 256, 3, 66, 66, "float16", bias=50, slow=True),
        _conv(name, 1, 128, 128, 3, 256, 256, "float16", bias=50, slow=True),
    )


_NETWORK = {"BATCH_SIZE": 2048, "INPUT_SIZE": 1024, "HIDDEN_SIZE": 1024, "OUTPUT_SIZE": 1024}


def _network(kernel: str, which: str) -> CourseCase:
    b, i, h, o = _NETWORK.values()
    inputs = (
        ((b, i), "float32", 0.0, 1.0),
        ((i, h), "float32", -0.02, 0.02),
        ((1, h), "float32", -0.02, 0.02),
        ((h, o), "float32", -0.02, 0.02),
        ((1, o), "float32", -0.02, 0.02),
    )
    return CourseCase(
        f"{kernel} {which}",
        kernel,
        inputs,
        kernel.removeprefix("nki_"),
        options={"matmul_kernel": which},
        rtol=1e-4,
        atol=1e-7,
        constants=_NETWORK,
    )


def _bias(act: str, rows: int, columns: int) -> CourseCase:
    return CourseCase(
        f"nki_bias_add_act {act} {rows}x{columns}",
        "nki_bias_add_act",
        (((rows, columns), "float32", 0.0, 1.0), ((1, columns), "float32", 0.0, 1.0)),
        "bias_add_act",
        {"act": act},
        rtol=1e-4,
        atol=1e-7,
        constants=_NETWORK,
    )


def _matmul(kernel: str, k: int, m: int, n: int) -> CourseCase:
    return CourseCase(
        f"{kernel} {k}x{m}x{n}",
        kernel,
        (((k, m), "float32", 0.0, 1.0), ((k, n), "float32", 0.0, 1.0)),
        "matmul",
        rtol=1e-4,
        atol=1e-2,
    )


#: Course layout -> (lab whose references are right, cases).
CASES: dict[str, tuple[CourseCase, ...]] = {
    "vecadd": (
        _vectors("vector_add_naive", 128),
        _vectors("vector_add_tiled", 25600),
        _vectors("vector_add_stream", 256000),
        _vectors("vector_add_direct_allocation", 256000),
        _vectors("vector_add_direct_allocation_bad", 256000, ""),
        _transpose("matrix_transpose", 256, 512),
        _transpose("matrix_transpose", 2048, 2048),
    ),
    "conv2d": (*_stanford(), *_berkeley()),
    "ffnn": (
        _transpose("nki_transpose", 2048, 1024, constants=_NETWORK),
        _bias("relu", 2048, 1024),
        _bias("softmax", 2048, 1024),
        _network("nki_forward", "tiled"),
        _network("nki_predict", "tiled"),
        _network("nki_predict", "fully_optimized"),
        *(
            _matmul(f"nki_matmul_{which}_", 1024, 2048, 1024)
            for which in ("tiled", "hoist_load", "block_free_dimension", "fully_optimized")
        ),
    ),
}


def find(course: str, name: str) -> CourseCase:
    """Return the case of a course by its name."""
    return next(case for case in CASES[course] if case.name == name)


def reference(course: str, case: CourseCase) -> Callable[..., Any]:
    """Return the function of our lab that computes what is right."""
    from labkit.load import load_module

    return getattr(load_module(LABS / course / "reference.py"), case.reference)


def complaint(expected: Any, given: Any, rtol: float, atol: float) -> str:
    """Return what is wrong with a kernel's output, "" if nothing."""
    scores = getattr(expected, "scores", None)  # an expected argmax: any largest is right
    if scores is not None:
        index = np.asarray(given).reshape(-1).astype(np.int64)
        if index.size != len(scores) or index.min() < 0 or index.max() >= scores.shape[1]:
            return f"{index.size} indices, not {len(scores)} in range"
        picked = scores[np.arange(index.size), index]
        wrong = int((picked < scores.max(axis=1) * (1 - rtol)).sum())
        return f"{wrong} of {index.size} rows do not pick a largest score" if wrong else ""
    if not isinstance(given, np.ndarray):
        return f"returned {type(given).__name__}, not an array"
    expected = np.asarray(expected, dtype=np.float64)
    if expected.shape != given.shape:
        return f"shape {given.shape}, not {expected.shape}"
    got = given.astype(np.float64)
    with np.errstate(all="ignore"):
        wrong = int((~np.isclose(got, expected, rtol=rtol, atol=atol)).sum())
        worst = float(np.nanmax(np.abs(got - expected))) if got.size else 0.0
    return f"{wrong} of {got.size} elements are wrong, by up to {worst:.3g}" if wrong else ""


def several(value: Any) -> Sequence[Any]:
    """Return outputs as a sequence."""
    return value if isinstance(value, (tuple, list)) else (value,)
