# ruff: noqa
"""One instruction, TIMES times. Written by `python -m labkit.neuron.generate`."""
from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

TIMES = 16


def loaded(a):
    return nl.load(a)


def stored(t):
    out = nl.ndarray(t.shape, dtype=t.dtype, buffer=nl.shared_hbm)
    nl.store(out, t)
    return out


@nki.jit
def activation(a):
    """nisa.activation, many times."""
    data = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        result = nisa.activation(op=nl.tanh, data=data)
        kept[:, i:i + 1] = nisa.tensor_copy(result[:, 0:1])
    return stored(result), stored(kept)


@nki.jit
def activation_reduce(a):
    """nisa.activation_reduce, many times."""
    data = loaded(a)
    reduce_res = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        result = nisa.activation_reduce(op=nl.tanh, data=data, reduce_op=nl.add, reduce_res=reduce_res)
        kept[:, i:i + 1] = nisa.tensor_copy(result[:, 0:1])
    return stored(result), stored(kept)


@nki.jit
def affine_select(a):
    """nisa.affine_select, many times."""
    on_true_tile = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        result = nisa.affine_select(pred=nl.arange(128)[:, None] >= nl.arange(a.shape[1])[None, :], on_true_tile=on_true_tile, on_false_value=0.0)
        kept[:, i:i + 1] = nisa.tensor_copy(result[:, 0:1])
    return stored(result), stored(kept)


@nki.jit
def bn_aggr(a):
    """nisa.bn_aggr, many times."""
    data = loaded(a[:, 0:6])
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        result = nisa.bn_aggr(data=data)
        kept[:, i:i + 1] = nisa.tensor_copy(result[:, 0:1])
    return stored(result), stored(kept)


@nki.jit
def bn_stats(a):
    """nisa.bn_stats, many times."""
    data = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        result = nisa.bn_stats(data=data)
        kept[:, i:i + 1] = nisa.tensor_copy(result[:, 0:1])
    return stored(result), stored(kept)


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
    data = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        result = nisa.dropout(data=data, prob=0.0)
        kept[:, i:i + 1] = nisa.tensor_copy(result[:, 0:1])
    return stored(result), stored(kept)


@nki.jit
def gather_flattened(a):
    """nl.gather_flattened, many times."""
    data = loaded(a)
    indices = nisa.memset((128, a.shape[1]), 1, dtype=nl.uint32)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        result = nl.gather_flattened(data=data, indices=indices)
        kept[:, i:i + 1] = nisa.tensor_copy(result[:, 0:1])
    return stored(result), stored(kept)


@nki.jit
def iota(a):
    """nisa.iota, many times."""
    kept = nl.ndarray((128, TIMES), dtype=nl.int32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        result = nisa.iota(expr=nl.arange(128)[:, None] + nl.arange(a.shape[1])[None, :], dtype=nl.int32)
        kept[:, i:i + 1] = nisa.tensor_copy(result[:, 0:1])
    return stored(result), stored(kept)


@nki.jit
def load_transpose2d(a):
    """nl.load_transpose2d, many times."""
    kept = nl.ndarray((64, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        result = nl.load_transpose2d(src=a)
        kept[:, i:i + 1] = nisa.tensor_copy(result[:, 0:1])
    return stored(result), stored(kept)


@nki.jit
def local_gather(a):
    """nisa.local_gather, many times."""
    src_buffer = loaded(a)
    index = nisa.memset((128, a.shape[1]), 1, dtype=nl.uint16)
    for i in nl.static_range(TIMES):
        result = nisa.local_gather(src_buffer=src_buffer, index=index)
    return stored(result)


@nki.jit
def max8(a):
    """nisa.max8, many times."""
    src = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        result = nisa.max8(src=src)
        kept[:, i:i + 1] = nisa.tensor_copy(result[:, 0:1])
    return stored(result), stored(kept)


@nki.jit
def memset(a):
    """nisa.memset, many times."""
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        result = nisa.memset(shape=a.shape, value=1.0, dtype=nl.float32)
        kept[:, i:i + 1] = nisa.tensor_copy(result[:, 0:1])
    return stored(result), stored(kept)


@nki.jit
def nc_find_index8(a):
    """nisa.nc_find_index8, many times."""
    data = loaded(a)
    vals = loaded(a[:, 0:8])
    kept = nl.ndarray((128, TIMES), dtype=nl.uint32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        result = nisa.nc_find_index8(data=data, vals=vals)
        kept[:, i:i + 1] = nisa.tensor_copy(result[:, 0:1])
    return stored(result), stored(kept)


@nki.jit
def nc_match_replace8(a):
    """nisa.nc_match_replace8, many times."""
    data = loaded(a)
    vals = loaded(a[:, 0:8])
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        result = nisa.nc_match_replace8(data=data, vals=vals, imm=0.0)
        kept[:, i:i + 1] = nisa.tensor_copy(result[:, 0:1])
    return stored(result), stored(kept)


@nki.jit
def nc_matmul(a):
    """nisa.nc_matmul, many times."""
    stationary = loaded(a[:, 0:64])
    moving = loaded(a)
    kept = nl.ndarray((64, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        result = nisa.nc_matmul(stationary=stationary, moving=moving)
        kept[:, i:i + 1] = nisa.tensor_copy(result[:, 0:1])
    return stored(result), stored(kept)


@nki.jit
def nc_stream_shuffle(a):
    """nisa.nc_stream_shuffle, many times."""
    src = loaded(a)
    dst = nisa.memset((128, a.shape[1]), 0.0, dtype=nl.float32)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.nc_stream_shuffle(src=src, dst=dst, shuffle_mask=list(range(32)))
        kept[:, i:i + 1] = nisa.tensor_copy(dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def range_select(a):
    """nisa.range_select, many times."""
    on_true_tile = loaded(a)
    bound0 = nisa.memset((128, 1), 1, dtype=nl.float32)
    bound1 = nisa.memset((128, 1), 1, dtype=nl.float32)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        result = nisa.range_select(on_true_tile=on_true_tile, comp_op0=nl.greater_equal, comp_op1=nl.less, bound0=bound0, bound1=bound1)
        kept[:, i:i + 1] = nisa.tensor_copy(result[:, 0:1])
    return stored(result), stored(kept)


@nki.jit
def reciprocal(a):
    """nisa.reciprocal, many times."""
    data = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        result = nisa.reciprocal(data=data)
        kept[:, i:i + 1] = nisa.tensor_copy(result[:, 0:1])
    return stored(result), stored(kept)


@nki.jit
def scalar_tensor_tensor(a):
    """nisa.scalar_tensor_tensor, many times."""
    data = loaded(a)
    operand1 = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        result = nisa.scalar_tensor_tensor(data=data, op0=nl.add, operand0=1.0, op1=nl.add, operand1=operand1)
        kept[:, i:i + 1] = nisa.tensor_copy(result[:, 0:1])
    return stored(result), stored(kept)


@nki.jit
def select_reduce(a):
    """nisa.select_reduce, many times."""
    dst = nl.ndarray((128, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    predicate = nisa.memset((128, a.shape[1]), 1, dtype=nl.uint16)
    on_true = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.select_reduce(dst=dst, predicate=predicate, on_true=on_true, on_false=1.0)
        kept[:, i:i + 1] = nisa.tensor_copy(dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def store(a):
    """nl.store, many times."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    value = loaded(a)
    for i in nl.static_range(TIMES):
        nl.store(dst=out, value=value)
    return out


@nki.jit
def tensor_copy(a):
    """nisa.tensor_copy, many times."""
    src = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        result = nisa.tensor_copy(src=src)
        kept[:, i:i + 1] = nisa.tensor_copy(result[:, 0:1])
    return stored(result), stored(kept)


@nki.jit
def tensor_copy_dynamic_dst(a):
    """nisa.tensor_copy_dynamic_dst, many times."""
    dst_tile = loaded(a)
    offset = nisa.memset((128, 1), 0, dtype=nl.int32)
    src = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.tensor_copy_dynamic_dst(dst=dst_tile[nl.arange(128)[:, None], offset[0:1] + nl.arange(a.shape[1])[None, :]], src=src)
        kept[:, i:i + 1] = nisa.tensor_copy(dst_tile[:, 0:1])
    return stored(dst_tile), stored(kept)


@nki.jit
def tensor_copy_dynamic_src(a):
    """nisa.tensor_copy_dynamic_src, many times."""
    src_tile = loaded(a)
    offset = nisa.memset((128, 1), 0, dtype=nl.int32)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        result = nisa.tensor_copy_dynamic_src(src=src_tile[nl.arange(128)[:, None], offset[0:1] + nl.arange(a.shape[1])[None, :]])
        kept[:, i:i + 1] = nisa.tensor_copy(result[:, 0:1])
    return stored(result), stored(kept)


@nki.jit
def tensor_copy_predicated(a):
    """nisa.tensor_copy_predicated, many times."""
    src = loaded(a)
    dst = nisa.memset((128, a.shape[1]), 0.0, dtype=nl.float32)
    predicate = nisa.memset((128, a.shape[1]), 1, dtype=nl.uint32)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.tensor_copy_predicated(src=src, dst=dst, predicate=predicate)
        kept[:, i:i + 1] = nisa.tensor_copy(dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def tensor_partition_reduce(a):
    """nisa.tensor_partition_reduce, many times."""
    data = loaded(a)
    kept = nl.ndarray((1, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        result = nisa.tensor_partition_reduce(op=nl.add, data=data)
        kept[:, i:i + 1] = nisa.tensor_copy(result[:, 0:1])
    return stored(result), stored(kept)


@nki.jit
def tensor_reduce(a):
    """nisa.tensor_reduce, many times."""
    data = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        result = nisa.tensor_reduce(op=nl.add, data=data, axis=1)
        kept[:, i:i + 1] = nisa.tensor_copy(result[:, 0:1])
    return stored(result), stored(kept)


@nki.jit
def tensor_scalar(a):
    """nisa.tensor_scalar, many times."""
    data = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        result = nisa.tensor_scalar(data=data, op0=nl.add, operand0=1.0)
        kept[:, i:i + 1] = nisa.tensor_copy(result[:, 0:1])
    return stored(result), stored(kept)


@nki.jit
def tensor_scalar_cumulative(a):
    """nisa.tensor_scalar_cumulative, many times."""
    src = loaded(a)
    dst = nl.ndarray((128, a.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        nisa.tensor_scalar_cumulative(src=src, dst=dst, op0=nl.add, op1=nl.add, imm0=1.0)
        kept[:, i:i + 1] = nisa.tensor_copy(dst[:, 0:1])
    return stored(dst), stored(kept)


@nki.jit
def tensor_scalar_reduce(a):
    """nisa.tensor_scalar_reduce, many times."""
    data = loaded(a)
    reduce_res = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        result = nisa.tensor_scalar_reduce(data=data, op0=nl.add, operand0=1.0, reduce_op=nl.add, reduce_res=reduce_res)
        kept[:, i:i + 1] = nisa.tensor_copy(result[:, 0:1])
    return stored(result), stored(kept)


@nki.jit
def tensor_tensor(a):
    """nisa.tensor_tensor, many times."""
    data1 = loaded(a)
    data2 = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        result = nisa.tensor_tensor(data1=data1, data2=data2, op=nl.add)
        kept[:, i:i + 1] = nisa.tensor_copy(result[:, 0:1])
    return stored(result), stored(kept)


@nki.jit
def tensor_tensor_scan(a):
    """nisa.tensor_tensor_scan, many times."""
    data0 = loaded(a)
    data1 = loaded(a)
    kept = nl.ndarray((128, TIMES), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.static_range(TIMES):
        result = nisa.tensor_tensor_scan(data0=data0, data1=data1, initial=1.0, op0=nl.add, op1=nl.add)
        kept[:, i:i + 1] = nisa.tensor_copy(result[:, 0:1])
    return stored(result), stored(kept)
