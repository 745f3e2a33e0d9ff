"""max8, find_index8, match_replace8 against per-element Python."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nkisim.chip import semantics

NOT_FOUND = 0xFFFFFFFF
# Few distinct values, so that duplicates and misses occur.
crowded = hnp.arrays(
    np.float32,
    st.tuples(st.integers(1, 3), st.integers(8, 14)),
    elements=st.integers(-3, 3).map(float),
)
eight = st.lists(st.integers(-4, 4).map(float), min_size=8, max_size=8)


class TestMax8:
    @given(
        hnp.arrays(
            np.float32,
            st.tuples(st.integers(1, 3), st.integers(8, 20)),
            elements=st.floats(width=32, allow_nan=False),
        )
    )
    def test_like_sorting(self, data):
        got = semantics.max8(data)
        assert got.shape == (data.shape[0], 8) and got.dtype == np.float32
        for row, top in zip(data, got):
            assert top.tolist() == sorted(row.tolist(), reverse=True)[:8]

    def test_repeats_ties_and_flattens(self):
        # Positions and values are those of the flattened free dimensions.
        data = np.float32([[[9, 1, 9], [2, 3, 4], [5, 6, 7]]])
        assert semantics.max8(data).tolist() == [[9, 9, 7, 6, 5, 4, 3, 2]]


def naive_find(row: list[float], wanted: list[float]) -> list[int]:
    """Give each wanted value its first occurrence that none before it has taken."""
    taken: set[int] = set()
    result = []
    for value in wanted:
        places = [i for i, x in enumerate(row) if x == value and i not in taken]
        result.append(places[0] if places else NOT_FOUND)
        taken.update(places[:1])
    return result


class TestFindIndex8:
    @given(crowded, st.data())
    def test_like_a_loop(self, data, draw):
        vals = np.float32([draw.draw(eight) for _ in data])
        got = semantics.find_index8(data, vals)
        assert got.dtype == np.uint32
        for row, wanted, found in zip(data, vals, got):
            assert found.tolist() == naive_find(row.tolist(), wanted.tolist())

    @given(crowded)
    def test_finds_back_what_max8_found(self, data):
        index = semantics.find_index8(data, semantics.max8(data))
        for row, places, top in zip(data, index, semantics.max8(data)):
            assert len(set(places.tolist())) == 8
            assert row[places].tolist() == top.tolist()

    def test_more_free_dimensions_and_mixed_types(self):
        data = np.arange(16).reshape(1, 4, 4).astype(ml_dtypes.bfloat16)
        vals = np.arange(15, 7, -1).reshape(1, 2, 4).astype(np.float32)
        assert semantics.find_index8(data, vals).tolist() == [list(range(15, 7, -1))]

    def test_nan_is_never_found(self):
        data = np.full((1, 8), np.nan, np.float32)
        assert (semantics.find_index8(data, data) == NOT_FOUND).all()


def naive_replace(row: list[float], wanted: list[float], imm: float):
    """Follow the NumPy equivalent that the documentation gives."""
    row, index = list(row), []
    for value in wanted:
        if value in row:
            index.append(row.index(value))
            row[index[-1]] = imm
        else:
            index.append(NOT_FOUND)
    return row, index


class TestMatchReplace8:
    @given(crowded, st.data(), st.sampled_from([-100.0, 0.0, 2.0, -np.inf]))
    def test_like_the_documented_loop(self, data, draw, imm):
        vals = np.float32([draw.draw(eight) for _ in data])
        before = data.copy()
        got, index = semantics.match_replace8(data, vals, imm)
        np.testing.assert_array_equal(data, before)
        for row, wanted, replaced, places in zip(data, vals, got, index):
            expected = naive_replace(row.tolist(), wanted.tolist(), imm)
            assert (replaced.tolist(), places.tolist()) == expected

    @pytest.mark.parametrize("dtype", [np.int32, ml_dtypes.bfloat16, np.float16])
    def test_keeps_shape_dtype_and_untouched_bits(self, dtype):
        base = np.arange(16)
        base[-1] = 2**24 + 1 if dtype is np.int32 else 15
        data = base.reshape(1, 4, 4).astype(dtype)
        vals = np.arange(8).reshape(1, 2, 4).astype(dtype)
        got, index = semantics.match_replace8(data, vals, -1.0)
        assert got.dtype == data.dtype and got.shape == data.shape
        assert index.shape == vals.shape and index.dtype == np.uint32
        assert got.reshape(-1)[:8].tolist() == [-1] * 8
        assert got.reshape(-1)[8:].tobytes() == data.reshape(-1)[8:].tobytes()
