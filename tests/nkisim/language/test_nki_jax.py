"""Kernels called with JAX arrays give JAX arrays; skipped where JAX is not installed."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest


@pytest.fixture(scope="module")
def jax():
    return pytest.importorskip("jax")


@nki.jit
def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=t)
    return out


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_jax_arrays_in_and_out(jax, dtype):
    x = jax.numpy.arange(128 * 8, dtype=dtype).reshape(128, 8)
    for y in (double(x), nki.simulate(double)(x)):
        assert isinstance(y, jax.Array) and y.dtype == x.dtype
        assert np.array_equal(np.asarray(y), np.asarray(2 * x))


def test_dtypes_of_jax_are_taken(jax):
    def kernel(x, dtype):
        out = nl.ndarray(x.shape, dtype=dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=x)
        return out

    y = nki.simulate(kernel)(np.ones((4, 4), np.float32), jax.numpy.bfloat16)
    assert str(y.dtype) == "bfloat16"


def test_a_kernel_is_a_part_of_a_jitted_program(jax):
    @jax.jit
    def program(x):
        return double(jax.numpy.exp(x)) + 1

    x = jax.numpy.linspace(-1, 1, 128 * 8).reshape(128, 8)
    for k in (x, x + 1):
        np.testing.assert_allclose(program(k), 2 * np.exp(k) + 1, rtol=1e-5)
