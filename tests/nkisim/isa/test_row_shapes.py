"""Random shapes, strided accesses and dtypes of the rows that kernels use most, against oracles."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import nkisim
from oracle import dma, scalar, tensor, vector
from oracle.common import BF16, E5M2, FLOATS, FP16, FP32, I32, U8
from rowmatrix.data import fill, prefill

DTYPES = st.sampled_from((FP32, BF16, FP16, E5M2, I32, U8))
SHAPES = st.tuples(st.integers(1, 9), st.lists(st.integers(1, 5), min_size=1, max_size=3)).map(
    lambda s: (s[0], *s[1])
)
SEEDS = st.integers(0, 2**16)
TIMES = settings(max_examples=60, deadline=None, derandomize=True, database=None)


@dataclass(frozen=True)
class Access:
    """An access of a tile: of each dim `sizes` elements from `starts`, `steps` apart."""

    sizes: tuple[int, ...]
    starts: tuple[int, ...]
    steps: tuple[int, ...]

    @property
    def base(self) -> tuple[int, ...]:
        """Return the shape that a tile needs to be accessed so."""
        return tuple(a + (n - 1) * s + 1 for n, a, s in zip(self.sizes, self.starts, self.steps))

    def of(self, x):
        """Return the access of a tile, or of an array."""
        return x[self.index(np.arange if isinstance(x, np.ndarray) else nl.arange)]

    def index(self, arange):
        """Return the subscript, of nl.arange as a kernel writes it or of np.arange."""
        rank, whole = len(self.sizes), (slice(None),)
        return tuple(
            arange(n)[(None,) * d + whole + (None,) * (rank - d - 1)] * step + start
            for d, (n, start, step) in enumerate(zip(self.sizes, self.starts, self.steps))
        )


@st.composite
def accesses(draw, shape, least=0):
    """Draw an access of a shape. Partitions have no step; `least` 0 repeats elements."""
    steps = tuple(draw(st.integers(least, 3)) if d else 1 for d in range(len(shape)))
    starts = tuple(draw(st.integers(0, 2)) if d else 0 for d in range(len(shape)))
    return Access(shape, starts, steps)


def run(call, to, dtype, *arrays):
    """Return what `dst[to] = call(tiles)` writes; nothing else of `dst` may change."""
    before = prefill(to.base, dtype)

    def kernel(before, *given):
        dst = nl.ndarray(before.shape, dtype=before.dtype, buffer=nl.sbuf)
        dst[...] = nl.load(before)
        dst[to.index(nl.arange)] = call(*(nl.load(g) for g in given))
        out = nl.ndarray(before.shape, dtype=before.dtype, buffer=nl.shared_hbm)
        nl.store(out, dst)
        return out

    return _part(nkisim.simulate(kernel, before, *arrays, target="trn2"), to, before)


def _part(after, to, before):
    """Return the accessed part of an array, after a look at the rest."""
    rest = after.copy()
    rest[to.index(np.arange)] = before[to.index(np.arange)]
    assert np.array_equal(rest, before), "an element outside of the destination has changed"
    return to.of(after)


def equal(got, want):
    return (
        got.shape == want.value.shape
        and got.dtype == want.value.dtype
        and np.array_equal(got.astype(np.float64), want.value.astype(np.float64))
    )


@TIMES
@given(st.data(), SHAPES, DTYPES, DTYPES, st.sampled_from(("add", "maximum", "less")), SEEDS)
def test_tensor_tensor(data, shape, one, other, op, seed):
    a, b, to = (data.draw(accesses(shape, least)) for least in (0, 0, 1))
    rng = np.random.default_rng(seed)
    x, y = fill(rng, a.base, one), fill(rng, b.base, other)
    want = vector.tensor_tensor(a.of(x), b.of(y), op, dtype=FP32, mask=np.ones(shape, bool))[""]
    got = run(lambda s, t: nisa.tensor_tensor(a.of(s), b.of(t), getattr(nl, op)), to, FP32, x, y)
    assert equal(got, want)


@TIMES
@given(st.data(), SHAPES, DTYPES, DTYPES, st.booleans(), st.booleans(), SEEDS)
def test_tensor_scalar(data, shape, dtype, into, reverse, by_tile, seed):
    a, to = data.draw(accesses(shape)), data.draw(accesses(shape, 1))
    rng = np.random.default_rng(seed)
    x, v = fill(rng, a.base, dtype), fill(rng, (shape[0], 1), FP32)
    want = vector.tensor_scalar(
        a.of(x),
        "subtract",
        v if by_tile else 1.5,
        reverse,
        "multiply",
        0.5,
        dtype=into,
        mask=np.ones(shape, bool),
    )[""]
    got = run(
        lambda s, t: nisa.tensor_scalar(
            a.of(s), nl.subtract, t if by_tile else 1.5, reverse, nl.multiply, 0.5, dtype=into
        ),
        to,
        into,
        x,
        v,
    )
    assert equal(got, want)


@TIMES
@given(st.data(), SHAPES, DTYPES, st.sampled_from((FP32, BF16)), st.booleans(), SEEDS)
def test_activation(data, shape, dtype, into, biased, seed):
    a, to = data.draw(accesses(shape)), data.draw(accesses(shape, 1))
    rng = np.random.default_rng(seed)
    x, v = fill(rng, a.base, dtype), fill(rng, (shape[0], 1), FP32)
    want = scalar.activation(
        "square",
        a.of(x),
        bias=v if biased else None,
        scale=0.5,
        dtype=into,
        mask=np.ones(shape, bool),
    )[""]
    got = run(
        lambda s, t: nisa.activation(
            nl.square, a.of(s), bias=t if biased else None, scale=0.5, dtype=into
        ),
        to,
        into,
        x,
        v,
    )
    assert equal(got, want)


@TIMES
@given(
    st.data(),
    SHAPES,
    DTYPES,
    st.sampled_from(("add", "max", "min")),
    st.booleans(),
    st.booleans(),
    SEEDS,
)
def test_tensor_reduce(data, shape, dtype, op, keepdims, negate, seed):
    """The trailing free axes, as the page has it."""
    axes = tuple(range(data.draw(st.integers(1, len(shape) - 1)), len(shape)))
    a = data.draw(accesses(shape))
    x = fill(np.random.default_rng(seed), a.base, dtype)
    want = vector.tensor_reduce(
        op, a.of(x), axes, dtype=FP32, negate=negate, keepdims=keepdims, mask=np.ones(shape, bool)
    )[""]
    to = data.draw(accesses(want.value.shape, 1))
    got = run(
        lambda s: nisa.tensor_reduce(
            getattr(nl, op), a.of(s), axes, dtype=FP32, negate=negate, keepdims=keepdims
        ),
        to,
        FP32,
        x,
    )
    assert equal(got, want)


@TIMES
@given(
    st.data(),
    st.integers(1, 9),
    st.integers(1, 9),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.sampled_from(FLOATS),
    st.integers(1, 3),
    SEEDS,
)
def test_nc_matmul(data, k, m, free, dtype, times, seed):
    """One product, or several that are added up in PSUM."""
    a, b = data.draw(accesses((k, m))), data.draw(accesses((k, *free)))
    rng = np.random.default_rng(seed)
    x, y = fill(rng, a.base, dtype), fill(rng, b.base, dtype)
    want = tensor.nc_matmul(a.of(x), b.of(y), mask=np.ones((m, *free), bool))[""]

    def kernel(x, y):
        s, v = a.of(nl.load(x)), b.of(nl.load(y))
        psum = nl.zeros((m, *free), dtype=nl.float32, buffer=nl.psum)
        for _ in nl.affine_range(times):
            psum += nisa.nc_matmul(s, v)
        out = nl.ndarray((m, *free), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.copy(psum))
        return out

    assert np.array_equal(nkisim.simulate(kernel, x, y), times * want.value)


@TIMES
@given(st.data(), SHAPES, DTYPES, DTYPES, st.booleans(), SEEDS)
def test_dma_copy(data, shape, dtype, into, flat, seed):
    """Strided on both sides; between groupings of the same elements where both are whole."""
    rng = np.random.default_rng(seed)
    a, to = data.draw(accesses(shape)), data.draw(accesses(shape, 1))
    x = fill(rng, shape if flat else a.base, dtype)
    before = prefill((shape[0], prod(shape[1:])) if flat else to.base, into)

    def kernel(x, before):
        out = nl.ndarray(before.shape, dtype=before.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(before))
        nisa.dma_copy(dst=out if flat else to.of(out), src=x if flat else a.of(x))
        return out

    got = nkisim.simulate(kernel, x, before)
    part, src = (got, x) if flat else (_part(got, to, before), a.of(x))
    assert equal(part, dma.dma_copy(dst=part, src=src, mask=np.ones(src.shape, bool))["dst"])
