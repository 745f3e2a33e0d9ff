"""Sizes that are floats: whole numbers count as integers, with a finding; others are errors."""

from __future__ import annotations

import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from neuronxcc import nki

import nkisim

X = np.arange(128 * 16, dtype=np.float32).reshape(128, 16)


def shape_of_a_tensor(t, h):
    out = nl.ndarray((128, h), np.float32, buffer=nl.sbuf)
    out[...] = nl.copy(t[:, 0:8])
    return out


def par_dim(t, h):
    out = nl.zeros((2, nl.par_dim(16 * h), 8), np.float32)
    return nl.copy(out[1])


def reshape(t, h):
    return nl.copy(t.reshape((128, h, 2)))


def stop_of_a_slice(t, h):
    return nl.copy(t[:, 0:h])


def start_of_a_slice(t, h):
    return nl.copy(t[:, h:16])


def step_of_a_slice(t, h):
    return nl.copy(t[:, 0:16:h])


def subscript(t, h):
    return nl.copy(t[:, h])


def ds(t, h):
    return nl.copy(t[:, nl.ds(h, 8)])


def arange(t, h):
    return nl.copy(t[nl.arange(128)[:, None], nl.arange(h)[None, :]])


def mgrid(t, h):
    p, f = nl.mgrid[0:128, 0:h]
    return nl.copy(t[p, f])


def offset_of_an_index(t, h):
    return nl.copy(t[nl.arange(128)[:, None], nl.arange(8)[None, :] + h])


def bound_of_a_mask(t, h):
    p, f = nl.mgrid[0:128, 0:16]
    out = nl.zeros((128, 16), np.float32)
    out[p, f] = nl.copy(t[p, f], mask=f < h)
    return out


def affine_range(t, h):
    out = nl.zeros((128, 16), np.float32)
    for i in nl.affine_range(h):
        out[:, i : i + 1] = nl.copy(t[:, i : i + 1])
    return out


def static_range(t, h):
    out = nl.zeros((128, 16), np.float32)
    for i in nl.static_range(h):
        out[:, i : i + 1] = nl.copy(t[:, i : i + 1])
    return out


def broadcast_to(t, h):
    return nl.copy(t[:, 0:1].broadcast_to((128, h)))


def block(t, h):
    out = nl.ndarray(
        (9, nl.par_dim(128), 16),
        np.float32,
        buffer=ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(9,)),
    )
    out[h] = nl.load(t)
    return out[8]


BODIES = [
    shape_of_a_tensor,
    par_dim,
    reshape,
    stop_of_a_slice,
    start_of_a_slice,
    step_of_a_slice,
    subscript,
    ds,
    arange,
    mgrid,
    offset_of_an_index,
    bound_of_a_mask,
    affine_range,
    static_range,
    broadcast_to,
    block,
]


def run(body, h):
    @nki.jit
    def kernel(x):
        got = body(x if body is block else nl.load(x), h)
        out = nl.ndarray(got.shape, dtype=got.dtype, buffer=nl.shared_hbm)
        nl.store(out, value=got)
        return out

    return nkisim.run(kernel, X)


@pytest.mark.parametrize("body", BODIES, ids=lambda b: b.__name__)
def test_a_float_that_is_a_whole_number_counts_as_the_integer(body):
    whole = run(body, 8)
    assert "NKI-S14" not in {f.id for f in whole.findings}
    for h in (16 / 2, np.float64(8), np.float32(8)):
        got = run(body, h)
        np.testing.assert_array_equal(got.outputs, whole.outputs)
        found = [f for f in got.findings if f.id == "NKI-S14"]
        assert len(found) == 1 and found[0].severity == "note"
        assert found[0].where.function == body.__name__ and "//" in found[0].text


@pytest.mark.parametrize("body", BODIES, ids=lambda b: b.__name__)
def test_another_float_is_an_error_that_says_so(body):
    with pytest.raises(nkisim.NkiError) as caught:
        run(body, 7.3)
    assert caught.value.where.function == body.__name__
    assert caught.value.id != "NKI-X01"


def test_a_finding_a_line():
    def body(t, h):
        for i in range(4):
            last = nl.copy(t[:, i : i + h])
        return last

    assert len([f for f in run(body, 8.0).findings if f.id == "NKI-S14"]) == 1


def test_a_finding_for_each_line_although_layouts_are_remembered():
    def body(t, h):
        nl.ndarray((128, h), np.float32, buffer=nl.sbuf)
        nl.ndarray((128, h), np.float32, buffer=nl.sbuf)
        return nl.copy(t)

    assert len([f for f in run(body, 8.0).findings if f.id == "NKI-S14"]) == 2


def test_the_size_of_a_float_may_be_too_large_as_well():
    with pytest.raises(nkisim.NkiError) as caught:
        run(shape_of_a_tensor, 1e9)
    assert caught.value.id == "NKI-M04"


@pytest.mark.parametrize("h", [float("nan"), float("inf")])
def test_nan_and_infinity_are_no_sizes(h):
    for body in (shape_of_a_tensor, reshape, ds, stop_of_a_slice):
        with pytest.raises(nkisim.NkiError):
            run(body, h)
