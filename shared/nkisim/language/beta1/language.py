"""`neuronxcc.nki.language` (nl): tensors, indices, loops, and math that lowers to instructions."""
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from ...chip import dtypes
from ...chip.memory import HBM, PSUM, DirectBuffer, hbm, private_hbm, psum, sbuf, shared_hbm
from ...errors import fail
from ...isa import dma, gpsimd, lower, rng
from ...machine import allocate
from ...machine.context import machine
from ...machine.index import Index, MGrid, Slice, as_int
from ...machine.index import arange as _arange
from ...machine.machine import integer
from ...machine.tensor import Indirect, Tensor
from . import grid as _grid
from . import language_constants as constants
from .tiles import tile_size

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


# -- creation ----------------------------------------------------------------------------------
par_dim = allocate.ParDim
mgrid = MGrid()


def ndarray(shape: Any, dtype: Any = None, *, buffer: Any = None, name: str = "",
            **kwargs: Any) -> Tensor:
    """Create a tensor of undefined content; default memory SBUF, dim 0 (or par_dim) partitions."""
    m = machine("nl.ndarray")
    m.flush()
    return allocate.create(m, shape, dtype, buffer, name)


def full(shape: Any, fill_value: Any, dtype: Any, *, buffer: Any = None, name: str = "",
         **kwargs: Any) -> Tensor:
    """Create a tensor in SBUF or PSUM filled with a number."""
    m = machine("nl.full")
    m.flush()
    where = sbuf if buffer is None else buffer
    if getattr(where, "kind", None) is HBM:
        raise fail("NKI-M08", "an HBM tensor cannot be created with a value",
                   given=f"buffer={where!r}", limit="SBUF or PSUM",
                   hint="create it with nl.ndarray and nl.store a tile or a number into it")
    if isinstance(where, DirectBuffer):
        raise fail("NKI-A09", "a directly allocated tensor cannot be created with a value",
                   limit="nl.ndarray only",
                   hint="create it with nl.ndarray and assign: t[...] = 0")
    t = allocate.create(m, shape, dtype, where, name)
    if where.kind is PSUM and fill_value == 0 and dtypes.is_float(t.dtype):
        allocate.zero_in_psum(t)        # costs nothing: the first matmul overwrites it
    elif t.nblock:
        for idx in np.ndindex(*t.shape[:t.nblock]):
            t[tuple(int(i) for i in idx)][...] = fill_value
    else:
        t[...] = fill_value
    return t


def zeros(shape: Any, dtype: Any = np.float32, *, buffer: Any = None, name: str = "",
          **kwargs: Any) -> Tensor:
    """Create a tensor of zeros; in PSUM this is free when a matmul accumulates into it."""
    return full(shape, 0, dtype, buffer=buffer, name=name)


def ones(shape: Any, dtype: Any, *, buffer: Any = None, name: str = "", **kwargs: Any) -> Tensor:
    """Create a tensor of ones in SBUF or PSUM."""
    return full(shape, 1, dtype, buffer=buffer, name=name)


def _like(a: Any) -> tuple[Any, Any]:
    if a.kind is HBM or not a.nblock:
        return a.shape, a.dtype
    b = a.nblock
    return (*a.shape[:b], par_dim(a.shape[b]), *a.shape[b + 1:]), a.dtype


def zeros_like(a: Any, dtype: Any = None, *, buffer: Any = None, name: str = "",
               **kwargs: Any) -> Tensor:
    """Create zeros with the shape (and dtype) of another tensor."""
    shape, dt = _like(a)
    return full(shape, 0, dt if dtype is None else dtype, buffer=buffer, name=name)


def empty_like(a: Any, dtype: Any = None, *, buffer: Any = None, name: str = "",
               **kwargs: Any) -> Tensor:
    """Create a tensor of undefined content with the shape (and dtype) of another."""
    shape, dt = _like(a)
    return ndarray(shape, dt if dtype is None else dtype, buffer=buffer, name=name)


def rand(shape: Any, dtype: Any = np.float32, **kwargs: Any) -> Tensor:
    """Create an SBUF tile of uniform random numbers in [0, 1)."""
    return rng.rand(shape, dtype)


def random_seed(seed: Any, *, mask: Any = None, **kwargs: Any) -> None:
    """Seed the random number generator."""
    rng.random_seed(seed, mask=mask)


def shared_constant(constant: Any, dtype: Any = None, **kwargs: Any) -> Tensor:
    """Make an HBM tensor out of a NumPy array; nl.load it to use it."""
    m = machine("nl.shared_constant")
    m.flush()
    a = np.asarray(constant)
    if a.dtype.itemsize == 8 and dtype is None:
        dtype = np.float32 if a.dtype.kind == "f" else np.int32
    if dtype is not None:
        a = dtypes.cast(a.astype(np.float32) if a.dtype.itemsize == 8 else a,
                        dtypes.normalize(dtype))
    return allocate.input_tensor(m, a, "constant", mutable=False)


def shared_identity_matrix(n: int, dtype: Any = np.uint8, **kwargs: Any) -> Tensor:
    """Make an identity matrix in HBM."""
    return shared_constant(np.eye(n), dtype)


def arange(*args: Any) -> Index:
    """Return the index expression 0..stop-1 (or start..stop-1); give it axes with None."""
    return _arange(*args)


def ds(start: Any, size: Any) -> Slice:
    """Return the slice start .. start+size."""
    return Slice(integer(start, "the start of nl.ds"), integer(size, "the size of nl.ds"))


def expand_dims(data: Tensor, axis: int) -> Tensor:
    """Return a view with a dim of size 1 at `axis`."""
    return data.expand_dims(axis)


# -- loops and grids -------------------------------------------------------------------------------

def _loop(kind: str, args: tuple) -> Any:
    m = machine(f"nl.{kind}")
    m.flush()
    values = [integer(a, f"a bound of nl.{kind}") for a in args]
    if not 1 <= len(values) <= 3:
        raise fail("NKI-L03", f"nl.{kind} takes (stop), (start, stop) or (start, stop, step)",
                   given=f"{len(values)} arguments")
    return m.loop(kind, range(*values))


def affine_range(*args: Any, **kwargs: Any) -> Any:
    """Loop whose iterations are independent: they may overlap and run in any order."""
    return _loop("affine_range", args)


def sequential_range(*args: Any, **kwargs: Any) -> Any:
    """Loop whose iterations depend on each other: they run in order."""
    return _loop("sequential_range", args)


def static_range(*args: Any) -> range:
    """Loop that is unrolled when the kernel is traced; the variable is a Python int."""
    machine("nl.static_range").flush()
    return range(*(integer(a, "a bound of nl.static_range") for a in args))


program_id, num_programs, program_ndim = _grid.program_id, _grid.num_programs, _grid.program_ndim
nc, spmd_dim = _grid.nc, _grid.spmd_dim

# -- data movement ---------------------------------------------------------------------------------
load, store = dma.load, dma.store
load_transpose2d, atomic_rmw = dma.load_transpose2d, dma.atomic_rmw
gather_flattened = gpsimd.gather_flattened


def broadcast_to(src: Any, shape: Any = None, **kwargs: Any) -> Tensor:
    """Repeat dims of size 1: free dims by access pattern, partitions by a matmul with ones."""
    m = machine("nl.broadcast_to")
    m.flush()
    if not isinstance(src, Tensor):
        m.tile(src, "src")
    return m.broadcast(src, tuple(shape))


def device_print(prefix: Any, x: Any, *, mask: Any = None, **kwargs: Any) -> None:
    """Print a tile (or a number); in simulation only."""
    m = machine("nl.device_print")
    m.flush()
    if not m.compute:
        return
    m.products.run()
    if isinstance(x, (Tensor, Indirect)):
        value = x.settle().np if isinstance(x, Tensor) else x
        print(f"{prefix} {x.shape} {dtypes.name(x.dtype)} {x.kind}\n{value}")
    else:
        print(f"{prefix} {x}")


# -- math ------------------------------------------------------------------------------------------

def _unary_function(name: str) -> Any:
    def function(x: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Tensor:
        m = machine(f"nl.{name}")
        m.flush()
        return lower.unary(m, name, x, dtype, mask)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return {name} of each element of a tile."
    function.nki_op = name              # type: ignore[attr-defined]
    return function


for _name in ("abs", "arctan", "ceil", "cos", "erf", "erf_dx", "exp", "floor", "gelu",
              "gelu_apprx_sigmoid", "gelu_apprx_tanh", "gelu_dx", "invert", "log", "logical_not",
              "mish", "negative", "reciprocal", "relu", "rsqrt", "sigmoid", "sign", "silu",
              "silu_dx", "sin", "softplus", "sqrt", "square", "tan", "tanh", "trunc"):
    globals()[_name] = _unary_function(_name)


def _binary_function(name: str) -> Any:
    def function(x: Any, y: Any, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Tensor:
        return lower.binary(machine(f"nl.{name}"), name, x, y, dtype, mask)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return {name} of two tiles (dims of size 1 repeat), or tile and number."
    function.nki_op = name              # type: ignore[attr-defined]
    return function


for _name in ("add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "mod",
              "fmod", "bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift",
              "equal", "not_equal", "greater", "greater_equal", "less", "less_equal",
              "logical_and", "logical_or", "logical_xor"):
    globals()[_name] = _binary_function(_name)


def _reduction(name: str, op: str) -> Any:
    def function(x: Any, axis: Any = None, *, dtype: Any = None, mask: Any = None,
                 keepdims: bool = False, **kwargs: Any) -> Tensor:
        m = machine(f"nl.{name}")
        m.flush()
        if axis is None:
            raise fail("NKI-S10", f"nl.{name} needs an axis", limit="free axes: 1 .. rank-1",
                       hint=f"nl.{name}(x, axis=1)")
        return lower.reduce(m, op, x, axis, dtype, mask, keepdims)
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return the {name} over free axes of a tile."
    function.nki_op = op                # type: ignore[attr-defined]
    return function


for _name, _op in (("sum", "add"), ("max", "maximum"), ("min", "minimum"), ("prod", "multiply"),
                   ("all", "logical_and")):
    globals()[_name] = _reduction(_name, _op)


def loop_reduce(x: Any, op: Any, loop_indices: Any, *, dtype: Any = None, mask: Any = None,
                **kwargs: Any) -> lower.LoopReduce:
    """Reduce over a loop: `acc[...] = nl.loop_reduce(x, op, [i])` is acc = op(acc, x)."""
    machine("nl.loop_reduce").flush()
    return lower.LoopReduce(x, op, loop_indices, dtype, mask)


def mean(x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False,
         **kwargs: Any) -> Tensor:
    """Return the mean over free axes of a tile."""
    m = machine("nl.mean")
    m.flush()
    return lower.mean(m, x, axis, dtype, mask, keepdims)


def var(x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Tensor:
    """Return the variance over free axes of a tile."""
    m = machine("nl.var")
    m.flush()
    return lower.var(m, x, axis, dtype, mask)


def softmax(x: Any, axis: Any, *, dtype: Any = None, compute_dtype: Any = None, mask: Any = None,
            **kwargs: Any) -> Tensor:
    """Return the softmax over free axes of a tile."""
    m = machine("nl.softmax")
    m.flush()
    return lower.softmax(m, x, axis, dtype, compute_dtype, mask)


def rms_norm(x: Any, w: Any, axis: Any, n: Any, epsilon: float = 1e-6, *, dtype: Any = None,
             compute_dtype: Any = None, mask: Any = None, **kwargs: Any) -> Tensor:
    """Return x * w / sqrt(sum(x^2) / n + epsilon) over free axes."""
    m = machine("nl.rms_norm")
    m.flush()
    return lower.rms_norm(m, x, w, axis, n, epsilon, dtype, compute_dtype, mask)


def matmul(x: Any, y: Any, *, transpose_x: bool = False, mask: Any = None, **kwargs: Any
           ) -> Tensor:
    """Return x @ y in PSUM: x (M, K), or (K, M) with transpose_x; y (K, N)."""
    m = machine("nl.matmul")
    m.flush()
    return lower.matmul(m, x, y, transpose_x, mask)


def transpose(x: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Tensor:
    """Transpose a 2-D tile of up to 128 x 128."""
    m = machine("nl.transpose")
    m.flush()
    t = m.tile(x, "x")
    if len(t.shape) != 2:
        raise fail("NKI-S12", "nl.transpose takes a 2-D tile", given=f"shape {t.shape}",
                   limit="rank 2", hint="reshape the free dims to one first")
    return lower.transpose(m, t, 0, dtype, mask)


def copy(src: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Tensor:
    """Copy a tile into a new SBUF tile."""
    m = machine("nl.copy")
    m.flush()
    return lower.copy(m, src, dtype, mask)


copy.nki_op = "copy"                    # type: ignore[attr-defined]


def static_cast(input_data: Any, dtype: Any) -> Tensor:
    """Copy a tile into another dtype; outside of kernels, cast a NumPy array."""
    if isinstance(input_data, np.ndarray):
        a = input_data.astype(np.float32) if input_data.dtype.itemsize == 8 else input_data
        return dtypes.cast(a, dtypes.normalize(dtype))      # type: ignore[return-value]
    m = machine("nl.static_cast")
    m.flush()
    return lower.copy(m, input_data, dtype)


def where(condition: Any, x: Any, y: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any
          ) -> Tensor:
    """Return x where the condition is not zero, else y."""
    m = machine("nl.where")
    m.flush()
    return lower.where(m, condition, x, y, dtype, mask)


def dropout(x: Any, rate: Any, *, dtype: Any = None, mask: Any = None, **kwargs: Any) -> Tensor:
    """Replace elements by zero with probability `rate`; kept elements are not rescaled."""
    return rng.dropout(x, rate, dtype=dtype, mask=mask)


def __getattr__(name: str) -> Any:
    """Say that a name of the SDK is not modelled, or that it does not exist."""
    from .missing import missing
    raise missing("nl", name, globals())


_ = as_int, constants, tile_size, hbm, private_hbm, psum, shared_hbm     # re-exported names
