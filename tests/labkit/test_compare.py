"""Comparison and tolerance: what a student is told about a wrong result."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit import AnyArgmax, compare, tolerance
from labkit.diagnose import Alternative

RNG = np.random.default_rng(7)


def test_a_right_result_passes_and_one_wrong_element_is_shown():
    expected = RNG.random((64, 48))
    actual = expected.astype(np.float32)
    assert compare(expected, actual).ok
    actual[5, 7] += 1
    report = compare(expected, actual)
    assert not report.ok and report.worst == (5, 7) and report.wrong == 1
    assert "[5, 7]" in report.render() and "expected[4:7, 5:10]" in report.render()


def test_nan_and_inf_are_counted_and_never_pass():
    expected = np.ones((4, 4))
    actual = np.ones((4, 4), np.float32)
    actual[0, 0], actual[1, 1] = np.nan, np.inf
    report = compare(expected, actual)
    assert (report.ok, report.nans, report.infs, report.wrong) == (False, 1, 1, 2)
    assert report.guess.kind == "not a number"


def test_what_overflows_fp16_must_come_out_as_inf():
    assert compare(np.array([1e6]), np.array([np.inf], np.float16)).ok
    assert not compare(np.array([1e6]), np.array([65504], np.float16)).ok


@pytest.mark.parametrize("kind, make", [
    ("all zeros", lambda e: 0 * e),
    ("layout", lambda e: e.T.copy()),
    ("stale tile", lambda e: np.vstack([e[:1], e[:-1]])),
    ("scaled", lambda e: 2 * e),
    ("rounding", lambda e: e * (1 + 4e-6 * RNG.standard_normal(e.shape))),
    ("rounding", lambda e: e.astype(np.float16)),
    ("accumulator", lambda e: np.cumsum(e.reshape(8, 16, 128), axis=0).reshape(e.shape)),
])
def test_the_guess_names_the_mistake(kind, make):
    expected = RNG.random((128, 128)) + 0.5
    assert compare(expected, make(expected).astype(np.float32)).guess.kind == kind


def test_missing_terms_of_a_sum_are_recognised():
    a, b = RNG.random((64, 256)), RNG.random((256, 64))
    report = compare(a @ b, (a[:, :128] @ b[:128]).astype(np.float32), accumulate=256)
    assert report.guess.kind == "missing accumulation"


@pytest.mark.parametrize("off", [0.5, 0.003, -0.02])
def test_a_guess_that_says_nothing_is_not_made(off):
    """Something small is missing: the elements are not "1 times" theirs, nor badly rounded."""
    expected = RNG.random((128, 128)) + 300
    guess = compare(expected, (expected + off * (1 + RNG.random(128))).astype(np.float32)).guess
    assert guess is None


def test_where_it_is_known_what_narrow_dtypes_give_other_small_errors_are_not_theirs():
    expected, noise = RNG.random((128, 128)) + 0.5, RNG.standard_normal((128, 128))
    actual = (expected * (1 + 4e-6 * noise)).astype(np.float32)
    for off, kind in ((4e-6, "mistake"), (4e-2, None)):
        known = Alternative("summed in float16", expected * (1 + off * noise[::-1]), noise=True)
        guess = compare(expected, actual, alternatives=[known]).guess
        assert (guess and guess.kind) == kind


@pytest.mark.parametrize("actual, says", [
    (None, "returned nothing"), (3.0, "returned a float"),
    (np.zeros(3, np.float16), "must be float32"), (np.zeros(4, np.float32), "must be (3,)"),
])
def test_what_is_no_result_gets_a_sentence(actual, says):
    assert says in compare(np.zeros(3), actual, dtype="float32").text


@given(st.integers(1, 3000), st.integers(0, 2**32 - 1))
def test_fp32_sums_pass_and_a_dropped_term_fails(terms, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.random((8, terms), np.float32), rng.random((terms, 8), np.float32) + 0.5
    exact = a.astype(np.float64) @ b.astype(np.float64)
    serial = np.zeros((8, 8), np.float32)
    for k in range(terms):
        serial += np.outer(a[:, k], b[k])
    assert compare(exact, serial, accumulate=terms).ok
    assert not compare(exact, serial - np.outer(a[:, 0], b[0]), accumulate=terms).ok


def test_moved_values_must_be_exact():
    limit = tolerance(np.dtype("float32"), 0, np.ones(3))
    assert (limit.rtol, limit.atol) == (0, 0)
    one = np.ones(3, np.float32)
    assert not compare(one, np.nextafter(one, np.float32(2)), accumulate=0).ok


def test_any_of_tied_indices_is_right_and_others_are_not():
    scores = np.array([[1.0, 5.0, 5.0], [3.0, 2.0, 1.0]])
    assert compare(AnyArgmax(scores), np.array([2, 0], np.uint32)).ok
    assert not compare(AnyArgmax(scores), np.array([2, 1], np.uint32)).ok
    assert not compare(AnyArgmax(scores), np.array([9, 0], np.uint32)).ok
