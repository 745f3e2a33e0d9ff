"""Index values made on the chip (GpSimd Engine)."""

from __future__ import annotations

import numpy as np

from ._common import Array


def sequence_bounds(segment_ids: Array) -> Array:
    """Return start and end (exclusive) of the run each element belongs to: nki.isa.sequence_bounds.

    segment_ids (1, n); equal neighbours are one run. Padding (id 0) gets start n and end -1.
    Returns int32 (1, 2, n).
    """
    ids = segment_ids.reshape(-1)
    n = ids.size
    edges = np.flatnonzero(np.concatenate(([True], ids[1:] != ids[:-1], [True])))
    lengths = np.diff(edges)
    start, end = np.repeat(edges[:-1], lengths), np.repeat(edges[1:], lengths)
    bounds = np.stack((np.where(ids == 0, n, start), np.where(ids == 0, -1, end)))
    return bounds.astype(np.int32)[None]
