"""One instruction, TIMES times, each result used: a chain, or columns of the output."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

TIMES = 16


@nki.jit
def copy(a):
    """Load and store, once."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(a))
    return out


@nki.jit
def copy_rows(a):
    """Load and store TIMES pieces, which pipeline."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    width = a.shape[1] // TIMES
    for i in nl.affine_range(TIMES):
        nl.store(out[:, i * width : (i + 1) * width], nl.load(a[:, i * width : (i + 1) * width]))
    return out


@nki.jit
def tensor_tensor(a):
    """Vector Engine, two inputs, a chain: the latency of each counts."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.load(a)
    for _ in range(TIMES):
        x = nisa.tensor_tensor(x, x, op=nl.maximum)
    nl.store(out, x)
    return out


@nki.jit
def tensor_scalar(a):
    """Vector Engine, one input and a number, a chain."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.load(a)
    for _ in range(TIMES):
        x = nisa.tensor_scalar(x, op0=nl.add, operand0=1.0)
    nl.store(out, x)
    return out


@nki.jit
def tensor_copy(a):
    """Vector Engine, copies, a chain."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.load(a)
    for _ in range(TIMES):
        x = nisa.tensor_copy(x, engine=nisa.vector_engine)
    nl.store(out, x)
    return out


@nki.jit
def tensor_reduce(a):
    """Vector Engine, sums along the free axis, next to each other."""
    out = nl.ndarray((a.shape[0], TIMES), dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.load(a)
    sums = nl.ndarray((a.shape[0], TIMES), dtype=a.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(TIMES):
        sums[:, i : i + 1] = nisa.tensor_reduce(nl.add, x, axis=(1,), keepdims=True)
    nl.store(out, sums)
    return out


@nki.jit
def reciprocal(a):
    """Vector Engine, reciprocals, a chain of an even number: the input comes back."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.load(a)
    for _ in range(TIMES):
        x = nisa.reciprocal(x)
    nl.store(out, x)
    return out


@nki.jit
def activation(a):
    """Scalar Engine, a function that interpolates in a table, a chain."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.load(a)
    for _ in range(TIMES):
        x = nisa.activation(nl.tanh, x)
    nl.store(out, x)
    return out


@nki.jit
def matmul(w, x):
    """Tensor Engine, products that add up in PSUM."""
    out = nl.ndarray((w.shape[1], x.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    stationary, moving = nl.load(w), nl.load(x)
    product = nl.zeros((w.shape[1], x.shape[1]), dtype=nl.float32, buffer=nl.psum)
    for _ in nl.affine_range(TIMES):
        product += nisa.nc_matmul(stationary, moving)
    nl.store(out, nisa.tensor_copy(product))
    return out


@nki.jit
def transpose(a):
    """Tensor Engine, transposes, there and back."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.load(a)
    for _ in range(TIMES):
        x = nisa.tensor_copy(nisa.nc_transpose(x, engine=nisa.tensor_engine))
    nl.store(out, x)
    return out
