"""What a loop of products may do: indices of any kind, sums that move, loads, several statements.

As in test_loops.py, every kernel runs so and with every iteration; the first ones run once.
"""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nkisim
from looping import P, count, data, kernel_with, same


@pytest.fixture
def executed(monkeypatch):
    """Count the loops whose iterations all followed from the first."""
    return count(monkeypatch)


def dtype_of(name):
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name, name))


# -- bodies that run once: body(acc, left, right), as kernel_with calls it -------------------------


def by_arange(acc, left, right):
    i_p, i_f, i_m = nl.arange(P)[:, None], nl.arange(8)[None, :], nl.arange(P)[None, :]
    for k in nl.affine_range(4):
        acc += nisa.nc_matmul(left[i_p, 2 * k + 1, i_m], right[i_p, k, i_f + k])


def by_arange_in_the_subscript(acc, left, right):
    for k in nl.affine_range(4):
        acc[...] += nisa.nc_matmul(
            left[nl.arange(P)[:, None], k, nl.arange(P)[None, :]],
            right[nl.arange(P)[:, None], 7 - k, 4 - k + nl.arange(8)[None, :]],
        )


def by_mgrid(acc, left, right):
    i_l, i_r = nl.mgrid[0:P, 0:P], nl.mgrid[0:P, 0:8]
    for k in nl.sequential_range(1, 8, 3):
        acc += nisa.nc_matmul(left[i_l.p, k, i_l.x], right[i_r.p, k, i_r.x + 4])


def by_ds(acc, left, right):
    for k in nl.affine_range(4):
        acc += nisa.nc_matmul(left[:, k], right[:, 2 * k, nl.ds(k, 8)])


def by_views(acc, left, right):
    for k in nl.affine_range(4):
        w = left[:, 2 * k]
        first = k + 1
        last = first + 8
        acc += nisa.nc_matmul(w, right[:, first, first:last])


def by_views_of_views(acc, left, right):
    for i in nl.affine_range(2):
        rows = right[:, 4 * i : 4 * i + 4]
        for k in nl.affine_range(4):
            acc += nisa.nc_matmul(left[:, 2 * k + i], rows[:, k, 4 * i : 4 * i + 8])


def if_of_no_index(acc, left, right):
    size = 4
    for k in nl.affine_range(size):
        if size > 3:
            w = left[:, k]
            acc += nisa.nc_matmul(w, right[:, k, 0:8])


def two_sums(acc, left, right):
    other = nl.zeros((P, 8), dtype=nl.float32, buffer=nl.psum)
    for k in nl.affine_range(4):
        acc += nisa.nc_matmul(left[:, k], right[:, k, 0:8])
        other += nisa.nc_matmul(left[:, k], right[:, k, 4:12])
    acc[...] = nl.add(nl.copy(acc), nl.copy(other))


@pytest.mark.parametrize(
    "body",
    [
        by_arange,
        by_arange_in_the_subscript,
        by_mgrid,
        by_ds,
        by_views,
        by_views_of_views,
        if_of_no_index,
        two_sums,
    ],
    ids=lambda b: b.__name__,
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_these_bodies_run_once(executed, body, dtype):
    dt = dtype_of(dtype)
    outcome = same(kernel_with(body), data(P, 8, 12, dtype=dt), data(P, 9, P, dtype=dt))
    assert isinstance(outcome, dict), outcome
    assert len(executed) == 1


# -- matrix products as people write them ----------------------------------------------------------


@nki.jit
def tiled(a, b, width=64):
    """Load both operands of each product: a (K, M), b (K, N)."""
    out = nl.ndarray((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    for m in nl.affine_range(a.shape[1] // P):
        for n in nl.affine_range(b.shape[1] // width):
            acc = nl.zeros((P, width), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(a.shape[0] // P):
                left = nl.load(a[k * P : (k + 1) * P, m * P : (m + 1) * P])
                right = nl.load(b[k * P : (k + 1) * P, n * width : (n + 1) * width])
                acc += nisa.nc_matmul(left, right)
            nl.store(out[m * P : (m + 1) * P, n * width : (n + 1) * width], value=nl.copy(acc))
    return out


@nki.jit
def tiled_by_index(a, b, width=64):
    """The same in the style of mgrid, with tiles that are made before, and a bfloat16 copy."""
    out = nl.ndarray((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    i_l, i_r, i_o = nl.mgrid[0:P, 0:P], nl.mgrid[0:P, 0:width], nl.mgrid[0:P, 0:width]
    for m in nl.affine_range(a.shape[1] // P):
        lefts = nl.ndarray((a.shape[0] // P, nl.par_dim(P), P), dtype=nl.bfloat16, buffer=nl.sbuf)
        for n in nl.affine_range(b.shape[1] // width):
            acc = nl.zeros((P, width), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(a.shape[0] // P):
                lefts[k, i_l.p, i_l.x] = nl.load(a[k * P + i_l.p, m * P + i_l.x])
                right = nl.load(b[k * P + i_r.p, n * width + i_r.x], dtype=nl.bfloat16)
                acc[i_o.p, i_o.x] += nisa.nc_matmul(lefts[k, i_l.p, i_l.x], right)
            nl.store(out[m * P + i_o.p, n * width + i_o.x], value=nl.copy(acc))
    return out


@nki.jit
def blocked(a, b, width=64):
    """A block of sums: wide loads, and two inner loops over their parts."""
    out = nl.ndarray((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    rows, cols = a.shape[1] // P, b.shape[1] // width
    acc = nl.zeros((rows, cols, nl.par_dim(P), width), dtype=nl.float32, buffer=nl.psum)
    for k in nl.affine_range(a.shape[0] // P):
        left = nl.load(a[k * P : (k + 1) * P])
        right = nl.load(b[k * P : (k + 1) * P])
        for m in nl.affine_range(rows):
            for n in nl.affine_range(cols):
                acc[m, n] += nisa.nc_matmul(
                    left[:, m * P : (m + 1) * P], right[:, n * width : (n + 1) * width]
                )
    for m in nl.affine_range(rows):
        for n in nl.affine_range(cols):
            nl.store(
                out[m * P : (m + 1) * P, n * width : (n + 1) * width], value=nl.copy(acc[m, n])
            )
    return out


@nki.jit
def preloaded(a, b, width=64):
    """Load everything in loops that do nothing else; the sums move in one tile."""
    out = nl.ndarray((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    tiles, cols = a.shape[0] // P, b.shape[1] // width
    left = nl.ndarray((P, tiles, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
    right = nl.ndarray((P, tiles, b.shape[1]), dtype=b.dtype, buffer=nl.sbuf)
    for k in nl.affine_range(tiles):
        left[:, k] = nl.load(a[k * P : (k + 1) * P])
        right[:, k] = nl.load(b[k * P : (k + 1) * P])
    for m in nl.affine_range(a.shape[1] // P):
        acc = nl.zeros((P, b.shape[1]), dtype=nl.float32, buffer=nl.psum)
        for n in nl.affine_range(cols):
            for k in nl.affine_range(tiles):
                acc[:, nl.ds(n * width, width)] += nisa.nc_matmul(
                    left[:, k, m * P : (m + 1) * P], right[:, k, n * width : (n + 1) * width]
                )
        nl.store(out[m * P : (m + 1) * P], value=nl.copy(acc))
    return out


@nki.jit
def tiled_as_published(a, b, width=64):
    """Make the tiles of each iteration with nl.ndarray, and multiply with nl.matmul."""
    out = nl.ndarray((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    for m in nl.affine_range(a.shape[1] // P):
        for n in nl.affine_range(b.shape[1] // width):
            acc = nl.zeros((P, width), nl.float32, buffer=nl.psum)
            for k in nl.affine_range(a.shape[0] // P):
                left = nl.ndarray((P, P), dtype=a.dtype, buffer=nl.sbuf)
                right = nl.ndarray((nl.par_dim(P), width), dtype=b.dtype, buffer=nl.sbuf)
                left[...] = nl.load(a[k * P : (k + 1) * P, m * P : (m + 1) * P])
                right[...] = nl.load(b[k * P : (k + 1) * P, n * width : (n + 1) * width])
                acc += nl.matmul(left[...], right[...], transpose_x=True)
            nl.store(out[m * P : (m + 1) * P, n * width : (n + 1) * width], value=nl.copy(acc))
    return out


PRODUCTS = [tiled, tiled_by_index, blocked, preloaded, tiled_as_published]


@pytest.mark.parametrize("kernel", PRODUCTS, ids=lambda k: k.__name__)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_loads_and_products_of_a_nest_run_once(executed, kernel, dtype):
    dt = dtype_of(dtype)
    if kernel is tiled_by_index and dtype == "float32":
        dt = np.dtype(np.float32)  # its loads cast
    a, b = data(3 * P, 2 * P, dtype=dt), data(3 * P, 256, dtype=dt)
    outcome = same(kernel, a, b)
    assert isinstance(outcome, dict), outcome
    assert len(executed) >= 1


@pytest.mark.parametrize("kernel", PRODUCTS, ids=lambda k: k.__name__)
def test_values_that_are_not_rounded_are_the_same(monkeypatch, kernel):
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    dt = dtype_of("bfloat16")
    same(kernel, data(3 * P, 2 * P, dtype=dt), data(3 * P, 128, dtype=dt))


@settings(deadline=None, max_examples=20)
@given(
    kernel=st.sampled_from(PRODUCTS),
    k=st.integers(1, 4),
    m=st.integers(1, 2),
    n=st.integers(1, 4),
    limit=st.sampled_from([256, 512, 4096]),
    most=st.integers(2, 40),
)
def test_products_of_any_size_are_the_same_however_many_may_wait(kernel, k, m, n, limit, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nkisim.lazy.products.MAX_ROWS", limit)
        patch.setattr("nkisim.lazy.products.MAX_PRODUCTS", most)
        same(patch, kernel, data(k * P, m * P), data(k * P, n * 64))


def test_sums_of_whole_numbers_are_those_of_numpy():
    """Exact in any order of the sum: more products than wait at once, and loads in three dtypes."""
    a = np.random.default_rng(0).integers(-2, 3, (40 * P, P)).astype(np.float32)
    b = np.random.default_rng(1).integers(-2, 3, (40 * P, 128)).astype(np.float32)
    for kernel in PRODUCTS[:3]:
        assert np.array_equal(nkisim.simulate(kernel, a, b), a.T @ b)


# -- bodies that run one by one --------------------------------------------------------------------


@nki.jit
def around(a, b, body):
    """body(acc, slots, a, b) loads and accumulates; slots (P, 4, 8)."""
    out = nl.ndarray((P, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    slots = nl.ndarray((P, 4, 8), dtype=b.dtype, buffer=nl.sbuf)
    acc = nl.zeros((P, 8), dtype=nl.float32, buffer=nl.psum)
    body(acc, slots, a, b)
    nl.store(out, value=nl.copy(acc))
    return out


def next_slot(acc, slots, a, b):
    """Read the slot that the next iteration writes."""
    left = nl.load(a[0:P])
    for k in nl.affine_range(3):
        slots[:, k] = nl.load(b[k * P : (k + 1) * P])
        acc += nisa.nc_matmul(left, slots[:, k + 1])


def slot_before(acc, slots, a, b):
    left = nl.load(a[0:P])
    slots[:, 0] = nl.load(b[0:P])
    for k in nl.sequential_range(3):
        slots[:, k + 1] = nl.load(b[k * P : (k + 1) * P])
        acc += nisa.nc_matmul(left, slots[:, k])


def product_first(acc, slots, a, b):
    left = nl.load(a[0:P])
    slots[...] = nl.load(b[0:P].reshape((P, 1, 8))).broadcast_to((P, 4, 8))
    for k in nl.sequential_range(4):
        acc += nisa.nc_matmul(left, slots[:, k])
        slots[:, k] = nl.load(b[k * P : (k + 1) * P])
    for k in nl.sequential_range(4):
        acc += nisa.nc_matmul(left, slots[:, k])


def one_slot_for_all(acc, slots, a, b):
    for k in nl.sequential_range(4):
        slots[:, 0] = nl.load(b[k * P : (k + 1) * P])
        left = nl.load(a[k * P : (k + 1) * P])
        acc += nisa.nc_matmul(left, slots[:, 0])


def slots_that_overlap(acc, slots, a, b):
    left = nl.load(a[0:P])
    flat = slots.reshape((P, 32))
    for k in nl.sequential_range(4):
        flat[:, 4 * k : 4 * k + 8] = nl.load(b[k * P : (k + 1) * P])
        acc += nisa.nc_matmul(left, flat[:, 4 * k : 4 * k + 8])


def downwards(acc, slots, a, b):
    for k in nl.affine_range(4):
        slots[:, 3 - k] = nl.load(b[k * P : (k + 1) * P])
        acc += nisa.nc_matmul(nl.load(a[k * P : (k + 1) * P]), slots[:, 3 - k])


def more_than_was_loaded(acc, slots, a, b):
    left = nl.load(a[0:P])
    for k in nl.affine_range(4):
        slots[:, k, 0:4] = nl.load(b[k * P : (k + 1) * P, 0:4])
        acc += nisa.nc_matmul(left, slots[:, k])


def past_the_rows(acc, slots, a, b):
    for k in nl.affine_range(5):
        acc += nisa.nc_matmul(nl.load(a[k * P : (k + 1) * P]), nl.load(b[k * P : (k + 1) * P]))


def while_products_wait(acc, slots, a, b):
    """Write slots that products from before the nest have not read yet."""
    left = nl.load(a[0:P])
    for k in nl.static_range(4):
        slots[:, k] = nl.load(b[k * P : (k + 1) * P])
        acc += nisa.nc_matmul(left, slots[:, k])
    for k in nl.affine_range(4):
        slots[:, k] = nl.load(b[(3 - k) * P : (4 - k) * P])
        acc += nisa.nc_matmul(left, slots[:, k])


def something_else_in_between(acc, slots, a, b):
    for k in nl.affine_range(4):
        right = nl.load(b[k * P : (k + 1) * P])
        slots[:, k] = nl.add(right, 1.0)
        acc += nisa.nc_matmul(nl.load(a[k * P : (k + 1) * P]), slots[:, k])


def the_sum_is_read(acc, slots, a, b):
    for k in nl.affine_range(4):
        acc += nisa.nc_matmul(nl.load(a[k * P : (k + 1) * P]), nl.load(b[k * P : (k + 1) * P]))
        slots[:, k] = nl.copy(acc)
    acc[...] = nl.copy(slots[:, 1])


def mask_on_a_load(acc, slots, a, b):
    i_p, i_f = nl.arange(P)[:, None], nl.arange(8)[None, :]
    for k in nl.affine_range(4):
        slots[:, k] = nl.load(b[k * P + i_p, i_f], mask=k * P + i_p < 3 * P + 100)
        acc += nisa.nc_matmul(nl.load(a[k * P : (k + 1) * P]), slots[:, k])


def mask_of_an_index(acc, slots, a, b):
    left = nl.load(a[0:P])
    for k in nl.affine_range(4):
        slots[:, k] = nl.load(b[k * P : (k + 1) * P])
        acc += nisa.nc_matmul(left, slots[:, k], mask=k > 0)


def truth_of_an_index(acc, slots, a, b):
    left = nl.load(a[0:P])
    for k in nl.affine_range(4):
        slots[:, k] = nl.load(b[k * P : (k + 1) * P])
        if k > 1:
            acc += nisa.nc_matmul(left, slots[:, k])


def number_of_a_truth(acc, slots, a, b):
    left = nl.load(a[0:P])
    for k in nl.affine_range(4):
        acc += nisa.nc_matmul(left, nl.load(b[(k > 1) * P : ((k > 1) + 1) * P]))


def tile_that_is_half_loaded(acc, slots, a, b):
    left = nl.load(a[0:P])
    for k in nl.affine_range(4):
        tile = nl.ndarray((P, 8), dtype=b.dtype, buffer=nl.sbuf)
        tile[:, 0:4] = nl.load(b[k * P : (k + 1) * P, 0:4])
        acc += nisa.nc_matmul(left, tile)


def tile_that_is_turned(acc, slots, a, b):
    left = nl.load(a[0:P])
    i, j, h = nl.arange(P)[:, None, None], nl.arange(2)[None, :, None], nl.arange(4)[None, None, :]
    for k in nl.affine_range(4):
        tile = nl.ndarray((P, 4, 2), dtype=b.dtype, buffer=nl.sbuf)
        tile[i, h, j] = nl.load(b[k * P + i, 4 * j + h])
        acc += nisa.nc_matmul(left, tile.reshape((P, 8)))


def tile_of_an_outer_loop(acc, slots, a, b):
    left = nl.load(a[0:P])
    for _ in nl.sequential_range(2):
        tile = nl.ndarray((P, 8), dtype=b.dtype, buffer=nl.sbuf)
        for k in nl.sequential_range(4):
            tile[...] = nl.load(b[k * P : (k + 1) * P])
            acc += nisa.nc_matmul(left, tile)


def new_sum_each_time(acc, slots, a, b):
    left = nl.load(a[0:P])
    for k in nl.affine_range(4):
        own = nl.ndarray((P, 8), dtype=nl.float32, buffer=nl.psum)
        own += nisa.nc_matmul(left, nl.load(b[k * P : (k + 1) * P]))


def tile_no_one_uses(acc, slots, a, b):
    for k in nl.affine_range(4):
        tile = nl.ndarray((P, 8), dtype=b.dtype, buffer=nl.sbuf)
        acc += nisa.nc_matmul(nl.load(a[k * P : (k + 1) * P]), nl.load(b[k * P : (k + 1) * P]))
        tile[...] = nl.load(b[k * P : (k + 1) * P])
        other = nl.ndarray((P, 8), dtype=b.dtype, buffer=nl.sbuf)
        other = tile
        acc += nisa.nc_matmul(nl.load(a[k * P : (k + 1) * P]), other)


def tile_read_afterwards(acc, slots, a, b):
    for k in nl.affine_range(4):
        right = nl.load(b[k * P : (k + 1) * P])
        acc += nisa.nc_matmul(nl.load(a[k * P : (k + 1) * P]), right)
    acc += nisa.nc_matmul(nl.load(a[0:P]), right)


def a_part_of_a_view(acc, slots, a, b):
    left = nl.load(a[0:P])
    slots[...] = nl.load(b.reshape((4, P, 8))[0].reshape((P, 1, 8))).broadcast_to((P, 4, 8))
    for k in nl.affine_range(4):
        w = slots[:, k]
        acc[:, 0:4] += nisa.nc_matmul(left, w[:, 4:8])
        acc[:, 4:8] += nisa.nc_matmul(left, w[:, 0:4])


def two_products_of_one_sum(acc, slots, a, b):
    left = nl.load(a[0:P])
    for k in nl.affine_range(4):
        right = nl.load(b[k * P : (k + 1) * P])
        acc += nisa.nc_matmul(left, right)
        acc += nisa.nc_matmul(right[:, 0:8], right) if False else nisa.nc_matmul(left, right)


def its_own_square(acc, slots, a, b):
    for k in nl.affine_range(4):
        acc[0:8] += nisa.nc_matmul(nl.load(b[k * P : (k + 1) * P]), nl.load(b[k * P : (k + 1) * P]))


def one_iteration(acc, slots, a, b):
    for k in nl.affine_range(1):
        acc += nisa.nc_matmul(nl.load(a[k * P : (k + 1) * P]), nl.load(b[k * P : (k + 1) * P]))


BODIES = [
    next_slot,
    slot_before,
    product_first,
    one_slot_for_all,
    slots_that_overlap,
    downwards,
    more_than_was_loaded,
    past_the_rows,
    while_products_wait,
    something_else_in_between,
    the_sum_is_read,
    mask_on_a_load,
    mask_of_an_index,
    truth_of_an_index,
    number_of_a_truth,
    tile_that_is_half_loaded,
    tile_that_is_turned,
    tile_of_an_outer_loop,
    new_sum_each_time,
    tile_no_one_uses,
    tile_read_afterwards,
    a_part_of_a_view,
    two_products_of_one_sum,
    its_own_square,
    one_iteration,
]


@pytest.mark.parametrize("body", BODIES, ids=lambda b: b.__name__)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_does_not_fit_is_the_same_as_ever(body, dtype):
    dt = dtype_of(dtype)
    same(around, data(4 * P, P, dtype=dt), data(4 * P, 8, dtype=dt), body=body)


def test_an_input_that_is_written_later_is_read_before():
    """What waits for the nest's loads is computed before someone writes where they come from."""

    @nki.jit
    def kernel(a, b):
        scratch = nl.ndarray(b.shape, dtype=b.dtype, buffer=nl.private_hbm)
        out = nl.ndarray((P, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        for k in nl.static_range(4):
            nl.store(scratch[k * P : (k + 1) * P], value=nl.load(b[k * P : (k + 1) * P]))
        acc = nl.zeros((P, 8), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(4):
            acc += nisa.nc_matmul(
                nl.load(a[k * P : (k + 1) * P]), nl.load(scratch[k * P : (k + 1) * P])
            )
        nl.store(scratch[P : 2 * P], value=nl.zeros((P, 8), dtype=b.dtype, buffer=nl.sbuf))
        nl.store(out, value=nl.copy(acc))
        return out

    a, b = np.ones((4 * P, P), np.float32), np.ones((4 * P, 8), np.float32)
    assert np.array_equal(nkisim.simulate(kernel, a, b), a.T @ b)
    same(kernel, a, b)
