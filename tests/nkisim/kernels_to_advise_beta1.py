"""Kernels of beta 1 that lose time in one way, each with what it is after the advice.

`JOBS` is as in kernels_to_advise.py, by cause.
"""

from __future__ import annotations

from typing import Any

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

from kernels_to_advise import P, half, zeros


def doubled(width):
    """Return twice a matrix, so many columns at a time."""

    @nki.jit
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(a.shape[1] // width):
            x = nl.load(a[:, i * width : (i + 1) * width])
            nl.store(out[:, i * width : (i + 1) * width], value=nl.multiply(x, 2.0))
        return out

    return kernel


def summing(at_once):
    """Return the sums of exp of tiles, by two instructions each or by one."""

    @nki.jit
    def kernel(a):
        out = nl.ndarray((P, a.shape[0]), dtype=nl.float32, buffer=nl.shared_hbm)
        sums = nl.ndarray((P, a.shape[0]), dtype=nl.float32, buffer=nl.sbuf)
        for i in nl.affine_range(a.shape[0]):
            x = nl.load(a[i])
            if at_once:
                total = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
                nisa.activation_reduce(
                    np.exp, x, reduce_op=np.add, reduce_res=total, dtype=nl.float32
                )
                sums[:, i : i + 1] = nl.copy(total)
            else:
                y = nisa.activation(np.exp, x, dtype=nl.float32)
                sums[:, i : i + 1] = nisa.tensor_reduce(np.add, y, axis=[1])  # separate-sums
        nl.store(out, value=sums)
        return out

    return kernel


def products(short):
    """Return sixteen times a product, of the operands as they are or of bfloat16."""

    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((P, b.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
        x = nl.load(a)
        if short:
            x = nl.copy(x, dtype=nl.bfloat16)
        for j in nl.affine_range(b.shape[1] // 512):
            w = nl.load(b[:, j * 512 : (j + 1) * 512])
            if short:
                w = nl.copy(w, dtype=nl.bfloat16)
            acc = nl.zeros((P, 512), dtype=nl.float32, buffer=nl.psum)
            for _ in nl.affine_range(16):
                acc += nisa.nc_matmul(x, w)  # fp32-passes
            nl.store(out[:, j * 512 : (j + 1) * 512], value=nl.copy(acc))
        return out

    return kernel


@nki.jit
def summed(a):
    """Return a chain of additions."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.load(a)
    for _ in nl.static_range(40):
        x = nl.add(x, 1.0)  # idle-lanes
    nl.store(out, value=x)
    return out


NARROW, WIDE, SMALL = doubled(32), doubled(1024), zeros(P, 8192)
#: cause: (kernel, arguments, kernel after the advice, its arguments, options)
JOBS: dict[str, tuple[Any, tuple, Any, tuple, dict[str, Any]]] = {
    "small-transfers": (NARROW, (SMALL,), WIDE, (SMALL,), {}),
    "separate-sums": (
        summing(False),
        (half(16, P, 2048),),
        summing(True),
        (half(16, P, 2048),),
        {},
    ),
    "fp32-passes": (
        products(False),
        (zeros(P, P), zeros(P, 4096)),
        products(True),
        (zeros(P, P), zeros(P, 4096)),
        {},
    ),
    "idle-lanes": (summed, (zeros(16, 4096),), summed, (zeros(P, 512),), {}),
}
