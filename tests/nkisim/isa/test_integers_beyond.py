"""NKI-D10 in each instruction that computes integers in float32: wrong and right, both dialects.

A kernel gets integers; they are wrong where their results need more than 24 bits or do not fit the
dtype of the result, and right where they are small.
"""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from neuronxcc import nki as beta1
from neuronxcc.nki import isa as beta1_isa
from neuronxcc.nki import language as beta1_nl

import nkisim

BIG = 1 << 24
START, GO_ON = nisa.reduce_cmd.reset_reduce, nisa.reduce_cmd.reduce


def d10(kernel, x, target="trn2"):
    run = nkisim.run(kernel, x, target=target)
    return sorted({f.severity for f in run.findings if f.id == "NKI-D10"})


def of_nki(body, columns=4, rows=128, dtype=nl.int32):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((rows, columns), dtype, buffer=nl.shared_hbm)
        dst = nl.ndarray((rows, columns), dtype)
        body(nl.load(x), dst)
        nisa.dma_copy(dst=out, src=dst)
        return out

    return kernel


def of_beta1(body):
    @beta1.jit
    def kernel(x):
        value = body(beta1_nl.load(x))
        out = beta1_nl.ndarray(value.shape, dtype=value.dtype, buffer=beta1_nl.shared_hbm)
        beta1_nl.store(out, value)
        return out

    return kernel


def new(*shape, dtype=nl.int32):
    return nl.ndarray(shape, dtype)


def scalar_tensor_tensor(t, dst):
    nisa.scalar_tensor_tensor(dst=dst, data=t, op0=nl.add, operand0=1, op1=nl.add, operand1=t)


def scan(t, dst):
    ones = new(128, 4)
    nisa.memset(dst=ones, value=1)
    nisa.tensor_tensor_scan(dst=dst, data0=ones, data1=t, initial=1, op0=nl.multiply, op1=nl.add)


def scan_from_a_tile(t, dst):
    """Start with a column of integers, and multiply the other way round."""
    ones = new(128, 4)
    nisa.memset(dst=ones, value=1)
    nisa.tensor_tensor_scan(
        dst=dst, data0=ones, data1=ones, initial=t[:, 0:1], op0=nl.add, op1=nl.multiply
    )


def scalar_reduce_sum(t, dst):
    whole = new(128, 4)
    nisa.tensor_scalar_reduce(
        dst=whole, data=t, op0=nl.subtract, operand0=1, reduce_op=nl.add, reduce_res=dst
    )


def scalar_reduce_elements(t, dst):
    total = new(128, 1, dtype=nl.float32)
    nisa.tensor_scalar_reduce(
        dst=dst, data=t, op0=nl.add, operand0=1, reduce_op=nl.maximum, reduce_res=total
    )


def scalar_reduce_goes_on(t, dst):
    """Add three columns to what the registers hold of the first."""
    scratch, first = new(128, 4), new(128, 1)
    call = dict(op0=nl.add, operand0=0, reduce_op=nl.add)
    nisa.tensor_scalar_reduce(
        dst=scratch[:, 0:1], data=t[:, 0:1], reduce_res=first, reduce_cmd=START, **call
    )
    nisa.tensor_scalar_reduce(
        dst=scratch[:, 1:4], data=t[:, 1:4], reduce_res=dst, reduce_cmd=GO_ON, **call
    )


def cumulative(t, dst):
    """Sum up integers of 16 bits, which end at 32,767."""
    nisa.tensor_scalar_cumulative(dst=dst, src=t, op0=nl.multiply, op1=nl.add, imm0=2)


def activation_sum(t, dst):
    scratch = new(128, 4, dtype=nl.float32)
    nisa.activation_reduce(dst=scratch, op=nl.copy, data=t, reduce_op=nl.add, reduce_res=dst)


def activation(t, dst):
    nisa.activation(dst=dst, op=nl.copy, data=t)


def select(t, dst):
    ones = new(128, 4, dtype=nl.uint8)
    nisa.memset(dst=ones, value=1)
    nisa.select_reduce(dst=dst, predicate=ones, on_true=t, on_false=0)


def across(t, dst):
    nisa.tensor_partition_reduce(dst=dst, op=nl.add, data=t)


#: a body, the largest integer whose results are right, one whose are not, and its result
OF_NKI = (
    (scalar_tensor_tensor, (BIG >> 1) - 2, BIG, {}),
    (scan, (BIG >> 2) - 1, BIG >> 1, {}),
    (scan_from_a_tile, BIG - 4, BIG, {}),
    (scalar_reduce_sum, (BIG >> 2) - 1, (BIG >> 1) + 9, {"columns": 1}),
    (scalar_reduce_elements, BIG - 1, BIG, {}),
    (scalar_reduce_goes_on, (BIG >> 2) - 1, (BIG >> 1) + 9, {"columns": 1}),
    (cumulative, 4095, 4100, {"dtype": nl.int16}),
    (activation_sum, (BIG >> 2) - 1, (BIG >> 1) + 9, {"columns": 1}),
    (activation, BIG - 1, BIG + 1, {}),
    (select, BIG - 1, BIG + 1, {}),
    (across, BIG >> 7, (BIG >> 7) + 9, {"rows": 1}),
)


def values(most, dtype=np.int32):
    """Return integers up to `most`, those of a row next to each other; sums are odd and even."""
    first = np.eye(128, 1, dtype=np.int64)
    return (most - np.arange(4, dtype=np.int64) - first).astype(dtype)


@pytest.mark.parametrize("body, right, wrong, result", OF_NKI, ids=[r[0].__name__ for r in OF_NKI])
def test_in_nki(body, right, wrong, result):
    kernel = of_nki(body, **result)
    dtype = np.int16 if "dtype" in result else np.int32
    assert d10(kernel, values(right, dtype)) == []
    assert d10(kernel, values(wrong, dtype)) == ["warning"]


def beta1_stt(t):
    return beta1_isa.scalar_tensor_tensor(data=t, op0=np.add, operand0=1, op1=np.add, operand1=t)


def beta1_scan(t):
    ones = beta1_nl.full((128, 4), 1, beta1_nl.int32)
    return beta1_isa.tensor_tensor_scan(ones, t, initial=0, op0=np.multiply, op1=np.add)


def beta1_scalar_reduce(t):
    total = beta1_nl.ndarray((128, 1), dtype=beta1_nl.int32)
    beta1_isa.tensor_scalar_reduce(
        data=t, op0=np.add, operand0=0, reduce_op=np.add, reduce_res=total
    )
    return total


def beta1_activation_sum(t):
    total = beta1_nl.ndarray((128, 1), dtype=beta1_nl.int32)
    beta1_isa.activation_reduce(np.copy, t, reduce_op=np.add, reduce_res=total)
    return total


def beta1_select(t):
    dst = beta1_nl.ndarray((128, 4), dtype=beta1_nl.int32)
    ones = beta1_nl.full((128, 4), 1, beta1_nl.uint8)
    beta1_isa.select_reduce(dst=dst, predicate=ones, on_true=t, on_false=0)
    return dst


def beta1_across(t):
    return beta1_isa.tensor_partition_reduce(np.add, t)


OF_BETA1 = (
    (beta1_stt, (BIG >> 1) - 2, BIG),
    (beta1_scan, (BIG >> 2) - 1, BIG >> 1),
    (beta1_scalar_reduce, (BIG >> 2) - 1, (BIG >> 1) + 9),
    (beta1_activation_sum, (BIG >> 2) - 1, (BIG >> 1) + 9),
    (beta1_select, BIG - 1, BIG + 1),
    (beta1_across, BIG >> 7, (BIG >> 7) + 9),
)


@pytest.mark.parametrize("body, right, wrong", OF_BETA1, ids=[r[0].__name__ for r in OF_BETA1])
def test_in_beta1(body, right, wrong):
    assert d10(of_beta1(body), values(right)) == []
    assert d10(of_beta1(body), values(wrong)) == ["warning"]


def test_a_fraction_of_a_large_integer_is_rounded_and_not_lost():
    def quarter(t, dst):
        nisa.tensor_scalar(dst=dst, data=t, op0=nl.multiply, operand0=0.25)

    assert d10(of_nki(quarter), 2 * values(BIG - 1)) == []


def test_functions_that_make_fractions_are_not_looked_at():
    def root(t, dst):
        nisa.activation(dst=dst, op=nl.sqrt, data=t)

    assert d10(of_nki(root), values(1 << 30)) == []
