"""Broken promises of loops."""
from __future__ import annotations

import neuronxcc.nki.language as nl
import numpy as np

from .parts import hbm, mistake, psum, square


@mistake("NKI-L02", "running sum")
def a_running_sum_in_psum(x, bad):
    out, acc = hbm(4, 128, 128), psum(128, 128)
    for i in nl.affine_range(4):
        if not bad:
            acc = psum(128, 128)
        acc += nl.matmul(square(x, i), square(x, i), transpose_x=True)
        nl.store(out[i], nl.copy(acc))                                          # BUG
    return out


@mistake("NKI-L02", "running sum")
def a_running_sum_in_sbuf(x, bad):
    out, acc = hbm(4, 128, 128), nl.zeros((128, 128), nl.float32)
    for i in nl.sequential_range(4) if not bad else nl.affine_range(4):
        acc += square(x, i)
        nl.store(out[i], acc)                                                   # BUG
    return out


@mistake("NKI-L02", "create the accumulator inside the loop")
def an_accumulator_that_outlives_its_loop(x, bad):
    out, acc = hbm(2, 128, 128), psum(128, 128)
    for j in nl.affine_range(2):
        if not bad:
            acc = psum(128, 128)
        for i in nl.affine_range(4):
            acc += nl.matmul(square(x, i), square(x, j), transpose_x=True)
        nl.store(out[j], nl.copy(acc))                                          # BUG
    return out


@mistake("NKI-L10", "that was read already")
def an_accumulator_that_outlives_an_unrolled_loop(x, bad):
    out, acc = hbm(2, 128, 128), psum(128, 128)
    for j in nl.static_range(2):
        if not bad:
            acc = psum(128, 128)
        for i in nl.affine_range(4):
            acc += nl.matmul(square(x, i), square(x, j), transpose_x=True)      # BUG
        nl.store(out[j], nl.copy(acc))
    return out


@mistake("NKI-L02", "`+=`|+= for a sum")
def a_sum_by_assignment(x, bad):
    out, acc = hbm(128, 128), nl.zeros((128, 128), nl.float32)
    for i in nl.affine_range(4):
        if bad:
            acc[...] = nl.add(acc, square(x, i))                                # BUG
        else:
            acc += square(x, i)
    nl.store(out, acc)
    return out


@mistake("NKI-L05", "+= adds")
def products_that_overwrite_each_other(x, bad):
    out, acc = hbm(128, 128), psum(128, 128)
    for i in nl.affine_range(4):
        if bad:
            acc[...] = nl.matmul(square(x, i), square(x, i), transpose_x=True)  # BUG
        else:
            acc += nl.matmul(square(x, i), square(x, i), transpose_x=True)
    nl.store(out, nl.copy(acc))
    return out


@mistake("NKI-L05", "create the tile inside the loop")
def a_tile_that_iterations_share(x, bad):
    out, tile = hbm(128, 512), nl.ndarray((128, 128), np.float32, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        if not bad:
            tile = nl.ndarray((128, 128), np.float32, buffer=nl.sbuf)
        tile[...] = nl.load(x[:, i * 128:(i + 1) * 128])                        # BUG
        nl.store(out[:, i * 128:(i + 1) * 128], nl.multiply(tile, 2.0))
    return out


@mistake("NKI-L04", "does not depend on the loop variable")
def a_store_that_does_not_move(x, bad):
    out = hbm(128, 512)
    for i in nl.affine_range(4):
        at = 0 if bad else i
        nl.store(out[:, at * 128:(at + 1) * 128], square(x, i))                 # BUG
    return out


@mistake("NKI-L04", "overlap")
def stores_that_overlap_in_part(x, bad):
    step = 64 if bad else 128
    out = hbm(128, step * 3 + 128)
    for i in nl.affine_range(4):
        nl.store(out[:, i * step:i * step + 128], square(x, i))                 # BUG
    return out


@mistake("NKI-L02", "by another|another one")
def a_neighbour_of_another_iteration(x, bad):
    out, tile = hbm(128, 512), nl.ndarray((128, 513), np.float32, buffer=nl.sbuf)
    tile[:, 0:1] = 0.0
    for i in nl.affine_range(4) if bad else nl.sequential_range(4):
        tile[:, i * 128 + 1:(i + 1) * 128 + 1] = nl.multiply(square(x, i), 2.0)
        nl.store(out[:, i * 128:(i + 1) * 128], tile[:, i * 128:(i + 1) * 128])     # BUG
    return out


@mistake("NKI-L05", "does not use nl.program_id|every instance", grid=2)
def instances_that_do_the_same(x, bad):
    out = hbm(2, 128, 512)
    i = 0 if bad else nl.program_id(0)
    nl.store(out[i], nl.load(x))                                                # BUG
    return out
