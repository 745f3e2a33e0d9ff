"""The rows of the Vector Engine and the Scalar Engine."""

from __future__ import annotations

import numpy as np

from oracle import scalar, vector
from oracle.common import FLOATS, FP32, I32, U32

from . import masks
from .spec import GRIDS, TILE, Spec, sample

S = sample
BITS = {"data": "bits", "data1": "bits", "data2": "bits", "src": "bits"}
NO_SLANT = (*masks.BOX, "true", "false")
ROW24 = {"2d": (6, 12), "3d": (6, 2, 6), "3d1": (6, 1, 12), "4d": (6, 2, 2, 3)}

_FLOAT_CASTS = (None, "float32", "bfloat16")
UNSIGNED = tuple(map(np.dtype, ("uint8", "uint16", "uint32")))
SMALL = tuple(map(np.dtype, ("uint8", "int8", "uint16", "int16")))
NOT_32_BIT = (*FLOATS, *SMALL)
SIGNED = (*FLOATS, *map(np.dtype, ("int8", "int16", "int32")))


def _grid(grid: tuple[int, ...]) -> tuple[int, ...]:
    return grid


_COMPARISONS = (
    "equal",
    "not_equal",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
)

ELEMENTWISE = (
    Spec(
        "tensor_copy",
        vector.tensor_copy,
        (
            S(),
            S(engine="vector"),
            S(engine="scalar"),
            S(engine="gpsimd", psum=False),
            S(fill={"src": "large"}, only=(I32, U32), engine="vector"),
        ),
    ),
    Spec(
        "memset",
        vector.memset,
        (
            S(shape=_grid, value=0),
            S(shape=_grid, value=2.5, only="float"),
            S(shape=_grid, value=-3, only=SIGNED),
            S(shape=_grid, value=1, engine="vector"),
            S(shape=_grid, value=7, engine="gpsimd", psum=False),
        ),
        casts=("case",),
    ),
    Spec(
        "tensor_copy_predicated",
        vector.tensor_copy_predicated,
        (
            S(src=TILE),
            S(src=3.0),
            S(src=TILE, reverse_pred=True),
            S(src=-2, reverse_pred=True, only="float"),
        ),
        casts=(None,),
        no_cast=True,
        takes={"predicate": UNSIGNED},
    ),
    Spec(
        "tensor_tensor",
        vector.tensor_tensor,
        (
            # 32-bit integers are added and multiplied on GpSimd, which cannot touch PSUM
            *(S(op=o, only=NOT_32_BIT) for o in ("add", "subtract", "multiply")),
            *(S(op=o, only=(I32, U32), psum=False) for o in ("add", "multiply")),
            *(S(op=o) for o in ("maximum", "minimum", *_COMPARISONS)),
            S(op="max"),
            S(op="add", engine="vector"),
            S(op="multiply", engine="gpsimd", psum=False),
            S(
                op="power",
                fill={"data1": "positive", "data2": [-1, 0, 1, 2]},
                only="float",
                psum=False,
            ),
            S(op="add", fill={"data1": "large", "data2": "large"}, only=(I32, U32), psum=False),
            S(
                op="subtract",
                fill={"data1": "large", "data2": "plain"},
                only=(I32, U32),
                psum=False,
            ),
            S(
                op="add",
                fill={"data1": "large", "data2": "large"},
                only=(I32, U32),
                engine="vector",
            ),
            *(
                S(op=o, only="int", fill=BITS)
                for o in ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")
            ),
            S(op="add", dtypes={"data2": FP32}),
            S(op="multiply", dtypes={"data2": np.dtype("float16")}),
        ),
    ),
    Spec(
        "tensor_scalar",
        vector.tensor_scalar,
        (
            S(op0="add", operand0=2.5),
            S(op0="multiply", operand0=TILE),
            S(op0="subtract", operand0=1.5, reverse0=True),
            S(op0="subtract", operand0=TILE),
            S(op0="multiply", operand0=0.5, op1="add", operand1=1.0),
            S(op0="multiply", operand0=TILE, op1="add", operand1=TILE),
            S(op0="subtract", operand0=TILE, reverse0=True, op1="maximum", operand1=0.0),
            S(op0="add", operand0=1, op1="subtract", operand1=TILE, reverse1=True),
            S(op0="minimum", operand0=1.0),
            S(op0="greater_equal", operand0=TILE),
            S(op0="less", operand0=2, op1="multiply", operand1=TILE),
            S(op0="equal", operand0=2.0),
            S(op0="not_equal", operand0=TILE),
            S(op0="add", operand0=2.0, engine="vector"),
            S(op0="bitwise_and", operand0=5, only="int", fill=BITS),
            S(op0="left_shift", operand0=2, op1="bitwise_or", operand1=1, only="int", fill=BITS),
            S(op0="bitwise_xor", operand0=6, op1="right_shift", operand1=1, only="int", fill=BITS),
        ),
        casts=("float32", "bfloat16", "int16", "uint8"),
    ),
    Spec(
        "tensor_scalar",
        vector.tensor_scalar,
        (
            S(op0="multiply", operand0=TILE, op1="add", operand1=2.0, engine="scalar"),
            S(op0="add", operand0=2.0, engine="scalar"),
        ),
        casts=("float32",),
        target="trn2",
        variant="scalar",
    ),
    Spec(
        "scalar_tensor_tensor",
        vector.scalar_tensor_tensor,
        (
            S(op0="multiply", operand0=2.0, op1="add"),
            S(op0="subtract", operand0=TILE, op1="multiply"),
            S(op0="subtract", operand0=0.5, reverse0=True, op1="subtract", reverse1=True),
            S(op0="maximum", operand0=TILE, op1="subtract"),
            S(op0="add", operand0=TILE, op1="less"),
        ),
        casts=("float32", "bfloat16", "int16", None),
    ),
    Spec(
        "reciprocal",
        vector.reciprocal,
        (S(fill={"data": "positive"}),),
        casts=(None, "float32", "bfloat16"),
        dtypes=FLOATS,
    ),
    *(
        Spec(
            "tensor_unary",
            vector.unary(op),
            public=f"nl.{op}",
            variant=op,
            samples=(S(only="int" if op == "invert" else "float"),),
            casts=(None,) if op == "invert" else (None, "float32", "int16"),
        )
        for op in ("negative", "ceil", "floor", "trunc", "invert")
    ),
    Spec(
        "select_reduce",
        vector.select_reduce,
        (S(on_false=-2.5), S(on_false=TILE), S(on_false=4, reverse_pred=True)),
        casts=_FLOAT_CASTS,
        takes={"predicate": SMALL},
        dtypes=(*FLOATS, *SMALL),
    ),
    Spec(
        "dropout",
        vector.dropout,
        (S(prob=0.0), S(prob=1.0), S(prob=TILE, fill={"prob": [0, 1]})),
        casts=(None, "float32", "bfloat16"),
        dtypes=FLOATS,
    ),
    Spec(
        "dropout",
        vector.dropout,
        (S(prob=1.0), S(prob=TILE, fill={"prob": [0, 1]})),
        casts=(None,),
        dtypes=(I32,),
        variant="int",
    ),
)

_AXES = {
    "2d": ((1,), 1, -1),
    "3d": ((1, 2), 2, (2,), [1, 2]),
    "3d1": ((2,), (1, 2)),
    "4d": ((1, 2, 3), (2, 3), 3, [3]),
}
_MIDDLE = {"3d": (1,), "4d": ((1, 3), 2)}  # the SDK takes them, the page speaks of trailing


def _reductions(rank: str) -> Spec:
    axes = (*_AXES[rank], *_MIDDLE.get(rank, ()))
    ops = ("add", "max", "min", "multiply", "logical_and", "logical_or", "maximum")
    return Spec(
        "tensor_reduce",
        vector.tensor_reduce,
        (
            *(
                S(
                    op=ops[i % len(ops)],
                    axis=a,
                    keepdims=i % 2 == 1,
                    negate=i % 3 == 2,
                    fill={"data": "powers"} if ops[i % len(ops)] == "multiply" else None,
                )
                for i, a in enumerate((*axes, *axes))
            ),
            S(op="bitwise_or", axis=axes[0], only="int", fill=BITS),
            S(op="bitwise_and", axis=axes[0], keepdims=True, only="int", fill=BITS),
            S(op="bitwise_xor", axis=axes[-1], only="int", fill=BITS),
        ),
        grids={rank: GRIDS[rank]},
        masks=NO_SLANT,
    )


WITH_RESULTS = (
    *(_reductions(rank) for rank in GRIDS),
    # reduce_op=subtract is not tried: the page does not say what it subtracts from
    Spec(
        "tensor_scalar_reduce",
        vector.tensor_scalar_reduce,
        (
            S(op0="multiply", operand0=2.0, reduce_op="add"),
            S(op0="add", operand0=TILE, reduce_op="max"),
            S(op0="subtract", operand0=1.0, reduce_op="min"),
            S(
                op0="multiply",
                operand0=TILE,
                reduce_op="multiply",
                fill={"data": "powers", "operand0": "powers"},
            ),
        ),
        masks=NO_SLANT,
        casts=("float32", "bfloat16", "int16"),
    ),
    Spec(
        "tensor_tensor_scan",
        vector.tensor_tensor_scan,
        (
            S(initial=1.0, op0="multiply", op1="add", fill={"data0": [0.5, 1, -1]}, only="float"),
            S(initial=TILE, op0="add", op1="maximum"),
            S(initial=2.0, op0="subtract", reverse0=True, op1="subtract"),
            S(initial=TILE, op0="minimum", op1="subtract", reverse1=True),
        ),
        masks=NO_SLANT,
    ),
    Spec(
        "tensor_scalar_cumulative",
        vector.tensor_scalar_cumulative,
        (
            S(op0="multiply", op1="add", imm0=2.0),
            S(op0="add", op1="maximum", imm0=TILE),
            S(op0="subtract", op1="add", imm0=0.5, imm1=4.0, reduce_cmd="load_reduce"),
            S(op0="add", op1="minimum", imm0=1.0, imm1=TILE, reduce_cmd="load_reduce"),
        ),
        masks=NO_SLANT,
        casts=_FLOAT_CASTS,
        target="trn2",
    ),
    Spec(
        "select_reduce",
        vector.select_reduce,
        (
            S(on_false=-2.5, reduce_res=TILE, reduce_cmd="reset_reduce", reduce_op="max"),
            S(on_false=TILE, reduce_res=TILE, reduce_cmd="reset_reduce", reduce_op="maximum"),
        ),
        casts=_FLOAT_CASTS,
        masks=NO_SLANT,
        variant="reduce",
        takes={"predicate": SMALL},
        dtypes=(*FLOATS, *SMALL),
    ),
    Spec(
        "range_select",
        vector.range_select,
        (
            S(
                comp_op0="greater_equal",
                comp_op1="less",
                reduce_cmd="reset_reduce",
                reduce_res=TILE,
            ),
            S(comp_op0="greater", comp_op1="less_equal", range_start=3),
            S(comp_op0="equal", comp_op1="greater", range_start=-2),
        ),
        casts=(None, "float32", "bfloat16"),
        masks=NO_SLANT,
        target="trn2",
    ),
    Spec("max8", vector.max8, masks=NO_SLANT),
    Spec(
        "nc_find_index8",
        vector.nc_find_index8,
        (S(fill={"data": "distinct", "vals": "among"}),),
        masks=NO_SLANT,
        casts=(None, "uint16", "uint32"),
        shapes={"vals": lambda g: (g[0], 8)},
    ),
    Spec(
        "nc_match_replace8",
        vector.nc_match_replace8,
        (
            S(imm=-7.0, dst_idx=TILE, fill={"vals": "among"}),
            S(imm=0.0, fill={"vals": "among"}),
            S(imm=1, dst_idx=TILE, fill={"data": "distinct", "vals": "among"}),
        ),
        masks=NO_SLANT,
        takes={"dst_idx": (U32,)},
        shapes={"vals": lambda g: (g[0], 8), "dst_idx": lambda g: (g[0], 8)},
        casts=(None, "float32", "bfloat16"),
    ),
    Spec("bn_stats", vector.bn_stats, masks=NO_SLANT, casts=(None, "float32"), dtypes=FLOATS[:3]),
    Spec(
        "bn_aggr",
        vector.bn_aggr,
        (S(fill={"data": "positive"}),),
        masks=NO_SLANT,
        grids=ROW24,
        step=3,
        casts=(None, "float32"),
        dtypes=FLOATS[:3],
    ),
)

SHUFFLE = [(7 * i + 3) % 32 if i % 5 else 255 for i in range(32)]
SHUFFLES = Spec(
    "nc_stream_shuffle",
    vector.nc_stream_shuffle,
    (S(shuffle_mask=SHUFFLE), S(shuffle_mask=list(range(31, -1, -1))), S(shuffle_mask=[0] * 32)),
    masks=(*NO_SLANT, "slanted"),
    casts=(None,),
    no_cast=True,
    grids={"2d": (32, 4), "3d": (64, 2, 3), "3d1": (32, 1, 4), "4d": (96, 2, 1, 2)},
)


def _activation(op: str) -> dict:
    how = "positive" if op in scalar.POSITIVE else "small" if op in scalar.SMALL else "plain"
    return (
        {"data": how, "bias": [0, 0.25, 0.5], "scale": [0.5, 1]}
        if how == "positive"
        else {"data": how}
    )


SCALAR = (
    Spec(
        "activation",
        scalar.activation,
        tuple(S(op=o, fill=_activation(o)) for o in scalar.FUNCTIONS),
        casts=_FLOAT_CASTS,
        dtypes=FLOATS,
    ),
    Spec(
        "activation",
        scalar.activation,
        (
            S(op="copy", scale=2.0),
            S(op="square", bias=TILE),
            S(op="relu", bias=TILE, scale=TILE),
            S(op="copy", scale=TILE),
            S(op="exp", bias=TILE, scale=0.5),
            S(op="copy", bias=TILE, dtypes={"bias": np.dtype("float16")}),
        ),
        variant="vectors",
    ),
    Spec(
        "activation",
        scalar.activation,
        (
            S(op="copy", reduce_op="add", reduce_res=TILE, reduce_cmd="reset_reduce"),
            S(
                op="square",
                bias=TILE,
                scale=2.0,
                reduce_op="add",
                reduce_res=TILE,
                reduce_cmd="reset_reduce",
                fill={"data": [0, 0.5, -1], "bias": [0, 1]},
            ),
        ),
        masks=NO_SLANT,
        casts=_FLOAT_CASTS,
        variant="reduce",
    ),
    Spec(
        "activation_reduce",
        scalar.activation_reduce,
        (
            S(op="relu", reduce_op="add", reduce_res=TILE),
            S(op="copy", reduce_op="add", reduce_res=TILE, scale=TILE),
            S(op="exp", reduce_op="add", reduce_res=TILE, bias=TILE, fill={"data": "small"}),
        ),
        masks=NO_SLANT,
        casts=_FLOAT_CASTS,
        dtypes=FLOATS,
    ),
)
