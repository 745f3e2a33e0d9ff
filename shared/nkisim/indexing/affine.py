"""Subscripts by affine index expressions: `t[i_p, 2 * i_f + k]` is a strided view.

What a subscript means depends on the constants of its indices only in where it starts, so that
a loop's accesses are checked once and found again.
"""

from __future__ import annotations

from typing import Any

from ..chip.memory import HBM
from ..errors import fail
from .basic import not_a_subscript
from .geometry import Axis, Beyond, Strided, View, carried, leaving
from .index import Index, Slice, _broadcast, is_all, whole


def view(known: dict[tuple, tuple], t: Strided, keys: tuple) -> View:
    """Return the view of `t` that subscripts with at least one `Index` mean.

    `known` holds what was resolved before, by the shapes of tensor and subscripts.
    """
    parts: list[Any] = [t.shape, t.strides, t.nblock, t.memory]
    for k in keys:
        if k.__class__ is Index:
            parts += (k.shape, k.coeffs)
        elif isinstance(k, int) and int.__index__(k) >= 0:
            parts.append(0)
        elif is_all(k):
            parts.append(None)
        else:
            return _resolve(t, keys)
    if t.oob is not None:  # what is left of it depends on the constants
        return _resolve(t, keys)
    key = tuple(parts)
    resolved = known.get(key)
    if resolved is None:
        new = _resolve(t, keys)
        _, shape, strides, nblock, oob = new
        if oob is None:
            known[key] = (shape, strides, nblock, _room(t, keys))
        return new
    shape, strides, nblock, room = resolved
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
    return offset, shape, strides, nblock, None


def _room(t: Strided, keys: tuple) -> list[tuple[int, int, int]]:
    """Return (stride, least, past the greatest constant that stays inside) of each subscript."""
    out = []
    for k, n, step in zip(keys, t.shape, t.strides):
        lo, hi = Index(0, k.shape, k.coeffs).bounds() if k.__class__ is Index else (0, 0)
        out.append((step, -lo, n - hi))
    return out


def _resolve(t: Strided, keys: tuple) -> View:
    """Check a subscript of affine index expressions and return its view."""
    grid, whole_dims = _grid(t, keys)
    axes = _axes(t, keys, len(grid), whole_dims)
    nblock = 0
    if t.memory is not HBM:
        _check_partition(axes[t.nblock], grid)
        for d in range(t.nblock + 1, len(axes)):
            _check_free(axes[d], grid, d)
        nblock = sum(any(grid[e] > 1 for e in steps) for _, steps in axes[: t.nblock])
    offset, strides = t.offset, [0] * len(grid)
    for (const, steps), s in zip(axes, t.strides):
        offset += const * s
        for e, c in steps.items():
            strides[e] += c * s
    bounds = [Beyond(d, n, *axis) for d, (n, axis) in enumerate(zip(t.shape, axes))]
    return offset, grid, tuple(strides), nblock, leaving(carried(t.oob, axes) + bounds, grid)


def _grid(t: Strided, keys: tuple) -> tuple[tuple[int, ...], int]:
    """Return the grid that the subscripts span, and how many of its last dims are plain `:`."""
    grid: tuple[int, ...] = ()
    slices = []
    for d, k in enumerate(keys):
        if k.__class__ is Index:
            if len(k.shape) < 2:
                raise fail(
                    "NKI-I09",
                    "an nl.arange without axes was used as a subscript",
                    given=f"index of shape {k.shape} in dimension {d}",
                    limit="an index needs its place among partition and free axes",
                    hint="nl.arange(128)[:, None] for partitions, "
                    "nl.arange(512)[None, :] for the free dimension",
                )
            grid = _broadcast(grid, k.shape)
        elif whole(k, "a subscript") is None:
            if k.__class__ not in (slice, Slice):
                raise not_a_subscript(k)
            slices.append(d)
    trailing = slices == list(range(len(keys) - len(slices), len(keys)))
    if slices and not (trailing and len(keys) > 2 and all(is_all(keys[d]) for d in slices)):
        raise fail(
            "NKI-I10",
            "slices and nl.arange indices are mixed in one subscript",
            given=f"dimension {slices[0]} is a slice, or left out, which means all of it",
            limit="a subscript is either basic (ints, slices, nl.ds) or advanced "
            "(every dimension an index expression or an int)",
            hint=f"write nl.arange(n)[None, :] for dimension {slices[0]}",
        )
    return (*grid, *(t.shape[d] for d in slices)), len(slices)


def _axes(t: Strided, keys: tuple, rank: int, whole_dims: int) -> list[Axis]:
    """Return each dim's subscript as (constant, {grid dim: coefficient})."""
    out: list[Axis] = []
    last = rank - whole_dims
    for k, n in zip(keys, t.shape):
        if k.__class__ is Index:
            out.append((k.const, {e: c for e, c in enumerate(k.coeffs_in(rank - whole_dims)) if c}))
        elif is_all(k):
            out.append((0, {last: 1}))
            last += 1
        else:
            value = whole(k, "a subscript")
            assert value is not None
            out.append((value + n if value < 0 else value, {}))
    return out


def _check_partition(axis: Axis, grid: tuple[int, ...]) -> None:
    """Raise unless the partition dim's subscript runs along axis 0 of the grid, with stride 1."""
    used = [(e, c) for e, c in axis[1].items() if grid[e] > 1]
    if not used:
        if grid[0] > 1:
            raise fail(
                "NKI-P03",
                "one partition is read as if it were many",
                given=f"index grid {grid} over a single partition",
                limit="each partition of a tile is a partition of the memory",
                hint="broadcast across partitions with nl.broadcast_to or a matmul",
            )
        return
    wrong = [e for e, _ in used if e]
    if wrong:
        raise fail(
            "NKI-P03",
            "the partition dimension is not the first of the tile",
            given=f"the partition index runs along axis {wrong[0]} of the index grid {grid}",
            limit="partitions lie along axis 0 of a tile",
            hint="give the partition index its axis first: nl.arange(128)[:, None]; indices turn "
            "no tile on chip: nl.transpose(t) does",
        )
    step = used[0][1]
    if step != 1:
        raise fail(
            "NKI-P05",
            "partitions are accessed with a stride",
            given=f"stride {step}",
            limit="stride 1 on chip",
        )


def _check_free(axis: Axis, grid: tuple[int, ...], d: int) -> None:
    """Raise if the subscript of a free dim changes from partition to partition."""
    if axis[1].get(0) and grid[0] > 1:
        raise fail(
            "NKI-P05",
            "each partition accesses other free elements",
            given=f"the index in dimension {d} changes along the partition axis",
            limit="an instruction accesses the same free elements in every partition",
            hint="load it that way from HBM, where any affine access is possible",
        )
