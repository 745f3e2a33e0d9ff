"""Outputs, direct allocation, matmul operands."""
from __future__ import annotations

import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

from .parts import at, hbm, mistake, square


@mistake("NKI-O02", "sbuf")                                                     # BUG
def a_tile_is_returned(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    nl.store(out, t)
    return t if bad else out


@mistake("NKI-A05", "overwritten")
def two_tiles_at_one_address(x, bad):
    out = hbm(128, 128)
    a = nl.ndarray((128, 128), np.float32, buffer=ncc.sbuf.alloc(at(0)))
    b = nl.ndarray((128, 128), np.float32, buffer=ncc.sbuf.alloc(at(0 if bad else 512)))
    c = nl.ndarray((128, 128), np.float32, buffer=ncc.sbuf.alloc(at(1024)))
    a[...] = nl.load(x[:, 0:128])
    b[...] = nl.load(x[:, 128:256])
    c[...] = nisa.tensor_tensor(a, b, nl.add)                                   # BUG
    nl.store(out, c)
    return out


@mistake("NKI-A02|NKI-A01", "")
def an_address_that_is_not_aligned(x, bad):
    out = hbm(128, 128)
    place = ncc.sbuf.alloc(at(3 if bad else 4))
    a = nl.ndarray((128, 128), np.float32, buffer=place)                        # BUG
    a[...] = nl.load(x[:, 0:128])
    nl.store(out, a)
    return out


@mistake("NKI-S02|NKI-S01|NKI-P07|NKI-S04", "")
def a_matmul_without_transpose_x(x, bad):
    out, left, right = hbm(128, 128), nl.load(x[0:64, 0:128]), nl.load(x[0:64, 0:128])
    product = nl.matmul(left, right, transpose_x=not bad)                       # BUG
    nl.store(out, nl.copy(product))
    return out


@mistake("NKI-D05", "narrower")
def operands_of_different_widths(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    moving = nl.copy(t, dtype=nl.bfloat16 if bad else nl.float32)
    product = nisa.nc_matmul(t, moving)                                         # BUG
    nl.store(out, nl.copy(product))
    return out


@mistake("NKI-M06", "one bank")
def a_matmul_across_two_banks(x, bad):
    out, t = hbm(128, 512), nl.load(x)
    sums = nl.zeros((128, 1024), nl.float32, buffer=nl.psum)
    start = 256 if bad else 0
    sums[:, start:start + 512] += nisa.nc_matmul(t[:, 0:128], t)                # BUG
    nl.store(out, nl.copy(sums[:, start:start + 512]))
    return out
