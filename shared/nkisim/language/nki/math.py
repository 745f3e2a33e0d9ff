"""Functions of `nl` that return a new tile: elementwise, reductions, matmul; markers for ops."""

from __future__ import annotations

from typing import Any

from ...chip import dtypes, ops
from ...chip.memory import PSUM
from ...errors import fail
from ...isa import dve, lower, rng
from ...isa.operands import is_scalar
from ...machine.interface import Machine
from ...machine.tensor import Tensor
from .call import public
from .names import NAMES
from .views import settled

FUNCTIONS: dict[str, Any] = {}


def _tile(m: Machine, x: Any) -> Any:
    return x if is_scalar(x) else settled(m, x)


def _dtype(dtype: Any, *tiles: Any) -> Any:
    """Return the dtype of a result: as asked, else that of the first tile."""
    if dtype is not None:
        dt = dtypes.normalize(dtype)
        return dtypes.UINT8 if dt == dtypes.BOOL else dt
    return next((t.dtype for t in tiles if isinstance(t, Tensor)), None)


def _add(plan: Any, name: str, op: str = "") -> None:
    function = public(plan, name)
    function.nki_op = op or name
    FUNCTIONS[name] = function


def _unary(name: str) -> None:
    def plan(m: Machine, x: Any, dtype: Any = None) -> Tensor:
        t = _tile(m, x)
        if name == "rsqrt" and getattr(t, "memory", None) is PSUM:
            raise fail(
                "NKI-M01",
                "nl.rsqrt of a tile in PSUM",
                given=f"{t!r}",
                limit="since 0.5 nl.rsqrt reads SBUF",
                hint="nl.copy the tile first, or nisa.activation(dst, nl.rsqrt, tile)",
            )
        if name == "sin":  # unlike nisa.activation(op=nl.sin), it has no range
            dtype = _dtype(dtype, t)
            t = dve.tensor_unary(t, "reduced_angle", dtype=dtypes.FLOAT32)
        return lower.unary(m, name, t, _dtype(dtype, t))

    plan.__doc__ = f"Return {name} of each element of a tile."
    _add(plan, name)


def _binary(name: str) -> None:
    def plan(m: Machine, x: Any, y: Any, dtype: Any = None) -> Tensor:
        a, b = _tile(m, x), _tile(m, y)
        return lower.binary(m, name, a, b, _dtype(dtype, a, b))

    plan.__doc__ = f"Return {name} of two tiles (dims of size 1 repeat), or tile and number."
    _add(plan, name)


def _reduction(name: str, op: str) -> None:
    def plan(m: Machine, x: Any, axis: Any, dtype: Any = None, keepdims: bool = False) -> Tensor:
        t = _tile(m, x)
        return lower.reduce(m, op, t, axis, _dtype(dtype, t), None, keepdims)

    plan.__doc__ = f"Return the {name} over free axes of a tile."
    _add(plan, name, op)


_of_one, _of_two = ops.elementwise(NAMES["nl"])
for _name in _of_one:
    _unary(_name)
for _name in _of_two:
    _binary(_name)
for _name, _op in (("sum", "add"), ("max", "maximum"), ("min", "minimum"), ("prod", "multiply")):
    _reduction(_name, _op)


def _all(m: Machine, x: Any, axis: Any, dtype: Any = None) -> Tensor:
    """Return whether all elements over free axes are not zero: 1 or 0."""
    t = _tile(m, x)
    return lower.reduce(m, "logical_and", t, axis, _dtype(dtype, t))


def _mean(m: Machine, x: Any, axis: Any, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Return the mean over free axes of a tile."""
    t = _tile(m, x)
    return lower.mean(m, t, axis, _dtype(dtype, t), None, keepdims)


def _var(m: Machine, x: Any, axis: Any, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Return the variance over free axes of a tile; the dims are kept, whatever keepdims says."""
    t = _tile(m, x)
    out = lower.var(m, t, axis, _dtype(dtype, t)).settle()
    axes = {a % len(t.shape) for a in (axis if isinstance(axis, (tuple, list)) else (axis,))}
    return out.reshape(tuple(1 if d in axes else n for d, n in enumerate(t.shape)))


def _softmax(m: Machine, x: Any, axis: Any = -1, dtype: Any = None) -> Tensor:
    """Return the softmax over free axes of a tile."""
    t = _tile(m, x)
    return lower.softmax(m, t, axis, _dtype(dtype, t))


def _rms_norm(
    m: Machine,
    x: Any,
    w: Any,
    axis: Any,
    n: Any,
    epsilon: float = 1e-6,
    dtype: Any = None,
    compute_dtype: Any = None,
) -> Tensor:
    """Return x * w / sqrt(sum(x^2) / n + epsilon) over free axes."""
    t = _tile(m, x)
    return lower.rms_norm(m, t, _tile(m, w), axis, n, epsilon, _dtype(dtype, t))


def _where(m: Machine, condition: Any, x: Any, y: Any, dtype: Any = None) -> Tensor:
    """Return x where the condition (1.0 or 0.0) is not zero, else y."""
    a, b = _tile(m, x), _tile(m, y)
    return lower.where(m, _tile(m, condition), a, b, _dtype(dtype, a, b))


def _dropout(m: Machine, x: Any, rate: Any, dtype: Any = None) -> Tensor:
    """Replace elements by zero with probability `rate`; kept elements are not rescaled."""
    t = _tile(m, x)
    return rng.dropout(t, rate, dtype=_dtype(dtype, t))


def _matmul(m: Machine, x: Any, y: Any, transpose_x: bool = False) -> Tensor:
    """Return x @ y in PSUM: x (M, K), or (K, M) with transpose_x; y (K, N)."""
    return lower.matmul(m, _tile(m, x), _tile(m, y), transpose_x)


def _transpose(m: Machine, x: Any, dtype: Any = None) -> Tensor:
    """Transpose a 2-D tile of up to 128 x 128, into PSUM."""
    t = m.tile(_tile(m, x), "x")
    if len(t.shape) != 2:
        raise fail(
            "NKI-S12",
            "nl.transpose takes a 2-D tile",
            given=f"shape {t.shape}",
            limit="rank 2",
            hint="reshape the free dims to one first",
        )
    return lower.transpose(m, t, 0, dtype)


for _name, _plan in (
    ("all", _all),
    ("mean", _mean),
    ("var", _var),
    ("softmax", _softmax),
    ("rms_norm", _rms_norm),
    ("where", _where),
    ("dropout", _dropout),
    ("matmul", _matmul),
    ("transpose", _transpose),
):
    FUNCTIONS[_name] = public(_plan, _name)
FUNCTIONS["all"].nki_op = "logical_and"


class _Marker:
    """An operator that only instructions have, named for `op=`."""

    def __init__(self, name: str):
        self.nki_op, self.__name__ = name, name

    def __repr__(self) -> str:
        return f"nl.{self.nki_op}"


for _name in ("average", "prelu", "bypass"):
    FUNCTIONS[_name] = _Marker(_name)
