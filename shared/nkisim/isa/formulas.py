"""How long an instruction keeps its engine busy, in cycles, and how much arithmetic it is.

Each row of the instruction table names a formula of this file. A formula sees the dtypes, shapes
and strides of the operands (a `Kind`), never a name, and returns the engine's busy time: cycles
that it cannot spend on the next instruction. The formulas are those that AWS published for
NeuronCore-v2 (SDK 2.26, nki.isa), with what traces of NeuronCore-v3 show to be different. What
differs between generations, and every figure, is a field of `hw`.
The time until the result can be used, and DMAs, are the business of `timing/cost.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ..chip import dtypes
from ..chip.hw import NeuronCore
from ..chip.memory import PSUM, SBUF
from .variants import Ops

if TYPE_CHECKING:
    from ..trace.trace import OpSpec, Pattern

PACK = 4  # values in an element of an x4 dtype
_FLOAT16 = (dtypes.BFLOAT16, dtypes.FLOAT16)
_WIDE = (dtypes.FLOAT32, dtypes.TFLOAT32)

#: (spec, hw, engine) -> engine cycles
Formula = Callable[["OpSpec", NeuronCore, str], float]


class Flops(NamedTuple):
    """The floating-point operations of one instruction; a multiply-add is two.

    `model`: they are arithmetic of the kernel's algorithm, so count in its MFU. A transpose on
    the Tensor Engine is a matmul with the identity: work of the engine, but not the model's.
    """

    ops: int
    model: bool


# -- operands --------------------------------------------------------------------------------------


def free(p: Pattern) -> int:
    """Return the elements per partition of an operand on chip."""
    return p.elements // p.shape[0]


def _out(spec: OpSpec) -> int:
    return free(spec.operands[0])


def _in(spec: OpSpec) -> int:
    srcs = spec.operands[spec.outputs :]
    return max((free(p) for p in srcs), default=_out(spec))


def _contiguous(p: Pattern) -> bool:
    """Return whether the free dims of an operand are contiguous."""
    step = p.dtype.itemsize
    for n, s in zip(reversed(p.shape[1:]), reversed(p.strides[1:])):
        if n != 1 and s != step:
            return False
        step *= n
    return True


def _is16(p: Pattern) -> bool:
    return p.dtype in _FLOAT16


def _is_wide(p: Pattern) -> bool:
    """Return whether elements take the passes of float32, whatever they hold."""
    return p.dtype.itemsize >= dtypes.FLOAT32.itemsize


def _at_least(hw: NeuronCore, cycles: float) -> float:
    """Return the cycles of the Tensor Engine, or the shortest initiation interval if longer.

    (On the other engines that is a floor of the whole instruction: timing/cost.py.)
    """
    return max(hw.timing.min_interval_cycles, cycles)


# -- Vector, Scalar and GpSimd Engines -------------------------------------------------------------


def stream(spec: OpSpec, hw: NeuronCore, engine: str) -> float:
    """One element per cycle and partition."""
    return max(_in(spec), _out(spec))


def fast_copy(spec: OpSpec, hw: NeuronCore, engine: str) -> float:
    """One element per cycle; engines with fast modes move 16-bit data several times as fast."""
    n: float = max(_in(spec), _out(spec))
    tiles = [p for p in spec.operands if free(p) > 1 or n == 1]
    if all(_is16(p) for p in tiles):
        fast = hw.dve_fast_modes
        if engine == "vector" and fast is not None:
            banks, ordered = sum(p.memory is PSUM for p in tiles), all(map(_contiguous, tiles))
            if not banks or banks == 1 and ordered:
                n /= fast.strided if banks or not ordered else fast.copy
        elif engine == "scalar":
            n /= hw.timing.act_copy_rate16
    elif engine == "vector" and all(
        p.memory is SBUF and p.dtype.itemsize == 4 and _contiguous(p) for p in tiles
    ):
        n *= hw.timing.dve_wide_scalar_cycles
    return n


def dynamic_copy(spec: OpSpec, hw: NeuronCore, engine: str) -> float:
    """A copy whose start is data: N, at least 600, where the other operand is the whole tensor."""
    n = min(_out(spec), free(spec.operands[spec.outputs]))
    return max(hw.timing.dynamic_copy_cycles, n)


def two_inputs(spec: OpSpec, hw: NeuronCore, engine: str) -> float:
    """tensor_tensor: two reads of SBUF halve the rate of v2, unless both are bfloat16."""
    n = max(_in(spec), _out(spec))
    srcs = spec.operands[spec.outputs :]
    if sum(p.memory is SBUF for p in srcs) < 2:
        return n
    fast = hw.dve_fast_modes
    if (
        engine == "vector"
        and fast is not None
        and all(_is16(p) and _contiguous(p) for p in spec.operands)
    ):
        return n / fast.two_inputs
    if all(p.dtype == dtypes.BFLOAT16 and _contiguous(p) for p in srcs) and spec.variant.first in (
        "add",
        "subtract",
        "multiply",
    ):
        return n
    return hw.timing.dve_two_input_cycles * n


def scalar_two_inputs(spec: OpSpec, hw: NeuronCore, engine: str) -> float:
    """scalar_tensor_tensor: two reads halve the rate of v2 but for bfloat16 subtract, multiply."""
    n = _out(spec)
    if (
        spec.variant == Ops("subtract", "multiply")
        and n % 2 == 0
        and all(p.dtype == dtypes.BFLOAT16 for p in spec.operands[spec.outputs :] if free(p) > 1)
    ):
        return n
    return hw.timing.dve_two_input_cycles * n


def predicated(spec: OpSpec, hw: NeuronCore, engine: str) -> float:
    """tensor_copy_predicated: the predicate is a second input."""
    return hw.timing.dve_two_input_cycles * _out(spec)


def scan(spec: OpSpec, hw: NeuronCore, engine: str) -> float:
    """tensor_tensor_scan: each element waits for the one before."""
    return hw.timing.dve_scan_cycles * _out(spec)


def reduction(spec: OpSpec, hw: NeuronCore, engine: str) -> float:
    """tensor_reduce: N of the input; half of it for sums and maxima of bfloat16."""
    n: float = _in(spec)
    both = all(p.dtype == dtypes.BFLOAT16 for p in spec.operands)
    if engine == "vector" and both and spec.variant.op in ("add", "maximum"):
        n /= hw.timing.dve_reduce_rate16
    return n


def with_read_out(spec: OpSpec, hw: NeuronCore, engine: str) -> float:
    """A stream and the read-out of an accumulator register if a reduction is written."""
    read = hw.timing.accumulator_read_cycles if spec.outputs > 1 else 0.0
    return stream(spec, hw, engine) + read


def fill(spec: OpSpec, hw: NeuronCore, engine: str) -> float:
    """memset: zeros in 16 bits go twice as fast."""
    n: float = _out(spec)
    if engine == "vector" and _is16(spec.operands[0]) and spec.variant.zero:
        n /= hw.timing.dve_zero_rate16
    return n


def four_a_cycle(spec: OpSpec, hw: NeuronCore, engine: str) -> float:
    """Several elements a cycle and partition: exponential, rand2 and quantize_mx of v4."""
    n = max(_in(spec), _out(spec))
    return n / hw.timing.dve_newer_rate


def top_k(spec: OpSpec, hw: NeuronCore, engine: str) -> float:
    """topk: 4 n + K."""
    each = hw.timing.pool_topk_cycles * int(spec.variant.second)
    return hw.timing.pool_start_cycles + each + _out(spec)


def iterative(spec: OpSpec, hw: NeuronCore, engine: str) -> float:
    """reciprocal on the Vector Engine: several cycles an element."""
    return hw.timing.dve_reciprocal_cycles * _out(spec)


def statistics(spec: OpSpec, hw: NeuronCore, engine: str) -> float:
    """bn_aggr: a fixed number of cycles for every triple (count, mean, variance)."""
    return hw.timing.dve_triple_cycles * _in(spec) / 3


def gpsimd(spec: OpSpec, hw: NeuronCore, engine: str) -> float:
    """A GpSimd program: a start-up and one element per cycle."""
    return hw.timing.pool_start_cycles + max(_in(spec), _out(spec))


def across_partitions(spec: OpSpec, hw: NeuronCore, engine: str) -> float:
    """Reduction over partitions on GpSimd: its cores pass on every partition of theirs.

    AWS says "slow" and gives no formula: that each core streams its partitions one after the
    other is assumed.
    """
    passes = spec.operands[spec.outputs].shape[0] / hw.timing.pool_cores
    return hw.timing.pool_start_cycles + _in(spec) * passes


# -- Tensor Engine ---------------------------------------------------------------------------------


def _stationary(p: Pattern, hw: NeuronCore) -> float:
    """Cycles to load the stationary operand: a quarter of its columns with fast weight load.

    Elements that lie 16 bytes or more apart cannot be fetched in bursts: the load then moves
    one byte a cycle and partition.
    """
    columns, t = free(p), hw.timing
    if p.strides[-1] >= t.sbuf_burst_bytes and p.shape[-1] > 1:
        return columns * p.dtype.itemsize * t.pe_strided_load_cycles_per_byte
    return columns * t.pe_load_cycles_per_column


def matmul(spec: OpSpec, hw: NeuronCore, engine: str) -> float:
    """One moving column per cycle; float32 takes two instructions of two passes each.

    The next stationary operand loads behind the current stream, so the slower of the two counts;
    on NeuronCore-v2 part of the load of a float32 operand is not hidden. What transposes passes
    float32 on in fewer passes: a run with values reports a moving operand that is no permutation.
    """
    a, b = spec.operands[spec.outputs], spec.operands[-1]
    t = hw.timing
    n = free(b) / (2 if spec.variant.double_row else 1)
    wide = b.dtype in _WIDE
    if wide and spec.variant.transposes and hw.pe_transpose_bit_exact:
        return _at_least(hw, t.pe_transpose_passes * n) + t.pe_gap_cycles
    instructions, passes = (t.pe_wide_instructions, t.pe_wide_passes) if wide else (1, 1)
    streaming = _at_least(hw, n) * passes / instructions + t.pe_gap_cycles
    exposed = t.pe_exposed_load_cycles if wide else 0.0
    return instructions * (max(streaming, _stationary(a, hw)) + exposed)


def mx_matmul(spec: OpSpec, hw: NeuronCore, engine: str) -> float:
    """nc_matmul_mx: one column of packed elements per cycle."""
    a = spec.operands[spec.outputs]
    return max(_at_least(hw, _out(spec)) + hw.timing.pe_gap_cycles, _stationary(a, hw))


def transposition(spec: OpSpec, hw: NeuronCore, engine: str) -> float:
    """nc_transpose on PE: the tile is stationary, an identity of as many columns moves."""
    src, t = spec.operands[spec.outputs], hw.timing
    n = max(src.shape[0], min(t.min_interval_cycles, free(src)))
    passes = t.pe_transpose_passes if _is_wide(src) else 1
    return max(n * passes + t.pe_gap_cycles, _stationary(src, hw))


def ones_product(spec: OpSpec, hw: NeuronCore, engine: str) -> float:
    """Partition broadcast: a matmul with a row of ones."""
    src, t = spec.operands[spec.outputs], hw.timing
    passes = t.pe_wide_passes if _is_wide(src) else 1
    return _at_least(hw, free(src) * passes) + t.pe_gap_cycles


def small_transposition(spec: OpSpec, hw: NeuronCore, engine: str) -> float:
    """nc_transpose on the Vector Engine, 32 x 32."""
    return _in(spec)


# -- DMA -------------------------------------------------------------------------------------------


def descriptors(spec: OpSpec, hw: NeuronCore, engine: str) -> float:
    """A DMA: no engine cycles; what its descriptors take is in `timing.cost.transfer`."""
    return 0.0


def semaphore(spec: OpSpec, hw: NeuronCore, engine: str) -> float:
    """A wait for another core: the shortest instruction; how long it waits, the cores decide."""
    return _at_least(hw, 0.0)


# -- arithmetic ------------------------------------------------------------------------------------


def no_flops(spec: OpSpec) -> Flops:
    """No matmul: nothing that counts as floating-point operations of a model."""
    return Flops(0, True)


def matmul_flops(spec: OpSpec) -> Flops:
    """2 K M N of a matmul; K counts both rows of a double-row matmul; 0 if it transposes."""
    result, stationary = spec.operands[0], spec.operands[spec.outputs]
    contraction = stationary.elements // result.shape[0]
    return Flops(2 * contraction * result.elements, not spec.variant.transposes)


def mx_matmul_flops(spec: OpSpec) -> Flops:
    """2 K M N of nc_matmul_mx: each packed element is 4 rows of the contraction."""
    result, stationary = spec.operands[0], spec.operands[spec.outputs]
    return Flops(2 * PACK * stationary.shape[0] * result.elements, True)


def transposition_flops(spec: OpSpec) -> Flops:
    """2 P P F of a transpose on the Tensor Engine: a matmul with the identity."""
    src = spec.operands[spec.outputs]
    return Flops(2 * src.shape[0] * src.elements, False)
