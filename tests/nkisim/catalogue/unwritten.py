"""Memory that nobody has written."""
from __future__ import annotations

import neuronxcc.nki.language as nl
import numpy as np

from .parts import hbm, mistake, square


@mistake("NKI-U02", "[0:128, 256:512]")
def half_a_tile_is_never_loaded(x, bad):
    out, tile = hbm(128, 512), nl.ndarray((128, 512), np.float32, buffer=nl.sbuf)
    n = 256 if bad else 512
    tile[:, 0:n] = nl.load(x[:, 0:n])
    nl.store(out, nl.multiply(tile, 2.0))                                       # BUG
    return out


@mistake("NKI-U02", "never written")
def a_sum_over_rows_that_were_never_loaded(x, bad):
    out, tile = hbm(128, 128), nl.ndarray((128, 128), np.float32, buffer=nl.sbuf)
    rows = 100 if bad else 128
    tile[0:rows, :] = nl.load(x[0:rows, 0:128])
    product = nl.matmul(tile, square(x, 1), transpose_x=True)                   # BUG
    nl.store(out, nl.copy(product))
    return out


@mistake("NKI-O04", "never stored")
def the_last_rows_are_not_stored(x, bad):
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)           # BUG
    for i in nl.affine_range(3 if bad else 4):
        nl.store(out[i * 32:(i + 1) * 32], nl.load(x[i * 32:(i + 1) * 32]))
    return out


@mistake("NKI-O03", "never written")
def an_output_is_forgotten(x, bad):
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)           # BUG
    tile = nl.load(x)
    if not bad:
        nl.store(out, tile)
    return out


@mistake("NKI-U03", "never set")
def a_sum_that_begins_with_nothing(x, bad):
    out = hbm(128, 128)
    acc = (nl.ndarray if bad else nl.zeros)((128, 128), nl.float32, buffer=nl.psum)
    for i in nl.affine_range(4):
        acc += nl.matmul(square(x, i), square(x, i), transpose_x=True)          # BUG
    nl.store(out, nl.copy(acc))
    return out


@mistake("NKI-U01|NKI-U02", "written")
def a_sum_in_sbuf_that_begins_with_nothing(x, bad):
    out, acc = hbm(128, 128), nl.ndarray((128, 128), nl.float32, buffer=nl.sbuf)
    if not bad:
        acc[...] = 0.0
    for i in nl.affine_range(4):
        acc += square(x, i)                                                     # BUG
    nl.store(out, acc)
    return out
