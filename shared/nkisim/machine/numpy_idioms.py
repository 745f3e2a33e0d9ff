"""What people of NumPy and PyTorch write on tiles, and what NKI has for it.

A kernel is traced before any data is there, so no tile has values that Python or NumPy could work
with: each operation is a call of `nl` or `nisa`.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from ..chip import ops
from ..chip.memory import HBM
from ..errors import NkiError, fail
from . import source_text

#: what is said behind a tile that is printed
VALUES = "nl.device_print('t', t) shows the values"
#: how calls begin that read tiles on chip, not tensors in HBM
ON_CHIP = ("nl.", "nisa.")
#: what `nl` calls functions that NumPy or PyTorch name otherwise
_OTHER_NAMES = {
    "true_divide": "divide",
    "div": "divide",
    "plus": "add",
    "minus": "subtract",
    "sub": "subtract",
    "times": "multiply",
    "mul": "multiply",
    "absolute": "abs",
    "pow": "power",
    "remainder": "mod",
    "fmod": "mod",
    "neg": "negative",
    "clone": "copy",
    "dot": "matmul",
    "mm": "matmul",
    "bmm": "matmul",
    "einsum": "matmul",
    "amax": "max",
    "amin": "min",
    "average": "mean",
    "swapaxes": "transpose",
    "permute": "transpose",
    "t": "transpose",
    "greater_than": "greater",
    "less_than": "less",
    "inverse": "reciprocal",
    "empty": "ndarray",
    "full_like": "full",
    "tensor_load": "load",
    "tensor_store": "store",
}
#: functions of nl whose names NumPy or PyTorch has as well
_SAME_NAMES = frozenset(
    "all full load matmul max mean min ndarray ones prod softmax store sum transpose var where "
    "zeros zeros_like".split()
) | ({*ops.ACTIVATIONS, *ops.ALU} - {"abs_max", "abs_min", "fmod", "reduced_angle"})
_REDUCTIONS = frozenset(("max", "min", "sum", "mean", "prod", "all", "var"))
#: the reduction that an operator makes
REDUCERS = {
    "add": "sum",
    "maximum": "max",
    "minimum": "min",
    "multiply": "prod",
    "logical_and": "all",
}
#: what to write in the package nki, whose compiler refuses the plain call
NKI_IDIOMS = {
    "divide": "nl.multiply(t, nl.reciprocal(u)), since no engine divides",
    "mod": "nl.bitwise_and(t, 2**k - 1) for integers, since no engine has remainders",
    "matmul": "nl.matmul(t, u, transpose_x=True), whose t has the contracted dim first",
    "power": "nisa.tensor_scalar(dst, t, op0=nl.power, operand0=number)",
}
#: attributes that are no functions of nl: what to do instead
_ATTRIBUTES = {
    "T": "nl.transpose(t), or nisa.nc_transpose(t) for up to 128 x 128",
    "mT": "nl.transpose(t), or nisa.nc_transpose(t) for up to 128 x 128",
    "flatten": "t.reshape((partitions, elements of a partition))",
    "ravel": "t.reshape((partitions, elements of a partition))",
    "view_as": "t.reshape(shape)",
    "squeeze": "t.reshape(shape)",
    "unsqueeze": "t.expand_dims(axis)",
    "expand": "t.broadcast_to(shape)",
    "repeat": "t.broadcast_to(shape)",
    "tile": "t.broadcast_to(shape)",
    "clip": "nl.minimum(nl.maximum(t, low), high)",
    "clamp": "nl.minimum(nl.maximum(t, low), high)",
    "to": "nl.copy(t, dtype=...)",
    "type": "nl.copy(t, dtype=...)",
    "float": "nl.copy(t, dtype=nl.float32)",
    "half": "nl.copy(t, dtype=nl.float16)",
    "bfloat16": "nl.copy(t, dtype=nl.bfloat16)",
    "int": "nl.copy(t, dtype=nl.int32)",
    "argmax": "nisa.max8 and nisa.nc_find_index8",
    "sort": "nisa.max8, eight values at a time",
    "fill": "t[...] = value",
    "fill_": "t[...] = value",
    **dict.fromkeys(
        ("item", "tolist", "numpy", "cpu", "detach", "data"), f"{VALUES} as the kernel runs"
    ),
}
#: a scalar of NumPy's on the left asks the function, not the operator
_REFLECTED = {
    **{getattr(np, op.name): f"__r{op.method}__" for op in ops.ARITHMETIC},
    np.less: "__gt__",
    np.less_equal: "__ge__",
    np.greater: "__lt__",
    np.greater_equal: "__le__",
    np.equal: "__eq__",
    np.not_equal: "__ne__",
}


class NkiAttributeError(NkiError, AttributeError):  # type: ignore[misc]  # both name a `name`
    """A tensor has no such attribute; `hasattr` and `getattr` with a default still work."""


def nl_name(name: str) -> str:
    """Return the function of nl for what NumPy or PyTorch call `name`, or ""."""
    name = _OTHER_NAMES.get(name, name)
    return name if name in _SAME_NAMES else ""


#: what people ask a tensor for, and it does not have
METHODS = sorted(
    {*_ATTRIBUTES, *_OTHER_NAMES, *_SAME_NAMES}
    - {
        "empty",
        "ndarray",
        "full",
        "zeros",
        "ones",
        "zeros_like",
        "full_like",
        "load",
        "store",
        "tensor_load",
        "tensor_store",
    }
)


def no_method(name: str, hints: Mapping[str, str] = MappingProxyType({})) -> property:
    """Return the property that says what to write instead of `t.name`; `hints` of a dialect."""
    remedy = hints.get(name) or _ATTRIBUTES.get(name)
    hint, nki_hint = remedy or _call(nl_name(name)), remedy or _call(nl_name(name), NKI_IDIOMS)

    def missing(t: Any) -> Any:
        far = getattr(getattr(t, "_t", t), "memory", "") is HBM
        cure, nki_cure = (
            f"load a tile first, and work on it: {one}" if far and one.startswith(ON_CHIP) else one
            for one in (hint, nki_hint)
        )
        raise NkiAttributeError("NKI-K14", f"a tensor has no .{name}", hint=cure, nki_hint=nki_cure)

    return property(missing)


def _call(name: str, calls: Mapping[str, str] = MappingProxyType({})) -> str:
    if not name or name in calls:
        return calls.get(name, "")
    kept = ", keepdims=True" if name not in ("all", "var") else ""
    return f"nl.{name}(t, axis=1{kept})" if name in _REDUCTIONS else f"nl.{name}(t)"


def numpy_function(ufunc: Any, method: str, inputs: tuple, kwargs: dict) -> Any:
    """Do what NumPy asks a tensor for: scalar op tensor; raise for a function on a tensor."""
    reflected = _REFLECTED.get(ufunc)
    if (
        method == "__call__"
        and reflected
        and not kwargs
        and len(inputs) == 2
        and isinstance(inputs[0], (np.generic, np.ndarray))
    ):
        return getattr(inputs[1], reflected)(inputs[0])  # np.float32(2) * t
    name = ufunc.__name__
    if method == "reduce":
        name = REDUCERS.get(name, name)
    raise _on_a_tile(f"np.{name}", nl_name(name), ufunc.nin if method == "__call__" else 1)


def _on_a_tile(what: str, name: str, operands: int) -> NkiError:
    calls = source_text.calls(what)
    given = (
        ", ".join(ast.unparse(argument) for argument in calls[0].args)
        if len(calls) == 1
        else "a, b"
    )
    two = f"nl.{name}({given})" if operands > 1 else ""
    call, nki_hint = two or _call(name), NKI_IDIOMS.get(name) or two or _call(name, NKI_IDIOMS)
    raise fail(
        "NKI-K14",
        f"{what} is called on a tile",
        hint=f"{call} makes the instruction" if name else "look for the operation in nl and nisa",
        nki_hint=f"{nki_hint} makes the instruction" if name else "",
    )


def no_value(what: str) -> NkiError:
    """Return the error for asking a tile for its values, as math.exp(t) does."""
    for name in sorted(_SAME_NAMES & {*vars(math)}) if what.startswith("float(") else ():
        if any(ast.unparse(c.func) == f"math.{name}" for c in source_text.calls(name)):
            return _on_a_tile(f"math.{name}", name, 1)
    return fail(
        "NKI-K14",
        f"{what} asks a tile for its values",
        hint="keep it on the chip: a (partitions, 1) tile is an operand like a number; "
        "nl.device_print shows values as the kernel runs",
    )


def formatted(t: Any, how: str) -> str:
    """Return what f"{t}" shows; raise for a format such as .2f, which would need values."""
    if how:
        raise no_value(f"the format {how!r} of an f-string")
    return repr(t)
