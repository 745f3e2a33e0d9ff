"""Tensor Engine: matrix multiplication and transposition."""
from __future__ import annotations

from typing import Any

import numpy as np

from ..chip import dtypes
from ..chip.memory import PSUM, SBUF
from ..errors import fail
from ..machine.instruction import Instr
from ..machine.machine import Machine
from ..machine.shadow import as_f32
from ..machine.tensor import Tensor
from . import formulas
from .forms import Matmul
from .masks import Box, leading
from .operands import Tile, per_partition
from .table import TENSOR, VECTOR, always, instruction

_WIDE = (dtypes.FLOAT32, dtypes.TFLOAT32)


def _run_matmul(m: Machine, ins: Instr, dst: Tensor) -> None:
    """Compute stationary^T @ moving in float32, added to `dst` if the flag is set."""
    a, b = as_f32(ins.srcs[0]), as_f32(ins.srcs[1])
    if ins.form.double_row:                 # (K, 2, M) and (K, 2, N): contraction over K and 2
        a, b = a.reshape(-1, a.shape[-1]), b.reshape(-1, b.shape[-1])
    adds = ins.accumulate or ins.opens and dst.dtype == dtypes.FLOAT32
    if adds and ins.mask is None and not dst.storage.arena:     # type: ignore[union-attr]
        if m.nest is not None and not ins.form.double_row:
            m.nest.defer(a, b)          # added with those of the other iterations
        else:
            m.products.add(a, b, ins.srcs, dst, not ins.accumulate)
        return
    a, b, out = a.reshape(a.shape[0], -1), b.reshape(b.shape[0], -1), dst.np
    if ins.accumulate:
        out += np.matmul(a.T, b).reshape(out.shape)
    elif out.ndim == 2 and out.dtype == np.float32 and out.strides[1] == 4:
        np.matmul(a.T, b, out=out)
    else:
        dtypes.cast(np.matmul(a.T, b).reshape(out.shape), dst.dtype, out=out)


def check_bank(m: Machine, ins: Instr, dst: Tensor) -> None:
    """The result of one matmul lies in one PSUM bank (before NeuronCore-v4)."""
    bank = m.hw.pe_result_bytes
    if dst.storage.row_bytes <= bank and not dst.storage.arena:
        return                                              # a tile of its own
    lo = dst.offset % dst.storage.row_bytes                 # type: ignore[union-attr]
    end = dst.dtype.itemsize + sum((n - 1) * s for n, s in zip(dst.shape[1:], dst.strides[1:]))
    if lo // bank != (lo + end - 1) // bank:
        raise fail("NKI-M06", "the result of a matmul lies in two PSUM banks"
                   if bank == m.hw.psum_bank_bytes else "the result of a matmul is too large",
                   given=f"bytes {lo} .. {lo + end - 1} of each partition",
                   limit=(f"one bank of {bank} bytes" if bank == m.hw.psum_bank_bytes
                          else f"{bank} bytes") + f": {bank // 4} float32 results",
                   hint="give each matmul its own bank: nl.zeros((n, nl.par_dim(128), 512), "
                        "buffer=nl.psum), or use at most 512 columns")


def _narrow_matmul(ins: Instr, box: Box) -> tuple[Tensor, ...]:
    """Return the operands of the part of a product that a mask leaves."""
    a, b = ins.srcs
    k = (0, a.shape[0])
    return a.narrow([k, box[0]]), b.narrow([k, *box[1:]])


@instruction("nc_matmul", public="nisa.nc_matmul", engines=(TENSOR,), run=_run_matmul,
             nki="nisa.nc_matmul(dst, stationary, moving, is_stationary_onezero=False, "
                 "is_moving_onezero=False, is_transpose=False, accumulate=None, "
                 "tile_position=(), tile_size=(), perf_mode=None)",
             operands=(Tile("stationary", memories=(SBUF,), dtypes="float", copied=True),
                       Tile("moving", memories=(SBUF,), dtypes="float", copied=True)),
             writes=(PSUM,), accumulates=True, narrow=_narrow_matmul, check=check_bank,
             cost=formulas.matmul,
             flops=formulas.matmul_flops, source="Neuron SDK 2.26 API reference: nisa.nc_matmul")
def nc_matmul(m: Machine, stationary: Any, moving: Any, *, is_stationary_onezero: bool = False,
              is_moving_onezero: bool = False, is_transpose: bool = False,
              tile_position: Any = (), tile_size: Any = (), mask: Any = None,
              perf_mode: Any = None) -> Instr:
    """Return stationary^T @ moving in PSUM (float32).

    stationary (K, M): K <= 128 partitions, M <= 128. moving (K, N...): N <= 512 elements per
    partition (trn3: 4096 for a float32 result, 8192 for a bfloat16 one); its free dims are kept in
    the result (M, N...). `psum += nc_matmul(...)` is one instruction that accumulates. K is summed
    over the partitions.
    """
    a, b = stationary, moving
    double = perf_mode is not None and "double" in str(perf_mode)
    if double and not m.hw.pe_double_row:
        raise fail("NKI-E03", "a double-row matmul is asked for",
                   given=f"perf_mode={perf_mode!r} on {m.hw.name}",
                   limit="NeuronCore-v3 (trn2) or newer",
                   hint="leave perf_mode out, or simulate for trn2")
    rows = 2 if double else 1
    for t, name, most, field in (
            (a, "stationary", m.hw.gemm_stationary_fmax, " (nl.tile_size.gemm_stationary_fmax)"),
            (b, "moving", m.hw.pe_moving_fmax, " (nl.tile_size.gemm_moving_fmax)"
             if m.hw.pe_moving_fmax == m.hw.gemm_moving_fmax else "")):
        limit = most * rows
        if per_partition(t) > limit:
            raise fail("NKI-P07", f"matmul operand {name} has too many elements per partition",
                       given=f"shape {t.shape}: {per_partition(t)}",
                       limit=f"{limit}{field}",
                       hint=f"loop over tiles of {limit} columns")
    if a.shape[0] != b.shape[0]:
        raise fail("NKI-S02", "the contraction dims of a matmul differ",
                   given=f"stationary {a.shape}, moving {b.shape}",
                   limit="both have the contraction dim K on partitions",
                   hint="nc_matmul(s, m) is s^T @ m: load or transpose so that K comes first")
    if (a.dtype in _WIDE) != (b.dtype in _WIDE):
        raise fail("NKI-D05", "a 32-bit matmul operand meets a narrower one",
                   given=f"stationary {dtypes.name(a.dtype)}, moving {dtypes.name(b.dtype)}",
                   limit="float32 goes with float32; 8- and 16-bit floats go with each other",
                   hint="cast one of them: nl.copy(x, dtype=nl.bfloat16)")
    if tile_position or tile_size:
        _check_tiling(m, a, tile_position, tile_size)
    shape = (a.shape[-1], b.shape[-1]) if double else (per_partition(a), *b.shape[1:])
    dtype = b.dtype if is_transpose and m.hw.pe_transpose_bit_exact else dtypes.FLOAT32
    return Instr(shape, dtype, form=Matmul(bool(is_stationary_onezero), bool(is_moving_onezero),
                                           bool(is_transpose), bool(tile_size), double))


def _check_tiling(m: Machine, a: Tensor, position: Any, size: Any) -> None:
    """Check the PE tile that a small matmul is put on."""
    if bool(position) != bool(size):
        raise fail("NKI-S08", "tile_position and tile_size go together",
                   given=f"tile_position={position}, tile_size={size}", limit="both or none")
    if not size:
        return
    ok = len(tuple(position)) == len(tuple(size)) == 2
    side = m.hw.quadrant
    ok = ok and all(v % side == 0 for v in (*position, *size))
    ok = ok and all(0 <= p and p + s <= m.hw.pmax and s > 0 for p, s in zip(position, size))
    ok = ok and size[0] >= a.shape[0] and size[1] >= per_partition(a)
    if not ok or (not m.hw.small_pe_tiles and tuple(size) == (side, side)):
        raise fail("NKI-S08", "this PE tile does not exist",
                   given=f"tile_position={position}, tile_size={size}, stationary {a.shape}",
                   limit=f"multiples of {side} inside 128 x 128, at least as large as the "
                         f"stationary tile; not ({side}, {side}) before NeuronCore-v3")


def _run_transpose(m: Machine, ins: Instr, dst: Tensor) -> None:
    x = ins.srcs[0].np
    dtypes.cast(x.reshape(x.shape[0], -1).T, dst.dtype, out=dst.np)


def _transpose(m: Machine, data: Tensor, limit: int, engine: str, dtype: Any) -> Instr:
    """Plan the transposition of a tile (P, F...) to (F, P)."""
    rows, columns = data.shape[0], per_partition(data)
    if rows > limit or columns > limit:
        raise fail("NKI-P07", f"nc_transpose of a tile that is too large for the {engine} engine",
                   given=f"shape {data.shape}: {rows} partitions x {columns} elements",
                   limit=f"{limit} x {limit}",
                   hint="transpose in tiles of 128 x 128" if engine == TENSOR else
                        "use engine=nisa.tensor_engine for tiles up to 128 x 128",
                   today="transpose in tiles of 128 x 128" if engine == TENSOR else
                         "make dst with buffer=nl.psum: then the Tensor Engine does it, up to "
                         "128 x 128; nisa.tensor_copy brings the result to SBUF")
    return Instr((columns, rows), data.dtype if dtype is None else dtypes.normalize(dtype),
                 grid=data.shape, kept=(1 if len(data.shape) == 2 else slice(1, None), 0))


def _narrow_transposed(ins: Instr, box: Box) -> tuple[Tensor, ...] | None:
    """Return the part of a tile that a mask leaves, if it is one of the transposed result."""
    (t,) = ins.srcs
    if len(t.shape) > 2 and not leading(box[1:], t.shape[1:]):
        return None                         # the free dims are flattened: no range of columns
    return (t.narrow(box),)


@instruction("nc_transpose", engines=(TENSOR,), operands=(Tile("data", memories=(SBUF,)),),
             run=_run_transpose, waits=always, writes=(PSUM,), narrow=_narrow_transposed,
             cost=formulas.transposition,
             flops=formulas.transposition_flops,
             source="Neuron SDK 2.26 API reference: nisa.nc_transpose")
def nc_transpose_pe(m: Machine, data: Any, *, mask: Any = None, dtype: Any = None) -> Instr:
    """Transpose an SBUF tile (P, F...) to (F, P) in PSUM; P and F up to 128, F flattened."""
    if m.direct:
        raise fail("NKI-A07", "a transpose on the Tensor Engine in a direct-allocated kernel",
                   limit="it needs an identity matrix that the compiler would have to place",
                   hint="multiply with an identity that you allocate and load yourself")
    return _transpose(m, data, m.hw.pmax, TENSOR, dtype)


@instruction("nc_transpose_dve", engines=(VECTOR,), operands=(Tile("data"),), run=_run_transpose,
             waits=always, narrow=_narrow_transposed, cost=formulas.small_transposition,
             source="Neuron SDK 2.26 API reference: nisa.nc_transpose")
def nc_transpose_dve(m: Machine, data: Any, *, mask: Any = None, dtype: Any = None) -> Instr:
    """Transpose a tile (P, F...) to (F, P) on the Vector Engine; P and F up to 32."""
    return _transpose(m, data, m.hw.quadrant, VECTOR, dtype)


def _run_broadcast(m: Machine, ins: Instr, dst: Tensor) -> None:
    dtypes.cast(np.broadcast_to(ins.srcs[0].np, dst.shape), dst.dtype, out=dst.np)


@instruction("partition_broadcast", engines=(TENSOR,), operands=(Tile("data", memories=(SBUF,)),),
             run=_run_broadcast, writes=(PSUM,), check=check_bank, cost=formulas.ones_product,
             source="Neuron SDK 2.26 API reference: nl.broadcast_to: a matmul with ones")
def partition_broadcast(m: Machine, data: Any, partitions: int) -> Instr:
    """Repeat a tile (1, N) over `partitions`, as a matmul with a row of ones; N <= 512."""
    return Instr((partitions, *data.shape[1:]), data.dtype, form=Matmul())
