"""The rows of the Tensor Engine, of GpSimd and of the DMA."""

from __future__ import annotations

from typing import Any

import numpy as np

from nkisim.chip.memory import SBUF
from nkisim.isa.operands import Tile
from oracle import dma, gpsimd, tensor
from oracle.common import FLOATS, FP32, I32, U32

from . import masks
from .masks import Affine, Compare
from .spec import GRIDS, TILE, Spec, sample

S = sample
INDEX = Tile("index", memories=(SBUF,))  # what an indirect access names its rows with
OFFSET = Tile("offset", memories=(SBUF,))
NO_SLANT = (*masks.BOX, "true", "false")
BOOL = ("none", "true", "false")

# -- Tensor Engine: grids are those of `moving`, the result's for the others ---------------------

_PRODUCTS = {"2d": (10, 16), "3d": (10, 3, 5), "3d1": (10, 1, 16), "4d": (10, 2, 3, 4)}
PRODUCTS = (
    Spec(
        "nc_matmul",
        tensor.nc_matmul,
        (
            S(),
            S(is_stationary_onezero=True, fill={"stationary": [0, 1]}),
            S(is_moving_onezero=True, fill={"moving": [0, 1]}),
            S(tile_position=(0, 0), tile_size=(32, 64)),
        ),
        grids=_PRODUCTS,
        masks=BOOL,
        casts=(None,),
        shapes={"stationary": lambda g: (g[0], 7)},
        domain=lambda g: (7, *g[1:]),
    ),
    Spec(
        "nc_matmul",
        tensor.nc_matmul,
        (S(perf_mode="double_row_gen3"),),
        variant="double",
        casts=(None,),
        grids={"3d": (10, 2, 16)},
        masks=BOOL,
        target="trn2",
        dtypes=(FLOATS[4], FLOATS[3]),
        domain=lambda g: (7, g[2]),
        shapes={"stationary": lambda g: (g[0], 2, 7)},
    ),
    # a mask must leave a range of the flattened free dims, from 0: they become the partitions
    *(
        Spec(
            row,
            tensor.nc_transpose,
            samples,
            public="nisa.nc_transpose",
            low=False,
            dtypes=dtypes,
            grids={rank: GRIDS[rank]},
            masks=(*names, "true", "false"),
            casts=casts,
        )
        for rank, names in (
            ("2d", ("none", "partition", "free", "both")),
            ("3d", ("none", "partition", "free_first")),
            ("3d1", ("none", "partition", "free", "free_one", "both")),
            ("4d", ("none", "partition", "free_first")),
        )
        for row, samples, casts, dtypes in (
            ("nc_transpose", (S(), S(engine="tensor")), (None,), FLOATS[:3]),
            ("nc_transpose_dve", (S(engine="vector"),), (None, "float32", "bfloat16"), None),
        )
    ),
)

# -- GpSimd --------------------------------------------------------------------------------------

_EXPRESSIONS = {
    "2d": (Affine((1, 1)), Affine((-3, 2), 5)),
    "3d": (Affine((1, 8, 1)), Affine((1, -1, 2), 4)),
    "3d1": (Affine((2, 0, 1), -1),),
    "4d": (Affine((9, 12, 4, 1)),),
}
_PREDICATES = {
    "2d": (Compare(Affine((1, -1)), ">=", 0), Compare(Affine((0, 1)), "<", 5)),
    "3d": (Compare(Affine((2, 8, 1)), ">", 13), Compare(Affine((1, 1, 0)), "<=", 4)),
    "3d1": (Compare(Affine((1, 0, 1)), "==", 6),),
    "4d": (Compare(Affine((1, 1, 1, 1)), "<", 6),),
}
GPSIMD = (
    *(
        Spec(
            "iota",
            gpsimd.iota,
            tuple(S(expr=e) for e in _EXPRESSIONS[rank]),
            grids={rank: grid},
            casts=("int32", "float32", "bfloat16", "int8"),
            dtypes=(I32,),
        )
        for rank, grid in GRIDS.items()
    ),
    *(
        Spec(
            "affine_select",
            gpsimd.affine_select,
            tuple(S(pred=e, on_false_value=v) for e in _PREDICATES[rank] for v in (0.0, -3.5)),
            grids={rank: grid},
            dtypes=tuple(
                d for d in (*FLOATS, *map(np.dtype, ("uint8", "int8", "int16", "uint16")))
            ),
            casts=(None, "float32", "bfloat16"),
        )
        for rank, grid in GRIDS.items()
    ),
    Spec(
        "tensor_partition_reduce",
        gpsimd.tensor_partition_reduce,
        (
            S(op="add"),
            S(op="max"),
            S(op="bitwise_or", only="int", fill={"data": "bits"}),
            S(op="bitwise_and", only="int", fill={"data": "bits"}),
        ),
        masks=NO_SLANT,
    ),
    # with a mask the documentation does not say which operand's grid it is over
    Spec(
        "local_gather",
        gpsimd.local_gather,
        (
            S(fill={"index": list(range(8))}),
            S(num_elem_per_idx=2, fill={"index": list(range(7))}),
            S(num_elem_per_idx=4, num_valid_indices=20, fill={"index": list(range(4))}),
        ),
        grids={"2d": (16, 12), "3d": (32, 3, 8), "4d": (16, 2, 3, 4)},
        masks=("none",),
        shapes={"index": lambda g: (g[0], 2)},
        domain=lambda g: (),
        casts=(None,),
    ),
    Spec(
        "gather_flattened",
        gpsimd.gather_flattened,
        (S(fill={"indices": list(range(12))}),),
        casts=(None,),
        takes={"indices": (U32,)},
        shapes={"data": lambda g: (g[0], 3, 4)},
        masks=NO_SLANT,
    ),
    Spec(
        "sequence_bounds",
        gpsimd.sequence_bounds,
        (S(fill={"segment_ids": [0, 1, 1, 2]}),),
        grids={"2d": (1, 20)},
        masks=("none",),
        domain=lambda g: (1, 2, g[1]),
        casts=(None, "float32", "int32"),
        dtypes=(FP32, I32),
    ),
)

# -- DMA -----------------------------------------------------------------------------------------

_HBM = {"1d": (24,), **GRIDS}


def _load_domain(grid: tuple[int, ...]) -> tuple[int, ...]:
    return grid if len(grid) > 1 else (*grid, 1)


def _rows(nl: Any, kw: dict, name: str) -> dict:
    """Subscript an HBM operand with the rows that its index tile names."""
    kw = dict(kw)
    index, x = kw.pop("index"), kw[name]
    i_p, i_f = nl.arange(index.shape[0])[:, None], nl.arange(x.shape[1])[None, :]
    kw[name] = x[index[i_p, 0], i_f]
    return kw


def _at(nl: Any, kw: dict, name: str, width: int) -> dict:
    """Subscript a tile on chip with an offset that is in a tile."""
    kw = dict(kw)
    offset, x = kw.pop("offset"), kw[name]
    i_p, i_f = nl.arange(x.shape[0])[:, None], nl.arange(width)[None, :]
    kw[name] = x[i_p, offset[0, 0] + i_f]
    return kw


def _moved(nl: Any, kw: dict) -> dict:
    return _rows(nl, kw, "src" if "src" in kw else "dst")


_INDIRECT: dict[str, Any] = {  # 6 of 12 rows, which an index tile names
    "grids": {"2d": (12, 16)},
    "takes": {"index": (U32, I32)},
    "call": _moved,
    "domain": lambda g: (6, g[1]),
    "shapes": {"index": lambda g: (6, 1), "value": lambda g: (6, g[1])},
}

DMA = (
    Spec(
        "load",
        dma.load,
        grids=_HBM,
        domain=_load_domain,
        casts=(None, "float32", "bfloat16", "int16"),
    ),
    Spec(
        "load",
        dma.gather_rows,
        (S(fill={"index": list(range(12))}), S(fill={"index": [3]})),
        variant="rows",
        extra=(INDEX,),
        casts=(None, "float32"),
        **_INDIRECT,
    ),
    Spec(
        "load",
        dma.gather_rows,
        (S(mode="skip", fill={"index": [0, 5, 11, 12, 40]}),),
        variant="skip",
        extra=(INDEX,),
        casts=(None,),
        **_INDIRECT,
    ),
    Spec(
        "store",
        dma.store,
        (S(value=TILE, psum=False),),
        grids=_HBM,
        domain=_load_domain,
        shapes={"value": _load_domain},
        casts=(None, "float32", "bfloat16"),
    ),
    Spec(
        "store",
        dma.store,
        (S(value=2.5, only="float"), S(value=0)),
        variant="number",
        casts=(None,),
    ),
    Spec(
        "store",
        dma.scatter_rows,
        (S(value=TILE, psum=False, fill={"index": "rows"}),),
        variant="rows",
        extra=(INDEX,),
        casts=(None,),
        masks=NO_SLANT,
        **_INDIRECT,
    ),
    Spec(
        "atomic_rmw",
        dma.scatter_rows,
        (S(op="add", fill={"index": "rows"}),),
        extra=(INDEX,),
        casts=(None,),
        masks=NO_SLANT,
        dtypes=FLOATS[:3],
        **_INDIRECT,
    ),
    Spec(
        "dma_copy",
        dma.dma_copy,
        (S(), S(dge_mode="swdge"), S(dge_mode="none")),
        casts=(None, "float32", "bfloat16"),
    ),
    Spec(
        "dma_copy",
        dma.dma_copy,
        (S(dst_rmw_op="add"),),
        variant="add",
        casts=(None,),
        dtypes=(FP32, I32),
    ),
    Spec(
        "load_transpose2d",
        dma.load_transpose2d,
        grids={"2d": (12, 16)},
        masks=NO_SLANT,
        casts=(None, "float32", "bfloat16"),
    ),
    *(
        Spec(
            "dma_transpose",
            dma.dma_transpose,
            (S(), S(axes=axes)),
            grids={rank: GRIDS[rank]},
            masks=NO_SLANT,
            casts=(None, "float32", "bfloat16"),
            dtypes=FLOATS[1:3],
        )
        for rank, axes in (("2d", (1, 0)), ("3d", (2, 1, 0)), ("4d", (3, 1, 2, 0)))
    ),
)

_WINDOW = 10
DYNAMIC = (
    Spec(
        "tensor_copy_dynamic_src",
        dma.tensor_copy_dynamic_src,
        (
            S(fill={"offset": [3]}),
            S(fill={"offset": [0]}, engine="vector"),
            S(fill={"offset": [6]}, engine="gpsimd", psum=False),
        ),
        grids={"2d": (6, 16)},
        takes={"offset": (I32, U32)},
        shapes={"offset": lambda g: (1, 1)},
        domain=lambda g: (6, _WINDOW),
        masks=masks.EVERY,
        extra=(OFFSET,),
        call=lambda nl, kw: _at(nl, kw, "src", _WINDOW),
    ),
    Spec(
        "tensor_copy_dynamic_dst",
        dma.tensor_copy_dynamic_dst,
        (S(fill={"offset": [2]}), S(fill={"offset": [6]}, engine="scalar")),
        grids={"2d": (6, 16)},
        takes={"offset": (I32, U32)},
        shapes={"offset": lambda g: (1, 1), "src": lambda g: (6, _WINDOW)},
        domain=lambda g: (6, _WINDOW),
        masks=masks.EVERY,
        casts=(None,),
        extra=(OFFSET,),
        call=lambda nl, kw: _at(nl, kw, "dst", _WINDOW),
    ),
)
