"""Compare an output with its reference, and say what the difference looks like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..spec import SpecError
from ..tolerance import Tolerance, is_float, is_number, tighter_than_the_chip, tolerance
from .diagnose import Alternative, Guess, guess_kind, joint_guess

_BLOCK = 1 << 20  # elements compared at once: keeps the fp64 temporaries small


@dataclass(frozen=True)
class AnyArgmax:
    """An expected index: any index whose score is within tolerance of the row's maximum is right.

    `scores` has the classes on its last axis; `accumulate` as in `Case`.
    """

    scores: np.ndarray
    accumulate: int = 1

    def __post_init__(self) -> None:
        scores = of_reference(self.scores)
        if not scores.ndim or not scores.shape[-1]:
            raise SpecError(
                f"the reference gives scores of shape {scores.shape}: their last axis "
                "must hold the classes"
            )
        if np.isnan(scores.astype(np.float64)).any():
            raise SpecError("the reference gives scores that are NaN: none of them is the largest")


@dataclass(frozen=True)
class Comparison:
    """The verdict on one output."""

    ok: bool
    text: str  # one sentence
    tolerance: Tolerance | None = None
    shape: tuple[int, ...] = ()
    wrong: int = 0
    nans: int = 0
    infs: int = 0
    max_error: float = 0.0
    worst: tuple[int, ...] = ()
    worst_expected: float = 0.0
    worst_actual: float = 0.0
    neighbourhood: str = ""
    guess: Guess | None = None

    @property
    def wrong_fraction(self) -> float:
        """Return the fraction of elements outside the tolerance."""
        return self.wrong / max(1, int(np.prod(self.shape)))

    def render(self) -> str:
        """Return the failure report as plain text."""
        lines = [self.text]
        if self.wrong:
            lines += [
                f"  worst element   {list(self.worst)}: expected {self.worst_expected:.7g}, "
                f"got {self.worst_actual:.7g}",
                f"  allowed error   {self.tolerance}",
                f"  NaN / inf       {self.nans} / {self.infs} in the output",
            ]
        if self.guess:
            lines.append(f"  looks like      {self.guess.text}")
        if self.neighbourhood:
            lines += ["", self.neighbourhood]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict JSON-ready; NaN and inf as text, since JSON has none."""

        def number(value: float) -> float | str:
            return float(value) if np.isfinite(value) else str(value)

        return {
            "ok": self.ok,
            "text": self.text,
            "wrong": self.wrong,
            "nans": self.nans,
            "infs": self.infs,
            "max_error": number(self.max_error),
            "tolerance": str(self.tolerance) if self.tolerance else None,
            "worst": [int(i) for i in self.worst],
            "guess": self.guess.kind if self.guess else None,
        }


def of_reference(result: Any) -> np.ndarray:
    """Return an output of a reference as an array; raise SpecError if it holds no numbers."""
    try:
        array = np.asarray(result)
    except ValueError:  # lists whose rows differ in length
        array = np.empty(0, dtype=object)
    if not is_number(array.dtype):
        raise SpecError(
            f"the reference returned a {type(result).__name__} that is no array of "
            "real numbers: nothing can be compared with it"
        )
    return array


def compare(
    expected: Any,
    actual: Any,
    *,
    dtype: Any = None,
    accumulate: int = 1,
    roundings: int = 1,
    functions: Sequence[str] = (),
    added: float = 0.0,
    alternatives: Sequence[Alternative] = (),
) -> Comparison:
    """Compare one output with its reference; `accumulate` ... `added`: as in `tolerance`.

    `dtype` is the dtype that the output must have (default: any). `alternatives` are results of
    known mistakes, for the guess at the kind of failure.
    """
    if actual is None:
        return Comparison(False, "the kernel returned nothing; it must return its output tensor")
    if not isinstance(actual, np.ndarray):
        name, of = getattr(actual, "name", None), type(actual)
        kind = (
            name
            if isinstance(name, str)
            else of.__name__
            if of.__module__ == "builtins"
            else f"{of.__name__} of {of.__module__.partition('.')[0]}"
        )
        return Comparison(False, f"the kernel returned a {kind}, not a tensor")
    actual = np.asarray(actual)  # of subclasses, which compute in their own way
    if not is_number(actual.dtype):
        return Comparison(
            False, f"the output is {actual.dtype}; it must hold real numbers", shape=actual.shape
        )
    if isinstance(expected, AnyArgmax):
        return _compare_argmax(expected, actual, alternatives)
    expected = of_reference(expected)
    if dtype is not None and actual.dtype != np.dtype(dtype):
        return Comparison(
            False, f"the output is {actual.dtype}; it must be {np.dtype(dtype)}", shape=actual.shape
        )
    if expected.shape != actual.shape:
        return _wrong_shape(expected, actual)
    limit = tolerance(actual.dtype, accumulate, expected, roundings, functions, added)
    bad, max_error, worst_flat = _differences(expected, actual, limit)
    wrong = int(bad.sum())
    nans, infs = _count_odd(actual)
    if wrong == 0:
        return Comparison(
            True,
            f"within tolerance (largest error {max_error:.2g})",
            limit,
            actual.shape,
            0,
            nans,
            infs,
            max_error,
        )
    worst = tuple(int(i) for i in np.unravel_index(worst_flat, expected.shape))
    share = 100 * wrong / expected.size
    text = f"wrong: {wrong} of {expected.size} elements ({share:.3g} %) are outside the tolerance"
    if is_float(actual.dtype):
        text += tighter_than_the_chip(max_error, expected, functions)
    return Comparison(
        False,
        text,
        limit,
        actual.shape,
        wrong,
        nans,
        infs,
        max_error,
        worst,
        float(expected[worst]),
        float(actual[worst]),
        neighbourhood(expected, actual, worst),
        guess_kind(expected, actual, bad.reshape(expected.shape), limit, alternatives),
    )


def _differences(
    expected: np.ndarray,
    actual: np.ndarray,
    limit: Tolerance,
) -> tuple[np.ndarray, float, int]:
    """Return the flat mask of wrong elements, the largest error, and where the worst one is."""
    flat_e, flat_a = expected.ravel(), actual.ravel()
    whole = not (is_float(expected.dtype) or is_float(actual.dtype))
    bad = np.zeros(flat_e.size, dtype=bool)
    max_error, worst, worst_excess = 0.0, 0, -np.inf
    with np.errstate(all="ignore"):
        for start in range(0, flat_e.size, _BLOCK):
            stop = start + _BLOCK
            e, a = flat_e[start:stop].astype(np.float64), flat_a[start:stop].astype(np.float64)
            if is_float(actual.dtype):  # what overflows the output dtype must come out as inf
                stored = e.astype(actual.dtype).astype(np.float64)
                e = np.where(np.isfinite(stored), e, stored)
            error = np.abs(a - e)
            error[(a == e) | (np.isnan(a) & np.isnan(e))] = 0.0  # inf - inf is NaN
            error[np.isnan(error)] = np.inf
            if whole:  # float64 holds integers to 2^53 only
                differ = flat_a[start:stop] != flat_e[start:stop]
                error = np.where(differ, np.maximum(error, 1.0), 0.0)
            excess = error - (limit.atol + limit.rtol * np.where(np.isfinite(e), np.abs(e), 0.0))
            bad[start:stop] = excess > 0
            top = int(np.argmax(excess))
            if excess[top] > worst_excess:
                worst_excess, worst = float(excess[top]), start + top
            max_error = max(max_error, float(error.max()))
    return bad, max_error, worst


def _count_odd(array: np.ndarray) -> tuple[int, int]:
    if not is_float(array.dtype):
        return 0, 0
    return int(np.isnan(array).sum()), int(np.isinf(array).sum())


def _wrong_shape(expected: np.ndarray, actual: np.ndarray) -> Comparison:
    text = f"the output has shape {actual.shape}; it must be {expected.shape}"
    guess = None
    if expected.ndim > 1 and actual.shape == expected.shape[::-1]:
        guess = Guess("layout", "the axes are in the opposite order (transposed?)")
    elif actual.size == expected.size:
        guess = Guess("layout", "the right number of elements: is a reshape missing at the end?")
    return Comparison(False, text, shape=actual.shape, guess=guess)


def _compare_argmax(
    expected: AnyArgmax, actual: np.ndarray, alternatives: Sequence[Alternative] = ()
) -> Comparison:
    scores = np.asarray(expected.scores, dtype=np.float64)
    rows, classes = int(np.prod(scores.shape[:-1])), scores.shape[-1]
    if actual.size != rows:
        return Comparison(
            False,
            f"the output has shape {actual.shape}; it must hold {rows} indices",
            shape=actual.shape,
        )
    given = actual.reshape(-1).astype(np.float64)
    with np.errstate(invalid="ignore"):
        index = np.where((given % 1 == 0) & (np.abs(given) <= classes), given, -1).astype(np.int64)
    flat = scores.reshape(rows, classes)
    limit = tolerance(np.dtype(np.float32), expected.accumulate, scores)
    short = _short_of_best(flat, index, limit)
    wrong = int((short > 0).sum())
    if wrong == 0:
        return Comparison(True, "every index picks a largest score", limit, actual.shape)
    row = int(np.argmax(short))
    # a mistake is named if it explains the right rows too: a few wrong indices would fit many
    agree = [
        alternative
        for alternative in alternatives
        if not alternative.noise
        and alternative.output.shape == flat[alternative.where].shape
        and (_short_of_best(alternative.output, index[alternative.where], limit) > 0).mean() < 0.02
    ]
    return Comparison(
        False,
        f"wrong: {wrong} of {rows} indices do not pick the largest score",
        limit,
        actual.shape,
        wrong,
        max_error=float(short[row]),
        worst=(row,),
        worst_expected=float(flat[row].argmax()),
        worst_actual=float(given[row]),
        guess=joint_guess(agree) if agree else None,
    )


def _short_of_best(scores: np.ndarray, index: np.ndarray, limit: Tolerance) -> np.ndarray:
    """Return by row how far the score at `index` is below the largest; 0 if within tolerance."""
    rows, classes = scores.shape
    inside = (index >= 0) & (index < classes)
    picked = scores[np.arange(rows), np.where(inside, index, 0)]
    best = scores.max(axis=1)
    with np.errstate(invalid="ignore"):  # inf - inf is NaN
        short = np.where(inside, best - picked, np.inf)
        close = short <= 2 * (limit.atol + limit.rtol * np.abs(best))
    return np.where(inside & ((picked == best) | (close & np.isfinite(short))), 0.0, short)


def neighbourhood(expected: np.ndarray, actual: np.ndarray, worst: tuple[int, ...]) -> str:
    """Return the values around the worst element: expected above, actual below."""
    if not worst:  # of one number there is nothing around it
        return ""
    lead, tail = worst[:-2], worst[-2:]
    if len(tail) == 1:
        expected, actual, tail = expected.reshape(1, -1), actual.reshape(1, -1), (0, *tail)
    else:
        expected, actual = expected[lead], actual[lead]
    rows, columns = (
        _window(at, size, reach) for at, size, reach in zip(tail, expected.shape, (1, 2))
    )
    at = "".join(f"{i}, " for i in lead)
    if len(worst) > 1:
        at += f"{rows.start}:{rows.stop}, "
    parts = []
    for name, array in (("expected", expected), ("actual", actual)):
        parts.append(f"  {name}[{at}{columns.start}:{columns.stop}]")
        for row in np.asarray(array[rows, columns], dtype=np.float64):
            parts.append("    " + " ".join(f"{value:>12.6g}" for value in row))
    return "\n".join(parts)


def _window(at: int, size: int, reach: int) -> slice:
    start = max(0, min(at - reach, size - 2 * reach - 1))
    return slice(start, min(size, start + 2 * reach + 1))
