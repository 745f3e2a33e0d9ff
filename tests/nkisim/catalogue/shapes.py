"""Shapes and sizes."""
from __future__ import annotations

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

from .parts import hbm, mistake, square


@mistake("NKI-S01", "nl.par_dim(128)")
def a_block_dim_without_par_dim(x, bad):
    out = hbm(4, 128, 128)
    tiles = nl.ndarray((4, 128 if bad else nl.par_dim(128), 128), np.float32, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        tiles[i] = square(x, i)                                                 # BUG
        nl.store(out[i], tiles[i])
    return out


@mistake("NKI-S02", "contraction")
def contraction_dims_that_differ(x, bad):
    out, left = hbm(128, 128), nl.load(x[0:64 if bad else 128, 0:128])
    product = nl.matmul(left, square(x, 1), transpose_x=True)                   # BUG
    nl.store(out, nl.copy(product))
    return out


@mistake("NKI-S04", "slice the one")
def rows_that_differ(x, bad):
    out = hbm(128, 128)
    nl.store(out, nl.add(square(x, 0), nl.load(x[0:64 if bad else 128, 0:128])))    # BUG
    return out


@mistake("NKI-S02|NKI-S01", "")
def columns_that_differ(x, bad):
    out = hbm(128, 128)
    nl.store(out, nl.add(square(x, 0), nl.load(x[:, 0:64 if bad else 128])))    # BUG
    return out


@mistake("NKI-S01", "")
def a_tile_of_another_shape_is_stored(x, bad):
    out = hbm(128, 128)
    nl.store(out, nl.load(x) if bad else square(x, 0))                          # BUG
    return out


@mistake("NKI-S10", "partition")
def a_reduction_over_partitions(x, bad):
    out, total = hbm(128, 1), nl.sum(nl.load(x), axis=0 if bad else 1)          # BUG
    nl.store(out, total)
    return out


@mistake("NKI-S10", "nl.maximum(a, b)")
def the_greater_of_two_by_max(x, bad):
    out, a, b = hbm(128, 128), square(x, 0), square(x, 1)
    nl.store(out, nl.max(a, b) if bad else nl.maximum(a, b))                    # BUG
    return out


@mistake("NKI-P01", "256 partitions")
def a_tile_of_256_rows(x, bad):
    out = hbm(256, 4)
    for i in nl.affine_range(1 if bad else 2):
        n = 256 if bad else 128
        nl.store(out[i * n:(i + 1) * n], nl.full((n, 4), 1.0, np.float32))      # BUG
    return out


@mistake("NKI-P07", "")
def too_wide_for_a_matmul(x, bad):
    out, tile = hbm(128, 512), nl.load(x)
    moving = nl.full((128, 1024), 1.0, np.float32)
    product = nisa.nc_matmul(tile[:, 0:128], moving if bad else moving[:, 0:512])   # BUG
    nl.store(out, nl.copy(product))
    return out


@mistake("NKI-I01", "")
def an_index_past_the_end(x, bad):
    out = hbm(128, 128)
    at = 512 if bad else 384
    nl.store(out, nl.load(x[:, at:at + 128]))                                   # BUG
    return out


@mistake("NKI-S06", "")
def a_size_of_zero(x, bad):
    n = 64 // 128 if bad else 128 // 64
    tile = nl.full((128, n), 1.0, np.float32)                                   # BUG
    out = hbm(128, 2)
    nl.store(out, tile)
    return out
