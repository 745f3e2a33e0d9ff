"""`neuronxcc.nki.language` (nl): tensors, indices, loops, and math that lowers to instructions."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from ...chip import dtypes, memory, ops
from ...chip.memory import HBM, PSUM, DirectBuffer
from ...errors import fail
from ...indexing import index
from ...indexing.index import Index, MGrid, Slice, moves
from ...isa import dma, gpsimd, lower, rng, table
from ...loops import pyrange
from ...machine import allocate, limits, operand_errors
from ...machine.context import machine
from ...machine.interface import Machine
from ...machine.limits import integer
from ...machine.tensor import Indirect, Tensor
from ..constant import constant_tensor
from ..public_names import offered, show_public_names_only
from . import grid, tiles
from . import language_constants as constants
from .names import NAMES
from .public import public

# -- data types (the SDK uses the same NumPy and ml_dtypes types) ----------------------------
int8, int16, int32 = np.int8, np.int16, np.int32
uint8, uint16, uint32 = np.uint8, np.uint16, np.uint32
float16, float32, bool_ = np.float16, np.float32, np.bool_
bfloat16 = np.dtype(ml_dtypes.bfloat16)
float8_e4m3 = np.dtype(ml_dtypes.float8_e4m3)
float8_e5m2 = np.dtype(ml_dtypes.float8_e5m2)
tfloat32 = dtypes.TFLOAT32
finfo = ml_dtypes.finfo


class fp32:
    """Constants of float32: `nl.fp32.min` has the bits 0xFF7FFFFF."""

    min = float(np.finfo(np.float32).min)


class bfp16:
    """Constants of bfloat16: `nl.bfp16.min` has the bits 0xFF80, which is -inf."""

    min = float("-inf")


# -- memories and limits -----------------------------------------------------------------------
hbm, private_hbm, shared_hbm = memory.hbm, memory.private_hbm, memory.shared_hbm
sbuf, psum = memory.sbuf, memory.psum
tile_size = tiles.tile_size

# -- creation ----------------------------------------------------------------------------------
par_dim = limits.ParDim
mgrid = MGrid()


@public
def ndarray(
    m: Machine, shape: Any, dtype: Any = None, *, buffer: Any = None, name: str = ""
) -> Tensor:
    """Create a tensor of undefined content; default memory SBUF, dim 0 (or par_dim) partitions."""
    return allocate.create(m, shape, dtype, buffer, name)


def _filled(m: Machine, shape: Any, fill_value: Any, dtype: Any, buffer: Any, name: str) -> Tensor:
    where = sbuf if buffer is None else buffer
    if getattr(where, "memory", None) is HBM:
        raise fail(
            "NKI-M08",
            "an HBM tensor cannot be created with a value",
            given=f"buffer={where!r}",
            limit="SBUF or PSUM",
            hint="create it with nl.ndarray and nl.store a tile or a number into it",
        )
    if isinstance(where, DirectBuffer):
        raise fail(
            "NKI-A09",
            "a directly allocated tensor cannot be created with a value",
            limit="nl.ndarray only",
            hint="create it with nl.ndarray and assign: t[...] = 0",
        )
    t = allocate.create(m, shape, dtype, where, name)
    if where.memory is PSUM and fill_value == 0 and dtypes.is_float(t.dtype):
        allocate.zero_in_psum(t)  # costs nothing: the first matmul overwrites it
    elif t.nblock:
        for idx in np.ndindex(*t.shape[: t.nblock]):
            t[tuple(int(i) for i in idx)][...] = fill_value
    else:
        t[...] = fill_value
    return t


@public
def full(
    m: Machine, shape: Any, fill_value: Any, dtype: Any, *, buffer: Any = None, name: str = ""
) -> Tensor:
    """Create a tensor in SBUF or PSUM filled with a number."""
    return _filled(m, shape, fill_value, dtype, buffer, name)


@public
def zeros(
    m: Machine, shape: Any, dtype: Any = np.float32, *, buffer: Any = None, name: str = ""
) -> Tensor:
    """Create a tensor of zeros; in PSUM this is free when a matmul accumulates into it."""
    return _filled(m, shape, 0, dtype, buffer, name)


@public
def ones(m: Machine, shape: Any, dtype: Any, *, buffer: Any = None, name: str = "") -> Tensor:
    """Create a tensor of ones in SBUF or PSUM."""
    return _filled(m, shape, 1, dtype, buffer, name)


def _like(a: Any) -> tuple[Any, Any]:
    if a.memory is HBM or not a.nblock:
        return a.shape, a.dtype
    b = a.nblock
    return (*a.shape[:b], par_dim(a.shape[b]), *a.shape[b + 1 :]), a.dtype


@public
def zeros_like(
    m: Machine, a: Any, dtype: Any = None, *, buffer: Any = None, name: str = ""
) -> Tensor:
    """Create zeros with the shape (and dtype) of another tensor."""
    shape, dt = _like(a)
    return _filled(m, shape, 0, dt if dtype is None else dtype, buffer, name)


@public
def empty_like(
    m: Machine, a: Any, dtype: Any = None, *, buffer: Any = None, name: str = ""
) -> Tensor:
    """Create a tensor of undefined content with the shape (and dtype) of another."""
    shape, dt = _like(a)
    return ndarray(shape, dt if dtype is None else dtype, buffer=buffer, name=name)


@public
def rand(m: Machine, shape: Any, dtype: Any = np.float32) -> Tensor:
    """Create an SBUF tile of uniform random numbers in [0, 1)."""
    return rng.rand(shape, dtype)


@public
def random_seed(m: Machine, seed: Any, *, mask: Any = None) -> None:
    """Seed the random number generator."""
    rng.random_seed(seed, mask=mask)


@public
def shared_constant(m: Machine, constant: Any, dtype: Any = None) -> Tensor:
    """Make an HBM tensor out of a NumPy array, as it is now; nl.load it to use it."""
    return constant_tensor(m, constant, dtype)


@public
def shared_identity_matrix(m: Machine, n: int, dtype: Any = np.uint8) -> Tensor:
    """Make an identity matrix in HBM."""
    return shared_constant(np.eye(n), dtype)


def arange(*args: Any) -> Index:
    """Return the index expression 0..stop-1 (or start..stop-1); give it axes with None."""
    return index.arange(*args)


def ds(start: Any, size: Any) -> Slice:
    """Return the slice start .. start+size."""
    first = start if moves(start) else integer(start, "the start of nl.ds")
    return Slice(first, integer(size, "the size of nl.ds"))


def expand_dims(data: Tensor, axis: int) -> Tensor:
    """Return a view with a dim of size 1 at `axis`."""
    return data.expand_dims(axis)


# -- loops and grids -------------------------------------------------------------------------------


def _loop(m: Machine, kind: str, args: tuple) -> Any:
    values = (
        args
        if len(args) == 1 and type(args[0]) is int
        else [integer(a, f"a bound of nl.{kind}") for a in args]
    )
    if not 1 <= len(values) <= 3:
        raise fail(
            "NKI-L03",
            f"nl.{kind} takes (stop), (start, stop) or (start, stop, step)",
            given=f"{len(values)} arguments",
        )
    if len(values) == 3 and not values[2]:
        operand_errors.bounds(f"nl.{kind}", tuple(values))
    return m.loop(kind, range(*values))


@public
def affine_range(m: Machine, *args: Any) -> Any:
    """Loop whose iterations are independent: they may overlap and run in any order."""
    return _loop(m, "affine_range", args)


@public
def sequential_range(m: Machine, *args: Any) -> Any:
    """Loop whose iterations depend on each other: they run in order."""
    return _loop(m, "sequential_range", args)


def static_range(*args: Any) -> Any:
    """Loop that is unrolled when the kernel is traced; the variable is a Python int."""
    machine("nl.static_range").flush()
    values = tuple(integer(a, "a bound of nl.static_range") for a in args)
    if not 1 <= len(values) <= 3 or values[2:] == (0,):
        operand_errors.bounds("nl.static_range", values)
    return pyrange.unrolled(range(*values))


program_id, num_programs, program_ndim = grid.program_id, grid.num_programs, grid.program_ndim
nc, spmd_dim = grid.nc, grid.spmd_dim

# -- data movement ---------------------------------------------------------------------------------
load, store = table.public(dma.load.row), dma.store
load_transpose2d, atomic_rmw = table.public(dma.load_transpose2d.row), dma.atomic_rmw
gather_flattened = gpsimd.gather_flattened


@public
def broadcast_to(m: Machine, src: Any, shape: Any = None) -> Tensor:
    """Repeat dims of size 1: free dims by access pattern, partitions by a matmul with ones."""
    if not isinstance(src, Tensor):
        m.tile(src, "src")
    return m.broadcast(src, tuple(shape))


@public
def device_print(m: Machine, prefix: Any, x: Any, *, mask: Any = None) -> None:
    """Print a tile (or a number); in simulation only."""
    if isinstance(x, Tensor):
        m.memory.unseen.add(x.settle().storage.id)  # type: ignore[union-attr]
    if not m.compute:
        return
    m.catch_up()
    if isinstance(x, (Tensor, Indirect)):
        if isinstance(x, Tensor):
            m.check_bounds(x)
        value = x.settle().np if isinstance(x, Tensor) else x
        print(f"{prefix} {x.shape} {dtypes.name(x.dtype)} {x.memory}\n{value}")
    else:
        print(f"{prefix} {x}")


# -- math ------------------------------------------------------------------------------------------


def _unary_function(name: str) -> Any:
    def plan(m: Machine, x: Any, *, dtype: Any = None, mask: Any = None) -> Tensor:
        return lower.unary(m, name, x, dtype, mask)

    plan.__doc__ = f"Return {name} of each element of a tile."
    function = public(plan, name)
    function.nki_op = name
    return function


def _binary_function(name: str) -> Any:
    def plan(m: Machine, x: Any, y: Any, dtype: Any = None, mask: Any = None) -> Tensor:
        return lower.binary(m, name, x, y, dtype, mask)

    plan.__doc__ = f"Return {name} of two tiles (dims of size 1 repeat), or tile and number."
    function = public(plan, name)
    function.nki_op = name
    return function


_of_one, _of_two = ops.elementwise(NAMES["nl"])
for _name in _of_one:  # a copy is defined below: its operand is called src
    globals()[_name] = _unary_function(_name)
for _name in _of_two:
    globals()[_name] = _binary_function(_name)


def _reduction(name: str, op: str) -> Any:
    def plan(
        m: Machine,
        x: Any,
        axis: Any = None,
        *,
        dtype: Any = None,
        mask: Any = None,
        keepdims: bool = False,
    ) -> Tensor:
        if axis is None:
            raise fail(
                "NKI-S10",
                f"nl.{name} needs an axis",
                limit="free axes: 1 .. rank-1",
                hint=f"nl.{name}(x, axis=1)",
            )
        return lower.reduce(m, op, x, axis, dtype, mask, keepdims)

    plan.__doc__ = f"Return the {name} over free axes of a tile."
    function = public(plan, name)
    function.nki_op = op
    return function


for _name, _op in (
    ("sum", "add"),
    ("max", "maximum"),
    ("min", "minimum"),
    ("prod", "multiply"),
    ("all", "logical_and"),
):
    globals()[_name] = _reduction(_name, _op)


@public
def loop_reduce(
    m: Machine, x: Any, op: Any, loop_indices: Any, *, dtype: Any = None, mask: Any = None
) -> lower.LoopReduce:
    """Reduce over a loop: `acc[...] = nl.loop_reduce(x, op, [i])` is acc = op(acc, x)."""
    return lower.LoopReduce(x, op, loop_indices, dtype, mask)


@public
def mean(
    m: Machine, x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False
) -> Tensor:
    """Return the mean over free axes of a tile."""
    return lower.mean(m, x, axis, dtype, mask, keepdims)


@public
def var(m: Machine, x: Any, axis: Any, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """Return the variance over free axes of a tile."""
    return lower.var(m, x, axis, dtype, mask)


@public
def softmax(
    m: Machine,
    x: Any,
    axis: Any,
    *,
    dtype: Any = None,
    compute_dtype: Any = None,
    mask: Any = None,
) -> Tensor:
    """Return the softmax over free axes of a tile."""
    return lower.softmax(m, x, axis, dtype, compute_dtype, mask)


@public
def rms_norm(
    m: Machine,
    x: Any,
    w: Any,
    axis: Any,
    n: Any,
    epsilon: float = 1e-6,
    *,
    dtype: Any = None,
    compute_dtype: Any = None,
    mask: Any = None,
) -> Tensor:
    """Return x * w / sqrt(sum(x^2) / n + epsilon) over free axes."""
    return lower.rms_norm(m, x, w, axis, n, epsilon, dtype, compute_dtype, mask)


@public
def matmul(m: Machine, x: Any, y: Any, *, transpose_x: bool = False, mask: Any = None) -> Tensor:
    """Return x @ y in PSUM: x (M, K), or (K, M) with transpose_x; y (K, N)."""
    return lower.matmul(m, x, y, transpose_x, mask)


@public
def transpose(m: Machine, x: Any, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """Transpose a 2-D tile of up to 128 x 128."""
    t = m.tile(x, "x")
    if len(t.shape) != 2:
        raise fail(
            "NKI-S12",
            "nl.transpose takes a 2-D tile",
            given=f"shape {t.shape}",
            limit="rank 2",
            hint="reshape the free dims to one first",
        )
    return lower.transpose(m, t, 0, dtype, mask)


@public
def copy(m: Machine, src: Any, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """Copy a tile into a new SBUF tile."""
    return lower.copy(m, src, dtype, mask)


copy.nki_op = "copy"


def static_cast(input_data: Any, dtype: Any) -> Tensor:
    """Copy a tile into another dtype; outside of kernels, cast a NumPy array."""
    if isinstance(input_data, np.ndarray):
        return dtypes.from_host(input_data, dtypes.normalize(dtype))  # type: ignore[return-value]
    m = machine("nl.static_cast")
    m.flush()
    return lower.copy(m, input_data, dtype)


@public
def where(
    m: Machine, condition: Any, x: Any, y: Any, *, dtype: Any = None, mask: Any = None
) -> Tensor:
    """Return x where the condition is not zero, else y."""
    return lower.where(m, condition, x, y, dtype, mask)


@public
def dropout(m: Machine, x: Any, rate: Any, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """Replace elements by zero with probability `rate`; kept elements are not rescaled."""
    return rng.dropout(x, rate, dtype=dtype, mask=mask)


def __getattr__(name: str) -> Any:
    """Say that a name of the SDK is not modelled, or that it does not exist."""
    from .missing import missing

    raise missing("nl", name, globals())


__all__ = [*offered(NAMES["nl"], globals()), "constants"]
show_public_names_only(__name__)
