"""Subscripts by affine index expressions: `t[i_p, 2 * i_f + k]` is a strided view.

What a subscript means depends on the constants of its indices only in where it starts, so that
a loop's accesses are checked once and found again.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..chip.memory import HBM
from ..errors import fail
from .index import Index, Slice, _broadcast, as_int, is_all

if TYPE_CHECKING:
    from .tensor import Tensor


def view(t: Tensor, keys: tuple) -> Tensor:
    """Return the view of `t` that subscripts with at least one `Index` mean."""
    form: list[Any] = [t.shape, t.strides, t.nblock, t.kind]
    for k in keys:
        if k.__class__ is Index:
            form += (k.shape, k.coeffs)
        elif isinstance(k, int) and int.__index__(k) >= 0:
            form.append(0)
        elif is_all(k):
            form.append(None)
        else:
            return _resolve(t, keys)
    key = tuple(form)
    known = t.m.views.get(key)
    if known is None:
        new = _resolve(t, keys)
        if new.oob is None:
            t.m.views[key] = (new.shape, new.strides, new.nblock, _room(t, keys))
        return new
    shape, strides, nblock, room = known
    offset = t.offset
    for k, (step, low, high) in zip(keys, room):
        if k.__class__ is Index:
            const = k.const
        elif k.__class__ is slice:
            continue
        else:
            const = int.__index__(k)
        if not low <= const < high:
            return _resolve(t, keys)
        offset += const * step
    new = t.__class__(t.m, t.storage, offset, shape, strides, t.dtype, nblock, t.kind)
    new.owner = t.owner
    return new


def _room(t: Tensor, keys: tuple) -> list[tuple[int, int, int]]:
    """Return (stride, least, past the greatest constant that stays inside) of each subscript."""
    out = []
    for k, n, step in zip(keys, t.shape, t.strides):
        lo, hi = Index(0, k.shape, k.coeffs).bounds() if k.__class__ is Index else (0, 0)
        out.append((step, -lo, n - hi))
    return out


def _resolve(t: Tensor, keys: tuple) -> Tensor:
    """Check a subscript of affine index expressions and return its view (nki-spec 2.0.5)."""
    grid: tuple[int, ...] = ()
    trailing: list[tuple[int, Any]] = []
    for d, k in enumerate(keys):
        if k.__class__ is Index:
            if len(k.shape) < 2:
                raise fail("NKI-I09", "an nl.arange without axes was used as a subscript",
                           given=f"index of shape {k.shape} in dimension {d}",
                           limit="an index needs its place among partition and free axes",
                           hint="nl.arange(128)[:, None] for partitions, "
                                "nl.arange(512)[None, :] for the free dimension")
            grid = _broadcast(grid, k.shape)
        elif as_int(k) is None:
            if not is_all(k) and k.__class__ not in (slice, Slice):
                t.range_of(k, d, t.shape[d])
            trailing.append((d, k))
    if trailing:
        if not is_all(trailing[0][1]) or any(k.__class__ is not Index and as_int(k) is None
                                         for k in keys[:trailing[0][0]]) \
                or not all(is_all(k) for _, k in trailing) \
                or trailing[0][0] + len(trailing) != len(keys) or len(keys) <= 2:
            raise fail("NKI-I10", "slices and nl.arange indices are mixed in one subscript",
                       given=f"dimension {trailing[0][0]} is a slice",
                       limit="a subscript is either basic (ints, slices, nl.ds) or advanced "
                             "(every dimension an index expression or an int)",
                       hint="write nl.arange(n)[None, :] in place of the slice")
        extra = len(trailing)
        grid = (*grid, *(t.shape[d] for d, _ in trailing))
    else:
        extra = 0
    rank = len(grid)
    offset, strides = t.offset, [0] * rank
    part = t.nblock if t.kind is not HBM else -1
    nblock = 0
    oob: list[tuple] = []
    at = rank - extra
    for d, k in enumerate(keys):
        n, s = t.shape[d], t.strides[d]
        if k.__class__ is Index:
            coeffs = k.coeffs_in(rank - extra) + (0,) * extra
            const = k.const
        elif as_int(k) is not None:
            value = as_int(k)
            const = value + n if value < 0 else value      # type: ignore[operator,assignment]
            coeffs = (0,) * rank
        else:
            const = 0
            coeffs = tuple(int(e == at) for e in range(rank))
            at += 1
        lo = hi = const
        for c, g in zip(coeffs, grid):
            lo, hi = lo + min(0, c * (g - 1)), hi + max(0, c * (g - 1))
        if lo < 0 or hi >= n:
            oob.append((d, n, const, {e: c for e, c in enumerate(coeffs) if c}))
        offset += const * s
        for e, c in enumerate(coeffs):
            strides[e] += c * s
        if d == part:
            used = [e for e, c in enumerate(coeffs) if c and grid[e] > 1]
            if used and used != [0]:
                raise fail("NKI-P03", "the partition dimension is not the first of the tile",
                           given=f"the partition index runs along axis {used[0]} of the "
                                 f"index grid {grid}",
                           limit="partitions lie along axis 0 of a tile",
                           hint="give the partition index its axis first: "
                                "nl.arange(128)[:, None]")
            if used and abs(coeffs[0]) != 1 or used and coeffs[0] < 0:
                raise fail("NKI-P05", "partitions are accessed with a stride",
                           given=f"stride {coeffs[0]}", limit="stride 1 on chip")
            if not used and grid[0] > 1:
                raise fail("NKI-P03", "one partition is read as if it were many",
                           given=f"index grid {grid} over a single partition",
                           limit="each partition of a tile is a partition of the memory",
                           hint="broadcast across partitions with nl.broadcast_to or a matmul")
        elif d > part >= 0 and coeffs[0] and grid[0] > 1:
            raise fail("NKI-P05", "each partition accesses other free elements",
                       given=f"the index in dimension {d} changes along the partition axis",
                       limit="an instruction accesses the same free elements in every "
                             "partition",
                       hint="load it that way from HBM, where any affine access is possible")
        elif d < part and any(c and g > 1 for c, g in zip(coeffs, grid)):
            nblock += 1
    new = t.__class__(t.m, t.storage, offset, grid, tuple(strides), t.dtype, nblock, t.kind)
    new.owner, new.oob = t.owner, oob or None
    return new
