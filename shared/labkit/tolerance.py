"""How far an output may be from the reference: derived, never tuned per case.

The reference computes in fp64 from the very inputs that the kernel gets, so its own error is
negligible and only the kernel's roundings remain:

* **Accumulating** K products in fp32. Each of the K additions rounds a partial sum to within
  u32 = 2^-24 of itself. The roundings are independent, so they add up as a random walk:
  about u32 * sqrt(K) times the size of the result. Where terms cancel, the partial sums are as
  large as the *typical* element of the output, not as the element at hand; so this part is
  absolute, in units of the root mean square R of the expected output.
* **Rounding to the output dtype** (unit roundoff u: 2^-24 fp32, 2^-11 fp16, 2^-8 bf16), once
  for each time the value is stored in it. This part is relative to the element. Where a number of
  up to B is added afterwards, as a bias is to a sum, what was rounded may be larger by B.

* **Functions.** The chip computes activation functions from tables, and products of float32 in
  several passes. Each that an output goes through adds up to E of R, as published for chips
  (ERRORS), and of the element where that is larger; a case names them.

    |actual - expected|  <=  (S * u32 * sqrt(K) + 2 * sum of E) * R
                             +  (2 * roundings * u + sum of E) * |expected|
                             +  2 * (roundings - 1) * u * B  +  tiny

S = 8: among the 10^8 elements of the largest case a Gaussian error passes 6 sigma about once in
five runs, and 8 sigma in none. The factor 2 leaves room for a rounding that lands on the wrong
side of a tie, and for hardware that computes a function by table. K = 0 says that values are
only moved: then the outputs must be equal bit by bit. Integer outputs must be equal.
`tiny` is the smallest subnormal of the output dtype. Real errors are far outside: one missing
term of a sum of K is off by about R / K, which in fp32 exceeds the tolerance for every K < 10^4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

SAFETY = 8.0
#: Largest errors of chips that were published, in units of the root mean square of the result
#: (docs/numerics.md): of rows of softmax, of a sigmoid, and of matmuls of float32.
ERRORS = {"exp": 4.8e-5, "sigmoid": 2e-6, "matmul": 3e-6}
#: Unit roundoff of the accumulator: PSUM and the vector engines compute in fp32.
U_ACCUMULATE = 2.0**-24


@dataclass(frozen=True)
class Tolerance:
    """Allowed error: `atol + rtol * |expected|`, elementwise."""

    rtol: float
    atol: float

    def __str__(self) -> str:
        if not (self.rtol or self.atol):
            return "exact"
        return f"{self.atol:.2g} + {self.rtol:.2g}*|expected|"


def _finfo(dtype: np.dtype) -> Any:
    if dtype.kind == "f" and dtype.isbuiltin == 1:
        return np.finfo(dtype)
    import ml_dtypes

    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


def unit_roundoff(dtype: np.dtype) -> float:
    """Return half the distance from 1 to the next number of a floating-point dtype."""
    return float(_finfo(dtype).eps) / 2


def _tiny(dtype: np.dtype) -> float:
    return float(_finfo(dtype).smallest_subnormal)


def is_number(dtype: np.dtype) -> bool:
    """Return whether a dtype holds real numbers: not text, dates, objects or complex numbers."""
    return dtype.kind in "fiub" or dtype.type.__module__ == "ml_dtypes"


def is_float(dtype: np.dtype) -> bool:
    """Return whether a dtype is floating point, including those of ml_dtypes."""
    if dtype.kind == "f" or not is_number(dtype):
        return dtype.kind == "f"
    if dtype.kind in "iub":
        return False
    try:
        _finfo(dtype)
    except ValueError:
        return False
    return True


def tolerance(
    dtype: np.dtype,
    accumulate: int,
    expected: np.ndarray,
    roundings: int = 1,
    functions: Sequence[str] = (),
    added: float = 0.0,
) -> Tolerance:
    """Return the tolerance for an output of `dtype` that sums `accumulate` terms (see above).

    `functions`: those of ERRORS that an element goes through. `added`: B.
    """
    dtype = np.dtype(dtype)
    if accumulate == 0 or not is_float(dtype):
        return Tolerance(0.0, 0.0)
    more = sum(ERRORS[f] for f in functions)
    share = SAFETY * U_ACCUMULATE * math.sqrt(accumulate) + 2 * more
    rounding = 2 * unit_roundoff(dtype)
    return Tolerance(
        rtol=roundings * rounding + more,
        atol=share * _rms(expected) + (roundings - 1) * rounding * added + _tiny(dtype),
    )


def _rms(expected: np.ndarray) -> float:
    """Return the root mean square of the finite elements."""
    flat = np.asarray(expected, dtype=np.float64).ravel()
    finite = flat[np.isfinite(flat)]
    return math.sqrt(float(np.dot(finite, finite)) / finite.size) if finite.size else 0.0


def tighter_than_the_chip(error: float, expected: np.ndarray, functions: Sequence[str]) -> str:
    """Return in words that an error is no larger than the chip's functions make; "" if it is.

    `functions` are those that the tolerance has room for.
    """
    share = error / rms if (rms := _rms(expected)) else math.inf
    more = [name for name, most in ERRORS.items() if name not in functions and share <= 2 * most]
    if not more:
        return ""
    return (
        f"; this is {share:.1e} of the root mean square, and a chip's own error is up to "
        + ", ".join(f"{ERRORS[name]:.1e} ({name})" for name in more)
        + ": if the kernel computes such a thing, the tolerance is tighter than the chip can "
        "be, and functions= of the case gives it room"
    )
