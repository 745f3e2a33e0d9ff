"""Subscripts, views, masks and casts give what NumPy gives on the same data.

Where tiles differ from NumPy by design (rank at least 2, a partition dim that stays), the expected
value says so; the traps of it have tests of their own in `test_traps_shapes.py`.
"""

from __future__ import annotations

import ml_dtypes
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from neuronxcc import nki

import nkisim
from nkisim.chip import dtypes
from nkisim.machine.tensor import Tensor

# CI is the same everywhere; more examples: change the number and run again
many = settings(max_examples=60, deadline=None, derandomize=True)


def numbered(shape, dtype=np.float32):
    """Return an array whose elements are all different (while they fit the dtype)."""
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape).astype(dtype)


def as_tile(a):
    """Return an array as the tile that a load makes of it."""
    return a.reshape((*a.shape, 1) if a.ndim == 1 else a.shape or (1, 1))


def computed(function, *arrays, **kwargs):
    """Run `function` on HBM tensors; return the tile that it returns."""

    @nki.jit
    def kernel(*tensors):
        tile = function(*tensors)
        out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    return nkisim.simulate(kernel, *arrays, **kwargs)


@st.composite
def subscripts(draw, shape, first=None):
    """Draw a basic subscript for a tensor: (as NKI takes it, as NumPy takes it)."""
    ours, numpys = [], []
    keys = draw(st.integers(1, len(shape)))
    for d, n in enumerate(shape[:keys]):
        if d == 0 and first is not None:
            k, k_np = draw(first)
            ours.append(k)
            numpys.append(k_np)
            continue
        lo = draw(st.integers(0, n - 1))
        hi = draw(st.integers(lo + 1, n))
        step = draw(st.integers(1, 3))
        cut = slice(lo, hi)
        choices = [
            (lo, lo),
            (lo - n, lo - n),
            (np.int64(lo), lo),
            (cut, cut),
            (slice(None), slice(None)),
            (slice(lo, None), slice(lo, None)),
            (slice(None, hi), slice(None, hi)),
            (slice(lo, hi, step),) * 2,
            (nl.ds(lo, hi - lo), cut),
        ]
        k, k_np = choices[draw(st.integers(0, len(choices) - 1))]
        ours.append(k)
        numpys.append(k_np)
    if draw(st.booleans()):  # `...` for the dims after some key, or at the end
        at = draw(st.integers(0, len(ours)))
        if all(isinstance(k, slice) and k == slice(None) for k in numpys[at:]):
            ours[at:] = [...]
            numpys[at:] = [...]
    if len(ours) == 1 and draw(st.booleans()):
        return ours[0], numpys[0]
    return tuple(ours), tuple(numpys)


@many
@given(st.data())
def test_basic_subscripts_of_hbm(data):
    """x[ints, slices, nl.ds, ...] loads what NumPy selects; 1-D results lie on partitions."""
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    ours, numpys = data.draw(subscripts(shape))
    x = numbered(shape)
    np.testing.assert_array_equal(computed(lambda h: nl.load(h[ours]), x), as_tile(x[numpys]))


@many
@given(st.data())
def test_basic_subscripts_of_a_tile(data):
    """t[...] reads and writes what NumPy selects; an int keeps the partition dim."""
    shape = (40, *data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    first = st.sampled_from(
        [
            (slice(None), slice(None)),
            (slice(0, 7), slice(0, 7)),
            (slice(32, 40), slice(32, 40)),
            (0, slice(0, 1)),
            (32, slice(32, 33)),
            (-8, slice(32, 33)),
            (nl.ds(32, 5), slice(32, 37)),
        ]
    )
    ours, numpys = data.draw(subscripts(shape, first))
    x = numbered(shape)
    want = x[numpys]
    want = want[:, None] if want.ndim == 1 else want

    def read(h):
        return nl.copy(nl.load(h)[ours])

    def write(h):
        t = nl.load(h)
        t[ours] = nl.negative(t[ours])
        return t

    np.testing.assert_array_equal(computed(read, x), want)
    changed = x.copy()
    changed[numpys] *= -1
    np.testing.assert_array_equal(computed(write, x), changed)


@many
@given(st.data())
def test_basic_subscripts_of_a_store(data):
    """nl.store(out[...], value) writes the elements that NumPy's assignment writes, no others."""
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    ours, numpys = data.draw(subscripts(shape))
    part = numbered(shape)[numpys]

    @nki.jit
    def kernel(value):
        out = nl.ndarray(shape, np.float32, buffer=nl.shared_hbm)
        nl.store(out, -1)
        nl.store(out[ours], nl.load(value))
        return out

    want = np.full(shape, -1, np.float32)
    want[numpys] = part
    np.testing.assert_array_equal(nkisim.simulate(kernel, as_tile(part)), want)


# -- index expressions -----------------------------------------------------------------------------


@st.composite
def affine(draw, rank, tile=False):
    """Draw a grid and an affine expression for each of `rank` dims.

    Returns (grid, [(const, coefficients)], shape that holds it). In a tile the first dim is the
    partition, of stride 1 along axis 0, and the others do not depend on axis 0.
    """
    axes = draw(st.integers(2, 4))
    grid = tuple(draw(st.integers(1, 5)) for _ in range(axes))
    exprs, shape = [], []
    for d in range(rank):
        lowest = -2 if not tile else 0
        coeffs = [draw(st.integers(lowest, 3)) for _ in range(axes)]
        if tile:
            coeffs = [1] + [0] * (axes - 1) if d == 0 else [0] + coeffs[1:]
        low = sum(min(0, c * (n - 1)) for c, n in zip(coeffs, grid))
        high = sum(max(0, c * (n - 1)) for c, n in zip(coeffs, grid))
        const = (
            32 * draw(st.integers(0, 1)) if tile and d == 0 else draw(st.integers(-low, -low + 3))
        )
        exprs.append((const, coeffs))
        shape.append(const + high + 1 + draw(st.integers(0, 2)))
    return grid, exprs, tuple(shape)


def spelled(data, grid, exprs):
    """Return the expressions as NKI indices, by nl.arange with None or by nl.mgrid."""
    if data.draw(st.booleans()) and len(grid) > 1:
        axes = nl.mgrid[tuple(slice(0, n) for n in grid)]
        assert axes.p is axes[0] and axes.x is axes[1]
    else:
        axes = [
            nl.arange(n)[tuple(slice(None) if e == d else None for e in range(len(grid)))]
            for d, n in enumerate(grid)
        ]
    out = []
    for const, coeffs in exprs:
        total = axes[0] * coeffs[0] + const
        for c, axis in zip(coeffs[1:], axes[1:]):
            total = c * axis + total if data.draw(st.booleans()) else total - -c * axis
        out.append(total)
    return tuple(out)


def in_numpy(grid, exprs):
    ids = np.indices(grid)
    return tuple(const + sum(c * i for c, i in zip(coeffs, ids)) for const, coeffs in exprs)


@many
@given(st.data())
def test_affine_subscripts_of_hbm(data):
    """const + sum of coefficient * index, with any integer coefficients, repeats included."""
    grid, exprs, shape = data.draw(affine(data.draw(st.integers(1, 3))))
    x = numbered(shape)
    got = computed(lambda h: nl.load(h[spelled(data, grid, exprs)]), x)
    np.testing.assert_array_equal(got, x[in_numpy(grid, exprs)])


@many
@given(st.data())
def test_affine_subscripts_of_a_tile(data):
    """Free dims of a tile take any affine expression that does not depend on the partition."""
    grid, exprs, shape = data.draw(affine(data.draw(st.integers(2, 3)), tile=True))
    assume(shape[0] <= 128)
    x = numbered(shape)
    got = computed(lambda h: nl.copy(nl.load(h)[spelled(data, grid, exprs)]), x)
    np.testing.assert_array_equal(got, x[in_numpy(grid, exprs)])


def test_free_elements_cannot_differ_by_partition():
    """t[p, p] would be another address in each partition: fine for a DMA, not on chip."""
    x = numbered((16, 16))
    p = nl.arange(16)[:, None]
    diagonal = computed(lambda h: nl.load(h[p, p]), x)
    np.testing.assert_array_equal(diagonal, np.diag(x)[:, None])
    with pytest.raises(nkisim.NkiError) as caught:
        computed(lambda h: nl.copy(nl.load(h)[p, p]), x)
    assert caught.value.id == "NKI-P05"


@many
@given(st.data())
def test_ints_and_loop_variables_beside_index_expressions(data):
    """x[i, p, f] with a Python int or a loop variable, the others index expressions."""
    n, a, b = (data.draw(st.integers(1, 5)) for _ in range(3))
    x = numbered((n, a + 2, 2 * b + 1))

    @nki.jit
    def kernel(h):
        out = nl.ndarray((n, a, b), np.float32, buffer=nl.shared_hbm)
        p, f = nl.arange(a)[:, None], nl.arange(b)[None, :]
        for i in nl.affine_range(n):
            nl.store(out[i, p, f], nl.load(h[i, p + 2, 2 * f + 1]))
        return out

    np.testing.assert_array_equal(nkisim.simulate(kernel, x), x[:, 2:, 1::2])


# -- masks -----------------------------------------------------------------------------------------


@st.composite
def masks(draw, grid):
    """Draw a mask over a 2-D grid: (function of the two indices, is it a box?)."""

    def term():
        a, b = draw(st.sampled_from([(1, 0), (0, 1), (1, 1), (1, -1), (-1, 0), (0, -2), (2, 1)]))
        k = draw(st.integers(-sum(grid), sum(grid)))
        op = draw(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]))
        return lambda i, j: {
            "<": lambda v: v < k,
            "<=": lambda v: v <= k,
            ">": lambda v: v > k,
            ">=": lambda v: v >= k,
            "==": lambda v: v == k,
            "!=": lambda v: v != k,
        }[op](i * a + j * b)

    terms = [term() for _ in range(draw(st.integers(1, 3)))]
    how = draw(st.sampled_from(["and", "or", "not"]))

    def mask(i, j):
        out = terms[0](i, j)
        for t in terms[1:]:
            out = out | t(i, j) if how == "or" else out & t(i, j)
        return ~out if how == "not" else out

    return mask


@many
@given(st.data())
def test_masks_of_loads_and_stores(data):
    """A masked load or store touches the elements where NumPy's mask is true, no others."""
    grid = (data.draw(st.integers(1, 7)), data.draw(st.integers(1, 7)))
    mask = data.draw(masks(grid))
    x = numbered(grid) + 1
    where = mask(*np.indices(grid))

    @nki.jit
    def kernel(h):
        out = nl.ndarray((2, *grid), np.float32, buffer=nl.shared_hbm)
        nl.store(out, -1)
        p, f = nl.mgrid[0 : grid[0], 0 : grid[1]]
        t = nl.full(grid, -1, np.float32)
        t[p, f] = nl.load(h[p, f], mask=mask(p, f))
        nl.store(out[0], t)
        nl.store(out[1, p, f], nl.load(h), mask=mask(p, f))
        return out

    want = np.where(where, x, -1)
    np.testing.assert_array_equal(nkisim.simulate(kernel, x), np.stack([want, want]))


@many
@given(st.data())
def test_masks_of_computation(data):
    """A masked instruction leaves the rest of its destination as it was."""
    grid = (8, data.draw(st.integers(1, 7)))
    mask = data.draw(masks(grid))
    x, y = numbered(grid) + 1, numbered(grid) * 2
    where = mask(*np.indices(grid))
    rows = np.flatnonzero(where.any(1))
    assume(not len(rows) or rows[0] == 0)  # engines start at partition 0, 32 ...

    def function(a, b):
        p, f = nl.mgrid[0 : grid[0], 0 : grid[1]]
        t, u = nl.load(a), nl.load(b)
        t[p, f] = nl.multiply(t[p, f], u[p, f], mask=mask(p, f))
        return t

    np.testing.assert_array_equal(computed(function, x, y), np.where(where, x * y, x))


@many
@given(st.integers(1, 300), st.integers(1, 9), st.sampled_from([16, 64, 128]))
def test_partial_tiles(rows, columns, tile):
    """Masked tiles cover any size, and read or write nothing outside of the tensors."""
    x = numbered((rows, columns))

    @nki.jit
    def kernel(h):
        out = nl.ndarray((rows, columns), np.float32, buffer=nl.shared_hbm)
        p, f = nl.arange(tile)[:, None], nl.arange(4)[None, :]
        for i in nl.affine_range(-(-rows // tile)):
            for j in nl.affine_range(-(-columns // 4)):
                inside = (i * tile + p < rows) & (j * 4 + f < columns)
                t = nl.load(h[i * tile + p, j * 4 + f], mask=inside)
                nl.store(out[i * tile + p, j * 4 + f], nl.add(t, 1, mask=inside), mask=inside)
        return out

    run = nkisim.run(kernel, x)
    np.testing.assert_array_equal(run.outputs, x + 1)
    assert not run.findings


# -- views -----------------------------------------------------------------------------------------


@st.composite
def factors(draw, n):
    """Draw a shape of `n` elements."""
    out = []
    while n > 1:
        f = draw(st.sampled_from([k for k in range(2, n + 1) if n % k == 0]))
        out.append(f)
        n //= f
        if draw(st.booleans()):
            out.append(1)
    return tuple(out) or (1,)


@many
@given(st.data())
def test_chains_of_views_of_a_tile(data):
    """reshape, expand_dims, slices and broadcast_to in any order, as NumPy has them."""
    x = numbered((8, 24))
    a = x
    steps = []
    for _ in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(["reshape", "expand", "slice", "broadcast"]))
        if kind == "reshape":
            shape = (8, *data.draw(factors(a.size // 8)))
            if not np.shares_memory(a.reshape(shape), x):
                continue
            steps.append(lambda t, shape=shape: t.reshape(shape))
            a = a.reshape(shape)
        elif kind == "expand":
            axis = data.draw(st.integers(1, a.ndim))
            steps.append(lambda t, axis=axis: t.expand_dims(axis))
            a = np.expand_dims(a, axis)
        elif kind == "slice":
            d = data.draw(st.integers(1, a.ndim - 1))
            hi = data.draw(st.integers(1, a.shape[d]))
            key = (slice(None),) * d + (slice(hi // 2, hi),)
            steps.append(lambda t, key=key: t[key])
            a = a[key]
        elif 1 in a.shape[1:]:
            shape = (8, *(3 if n == 1 else n for n in a.shape[1:]))
            if np.prod(shape) > 4000:
                continue
            steps.append(lambda t, shape=shape: t.broadcast_to(shape))
            a = np.broadcast_to(a, shape)
    assume(a.ndim <= 5)

    def function(h):
        t = nl.load(h)
        for step in steps:
            t = step(t)
            assert t.shape[0] == 8
        return nl.copy(t)

    np.testing.assert_array_equal(computed(function, x), a)


@many
@given(st.data())
def test_writes_through_views_are_seen_in_the_base(data):
    """A chain of reshape and slice is a view: assigning to it changes the tile."""
    x = numbered((8, 24))
    want = x.copy()
    shape = (8, *data.draw(factors(24)))
    ours, numpys = data.draw(subscripts(shape, st.just((slice(None), slice(None)))))
    want.reshape(shape)[numpys] = -5

    def function(h):
        t = nl.load(h)
        t.reshape(shape)[ours] = -5
        return t

    np.testing.assert_array_equal(computed(function, x), want)


@many
@given(st.data())
def test_views_of_hbm(data):
    """HBM reshapes follow row-major bytes, also before a slice; stores go through them."""
    # at most 125 elements: each may be a partition
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    x = numbered(shape)
    new = data.draw(factors(x.size))
    ours, numpys = data.draw(subscripts(new))
    np.testing.assert_array_equal(
        computed(lambda h: nl.load(h.reshape(new)[ours]), x), as_tile(x.reshape(new)[numpys])
    )


@pytest.mark.parametrize(
    "old, new",
    [
        (np.float32, np.uint32),
        (np.float32, np.uint8),
        (np.uint8, np.int32),
        (np.int16, ml_dtypes.bfloat16),
    ],
)
def test_view_as_another_dtype(old, new):
    """The bytes stay; the last dim scales with the item size."""
    x = np.random.default_rng(0).integers(0, 255, (4, 64 // np.dtype(old).itemsize)).astype(old)
    for function in (lambda h: nl.load(h).view(new), lambda h: nl.load(h.view(new))):
        got = computed(lambda h, f=function: nl.copy(f(h)), x)
        assert got.dtype == new
        np.testing.assert_array_equal(got.view(np.uint8), x.view(np.uint8))


@many
@given(st.data())
def test_block_dims(data):
    """Block dims hold tiles of their own, for any number of them, before par_dim."""
    blocks = tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=2)))
    p, f = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5))
    memory = data.draw(st.sampled_from([nl.sbuf, nl.psum]))
    x = numbered((*blocks, p, f))

    @nki.jit
    def kernel(h):
        out = nl.ndarray(x.shape, np.float32, buffer=nl.shared_hbm)
        t = nl.ndarray((*blocks, nl.par_dim(p), f), np.float32, buffer=memory)
        assert t.shape == x.shape
        i_p, i_f = nl.mgrid[0:p, 0:f]
        for idx in np.ndindex(*blocks):
            t[idx] = nl.copy(nl.load(h[idx]))
        for idx in np.ndindex(*blocks):
            nl.store(out[idx], nl.copy(t[(*idx, i_p, i_f)]))
        return out

    np.testing.assert_array_equal(nkisim.simulate(kernel, x), x)


# -- dtypes ----------------------------------------------------------------------------------------

NAMED = [d for d in dtypes.SUPPORTED if d not in (dtypes.BOOL, dtypes.TFLOAT32)]
IDS = [dtypes.name(d) for d in NAMED]


@pytest.mark.parametrize("to", NAMED, ids=IDS)
@pytest.mark.parametrize("of", NAMED, ids=IDS)
def test_casts_agree_wherever_they_happen(of, to):
    """A load, a copy, a DMA and an assignment cast alike: through float32, nearest, saturating."""
    values = np.array([[0, 1, 2, 3, 5, 7, 100, 200], [-1, -2, -3.5, 0.5, 1.5, 2.5, 1e3, 6e4]])
    x = dtypes.cast(values.astype(np.float32), of)

    @nki.jit
    def kernel(h):
        out = nl.ndarray((4, *x.shape), to, buffer=nl.shared_hbm)
        nl.store(out[0], nl.load(h, dtype=to))
        nl.store(out[1], nl.copy(nl.load(h), dtype=to))
        t = nl.ndarray(x.shape, to)
        nisa.dma_copy(dst=t, src=h)
        nl.store(out[2], t)
        u = nl.ndarray(x.shape, to)
        u[...] = nl.load(h)
        nl.store(out[3], u)
        return out

    got = nkisim.simulate(kernel, x)
    want = dtypes.cast(x, to)
    for k in range(4):
        np.testing.assert_array_equal(got[k].view(np.uint8), want.view(np.uint8))


@pytest.mark.parametrize("b", NAMED, ids=IDS)
@pytest.mark.parametrize("a", NAMED, ids=IDS)
def test_promotion_of_two_tiles(a, b):
    """The result of two tiles has the promoted dtype, whichever comes first."""
    x, y = np.full((2, 2), 2).astype(a), np.full((2, 2), 3).astype(b)
    one = computed(lambda h, k: nl.add(nl.load(h), nl.load(k)), x, y)
    two = computed(lambda h, k: nl.load(k) + nl.load(h), x, y)
    assert one.dtype == two.dtype == dtypes.promote(a, b)
    np.testing.assert_array_equal(one.astype(np.float32), np.full((2, 2), 5, np.float32))


def test_tensors_that_are_made_without_init_have_all_that_it_sets():
    """Views by subscripts and results that wait are made sooner: what Tensor gets they get too."""
    lacking = []

    @nki.jit
    def kernel(x):
        t = nl.load(x)
        for made in (t[0:4, 1:3], nl.add(t, 1.0)):
            lacking.extend(
                name
                for name in Tensor.__slots__
                if name not in ("uncut", "__weakref__") and not hasattr(made, name)
            )
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, t)
        return out

    nkisim.run(kernel, np.ones((8, 8), np.float32))
    assert lacking == []
