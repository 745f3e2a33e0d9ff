"""Casts from and to float16 give the bits that NumPy's give."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nkisim.chip import half

HALVES = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
FINITE = HALVES[np.isfinite(HALVES)]


def widened(a):
    out = np.empty(a.shape, np.float32)
    half.widen(a, out)
    return out


def narrowed(a):
    out = np.empty(a.shape, np.float16)
    with np.errstate(all="ignore"):
        half.narrow(a, out)
    return out


def same(a, b):
    return a.dtype == b.dtype and (a.view(f"u{a.itemsize}") == b.view(f"u{b.itemsize}")).all()


@pytest.mark.parametrize("values", [FINITE, HALVES], ids=["finite", "all"])
def test_every_float16_is_widened_exactly(values):
    many = np.concatenate([values] * 2)
    assert same(widened(many), many.astype(np.float32))
    assert same(narrowed(widened(many)), many.astype(np.float32).astype(np.float16))


def test_what_lies_between_two_float16_is_rounded_to_nearest_and_ties_to_even():
    numbers = np.sort(FINITE.astype(np.float64))
    middle = (numbers[1:] + numbers[:-1]) / 2
    for x in (
        middle.astype(np.float32),
        np.nextafter(middle.astype(np.float32), np.inf),
        np.nextafter(middle.astype(np.float32), -np.inf),
    ):
        assert same(narrowed(x), x.astype(np.float16))


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**24 - 1),
    st.sampled_from([(70_000,), (2, 50_000), (128, 40, 20), (1, 1, 40_000), (100, 3)]),
    st.booleans(),
)
def test_any_bits_any_shape_any_strides(first, step, shape, strided):
    size = int(np.prod(shape))
    bits = (first + step * np.arange(size, dtype=np.uint64)).astype(np.uint32)
    x = bits.view(np.float32).reshape(shape)
    with np.errstate(all="ignore"):
        expected = x.astype(np.float16)
    if strided:
        x = np.repeat(x, 2, axis=-1)[..., ::2]
    assert same(narrowed(x), expected)
    out = np.zeros((*shape, 2), np.float32)
    half.widen(expected, out[..., 1])
    assert same(np.ascontiguousarray(out[..., 1]), expected.astype(np.float32))


@pytest.mark.parametrize("small", [1, 3, 200, 5000])
def test_a_few_numbers_below_the_normal_ones(small):
    rng = np.random.default_rng(small)
    x = rng.standard_normal((64, 300)).astype(np.float32) + np.float32(8)
    at = rng.integers(0, x.size, small)
    x.reshape(-1)[at] = rng.choice(
        [0.0, -0.0, 1e-7, -5.9e-8, 2.98e-8, 2.99e-8, 6.1e-5, -3e-5], small
    )
    out = np.zeros((64, 600), np.float16)[:, ::2]
    half.narrow(x, out)
    assert same(np.ascontiguousarray(out), x.astype(np.float16))
