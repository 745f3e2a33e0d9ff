"""`neuronxcc.nki.language` (nl): tensors, indices, loops, and math that lowers to instructions."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from ...chip import dtypes as _dtypes
from ...chip.memory import HBM as _HBM
from ...chip.memory import PSUM as _PSUM
from ...chip.memory import DirectBuffer as _DirectBuffer
from ...chip.memory import hbm, private_hbm, psum, sbuf, shared_hbm
from ...errors import fail as _fail
from ...indexing.index import Index as _Index
from ...indexing.index import MGrid as _MGrid
from ...indexing.index import Slice as _Slice
from ...indexing.index import arange as _arange
from ...indexing.index import as_int as _as_int
from ...indexing.index import moves as _moves
from ...isa import dma as _dma
from ...isa import gpsimd as _gpsimd
from ...isa import lower as _lower
from ...isa import rng as _rng
from ...isa.table import public as _of_row
from ...loops import pyrange as _pyrange
from ...machine import allocate as _allocate
from ...machine import limits as _limits
from ...machine import operand_errors as _refuse
from ...machine.context import machine as _machine
from ...machine.interface import Machine as _Machine
from ...machine.limits import integer as _integer
from ...machine.tensor import Indirect as _Indirect
from ...machine.tensor import Tensor as _Tensor
from ..constant import constant as _constant
from . import grid as _grid
from . import language_constants as constants
from .public import public as _public
from .tiles import tile_size

# -- data types (the SDK uses the same NumPy and ml_dtypes types) ----------------------------
int8, int16, int32 = np.int8, np.int16, np.int32
uint8, uint16, uint32 = np.uint8, np.uint16, np.uint32
float16, float32, bool_ = np.float16, np.float32, np.bool_
bfloat16 = np.dtype(ml_dtypes.bfloat16)
float8_e4m3 = np.dtype(ml_dtypes.float8_e4m3)
float8_e5m2 = np.dtype(ml_dtypes.float8_e5m2)
tfloat32 = _dtypes.TFLOAT32
finfo = ml_dtypes.finfo


class fp32:
    """Constants of float32: `nl.fp32.min` has the bits 0xFF7FFFFF."""

    min = float(np.finfo(np.float32).min)


class bfp16:
    """Constants of bfloat16: `nl.bfp16.min` has the bits 0xFF80, which is -inf."""

    min = float("-inf")


# -- creation ----------------------------------------------------------------------------------
par_dim = _limits.ParDim
mgrid = _MGrid()


@_public
def ndarray(
    m: _Machine, shape: Any, dtype: Any = None, *, buffer: Any = None, name: str = ""
) -> _Tensor:
    """Create a tensor of undefined content; default memory SBUF, dim 0 (or par_dim) partitions."""
    return _allocate.create(m, shape, dtype, buffer, name)


def _filled(
    m: _Machine, shape: Any, fill_value: Any, dtype: Any, buffer: Any, name: str
) -> _Tensor:
    where = sbuf if buffer is None else buffer
    if getattr(where, "kind", None) is _HBM:
        raise _fail(
            "NKI-M08",
            "an HBM tensor cannot be created with a value",
            given=f"buffer={where!r}",
            limit="SBUF or PSUM",
            hint="create it with nl.ndarray and nl.store a tile or a number into it",
        )
    if isinstance(where, _DirectBuffer):
        raise _fail(
            "NKI-A09",
            "a directly allocated tensor cannot be created with a value",
            limit="nl.ndarray only",
            hint="create it with nl.ndarray and assign: t[...] = 0",
        )
    t = _allocate.create(m, shape, dtype, where, name)
    if where.kind is _PSUM and fill_value == 0 and _dtypes.is_float(t.dtype):
        _allocate.zero_in_psum(t)  # costs nothing: the first matmul overwrites it
    elif t.nblock:
        for idx in np.ndindex(*t.shape[: t.nblock]):
            t[tuple(int(i) for i in idx)][...] = fill_value
    else:
        t[...] = fill_value
    return t


@_public
def full(
    m: _Machine, shape: Any, fill_value: Any, dtype: Any, *, buffer: Any = None, name: str = ""
) -> _Tensor:
    """Create a tensor in SBUF or PSUM filled with a number."""
    return _filled(m, shape, fill_value, dtype, buffer, name)


@_public
def zeros(
    m: _Machine, shape: Any, dtype: Any = np.float32, *, buffer: Any = None, name: str = ""
) -> _Tensor:
    """Create a tensor of zeros; in PSUM this is free when a matmul accumulates into it."""
    return _filled(m, shape, 0, dtype, buffer, name)


@_public
def ones(m: _Machine, shape: Any, dtype: Any, *, buffer: Any = None, name: str = "") -> _Tensor:
    """Create a tensor of ones in SBUF or PSUM."""
    return _filled(m, shape, 1, dtype, buffer, name)


def _like(a: Any) -> tuple[Any, Any]:
    if a.kind is _HBM or not a.nblock:
        return a.shape, a.dtype
    b = a.nblock
    return (*a.shape[:b], par_dim(a.shape[b]), *a.shape[b + 1 :]), a.dtype


@_public
def zeros_like(
    m: _Machine, a: Any, dtype: Any = None, *, buffer: Any = None, name: str = ""
) -> _Tensor:
    """Create zeros with the shape (and dtype) of another tensor."""
    shape, dt = _like(a)
    return _filled(m, shape, 0, dt if dtype is None else dtype, buffer, name)


@_public
def empty_like(
    m: _Machine, a: Any, dtype: Any = None, *, buffer: Any = None, name: str = ""
) -> _Tensor:
    """Create a tensor of undefined content with the shape (and dtype) of another."""
    shape, dt = _like(a)
    return ndarray(shape, dt if dtype is None else dtype, buffer=buffer, name=name)


@_public
def rand(m: _Machine, shape: Any, dtype: Any = np.float32) -> _Tensor:
    """Create an SBUF tile of uniform random numbers in [0, 1)."""
    return _rng.rand(shape, dtype)


@_public
def random_seed(m: _Machine, seed: Any, *, mask: Any = None) -> None:
    """Seed the random number generator."""
    _rng.random_seed(seed, mask=mask)


@_public
def shared_constant(m: _Machine, constant: Any, dtype: Any = None) -> _Tensor:
    """Make an HBM tensor out of a NumPy array, as it is now; nl.load it to use it."""
    return _constant(m, constant, dtype)


@_public
def shared_identity_matrix(m: _Machine, n: int, dtype: Any = np.uint8) -> _Tensor:
    """Make an identity matrix in HBM."""
    return shared_constant(np.eye(n), dtype)


def arange(*args: Any) -> _Index:
    """Return the index expression 0..stop-1 (or start..stop-1); give it axes with None."""
    return _arange(*args)


def ds(start: Any, size: Any) -> _Slice:
    """Return the slice start .. start+size."""
    first = start if _moves(start) else _integer(start, "the start of nl.ds")
    return _Slice(first, _integer(size, "the size of nl.ds"))


def expand_dims(data: _Tensor, axis: int) -> _Tensor:
    """Return a view with a dim of size 1 at `axis`."""
    return data.expand_dims(axis)


# -- loops and grids -------------------------------------------------------------------------------


def _loop(m: _Machine, kind: str, args: tuple) -> Any:
    values = (
        args
        if len(args) == 1 and type(args[0]) is int
        else [_integer(a, f"a bound of nl.{kind}") for a in args]
    )
    if not 1 <= len(values) <= 3:
        raise _fail(
            "NKI-L03",
            f"nl.{kind} takes (stop), (start, stop) or (start, stop, step)",
            given=f"{len(values)} arguments",
        )
    if len(values) == 3 and not values[2]:
        _refuse.bounds(f"nl.{kind}", tuple(values))
    return m.loop(kind, range(*values))


@_public
def affine_range(m: _Machine, *args: Any) -> Any:
    """Loop whose iterations are independent: they may overlap and run in any order."""
    return _loop(m, "affine_range", args)


@_public
def sequential_range(m: _Machine, *args: Any) -> Any:
    """Loop whose iterations depend on each other: they run in order."""
    return _loop(m, "sequential_range", args)


def static_range(*args: Any) -> Any:
    """Loop that is unrolled when the kernel is traced; the variable is a Python int."""
    _machine("nl.static_range").flush()
    values = tuple(_integer(a, "a bound of nl.static_range") for a in args)
    if not 1 <= len(values) <= 3 or values[2:] == (0,):
        _refuse.bounds("nl.static_range", values)
    return _pyrange.unrolled(range(*values))


program_id, num_programs, program_ndim = _grid.program_id, _grid.num_programs, _grid.program_ndim
nc, spmd_dim = _grid.nc, _grid.spmd_dim

# -- data movement ---------------------------------------------------------------------------------
load, store = _of_row(_dma.load.row), _dma.store
load_transpose2d, atomic_rmw = _of_row(_dma.load_transpose2d.row), _dma.atomic_rmw
gather_flattened = _gpsimd.gather_flattened


@_public
def broadcast_to(m: _Machine, src: Any, shape: Any = None) -> _Tensor:
    """Repeat dims of size 1: free dims by access pattern, partitions by a matmul with ones."""
    if not isinstance(src, _Tensor):
        m.tile(src, "src")
    return m.broadcast(src, tuple(shape))


@_public
def device_print(m: _Machine, prefix: Any, x: Any, *, mask: Any = None) -> None:
    """Print a tile (or a number); in simulation only."""
    if isinstance(x, _Tensor):
        m.memory.unseen.add(x.settle().storage.id)  # type: ignore[union-attr]
    if not m.compute:
        return
    m.catch_up()
    if isinstance(x, (_Tensor, _Indirect)):
        if isinstance(x, _Tensor):
            m.check_bounds(x)
        value = x.settle().np if isinstance(x, _Tensor) else x
        print(f"{prefix} {x.shape} {_dtypes.name(x.dtype)} {x.kind}\n{value}")
    else:
        print(f"{prefix} {x}")


# -- math ------------------------------------------------------------------------------------------


def _unary_function(name: str) -> Any:
    def plan(m: _Machine, x: Any, *, dtype: Any = None, mask: Any = None) -> _Tensor:
        return _lower.unary(m, name, x, dtype, mask)

    plan.__doc__ = f"Return {name} of each element of a tile."
    function = _public(plan, name)
    function.nki_op = name
    return function


for _name in (
    "abs",
    "arctan",
    "ceil",
    "cos",
    "erf",
    "erf_dx",
    "exp",
    "floor",
    "gelu",
    "gelu_apprx_sigmoid",
    "gelu_apprx_tanh",
    "gelu_dx",
    "invert",
    "log",
    "logical_not",
    "mish",
    "negative",
    "reciprocal",
    "relu",
    "rsqrt",
    "sigmoid",
    "sign",
    "silu",
    "silu_dx",
    "sin",
    "softplus",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
):
    globals()[_name] = _unary_function(_name)


def _binary_function(name: str) -> Any:
    def plan(m: _Machine, x: Any, y: Any, dtype: Any = None, mask: Any = None) -> _Tensor:
        return _lower.binary(m, name, x, y, dtype, mask)

    plan.__doc__ = f"Return {name} of two tiles (dims of size 1 repeat), or tile and number."
    function = _public(plan, name)
    function.nki_op = name
    return function


for _name in (
    "add",
    "subtract",
    "multiply",
    "divide",
    "power",
    "maximum",
    "minimum",
    "mod",
    "fmod",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "left_shift",
    "right_shift",
    "equal",
    "not_equal",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
):
    globals()[_name] = _binary_function(_name)


def _reduction(name: str, op: str) -> Any:
    def plan(
        m: _Machine,
        x: Any,
        axis: Any = None,
        *,
        dtype: Any = None,
        mask: Any = None,
        keepdims: bool = False,
    ) -> _Tensor:
        if axis is None:
            raise _fail(
                "NKI-S10",
                f"nl.{name} needs an axis",
                limit="free axes: 1 .. rank-1",
                hint=f"nl.{name}(x, axis=1)",
            )
        return _lower.reduce(m, op, x, axis, dtype, mask, keepdims)

    plan.__doc__ = f"Return the {name} over free axes of a tile."
    function = _public(plan, name)
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


@_public
def loop_reduce(
    m: _Machine, x: Any, op: Any, loop_indices: Any, *, dtype: Any = None, mask: Any = None
) -> _lower.LoopReduce:
    """Reduce over a loop: `acc[...] = nl.loop_reduce(x, op, [i])` is acc = op(acc, x)."""
    return _lower.LoopReduce(x, op, loop_indices, dtype, mask)


@_public
def mean(
    m: _Machine, x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False
) -> _Tensor:
    """Return the mean over free axes of a tile."""
    return _lower.mean(m, x, axis, dtype, mask, keepdims)


@_public
def var(m: _Machine, x: Any, axis: Any, *, dtype: Any = None, mask: Any = None) -> _Tensor:
    """Return the variance over free axes of a tile."""
    return _lower.var(m, x, axis, dtype, mask)


@_public
def softmax(
    m: _Machine,
    x: Any,
    axis: Any,
    *,
    dtype: Any = None,
    compute_dtype: Any = None,
    mask: Any = None,
) -> _Tensor:
    """Return the softmax over free axes of a tile."""
    return _lower.softmax(m, x, axis, dtype, compute_dtype, mask)


@_public
def rms_norm(
    m: _Machine,
    x: Any,
    w: Any,
    axis: Any,
    n: Any,
    epsilon: float = 1e-6,
    *,
    dtype: Any = None,
    compute_dtype: Any = None,
    mask: Any = None,
) -> _Tensor:
    """Return x * w / sqrt(sum(x^2) / n + epsilon) over free axes."""
    return _lower.rms_norm(m, x, w, axis, n, epsilon, dtype, compute_dtype, mask)


@_public
def matmul(m: _Machine, x: Any, y: Any, *, transpose_x: bool = False, mask: Any = None) -> _Tensor:
    """Return x @ y in PSUM: x (M, K), or (K, M) with transpose_x; y (K, N)."""
    return _lower.matmul(m, x, y, transpose_x, mask)


@_public
def transpose(m: _Machine, x: Any, *, dtype: Any = None, mask: Any = None) -> _Tensor:
    """Transpose a 2-D tile of up to 128 x 128."""
    t = m.tile(x, "x")
    if len(t.shape) != 2:
        raise _fail(
            "NKI-S12",
            "nl.transpose takes a 2-D tile",
            given=f"shape {t.shape}",
            limit="rank 2",
            hint="reshape the free dims to one first",
        )
    return _lower.transpose(m, t, 0, dtype, mask)


@_public
def copy(m: _Machine, src: Any, *, dtype: Any = None, mask: Any = None) -> _Tensor:
    """Copy a tile into a new SBUF tile."""
    return _lower.copy(m, src, dtype, mask)


copy.nki_op = "copy"


def static_cast(input_data: Any, dtype: Any) -> _Tensor:
    """Copy a tile into another dtype; outside of kernels, cast a NumPy array."""
    if isinstance(input_data, np.ndarray):
        return _dtypes.from_host(input_data, _dtypes.normalize(dtype))  # type: ignore[return-value]
    m = _machine("nl.static_cast")
    m.flush()
    return _lower.copy(m, input_data, dtype)


@_public
def where(
    m: _Machine, condition: Any, x: Any, y: Any, *, dtype: Any = None, mask: Any = None
) -> _Tensor:
    """Return x where the condition is not zero, else y."""
    return _lower.where(m, condition, x, y, dtype, mask)


@_public
def dropout(m: _Machine, x: Any, rate: Any, *, dtype: Any = None, mask: Any = None) -> _Tensor:
    """Replace elements by zero with probability `rate`; kept elements are not rescaled."""
    return _rng.dropout(x, rate, dtype=dtype, mask=mask)


def __getattr__(name: str) -> Any:
    """Say that a name of the SDK is not modelled, or that it does not exist."""
    from .missing import missing

    raise missing("nl", name, globals())


_ = _as_int, constants, tile_size, hbm, private_hbm, psum, shared_hbm  # re-exported names
