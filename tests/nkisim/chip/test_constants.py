"""Constants of the host: 64-bit integers keep their value where 32 bits can hold it."""

from __future__ import annotations

import ml_dtypes
import neuronxcc.nki.language as nl
import nki as newer
import nki.isa as nki_isa
import nki.language as nki_language
import numpy as np
import pytest
from neuronxcc import nki

import nkisim
from nkisim.chip import dtypes

BIG = [16777217, -16777219, 2**31 - 1, -(2**31), 123456789, 0, 7, -1]


def constant(values, dtype=None):
    """Return what a kernel reads of nl.shared_constant(values, dtype)."""

    @nki.jit
    def kernel(x):
        c = nl.shared_constant(values, dtype=dtype)
        out = nl.ndarray(c.shape, dtype=c.dtype, buffer=nl.shared_hbm)
        nl.store(out, value=nl.load(c))
        return out

    return nkisim.run(kernel, np.zeros((1, 1), np.float32)).outputs


@pytest.mark.parametrize("dtype", [None, nl.int32])
def test_64_bit_integers_keep_their_value(dtype):
    values = np.array(BIG, np.int64).reshape(8, 1)
    got = constant(values, dtype)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, values)


def test_unsigned_ones_as_well():
    values = np.array([2**32 - 1, 16777217, 2**31], np.uint64).reshape(3, 1)
    np.testing.assert_array_equal(constant(values, nl.uint32), values)


def test_floats_of_64_bits_do_too():
    np.testing.assert_array_equal(constant(np.array([[16777217.0]]), nl.int32), [[16777217]])


def test_a_value_beyond_32_bits_is_an_error_unless_a_dtype_says_what_becomes_of_it():
    with pytest.raises(nkisim.NkiError) as caught:
        constant(np.array([[2**31]]))
    assert caught.value.id == "NKI-D03" and "2147483648" in str(caught.value)
    np.testing.assert_array_equal(
        constant(np.array([[2**31, -(2**40)]]), nl.int32), [[2**31 - 1, -(2**31)]]
    )
    assert constant(np.array([[2**31]]), nl.float32)[0, 0] == 2.0**31


def test_static_cast_of_an_array():
    got = nl.static_cast(np.array(BIG, np.int64), nl.int32)
    np.testing.assert_array_equal(got, BIG)
    assert got.dtype == np.int32


@pytest.mark.parametrize("dtype", [d for d in dtypes.SUPPORTED if d.itemsize < 8], ids=dtypes.name)
def test_small_values_are_cast_as_everywhere(dtype):
    small = np.array([-3.5, -0.5, 0.0, 0.5, 1.5, 2.5, 100.25, 300.0, -300.0, np.nan, np.inf])
    with np.errstate(all="ignore"):
        wide = dtypes.from_host(small, dtype)
        want = dtypes.cast(small.astype(np.float32), dtype)
    assert wide.dtype == want.dtype
    np.testing.assert_array_equal(wide.view(np.uint8), want.view(np.uint8))


def test_bfloat16_of_the_host_is_left_alone():
    a = np.array([1.5, 3.0], ml_dtypes.bfloat16)
    assert dtypes.from_host(a, dtypes.BFLOAT16).tobytes() == a.tobytes()


@pytest.mark.parametrize(
    "what",
    [["text"], [1j], [object()], [nl.arange(4)[None, :]]],
    ids=["text", "complex", "object", "index"],
)
@pytest.mark.parametrize("dtype", [None, nl.int32])
def test_what_is_no_number_is_refused(what, dtype):
    with pytest.raises(nkisim.NkiError) as caught:
        constant(what, dtype)
    assert caught.value.id == "NKI-D02"


def test_a_constant_is_what_its_array_held_when_it_was_made():
    """A buffer of the host is used for one constant after the other."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((3, 4, 8), dtype=np.float32, buffer=nl.shared_hbm)
        host, made = np.zeros((4, 8), np.float32), []
        for i in range(3):
            host[...] = i + 1
            made.append(nl.shared_constant(host))
            nl.store(out[i], nl.load(made[i]))
        for i in range(3):
            nl.store(out[i], nl.add(nl.load(out[i]), nl.load(made[i])))
        return out

    got = nkisim.simulate(kernel, np.zeros((1, 1), np.float32))
    assert got[:, 0, 0].tolist() == [2, 4, 6]


def test_a_constant_of_the_package_nki_is_as_well():
    @newer.jit
    def kernel(x):
        out = nki_language.ndarray(
            (3, 4, 8), dtype=nki_language.float32, buffer=nki_language.shared_hbm
        )
        host, made = np.zeros((4, 8), np.float32), []
        for i in range(3):
            host[...] = i + 1
            made.append(nki_language.shared_constant(host))
        for i in range(3):
            nki_isa.dma_copy(dst=out[i], src=made[i])
        return out

    got = nkisim.simulate(kernel, np.zeros((1, 1), np.float32))
    assert got[:, 0, 0].tolist() == [1, 2, 3]


def test_the_package_nki_refuses_what_does_not_fit_as_well():
    @newer.jit
    def kernel(x, values):
        out = nki_language.ndarray((1, 2), dtype=nki_language.int32, buffer=nki_language.shared_hbm)
        nki_isa.dma_copy(dst=out, src=nki_language.shared_constant(np.array([values])))
        return out

    x = np.zeros((1, 1), np.float32)
    assert nkisim.simulate(kernel, x, (2**31 - 1, -(2**31))).tolist() == [[2**31 - 1, -(2**31)]]
    with pytest.raises(nkisim.NkiError, match="NKI-D03"):
        nkisim.simulate(kernel, x, (2**31, 0))
