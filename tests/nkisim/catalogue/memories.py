"""What lies where, and how much."""
from __future__ import annotations

import neuronxcc.nki.language as nl

from .parts import hbm, mistake, square


@mistake("NKI-M10", "SBUF")
def more_tiles_than_sbuf_holds(x, bad):
    n = 16384 if bad else 4096
    out = hbm(128, n)
    tiles = [nl.full((128, n), float(i), nl.float32) for i in range(4)]
    total = tiles[0]
    for tile in [*tiles, *tiles]:
        total = nl.add(total, tile)                                             # BUG
    nl.store(out, total)
    return out


@mistake("NKI-M10", "16 banks")
def more_sums_than_psum_has_banks(x, bad):
    n = 16 if bad else 8
    out, tile = hbm(n, 128, 512), nl.load(x)
    sums = nl.zeros((n, nl.par_dim(128), 512), nl.float32, buffer=nl.psum)
    for i in nl.affine_range(n):
        sums[i] = nl.matmul(tile[:, 0:128], tile, transpose_x=True)             # BUG
    for i in nl.affine_range(n):
        nl.store(out[i], nl.copy(sums[i]))
    return out


@mistake("NKI-D08", "integer")
def an_integer_accumulator(x, bad):
    out = hbm(128, 128)
    acc = nl.zeros((128, 128), nl.int32 if bad else nl.float32, buffer=nl.psum)
    acc += nl.matmul(square(x, 0), square(x, 1), transpose_x=True)              # BUG
    nl.store(out, nl.copy(acc))
    return out


@mistake("NKI-M01", "HBM")
def arithmetic_on_hbm(x, bad):
    out = hbm(128, 512)
    nl.store(out, nl.add(x if bad else nl.load(x), 1.0))                        # BUG
    return out


@mistake("NKI-M03", "")
def hbm_is_assigned(x, bad):
    out, tile = hbm(128, 512), nl.load(x)
    if bad:
        out[:, :] = tile                                                        # BUG
    else:
        nl.store(out, tile)
    return out


@mistake("NKI-O01", "")
def an_input_is_overwritten(x, bad):
    out, tile = hbm(128, 512), nl.load(x)
    nl.store(out, tile)
    nl.store(x if bad else out, nl.multiply(tile, 2.0))                         # BUG
    return out
