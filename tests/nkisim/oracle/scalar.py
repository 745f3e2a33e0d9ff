"""Scalar Engine: activation functions (nki.isa.activation, "Supported Activation Functions")."""

from __future__ import annotations

import math

import numpy as np

from .common import Expected, cast, column, column_of, f32, selected


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _cdf(x: float) -> float:
    return (1 + math.erf(x / math.sqrt(2))) / 2


def _softplus(x: float) -> float:
    return math.log1p(math.exp(x))


FUNCTIONS = {
    "copy": lambda x: x,
    "square": lambda x: x * x,
    "relu": lambda x: max(x, 0.0),
    "abs": abs,
    "sign": lambda x: (x > 0) - (x < 0),
    "sigmoid": _sigmoid,
    "gelu": lambda x: x * _cdf(x),
    "gelu_dx": lambda x: _cdf(x) + x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi),
    "gelu_apprx_tanh": lambda x: (
        x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    ),
    "gelu_apprx_sigmoid": lambda x: x * _sigmoid(1.702 * x),
    "silu": lambda x: x * _sigmoid(x),
    "silu_dx": lambda x: _sigmoid(x) * (1 + x * (1 - _sigmoid(x))),
    "tanh": math.tanh,
    "softplus": _softplus,
    "mish": lambda x: x * math.tanh(_softplus(x)),
    "erf": math.erf,
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * math.exp(-x * x),
    "exp": math.exp,
    "log": math.log,
    "sin": math.sin,
    "arctan": math.atan,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "reciprocal": lambda x: 1 / x,
}
POSITIVE = ("log", "sqrt", "rsqrt", "reciprocal")  # valid for positive inputs only, or not 0
SMALL = ("arctan",)  # valid within [-pi/2, pi/2]
EXACT = ("copy", "square", "relu", "abs", "sign")


def activation(
    op,
    data,
    *,
    bias=None,
    scale=1.0,
    reduce_op=None,
    reduce_res=None,
    reduce_cmd="idle",
    mask,
    dtype=None,
):
    """op(data * scale + bias), and the sum of the results of this call in reduce_res."""
    x = f32(data) * f32(column(scale, data))
    if bias is not None:
        x = x + f32(column(bias, data))
    value = np.zeros(x.shape, np.float64)
    for at in np.ndindex(*x.shape):
        if mask[at]:
            value[at] = FUNCTIONS[op](float(x[at]))
    rtol = 0.0 if op in EXACT else 2e-5
    out = {"": Expected(cast(value, dtype or data.dtype), mask, rtol)}
    if reduce_res is not None:
        assert reduce_cmd == "reset_reduce", "what the registers held before is another test"
        sums = [selected(value, mask, p).sum() for p in range(data.shape[0])]
        out["reduce_res"] = column_of(sums, mask, reduce_res, rtol)
    return out


def activation_reduce(op, data, *, reduce_op, reduce_res, bias=None, scale=1.0, mask, dtype=None):
    """ "Equivalent to calling nisa.activation with reset_reduce and passing in reduce_res"."""
    return activation(
        op,
        data,
        bias=bias,
        scale=scale,
        reduce_op=reduce_op,
        reduce_res=reduce_res,
        reduce_cmd="reset_reduce",
        mask=mask,
        dtype=dtype,
    )
