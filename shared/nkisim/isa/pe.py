"""Tensor Engine: matrix multiplication and transposition (nki-spec 2.4, 3.2)."""
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
from .table import TENSOR, VECTOR, instruction


def _free(t: Tensor) -> int:
    """Return the number of elements per partition."""
    return t.size // t.shape[0]


def _operand(m: Machine, x: Any, name: str, limit: int) -> Tensor:
    """Return a matmul operand: an SBUF tile of a float dtype with a limited free size."""
    t = m.tile(x, name)
    if t.kind is not SBUF:          # AWS's flash attention does this: the compiler copies
        m.find("NKI-M09", "note", f"matmul operand {name} lies in PSUM, and the Tensor Engine "
               "reads SBUF: a copy is inserted. Writing it yourself, t = nl.copy(psum_tile), lets "
               "you choose where and when", m.here())
        t = m.op("copy", t).settle()
    if not dtypes.is_float(t.dtype):
        raise fail("NKI-D05", f"matmul operand {name} is not of a float dtype",
                   given=dtypes.name(t.dtype),
                   limit="float32, tfloat32, bfloat16, float16, float8_e4m3, float8_e5m2",
                   hint="cast it on load: nl.load(x, dtype=nl.bfloat16)")
    if _free(t) > limit:
        what = "gemm_stationary_fmax" if name == "stationary" else "gemm_moving_fmax"
        raise fail("NKI-P07", f"matmul operand {name} has too many elements per partition",
                   given=f"shape {t.shape}: {_free(t)}", limit=f"{limit} (nl.tile_size.{what})",
                   hint=f"loop over tiles of {limit} columns")
    return t


def _run_matmul(m: Machine, ins: Instr, dst: Tensor) -> None:
    """Compute stationary^T @ moving in float32, added to `dst` if the flag is set."""
    a, b = as_f32(ins.srcs[0]), as_f32(ins.srcs[1])
    if ins.params == "double_row":          # (K, 2, M) and (K, 2, N): contraction over K and 2
        a, b = a.reshape(-1, a.shape[-1]), b.reshape(-1, b.shape[-1])
    if ins.accumulate and ins.mask is None and not dst.storage.arena:   # type: ignore[union-attr]
        m.products.add(a, b, ins.srcs, dst)
        return
    a, b, out = a.reshape(a.shape[0], -1), b.reshape(b.shape[0], -1), dst.np
    if ins.accumulate:
        out += np.matmul(a.T, b).reshape(out.shape)
    elif out.ndim == 2 and out.dtype == np.float32 and out.strides[1] == 4:
        np.matmul(a.T, b, out=out)
    else:
        dtypes.cast(np.matmul(a.T, b).reshape(out.shape), dst.dtype, out=out)


def _check_bank(m: Machine, ins: Instr, dst: Tensor) -> None:
    """The result of one matmul lies in one PSUM bank."""
    bank = m.hw.psum_bank_bytes
    if dst.storage.row_bytes <= bank and not dst.storage.arena:
        return                                              # a tile of its own
    lo = dst.offset % dst.storage.row_bytes                 # type: ignore[union-attr]
    end = dst.dtype.itemsize + sum((n - 1) * s for n, s in zip(dst.shape[1:], dst.strides[1:]))
    if lo // bank != (lo + end - 1) // bank:
        raise fail("NKI-M06", "the result of a matmul lies in two PSUM banks",
                   given=f"bytes {lo} .. {lo + end - 1} of each partition",
                   limit=f"one bank of {bank} bytes: {bank // 4} float32 results",
                   hint="give each matmul its own bank: nl.zeros((n, nl.par_dim(128), 512), "
                        "buffer=nl.psum), or use at most 512 columns")


@instruction("nc_matmul", engines=(TENSOR,), run=_run_matmul, writes=(PSUM,), check=_check_bank,
             accumulates=True, cost=formulas.matmul, flops=formulas.matmul_flops,
             source="Neuron SDK 2.26 API reference: nisa.nc_matmul")
def nc_matmul(m: Machine, stationary: Any, moving: Any, *, is_stationary_onezero: bool = False,
              is_moving_onezero: bool = False, is_transpose: bool = False,
              tile_position: Any = (), tile_size: Any = (), mask: Any = None,
              perf_mode: Any = None) -> Instr:
    """Return stationary^T @ moving in PSUM (float32).

    stationary (K, M): K <= 128 partitions, M <= 128. moving (K, N...): N <= 512 elements per
    partition; its free dims are kept in the result (M, N...). `psum += nc_matmul(...)` is one
    instruction that accumulates. K is summed over the partitions.
    """
    form = None
    if stationary.__class__ is moving.__class__ is Tensor and mask is None and not tile_size:
        # operands that look like others that were accepted: only what moves is checked again
        form = (stationary.shape, moving.shape, stationary.dtype.num, moving.dtype.num,
                stationary.kind, moving.kind, is_stationary_onezero, is_moving_onezero,
                is_transpose, perf_mode)
        known = m.matmuls.get(form)
        if known is not None:
            a, b = m.tile(stationary, "stationary"), m.tile(moving, "moving")
            shape, dtype, params, extra = known
            return Instr((a, b), shape, dtype, kind=PSUM, params=params, extra=extra)
    double = perf_mode is not None and "double" in str(perf_mode)
    if double and not m.hw.pe_double_row:
        raise fail("NKI-E03", "a double-row matmul is asked for",
                   given=f"perf_mode={perf_mode!r} on {m.hw.name}",
                   limit="NeuronCore-v3 (trn2) or newer",
                   hint="leave perf_mode out, or simulate for trn2")
    rows = 2 if double else 1
    a = _operand(m, stationary, "stationary", m.hw.gemm_stationary_fmax * rows)
    b = _operand(m, moving, "moving", m.hw.gemm_moving_fmax * rows)
    if a.shape[0] != b.shape[0]:
        raise fail("NKI-S02", "the contraction dims of a matmul differ",
                   given=f"stationary {a.shape}, moving {b.shape}",
                   limit="both have the contraction dim K on partitions",
                   hint="nc_matmul(s, m) is s^T @ m: load or transpose so that K comes first")
    wide = (dtypes.FLOAT32, dtypes.TFLOAT32)
    if (a.dtype in wide) != (b.dtype in wide):
        raise fail("NKI-D05", "a 32-bit matmul operand meets a narrower one",
                   given=f"stationary {dtypes.name(a.dtype)}, moving {dtypes.name(b.dtype)}",
                   limit="float32 goes with float32; 8- and 16-bit floats go with each other",
                   hint="cast one of them: nl.copy(x, dtype=nl.bfloat16)")
    _check_tiling(m, a, tile_position, tile_size)
    shape = (a.shape[-1], b.shape[-1]) if double else (_free(a), *b.shape[1:])
    dtype = b.dtype if is_transpose and m.hw.pe_transpose_bit_exact else dtypes.FLOAT32
    ins = Instr((a, b), shape, dtype, kind=PSUM, params="double_row" if double else None,
                extra=(bool(is_stationary_onezero), bool(is_moving_onezero), bool(is_transpose),
                       bool(tile_size), double))
    if form is not None and a is stationary and b is moving and not tile_position:
        m.matmuls[form] = (ins.shape, ins.dtype, ins.params, ins.extra)
    if mask is not None and mask is not True:
        m.mask(ins, mask, shape, keep=tuple(range(len(shape))))
        if ins.box is not None:
            full = [(0, a.shape[0])]
            ins.srcs = (a.narrow([*full, ins.box[0]]), b.narrow([*full, *ins.box[1:]]))
    return ins


def _check_tiling(m: Machine, a: Tensor, position: Any, size: Any) -> None:
    """Check the PE tile that a small matmul is put on."""
    if bool(position) != bool(size):
        raise fail("NKI-S08", "tile_position and tile_size go together",
                   given=f"tile_position={position}, tile_size={size}", limit="both or none")
    if not size:
        return
    ok = len(tuple(position)) == len(tuple(size)) == 2
    ok = ok and all(v % 32 == 0 for v in (*position, *size))
    ok = ok and all(0 <= p and p + s <= m.hw.pmax and s > 0 for p, s in zip(position, size))
    ok = ok and size[0] >= a.shape[0] and size[1] >= _free(a)
    if not ok or (not m.hw.small_pe_tiles and tuple(size) == (32, 32)):
        raise fail("NKI-S08", "this PE tile does not exist",
                   given=f"tile_position={position}, tile_size={size}, stationary {a.shape}",
                   limit="multiples of 32 inside 128 x 128, at least as large as the stationary "
                         "tile; not (32, 32) before NeuronCore-v3")


def _run_transpose(m: Machine, ins: Instr, dst: Tensor) -> None:
    x = ins.srcs[0].np
    dtypes.cast(x.reshape(x.shape[0], -1).T, dst.dtype, out=dst.np)


def _transpose(m: Machine, data: Any, mask: Any, dtype: Any, limit: int, kind: str,
               engine: str) -> Instr:
    t = m.tile(data, "data")
    if engine == TENSOR and t.kind is not SBUF:
        raise fail("NKI-M01", "nc_transpose on the Tensor Engine reads PSUM", given=f"{t!r}",
                   limit="the Tensor Engine reads SBUF and writes PSUM",
                   hint="copy the tile to SBUF first: nl.copy(t)")
    if t.shape[0] > limit or _free(t) > limit:
        raise fail("NKI-P07", f"nc_transpose of a tile that is too large for the {engine} engine",
                   given=f"shape {t.shape}: {t.shape[0]} partitions x {_free(t)} elements",
                   limit=f"{limit} x {limit}",
                   hint="transpose in tiles of 128 x 128" if engine == TENSOR else
                        "use engine=nisa.tensor_engine for tiles up to 128 x 128")
    if engine == TENSOR and m.direct:
        raise fail("NKI-A07", "a transpose on the Tensor Engine in a direct-allocated kernel",
                   limit="it needs an identity matrix that the compiler would have to place",
                   hint="multiply with an identity that you allocate and load yourself")
    dt = t.dtype if dtype is None else dtypes.normalize(dtype)
    ins = Instr((t,), (_free(t), t.shape[0]), dt, kind=kind, engine=engine)
    if mask is not None and mask is not True:
        m.mask(ins, mask, t.shape, keep=(1, 0) if len(t.shape) == 2 else None)
    return ins


@instruction("nc_transpose", engines=(TENSOR,), run=_run_transpose, writes=(PSUM,),
             cost=formulas.transposition, flops=formulas.transposition_flops,
             source="Neuron SDK 2.26 API reference: nisa.nc_transpose")
def nc_transpose_pe(m: Machine, data: Any, *, mask: Any = None, dtype: Any = None) -> Instr:
    """Transpose an SBUF tile (P, F...) to (F, P) in PSUM; P and F up to 128, F flattened."""
    return _transpose(m, data, mask, dtype, m.hw.pmax, PSUM, TENSOR)


@instruction("nc_transpose_dve", engines=(VECTOR,), run=_run_transpose, writes=(SBUF, PSUM),
             cost=formulas.small_transposition,
             source="Neuron SDK 2.26 API reference: nisa.nc_transpose")
def nc_transpose_dve(m: Machine, data: Any, *, mask: Any = None, dtype: Any = None) -> Instr:
    """Transpose a tile (P, F...) to (F, P) on the Vector Engine; P and F up to 32."""
    return _transpose(m, data, mask, dtype, 32, SBUF, VECTOR)


def _run_broadcast(m: Machine, ins: Instr, dst: Tensor) -> None:
    dtypes.cast(np.broadcast_to(ins.srcs[0].np, dst.shape), dst.dtype, out=dst.np)


@instruction("partition_broadcast", engines=(TENSOR,), run=_run_broadcast, writes=(PSUM,),
             check=_check_bank, cost=formulas.ones_product,
             source="Neuron SDK 2.26 API reference: nl.broadcast_to: a matmul with ones")
def partition_broadcast(m: Machine, data: Any, partitions: int) -> Instr:
    """Repeat a tile (1, N) over `partitions`, as a matmul with a row of ones; N <= 512."""
    t = m.tile(data, "data", psum=False)
    return Instr((t,), (partitions, *t.shape[1:]), t.dtype, kind=PSUM,
                 extra=(False, False, False, False, False))
