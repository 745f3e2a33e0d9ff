"""DMA and copies whose place is found at run time."""

from __future__ import annotations

import numpy as np

from .common import Expected, cast


def load(src, *, mask, dtype=None, mode="error"):
    """HBM to a new tile; n elements in one dim become (n, 1)."""
    value = src if src.ndim > 1 else src.reshape(-1, 1)
    return {"": Expected(cast(value, dtype or src.dtype), mask)}


def store(dst, value, *, mask, mode="error"):
    given = (
        np.broadcast_to(np.asarray(value), dst.shape)
        if np.ndim(value) == 0
        else value.reshape(dst.shape)
    )
    return {"dst": Expected(cast(given, dst.dtype), mask.reshape(dst.shape))}


def dma_copy(*, dst, src, mask, dst_rmw_op=None, oob_mode="error", dge_mode="unknown"):
    """Copy in element order, casting; dst_rmw_op adds to what is there."""
    value = src.reshape(dst.shape)
    if dst_rmw_op is not None:
        value = dst.astype(np.float32) + value.astype(np.float32)
    return {"dst": Expected(cast(value, dst.dtype), mask.reshape(dst.shape))}


def load_transpose2d(src, *, mask, dtype=None):
    return {"": Expected(cast(src.T, dtype or src.dtype), mask.T)}


def dma_transpose(src, *, axes=None, mask, dtype=None, dge_mode="unknown"):
    """The first and the last axis change places: (1, 0), (2, 1, 0) or (3, 1, 2, 0)."""
    order = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}[src.ndim]
    return {"": Expected(cast(src.transpose(order), dtype or src.dtype), mask.transpose(order))}


def _in_range(index, size, mode):
    """Return which rows are moved: all of them, or with oob_mode.skip those that exist."""
    index = index.reshape(-1).astype(np.int64)
    inside = (index >= 0) & (index < size)
    assert mode == "skip" or inside.all()
    return index, inside


def gather_rows(src, index, *, mask, dtype=None, mode="error"):
    """nl.load(src[index[i_p, 0], i_f]): row p of the tile is row index[p] of src."""
    index, inside = _in_range(index, src.shape[0], mode)
    value = src[np.where(inside, index, 0)]
    written = np.broadcast_to(inside.reshape((-1,) + (1,) * (value.ndim - 1)), value.shape)
    return {"": Expected(cast(value, dtype or src.dtype), written & mask)}


def scatter_rows(dst, index, value, *, mask, op=None, mode="error"):
    """nl.store(dst[index[i_p, 0], i_f], value), or nl.atomic_rmw: add row p to row index[p]."""
    index, inside = _in_range(index, dst.shape[0], mode)
    out, written = dst.astype(np.float32), np.zeros(dst.shape, bool)
    for p, row in enumerate(index):
        if inside[p]:
            add = out[row] if op else 0
            out[row] = np.where(mask[p], add + value[p].astype(np.float32), out[row])
            written[row] |= mask[p]
    return {"dst": Expected(cast(out, dst.dtype), written)}


def tensor_copy_dynamic_src(src, offset, *, mask, dtype=None, engine="unknown"):
    """src[i_p, offset + i_f] over the grid of the mask."""
    start, width = int(offset[0, 0]), mask.shape[1]
    return {"": Expected(cast(src[:, start : start + width], dtype or src.dtype), mask)}


def tensor_copy_dynamic_dst(dst, offset, src, *, mask, dtype=None, engine="unknown"):
    """dst[i_p, offset + i_f] = src."""
    start, written = int(offset[0, 0]), np.zeros(dst.shape, bool)
    written[:, start : start + src.shape[1]] = mask
    value = dst.copy()
    value[:, start : start + src.shape[1]] = cast(src, dst.dtype)
    return {"dst": Expected(value, written)}
