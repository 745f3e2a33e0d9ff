# ruff: noqa
"""One instruction, TIMES times. Written by `python -m labkit.neuron.generate`."""
from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

TIMES = 16


def loaded(a):
    t = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=a)
    return t


def stored(t):
    out = nl.ndarray(t.shape, dtype=t.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=t)
    return out


@nki.jit
def activate2(a):
    """nisa.activate2, many times."""
    dst = nl.ndarray((128, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    data = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.activate2(dst=dst, op=nl.tanh, data=data, imm0=1.0, imm1=1.0, op0=nl.multiply, op1=nl.add)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def activation(a):
    """nisa.activation, many times."""
    dst = nl.ndarray((128, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    data = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.activation(dst=dst, op=nl.tanh, data=data)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def activation_reduce(a):
    """nisa.activation_reduce, many times."""
    dst = nl.ndarray((128, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    data = loaded(a)
    reduce_res = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.activation_reduce(dst=dst, op=nl.tanh, data=data, reduce_op=nl.add, reduce_res=reduce_res)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def affine_select(a):
    """nisa.affine_select, many times."""
    dst = nl.ndarray((128, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    on_true_tile = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.affine_select(dst=dst, pattern=[[1, a.shape[1]]], channel_multiplier=1, on_true_tile=on_true_tile, on_false_value=0.0)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def bn_aggr(a):
    """nisa.bn_aggr, many times."""
    dst = nl.ndarray((128, 2), dtype=nl.float32, buffer=nl.sbuf)
    data = loaded(a[:, 0:6])
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.bn_aggr(dst=dst, data=data)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def bn_stats(a):
    """nisa.bn_stats, many times."""
    dst = nl.ndarray((128, 6), dtype=nl.float32, buffer=nl.sbuf)
    data = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.bn_stats(dst=dst, data=data)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def dma_copy(a):
    """nisa.dma_copy, many times."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.static_range(TIMES):
        nisa.dma_copy(dst=out, src=a)
    return out


@nki.jit
def dropout(a):
    """nisa.dropout, many times."""
    dst = nl.ndarray((128, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    data = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.dropout(dst=dst, data=data, prob=0.0)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def exponential(a):
    """nisa.exponential, many times."""
    dst = nl.ndarray((128, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    src = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.exponential(dst=dst, src=src)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def gather_flattened(a):
    """nisa.nc_n_gather, many times."""
    dst = nl.ndarray((128, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    data = loaded(a)
    indices = nl.ndarray((128, a.shape[1]), dtype=nl.uint32, buffer=nl.sbuf)
    nisa.memset(indices, 1)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.nc_n_gather(dst=dst, data=data, indices=indices)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def iota(a):
    """nisa.iota, many times."""
    dst = nl.ndarray((128, a.shape[1]), dtype=nl.int32, buffer=nl.sbuf)
    kept = nl.ndarray((128, TIMES), dtype=nl.int32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.iota(dst=dst, pattern=[[1, a.shape[1]]])
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def local_gather(a):
    """nisa.local_gather, many times."""
    dst = nl.ndarray((128, 1024), dtype=nl.float32, buffer=nl.sbuf)
    src_buffer = loaded(a)
    index = nl.ndarray((128, a.shape[1]), dtype=nl.uint16, buffer=nl.sbuf)
    nisa.memset(index, 1)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.local_gather(dst=dst, src_buffer=src_buffer, index=index)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def max8(a):
    """nisa.max8, many times."""
    dst = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
    src = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.max8(dst=dst, src=src)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def memset(a):
    """nisa.memset, many times."""
    dst = nl.ndarray((128, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.memset(dst=dst, value=1.0)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def nc_find_index8(a):
    """nisa.nc_find_index8, many times."""
    dst = nl.ndarray((128, 8), dtype=nl.uint32, buffer=nl.sbuf)
    data = loaded(a)
    vals = loaded(a[:, 0:8])
    kept = nl.ndarray((128, TIMES), dtype=nl.uint32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.nc_find_index8(dst=dst, data=data, vals=vals)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def nc_match_replace8(a):
    """nisa.nc_match_replace8, many times."""
    dst = nl.ndarray((128, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    data = loaded(a)
    vals = loaded(a[:, 0:8])
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.nc_match_replace8(dst=dst, data=data, vals=vals, imm=0.0)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def nc_matmul(a):
    """nisa.nc_matmul, many times."""
    dst = nl.ndarray((64, a.shape[1]), dtype=nl.float32, buffer=nl.psum)
    stationary = loaded(a[:, 0:64])
    moving = loaded(a)
    kept = nl.ndarray((64, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.nc_matmul(dst=dst, stationary=stationary, moving=moving)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    in_sbuf = nl.ndarray((64, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=in_sbuf, src=dst)
    return stored(in_sbuf), stored(kept)


@nki.jit
def nc_stream_shuffle(a):
    """nisa.nc_stream_shuffle, many times."""
    dst = nl.ndarray((128, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst, 0.0)
    src = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.nc_stream_shuffle(dst=dst, src=src, shuffle_mask=list(range(32)))
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def rand2(a):
    """nisa.rand2, many times."""
    dst = nl.ndarray((128, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.rand2(dst=dst, min=0.0, max=1.0)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def rand_get_state(a):
    """nisa.rand_get_state, many times."""
    dst = nl.ndarray((128, a.shape[1]), dtype=nl.uint32, buffer=nl.sbuf)
    kept = nl.ndarray((128, TIMES), dtype=nl.uint32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.rand_get_state(dst=dst)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def range_select(a):
    """nisa.range_select, many times."""
    dst = nl.ndarray((128, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    on_true_tile = loaded(a)
    bound0 = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(bound0, 1)
    bound1 = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(bound1, 1)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.range_select(dst=dst, on_true_tile=on_true_tile, comp_op0=nl.greater_equal, comp_op1=nl.less, bound0=bound0, bound1=bound1)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def reciprocal(a):
    """nisa.reciprocal, many times."""
    dst = nl.ndarray((128, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    data = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.reciprocal(dst=dst, data=data)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def rng(a):
    """nisa.rng, many times."""
    dst = nl.ndarray((128, a.shape[1]), dtype=nl.uint32, buffer=nl.sbuf)
    kept = nl.ndarray((128, TIMES), dtype=nl.uint32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.rng(dst=dst)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def scalar_tensor_tensor(a):
    """nisa.scalar_tensor_tensor, many times."""
    dst = nl.ndarray((128, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    data = loaded(a)
    operand1 = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.scalar_tensor_tensor(dst=dst, data=data, op0=nl.add, operand0=1.0, op1=nl.add, operand1=operand1)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def select_reduce(a):
    """nisa.select_reduce, many times."""
    dst = nl.ndarray((128, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    predicate = nl.ndarray((128, a.shape[1]), dtype=nl.uint16, buffer=nl.sbuf)
    nisa.memset(predicate, 1)
    on_true = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.select_reduce(dst=dst, predicate=predicate, on_true=on_true, on_false=1.0)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def tensor_copy(a):
    """nisa.tensor_copy, many times."""
    dst = nl.ndarray((128, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    src = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.tensor_copy(dst=dst, src=src)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def tensor_copy_predicated(a):
    """nisa.tensor_copy_predicated, many times."""
    dst = nl.ndarray((128, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst, 0.0)
    src = loaded(a)
    predicate = nl.ndarray((128, a.shape[1]), dtype=nl.uint32, buffer=nl.sbuf)
    nisa.memset(predicate, 1)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.tensor_copy_predicated(dst=dst, src=src, predicate=predicate)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def tensor_partition_reduce(a):
    """nisa.tensor_partition_reduce, many times."""
    dst = nl.ndarray((1, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    data = loaded(a)
    kept = nl.ndarray((1, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.tensor_partition_reduce(dst=dst, op=nl.add, data=data)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def tensor_reduce(a):
    """nisa.tensor_reduce, many times."""
    dst = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    data = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.tensor_reduce(dst=dst, op=nl.add, data=data, axis=1)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def tensor_scalar(a):
    """nisa.tensor_scalar, many times."""
    dst = nl.ndarray((128, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    data = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.tensor_scalar(dst=dst, data=data, op0=nl.add, operand0=1.0)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def tensor_scalar_cumulative(a):
    """nisa.tensor_scalar_cumulative, many times."""
    dst = nl.ndarray((128, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    src = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.tensor_scalar_cumulative(dst=dst, src=src, op0=nl.add, op1=nl.add, imm0=1.0)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def tensor_scalar_reduce(a):
    """nisa.tensor_scalar_reduce, many times."""
    dst = nl.ndarray((128, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    data = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.tensor_scalar_reduce(dst=dst, data=data, op0=nl.add, operand0=1.0, reduce_op=nl.add)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def tensor_tensor(a):
    """nisa.tensor_tensor, many times."""
    dst = nl.ndarray((128, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    data1 = loaded(a)
    data2 = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.tensor_tensor(dst=dst, data1=data1, data2=data2, op=nl.add)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def tensor_tensor_scan(a):
    """nisa.tensor_tensor_scan, many times."""
    dst = nl.ndarray((128, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    data0 = loaded(a)
    data1 = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.tensor_tensor_scan(dst=dst, data0=data0, data1=data1, initial=1.0, op0=nl.add, op1=nl.add)
        nisa.tensor_copy(dst=kept[:, i:i + 1], src=dst[:, 0:1])
    return stored(dst), stored(kept)
