"""Truth values: handles are true, masks joined by `and` are said to be wrong, data is refused."""

from __future__ import annotations

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import nki as newer
import nki.isa as newer_isa
import nki.language as newer_nl
import numpy as np
import pytest
from neuronxcc import nki

import nkisim

X = np.arange(128 * 16, dtype=np.float32).reshape(128, 16)
ZERO = np.zeros((128, 1), np.float32)


def findings(run, id):
    return [f for f in run.findings if f.id == id]


# -- kernel parameters -----------------------------------------------------------------------------


@nki.jit
def scaled(x, scale=None):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    s = nl.load(scale) if scale else None  # the truth of a handle
    nl.store(out, value=nl.multiply(t, s) if s is not None else t)
    return out


@nki.jit
def scaled_as_it_should_be(x, scale=None):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    s = nl.load(scale) if scale is not None else None
    nl.store(out, value=nl.multiply(t, s) if s is not None else t)
    return out


def test_a_parameter_is_true_because_it_is_there():
    run = nkisim.run(scaled, X, ZERO)  # its data would be false
    np.testing.assert_array_equal(run.outputs, 0 * X)
    (found,) = findings(run, "NKI-I15")
    assert found.severity == "warning" and "is not None" in found.text
    assert "the truth of a handle" in found.where.text


def test_a_parameter_that_is_left_out_is_none_and_nothing_is_said():
    np.testing.assert_array_equal(nkisim.run(scaled, X).outputs, X)
    for args in ((X,), (X, ZERO)):
        assert nkisim.run(scaled, X).findings == []
        assert nkisim.run(scaled_as_it_should_be, *args).findings == []


@pytest.mark.parametrize(
    "test, want",
    [
        (lambda s: bool(s and True), True),
        (lambda s: (s or None) is s, True),
        (lambda s: not s, False),
        (lambda s: s == None, False),  # noqa: E711
        (lambda s: s != None, True),  # noqa: E711
    ],
)
def test_other_tests_of_a_parameter(test, want):
    seen = []

    @nki.jit
    def kernel(x, scale):
        seen.append(test(scale))
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, value=nl.load(x))
        return out

    run = nkisim.run(kernel, X, ZERO)
    assert seen == [want] and len(findings(run, "NKI-I15")) == 1


@pytest.mark.parametrize(
    "test",
    [
        lambda t: 1 if t else 2,
        lambda t: not t,
        lambda t: t > 0 and t,
        lambda t: t and t,
        lambda t: bool(nl.max(t, axis=1)),
    ],
)
def test_the_truth_of_a_tile_would_be_data(test):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        test(nl.load(x))
        return out

    with pytest.raises(nkisim.NkiError) as caught:
        nkisim.run(kernel, X)
    assert caught.value.id == "NKI-I08"
    assert caught.value.name == "err_ambiguous_tensor_truth_value"


# -- masks -----------------------------------------------------------------------------------------


def masked(mask, x=X):
    """Return the run of a kernel that writes x where `mask(i_p, i_f)` says, else zero."""

    @nki.jit
    def kernel(x):
        i_p, i_f = nl.mgrid[0:128, 0:16]
        t = nl.zeros((128, 16), np.float32)
        t[i_p, i_f] = nl.copy(nl.load(x), mask=mask(i_p, i_f))
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, value=t)
        return out

    return nkisim.run(kernel, x)


P, F = np.mgrid[0:128, 0:16]


@pytest.mark.parametrize(
    "mask, kept",
    [
        (lambda p, f: p < 64 and f < 9, F < 9),
        (lambda p, f: f < 9 and p < 64, P < 64),
        (lambda p, f: p < 64 or f < 9, P < 64),
        (lambda p, f: 3 <= f < 9, F < 9),
        (lambda p, f: p < 64 and 3 <= f < 9, F < 9),
    ],
)
def test_of_masks_joined_by_and_one_is_left_and_that_is_said(mask, kept):
    run = masked(mask)
    np.testing.assert_array_equal(run.outputs, X * kept)
    (found,) = findings(run, "NKI-I14")
    assert found.severity == "error" and "(i_p < 64) & (i_f < n)" in found.text


def test_the_remedy_means_both():
    run = masked(lambda p, f: (p < 64) & (f < 9))
    np.testing.assert_array_equal(run.outputs, X * ((P < 64) & (F < 9)))
    assert run.findings == []


@pytest.mark.parametrize(
    "mask",
    [
        lambda p, f: p < 3 if f < 9 else f < 9,
        lambda p, f: not f < 9,
        lambda p, f: bool(f < 9),
        lambda p, f: p and f < 9,
        lambda p, f: any([f < 9]),
    ],
)
def test_other_truths_of_masks_and_indices_are_refused(mask):
    with pytest.raises(nkisim.NkiError) as caught:
        masked(mask)
    assert caught.value.id == "NKI-I08"
    assert caught.value.name == "err_control_flow_condition_depending_on_arange"


def test_if_statements_on_masks_are_refused_however_they_are_joined():
    def one(p, f):
        if f < 9:
            return None

    def two(p, f):
        if p < 3 and f < 9:
            return None

    def chain(p, f):
        while 3 < f < 9:
            return None

    def asserted(p, f):
        assert f < 9

    for mask in (one, two, chain, asserted):
        with pytest.raises(nkisim.NkiError) as caught:
            masked(mask)
        assert caught.value.id == "NKI-I08" and caught.value.where.function == mask.__name__


# -- loop indices ----------------------------------------------------------------------------------


@nki.jit
def conditions(x, statement):
    out = nl.ndarray((4, 128, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    f = nl.arange(16)[None, :]
    p = nl.arange(128)[:, None]
    for i in nl.affine_range(4):
        t = nl.load(x)
        if statement:
            if i > 0 and i < 3:  # a statement
                t = nl.multiply(t, 2.0)
            nl.store(out[i], value=t)
        else:
            first = i == 0
            factor = 1.0 if first or i == 3 else 2.0  # an expression
            value = nl.multiply(t, factor)
            nl.store(out[i, p, f], value=value, mask=(i < 4 and f < 16))  # in a mask
    return out


def test_an_if_statement_on_a_loop_index_is_supported():
    """Findings are of the function: the two below are there, none is of the statement."""
    run = nkisim.run(conditions, X, True)
    factors = np.array([1, 2, 2, 1], np.float32)[:, None, None]
    np.testing.assert_array_equal(run.outputs, X * factors)
    assert all("a statement" not in f.where.text for f in findings(run, "NKI-L06"))


@pytest.mark.parametrize("compute", [True, False])
def test_a_condition_in_an_expression_runs_as_python_does_and_is_said(compute):
    if compute:
        run = nkisim.run(conditions, X, False)
        np.testing.assert_array_equal(run.outputs, nkisim.run(conditions, X, True).outputs)
        found = findings(run, "NKI-L06")
    else:
        found = [
            f
            for f in nkisim.profile(conditions, X, False, compute=False).findings
            if f.id == "NKI-L06"
        ]
    said = [(f.severity, f.where.text.partition("# ")[2]) for f in found]
    assert said == [("note", "an expression"), ("warning", "in a mask")]


@nki.jit
def unrolled(x):
    out = nl.ndarray((4, 128, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.static_range(4):
        for _ in nl.affine_range(1):
            nl.store(out[i], value=nl.multiply(nl.load(x), 1.0 if i == 0 else 2.0))
        factor = 2.0 if i > 0 and i < 3 else 1.0
        nl.store(out[i], value=nl.multiply(nl.load(x), factor))
    return out


@nki.jit
def decided_by_a_parameter(x, causal=True):
    out = nl.ndarray((4, 128, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        factor = 1.0 if causal and x.shape[0] > 3 else 2.0
        mask = i < 4 if causal else None
        nl.store(out[i], value=nl.multiply(nl.load(x), factor), mask=mask)
    return out


@pytest.mark.parametrize("kernel", [unrolled, decided_by_a_parameter])
def test_nothing_is_said_of_what_is_decided_by_a_number(kernel):
    assert findings(nkisim.run(kernel, X), "NKI-L06") == []


def test_a_kernel_without_a_source_is_taken_as_it_is():
    code = """
def kernel(x):
    out = nl.ndarray((2, 128, 16), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(2):
        nl.store(out[i], value=nl.multiply(nl.load(x), 1.0 if i == 0 else 2.0))
    return out
"""
    names = {"nl": nl, "nisa": nisa}
    exec(compile(code, "<nowhere>", "exec"), names)
    run = nkisim.run(nki.jit(names["kernel"]), X)
    np.testing.assert_array_equal(run.outputs, np.stack([X, 2 * X]))


# -- a loop that nothing ends ----------------------------------------------------------------------


@newer.jit
def counted_down(x):
    out = newer_nl.ndarray(x.shape, dtype=x.dtype, buffer=newer_nl.shared_hbm)
    t = newer_nl.ndarray(x.shape, dtype=x.dtype, buffer=newer_nl.sbuf)
    newer_isa.dma_copy(dst=t, src=x)
    while t:  # true, whatever it holds
        newer_isa.tensor_scalar(dst=t, data=t, op0=newer_nl.subtract, operand0=1.0)
    newer_isa.dma_copy(dst=out, src=t)
    return out


@newer.jit
def until_a_number_says(x, more=None):
    out = newer_nl.ndarray(x.shape, dtype=x.dtype, buffer=newer_nl.shared_hbm)
    t = newer_nl.ndarray(x.shape, dtype=x.dtype, buffer=newer_nl.sbuf)
    newer_isa.dma_copy(dst=t, src=x)
    i = 0
    while i < 3 and t:  # ends with i; `and` asks t as well
        if t:
            newer_isa.tensor_scalar(dst=t, data=t, op0=newer_nl.subtract, operand0=1.0)
        i += 1
    while more:  # None
        i += 1
    newer_isa.dma_copy(dst=out, src=t)
    return out


def test_a_while_loop_on_a_tensor_of_nki_would_not_end():
    with pytest.raises(nkisim.NkiError) as caught:
        nkisim.run(counted_down, X)
    error = caught.value
    assert error.id == "NKI-G27" and error.where.text.startswith("while t")
    assert "while_loop" in error.hint


def test_a_while_loop_of_nki_that_a_number_ends_runs():
    assert (nkisim.simulate(until_a_number_says, X) == X - 3).all()
