"""Rows that only the package nki has, and those that it writes otherwise, with their oracles."""

from __future__ import annotations

import numpy as np

from oracle import newer
from oracle.common import BF16, FP16, FP32, I16, I32, U8, U16, U32

from .nki_spec import TILE, Of, Row, dst, vector

SUM = {"reduce_res": TILE, "reduce_cmd": "reset_reduce"}
SMALL = "small"
PREDICATES = (U8, U16, FP32)


def pattern_of(grid):
    """Return an affine pattern over the free dims of a grid, of steps that differ."""
    return [[(3, -2, 5)[i], n] for i, n in enumerate(grid[1:])]


def bound(number):
    return lambda g: np.full((g[0], 1), number, np.float32)


_ACT = {
    "dst": dst(),
    "data": Of(fill=SMALL),
    "bias": vector(),
    "scale": vector(fill="positive"),
    "reduce_res": vector("w"),
}

ROWS = (
    Row(
        "exponential",
        newer.exponential,
        {
            "dst": dst(),
            "src": Of(fill=SMALL),
            "max_value": vector(fill=SMALL),
            "reduce_init": vector(),
            "reduce_res": vector("w"),
        },
        (
            {},
            {"max_value": TILE},
            {"max_value": 0.75},
            {"max_value": TILE, **SUM},
            {"reduce_res": TILE, "reduce_cmd": "load_reduce", "reduce_init": 2.0},
            {"reduce_res": TILE, "reduce_cmd": "load_reduce", "reduce_init": TILE},
        ),
        optional=("max_value", "reduce_init", "reduce_res"),
    ),
    Row(
        "activate2",
        newer.activate2,
        {
            "dst": dst(),
            "data": Of(fill=SMALL),
            "imm0": vector(),
            "imm1": vector(),
            "reduce_res": vector("w"),
        },
        (
            {"op": "tanh", "imm0": 2.0, "imm1": 0.5, "op0": "multiply", "op1": "subtract"},
            {"op": "exp", "imm0": 0.5, "imm1": TILE, "op0": "multiply", "op1": "add"},
            {"op": "square", "imm0": TILE, "imm1": 0.0, "op0": "add", "op1": "bypass"},
            {
                "op": "copy",
                "imm0": 1.5,
                "imm1": 0.0,
                "op0": "subtract",
                "op1": "bypass",
                "reverse0": True,
            },
            {
                "op": "copy",
                "imm0": 0.5,
                "imm1": 1.0,
                "op0": "multiply",
                "op1": "subtract",
                "reverse1": True,
            },
            {
                "op": "prelu",
                "imm0": 0.0,
                "imm1": 0.0,
                "op0": "bypass",
                "op1": "bypass",
                "relu_param": 0.25,
            },
            *(
                {
                    "op": "copy",
                    "imm0": 2.0,
                    "imm1": 0.25,
                    "op0": "multiply",
                    "op1": "add",
                    "reduce_op": o,
                    **SUM,
                }
                for o in ("add", "maximum", "minimum", "abs_max", "abs_min")
            ),
        ),
        optional=("imm0", "imm1", "reduce_res"),
    ),
    Row(
        "activation",
        newer.activation,
        _ACT,
        (
            {"op": "exp", "bias": 0.5},
            {"op": "square", "bias": -1.0, "scale": 2.0},
            {"op": "relu", "bias": TILE, "scale": TILE},
            {"op": "copy", "scale": TILE},
            {"op": "tanh", "bias": TILE, "scale": 0.5},
            {"op": "abs"},
            {"op": "copy", "bias": 1.0, "reduce_op": "add", **SUM},
        ),
        optional=("bias", "scale", "reduce_res"),
        target="trn2",
    ),
    Row(
        "activation_reduce",
        newer.activation,
        {**_ACT, "reduce_res": vector("w")},
        (
            {"op": "exp", "reduce_op": "add", "bias": 0.25},
            {"op": "square", "reduce_op": "add", "scale": 0.5},
        ),
        optional=("bias", "scale"),
        target="trn2",
        expects=("reduce_cmd=reset_reduce",),
    ),
    Row(
        "select_reduce",
        newer.select_reduce,
        {
            "dst": dst(),
            "predicate": Of(dtypes=PREDICATES, fill=[0, 1]),
            "on_true": Of(),
            "on_false": vector(),
            "reduce_res": vector("w"),
        },
        (
            {"on_false": -2.5},
            {"on_false": TILE},
            {"on_false": 4.0, "reverse_pred": True},
            {"on_false": TILE, **SUM},
            {"on_false": -1.0, "reverse_pred": True, **SUM},
        ),
        optional=("on_false", "reduce_res"),
        target="trn2",
        one_psum=True,
    ),
    Row(
        "range_select",
        newer.range_select,
        {
            "dst": dst(),
            "on_true_tile": Of(),
            "bound0": vector(fill=[0, 1, 2]),
            "bound1": vector(fill=[5, 7, 40]),
            "reduce_res": vector("w"),
        },
        (
            {"comp_op0": "greater_equal", "comp_op1": "less"},
            {"comp_op0": "greater", "comp_op1": "less_equal", "range_start": 2},
            {"comp_op0": "greater_equal", "comp_op1": "less", "reduce_res": TILE},
        ),
        optional=("reduce_res",),
        target="trn2",
    ),
    Row(
        "tensor_scalar_reduce",
        newer.tensor_scalar_reduce,
        {
            "dst": dst(),
            "data": Of(),
            "operand0": vector(),
            "reduce_init": vector(),
            "reduce_res": vector("w"),
        },
        (
            {"op0": "multiply", "operand0": 2.0, "reduce_op": "add", "reduce_res": TILE},
            {
                "op0": "add",
                "operand0": TILE,
                "reduce_op": "maximum",
                "reduce_res": TILE,
                "reduce_res_negate": True,
            },
            {"op0": "subtract", "operand0": 1.0, "reduce_op": "minimum", "reduce_res": TILE},
            {
                "op0": "add",
                "operand0": 0.5,
                "reduce_op": "add",
                "reduce_res": TILE,
                "reduce_cmd": "load_reduce",
                "reduce_init": 3.0,
            },
            {
                "op0": "multiply",
                "operand0": TILE,
                "reduce_op": "maximum",
                "reduce_res": TILE,
                "reduce_cmd": "load_reduce",
                "reduce_init": TILE,
            },
            {"op0": "multiply", "operand0": TILE, "reduce_op": "add"},
        ),
        optional=("operand0", "reduce_init", "reduce_res"),
        target="trn2",
    ),
    Row(
        "iota",
        newer.iota,
        {"dst": Of("w", memories=("sbuf",))},
        (
            {"pattern": pattern_of},
            {"pattern": pattern_of, "offset": 7},
            {"pattern": pattern_of, "offset": -3, "channel_multiplier": 10},
            {"pattern": pattern_of, "channel_multiplier": -1},
        ),
        dtypes=(I32, FP32, BF16, I16),
        target="trn2",
        expects=("dst",),
    ),
    Row(
        "affine_select",
        newer.affine_select,
        {"dst": Of("w", memories=("sbuf",)), "on_true_tile": Of(memories=("sbuf",))},
        tuple(
            {
                "pattern": pattern_of,
                "channel_multiplier": m,
                "on_false_value": v,
                "cmp_op": c,
                "offset": o,
            }
            for m, v, c, o in (
                (1, 0.0, "equal", 0),
                (-1, -7.5, "greater_equal", 4),
                (2, 1.0, "less", -9),
                (0, 3.0, "greater", 1),
            )
        ),
        grids={"2d": (32, 12), "3d": (64, 3, 8)},
        target="trn2",
    ),
    Row(
        "tensor_partition_reduce",
        newer.tensor_partition_reduce,
        {
            "dst": Of("w", lambda g: (1, *g[1:]), (FP32, BF16), ("sbuf",)),
            "data": Of(memories=("sbuf",)),
        },
        ({"op": "average"}, {"op": "add"}, {"op": "maximum"}),
        target="trn2",
        rtol=1e-4,
    ),
    Row(
        "nonzero_with_count",
        newer.nonzero_with_count,
        {
            "dst": Of("u", lambda g: (g[0], g[1] + 1), (I32,), ("sbuf",)),
            "src": Of(memories=("sbuf",), fill=[0, 0, 1, 3]),
        },
        ({}, {"index_offset": 16}, {"index_offset": 5, "padding_val": -9}),
        dtypes=(FP32, I32),
        grids={"2d": (32, 12), "wide": (128, 7)},
        views=("whole", "cut", "steps"),
        target="trn2",
        expects=("dst",),
    ),
    Row(
        "topk",
        newer.topk,
        {
            "val_dst": Of("w", lambda g: (g[0], 8), (BF16,), ("sbuf",)),
            "idx_dst": Of("w", lambda g: (g[0], 8), (U32,), ("sbuf",)),
            "src": Of(dtypes=(BF16,), memories=("sbuf",), fill=[*range(-40, 40)]),
        },
        ({"n": 100}, {"n": 12 * 16}, {"n": 8}),
        dtypes=(BF16,),
        grids={"2d": (16, 12), "two": (32, 12)},
        views=("whole", "cut", "steps"),
        target="trn2",
        expects=("val_dst", "idx_dst"),
    ),
    *(
        Row(
            "dma_compute",
            newer.dma_compute,
            {
                "dst": dst(FP32, BF16, memories=("hbm", "sbuf")),
                **{f"srcs{i}": Of(memories=("hbm", "sbuf")) for i in range(n)},
            },
            ({"reduce_op": "add"}, {"reduce_op": "add", "scales": (1.0,) * n}),
            variant=str(n),
            target="trn2",
            dtypes=(FP32, BF16, FP16),
        )
        for n in (1, 2, 5)
    ),
    Row(
        "nc_matmul",
        newer.nc_matmul,
        {
            "acc": Of("u", lambda g: (8, g[-1]), (FP32,), ("psum",)),
            "stationary": Of(shape=lambda g: (g[0], 8), memories=("sbuf",)),
            "moving": Of(shape=lambda g: (g[0], g[-1]), memories=("sbuf",)),
        },
        ({"accumulate": False}, {"accumulate": None}, {"accumulate": True}),
        dtypes=(FP32, BF16, FP16),
        views=("whole", "cut", "steps"),
        target="trn2",
        rtol=1e-4,
        grids={"2d": (32, 12), "tall": (128, 16)},
        expects=("acc",),
    ),
)
