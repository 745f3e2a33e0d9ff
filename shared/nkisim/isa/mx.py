"""Microscaling formats (NeuronCore-v4): values of 8 or 4 bits; 32 of them share a scale.

A group is 8 partitions times the 4 values that an element of an x4 dtype packs. Its scale is a
power of two in a byte; the rows of the scale tile lie in the first 4 partitions of each quadrant
of 32, or one after another where the data has no more than 32 partitions.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from ..chip import dtypes
from ..chip.memory import PSUM, SBUF
from ..errors import fail
from ..machine.instruction import Instr
from ..machine.interface import Machine
from ..machine.tensor import Tensor
from . import formulas, sums
from .operands import UPDATE, WRITE, Tile, per_partition
from .pe import check_bank
from .table import TENSOR, VECTOR, instruction
from .variants import Matmul

_API = "Neuron SDK 2.32 API reference: nki.isa"
_LANES = 8  # partitions that share a scale
_BIAS = 127  # of the exponent that a scale byte holds
#: largest exponent of the packed 8-bit types
_E_MAX = {"float8_e4m3fn_x4": 8, "float8_e5m2_x4": 15}
_VALUES: dict[str, Any] = {
    "float8_e4m3fn_x4": ml_dtypes.float8_e4m3fn,
    "float8_e5m2_x4": ml_dtypes.float8_e5m2,
    "float4_e2m1fn_x4": ml_dtypes.float4_e2m1fn,
}


def scale_rows(partitions: int, quadrant: int) -> np.ndarray:
    """Return the partition of the scale tile for each group of 8 partitions of the data."""
    group, each = np.arange(partitions // _LANES), quadrant // _LANES
    if partitions <= quadrant:
        return group
    return group // each * quadrant + group % each


def unpacked(data: np.ndarray, name: str) -> np.ndarray:
    """Return the values of packed elements (P, F) as float32 (P, F, 4)."""
    raw = np.ascontiguousarray(data)
    if name == "float4_e2m1fn_x4":
        word = raw.view(np.uint16)[..., None]
        nibbles = (word >> (4 * np.arange(4, dtype=np.uint16))) & np.uint16(15)
        values = nibbles.astype(np.uint8).view(ml_dtypes.float4_e2m1fn)
    else:
        values = raw.view(np.uint8).reshape(*raw.shape, 4).view(_VALUES[name])
    return values.astype(np.float32)


def packed(values: np.ndarray, name: str) -> np.ndarray:
    """Return values (P, F, 4) as elements (P, F) of a packed 8-bit dtype."""
    small = np.ascontiguousarray(values.astype(_VALUES[name]))
    return small.view(np.uint8).reshape(*values.shape).view(dtypes.normalize(name))[..., 0]


def _scales(data: Tensor, scale: Tensor) -> np.ndarray:
    """Return the factor of each packed element of a tile, (P, F)."""
    byte = scale.np.reshape(scale.shape[0], -1)
    rows = scale_rows(data.shape[0], data.m.hw.quadrant)
    byte = byte.view(np.uint8).astype(np.int32)[rows]
    factor = np.ldexp(np.float32(1), byte - _BIAS).astype(np.float32)
    return np.repeat(np.where(byte == 255, np.float32(np.nan), factor), _LANES, axis=0)


def _check_scale(api: str, data: Tensor, scale: Tensor, name: str) -> None:
    rows = int(scale_rows(data.shape[0], data.m.hw.quadrant)[-1]) + 1
    if (
        scale.shape[0] < rows
        or per_partition(scale) != per_partition(data)
        or scale.dtype not in (dtypes.FLOAT8_E8M0FNU, dtypes.UINT8)
    ):
        raise fail(
            "NKI-S11",
            f"{api}: {name} does not fit the data",
            given=f"data {data.shape}, {name} {scale!r}",
            limit=f"float8_e8m0fnu or uint8, {rows} partitions or more (4 of each quadrant "
            f"of 32 are used), {per_partition(data)} elements in each",
        )


def _check_partitions(api: str, t: Tensor) -> None:
    if t.shape[0] % t.m.hw.quadrant:
        raise fail(
            "NKI-P08",
            f"{api} takes whole quadrants",
            given=f"shape {t.shape}",
            limit="32, 64, 96 or 128 partitions",
        )


def _run_quantize(m: Machine, ins: Instr, dst: Tensor) -> None:
    name = dtypes.name(dst.dtype)
    values = dtypes.as_float32(ins.srcs[0].np)
    p = values.shape[0]
    groups = values.reshape(p // _LANES, _LANES, -1, 4)
    most = np.abs(groups).max(axis=(1, 3))
    exponent = np.frexp(most)[1] - 1  # floor of log2
    byte = np.where(most == 0, 0, np.clip(exponent - (_E_MAX[name] - 1) + _BIAS, 0, 254))
    factor = np.ldexp(np.float32(1), byte - _BIAS).astype(np.float32)
    scaled = (groups / factor[:, None, :, None]).reshape(p, -1, 4)
    dst.np[...] = packed(scaled, name).reshape(dst.np.shape)
    scale = ins.also[0].np
    rows = scale_rows(p, m.hw.quadrant)
    flat = byte.astype(np.uint8).view(scale.dtype)
    scale[rows] = flat.reshape(len(rows), *scale.shape[1:])


@instruction(
    "quantize_mx",
    nki="nisa.quantize_mx(dst, src, dst_scale)",
    engines=(VECTOR,),
    run=_run_quantize,
    cost=formulas.four_a_cycle,
    needs="gen4_instructions",
    on_partitions=False,  # scales are packed 4 rows apart
    operands=(
        Tile("dst", WRITE, memories=(SBUF,), dtypes="packed fp8"),
        Tile("src", memories=(SBUF,), dtypes="16-bit float"),
        Tile("dst_scale", UPDATE, memories=(SBUF,)),
    ),
    source=f"{_API}.quantize_mx",
)
def quantize_mx(m: Machine, dst: Any, src: Any, dst_scale: Any) -> Instr:
    """Quantize bfloat16 or float16 to packed MXFP8 and a scale for each group of 32 values."""
    _check_partitions("nisa.quantize_mx", src)
    if src.shape[0] != dst.shape[0] or per_partition(src) != 4 * per_partition(dst):
        raise fail(
            "NKI-S01",
            "nisa.quantize_mx: dst does not fit src",
            given=f"src {src.shape}, dst {dst.shape}",
            limit="as many partitions, and a quarter of the elements: each packs 4",
        )
    _check_scale("nisa.quantize_mx", dst, dst_scale, "dst_scale")
    return Instr()


def _operand(t: Tensor, scale: Tensor) -> np.ndarray:
    """Return a packed operand as float32, its contraction in front: (P * 4, F)."""
    data = t.np.reshape(t.shape[0], -1)
    values = unpacked(data, dtypes.name(t.dtype)) * _scales(t, scale)[..., None]
    return values.transpose(0, 2, 1).reshape(-1, values.shape[1])


def _run_matmul(m: Machine, ins: Instr, dst: Tensor) -> None:
    a, b, sa, sb = ins.srcs
    product = np.matmul(_operand(a, sa).T, _operand(b, sb)).reshape(dst.shape)
    if ins.accumulate:
        product = product + dtypes.as_float32(dst.np)
    dtypes.cast(product, dst.dtype, out=dst.np)


_PACKED: dict[str, Any] = dict(memories=(SBUF,), dtypes="packed")


@instruction(
    "nc_matmul_mx",
    nki="nisa.nc_matmul_mx(dst, stationary, moving, stationary_scale, "
    "moving_scale, tile_position=None, tile_size=None, "
    "accumulate=None)",
    engines=(TENSOR,),
    run=_run_matmul,
    writes=(PSUM,),
    accumulates=True,
    on_partitions=False,
    check=check_bank,
    cost=formulas.mx_matmul,
    flops=formulas.mx_matmul_flops,
    needs="gen4_instructions",
    operands=(
        Tile("stationary", **_PACKED),
        Tile("moving", **_PACKED),
        Tile("stationary_scale", memories=(SBUF,)),
        Tile("moving_scale", memories=(SBUF,)),
    ),
    sums=sums.PRODUCT,
    source=f"{_API}.nc_matmul_mx",
)
def nc_matmul_mx(
    m: Machine,
    stationary: Any,
    moving: Any,
    stationary_scale: Any,
    moving_scale: Any,
    *,
    tile_position: Any = None,
    tile_size: Any = None,
    dtype: Any = None,
) -> Instr:
    """Return stationary^T @ moving of packed MXFP8 or MXFP4 operands with their scales."""
    api = "nisa.nc_matmul_mx"
    a, b = stationary, moving
    for t in (a, b):
        _check_partitions(api, t)
    if a.shape[0] != b.shape[0]:
        raise fail(
            "NKI-S02",
            "the contraction dims of a matmul differ",
            given=f"stationary {a.shape}, moving {b.shape}",
            limit="both have the contraction dim on partitions, in packs of 4",
        )
    if per_partition(a) > m.hw.gemm_stationary_fmax or per_partition(a) % 2:
        raise fail(
            "NKI-P07",
            f"{api}: stationary has a number of elements that does not fit",
            given=f"shape {a.shape}",
            limit="even, at most 128 per partition",
        )
    _check_scale(api, a, stationary_scale, "stationary_scale")
    _check_scale(api, b, moving_scale, "moving_scale")
    result = dtypes.FLOAT32 if dtype is None else dtype
    if result not in (dtypes.FLOAT32, dtypes.BFLOAT16):
        raise fail(
            "NKI-D05",
            f"{api}: dst is neither float32 nor bfloat16",
            given=dtypes.name(result),
            limit="float32 or bfloat16 in PSUM",
        )
    return Instr((per_partition(a), *b.shape[1:]), result, variant=Matmul(tiled=bool(tile_size)))
