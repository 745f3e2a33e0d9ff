"""Loops that add products to one tile run their body once: nothing tells the difference.

Every kernel runs so and with every iteration: the record, the findings, the errors and the bytes of
the results are the same.
"""

from __future__ import annotations

from pathlib import Path

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nkisim
from labkit import make_inputs
from labkit.load import load_lab, load_module
from looping import P, count, data, kernel_with, same

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def counted(monkeypatch):
    """Count the loops that ran once."""
    return count(monkeypatch)


# -- nests that run once ---------------------------------------------------------------------------


@nki.jit
def taps(x, w, size=3):
    """Add size x size shifted windows, times filters: x (P, H, W), w (P, taps, P)."""
    rows, cols = x.shape[1] - size + 1, x.shape[2] - size + 1
    out = nl.ndarray((P, rows, cols), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = nl.load(w), nl.load(x)
    acc = nl.zeros((P, rows, cols), dtype=nl.float32, buffer=nl.psum)
    for i in nl.affine_range(size):
        for j in nl.affine_range(size):
            acc += nisa.nc_matmul(left[:, size * i + j], right[:, i : i + rows, j : j + cols])
    nl.store(out, value=nl.copy(acc))
    return out


@nki.jit
def backwards(x, w):
    """The same with a range that begins elsewhere, steps, a difference, and `acc[...] +=`."""
    out = nl.ndarray((P, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = nl.load(w), nl.load(x.reshape((P, x.shape[1] * x.shape[2])))
    acc = nl.zeros((P, 8), dtype=nl.float32, buffer=nl.psum)
    for i in nl.sequential_range(1, 8, 2):
        acc[...] += nisa.nc_matmul(left[:, 8 - i], right[:, 20 - 2 * i : 28 - 2 * i])
    nl.store(out, value=nl.copy(acc))
    return out


@nki.jit
def in_slots(x, w):
    """Nests inside of loops: the outer index, a ring of slots, and a number of the nest's own."""
    out = nl.ndarray((4, P, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = nl.load(w), nl.load(x)
    ring = nl.ndarray((P, 2, 4, 8), dtype=x.dtype, buffer=nl.sbuf)
    for t in nl.static_range(4):
        ring[:, t % 2] = nl.copy(right[:, t : t + 4, 0:8])
        acc = nl.zeros((P, 8), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(4):
            acc += nisa.nc_matmul(left[:, t + k], ring[:, t % 2, k])
        nl.store(out[t], value=nl.copy(acc))
    return out


@nki.jit
def never_set(x, w):
    """Accumulate into a tile that nothing has set: a finding, in the first iteration."""
    out = nl.ndarray((P, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = nl.load(w), nl.load(x)
    acc = nl.ndarray((P, 8), dtype=nl.float32, buffer=nl.psum)
    for k in nl.affine_range(4):
        acc += nisa.nc_matmul(left[:, k], right[:, k, 0:8])
    nl.store(out, value=nl.copy(acc))
    return out


@pytest.mark.parametrize("kernel", [taps, backwards, in_slots], ids=lambda k: k.__name__)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_nest_of_products_runs_once_and_nothing_tells(counted, kernel, dtype):
    import ml_dtypes

    dt = np.dtype(getattr(ml_dtypes, dtype, dtype))
    outcome = same(kernel, data(P, 8, 12, dtype=dt), data(P, 9, P, dtype=dt))
    assert isinstance(outcome, dict), outcome
    assert counted


def test_a_sum_that_nothing_has_set_is_found_as_ever():
    same(never_set, data(P, 8, 12), data(P, 9, P))
    found = nkisim.run(never_set, data(P, 8, 12), data(P, 9, P)).findings
    assert [f.id for f in found] == ["NKI-U03"]


@settings(deadline=None, max_examples=25)
@given(size=st.integers(1, 5), height=st.integers(5, 9), width=st.integers(5, 20))
def test_nests_of_any_size_are_the_same(size, height, width):
    same(taps, data(P, height, width), data(P, size * size, P), size=size)


def test_sums_of_whole_numbers_are_those_of_numpy():
    """Exact in any order of the sum: thousands of products, more than are queued at once."""
    x = np.random.default_rng(0).integers(-2, 3, (P, 12, 16)).astype(np.float32)
    w = np.random.default_rng(1).integers(-2, 3, (P, 49, P)).astype(np.float32)
    got = nkisim.simulate(taps, x, w, size=7)
    want = sum(
        np.einsum("km,krc->mrc", w[:, 7 * i + j], x[:, i : i + 6, j : j + 10])
        for i in range(7)
        for j in range(7)
    )
    assert np.array_equal(got, want)


# -- nests that do not ---------------------------------------------------------------------------


def past_the_end(acc, left, right):
    for k in nl.affine_range(9):
        acc += nisa.nc_matmul(left[:, k], right[:, k, 0:8])


def past_the_end_of_a_slice(acc, left, right):
    for k in nl.affine_range(8):
        acc += nisa.nc_matmul(left[:, k], right[:, 0, k : k + 8])


def from_the_back(acc, left, right):
    for k in nl.affine_range(3):
        acc += nisa.nc_matmul(left[:, k - 1], right[:, k, 0:8])


def not_affine(acc, left, right):
    for k in nl.affine_range(4):
        acc += nisa.nc_matmul(left[:, k % 2], right[:, k // 2, 0:8])


def square(acc, left, right):
    for i in nl.affine_range(2):
        for j in nl.affine_range(3):
            acc += nisa.nc_matmul(left[:, i * j], right[:, i * i, 0:8])


def twice(acc, left, right):
    for k in nl.affine_range(4):
        acc += nisa.nc_matmul(left[:, k][:, 0:P], right[:, k][:, 0:8])


def partitions(acc, left, right):
    for k in nl.affine_range(4):
        acc += nisa.nc_matmul(left[32 * k : 32 * k + 32, 0], right[32 * k : 32 * k + 32, 0, 0:8])


class Table:
    """Something of the kernel's author that changes when it is read."""

    def __init__(self):
        self.reads = -1

    def __getitem__(self, key):
        self.reads += 1
        return self.reads


def with_a_table(acc, left, right):
    table = Table()
    for k in nl.affine_range(4):
        acc += nisa.nc_matmul(left[:, table[k]], right[:, k, 0:8])


def by_a_helper(acc, left, right):
    table = Table()

    def product(a, b):
        return nisa.nc_matmul(left[:, table[0]], b)

    for k in nl.affine_range(4):
        acc += product(left[:, k], right[:, k, 0:8])


def read_afterwards(acc, left, right):
    for k in nl.affine_range(4):
        acc += nisa.nc_matmul(left[:, k], right[:, k, 0:8])
    acc += nisa.nc_matmul(left[:, k], right[:, k, 0:8])


def two_statements(acc, left, right):
    seen = []
    for k in nl.affine_range(4):
        acc += nisa.nc_matmul(left[:, len(seen)], right[:, k, 0:8])
        seen.append(k)


def no_iterations(acc, left, right):
    for i in nl.affine_range(2):
        for j in nl.affine_range(0):
            acc += nisa.nc_matmul(left[:, i], right[:, j, 0:8])


def dtypes_do_not_meet(acc, left, right):
    narrow = nl.copy(right, dtype=nl.bfloat16)
    for k in nl.affine_range(4):
        acc += nisa.nc_matmul(left[:, k], narrow[:, k, 0:8])


def masked(acc, left, right):
    i = nl.arange(P)[:, None]
    for k in nl.affine_range(4):
        acc += nisa.nc_matmul(left[:, k], right[:, k, 0:8], mask=i < 64)


def written_in_part(acc, left, right):
    part = nl.ndarray((P, 4, 8), dtype=right.dtype, buffer=nl.sbuf)
    part[:, 0:2] = nl.copy(right[:, 0:2, 0:8])
    for k in nl.affine_range(4):
        acc += nisa.nc_matmul(left[:, k], part[:, k])


def error_that_is_caught(acc, left, right):
    try:
        for k in nl.affine_range(4):
            acc += nisa.nc_matmul(left[:, k, 0:P], right[:, k + 7, 0:9])
    except Exception:
        pass
    for k in nl.affine_range(4):
        acc += nisa.nc_matmul(left[:, k], right[:, k, 0:8])


@pytest.mark.parametrize(
    "body",
    [
        past_the_end,
        past_the_end_of_a_slice,
        from_the_back,
        not_affine,
        square,
        twice,
        partitions,
        with_a_table,
        by_a_helper,
        read_afterwards,
        two_statements,
        no_iterations,
        dtypes_do_not_meet,
        masked,
        written_in_part,
        error_that_is_caught,
    ],
    ids=lambda b: b.__name__,
)
def test_what_does_not_fit_runs_one_by_one(body):
    same(kernel_with(body), data(P, 8, 12), data(P, 9, P))


@pytest.mark.parametrize("body", [read_afterwards, with_a_table, by_a_helper, two_statements])
def test_what_python_can_see_is_not_left_out(counted, body):
    nkisim.simulate(kernel_with(body), data(P, 8, 12), data(P, 9, P))
    assert not counted


# -- the labs ------------------------------------------------------------------------------------

LABS = [load_lab(ROOT / "labs" / name) for name in ("vecadd", "ffnn", "conv2d")]


@pytest.mark.sample(12)
@pytest.mark.parametrize("source, most", [("kernels", 1e6), ("kernels_nki", 5e5)])
@pytest.mark.parametrize(
    "lab, case",
    [
        pytest.param(lab, case, id=case.name)
        for lab in LABS
        for case in lab.cases
        if "quick" in case.fleets and case.kernel
    ],
)
def test_the_labs_kernels_give_the_same_bytes_and_the_same_record(
    monkeypatch, lab, case, source, most
):
    module = load_module(lab.folder / f"{source}.py", f"nests_{source}_{lab.name}")
    for constant, value in case.constants.items():
        monkeypatch.setattr(module, constant, value)
    computes = (True, False) if np.prod(case.inputs[0].shape) < most else (False,)
    kernel, inputs = getattr(module, case.kernel), make_inputs(case, 0)
    same(kernel, *inputs, computes=computes, **case.kwargs, **case.kernel_kwargs)
