"""Masks that cut no box: of what a reduction reads, and of accesses that leave their tensors."""

from __future__ import annotations

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from neuronxcc import nki

import nkisim

X = np.random.default_rng(0).standard_normal((128, 12, 10)).astype(np.float32)
ROWS = np.random.default_rng(1).integers(0, 200, (128, 32)).astype(np.int32)
P, F = np.indices(ROWS.shape)


@nki.jit
def windows(x, size, pad, op):
    """Reduce windows of size x size around each element; the edges have smaller ones."""
    n, height, width = x.shape
    out = nl.ndarray((n, height, width), dtype=x.dtype, buffer=nl.shared_hbm)
    p = nl.arange(n)[:, None, None, None, None]
    row = nl.arange(height)[None, :, None, None, None] + nl.arange(size)[None, None, None, :, None]
    col = nl.arange(width)[None, None, :, None, None] + nl.arange(size)[None, None, None, None, :]
    row, col = row - pad, col - pad
    tile = nl.load(x)
    nl.store(
        out,
        nisa.tensor_reduce(
            op,
            tile[p, row, col],
            axis=[3, 4],
            mask=(row >= 0) & (row < height) & (col >= 0) & (col < width),
        ),
    )
    return out


@pytest.mark.parametrize(
    "op, fold",
    [(np.max, np.nanmax), (np.min, np.nanmin), (np.add, np.nansum), (np.multiply, np.nanprod)],
)
@pytest.mark.filterwarnings("ignore:All-NaN:RuntimeWarning")
@pytest.mark.parametrize("size, pad", [(3, 1), (2, 1), (4, 3)])
def test_windows_at_the_edges_have_fewer_elements(op, fold, size, pad):
    padded = np.pad(
        X.astype(np.float64), ((0, 0), (pad, size), (pad, size)), constant_values=np.nan
    )
    right = fold(np.lib.stride_tricks.sliding_window_view(padded, (size, size), (1, 2)), (3, 4))
    np.testing.assert_allclose(
        nkisim.simulate(windows, X, size, pad, op), right[:, :12, :10], rtol=1e-5, atol=1e-5
    )


@nki.jit
def triangle(x, op, keepdims):
    """Reduce row p over its first p + 1 elements; rows without any keep what was there."""
    out = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(32)[None, :]
    result = nl.full((nl.par_dim(128), 1), 7, dtype=x.dtype)
    tile = nl.load(x)
    result[...] = nisa.tensor_reduce(op, tile[p, f], axis=1, keepdims=keepdims, mask=f + 40 <= p)
    nl.store(out, result)
    return out


@pytest.mark.parametrize(
    "op, fold, start",
    [
        (np.max, np.max, -np.inf),
        (np.bitwise_and, np.bitwise_and.reduce, None),
        (np.bitwise_or, np.bitwise_or.reduce, None),
        (np.bitwise_xor, np.bitwise_xor.reduce, None),
    ],
)
@pytest.mark.parametrize("keepdims", [True, False])
def test_each_row_is_reduced_over_what_the_mask_leaves_of_it(op, fold, start, keepdims):
    got = nkisim.simulate(triangle, ROWS, op, keepdims)[:, 0]
    for p in range(128):
        left = ROWS[p][np.arange(32) + 40 <= p]
        assert got[p] == (fold(left) if len(left) else 7), p


def test_a_difference_has_a_first_element_and_is_refused():
    with pytest.raises(nkisim.NkiError) as caught:
        nkisim.simulate(triangle, ROWS, np.subtract, True)
    assert caught.value.id == "NKI-X02"


@nki.jit
def shifted(x, by, low, read):
    """Copy a tile by some columns to one side, inside of the band that a mask selects."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(32)[None, :]
    tile, moved = nl.load(x), nl.zeros((nl.par_dim(128), 32), dtype=x.dtype)
    band = (f + by >= low) & (f + by < 32) & (f + p < 100)
    if read:
        moved[p, f] = nl.copy(tile[p, f + by], mask=band)
    else:
        moved[p, f + by] = nl.copy(tile[p, f], mask=band)
    nl.store(out, moved)
    return out


@pytest.mark.parametrize("by", [-3, 5])
@pytest.mark.parametrize("read", [True, False])
def test_what_a_mask_leaves_out_may_lie_outside_of_a_tile(by, read):
    band = (F + by >= 0) & (F + by < 32) & (F + P < 100)
    right = np.zeros_like(ROWS)
    if read:
        right[band] = ROWS[P[band], F[band] + by]
    else:
        right[P[band], F[band] + by] = ROWS[band]
    np.testing.assert_array_equal(nkisim.simulate(shifted, ROWS, by, 0, read), right)


@pytest.mark.parametrize("read", [True, False])
def test_what_it_leaves_in_may_not(read):
    with pytest.raises(nkisim.NkiError) as caught:
        nkisim.simulate(shifted, ROWS, -3, -1, read)
    assert caught.value.id == "NKI-I01"


@nki.jit
def loaded(x, low):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.arange(128)[:, None], nl.arange(32)[None, :]
    tile = nl.zeros((nl.par_dim(128), 32), dtype=x.dtype)
    tile[p, f] = nl.load(x[p, f - 1], mask=(f - 1 >= low) & (f + p < 100))
    nl.store(out, tile)
    return out


def test_a_load_that_a_mask_lets_leave_a_row_is_refused():
    right = np.where((F >= 1) & (F + P < 100), np.roll(ROWS, 1, axis=1), 0)
    np.testing.assert_array_equal(nkisim.simulate(loaded, ROWS, 0), right)
    with pytest.raises(nkisim.NkiError) as caught:
        nkisim.simulate(loaded, ROWS, -1)  # element -1 of row 1 is the last one of row 0
    assert caught.value.id == "NKI-I01"
