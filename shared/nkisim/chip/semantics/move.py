"""Data movement that changes places, never bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import NkiError
from ._common import Array, flat, poison

QUADRANT = 32  # partitions that stream_shuffle shuffles among themselves
UNMODIFIED = 255  # in a shuffle mask
GPSIMD_PARTITIONS = 16  # partitions that one of the 8 GpSimd cores reads


def stream_shuffle(src: Array, dst: Array, shuffle_mask: Sequence[int]) -> Array:
    """Move partitions within quadrants of 32: nki.isa.nc_stream_shuffle.

    src (P, F...), dst (Q, F...) of one dtype and equal elements per partition. Partition i of each
    quadrant of the result comes from partition shuffle_mask[i] of the same quadrant of src; 255
    leaves what dst holds. Returns the new content of dst; src and dst may overlap.
    """
    source, target = shuffled(src.shape[0], dst.shape[0], shuffle_mask)
    result = dst.copy()
    result[target] = src.reshape(src.shape[0], *dst.shape[1:])[source]
    return result


def shuffled(partitions: int, into: int, shuffle_mask: Sequence[int]) -> tuple[Array, Array]:
    """Return which of `partitions` goes to which, of `into`, by a mask.

    Raises NKI-S13 for a mask that is no list of 32 partitions which the source has.
    """
    entries = np.asarray(shuffle_mask)
    wanted = np.resize(entries, into)  # the same mask for each quadrant
    target = np.flatnonzero(wanted != UNMODIFIED)
    source = target - target % QUADRANT + wanted[target]
    wrong = np.flatnonzero((source >= partitions) | (source // QUADRANT != target // QUADRANT))
    if entries.shape == (QUADRANT,) and not wrong.size:
        return source, target
    given = f"shuffle_mask of shape {entries.shape}"
    if entries.shape == (QUADRANT,):
        at = int(target[wrong[0]])
        given = (
            f"shuffle_mask[{at % QUADRANT}] = {entries[at % QUADRANT]} for partition {at} "
            f"of dst, from a src of {partitions} partitions"
        )
    raise NkiError(
        id="NKI-S13",
        what="nc_stream_shuffle cannot follow this shuffle_mask.",
        limit="32 entries, each a partition of the quadrant (0 ... 31) that src has, or 255",
        given=given,
        hint="Each quadrant of 32 partitions is shuffled on its own, by one mask.",
    )


def _take(data: Array, index: Array) -> Array:
    """Take elements (P, K) by their position in rows (P, N); garbage where there is none."""
    index = index.astype(np.int64)
    inside = (index >= 0) & (index < data.shape[1])
    taken = np.take_along_axis(data, np.where(inside, index, 0), axis=1)
    return taken if inside.all() else np.where(inside, taken, poison(data.dtype)).astype(data.dtype)


def gather_flattened(data: Array, indices: Array) -> Array:
    """Gather along the flattened free dimensions of each partition: nki.language.gather_flattened.

    data (P, F...), indices (P, G...). Returns indices' shape in data's dtype. What lies out of
    range is garbage: NaN for float types, all bits set for integers.
    """
    return _take(flat(data), flat(indices)).reshape(indices.shape)


def local_gather(
    src: Array, index: Array, num_elem_per_idx: int = 1, num_valid_indices: int | None = None
) -> Array:
    """Gather with indices shared by 16 partitions: nki.isa.local_gather.

    src (P, F...), index (P, G...) uint16, P a multiple of 16. Each GpSimd core flattens the indices
    of its 16 partitions, partition fastest, uses the first `num_valid_indices`, and copies
    `num_elem_per_idx` elements from that offset of the flattened free dimensions on, in each of its
    partitions. Returns (P, V / 16, 16, n), or (P, V, n) if V is no multiple of 16, in src's dtype.
    """
    partitions, n = src.shape[0], num_elem_per_idx
    per_core = flat(index).reshape(-1, GPSIMD_PARTITIONS, index[0].size)
    ordered = per_core.transpose(0, 2, 1).reshape(per_core.shape[0], -1)
    start = ordered[:, :num_valid_indices].astype(np.int64)
    offsets = (start[:, :, None] + np.arange(n)).reshape(start.shape[0], -1)
    taken = _take(flat(src), np.repeat(offsets, GPSIMD_PARTITIONS, axis=0))
    valid = start.shape[1]
    if valid % GPSIMD_PARTITIONS:
        return taken.reshape(partitions, valid, n)
    return taken.reshape(partitions, valid // GPSIMD_PARTITIONS, GPSIMD_PARTITIONS, n)
