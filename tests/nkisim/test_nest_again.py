"""A nest that looks like one that has run is recorded without running its body: nothing may tell.

Kernels run with NKISIM_NESTS unset and with 0, with values and without: record, findings and errors
are the same. What is taken from an earlier nest is counted.
"""
from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nkisim.machine import nest

from .nesting import P, count, data, run, same
from .nesting import taken as taken

ROWS, WIDTH = 16, 24


def kernel_of(body, count=6):
    """Return a kernel that runs body(acc, left, right, t) in tiles of its own, `count` times.

    left: (P, ROWS, P), right: (P, ROWS, WIDTH).
    """
    @nki.jit
    def kernel(x, w):
        out = nl.ndarray((count, P, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        left, right = nl.load(w), nl.load(x)
        for t in nl.static_range(count):
            acc = nl.zeros((P, 8), dtype=nl.float32, buffer=nl.psum)
            body(acc, left, right, t)
            nl.store(out[t], value=nl.copy(acc))
        return out
    return kernel


def inputs():
    return data(P, ROWS, WIDTH), data(P, ROWS, P)


# -- nests that are taken --------------------------------------------------------------------------

def window(acc, left, right, t):
    for k in nl.affine_range(4):
        acc += nisa.nc_matmul(left[:, t + k], right[:, k, t:t + 8])


def two_loops(acc, left, right, t):
    size, r = 2, 3 + t
    for i in nl.affine_range(size):
        for j in nl.affine_range(size):
            acc += nisa.nc_matmul(left[:, i * size + j], right[:, r + i, 2 * t + j:2 * t + j + 8])


def by_ds(acc, left, right, t):
    for k in nl.affine_range(4):
        acc += nisa.nc_matmul(left[:, 9 - t + k], right[:, t + k, nl.ds(t, 8)])


def of_parts(acc, left, right, t):
    mine, rest = left[:, t:t + 5], right[:, t + 1]
    for k in nl.affine_range(4):
        acc += nisa.nc_matmul(mine[:, k], rest[:, 2 * k:2 * k + 8])


def other_tiles(acc, left, right, t):
    a, b = nl.copy(left), nl.copy(right)
    for k in nl.affine_range(4):
        acc += nisa.nc_matmul(a[:, k], b[:, k, t:t + 8])


def by_grids(acc, left, right, t):
    i_l, i_r = nl.mgrid[0:P, 0:P], nl.mgrid[0:P, 0:8]
    for k in nl.affine_range(4):
        acc[...] += nisa.nc_matmul(left[i_l.p, t + k, i_l.x], right[i_r.p, k, t + i_r.x])


def by_names_of_its_own(acc, left, right, t):
    step = 2
    for k in nl.affine_range(4):
        first = t * step + k
        last = first + 8
        acc += nisa.nc_matmul(left[:, first], right[:, k, first:last])


def over_python_range(acc, left, right, t):
    for k in range(4):
        acc += nisa.nc_matmul(left[:, t + k], right[:, k, t:t + 8])


def of_two_sizes(acc, left, right, t):
    n = 3 + t % 2
    for k in nl.affine_range(n):
        acc += nisa.nc_matmul(left[:, t + k], right[:, n, t:t + 8])


@pytest.mark.parametrize("body, least", [
    (window, 5), (two_loops, 5), (by_ds, 5), (of_parts, 5), (other_tiles, 5), (by_grids, 5),
    (by_names_of_its_own, 5), (over_python_range, 5), (of_two_sizes, 3)],
    ids=lambda x: getattr(x, "__name__", ""))
def test_the_record_is_taken_from_the_first_nest(monkeypatch, taken, body, least):
    same(monkeypatch, kernel_of(body), *inputs())
    assert len(taken) >= least


def test_runs_with_values_take_products_from_the_first_nest(taken):
    run(kernel_of(window), *inputs())
    assert len(taken) == 5


def test_runs_with_values_compute_nests_of_loads(taken):
    def loads(acc, left, right, t):
        for k in nl.affine_range(4):
            a = nl.copy(left[:, t])
            acc += nisa.nc_matmul(a, right[:, k, t:t + 8])
    run(kernel_of(loads), *inputs())
    assert not taken


@nki.jit
def rewritten(x, w):
    """Change an operand between one nest and the next, which reads another part of it as well."""
    out = nl.ndarray((6, P, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = nl.load(w), nl.load(x)
    for t in nl.static_range(6):
        acc = nl.zeros((P, 8), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(4):
            acc += nisa.nc_matmul(left[:, t + k], right[:, k, t:t + 8])
        right[:, 0, 0:12] = nl.multiply(right[:, 0, 0:12], 2.0)
        nl.store(out[t], value=nl.copy(acc))
    return out


@nki.jit
def unwritten(x, w):
    """Read what is written from one nest to the next, and in the last one what nobody writes."""
    out = nl.ndarray((6, P, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = nl.load(w), nl.ndarray((P, 10, 8), dtype=nl.float32, buffer=nl.sbuf)
    right[:, 0:4] = nl.load(x[:, 0:4, 0:8])
    for t in nl.static_range(6):
        acc = nl.zeros((P, 8), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(4):
            acc += nisa.nc_matmul(left[:, t + k], right[:, t + k])
        if t < 4:
            right[:, t + 4] = nl.load(x[:, t + 4, 0:8])
        nl.store(out[t], value=nl.copy(acc))
    return out


@nki.jit
def banks_that_stay(x, w):
    """Add to three banks again and again; read one of them between the nests."""
    out = nl.ndarray((6, P, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = nl.load(w), nl.load(x)
    acc = nl.zeros((3, nl.par_dim(P), 8), dtype=nl.float32, buffer=nl.psum)
    for t in nl.static_range(6):
        for bank in nl.affine_range(3):
            for k in nl.affine_range(4):
                acc[bank] += nisa.nc_matmul(left[:, t + k], right[:, k, bank:bank + 8])
        nl.store(out[t], value=nl.copy(acc[1]))
    return out


@pytest.mark.parametrize("kernel, least", [(rewritten, 5), (unwritten, 2), (banks_that_stay, 0)],
                         ids=["rewritten", "unwritten", "banks"])
def test_values_that_change_between_nests(monkeypatch, taken, kernel, least):
    same(monkeypatch, kernel, *inputs())
    assert len(taken) >= least
    monkeypatch.delenv(nest.VARIABLE)
    found = run(kernel, *inputs())
    assert isinstance(found, dict), found
    assert any("NKI-U02" in f for f in found["findings"]) == (kernel is unwritten)


# -- nests of which something else depends on a variable -------------------------------------------

def leaves_the_tile(acc, left, right, t):
    for k in nl.affine_range(4):
        acc += nisa.nc_matmul(left[:, 3 * t + k], right[:, k, 0:8])


def leaves_the_tile_in_a_slice(acc, left, right, t):
    for k in nl.affine_range(4):
        acc += nisa.nc_matmul(left[:, k], right[:, k, 5 * t:5 * t + 8])


def from_the_back(acc, left, right, t):
    for k in nl.affine_range(4):
        acc += nisa.nc_matmul(left[:, t - 3], right[:, k, 0:8])


def is_a_factor(acc, left, right, t):
    for k in nl.affine_range(3):
        acc += nisa.nc_matmul(left[:, t * k], right[:, k, 0:8])


def is_a_size(acc, left, right, t):
    for k in nl.affine_range(3):
        acc[:, 0:t + 2] += nisa.nc_matmul(left[:, k], right[:, k, 0:t + 2])


def is_a_partition(acc, left, right, t):
    p = 32 * (t % 2)
    for k in nl.affine_range(3):
        acc += nisa.nc_matmul(left[p:p + 32, k], right[p:p + 32, k, 0:8])


def moves_the_sum(acc, left, right, t):
    for k in nl.affine_range(3):
        acc[:, t:t + 2] += nisa.nc_matmul(left[:, k], right[:, k, 0:2])


def is_in_a_table(acc, left, right, t):
    table = (4, 1, 3, 0, 2, 6)
    for k in nl.affine_range(3):
        acc += nisa.nc_matmul(left[:, table[t] + k], right[:, k, 0:8])


def is_compared(acc, left, right, t):
    for k in nl.affine_range(3):
        if t > 2:
            acc += nisa.nc_matmul(left[:, t + k], right[:, k, 0:8])


def has_a_product_that_lives_on(acc, left, right, t):
    for k in nl.affine_range(3):
        x = nisa.nc_matmul(left[:, t + k], right[:, k, 0:8])
        acc[...] += x


def has_another_dtype(acc, left, right, t):
    narrow = nl.copy(right, dtype=nl.bfloat16 if t % 2 else nl.float16)
    for k in nl.affine_range(3):
        acc += nisa.nc_matmul(nl.copy(left[:, t], dtype=narrow.dtype), narrow[:, k, 0:8])


def is_decided_by_the_tile(acc, left, right, t):
    a = left if t % 3 else nl.copy(left[:, 0:12])
    for k in nl.affine_range(3):
        acc += nisa.nc_matmul(a[:, t + k], right[:, k, 0:8])


def is_a_number_afterwards(acc, left, right, t):
    for k in nl.affine_range(3):
        acc += nisa.nc_matmul(left[:, t + k], right[:, k, 0:8])
    assert type(t) is int
    for _ in range(t):
        acc += nisa.nc_matmul(left[:, t], right[:, t, 0:8])


def fails_and_is_caught(acc, left, right, t):
    try:
        for k in nl.affine_range(4):
            acc += nisa.nc_matmul(left[:, t + k, 0:P - 1], right[:, t + k, 0:9])
    except Exception:
        assert type(t) is int
    for k in nl.affine_range(4):
        acc += nisa.nc_matmul(left[:, t + k], right[:, t + k, 0:8])


def is_where_it_is_put(acc, left, right, t):
    ring = nl.copy(right)
    for k in nl.affine_range(4):
        ring[:, k, 0:8] = nl.copy(right[:, t + k, 0:8])
        ring[:, k] = ring[:, t]             # nothing to do where it is the same


def is_loaded_by_the_nest(acc, left, right, t):
    ring = nl.ndarray((P, 4, 8), dtype=nl.float32, buffer=nl.sbuf)
    a, b = t % 2, (t // 2) % 2
    for k in nl.affine_range(3):
        ring[:, a] = nl.copy(right[:, k, 0:8])
        acc += nisa.nc_matmul(left[:, k], ring[:, b])


@pytest.mark.parametrize("body", [
    leaves_the_tile, leaves_the_tile_in_a_slice, from_the_back, is_a_factor, is_a_size,
    is_a_partition, moves_the_sum, is_in_a_table, is_compared, has_a_product_that_lives_on,
    has_another_dtype, is_decided_by_the_tile, is_a_number_afterwards, fails_and_is_caught,
    is_loaded_by_the_nest, is_where_it_is_put], ids=lambda b: b.__name__)
def test_what_depends_on_a_variable_is_as_ever(monkeypatch, body):
    same(monkeypatch, kernel_of(body), *inputs())


@nki.jit
def ring_of_loads(x, w):
    """Slots that a nest loads and reads, not always the same two."""
    out = nl.ndarray((6, P, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    left = nl.load(w)
    ring = nl.zeros((P, 4, 3, 8), dtype=nl.float32, buffer=nl.sbuf)
    for t in nl.static_range(6):
        acc = nl.zeros((P, 8), dtype=nl.float32, buffer=nl.psum)
        a, b = t % 4, (0, 1, 2, 1, 0, 1)[t]
        for k in nl.affine_range(3):
            ring[:, a, k] = nl.load(x[:, k, 0:8])
            acc += nisa.nc_matmul(left[:, k], ring[:, b, k])
        nl.store(out[t], value=nl.copy(acc))
    return out


@nki.jit
def tiles_of_loads(x, w):
    """Loads into tiles that each iteration makes: (P, ROWS, WIDTH) and (P, ROWS, P) in HBM."""
    out = nl.ndarray((6, P, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    for t in nl.affine_range(len([0] * 6)):             # a list is no part of a nest
        acc = nl.zeros((P, 8), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(3):
            a = nl.load(w[:, t + k])
            b = nl.load(x[:, k, t:t + 8])
            acc += nisa.nc_matmul(a, b)
        nl.store(out[t], value=nl.copy(acc))
    return out


@nki.jit
def in_a_long_loop(x, w):
    """A loop that a timing-only run continues by itself (replay.py), with a nest in it."""
    out = nl.ndarray((12, P, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = nl.load(w), nl.load(x)
    for t in nl.affine_range(12):
        acc = nl.zeros((P, 8), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(4):
            acc += nisa.nc_matmul(left[:, t + k], right[:, k, t:t + 8])
        nl.store(out[t], value=nl.copy(acc))
    return out


@nki.jit
def among_other_loops(x, w):
    """Loops of Python, which are not in the record, between some that are."""
    out = nl.ndarray((6, P, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = nl.load(w), nl.load(x)
    tile = nl.ndarray((P, 4, 8), dtype=nl.float32, buffer=nl.sbuf)
    places = [0, 2, 1, 5, 3, 4]
    for t in nl.affine_range(6):
        acc = nl.zeros((P, 8), dtype=nl.float32, buffer=nl.psum)
        for n in nl.affine_range(places[t] + 1):
            tile[:, n % 4] = nl.copy(right[:, n, 0:8])
        for k in range(4):
            for i in nl.affine_range(2):
                acc += nisa.nc_matmul(left[:, t + k + i], right[:, k, t:t + 8])
        for k in range(4):
            acc += nisa.nc_matmul(left[:, t + k], right[:, k, t:t + 8])
        nl.store(out[t], value=nl.copy(acc))
    return out


@pytest.mark.parametrize("kernel", [ring_of_loads, tiles_of_loads, in_a_long_loop,
                                    among_other_loops],
                         ids=lambda k: k.__name__)
def test_nests_with_loads_and_in_long_loops_are_as_ever(monkeypatch, kernel):
    same(monkeypatch, kernel, *inputs())


def test_a_nest_with_loads_is_taken(monkeypatch, taken):
    same(monkeypatch, tiles_of_loads, *inputs())
    assert len(taken) == 5


@nki.jit
def summed_in_sbuf(x, w):
    """As the SDK's product in blocks: what a bank has added up is added to a tile in SBUF."""
    out = nl.ndarray((P, 4, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = nl.load(w), nl.load(x)
    total = nl.zeros((P, 4, 8), dtype=nl.float32, buffer=nl.sbuf)
    i = nl.mgrid[0:P, 0:8]
    for block in nl.sequential_range(2):
        for t in nl.affine_range(4):
            acc = nl.zeros((P, 8), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(4):
                acc[...] += nisa.nc_matmul(left[:, 4 * block + k], right[:, k, t:t + 8])
            total[i.p, t, i.x] += acc[i.p, i.x]
    nl.store(out, value=total)
    return out


def test_sums_in_sbuf_are_nests_as_well(monkeypatch):
    same(monkeypatch, summed_in_sbuf, *inputs())
    monkeypatch.delenv(nest.VARIABLE)
    nests = count(monkeypatch)
    run(summed_in_sbuf, *inputs(), compute=False)
    assert len(nests) == 1


# -- anything --------------------------------------------------------------------------------------

@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(-2, 12), st.integers(-2, 20), st.integers(1, 9),
                          st.integers(1, 4)), min_size=2, max_size=8))
def test_any_places_are_the_same(places):
    @nki.jit
    def kernel(x, w):
        out = nl.ndarray((len(places), P, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        left, right = nl.load(w), nl.load(x)
        for n in nl.static_range(len(places)):
            a, b, size, count = places[n]
            acc = nl.zeros((P, 8), dtype=nl.float32, buffer=nl.psum)
            for i in nl.affine_range(count):
                for k in nl.affine_range(2):
                    acc[:, 0:size] += nisa.nc_matmul(left[:, a + k + i],
                                                     right[:, i, b + k:b + k + size])
            nl.store(out[n], value=nl.copy(acc))
        return out
    with pytest.MonkeyPatch.context() as patch:
        same(patch, kernel, *(np.ones((P, ROWS, n), np.float32) for n in (WIDTH, P)))
