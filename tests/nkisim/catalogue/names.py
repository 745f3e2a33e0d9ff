"""Names, arguments, masks and scopes."""
from __future__ import annotations

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

from .parts import hbm, mistake, square


@mistake("AttributeError", "nl.add")
def a_name_that_nl_does_not_have(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    nl.store(out, nl.plus(t, t) if bad else nl.add(t, t))                       # BUG
    return out


@mistake("NKI-X01", "'values' (did you mean 'value'?)")
def a_keyword_of_another_name(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    if bad:
        nl.store(out, values=t)                                                 # BUG
    else:
        nl.store(out, value=t)
    return out


@mistake("NKI-K11", "did you mean 'mask'")
def a_keyword_that_is_ignored(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    if bad:
        nl.store(out, t, masc=None)                                             # BUG
    else:
        nl.store(out, t, mask=None)
    return out


@mistake("NKI-I14", "&")
def masks_joined_by_and(x, bad):
    i_p, i_f = nl.arange(128)[:, None], nl.arange(128)[None, :]
    out = hbm(128, 128)
    nl.store(out, nl.full((128, 128), 0.0, np.float32))
    mask = (i_p < 64 and i_f < 32) if bad else (i_p < 64) & (i_f < 32)          # BUG
    nl.store(out[i_p, i_f], square(x, 0), mask=mask)
    return out


@mistake("NKI-S14", "//")
def a_size_that_is_a_float(x, bad):
    out = hbm(128, 128)
    n = 256 / 2 if bad else 256 // 2
    nl.store(out, nl.full((128, n), 1.0, np.float32))                           # BUG
    return out


@mistake("NKI-E11", "")
def an_operator_that_is_called(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    nl.store(out, nisa.activation("exp_" if bad else nl.exp, t))                # BUG
    return out


@mistake("NKI-E10|NKI-E09", "")
def a_scale_of_another_dtype(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    scale = nl.full((128, 1), 2.0, nl.bfloat16 if bad else nl.float32)
    nl.store(out, nisa.activation(nl.exp, t, scale=scale))                      # BUG
    return out


@mistake("NKI-M07", "")
def both_operands_in_psum(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    a, b = nl.matmul(t, t), nl.matmul(t, t, transpose_x=True)
    nl.store(out, nisa.tensor_tensor(a, b if bad else nl.copy(b), nl.add))      # BUG
    return out


@mistake("NKI-L01", "loop")
def a_tile_that_is_used_after_its_loop(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    for i in nl.affine_range(4):
        u = square(x, i)
    nl.store(out, u if bad else t)                                              # BUG
    return out


@mistake("NKI-I10", "")
def a_slice_and_an_index_expression(x, bad):
    i_p = nl.arange(128)[:, None]
    out = hbm(128, 128)
    tile = nl.load(x[i_p, 0:128] if bad else x[i_p, nl.arange(128)[None, :]])   # BUG
    nl.store(out, tile)
    return out


@mistake("NKI-I09", "")
def an_index_without_its_axis(x, bad):
    i_f = nl.arange(128)
    out = hbm(128, 128)
    tile = nl.load(x[nl.arange(128)[:, None], i_f if bad else i_f[None, :]])    # BUG
    nl.store(out, tile)
    return out


@mistake("NKI-L07", "count = 0")
def a_counter_in_a_traced_loop(x, bad):
    out, count = hbm(4, 128, 128), 0
    for i in nl.static_range(4) if not bad else nl.sequential_range(4):
        nl.store(out[count], square(x, i))
        count += 1                                                              # BUG
    return out
