"""Rows that only the package nki has, and those that it writes otherwise (API reference 0.6).

As the other oracles: naive loops over NumPy arrays, nothing of the simulator. Each takes the
arguments of the public function and returns what every written operand holds, as float32 or in its
own dtype; NaN where the reference says nothing and None where it says nothing of all of it.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from .common import FP32_MIN, arith, cast, column, f32, fold

START = {
    "add": 0.0,
    "maximum": -np.inf,
    "minimum": np.inf,
    "multiply": 1.0,
    "abs_max": 0.0,
    "abs_min": np.inf,
}


def _flat(x: np.ndarray, p: int) -> np.ndarray:
    return f32(x[p]).reshape(-1)


def _reduced(op, values, cmd, load):
    """Return what the accumulators of fresh registers hold after one instruction, by partition."""
    out = []
    for p in range(values.shape[0]):
        start = (
            np.float32(np.asarray(load).reshape(-1)[p] if np.ndim(load) else load)
            if cmd == "load_reduce"
            else np.float32(START[op])
        )
        row = [start, *f32(values[p]).reshape(-1)]
        if op.startswith("abs_"):
            kept = row[0]
            for v in row[1:]:  # the signed value; a tie is the later one's
                larger = abs(kept) > abs(v) if op == "abs_max" else abs(kept) < abs(v)
                kept = kept if larger else v
            out.append(kept)
        else:
            out.append(fold(op, row))
    return np.array(out, np.float32).reshape(-1, 1)


def exponential(*, src, max_value=0.0, reduce_res=None, reduce_cmd="idle", reduce_init=0.0):
    value = np.exp(f32(src) - f32(column(max_value, src)))
    out = {"dst": value}
    if reduce_res is not None:
        out["reduce_res"] = _reduced("add", value, reduce_cmd, reduce_init)
    return out


_FUNCTIONS = {
    "exp": math.exp,
    "tanh": math.tanh,
    "square": lambda v: v * v,
    "copy": lambda v: v,
    "relu": lambda v: max(v, 0.0),
    "abs": abs,
}


def _each(fn, x):
    return np.array([fn(float(v)) for v in f32(x).reshape(-1)], np.float32).reshape(np.shape(x))


def activate2(
    *,
    op,
    data,
    imm0,
    imm1,
    op0,
    op1,
    relu_param=0.0,
    reverse0=False,
    reverse1=False,
    reduce_op=None,
    reduce_res=None,
    reduce_cmd="idle",
):
    x = f32(data)
    for name, imm, reverse in ((op0, imm0, reverse0), (op1, imm1, reverse1)):
        if name != "bypass":
            other = f32(column(imm, data))
            pairs = zip(*((other, x) if reverse else (x, other)), strict=True)
            x = np.stack(
                [np.vectorize(lambda a, b, n=name: arith(n, a, b))(a, b) for a, b in pairs]
            ).astype(np.float32)
    fn = (lambda v: v if v > 0 else relu_param * v) if op == "prelu" else _FUNCTIONS[op]
    value = _each(fn, x)
    out = {"dst": value}
    if reduce_res is not None:
        out["reduce_res"] = _reduced(reduce_op, value, reduce_cmd, 0.0)
    return out


def activation(
    *, op, data, bias=None, scale=1.0, reduce_op=None, reduce_res=None, reduce_cmd="idle"
):
    """op(data * scale + bias); since 0.2 the bias may be a number on NeuronCore-v3."""
    x = f32(data) * f32(column(scale, data)) + f32(column(0.0 if bias is None else bias, data))
    out = {"dst": _each(_FUNCTIONS[op], x)}
    if reduce_res is not None:
        out["reduce_res"] = _reduced("add", out["dst"], reduce_cmd, 0.0)
    return out


def select_reduce(
    *,
    predicate,
    on_true,
    on_false,
    reduce_res=None,
    reduce_cmd="idle",
    reduce_op="maximum",
    reverse_pred=False,
):
    chosen = (predicate.reshape(on_true.shape) != 0) != reverse_pred
    value = np.where(chosen, f32(on_true), f32(column(on_false, on_true)))
    out = {"dst": value}
    if reduce_res is not None:
        out["reduce_res"] = _reduced(reduce_op, value, reduce_cmd, 0.0)
    return out


_HOLDS = {
    "equal": lambda a, b: a == b,
    "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
}


def range_select(
    *,
    on_true_tile,
    comp_op0,
    comp_op1,
    bound0,
    bound1,
    reduce_cmd="reset_reduce",
    reduce_res=None,
    reduce_op="maximum",
    range_start=0,
):
    x = f32(on_true_tile)
    out = np.full(x.shape, FP32_MIN, np.float32)
    for p in range(x.shape[0]):
        row = out[p].reshape(-1)
        for i, v in enumerate(_flat(x, p)):
            at = range_start + i
            if _HOLDS[comp_op0](at, bound0[p, 0]) and _HOLDS[comp_op1](at, bound1[p, 0]):
                row[i] = v
        out[p] = row.reshape(out[p].shape)
    found = {"dst": out}
    if reduce_res is not None:
        found["reduce_res"] = _reduced(reduce_op, out, reduce_cmd, 0.0)
    return found


def tensor_scalar_reduce(
    *,
    data,
    op0,
    operand0,
    reduce_op,
    reduce_res=None,
    reverse0=False,
    reduce_cmd="reset_reduce",
    reduce_init=None,
    reduce_res_negate=False,
):
    pairs = zip(f32(data), f32(column(operand0, data)), strict=True)
    value = np.stack(
        [
            np.vectorize(lambda a, b: arith(op0, *((b, a) if reverse0 else (a, b))))(a, b)
            for a, b in pairs
        ]
    ).astype(np.float32)
    out = {"dst": value}
    if reduce_res is not None:
        total = _reduced(reduce_op, value, reduce_cmd, reduce_init)
        out["reduce_res"] = -total if reduce_res_negate else total
    return out


def affine(shape, pattern, offset, channel_multiplier):
    """Return offset + p * channel_multiplier + the sum of index * step, element by element."""
    counts = [n for _, n in pattern]
    out = np.zeros((shape[0], *counts), np.int64)
    for at in np.ndindex(*out.shape):
        out[at] = (
            offset
            + at[0] * channel_multiplier
            + sum(i * step for i, (step, _) in zip(at[1:], pattern))
        )
    return out.reshape(shape)


def iota(*, dst, pattern, offset=0, channel_multiplier=0):
    return {
        "dst": cast(
            affine(dst.shape, pattern, offset, channel_multiplier).astype(np.int32), dst.dtype
        )
    }


def affine_select(
    *, pattern, channel_multiplier, on_true_tile, on_false_value, cmp_op="equal", offset=0
):
    at = affine(on_true_tile.shape, pattern, offset, channel_multiplier)
    return {"dst": np.where(_HOLDS[cmp_op](at, 0), f32(on_true_tile), np.float32(on_false_value))}


def tensor_partition_reduce(*, op, data):
    rows = f32(data)
    value = (
        rows.sum(0, dtype=np.float32) / np.float32(len(rows))
        if op == "average"
        else np.array([fold(op, list(c)) for c in rows.reshape(len(rows), -1).T]).reshape(
            rows.shape[1:]
        )
    )
    return {"dst": value[None]}


def nonzero_with_count(*, dst, src, index_offset=0, padding_val=-1):
    out = dst.copy()
    for p in range(0, src.shape[0], 16):
        at = [i + index_offset for i, v in enumerate(src[p].reshape(-1)) if v != 0]
        row = at + [padding_val] * (src[p].size - len(at)) + [len(at)]
        out[p] = np.array(row, np.int32).reshape(out[p].shape)
    return {"dst": out}


def topk(*, val_dst, idx_dst, src, n):
    """The K largest of the first n of 16 partitions, column by column, ascending."""
    values, places = val_dst.copy(), idx_dst.copy()
    k = val_dst[0].size
    for p in range(0, src.shape[0], 16):
        group = src[p : p + 16].reshape(16, -1)
        snake = [float(group[i % 16, i // 16]) for i in range(n)]
        best = sorted(range(n), key=lambda i: (snake[i], i))[n - k :]
        for lane in range(16):
            values[p + lane] = np.array([snake[i] for i in best]).reshape(values[p].shape)
            places[p + lane] = np.array(best).reshape(places[p].shape)
    return {"val_dst": values, "idx_dst": places}


def dma_compute(*, srcs, reduce_op):
    assert reduce_op == "add"
    total = f32(srcs[0])
    for x in srcs[1:]:
        total = (total + f32(x)).astype(np.float32)
    return {"dst": total}


def nc_matmul(*, stationary, moving, acc, accumulate):
    product = np.einsum(
        "km,kn->mn",
        f32(stationary).reshape(len(stationary), -1).astype(float),
        f32(moving).reshape(len(moving), -1).astype(float),
    )
    return {"acc": product + (0 if accumulate is False else acc.reshape(product.shape))}


# -- microscaling ---------------------------------------------------------------------------------

SMALL = {
    "float8_e4m3fn_x4": (ml_dtypes.float8_e4m3fn, 8),
    "float8_e5m2_x4": (ml_dtypes.float8_e5m2, 15),
}


def scale_row(group: int, partitions: int) -> int:
    """Return the row of the scales of partitions 8 * group .. : 4 rows at each quadrant's start."""
    return group if partitions <= 32 else 32 * (group // 4) + group % 4


def quantize_mx(*, src, dst_scale, dtype):
    """Return the bytes of the values, four a packed element, and of the scales."""
    small, largest = SMALL[dtype]
    packed = np.zeros(src.shape, np.uint8)
    scales = dst_scale.copy()
    for g in range(src.shape[0] // 8):
        for c in range(src.shape[1] // 4):
            group = f32(src[8 * g : 8 * g + 8, 4 * c : 4 * c + 4])
            most = float(np.abs(group).max())
            power = math.floor(math.log2(most)) - (largest - 1) if most else -127
            packed[8 * g : 8 * g + 8, 4 * c : 4 * c + 4] = (
                (group / np.float32(2.0**power)).astype(small).view(np.uint8)
            )
            scales[scale_row(g, src.shape[0]), c] = power + 127
    return {"packed": packed, "dst_scale": scales}


#: float4_e2m1fn by its four bits: a sign, two of exponent, one of mantissa
FLOAT4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


def four(pack, dtype):
    """Return the four values of a packed element: its bytes, the lower four bits of each first."""
    if dtype == "float4_e2m1fn_x4":
        return [FLOAT4[bits] for byte in pack.tolist() for bits in (byte % 16, byte // 16)]
    return pack.view(SMALL[dtype][0]).astype(float)


def unpacked(values, scales, dtype):
    """Return packed values as float64: (4 * partitions, columns)."""
    size = 2 if dtype == "float4_e2m1fn_x4" else 4
    p, n = values.shape
    out = np.zeros((p, n // size, 4))
    for i in range(p):
        for c in range(n // size):
            factor = 2.0 ** (float(scales[scale_row(i // 8, p), c]) - 127)
            out[i, c] = np.array(four(values[i, size * c : size * (c + 1)], dtype)) * factor
    return out.transpose(0, 2, 1).reshape(4 * p, n // size)


def nc_matmul_mx(*, stationary, moving, stationary_scale, moving_scale, dtypes):
    a = unpacked(stationary, stationary_scale, dtypes[0])
    b = unpacked(moving, moving_scale, dtypes[1])
    return {"acc": a.T @ b}
