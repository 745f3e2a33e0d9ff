"""Index expressions: what `nl.arange`, `nl.mgrid`, `nl.ds` and comparisons of them are made of.

An `Index` is affine over a grid: element [i, j, ...] has the value const + c0*i + c1*j + ...
A subscript of affine indices is therefore again a strided view, so nothing is ever gathered.
Masks are conjunctions of affine comparisons; where they cut a box out of the grid (nearly always),
they only narrow the view.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from ..errors import fail
from ..loops.loopindex import LoopIndex
from ..machine import truth_values
from ..machine.context import current
from ..machine.numpy_idioms import NkiAttributeError


def as_int(value: Any) -> int | None:
    """Return `value` as an int if it is an integer of Python or NumPy, else None."""
    if type(value) is int:
        return value
    if type(value) is LoopIndex:
        return value.observe()
    if isinstance(value, np.bool_):
        return int(value)
    try:
        return operator.index(value)
    except TypeError:
        return None


def moves(value: Any) -> bool:
    """Return whether a number is the index of a loop, which knows how it moves (loops).

    Index expressions keep it as it is; who looks at their constant is noticed.
    """
    return type(value) is LoopIndex


def whole(value: Any, what: str) -> int | None:
    """Return `as_int(value)`, or the integer that a float is equal to, with a finding.

    The SDK takes such floats: kernels with `h / 2` in a shape have run. `what` is for the finding.
    """
    number = as_int(value)
    if number is None and isinstance(value, (float, np.floating)) and value.is_integer():
        number = int(value)
        m = current.get()
        if m is not None:
            m.find(
                "NKI-S14",
                "note",
                f"{what} is the float {value!r}; it counts as {number}. "
                "Write // instead of /, which makes a float even where it divides",
                m.here(),
            )
    return number


def addressed(value: int, what: str) -> int:
    """Return an integer that addresses are made of, or raise: they have 64 bits."""
    if value.bit_length() > 63:
        raise fail(
            "NKI-D03",
            f"{what} is too large",
            given=f"{value}"[:60],
            limit="64 bits for sizes and addresses",
            hint="print the number; offsets come from shapes, so that one beyond all memory "
            "is a product too many",
        )
    return value


def is_all(k: Any) -> bool:
    """Return whether a subscript is a plain `:`."""
    return k.__class__ is slice and k.start is k.stop is k.step is None


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """Return the NumPy broadcast of two grid shapes."""
    if a == b:
        return a
    n = max(len(a), len(b))
    a, b = (1,) * (n - len(a)) + a, (1,) * (n - len(b)) + b
    out = []
    for x, y in zip(a, b):
        if x != y and x != 1 and y != 1:
            raise fail(
                "NKI-I06",
                "two index expressions of different shapes meet",
                given=f"shapes {a} and {b}",
                limit="sizes must be equal, or 1, in each dimension",
                hint="give each nl.arange its own axis with None, as in "
                "nl.arange(128)[:, None] and nl.arange(512)[None, :]",
            )
        out.append(x if y == 1 else y)
    return tuple(out)


class Index:
    """An affine index expression over a grid of `shape`; immutable."""

    __slots__ = ("const", "shape", "coeffs")
    __array_ufunc__ = None  # so that NumPy ints on the left defer to us

    def __init__(self, const: Any, shape: tuple[int, ...], coeffs: tuple[int, ...]):
        self.const, self.shape, self.coeffs = const, shape, coeffs

    # -- shape -------------------------------------------------------------
    def __getitem__(self, key: Any) -> Index:
        """Place the axes: `None` adds an axis of size 1, `:` keeps one."""
        key = key if isinstance(key, tuple) else (key,)
        shape, coeffs, d = [], [], 0
        for k in key:
            if k is None:
                shape.append(1)
                coeffs.append(0)
            elif k is Ellipsis or is_all(k):
                last = len(self.shape) if k is Ellipsis else d + 1
                shape += self.shape[d:last]
                coeffs += self.coeffs[d:last]
                d = last
            else:
                raise fail(
                    "NKI-I05",
                    "an index expression can only be given new axes",
                    given=f"[{k!r}]",
                    limit="`None` and `:`",
                    hint="shift it with + and scale it with * instead",
                )
        return Index(self.const, (*shape, *self.shape[d:]), (*coeffs, *self.coeffs[d:]))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NkiAttributeError(
            "NKI-K14",
            f"an index expression has no .{name}",
            hint="it is no tile: an axis is where it was made, "
            "nl.arange(n)[:, None] or nl.arange(n)[None, :]",
        )

    def __setitem__(self, key: Any, value: Any) -> None:
        raise fail(
            "NKI-I04",
            "an index expression is read-only",
            hint="nisa.iota(expr, dtype) turns it into a tile that can be written",
        )

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def bounds(self) -> tuple[int, int]:
        """Return the smallest and the largest value over the grid."""
        lo = hi = self.const
        for c, n in zip(self.coeffs, self.shape):
            if c > 0:
                hi += c * (n - 1)
            else:
                lo += c * (n - 1)
        return lo, hi

    def coeffs_in(self, rank: int) -> tuple[int, ...]:
        """Return the coefficients, padded in front to a grid of `rank` dimensions."""
        return (0,) * (rank - len(self.coeffs)) + self.coeffs

    def values(self, shape: tuple[int, ...] | None = None) -> np.ndarray:
        """Return the values over the grid as int64 (broadcast to `shape` if given)."""
        out = np.full(self.shape, self.const, dtype=np.int64)
        for d, (c, n) in enumerate(zip(self.coeffs, self.shape)):
            if c:
                out += (c * np.arange(n)).reshape((-1,) + (1,) * (len(self.shape) - d - 1))
        return out if shape is None else np.broadcast_to(out, shape)

    # -- arithmetic --------------------------------------------------------
    @staticmethod
    def _number(other: Any) -> int | None:
        """Return the integer that is added or multiplied; None if it is no number at all."""
        value = whole(other, "what meets an index")
        if value is None and isinstance(other, (float, np.floating)):
            raise fail(
                "NKI-I05",
                "an index expression has integer coefficients",
                given=f"{other!r}",
                hint="use // instead of / so that sizes stay integers",
            )
        return value if value is None else addressed(value, "what meets an index")

    def _plus(self, other: Any, sign: int) -> Index:
        if type(other) is Index:
            shape = _broadcast(self.shape, other.shape)
            n = len(shape)
            coeffs = tuple(a + sign * b for a, b in zip(self.coeffs_in(n), other.coeffs_in(n)))
            return Index(self.const + sign * other.const, shape, coeffs)
        value = other if moves(other) else self._number(other)
        if value is None:
            return NotImplemented
        return Index(self.const + sign * value, self.shape, self.coeffs)

    def __add__(self, other: Any) -> Index:
        return self._plus(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Index:
        return self._plus(other, -1)

    def __neg__(self) -> Index:
        return self * -1

    def __rsub__(self, other: Any) -> Index:
        return (self * -1)._plus(other, 1)

    def __mul__(self, other: Any) -> Index:
        if type(other) is Index:
            if not any(other.coeffs):
                return self * other.const
            if any(self.coeffs):
                self._not_affine("product of two index expressions")
            return other * self.const
        value = self._number(other)
        if value is None:
            return NotImplemented
        return Index(self.const * value, self.shape, tuple(c * value for c in self.coeffs))

    __rmul__ = __mul__

    def _not_affine(self, what: str) -> None:
        raise fail(
            "NKI-I05",
            f"a {what} is not affine",
            limit="index expressions are const + sum of coefficient * index",
            hint="reshape the tensor, or loop over the part that divides",
        )

    def _divided(self, other: Any, what: str) -> tuple[Index, Index]:
        """Return (quotient, remainder) by a positive int where both are affine, or raise.

        They are if the terms that `other` does not divide stay within one multiple of it.
        """
        by = as_int(other)
        if not by or by < 0:
            self._not_affine(what)
        assert by is not None
        rest = Index(
            self.const % by,
            self.shape,
            tuple(c % by if c >= 0 else -(-c % by) for c in self.coeffs),
        )
        lo, hi = rest.bounds()
        if lo < 0 or hi >= by:
            self._not_affine(what)
        whole = self - rest
        return Index(whole.const // by, self.shape, tuple(c // by for c in whole.coeffs)), rest

    def __truediv__(self, other: Any) -> Index:
        raise fail(
            "NKI-I05",
            "an index expression is divided by /, which makes a float",
            given=f"... / {other!r}",
            limit="integer coefficients",
            hint="// where the result is affine, (2 * i) // 2; else a reshape, or a loop",
        )

    def __floordiv__(self, other: Any) -> Index:
        return self._divided(other, "quotient of an index expression")[0]

    def __mod__(self, other: Any) -> Index:
        return self._divided(other, "remainder of an index expression")[1]

    # -- comparison: masks -------------------------------------------------
    def _compare(self, other: Any, operator: str) -> Mask:
        bound = other if type(other) is Index else whole(other, "the bound of a mask")
        if bound is None:
            raise fail(
                "NKI-I07",
                "a mask compares index expressions",
                given=f"{type(other).__name__}",
                limit="affine expressions of nl.arange, nl.mgrid, loop variables and ints",
                hint="for a condition on data use nl.where or nisa.select_reduce",
            )
        return Mask.compare(self, bound, operator)

    def __lt__(self, other: Any) -> Mask:
        return self._compare(other, "<")

    def __le__(self, other: Any) -> Mask:
        return self._compare(other, "<=")

    def __gt__(self, other: Any) -> Mask:
        return self._compare(other, ">")

    def __ge__(self, other: Any) -> Mask:
        return self._compare(other, ">=")

    def __eq__(self, other: Any) -> Mask:  # type: ignore[override]
        return self._compare(other, "==")

    def __ne__(self, other: Any) -> Mask:  # type: ignore[override]
        return self._compare(other, "!=")

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        truth_values.no_truth("an index expression")
        return False

    def __repr__(self) -> str:
        terms = [f"{c}*i{d}" for d, c in enumerate(self.coeffs) if c]
        return f"Index({' + '.join([str(self.const), *terms])}, shape={self.shape})"


class Mask:
    """A predicate over a grid: a conjunction of `affine >= 0`, or any boolean array.

    `terms` is a tuple of `Index` that must all be >= 0, or None if the mask is `array`.
    """

    __slots__ = ("terms", "array")

    def __init__(self, terms: tuple[Index, ...] | None, array: np.ndarray | None = None):
        self.terms, self.array = terms, array

    @staticmethod
    def compare(a: Index, b: Any, operator: str) -> Mask:
        """Return the mask of `a < b`, or with another operator, for an Index or int `b`."""
        diff = a - b
        if operator == "<":
            return Mask((-diff - 1,))
        if operator == "<=":
            return Mask((-diff,))
        if operator == ">":
            return Mask((diff - 1,))
        if operator == ">=":
            return Mask((diff,))
        if operator == "==":
            return Mask((diff, -diff))
        return Mask(None, diff.values() != 0)

    def values(self, shape: tuple[int, ...] | None = None) -> np.ndarray:
        """Return the mask as a boolean array (broadcast to `shape` if given)."""
        if self.terms is None:
            out = self.array
        else:
            out = np.ones((), dtype=bool)
            for t in self.terms:
                out = out & (t.values() >= 0)
        assert out is not None
        if shape is None:
            return out
        if out.ndim > len(shape) or any(
            n not in (1, m) for n, m in zip(out.shape, shape[len(shape) - out.ndim :])
        ):
            raise fail(
                "NKI-I07",
                "a mask is over other elements than the instruction",
                given=f"mask over {out.shape}, instruction over {shape}",
                limit="index expressions of the sizes of the dims, or of 1",
                hint="make the nl.arange of the mask as long as the dim that it counts",
            )
        return np.broadcast_to(out, shape)

    def box(self, shape: tuple[int, ...]) -> list[tuple[int, int]] | None:
        """Return [lo, hi) per dimension of a grid of `shape` if the mask is a box, else None."""
        if self.terms is None:
            return None
        n = len(shape)
        out = [(0, s) for s in shape]
        for t in self.terms:
            if len(t.coeffs) > n:
                raise fail(
                    "NKI-I07",
                    "a mask has more dimensions than the instruction",
                    given=f"mask over {t.shape}, instruction over {shape}",
                )
            if t.bounds()[0] >= 0:  # true wherever its own indices are
                continue
            live = [(d, c) for d, c in enumerate(t.coeffs_in(n)) if c and shape[d] > 1]
            if len(live) > 1:
                return None
            if not live:
                if t.const < 0:
                    out = [(0, 0)] * n
                continue
            d, c = live[0]
            lo, hi = out[d]
            if c > 0:  # c*i + const >= 0  <=>  i >= -const/c
                lo = max(lo, -(t.const // c))
            else:
                hi = min(hi, t.const // -c + 1)
            out[d] = (lo, max(lo, hi))
        return out

    def __and__(self, other: Any) -> Mask:
        if isinstance(other, (bool, np.bool_)):
            return self if other else Mask(None, np.zeros((1, 1), dtype=bool))
        if not isinstance(other, Mask):
            return NotImplemented
        if self.terms is not None and other.terms is not None:
            return Mask(self.terms + other.terms)
        return Mask(None, self.values() & other.values())

    __rand__ = __and__

    def __or__(self, other: Any) -> Mask:
        if isinstance(other, (bool, np.bool_)):
            return Mask(None, np.ones((1, 1), dtype=bool)) if other else self
        if not isinstance(other, Mask):
            return NotImplemented
        return Mask(None, self.values() | other.values())

    __ror__ = __or__

    def __invert__(self) -> Mask:
        return Mask(None, ~self.values())

    def __getitem__(self, key: Any) -> Any:
        raise fail(
            "NKI-I05",
            "a mask has no subscripts",
            limit="masks are made of whole indices",
            hint="give the new axes to the indices: (i[:, None] < n) & (j[None, :] < m)",
        )

    def __setitem__(self, key: Any, value: Any) -> None:
        raise fail("NKI-I04", "a mask is read-only")

    def __bool__(self) -> bool:
        return truth_values.of_mask()

    __hash__ = None  # type: ignore[assignment]


def plain(k: Any) -> Any:
    """Return a subscript with the values of loops' indices in place of the indices."""
    cls = type(k)
    if cls is LoopIndex:
        return k.observe()
    if cls is Index and type(k.const) is LoopIndex:
        return Index(k.const.observe(), k.shape, k.coeffs)
    if cls is Slice and type(k.start) is LoopIndex:
        return Slice(k.start.observe(), k.size)
    if cls is slice and LoopIndex in (type(k.start), type(k.stop)):
        return slice(plain(k.start), plain(k.stop), k.step)
    return k


class Slice:
    """What `nl.ds(start, size)` returns: the slice start .. start+size."""

    __slots__ = ("start", "size")

    def __init__(self, start: Any, size: int):
        self.start, self.size = start, size


def arange(*args: Any) -> Index:
    """Return the index expression 0..stop-1 or start..stop-1, of shape (n,)."""
    values = [whole(a, "a bound of nl.arange") for a in args]
    if not 1 <= len(values) <= 2 or any(v is None for v in values):
        raise fail(
            "NKI-I05",
            "nl.arange takes (stop) or (start, stop), as integers",
            given=f"arguments {args!r}",
            limit="the step is always 1",
            hint="multiply for a stride: 2 * nl.arange(64)[:, None]",
        )
    start, stop = (0, values[0]) if len(values) == 1 else values
    assert start is not None and stop is not None
    if stop <= start:
        raise fail("NKI-I05", "nl.arange is empty", given=f"start {start}, stop {stop}")
    return Index(start, (stop - start,), (1,))


class Grid(tuple):
    """What `nl.mgrid[a:b, c:d]` returns: one Index a dimension; `.p`, `.x`, `.y`, `.z`, `.w`."""

    _NAMES = "pxyzw"

    def __getattr__(self, name: str) -> Index:
        pos = self._NAMES.find(name)
        if len(name) != 1 or pos < 0 or pos >= len(self):
            raise AttributeError(
                f"a grid of {len(self)} dimensions has "
                f".{', .'.join(self._NAMES[: len(self)])}; not .{name}"
            )
        return self[pos]


class MGrid:
    """`nl.mgrid`: dense index grids, one a dimension."""

    def __call__(self, *sizes: Any) -> Any:
        """Say that it is subscripted."""
        ranges = ", ".join(f"0:{n}" for n in sizes if type(n) is int) or "0:128, 0:512"
        raise fail("NKI-K14", "nl.mgrid is called", hint=f"nl.mgrid[{ranges}]")

    def __getitem__(self, key: Any) -> Any:
        single = not isinstance(key, tuple)
        keys = (key,) if single else key
        lows, sizes = [], []
        for k in keys:
            ok = isinstance(k, slice) and k.step in (None, 1) and k.stop is not None
            lo, hi = (
                (whole(k.start or 0, "a bound of nl.mgrid"), whole(k.stop, "a bound of nl.mgrid"))
                if ok
                else (None, None)
            )
            if lo is None or hi is None or hi <= lo:
                raise fail(
                    "NKI-I05",
                    "nl.mgrid takes ranges a:b with a < b and no step",
                    given=f"{k!r}",
                    hint="nl.mgrid[0:128, 0:512]",
                )
            lows.append(lo)
            sizes.append(hi - lo)
        shape, n = tuple(sizes), len(sizes)
        grid = [Index(lows[d], shape, tuple(int(d == e) for e in range(n))) for d in range(n)]
        return grid[0] if single else Grid(grid)
