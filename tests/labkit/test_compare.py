"""Comparison and tolerance: what a student is told about a wrong result."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit import AnyArgmax, Case, SpecError, Tensor, compare, tolerance
from labkit.run.diagnose import Alternative

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


@pytest.mark.parametrize(
    "kind, make",
    [
        ("all zeros", lambda e: 0 * e),
        ("layout", lambda e: e.T.copy()),
        ("stale tile", lambda e: np.vstack([e[:1], e[:-1]])),
        ("scaled", lambda e: 2 * e),
        ("rounding", lambda e: e * (1 + 4e-6 * RNG.standard_normal(e.shape))),
        ("rounding", lambda e: e.astype(np.float16)),
        ("accumulator", lambda e: np.cumsum(e.reshape(8, 16, 128), axis=0).reshape(e.shape)),
    ],
)
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


@pytest.mark.parametrize(
    "actual, says",
    [
        (None, "returned nothing"),
        (3.0, "returned a float"),
        (np.zeros(3, np.float16), "must be float32"),
        (np.zeros(4, np.float32), "must be (3,)"),
    ],
)
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


@pytest.mark.parametrize(
    "actual, says",
    [
        (np.array(4, np.float32), "1 of 1 elements"),
        (np.array("a"), "must hold real numbers"),
        (np.array(None), "must hold real numbers"),
        (np.array(3j), "must hold real numbers"),
        (np.array(0, "M8[s]"), "must hold real numbers"),
        (
            type("Tensor", (), {"name": None, "__module__": "torch.x"})(),
            "returned a Tensor of torch,",
        ),
    ],
)
def test_one_number_and_what_is_no_number_get_a_sentence(actual, says):
    report = compare(np.float64(3), actual)
    assert not report.ok and says in report.render()
    assert compare(np.float64(3), np.array(3, np.float32)).ok


def test_integers_are_compared_exactly_beyond_what_float64_holds():
    expected = np.array([2**60, 2**63 - 1])
    assert compare(expected, expected.copy()).ok
    report = compare(expected, expected + np.array([1, 0]))
    assert (report.ok, report.wrong, report.worst) == (False, 1, (0,))
    assert not compare(np.array([-1]), np.array([2**64 - 1], np.uint64)).ok


@pytest.mark.filterwarnings("error")
def test_an_index_that_is_none_is_wrong_and_shown_as_given():
    scores = np.array([[1.0, np.inf], [-np.inf, -np.inf]])
    assert compare(AnyArgmax(scores), np.array([1, 1], np.uint32)).ok
    for index in (np.nan, np.inf, 0.5, 0.0, 2.0, -1.0):
        report = compare(AnyArgmax(scores), np.array([index, 0], np.float32))
        assert report.wrong == 1
        assert report.worst_actual == index or np.isnan(index)


@pytest.mark.parametrize(
    "reference",
    [
        lambda: compare(None, np.zeros(3)),
        lambda: compare([[1, 2], [3]], np.zeros(3)),
        lambda: compare(["a"], np.zeros(1)),
        lambda: AnyArgmax(np.float64(3)),
        lambda: AnyArgmax(np.zeros((3, 0))),
        lambda: AnyArgmax(np.array([[np.nan, 1]])),
    ],
)
def test_a_reference_that_gives_no_numbers_is_a_fault_of_the_lab(reference):
    with pytest.raises(SpecError, match="the reference"):
        reference()


def test_nothing_is_guessed_from_values_that_are_all_alike():
    """Rows of one value, less their mean, follow any others: no sign of an accumulator."""
    one = np.ones((16, 16))
    for actual in (2 * one, one + np.arange(16)[:, None]):
        guess = compare(one, actual.astype(np.float32)).guess
        assert guess is None or guess.kind == "scaled"
    assert compare(np.inf * one, (5 * one).astype(np.float32)).guess is None


@pytest.mark.parametrize(
    "functions, share, ok, said",
    [
        ((), 0.0, True, False),
        (("exp",), 4.8e-5, True, False),
        (("exp", "matmul"), 1e-4, True, False),
        ((), 4e-5, False, True),
        (("matmul",), 4e-5, False, True),
        ((), 1e-3, False, False),
        (("exp",), 2e-4, False, False),
    ],
)
def test_functions_of_the_chip_have_errors_of_their_own(functions, share, ok, said):
    """A tolerance has room for them if the case names them; if not, the verdict says so."""
    expected = np.ones((64, 64))
    actual = expected.astype(np.float32) + np.float32(share)
    got = compare(expected, actual, accumulate=4, functions=functions)
    assert got.ok == ok and ("tighter than the chip" in got.text) == said
    if said:
        assert "(exp)" in got.text and "functions=" in got.text


def test_a_case_names_functions_that_an_error_is_known_of():
    with pytest.raises(SpecError, match="functions are exp, sigmoid, matmul"):
        Case("c", "kernel", "reference", (Tensor((4, 4)),), functions=("tan",))
