"""Tensor Engine: matrix multiplication and transposition."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..chip import dtypes
from ..chip.memory import FULLY, PSUM, SBUF
from ..errors import NkiError, fail
from ..lazy.float32_copies import as_f32
from ..machine.instruction import Instr
from ..machine.interface import Machine
from ..machine.tensor import Tensor
from . import formulas, sums
from .cheaper import ONES, PRODUCT, TRANSPOSITION
from .masks import Box, leading
from .operands import Tile, per_partition
from .table import TENSOR, VECTOR, always, instruction
from .variants import Matmul

_WIDE = (dtypes.FLOAT32, dtypes.TFLOAT32)


def _run_matmul(m: Machine, ins: Instr, dst: Tensor) -> None:
    """Compute stationary^T @ moving in float32, added to `dst` if the flag is set."""
    moves_only = _moves_only(m, ins)
    adds = (
        (ins.accumulate or ins.opens and dst.dtype == dtypes.FLOAT32)
        and ins.mask is None
        and not dst.storage.arena
    )
    a, b = as_f32(ins.srcs[0]), as_f32(ins.srcs[1])
    if moves_only:
        _check_permutation(m, ins, b)
    if ins.variant.double_row:  # (K, 2, M) and (K, 2, N): contraction over K and 2
        a, b = a.reshape(-1, a.shape[-1]), b.reshape(-1, b.shape[-1])
    if adds:
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
        return  # a tile of its own
    lo = dst.offset % dst.storage.row_bytes  # type: ignore[union-attr]
    end = dst.dtype.itemsize + sum((n - 1) * s for n, s in zip(dst.shape[1:], dst.strides[1:]))
    if lo // bank != (lo + end - 1) // bank:
        raise fail(
            "NKI-M06",
            "the result of a matmul lies in two PSUM banks"
            if bank == m.hw.psum_bank_bytes
            else "the result of a matmul is too large",
            given=f"bytes {lo} .. {lo + end - 1} of each partition",
            limit=(f"one bank of {bank} bytes" if bank == m.hw.psum_bank_bytes else f"{bank} bytes")
            + f": {bank // 4} float32 results",
            hint="give each matmul its own bank: nl.zeros((n, nl.par_dim(128), 512), "
            "buffer=nl.psum), or use at most 512 columns",
            nki_hint="a tile in nl.psum for each matmul, of at most 512 float32 columns",
        )


def check_product(m: Machine, ins: Instr, dst: Tensor) -> None:
    """The result lies in one PSUM bank; in transpose mode it is moved there, so not added."""
    check_bank(m, ins, dst)
    if ins.accumulate and _moves_only(m, ins):
        raise added_in_transpose_mode(m, dst)
    variant = ins.variant
    if (variant.stationary_onezero or variant.moving_onezero) and m.compute and m.settings.checks:
        _check_promises(m, ins)


def added_in_transpose_mode(m: Machine, dst: Tensor) -> NkiError:
    """Return the error for a product that transposes, and is to be added to what PSUM holds."""
    return fail(
        "NKI-E15",
        "a matmul in transpose mode accumulates",
        given=f"nc_matmul(..., is_transpose=True), added to {dst!r}",
        limit=f"on {m.hw.name} the mode passes elements on as they are, and adds none",
        hint="leave is_transpose out, or assign the result: psum[...] = nc_matmul(...)",
        nki_hint="leave is_transpose out, or accumulate=",
    )


def _moves_only(m: Machine, ins: Instr) -> bool:
    """Return whether a product is one in transpose mode, where the hardware has that."""
    return ins.variant.transposes and m.hw.pe_transpose_bit_exact


def _check_permutation(m: Machine, ins: Instr, moving: np.ndarray) -> None:
    """Report a product in transpose mode whose moving operand is not (a part of) a permutation."""
    b = moving.reshape(moving.shape[0], -1)
    one = b == 1
    if (one | (b == 0)).all() and one.sum(0).max() <= 1 and one.sum(1).max() <= 1:
        return
    m.find(
        "NKI-E15",
        "error",
        "nc_matmul(..., is_transpose=True), but the moving operand is not "
        f"an identity: on {m.hw.name} the mode only passes on what the stationary operand "
        "holds, and does not multiply. Leave is_transpose out",
        ins.line,
    )


def _check_promises(m: Machine, ins: Instr) -> None:
    """Hold promises of zeros and ones against the values of the operands."""
    variant = ins.variant
    m.catch_up()
    for t, promised, name in (
        (ins.srcs[0], variant.stationary_onezero, "stationary"),
        (ins.srcs[1], variant.moving_onezero, "moving"),
    ):
        if promised and t.storage.init == FULLY and (other := t.np[(t.np != 0) & (t.np != 1)]).size:
            m.find(
                "NKI-D09",
                "error",
                f"is_{name}_onezero=True promises that {name} holds "
                f"zeros and ones only; {other.size:,} of {t.size:,} elements are neither "
                f"(e.g. {float(other[0]):g}): the product is undefined on the chip",
                ins.line,
            )


def _narrow_matmul(ins: Instr, box: Box) -> tuple[Tensor, ...]:
    """Return the operands of the part of a product that a mask leaves."""
    a, b = ins.srcs
    k = (0, a.shape[0])
    return a.narrow([k, box[0]]), b.narrow([k, *box[1:]])


@instruction(
    "nc_matmul",
    public="nisa.nc_matmul",
    engines=(TENSOR,),
    run=_run_matmul,
    nki="nisa.nc_matmul(dst, stationary, moving, is_stationary_onezero=False, "
    "is_moving_onezero=False, is_transpose=False, accumulate=None, "
    "tile_position=(), tile_size=(), perf_mode=None)",
    operands=(
        Tile("stationary", memories=(SBUF,), dtypes="float", copied=True),
        Tile("moving", memories=(SBUF,), dtypes="float", copied=True),
    ),
    writes=(PSUM,),
    accumulates=True,
    narrow=_narrow_matmul,
    check=check_product,
    cost=formulas.matmul,
    cheaper=PRODUCT,
    flops=formulas.matmul_flops,
    sums=sums.PRODUCT,
    source="Neuron SDK 2.26 API reference: nisa.nc_matmul",
)
def nc_matmul(
    m: Machine,
    stationary: Any,
    moving: Any,
    *,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    tile_position: Any = (),
    tile_size: Any = (),
    mask: Any = None,
    perf_mode: Any = None,
) -> Instr:
    """Return stationary^T @ moving in PSUM (float32).

    stationary (K, M): K <= 128 partitions, M <= 128. moving (K, N...): N <= 512 elements per
    partition (trn3: 4096 for a float32 result, 8192 for a bfloat16 one); its free dims are kept in
    the result (M, N...). `psum += nc_matmul(...)` is one instruction that accumulates. K is summed
    over the partitions.
    """
    a, b = stationary, moving
    double = _is_double_row(m, a, b, perf_mode, bool(is_transpose), tile_size)
    rows = 2 if double else 1
    for t, name, most, field in (
        (a, "stationary", m.hw.gemm_stationary_fmax, " (nl.tile_size.gemm_stationary_fmax)"),
        (
            b,
            "moving",
            m.hw.pe_moving_fmax,
            " (nl.tile_size.gemm_moving_fmax)"
            if m.hw.pe_moving_fmax == m.hw.gemm_moving_fmax
            else "",
        ),
    ):
        limit = most * rows
        if per_partition(t) > limit:
            raise fail(
                "NKI-P07",
                f"matmul operand {name} has too many elements per partition",
                given=f"shape {t.shape}: {per_partition(t)}",
                limit=f"{limit}{field}",
                hint=f"loop over tiles of {limit} columns{_exchanged(a, b, name, limit)}",
            )
    if a.shape[0] != b.shape[0]:
        raise fail(
            "NKI-S02",
            "the contraction dims of a matmul differ",
            given=f"stationary {a.shape}, moving {b.shape}",
            limit="both have the contraction dim K on partitions",
            hint="nc_matmul(s, m) is s^T @ m: load or transpose so that K comes first",
            nki_hint="nc_matmul(s, m) is s^T @ m: slice or transpose so that both begin with "
            f"the same K: {min(a.shape[0], b.shape[0])}",
        )
    if (a.dtype in _WIDE) != (b.dtype in _WIDE):
        raise fail(
            "NKI-D05",
            "a 32-bit matmul operand meets a narrower one",
            given=f"stationary {dtypes.name(a.dtype)}, moving {dtypes.name(b.dtype)}",
            limit="float32 goes with float32; 8- and 16-bit floats go with each other",
            hint="cast one of them: nl.copy(x, dtype=nl.bfloat16)",
            nki_hint="cast one of them: nisa.tensor_copy into a tile of the other dtype",
        )
    if tile_position or tile_size:
        _check_tiling(m, a, tile_position, tile_size)
    shape = (a.shape[-1], b.shape[-1]) if double else (per_partition(a), *b.shape[1:])
    dtype = b.dtype if is_transpose and m.hw.pe_transpose_bit_exact else dtypes.FLOAT32
    return Instr(
        shape,
        dtype,
        variant=Matmul(
            bool(is_stationary_onezero),
            bool(is_moving_onezero),
            bool(is_transpose),
            bool(tile_size),
            double,
        ),
    )


def _exchanged(a: Tensor, b: Tensor, name: str, limit: int) -> str:
    """Return a question for operands that would fit the other way round, or ""."""
    if name == "moving" or per_partition(b) > limit or a.shape[0] != b.shape[0]:
        return ""
    return f"; or are the two exchanged? As stationary, moving {b.shape} would fit"


#: values of perf_mode for which AWS documents a rate: no other one, and two rows of fp8 a cycle
_PLAIN, _DOUBLE_ROW = ("none",), ("double_row", "double_row_gen3")
_FP8 = (dtypes.FLOAT8_E4M3, dtypes.FLOAT8_E5M2)


def _is_double_row(
    m: Machine, a: Tensor, b: Tensor, perf_mode: Any, transposes: bool, tile_size: Any
) -> bool:
    """Return whether a product is a double-row one, after holding it to the rules of that mode."""
    mode = getattr(perf_mode, "value", perf_mode)
    if mode is None or mode in _PLAIN:
        return False
    if mode not in _DOUBLE_ROW:
        raise fail(
            "NKI-E14",
            "the Tensor Engine has no such performance mode",
            given=f"perf_mode={mode!r}",
            limit=", ".join((*_PLAIN, *_DOUBLE_ROW)),
            hint="leave perf_mode out",
        )
    if not m.hw.pe_double_row:
        raise fail(
            "NKI-E03",
            "a double-row matmul is asked for",
            given=f"perf_mode={mode!r} on {m.hw.name}",
            limit="NeuronCore-v3 (trn2) or newer",
            hint="leave perf_mode out, or simulate for trn2",
        )
    fp8 = (*_FP8, dtypes.FLOAT8_E4M3FN) if m.hw.gen4_instructions else _FP8
    for t, name in ((a, "stationary"), (b, "moving")):
        if t.dtype not in fp8:
            raise fail(
                "NKI-E14",
                "a double-row matmul takes 8-bit floats",
                given=f"{name} of {dtypes.name(t.dtype)}",
                limit=", ".join(map(dtypes.name, fp8)),
                hint="leave perf_mode out; or load both operands as nl.float8_e4m3 or "
                "nl.float8_e5m2, if their precision will do",
            )
        if len(t.shape) != 3 or t.shape[1] != 2:
            raise fail(
                "NKI-E14",
                "an operand of a double-row matmul has another layout",
                given=f"{name} {t.shape}",
                limit="(K, 2, columns): the contraction is over the partitions and the "
                "dim of two next to them",
                hint="put rows k and k + K of the matrix side by side: "
                "nl.ndarray((128, 2, n), ...)",
            )
    if transposes or tile_size and tuple(tile_size)[-1] != m.hw.pmax:
        raise fail(
            "NKI-E14",
            "a double-row matmul is combined with another mode",
            given="is_transpose=True" if transposes else f"tile_size={tuple(tile_size)}",
            limit="no transpose mode, and all 128 columns of the array",
            hint="leave one of the two out",
        )
    return True


def _check_tiling(m: Machine, a: Tensor, position: Any, size: Any) -> None:
    """Check the PE tile that a small matmul is put on."""
    if bool(position) != bool(size):
        raise fail(
            "NKI-S08",
            "tile_position and tile_size go together",
            given=f"tile_position={position}, tile_size={size}",
            limit="both or none",
        )
    if not size:
        return
    ok = len(tuple(position)) == len(tuple(size)) == 2
    side = m.hw.quadrant
    ok = ok and all(v % side == 0 for v in (*position, *size))
    ok = ok and all(0 <= p and p + s <= m.hw.pmax and s > 0 for p, s in zip(position, size))
    ok = ok and size[0] >= a.shape[0] and size[1] >= per_partition(a)
    if not ok or (not m.hw.small_pe_tiles and tuple(size) == (side, side)):
        raise fail(
            "NKI-S08",
            "this PE tile does not exist",
            given=f"tile_position={position}, tile_size={size}, stationary {a.shape}",
            limit=f"multiples of {side} inside 128 x 128, at least as large as the "
            f"stationary tile; not ({side}, {side}) before NeuronCore-v3",
        )


def _run_transpose(m: Machine, ins: Instr, dst: Tensor) -> None:
    data = ins.srcs[0].np
    dtypes.cast(data.reshape(data.shape[0], -1).T, dst.dtype, out=dst.np)


def _transpose(m: Machine, data: Tensor, limit: int, engine: str, dtype: Any) -> Instr:
    """Plan the transposition of a tile (P, F...) to (F, P)."""
    rows, columns = data.shape[0], per_partition(data)
    if rows > limit or columns > limit:
        raise fail(
            "NKI-P07",
            f"nc_transpose of a tile that is too large for the {engine} engine",
            given=f"shape {data.shape}: {rows} partitions x {columns} elements",
            limit=f"{limit} x {limit}",
            hint="transpose in tiles of 128 x 128"
            if engine == TENSOR
            else "use engine=nisa.tensor_engine for tiles up to 128 x 128",
            nki_hint="transpose in tiles of 128 x 128"
            if engine == TENSOR
            else "make dst with buffer=nl.psum: then the Tensor Engine does it, up to "
            "128 x 128; nisa.tensor_copy brings the result to SBUF",
        )
    return Instr(
        (columns, rows),
        data.dtype if dtype is None else dtypes.normalize(dtype),
        grid=data.shape,
        kept=(1 if len(data.shape) == 2 else slice(1, None), 0),
    )


def _narrow_transposed(ins: Instr, box: Box) -> tuple[Tensor, ...] | None:
    """Return the part of a tile that a mask leaves, if it is one of the transposed result."""
    (t,) = ins.srcs
    if len(t.shape) > 2 and not leading(box[1:], t.shape[1:]):
        return None  # the free dims are flattened: no range of columns
    return (t.narrow(box),)


@instruction(
    "nc_transpose",
    engines=(TENSOR,),
    operands=(Tile("data", memories=(SBUF,)),),
    run=_run_transpose,
    deferrable=always,
    writes=(PSUM,),
    narrow=_narrow_transposed,
    cost=formulas.transposition,
    cheaper=TRANSPOSITION,
    flops=formulas.transposition_flops,
    source="Neuron SDK 2.26 API reference: nisa.nc_transpose",
)
def nc_transpose_pe(m: Machine, data: Any, *, mask: Any = None, dtype: Any = None) -> Instr:
    """Transpose an SBUF tile (P, F...) to (F, P) in PSUM; P and F up to 128, F flattened."""
    if m.memory.direct:
        raise fail(
            "NKI-A07",
            "a transpose on the Tensor Engine in a direct-allocated kernel",
            limit="it needs an identity matrix that the compiler would have to place",
            hint="multiply with an identity that you allocate and load yourself",
        )
    return _transpose(m, data, m.hw.pmax, TENSOR, dtype)


@instruction(
    "nc_transpose_dve",
    engines=(VECTOR,),
    operands=(Tile("data"),),
    run=_run_transpose,
    deferrable=always,
    narrow=_narrow_transposed,
    cost=formulas.small_transposition,
    source="Neuron SDK 2.26 API reference: nisa.nc_transpose",
)
def nc_transpose_dve(m: Machine, data: Any, *, mask: Any = None, dtype: Any = None) -> Instr:
    """Transpose a tile (P, F...) to (F, P) on the Vector Engine; P and F up to 32."""
    return _transpose(m, data, m.hw.quadrant, VECTOR, dtype)


def _run_broadcast(m: Machine, ins: Instr, dst: Tensor) -> None:
    dtypes.cast(np.broadcast_to(ins.srcs[0].np, dst.shape), dst.dtype, out=dst.np)


@instruction(
    "partition_broadcast",
    engines=(TENSOR,),
    operands=(Tile("data", memories=(SBUF,)),),
    run=_run_broadcast,
    writes=(PSUM,),
    check=check_bank,
    cost=formulas.ones_product,
    cheaper=ONES,
    broadcasts_partitions=True,
    source="Neuron SDK 2.26 API reference: nl.broadcast_to: a matmul with ones",
)
def partition_broadcast(m: Machine, data: Any, partitions: int) -> Instr:
    """Repeat a tile (1, N) over `partitions`, as a matmul with a row of ones; N <= 512."""
    return Instr((partitions, *data.shape[1:]), data.dtype, variant=Matmul())
