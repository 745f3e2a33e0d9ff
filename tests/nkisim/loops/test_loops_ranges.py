"""Nests in the dialect of today, and over Python's range: unrolled in the record, and run once."""

from __future__ import annotations

import builtins

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nkisim
from looping import P, count, data, record, same


@pytest.fixture
def executed(monkeypatch):
    """Count the loops that ran once."""
    return count(monkeypatch)


@nki.jit
def around(a, b, body, width=64):
    """body(acc, left, right, a, b) adds products up: left (P, K, P), right (P, K, width)."""
    tiles = a.shape[0] // P
    out = nl.ndarray((P, width), dtype=nl.float32, buffer=nl.shared_hbm)
    left = nl.ndarray((P, tiles, P), dtype=a.dtype, buffer=nl.sbuf)
    right = nl.ndarray((P, tiles, width), dtype=b.dtype, buffer=nl.sbuf)
    acc = nl.ndarray((P, width), dtype=nl.float32, buffer=nl.psum)
    body(acc, left, right, a, b)
    tile = nl.ndarray((P, width), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=acc)
    nisa.dma_copy(dst=out, src=tile)
    return out


def loaded(left, right, a, b):
    for k in range(a.shape[0] // P):
        nisa.dma_copy(dst=left[:, k], src=a[k * P : (k + 1) * P, 0:P])
        nisa.dma_copy(dst=right[:, k, :], src=b[k * P : (k + 1) * P, 0 : right.shape[2]])


def first_overwrites(acc, left, right, a, b):
    loaded(left, right, a, b)
    for k in range(left.shape[1]):
        nisa.nc_matmul(dst=acc, stationary=left[:, k, :], moving=right[:, k, :], accumulate=k > 0)


def by_itself(acc, left, right, a, b):
    loaded(left, right, a, b)
    for k in range(left.shape[1]):
        nisa.nc_matmul(dst=acc, stationary=left[:, k, :], moving=right[:, k, :])


def of_two_loops(acc, left, right, a, b):
    loaded(left, right, a, b)
    for k in nl.affine_range(left.shape[1]):
        for i in range(2):
            nisa.nc_matmul(
                acc[...],
                left[0:64, k, :],
                right[nl.ds(0, 64), k, nl.ds(0, 64)],
                accumulate=(k + i > 0),
            )


def of_parts(acc, left, right, a, b):
    loaded(left, right, a, b)
    for k in nl.static_range(left.shape[1]):
        for n in nl.sequential_range(4):
            nisa.nc_matmul(
                dst=acc[:, n * 16 : (n + 1) * 16],
                stationary=left[:, k],
                moving=right[:, k, nl.ds(n * 16, 16)],
                accumulate=(k != 0),
            )


def loads_inside(acc, left, right, a, b):
    for k in range(left.shape[1]):
        nisa.dma_copy(dst=left[:, k], src=a[k * P : (k + 1) * P, 0:P])
        nisa.dma_copy(dst=right[:, k, :], src=b[k * P : (k + 1) * P, 0:64])
        nisa.nc_matmul(dst=acc, stationary=left[:, k, :], moving=right[:, k, :], accumulate=k >= 1)


def tiles_of_its_own(acc, left, right, a, b):
    for k in nl.affine_range(left.shape[1]):
        x = nl.ndarray((P, P), dtype=a.dtype, buffer=nl.sbuf)
        y = nl.ndarray((P, 64), dtype=b.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=x, src=a[k * P : (k + 1) * P, 0:P])
        nisa.dma_copy(dst=y, src=b[k * P : (k + 1) * P, 0:64])
        nisa.nc_matmul(dst=acc, stationary=x, moving=y)


@nki.jit
def steps(a):
    """Add 1 four times to each tile; what one step makes, the next one reads."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in range(a.shape[0]):
        y = nl.ndarray(a.shape[1:], dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=y, src=a[i])
        for _ in range(4):
            z = nl.ndarray(a.shape[1:], dtype=a.dtype, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=z, data=y, op0=nl.add, operand0=1.0)
            y = nl.ndarray(a.shape[1:], dtype=a.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=y, src=z)
        nisa.dma_copy(dst=out[i], src=y)
    return out


def test_a_variable_that_is_bound_before_an_inner_loop_and_in_it_is_followed():
    a = data(3, P, 8)
    whole, timing_only = (record(steps, a, every_iteration=False, compute=c) for c in (True, False))
    assert same(steps, a) == timing_only
    assert all(whole[k] == timing_only[k] for k in ("rows", "storages"))


FIT = [tiles_of_its_own, first_overwrites, by_itself, of_two_loops, of_parts, loads_inside]


@pytest.mark.parametrize("body", FIT, ids=lambda b: b.__name__)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_of_todays_dialect_run_once(executed, body, dtype):
    import ml_dtypes

    dt = np.dtype(getattr(ml_dtypes, dtype, dtype))
    outcome = same(around, data(4 * P, P, dtype=dt), data(4 * P, 64, dtype=dt), body=body)
    assert isinstance(outcome, dict), outcome
    assert len(executed) == (1 if body in (loads_inside, tiles_of_its_own) else 2)


@settings(deadline=None, max_examples=20)
@given(
    body=st.sampled_from(FIT),
    k=st.integers(1, 6),
    limit=st.sampled_from([256, 384, 4096]),
    most=st.integers(2, 20),
)
def test_any_number_of_products_is_the_same(body, k, limit, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nkisim.lazy.products.MAX_ROWS", limit)
        patch.setattr("nkisim.lazy.products.MAX_PRODUCTS", most)
        same(patch, around, data(k * P, P), data(k * P, 64), body=body)


def test_sums_of_whole_numbers_are_those_of_numpy():
    a = np.random.default_rng(0).integers(-2, 3, (40 * P, P)).astype(np.float32)
    b = np.random.default_rng(1).integers(-2, 3, (40 * P, 64)).astype(np.float32)
    for body in (first_overwrites, by_itself, of_parts, loads_inside):
        got = nkisim.run(around, a, b, body=body).outputs
        assert np.array_equal(got, a.T @ b)


# -- what runs one by one ----------------------------------------------------------------------


def every_one_overwrites(acc, left, right, a, b):
    loaded(left, right, a, b)
    for k in range(left.shape[1]):
        nisa.nc_matmul(dst=acc, stationary=left[:, k], moving=right[:, k], accumulate=False)


def the_second_overwrites(acc, left, right, a, b):
    loaded(left, right, a, b)
    for k in range(left.shape[1]):
        nisa.nc_matmul(dst=acc, stationary=left[:, k], moving=right[:, k], accumulate=k > 1)


def the_inner_loop_overwrites(acc, left, right, a, b):
    loaded(left, right, a, b)
    for _ in range(2):
        for k in range(left.shape[1]):
            nisa.nc_matmul(dst=acc, stationary=left[:, k], moving=right[:, k], accumulate=k > 0)


def onto_nothing(acc, left, right, a, b):
    loaded(left, right, a, b)
    for k in range(left.shape[1]):
        nisa.nc_matmul(dst=acc, stationary=left[:, k], moving=right[:, k], accumulate=True)


def parts_onto_nothing(acc, left, right, a, b):
    loaded(left, right, a, b)
    nisa.nc_matmul(dst=acc[:, 0:16], stationary=left[:, 0], moving=right[:, 0, 0:16])
    for k in range(left.shape[1]):
        for n in range(4):
            nisa.nc_matmul(
                dst=acc[:, n * 16 : (n + 1) * 16],
                stationary=left[:, k],
                moving=right[:, k, 0:16],
                accumulate=True,
            )


def onto_a_memset(acc, left, right, a, b):
    loaded(left, right, a, b)
    nisa.memset(acc, 0.0)
    for k in range(left.shape[1]):
        nisa.nc_matmul(dst=acc, stationary=left[:, k], moving=right[:, k])


def onto_what_was_read(acc, left, right, a, b):
    loaded(left, right, a, b)
    tile = nl.ndarray((P, 64), dtype=nl.float32, buffer=nl.sbuf)
    for _ in range(2):
        for k in range(left.shape[1]):
            nisa.nc_matmul(dst=acc, stationary=left[:, k], moving=right[:, k])
        nisa.tensor_copy(dst=tile, src=acc)


def parts_of_which_one_was_read(acc, left, right, a, b):
    loaded(left, right, a, b)
    tile = nl.ndarray((P, 16), dtype=nl.float32, buffer=nl.sbuf)
    for i in range(2):
        for n in range(4):
            nisa.nc_matmul(
                dst=acc[:, n * 16 : (n + 1) * 16], stationary=left[:, i], moving=right[:, i, 0:16]
            )
        nisa.tensor_copy(dst=tile, src=acc[:, 32:48])


def decided_in_two_ways(acc, left, right, a, b):
    loaded(left, right, a, b)
    for k in range(left.shape[1]):
        nisa.nc_matmul(
            dst=acc, stationary=left[:, k], moving=right[:, k], accumulate=(k > 0) and k < 9
        )


def backwards(acc, left, right, a, b):
    loaded(left, right, a, b)
    for k in range(left.shape[1] - 1, -1, -1):
        nisa.nc_matmul(
            dst=acc, stationary=left[:, k], moving=right[:, k], accumulate=k < left.shape[1] - 1
        )


def past_the_end(acc, left, right, a, b):
    for k in range(left.shape[1] + 1):
        nisa.dma_copy(dst=left[:, k], src=a[k * P : (k + 1) * P, 0:P])


def not_written(acc, left, right, a, b):
    for k in range(left.shape[1]):
        nisa.nc_matmul(dst=acc, stationary=left[:, k], moving=right[:, k], accumulate=k > 0)


def index_read_afterwards(acc, left, right, a, b):
    loaded(left, right, a, b)
    for k in range(left.shape[1]):
        nisa.nc_matmul(dst=acc, stationary=left[:, k], moving=right[:, k], accumulate=k > 0)
    nisa.nc_matmul(dst=acc, stationary=left[:, k], moving=right[:, k])


def ranges_that_are_no_loops(acc, left, right, a, b):
    loaded(left, right, a, b)
    ks = range(left.shape[1])
    assert isinstance(ks, range) and not isinstance(4, range) and list(reversed(ks))[-1] == 0
    assert [k for k in range(3)] == [0, 1, 2] and range(2, 9, 3)[1] == 5
    assert type(ks) is builtins.range
    for k in ks:
        nisa.nc_matmul(dst=acc, stationary=left[:, k], moving=right[:, k], accumulate=k > 0)


OTHERS = [
    every_one_overwrites,
    the_second_overwrites,
    the_inner_loop_overwrites,
    onto_nothing,
    parts_onto_nothing,
    onto_a_memset,
    onto_what_was_read,
    parts_of_which_one_was_read,
    decided_in_two_ways,
    backwards,
    past_the_end,
    not_written,
    index_read_afterwards,
    ranges_that_are_no_loops,
]


@pytest.mark.parametrize("body", OTHERS, ids=lambda b: b.__name__)
def test_what_is_said_and_computed_is_the_same_as_ever(body):
    same(around, data(4 * P, P), data(4 * P, 64), body=body)


def test_the_module_of_a_kernel_is_as_it_was():
    nkisim.run(around, data(4 * P, P), data(4 * P, 64), body=first_overwrites)
    assert "range" not in globals()
    with pytest.raises(nkisim.NkiError):
        nkisim.run(around, data(4 * P, P), data(4 * P, 64), body=past_the_end)
    assert "range" not in globals()
