"""NKI_PRECISE_FP=0: low-precision tensors keep float32 values; the record stays what it is."""

from __future__ import annotations

import ml_dtypes
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from neuronxcc import nki

import nkisim
from nkisim.chip import dtypes

BF16 = ml_dtypes.bfloat16
X = np.random.default_rng(0).random((128, 64), dtype=np.float32) + 1
LOW = [nl.bfloat16, nl.float16, nl.float8_e4m3, nl.float8_e5m2, nl.tfloat32]


@pytest.fixture
def wide(monkeypatch):
    """Switch between 0 (wide) and 1."""

    def switch(on):
        monkeypatch.setenv("NKI_PRECISE_FP", "0" if on else "1")

    switch(True)
    return switch


def run(body, *args, dtype=np.float32, shape=None):
    """Return the run of a kernel that stores body(tile of x, ...) in an output of `dtype`."""

    @nki.jit
    def kernel(x):
        got = body(nl.load(x), *args)
        out = nl.ndarray(shape or got.shape, dtype=dtype, buffer=nl.shared_hbm)
        nl.store(out, value=got)
        return out

    return nkisim.run(kernel, X)


def ids(dtype):
    return dtypes.name(dtype)


@pytest.mark.parametrize("dtype", LOW, ids=ids)
def test_values_are_not_rounded(dtype, wide):
    def body(t):
        return nl.copy(nl.multiply(nl.copy(t, dtype=dtype), 1.0001, dtype=dtype), dtype=nl.float32)

    exact = X * np.float32(1.0001)
    np.testing.assert_array_equal(run(body).outputs, exact)
    wide(False)
    assert (run(body).outputs != exact).mean() > 0.5


def test_constants_are_not_rounded_either(wide):
    def body(t):
        c = nl.full((128, 64), 0.1, nl.bfloat16)
        c[:, 0:1] = 0.3
        return nl.copy(c, dtype=nl.float32)

    got = run(body).outputs
    assert (got[:, 1:] == np.float32(0.1)).all() and (got[:, 0] == np.float32(0.3)).all()


def test_a_chain_of_bfloat16_is_the_float32_result(wide):
    """A softmax, a transpose and a matmul in bfloat16: what a float32 reference gives."""

    def body(t):
        low = nl.copy(t, dtype=nl.bfloat16)
        p = nl.softmax(low, axis=1, dtype=nl.bfloat16)
        pt = nl.copy(nisa.nc_transpose(p), dtype=nl.bfloat16)
        acc = nl.zeros((128, 128), np.float32, buffer=nl.psum)
        for k in nl.affine_range(2):
            acc += nisa.nc_matmul(pt[k * 32 : (k + 1) * 32, :], pt[k * 32 : (k + 1) * 32, :])
        return nl.copy(acc, dtype=np.float32)

    e = np.exp(X - X.max(1, keepdims=True))
    p = e / e.sum(1, keepdims=True)
    near = np.abs(run(body).outputs - p @ p.T).max()
    wide(False)
    assert near < 1e-7 < 1e-5 < np.abs(run(body).outputs - p @ p.T).max()


def test_outputs_have_their_dtype_and_are_rounded_once(wide):
    def body(t):
        return nl.multiply(nl.copy(t, dtype=nl.bfloat16), 1.0001, dtype=nl.bfloat16)

    got = run(body, dtype=nl.bfloat16).outputs
    assert got.dtype == BF16
    np.testing.assert_array_equal(got, (X * np.float32(1.0001)).astype(BF16))


def test_inputs_are_what_they_are(wide):
    x = X.astype(BF16)

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, value=nl.load(x, dtype=nl.float32))
        return out

    np.testing.assert_array_equal(nkisim.run(kernel, x).outputs, x.astype(np.float32))


def test_mutable_arguments_come_back_rounded(wide):
    @nki.jit(mode="trace")
    def kernel(x, y):
        nl.store(y, value=nl.multiply(nl.load(x), 1.0001, dtype=nl.bfloat16))

    y = np.zeros(X.shape, BF16)
    nkisim.run(kernel, X, y)
    np.testing.assert_array_equal(y, (X * np.float32(1.0001)).astype(BF16))


def test_bits_are_those_of_the_dtype_whenever_they_are_looked_at(wide):
    """A view as integers sees rounded bits; what it writes is seen as values again."""

    def body(t):
        low = nl.copy(t, dtype=nl.bfloat16)
        bits = low.view(nl.uint16)
        before = nl.copy(bits, dtype=nl.uint16)
        bits[:, 0:32] = nisa.tensor_scalar(bits[:, 0:32], np.bitwise_and, 0x7F80, dtype=nl.uint16)
        out = nl.ndarray((128, 128), np.float32)
        out[:, 0:64] = nl.copy(low, dtype=nl.float32)
        out[:, 64:128] = nl.copy(before, dtype=nl.float32)
        return out

    got = run(body).outputs
    want = X.astype(BF16)
    np.testing.assert_array_equal(got[:, 64:], want.view(np.uint16).astype(np.float32))
    want[:, :32] = (want[:, :32].view(np.uint16) & 0x7F80).view(BF16)
    np.testing.assert_array_equal(got[:, :64], want.astype(np.float32))


def test_views_share_their_values(wide):
    def body(t):
        low = nl.copy(t, dtype=nl.bfloat16)
        part = low.reshape((128, 8, 8))[:, 1, :]
        part[...] = nl.multiply(part, 3.0, dtype=nl.bfloat16)
        return nl.copy(low, dtype=nl.float32)

    want = X.copy()
    want[:, 8:16] *= 3
    np.testing.assert_array_equal(run(body).outputs, want)


def test_gathers_scatters_and_masks(wide):
    @nki.jit
    def kernel(x):
        i_p, i_f = nl.arange(64)[:, None], nl.arange(64)[None, :]
        rows = nisa.iota(127 - 2 * nl.arange(64)[:, None], dtype=nl.int32)
        low = nl.ndarray((128, 64), dtype=nl.bfloat16, buffer=nl.private_hbm)
        nl.store(low, value=nl.multiply(nl.load(x), 1.0001, dtype=nl.bfloat16))
        t = nl.load(low[rows[i_p, 0], i_f])
        back = nl.ndarray((128, 64), dtype=nl.bfloat16, buffer=nl.private_hbm)
        nl.store(back, value=nl.zeros((128, 64), nl.bfloat16))
        nl.store(back[rows[i_p, 0], i_f], value=t)
        out = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm)
        p, f = nl.mgrid[0:128, 0:64]
        tile = nl.zeros((128, 64), nl.float32)
        tile[p, f] = nl.copy(nl.load(back), dtype=nl.float32, mask=f <= p)
        nl.store(out, value=tile)
        return out

    want = X * np.float32(1.0001)
    want[0::2] = 0
    np.testing.assert_array_equal(nkisim.run(kernel, X).outputs, np.tril(want))


def test_unwritten_elements_stay_nan(wide):
    def body(t):
        low = nl.ndarray((128, 64), dtype=nl.bfloat16, buffer=nl.sbuf)
        low[:, 0:32] = nl.copy(t[:, 0:32])
        return nl.copy(low, dtype=nl.float32)

    got = run(body)
    assert np.isnan(got.outputs[:, 32:]).all() and not np.isnan(got.outputs[:, :32]).any()
    assert "NKI-U02" in {f.id for f in got.findings}


def test_the_record_is_the_same(wide):
    def body(t):
        low = nl.copy(t, dtype=nl.bfloat16)
        return nl.softmax(nl.exp(low), axis=1, dtype=nl.float16)

    records = []
    for on in (True, False):
        wide(on)
        r = run(body, dtype=nl.float16)
        records.append(
            (
                list(r.trace.rows),
                [repr(k) for k in r.trace.op_specs],
                list(r.trace.storages.data),
                r.hbm_write_bytes,
            )
        )
    assert records[0] == records[1]


def test_tensors_placed_by_the_kernel_are_rounded_and_that_is_said(wide):
    @nki.jit
    def kernel(x):
        t = nl.ndarray((128, 64), dtype=np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
        low = nl.ndarray((128, 64), dtype=nl.bfloat16, buffer=ncc.sbuf.mod_alloc(base_addr=1024))
        out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
        t[...] = nl.load(x)
        low[...] = nisa.tensor_copy(t, dtype=nl.bfloat16)
        t[...] = nisa.tensor_copy(low)
        nl.store(out, value=t)
        return out

    r = nkisim.run(kernel, X)
    np.testing.assert_array_equal(r.outputs, X.astype(BF16).astype(np.float32))
    assert [f.severity for f in r.findings if f.id == "NKI-K13"] == ["warning"]
    wide(False)
    assert "NKI-K13" not in {f.id for f in nkisim.run(kernel, X).findings}


def test_host_arrays_and_static_casts_stay_as_they_are(wide):
    def body(t):
        c = nl.load(nl.shared_constant(nl.static_cast(X, nl.bfloat16)))
        assert c.dtype == BF16
        return nl.copy(c, dtype=np.float32)

    np.testing.assert_array_equal(run(body).outputs, X.astype(BF16).astype(np.float32))


def test_the_switch_ends_with_the_launch(wide):
    run(lambda t: t)
    assert dtypes.storage(dtypes.BFLOAT16) == dtypes.BFLOAT16
    with pytest.raises(nkisim.NkiError):
        run(lambda t: nl.copy(t, dtype="no such"))
    assert dtypes.storage(dtypes.BFLOAT16) == dtypes.BFLOAT16


@pytest.mark.parametrize("value", ["false", "2", "no"])
def test_another_value_is_an_error(value, monkeypatch):
    monkeypatch.setenv("NKI_PRECISE_FP", value)
    with pytest.raises(nkisim.NkiError) as caught:
        run(lambda t: t)
    assert caught.value.id == "NKI-K13" and value in caught.value.given
