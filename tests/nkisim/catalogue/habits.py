"""Habits of NumPy and PyTorch."""
from __future__ import annotations

import neuronxcc.nki.language as nl
import numpy as np

from .parts import hbm, mistake, square


@mistake("NKI-K14", "nl.add")
def np_add(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    nl.store(out, np.add(t, t) if bad else nl.add(t, t))                        # BUG
    return out


@mistake("NKI-K14", "nl.exp")
def np_exp(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    nl.store(out, np.exp(t) if bad else nl.exp(t))                              # BUG
    return out


@mistake("NKI-K14", "nl.sum")
def np_sum(x, bad):
    out, t = hbm(128, 1), square(x, 0)
    nl.store(out, np.sum(t, axis=1) if bad else nl.sum(t, axis=1))              # BUG
    return out


@mistake("NKI-K14", "nl.max(t, axis=1)")
def a_method_of_numpy(x, bad):
    out, t = hbm(128, 1), square(x, 0)
    nl.store(out, t.max(axis=1) if bad else nl.max(t, axis=1))                  # BUG
    return out


@mistake("NKI-K14", "nl.transpose")
def a_transpose_of_numpy(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    nl.store(out, t.T if bad else nl.transpose(t))                              # BUG
    return out


@mistake("NKI-K14", "nl.copy(t, dtype")
def a_cast_of_pytorch(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    nl.store(out, t.to(nl.bfloat16) if bad else nl.copy(t, dtype=nl.bfloat16))  # BUG
    return out


@mistake("NKI-K14", "nl.matmul")
def an_operator_of_numpy(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    nl.store(out, t @ t if bad else nl.copy(nl.matmul(t, t)))                   # BUG
    return out


@mistake("NKI-K14", "values")
def a_value_of_a_tile(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    nl.store(out, nl.multiply(t, float(t[0, 0]) if bad else t[:, 0:1]))         # BUG
    return out


@mistake("NKI-K14", "values")
def an_array_of_a_tile(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    nl.store(out, np.array(t) if bad else t)                                    # BUG
    return out


@mistake("NKI-I08", "truth")
def a_condition_on_data(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    if bad and t[0:1, 0:1]:                                                     # BUG
        t = nl.add(t, 1.0)
    nl.store(out, t)
    return out


@mistake("NKI-I08", "looped")
def a_loop_over_a_tile(x, bad):
    out, t = hbm(128, 128), square(x, 0)
    for row in t if bad else ():                                                # BUG
        nl.store(out, row)
    nl.store(out, t)
    return out
