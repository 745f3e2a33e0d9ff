"""Vector Engine: nki.isa, sections tensor_tensor to dropout of the API reference."""

from __future__ import annotations

from typing import Any

import numpy as np

from .common import (
    BITVEC,
    FP32_MIN,
    I32,
    U32,
    Expected,
    binary,
    cast,
    column,
    column_of,
    f32,
    fold,
    promote,
    rows,
    second,
    selected,
)


def tensor_copy(src, *, mask, dtype=None, engine="unknown"):
    """Equal dtypes are copied bit by bit, others through float32."""
    # the Scalar Engine of NeuronCore-v2 goes through float32 even then
    through = f32(src) if engine == "scalar" else src
    return {"": Expected(cast(through, dtype or src.dtype), mask)}


def memset(shape, value, dtype, *, mask, engine="unknown"):
    return {"": Expected(np.full(shape, cast(value, dtype)), mask)}


def tensor_copy_predicated(*, src, dst, predicate, reverse_pred=False, mask, dtype=None):
    """Copy where the predicate is not zero (or, reversed, where it is)."""
    chosen = predicate.reshape(dst.shape) != 0
    if reverse_pred:
        chosen = ~chosen
    value = (
        np.broadcast_to(np.asarray(src), dst.shape) if np.ndim(src) == 0 else src.reshape(dst.shape)
    )
    return {"dst": Expected(cast(value, dst.dtype), chosen & mask)}


def tensor_tensor(data1, data2, op, *, dtype=None, mask, engine="unknown"):
    """Apply a binary operator in float32, 32-bit integers exactly on GpSimd."""
    a, b = second(data1, data2)
    dtype = dtype or promote(data1.dtype, data2.dtype)
    if (
        op in ("add", "subtract", "multiply")
        and a.dtype == b.dtype
        and a.dtype in (I32, U32)
        and engine != "vector"
    ):
        exact = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply}[op]
        value: Any = exact(a.astype(np.int64), b.astype(np.int64)).astype(a.dtype)
    else:
        value = binary(op, a, b)
    return {"": Expected(cast(value, dtype), mask, 1e-5 if op == "power" else 0.0)}


def _step(op: str, x: np.ndarray, operand: Any, reverse: bool) -> np.ndarray:
    y = column(operand, x)
    y = y.astype(x.dtype) if op in BITVEC else f32(y)
    return binary(op, y, x) if reverse else binary(op, x, y)


def tensor_scalar(
    data,
    op0,
    operand0,
    reverse0=False,
    op1=None,
    operand1=None,
    reverse1=False,
    *,
    dtype=None,
    mask,
    engine="unknown",
):
    """(data op0 operand0) op1 operand1."""
    # The default dtype is data's by this API's page, and promoted with the numbers by "Weakly
    # Typed Scalar Type Inference": contradictory, so the matrix always names a dtype.
    value = _step(op0, data, operand0, reverse0)
    if op1 is not None:
        value = _step(op1, value, operand1, reverse1)
    return {"": Expected(cast(value, dtype or data.dtype), mask)}


def scalar_tensor_tensor(
    *, data, op0, operand0, op1, operand1, reverse0=False, reverse1=False, dtype=None, mask
):
    """(data op0 operand0) op1 operand1, operand1 a tile."""
    a, b = second(data, operand1)
    value = _step(op0, a, operand0, reverse0)
    value = binary(op1, f32(b), value) if reverse1 else binary(op1, value, f32(b))
    return {"": Expected(cast(value, dtype or data.dtype), mask)}


def reciprocal(data, *, dtype=None, mask):
    return {"": Expected(cast(np.float32(1) / f32(data), dtype or data.dtype), mask, 1e-6)}


def tensor_reduce(op, data, axis, *, mask, dtype=None, negate=False, keepdims=False):
    """Reduce free axes; a result keeps at least one free dim."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    axes = tuple(a % data.ndim for a in axes)
    kept = tuple(1 if d in axes else n for d, n in enumerate(data.shape))
    value, written = np.zeros(kept, np.float32), np.zeros(kept, bool)
    if op in BITVEC:
        value = np.zeros(kept, data.dtype)
    for at in np.ndindex(*kept):
        part = tuple(slice(None) if d in axes else slice(i, i + 1) for d, i in enumerate(at))
        values = data[part].reshape(-1)[mask[part].reshape(-1)]
        if values.size:
            written[at] = True
            value[at] = fold(op, values if op in BITVEC else f32(values), data.dtype)
    if negate:
        value = -value
    if not keepdims:
        shape = tuple(n for d, n in enumerate(kept) if d not in axes)
        shape = shape if len(shape) > 1 else (*shape, 1)
        value, written = value.reshape(shape), written.reshape(shape)
    return {"": Expected(cast(value, dtype or data.dtype), written)}


def tensor_scalar_reduce(
    *, data, op0, operand0, reduce_op, reduce_res, reverse0=False, dtype=None, mask
):
    """data op0 operand0, and its reduction over all free dims in reduce_res."""
    value = _step(op0, data, operand0, False)
    totals = [
        fold(reduce_op, v) if (v := selected(value, mask, p)).size else None
        for p in range(data.shape[0])
    ]
    return {
        "": Expected(cast(value, dtype or data.dtype), mask),
        "reduce_res": column_of(totals, mask, reduce_res),
    }


def tensor_tensor_scan(
    data0, data1, initial, op0, op1, reverse0=False, reverse1=False, *, dtype=None, mask
):
    """r[i] = (data0[i] op0 r[i-1]) op1 data1[i] along the elements of each partition."""
    a, b = second(data0, data1)
    dtype = dtype or promote(data0.dtype, data1.dtype)
    start = column(initial, a[:, :1].reshape(a.shape[0], -1)[:, :1])
    value = np.zeros(a.shape, np.float32)
    for p in range(a.shape[0]):
        state, out = np.float32(start[p, 0]), []
        for x, y in zip(f32(selected(a, mask, p)), f32(selected(b, mask, p))):
            pair = (state, x) if reverse0 else (x, state)
            state = binary(op0, *(np.array([v]) for v in pair))[0]
            pair = (y, state) if reverse1 else (state, y)
            state = binary(op1, *(np.array([v]) for v in pair))[0]
            out.append(state)
        value[p].reshape(-1)[mask[p].reshape(-1)] = out
    return {"": Expected(cast(value, dtype), mask, 1e-6)}


def tensor_scalar_cumulative(
    *, src, dst, op0, op1, imm0, imm1=None, reduce_cmd="reset_reduce", dtype=None, mask
):
    """The running op1 of (src op0 imm0); load_reduce starts from imm1 (SDK 2.27)."""
    # reset_reduce starts anew: the page does not say from what, which matters for no operator
    # whose neutral element it is; add, maximum and minimum are read as "from the first element".
    steps = _step(op0, src, imm0, False)
    start = (
        None
        if imm1 is None or reduce_cmd != "load_reduce"
        else column(imm1, src.reshape(src.shape[0], -1)[:, :1])
    )
    value = np.zeros(src.shape, np.float32)
    for p in range(src.shape[0]):
        out: list = []
        for x in selected(steps, mask, p):
            before = out[-1] if out else None if start is None else np.float32(start[p, 0])
            out.append(x if before is None else fold(op1, [before, x]))
        value[p].reshape(-1)[mask[p].reshape(-1)] = out
    return {"dst": Expected(cast(value.reshape(dst.shape), dst.dtype), mask)}


# -- search and statistics -----------------------------------------------------------------------


def _by_partition(data, mask, width, fn, dtype, rtol=0.0):
    """Return a (P, width) result of a function of the selected elements of each partition."""
    written = rows(mask, width)
    value = np.zeros(written.shape, np.float64)
    for p in range(data.shape[0]):
        if written[p, 0]:
            value[p] = fn(p, selected(data, mask, p))
    return {"": Expected(cast(value, dtype), written, rtol)}


def max8(*, src, mask, dtype=None):
    return _by_partition(
        src, mask, 8, lambda p, x: sorted(f32(x).tolist())[::-1][:8], dtype or src.dtype
    )


def _places(values: np.ndarray, wanted: np.ndarray) -> list[int]:
    """Return where each wanted value occurs; equal ones take successive positions."""
    taken: set[int] = set()
    for w in f32(wanted):
        taken_now = next(i for i, v in enumerate(f32(values)) if v == w and i not in taken)
        taken.add(taken_now)
        yield taken_now


def nc_find_index8(*, data, vals, mask, dtype=None):
    """Positions of the first occurrences; a mask is applied to data only."""
    got = _by_partition(
        data, mask, 8, lambda p, x: list(_places(x, vals[p].reshape(-1))), dtype or np.uint32
    )
    got[""].known = _known_positions(mask, 8)
    return got


def _known_positions(mask: np.ndarray, width: int) -> np.ndarray:
    """Return where positions are the same with and without the mask.

    The documentation does not say whether a position counts what a mask leaves out. It is known
    where the mask leaves out nothing before the last selected element of a partition.
    """
    flat = mask.reshape(mask.shape[0], -1)
    known = [not row.any() or row[: np.flatnonzero(row)[-1] + 1].all() for row in flat]
    return np.repeat(np.array(known)[:, None], width, axis=1)


def nc_match_replace8(*, data, vals, imm, dst_idx=None, mask, dtype=None):
    """Replace the first occurrence of each value, one after the other."""
    value, index = f32(data), np.zeros((data.shape[0], 8), np.float64)
    for p in range(data.shape[0]):
        x = selected(value, mask, p)
        if not x.size:
            continue
        for k, wanted in enumerate(f32(vals[p].reshape(-1))):
            places = [i for i, v in enumerate(x) if v == wanted]
            if places:  # a value that is not there: undefined
                x[places[0]], index[p, k] = imm, places[0]
        value[p].reshape(-1)[mask[p].reshape(-1)] = x
    out = {"": Expected(cast(value, dtype or data.dtype), mask)}
    if dst_idx is not None:
        out["dst_idx"] = Expected(
            index.astype(dst_idx.dtype).reshape(dst_idx.shape),
            rows(mask, 8).reshape(dst_idx.shape),
            known=_known_positions(mask, 8).reshape(dst_idx.shape),
        )
    return out


def bn_stats(data, *, mask, dtype=None):
    """count, mean and variance * count of the even elements, then of the odd ones."""

    def stats(p, x):
        out = []
        for half in (x[0::2].astype(np.float64), x[1::2].astype(np.float64)):
            mean = half.sum() / half.size
            out += [half.size, mean, ((half - mean) ** 2).sum()]
        return out

    return _by_partition(data, mask, 6, stats, dtype or data.dtype, 2e-5)


def bn_aggr(data, *, mask, dtype=None):
    """Mean and variance of what triples (count, mean, variance * count) describe."""

    def aggregate(p, x):
        count, mean, spread = x.astype(np.float64).reshape(-1, 3).T
        total = (count * mean).sum() / count.sum()
        return total, (spread + count * (mean - total) ** 2).sum() / count.sum()

    return _by_partition(data, mask, 2, aggregate, dtype or data.dtype, 2e-5)


# -- selection -----------------------------------------------------------------------------------


def _maximum(value, mask, reduce_res):
    tops = [
        max(v.tolist()) if (v := selected(value, mask, p)).size else None
        for p in range(value.shape[0])
    ]
    return column_of(tops, mask, reduce_res)


def select_reduce(
    *,
    dst,
    predicate,
    on_true,
    on_false,
    reduce_res=None,
    reduce_cmd="idle",
    reduce_op="max",
    reverse_pred=False,
    mask,
    dtype=None,
):
    """dst = where(predicate, on_true, on_false); the maximum of the result in reduce_res."""
    chosen = predicate.reshape(dst.shape) != 0
    if reverse_pred:
        chosen = ~chosen
    value = np.where(chosen, f32(on_true).reshape(dst.shape), f32(column(on_false, dst)))
    out = {"dst": Expected(cast(value, dst.dtype), mask)}
    if reduce_res is not None:
        out["reduce_res"] = _maximum(value, mask, reduce_res)
    return out


def range_select(
    *,
    on_true_tile,
    comp_op0,
    comp_op1,
    bound0,
    bound1,
    reduce_cmd="idle",
    reduce_res=None,
    reduce_op="max",
    range_start=0,
    on_false_value=None,
    mask,
    dtype=None,
):
    """Keep elements whose position in the partition passes two comparisons."""
    x = f32(on_true_tile)
    position = np.broadcast_to(range_start + np.arange(x[0].size).reshape(x[0].shape), x.shape)
    inside = (
        binary(comp_op0, f32(position), f32(column(bound0, x)))
        * binary(comp_op1, f32(position), f32(column(bound1, x)))
        != 0
    )
    value = np.where(inside, x, FP32_MIN)
    # whether a position counts what a mask has cut away is not said
    known = np.broadcast_to(_known_positions(mask, 1).reshape((-1,) + (1,) * (x.ndim - 1)), x.shape)
    out = {"": Expected(cast(value, dtype or on_true_tile.dtype), mask, known=known)}
    if reduce_res is not None:
        out["reduce_res"] = _maximum(value, mask, reduce_res)
        out["reduce_res"].known = _known_positions(mask, 1).reshape(reduce_res.shape)
    return out


def nc_stream_shuffle(src, dst, shuffle_mask, *, dtype=None, mask):
    """Partition i of each quadrant of dst gets partition shuffle_mask[i] of src; 255 keeps."""
    value, written = dst.copy(), np.zeros(dst.shape, bool)
    flat = src.reshape(src.shape[0], -1)
    for p in range(dst.shape[0]):
        quadrant, i = divmod(p, 32)
        if shuffle_mask[i] == 255:
            continue
        row = flat[min(quadrant * 32, (src.shape[0] - 1) // 32 * 32) + shuffle_mask[i]]
        value[p] = row.reshape(dst[p].shape)
        written[p] = True
    return {"dst": Expected(value, written & mask)}


def dropout(data, prob, *, mask, dtype=None):
    """Zeros with probability prob; kept values are not rescaled."""
    p = np.broadcast_to(column(prob, data), data.shape)
    assert np.isin(p, (0, 1)).all(), "anything between is random"
    return {"": Expected(cast(np.where(p == 1, 0, f32(data)), dtype or data.dtype), mask)}


_UNARY = {"negative": np.negative, "ceil": np.ceil, "floor": np.floor, "trunc": np.trunc}


def unary(op):
    """Return the oracle of nl.negative, ceil, floor, trunc or invert."""

    def oracle(x, *, mask, dtype=None):
        value = ~x if op == "invert" else _UNARY[op](f32(x))
        return {"": Expected(cast(value, dtype or x.dtype), mask)}

    return oracle
