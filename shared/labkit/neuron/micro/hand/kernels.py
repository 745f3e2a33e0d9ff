"""Instructions that a generated kernel would not show, each TIMES times: neuronxcc.nki.

The table does not declare their operands, or a compiler leaves the same one again out.
"""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

TIMES = 16


@nki.jit
def atomic_rmw(a):
    """Add a tile to rows of an output that holds zeros; each addition waits for the one before."""
    rows, n = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    column = nl.arange(n)[None, :]
    nl.store(out, nl.zeros(a.shape, dtype=a.dtype, buffer=nl.sbuf))
    index = nisa.iota(nl.arange(rows)[:, None], dtype=nl.int32)
    tile = nl.load(a)
    for _ in nl.static_range(TIMES):
        nl.atomic_rmw(out[index, column], value=tile, op=nl.add)
    return out


@nki.jit
def load(a):
    """Load pieces of the input, each once: what is loaded again may be kept instead."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    width = a.shape[1] // TIMES
    for i in nl.static_range(TIMES):
        piece = nl.load(a[:, i * width : (i + 1) * width])
        nl.store(out[:, i * width : (i + 1) * width], piece)
    return out


@nki.jit
def sequence_bounds(a):
    """Find the bounds of segments in one row of labels 1, which is one segment."""
    n = a.shape[1]
    labels = nisa.memset((1, n), 1.0, dtype=nl.float32)
    out = nl.ndarray((1, 2, n), dtype=nl.float32, buffer=nl.shared_hbm)
    for _ in nl.static_range(TIMES):
        bounds = nisa.sequence_bounds(segment_ids=labels, dtype=nl.float32)
    nl.store(out, bounds)
    return out
