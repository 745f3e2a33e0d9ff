"""`nki.language` (nl): tensors, loops, and functions that return a new tile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ...chip import dtypes
from ...chip.memory import HBM, PSUM
from ...errors import fail
from ...indexing.index import moves
from ...indexing.indirect import Indirect, one_for_each_row
from ...isa import dma, dve, gpsimd, lower, rng
from ...lint import level
from ...loops import pyrange
from ...machine import allocate, bodies
from ...machine.context import current, machine
from ...machine.interface import Machine
from ...machine.limits import integer
from ...machine.tensor import Tensor
from ...trace.trace import NODE
from ..constant import constant_tensor
from ..public_names import offered, show_public_names_only
from . import grids, math, refusals, tensor
from . import tiles as tile_limits
from .call import public, strict
from .create import create, is_hbm
from .enums import BUFFERS, DataType, MemoryRegion
from .names import NAMES
from .registers import NkiScalar, VirtualRegister, held
from .tensor import NkiTensor
from .views import settled

# -- data types: names -----------------------------------------------------------------------
bool_, int8, int16, int32 = map(DataType, ("bool", "int8", "int16", "int32"))
uint8, uint16, uint32 = map(DataType, ("uint8", "uint16", "uint32"))
float16, bfloat16 = map(DataType, ("float16", "bfloat16"))
tfloat32, float32 = map(DataType, ("tfloat32", "float32"))
float8_e4m3, float8_e5m2 = map(DataType, ("float8_e4m3", "float8_e5m2"))
float8_e4m3fn, float8_e8m0fnu = map(DataType, ("float8_e4m3fn", "float8_e8m0fnu"))
float8_e4m3fn_x4, float8_e5m2_x4 = map(DataType, ("float8_e4m3fn_x4", "float8_e5m2_x4"))
float4_e2m1fn_x4 = DataType("float4_e2m1fn_x4")

# -- memories --------------------------------------------------------------------------------
sbuf, psum = MemoryRegion.sbuf, MemoryRegion.psum
private_hbm, shared_hbm = MemoryRegion.private_hbm, MemoryRegion.shared_hbm


def is_sbuf(buffer: Any) -> bool:
    """Return whether a memory is SBUF."""
    return buffer is MemoryRegion.sbuf


def is_psum(buffer: Any) -> bool:
    """Return whether a memory is PSUM."""
    return buffer is MemoryRegion.psum


def is_on_chip(buffer: Any) -> bool:
    """Return whether a memory is SBUF or PSUM."""
    return buffer in (MemoryRegion.sbuf, MemoryRegion.psum)


# -- objects and limits ----------------------------------------------------------------------
NKIObject, tile_size = tensor.NKIObject, tile_limits.tile_size
NkiGrid, NkiTileGrid, NkiBlockGrid = grids.NkiGrid, grids.NkiTileGrid, grids.NkiBlockGrid
tiles, blocks, empty_like = grids.tiles, grids.blocks, grids.empty_like
alloc_tiles, alloc_blocks = grids.alloc_tiles, grids.alloc_blocks

# -- creation --------------------------------------------------------------------------------


@public
def ndarray(
    m: Machine,
    shape: Any,
    dtype: Any,
    buffer: Any = MemoryRegion.sbuf,
    name: str = "",
    address: Any = None,
) -> NkiTensor:
    """Create a tensor of undefined content; on chip dim 0 is the partition dim.

    `address=(partition, byte)` places it on chip; such tensors may overlap.
    """
    return create(m, shape, dtype, buffer, name, address)


def _filled(m: Machine, shape: Any, value: Any, dtype: Any, buffer: Any, name: str) -> NkiTensor:
    t = create(m, shape, dtype, buffer, name)
    if t._t.memory is HBM:
        dma.store(t._t, value)
    else:
        whole = dtypes.is_int(t._t.dtype) and float(value).is_integer()
        dve.memset(t._t.shape, int(value) if whole else value, t._t.dtype, dst=t._t)
    if t._t.memory is PSUM:
        m.memory.psum_filled.add(t._t.storage.id)
    return t


@public
def full(
    m: Machine,
    shape: Any,
    fill_value: Any,
    dtype: Any,
    buffer: Any = MemoryRegion.sbuf,
    name: str = "",
) -> NkiTensor:
    """Create a tensor filled with a number."""
    return _filled(m, shape, fill_value, dtype, buffer, name)


@public
def zeros(
    m: Machine, shape: Any, dtype: Any, buffer: Any = MemoryRegion.sbuf, name: str = ""
) -> NkiTensor:
    """Create a tensor of zeros; in PSUM no matmul needs it, the first write overwrites."""
    return _filled(m, shape, 0, dtype, buffer, name)


@public
def ones(
    m: Machine, shape: Any, dtype: Any, buffer: Any = MemoryRegion.sbuf, name: str = ""
) -> NkiTensor:
    """Create a tensor of ones."""
    return _filled(m, shape, 1, dtype, buffer, name)


@public
def zeros_like(
    m: Machine, x: Any, dtype: Any = None, buffer: Any = None, name: str = ""
) -> NkiTensor:
    """Create zeros with the shape (and dtype) of another tensor, in SBUF by default."""
    if not hasattr(x, "shape"):
        _tensor(x, "nl.zeros_like")
    return _filled(m, x.shape, 0, x.dtype if dtype is None else dtype, buffer, name)


@public
def rand(
    m: Machine, shape: Any, dtype: Any, buffer: Any = MemoryRegion.sbuf, name: str = ""
) -> Tensor:
    """Create a tile of uniform random numbers in [0, 1)."""
    refusals.seeded(m, m.here())
    return rng.rand(shape, dtype)


@public
def random_seed(m: Machine, seed: Any) -> None:
    """Seed the random numbers with a (1, 1) tile."""
    if not isinstance(seed, Tensor):
        raise fail(
            "NKI-S09",
            "nl.random_seed takes a tile",
            given=f"{seed!r}",
            limit="a (1, 1) tile in SBUF or PSUM (neuronxcc.nki took an integer as well)",
        )
    m.launch.seeded = True
    rng.random_seed(seed)


@public
def shared_constant(m: Machine, constant: Any) -> NkiTensor:
    """Make an HBM tensor out of a NumPy array, or of a .npy file."""
    a = np.load(constant) if isinstance(constant, str) else constant
    return NkiTensor(constant_tensor(m, a), MemoryRegion.shared_hbm)


@public
def shared_identity_matrix(m: Machine, n: Any, dtype: Any = uint8, dst: Any = None) -> Any:
    """Make an identity matrix in SBUF."""
    size, dt = integer(n, "n"), dtypes.normalize(dtype)
    if dst is None:
        dst = allocate.create(m, (size, size), dt, BUFFERS[MemoryRegion.sbuf])
    host = dtypes.from_host(np.eye(size), dt)
    dma.dma_copy(dst=dst, src=allocate.input_tensor(m, host, "identity", mutable=False))
    return dst


def ds(start: Any, size: Any) -> slice:
    """Return the slice start .. start + size."""
    if not moves(start) and held(start) is not None:
        raise fail(
            "NKI-N02",
            "nl.ds starts at a number that the kernel computes",
            limit="numbers of the host",
            hint="t.ap(pattern, scalar_offset=register, indirect_dim=...)",
        )
    first = start if moves(start) else integer(start, "the start of nl.ds")
    return slice(first, first + integer(size, "the size of nl.ds"))


@public
def expand_dims(m: Machine, x: Any, axis: Any) -> Tensor:
    """Return a view with a dim of size 1 at `axis`."""
    return _tensor(x, "nl.expand_dims").expand_dims(axis)


# -- loops -----------------------------------------------------------------------------------


def _range(name: str, doc: str) -> Callable[..., Any]:
    def function(start: Any, stop: Any = None, step: Any = 1) -> Any:
        for x in (start, stop):
            if isinstance(x, (VirtualRegister, NkiScalar)):
                raise fail(
                    "NKI-L03",
                    f"nl.{name} ends at a "
                    + ("register" if isinstance(x, VirtualRegister) else "scalar"),
                    limit="bounds that are known when the kernel is traced",
                    hint="nl.fori_loop(0, register, body)",
                )
        values = [integer(a, f"a bound of nl.{name}") for a in (start, stop, step) if a is not None]
        if values[-1] == 0:
            raise fail(
                "NKI-L03",
                f"nl.{name} does not move",
                given="step 0",
                limit="a step that is not 0",
                hint="range(start, stop, tile)",
            )
        return pyrange.unrolled(range(0, *values) if stop is None else range(*values))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


affine_range = _range("affine_range", "The same as range (deprecated): the loop is unrolled.")
sequential_range = _range("sequential_range", "The same as range (deprecated).")
static_range = _range("static_range", "The same as range (deprecated).")


def _value(x: Any, what: str) -> int:
    at = held(x)
    return integer(x, what) if at is None else at


def dynamic_range(start: Any, stop: Any = None, step: Any = 1) -> Iterator[VirtualRegister]:
    """Loop on the device; bounds may be registers. Deprecated since 0.6, gone in 0.7: fori_loop."""
    m = machine("nl.dynamic_range")
    verdict = level.in_run("dynamic_range", "nl.dynamic_range")
    if verdict is not None:
        m.find(*verdict, m.here())
    lo, hi = (0, start) if stop is None else (start, stop)
    by = integer(step, "the step of nl.dynamic_range")
    if by < 1:
        raise fail("NKI-L03", "nl.dynamic_range has a step that is not positive", given=f"{by}")
    return _iterations(m, range(_value(lo, "a bound"), _value(hi, "a bound"), by))


def _iterations(m: Machine, values: range) -> Iterator[VirtualRegister]:
    with bodies.loop(m) as body:
        for i in values:
            body.begin(m)
            yield VirtualRegister(i, frozen=True)


def fori_loop(lower: Any, upper: Any, body_fun: Callable, step: Any = 1) -> None:
    """Loop on the device: body_fun(i) for each i, which is passed by value.

    `i` is a scalar since 0.7, and a register if a bound is one or before.
    """
    m = machine("nl.fori_loop")
    registers = not m.dialect.scalars or any(isinstance(x, VirtualRegister) for x in (lower, upper))
    number: Callable[[int], Any] = VirtualRegister if registers else NkiScalar
    refusals.looped(m, m.here())
    by = integer(step, "the step of nl.fori_loop")
    if by < 1:
        raise fail("NKI-L03", "nl.fori_loop has a step that is not positive", given=f"{by}")
    with bodies.loop(m) as body:
        for i in range(_value(lower, "lower"), _value(upper, "upper"), by):
            body.begin(m)
            body_fun(number(i))


def while_loop(init: Any, body_fun: Callable) -> None:
    """Loop on the device while a register is not zero; body_fun(r) returns the next one."""
    m = machine("nl.while_loop")
    refusals.looped(m, m.here())
    r = init
    with bodies.loop(m) as body:
        while True:
            if not isinstance(r, VirtualRegister):
                raise fail(
                    "NKI-L03",
                    "nl.while_loop goes on without a register",
                    given=type(r).__name__,
                    limit="init and what body_fun returns are registers",
                    hint="end the body with: return r",
                )
            if not r.value:
                return
            body.begin(m)
            r = body_fun(VirtualRegister(r.value))


@contextmanager
def no_reorder() -> Iterator[None]:
    """Keep the order of the instructions inside, whatever their engines."""
    m = machine("nl.no_reorder")
    m.flush()
    first, node = len(m.trace), m.core.node
    m.loops.ordered += 1
    yield
    m.loops.ordered -= 1
    m.flush()
    block = [
        i for i in range(first, len(m.trace)) if m.trace.rows[m.trace.starts[i] + NODE] == node
    ]
    m.trace.edges += zip(block, block[1:])


# -- programs --------------------------------------------------------------------------------


def _axis(axis: Any, what: str) -> None:
    if integer(axis, "an axis") != 0:
        raise fail(
            "NKI-K06",
            f"{what} of axis {axis}",
            limit="axis 0: a kernel runs on one core or on two",
            hint="loops over tiles lie in the kernel",
        )


def _launched(what: str) -> Machine | None:
    """Return the machine; outside of kernels None where functions of nl said nothing: those of 0.1
    and 0.2 were names for a parser (AWS's kernels of then prepare constants with them on the host).
    """
    return None if current.get() is None and level.older() else machine(what)


def program_id(axis: Any = 0) -> int | None:
    """Return which of the cores of kernel[2] runs this, 0 or 1."""
    m = _launched("nl.program_id")
    _axis(axis, "nl.program_id")
    if m is None:
        return None
    m.launch.asked_id = True
    return m.core.program_id[0] if m.core.program_id else 0


def num_programs(axes: Any = 0) -> int | None:
    """Return on how many cores the kernel runs, 1 or 2."""
    m = _launched("nl.num_programs")
    _axis(axes, "nl.num_programs")
    return None if m is None else m.launch.grid[0] if m.launch.grid else 1


def program_ndim() -> int | None:
    """Return 1 for kernel[2], else 0."""
    m = _launched("nl.program_ndim")
    return None if m is None else len(m.launch.grid)


# -- data movement ---------------------------------------------------------------------------


@public
def load(m: Machine, src: Any, dtype: Any = None) -> Tensor:
    """Load from HBM into a new SBUF tile."""
    return dma.load(src, dtype=dtype)


@public
def store(m: Machine, dst: Any, value: Any) -> None:
    """Store an SBUF tile into HBM."""
    if getattr(dst, "memory", HBM) is not HBM:
        raise fail(
            "NKI-M02",
            "nl.store writes HBM",
            given=f"dst {dst!r}",
            limit="nl.store(dst, value): dst in HBM, value a tile",
            hint="nisa.dma_copy(dst=out[...], src=tile); between tiles nisa.tensor_copy",
        )
    if getattr(value, "memory", None) is PSUM:
        raise fail(
            "NKI-M01",
            "nl.store of a tile in PSUM",
            given=f"value {value!r}",
            limit="DMA moves between HBM and SBUF",
            hint="nisa.tensor_copy(sbuf_tile, psum_tile) first",
        )
    one_for_each_row("nl.store", dst)
    dma.dma_copy(dst=dst, src=value) if isinstance(value, Tensor) else dma.store(dst, value)


@public
def load_transpose2d(m: Machine, src: Any, dtype: Any = None) -> Tensor:
    """Load a 2-D access of HBM transposed, by DMA, into a new SBUF tile."""
    return dma.load_transpose2d(src, dtype=dtype)


@public
def gather_flattened(
    m: Machine, data: Any, indices: Any, axis: Any = 0, dtype: Any = None
) -> Tensor:
    """Gather per partition along the flattened free dims."""
    return gpsimd.gather_flattened(data, indices, dtype=dtype)


@public
def broadcast_to(m: Machine, x: Any, shape: Any, dtype: Any = None) -> Tensor:
    """Repeat dims of size 1 into a new tile of the same rank."""
    t = m.tile(x, "x")
    dims = tuple(integer(n, "a size") for n in shape)
    if len(dims) != len(t.shape):
        raise fail(
            "NKI-S02",
            "nl.broadcast_to changes the rank",
            given=f"{t.shape} to {dims}",
            limit="as many dims; x.expand_dim(dim) adds one",
        )
    return lower.copy(m, m.broadcast(t, dims), dtype)


@public
def device_print(m: Machine, print_prefix: Any, tensor: Any) -> None:
    """Print a tensor; on the chip it goes into files."""
    t = settled(m, _tensor(tensor, "nl.device_print"))
    m.check_bounds(t)
    m.memory.unseen.add(t.settle().storage.id)
    if m.compute:
        m.catch_up()
        print(f"{print_prefix} {t.shape} {dtypes.name(t.dtype)} {t.memory}\n{t.settle().np}")


def _tensor(x: Any, api: str) -> Any:
    """Return a tensor of the machine, or an access with a run-time offset; else raise."""
    if not isinstance(x, (Tensor, Indirect)):
        raise fail(
            "NKI-M02",
            f"{api} takes a tensor",
            given=f"{type(x).__name__} {x!r}"[:60],
            limit="what nl.ndarray has made, an argument of the kernel, or a view of them",
        )
    return x


globals().update(math.FUNCTIONS)
for _plain in (
    affine_range,
    sequential_range,
    static_range,
    dynamic_range,
    fori_loop,
    while_loop,
    no_reorder,
    program_id,
    num_programs,
    program_ndim,
    ds,
    empty_like,
    is_hbm,
    is_sbuf,
    is_psum,
    is_on_chip,
    tiles,
    blocks,
    alloc_tiles,
    alloc_blocks,
):
    globals()[_plain.__name__] = strict(f"nl.{_plain.__name__}", _plain)


def __getattr__(name: str) -> Any:
    """Return a name of an older release; raise if it is not modelled or does not exist."""
    from .compat import NAMES
    from .versions import missing

    if name == "hbm":  # the compiler of 0.1 and 0.2 shares it between cores
        return shared_hbm if level.older() else private_hbm
    if name in NAMES:
        return NAMES[name]
    raise missing("nl", name, globals())


__all__ = offered(NAMES["nl"], globals())
show_public_names_only(__name__)
