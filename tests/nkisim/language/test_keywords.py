"""Keywords that a function of nl does not have: ignored as in the SDK, but not in silence."""

from __future__ import annotations

import inspect

import neuronxcc.nki.language as nl
import numpy as np
import pytest
from neuronxcc import nki

import nkisim

X = np.arange(128 * 16, dtype=np.float32).reshape(128, 16) / 1000


def run(body):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, value=nl.load(x))
        body(nl.load(x))
        return out

    return nkisim.run(kernel, X)


MISSPELT = {
    "unary": (lambda t: nl.exp(t, dtpye=nl.bfloat16), "nl.exp", "dtype"),
    "binary": (lambda t: nl.add(t, t, maks=None), "nl.add", "mask"),
    "reduction": (lambda t: nl.sum(t, axis=1, keepdim=True), "nl.sum", "keepdims"),
    "creation": (lambda t: nl.zeros((4, 4), np.float32, bufer=nl.psum), "nl.zeros", "buffer"),
    "matmul": (
        lambda t: nl.matmul(t, t, transpose_x=True, tranpose_x=1),
        "nl.matmul",
        "transpose_x",
    ),
    "loop": (lambda t: nl.affine_range(4, stride=2), "nl.affine_range", ""),
    "copy": (lambda t: nl.copy(t, d_type=nl.int32), "nl.copy", "dtype"),
    "softmax": (lambda t: nl.softmax(t, axis=1, axes=1), "nl.softmax", "axis"),
}


@pytest.mark.parametrize("body, api, meant", MISSPELT.values(), ids=MISSPELT)
def test_a_keyword_that_is_not_known_is_said(body, api, meant):
    (found,) = [f for f in run(body).findings if f.id == "NKI-K11"]
    assert found.severity == "warning" and api in found.text
    assert (f"did you mean '{meant}'" in found.text) == bool(meant)
    assert found.where.text in inspect.getsource(inspect.getmodule(body))


def test_what_kernels_pass_and_the_chip_does_not_know_is_silent():
    def body(t):
        nl.zeros((4, 4), np.float32, lazy_initialization=True, name="z")
        nl.multiply(t, t, max_free_vec_size=512)
        for _ in nl.affine_range(2, precise_schedule=True):
            nl.copy(t, name="c")
        for _ in nl.sequential_range(2, directives=[]):
            pass

    assert [f for f in run(body).findings if f.id == "NKI-K11"] == []


def test_two_in_a_call_are_both_named():
    (found,) = [
        f for f in run(lambda t: nl.exp(t, sclae=2.0, maks=None)).findings if f.id == "NKI-K11"
    ]
    assert "'sclae'" in found.text and "'maks'" in found.text


@pytest.mark.parametrize(
    "body, sentence",
    [
        (lambda t: nl.exp(), "missing a required argument: 'x'"),
        (lambda t: nl.exp(t, t, t), "too many positional arguments"),
        (lambda t: nl.mean(t), "missing a required argument: 'axis'"),
        (lambda t: nl.add(t, t, x=t), "multiple values for argument 'x'"),
    ],
)
def test_a_call_that_does_not_fit_is_explained_without_our_insides(body, sentence):
    with pytest.raises(nkisim.NkiError) as caught:
        run(body)
    assert caught.value.id == "NKI-X01" and sentence in str(caught.value)


def test_signatures_are_those_of_the_kernel():
    for name in ("exp", "add", "sum", "zeros", "mean", "matmul", "copy", "ndarray", "where"):
        function = getattr(nl, name)
        assert "m" not in inspect.signature(function).parameters
        assert function.__name__ == name and function.__doc__
