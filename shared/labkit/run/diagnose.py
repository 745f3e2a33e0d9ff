"""Guess what kind of mistake made an output wrong. A guess is a hint, never part of a verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..tolerance import Tolerance

_TILE = 128  # rows of a tile: the granularity at which stale data is looked for
_MAX_ELEMENTS = 1 << 24  # larger outputs are not searched, except for the alternatives
_NAMED = 3  # alternatives that are named, where several agree with the output


@dataclass(frozen=True)
class Guess:
    """A kind of mistake and the sentence shown for it."""

    kind: str
    text: str


@dataclass(frozen=True)
class Alternative:
    """What a known mistake would have given.

    `output`: the wrong result, NaN where it is not known; of the part `where` of the output.
    `noise`: the mistake is lost precision, so its errors are alike in size and not one by one.
    """

    says: str
    output: np.ndarray
    where: Any = ...
    noise: bool = False
    kind: str = "mistake"


def guess_kind(
    expected: np.ndarray,
    actual: np.ndarray,
    bad: np.ndarray,
    limit: Tolerance,
    alternatives: Sequence[Alternative] = (),
) -> Guess | None:
    """Return the first explanation that fits, from the most to the least specific.

    Known mistakes come first; where several agree with the output, all of them are said. Where it
    is known what narrow dtypes would have given, and it is not this, nothing is said of them.
    """
    with np.errstate(all="ignore"):
        for test in (_is_all, _is_the_wrong, _is_as_noisy):
            agree = [
                alternative
                for alternative in alternatives
                if test(alternative, expected, actual, bad, limit)
            ]
            if agree:
                return joint_guess(agree)
        if not expected.ndim or expected.size > _MAX_ELEMENTS:
            return None
        e, a = expected.astype(np.float64), actual.astype(np.float64)
        kinds: list[Callable[..., Guess | None]] = [
            _uninitialised,
            _zeros,
            _stored_narrow,
            _rounding,
            _layout,
            _stale_tile,
            _carried,
            _scaled,
            _accumulation,
        ]
        if any(alternative.noise for alternative in alternatives):
            kinds.remove(_rounding)
        for kind in kinds:
            guess = kind(e, a, bad, limit)
            if guess:
                return guess
    return None


def joint_guess(agree: Sequence[Alternative]) -> Guess:
    """Return the guess that names the alternatives that agree with an output."""
    texts = list(dict.fromkeys(alternative.says for alternative in agree))
    text = ", or ".join(texts[:_NAMED])
    if len(texts) > _NAMED:
        text += f" (and {len(texts) - _NAMED} more known mistakes give the same)"
    return Guess(agree[0].kind, text)


def _is_all(
    known: Alternative, expected: np.ndarray, actual: np.ndarray, bad: np.ndarray, limit: Tolerance
) -> bool:
    """Return whether a known mistake explains an output: all of it, what is right as well."""
    return _is_the_wrong(known, expected, actual, bad, limit, all_of_it=True)


def _is_the_wrong(
    known: Alternative,
    expected: np.ndarray,
    actual: np.ndarray,
    bad: np.ndarray,
    limit: Tolerance,
    all_of_it: bool = False,
) -> bool:
    """Return whether a known mistake explains the wrong elements: it may be made in some tiles."""
    a, other = _of_part(known, actual)
    if known.noise or a.shape != other.shape:
        return False
    wrong, known_at = bad[known.where], ~np.isnan(other)
    explained = wrong & known_at
    if 2 * explained.sum() < wrong.sum() or not explained.any():
        return False
    e = expected[known.where].astype(np.float64)
    if _close(other, e, limit)[explained].mean() > 0.5:  # with these inputs it is no mistake
        return False
    same = _close(a, other, limit)
    return float(same[known_at if all_of_it else explained].mean()) > 0.995


def _is_as_noisy(
    known: Alternative, expected: np.ndarray, actual: np.ndarray, bad: np.ndarray, limit: Tolerance
) -> bool:
    """Return whether errors are small and about as large as those of a loss of precision."""
    a, other = _of_part(known, actual)
    if not known.noise or a.shape != other.shape:
        return False
    e = expected[known.where].astype(np.float64)
    error, theirs = np.abs(a - e), np.abs(other - e)
    sure = np.isfinite(error) & np.isfinite(theirs)
    if not sure.mean() > 0.5:
        return False
    quantiles, other_quantiles = (
        np.quantile(values[sure], (0.5, 0.99)) for values in (error, theirs)
    )
    if (
        not (quantiles.all() and other_quantiles.all())
        or quantiles[0] > 0.1 * np.abs(e[sure]).max()
    ):
        return False
    if error[sure].max() > 4 * theirs[sure].max():  # holes in a result that is coarse
        return False
    return bool(
        (np.abs(np.log2(quantiles / other_quantiles)) < 1.5).all()
    )  # dtypes are 3 bits or more apart


def _of_part(known: Alternative, actual: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the output's part that a mistake is known for, and what it gives, in float64."""
    other = np.asarray(known.output).astype(actual.dtype)  # what overflows is inf there as well
    return actual[known.where].astype(np.float64), other.astype(np.float64)


def _mostly(mask: np.ndarray) -> bool:
    return mask.size > 0 and float(mask.mean()) > 0.9


def _close(a: np.ndarray, e: np.ndarray, limit: Tolerance) -> np.ndarray:
    allowed = limit.atol + limit.rtol * np.where(np.isfinite(e), np.abs(e), 0.0)
    return (a == e) | (np.abs(a - e) <= allowed)  # inf - inf is NaN


def _uninitialised(
    e: np.ndarray,
    a: np.ndarray,
    bad: np.ndarray,
    limit: Tolerance,
) -> Guess | None:
    odd = ~np.isfinite(a) & np.isfinite(e)
    if not odd.any():
        return None
    return Guess(
        "not a number",
        f"{int(odd.sum())} elements are NaN or inf: memory that was never written, or an overflow",
    )


def _zeros(e: np.ndarray, a: np.ndarray, bad: np.ndarray, limit: Tolerance) -> Guess | None:
    if not _mostly(a[bad] == 0):
        return None
    if not a.any():
        return Guess(
            "all zeros", "the whole output is zero: is the result ever accumulated and stored?"
        )
    return Guess(
        "missing accumulation",
        "the wrong elements are all zero: a part of the output is never computed",
    )


def _stored_narrow(
    e: np.ndarray,
    a: np.ndarray,
    bad: np.ndarray,
    limit: Tolerance,
) -> Guess | None:
    """Look for float32 outputs that hold numbers of a narrower dtype only."""
    import ml_dtypes

    if not _close(a, e, Tolerance(2.0**-7, 2.0**-7 * float(np.abs(e).max()))).all():
        return None
    for dtype in (ml_dtypes.bfloat16, np.float16):
        if (a.astype(dtype) == a).all() and not (e.astype(dtype) == e).all():
            name = np.dtype(dtype).name
            return Guess(
                "rounding",
                f"every element is a {name} number: the results were kept in "
                f"{name} before they were stored",
            )
    return None


def _rounding(e: np.ndarray, a: np.ndarray, bad: np.ndarray, limit: Tolerance) -> Guess | None:
    """Look for small errors on both sides of the expected values: those on one are no rounding."""
    allowed = limit.atol + limit.rtol * np.abs(e)
    if limit.atol == 0 or not (np.isfinite(e) & (np.abs(a - e) <= 64 * allowed)).all():
        return None
    error = (a - e) / allowed
    if abs(float(error.mean())) > 0.3 * float(error.std()):
        return None
    return Guess(
        "rounding",
        "small errors everywhere, as from accumulating in a dtype with "
        "fewer bits (is something kept in fp16 or bf16 too early?)",
    )


def _layout(e: np.ndarray, a: np.ndarray, bad: np.ndarray, limit: Tolerance) -> Guess | None:
    for first in range(e.ndim):
        for second in range(first + 1, e.ndim):
            swapped = np.swapaxes(a, first, second)
            if min(e.shape[first], e.shape[second]) == 1:
                continue
            if swapped.shape == e.shape and _mostly(_close(swapped, e, limit)[bad]):
                return Guess(
                    "layout",
                    f"axes {first} and {second} are exchanged (a transpose too many or too few)",
                )
            folded = swapped.reshape(e.shape) if swapped.shape != e.shape else None
            if folded is not None and _mostly(_close(folded, e, limit)[bad]):
                return Guess("layout", f"axes {first} and {second} are exchanged before a reshape")
    if not bad.any() or np.ptp(e[bad]) == 0:
        return None
    ordered = _close(np.sort(a[bad]), np.sort(e[bad]), limit)
    if _mostly(ordered) and int(bad.sum()) > 8:
        return Guess(
            "layout",
            "the right values in the wrong places: check indices and the layout of the tiles",
        )
    return None


def _stale_tile(e: np.ndarray, a: np.ndarray, bad: np.ndarray, limit: Tolerance) -> Guess | None:
    """Look for wrong tiles that hold what belongs to another tile."""
    if e.ndim == 1:
        if e.size % _TILE or e.size == _TILE:
            return None
        e, a, bad = (array.reshape(-1, _TILE) for array in (e, a, bad))
    else:
        e, a, bad = (array.reshape(-1, array.shape[-1]) for array in (e, a, bad))
    wrong = np.flatnonzero(bad.all(axis=1))[:64]
    stale = [
        (row, int(hit[0]))
        for row in wrong
        if (hit := np.flatnonzero(_close(a[row], e, limit).all(axis=1))).size
    ]
    if not wrong.size or len(stale) < 0.9 * wrong.size:
        return None
    row, source = stale[0]
    return Guess(
        "stale tile",
        f"row {row} of the output (in rows of {e.shape[1]} elements) holds "
        f"what belongs in row {source}: a tile read after or before it "
        "was overwritten, or an index that does not move on",
    )


def _carried(e: np.ndarray, a: np.ndarray, bad: np.ndarray, limit: Tolerance) -> Guess | None:
    """Look for tiles that hold the sum of the tiles before them as well.

    Then a[i + step] - a[i] == e[i + step] along some axis, less what is added to each tile after
    the sum (a bias): that is the same for a whole row.
    """
    slack = Tolerance(4 * limit.rtol, 8 * limit.atol)
    shape = e.shape
    for axis in range(len(shape)):
        part = tuple(
            slice(None)
            if i in (axis, len(shape) - 1) or e.size < _MAX_ELEMENTS // 8
            else slice(0, 8)
            for i in range(len(shape))
        )
        e_part, a_part, bad_part = e[part], a[part], bad[part]
        for step in (*range(1, 17), 32, 64, 128, 256, 512):
            if 2 * step > shape[axis]:
                break
            later, before = (_pick(axis, s) for s in (slice(step, None), slice(None, -step)))
            if not _mostly(bad_part[later]):
                continue
            off, right = a_part[later] - a_part[before] - e_part[later], e_part[later]
            if axis < len(shape) - 1 and shape[-1] > 3:
                off, right = (array - array.mean(axis=-1, keepdims=True) for array in (off, right))
            if float(_close(right, 0 * right, limit).mean()) > 0.5:
                continue  # rows of one value: any others would seem to follow
            allowed = slack.atol + slack.rtol * np.abs(a_part[later])
            if float((np.abs(off) <= allowed).mean()) > 0.98:
                return Guess(
                    "accumulator",
                    f"each tile (of {step} along axis {axis}) holds the "
                    "sum of the tiles before it as well: the accumulator "
                    "must be made, or zeroed, for each tile anew",
                )
    return None


def _pick(axis: int, which: slice) -> tuple[Any, ...]:
    return (*(slice(None),) * axis, which)


def _scaled(e: np.ndarray, a: np.ndarray, bad: np.ndarray, limit: Tolerance) -> Guess | None:
    large = bad & (np.abs(e) > 0.1 * np.abs(e).max())
    if int(large.sum()) < 4:
        return None
    ratio = a[large] / e[large]
    middle = float(np.median(ratio))
    if not (np.isfinite(middle) and middle) or float(np.std(ratio)) > 1e-3 * abs(middle):
        return None
    if abs(middle - 1) < 0.02:  # nearly right: no terms are missing, and "1 times" says nothing
        return None
    kind = "missing accumulation" if abs(middle) < 1 else "scaled"
    return Guess(
        kind,
        f"the wrong elements are {middle:.4g} times what they should be (terms "
        "left out, or added more than once)",
    )


def _accumulation(
    e: np.ndarray,
    a: np.ndarray,
    bad: np.ndarray,
    limit: Tolerance,
) -> Guess | None:
    """Recognise sums with missing terms: they follow the right ones, only smaller."""
    x, y = e[bad], a[bad]
    if x.size < 16 or np.std(x) == 0 or np.std(y) == 0:
        return None
    follows = float(np.corrcoef(x, y)[0, 1])
    size = float(np.sqrt((y * y).mean() / (x * x).mean()))
    if follows > 0.3 and size < 0.98:
        return Guess(
            "missing accumulation",
            f"the output follows the reference but is smaller "
            f"({size:.2g} of its size): terms of the sum are "
            "missing or overwritten",
        )
    return None
