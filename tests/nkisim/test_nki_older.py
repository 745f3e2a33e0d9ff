"""Kernels of NKI 0.1 and 0.2: what 0.3 changed in a call means what it did, if it is asked for."""
from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim import NkiError
from nkisim.lint.level import VERSION_VARIABLE

X = np.random.default_rng(0).standard_normal((32, 4, 6)).astype(np.float32)


def tile(*shape, dtype=nl.float32, buffer=nl.sbuf):
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


def stored(t):
    out = tile(*t.shape, dtype=t.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=t)
    return out


@nki.jit
def sums(x, axis=1):
    t, total = tile(32, 4, 6), tile(32, 4 if axis == 1 else 1)
    nisa.dma_copy(dst=t, src=x)
    nisa.tensor_reduce(dst=total, op=nl.add, data=t, axis=axis)
    return stored(total)


@nki.jit
def seven():
    t = tile(32, 4, dtype=nl.int32)
    nisa.memset(t, 7.0)
    return stored(t)


@nki.jit
def added(x):
    t, total = tile(32, 24), tile(32, 24)
    nisa.dma_copy(t, x.reshape((32, 24)), None)
    nisa.dma_compute(total, [t, t], [1.0, 1.0], nl.add)
    return stored(total)


@nki.jit
def triangle(x):
    t, low = tile(32, 24), tile(32, 24)
    nisa.dma_copy(dst=t, src=x.reshape((32, 24)))
    nisa.affine_select(low, [[-1, 24]], 0, 1, t, 0.0, nl.greater_equal)
    return stored(low)


@nki.jit
def out_of_psum(x):
    t, product = tile(32, 24), tile(24, 24, buffer=nl.psum)
    nisa.dma_copy(dst=t, src=x.reshape((32, 24)))
    nisa.nc_matmul(product, t, t)
    out = tile(24, 24, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=product)
    return out


@nki.jit
def copied(x, dtype=nl.float32):
    t, again = tile(32, 24), tile(32, 24)
    nisa.dma_copy(dst=t, src=x.reshape((32, 24)))
    nisa.tensor_copy(dst=again, src=t, dtype=dtype)
    return stored(again)


@nki.jit
def exchanged(x):
    out = tile(2, 32, 24, buffer=nl.shared_hbm)
    me, t, other = nl.program_id(0), tile(32, 24), tile(32, 24)
    nisa.dma_copy(dst=t, src=x.reshape((32, 24)))
    nisa.sendrecv(src=t, dst=other, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0,
                  use_gpsimd_dma=True)
    nisa.dma_copy(dst=out[me], src=other)
    return out


FLAT = X.reshape(32, 24)
#: kernel, arguments, what it returned in 0.2
KERNELS = [
    (sums, (X,), X.sum(2)), (sums, (X, [1, 2]), X.sum((1, 2))[:, None]),
    (seven, (), np.full((32, 4), 7)), (added, (X,), 2 * FLAT),
    (triangle, (X,), np.tril(FLAT)), (out_of_psum, (X,), FLAT.T @ FLAT),
    (exchanged[2], (X,), np.stack([FLAT, FLAT])), (copied, (X,), FLAT),
]


@pytest.mark.parametrize("version", ["0.1", "0.2"])
@pytest.mark.parametrize("kernel, args, right", KERNELS, ids=range(len(KERNELS)))
def test_a_call_means_what_it_did(monkeypatch, kernel, args, right, version):
    monkeypatch.setenv(VERSION_VARIABLE, version)
    np.testing.assert_allclose(nkisim.simulate(kernel, *args), right, rtol=1e-5, atol=1e-5)
    assert nkisim.profile(kernel, *args, compute=False).latency_us > 0


@pytest.mark.parametrize("kernel, args", [(sums, (X,)), (seven, ()), (out_of_psum, (X,))])
def test_today_it_is_refused_and_the_version_named(kernel, args):
    with pytest.raises(NkiError, match="NKI_LANGUAGE_VERSION=0.2"):
        nkisim.run(kernel, *args)
    with pytest.raises(NkiError):
        nkisim.run(added, X)


def test_what_every_release_refuses_is_refused(monkeypatch):
    monkeypatch.setenv(VERSION_VARIABLE, "0.2")

    @nki.jit
    def kernel():
        t = tile(32, 4, dtype=nl.int32)
        nisa.memset(t, 0.5)
        return stored(t)
    with pytest.raises(NkiError, match="NKI-N07"):
        nkisim.run(kernel)


@pytest.mark.parametrize("dtype", [nl.bfloat16, "float", 3])
def test_a_dtype_that_dst_does_not_have_is_refused(monkeypatch, dtype):
    with pytest.raises(NkiError, match="NKI-N01"):
        nkisim.run(copied, X)                               # today whatever it is
    monkeypatch.setenv(VERSION_VARIABLE, "0.2")
    with pytest.raises(NkiError, match="NKI-N01"):
        nkisim.run(copied, X, dtype)


def test_programs_outside_of_kernels(monkeypatch):
    """Names for a parser said nothing there; today it is an error."""
    for ask in (nl.program_ndim, nl.num_programs, nl.program_id):
        with pytest.raises(NkiError, match="NKI-K01"):
            ask()
    monkeypatch.setenv(VERSION_VARIABLE, "0.2")
    assert (nl.program_ndim(), nl.num_programs(axes=0), nl.program_id(0)) == (None, None, None)


def test_a_partition_dim_that_is_marked(monkeypatch):
    @nki.jit
    def kernel(x):
        t = tile(nl.par_dim(32), 24)
        nisa.dma_copy(dst=t, src=x.reshape((32, 24)))
        return stored(t)
    with pytest.raises(AttributeError, match="list of tiles.*NKI_LANGUAGE_VERSION=0.2"):
        nkisim.run(kernel, X)
    monkeypatch.setenv(VERSION_VARIABLE, "0.2")
    assert np.array_equal(nkisim.simulate(kernel, X), FLAT)
