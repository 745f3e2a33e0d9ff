"""Movement of data and generation of indices against per-element Python."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nkisim.chip import semantics
from nkisim.errors import NkiError


def tagged(partitions: int, *free: int) -> np.ndarray:
    """Return a tile whose every element is different."""
    return np.arange(partitions * int(np.prod(free)), dtype=np.float32).reshape(partitions, *free)


class TestStreamShuffle:
    @given(
        st.lists(st.sampled_from([*range(32), 255]), min_size=32, max_size=32),
        st.sampled_from([32, 64, 128]),
    )
    def test_like_a_loop(self, mask, partitions):
        src, dst = tagged(partitions, 3), -tagged(partitions, 3)
        got = semantics.stream_shuffle(src, dst, mask)
        for p in range(partitions):
            wanted = mask[p % 32]
            expected = dst[p] if wanted == 255 else src[p // 32 * 32 + wanted]
            np.testing.assert_array_equal(got[p], expected)

    def test_broadcast_of_one_partition(self):
        got = semantics.stream_shuffle(tagged(1, 4), np.zeros((32, 2, 2), np.float32), [0] * 32)
        assert got.shape == (32, 2, 2) and (got.reshape(32, 4) == [0, 1, 2, 3]).all()

    def test_partitions_beyond_dst_do_not_matter(self):
        mask = [1, 0] + [31] * 30
        assert semantics.stream_shuffle(tagged(2, 1), tagged(2, 1), mask).tolist() == [[1], [0]]

    @pytest.mark.parametrize(
        "mask, partitions, given",
        [
            ([0] * 31, 32, "(31,)"),
            ([], 32, "(0,)"),
            ([0, 32] + [0] * 30, 64, "shuffle_mask[1] = 32"),
            ([0, -1] + [0] * 30, 32, "= -1"),
            ([0] * 31 + [5], 4, "= 5 for partition 31"),
        ],
    )
    def test_refuses_what_it_cannot_follow(self, mask, partitions, given):
        with pytest.raises(NkiError) as caught:
            semantics.stream_shuffle(tagged(partitions, 1), np.zeros((32, 1), np.float32), mask)
        assert caught.value.id == "NKI-S13" and given in caught.value.given


class TestGatherFlattened:
    @given(st.data())
    def test_like_a_loop(self, draw):
        data = tagged(2, 2, 3)
        indices = draw.draw(hnp.arrays(np.uint32, (2, 2, 2), elements=st.integers(0, 5)))
        got = semantics.gather_flattened(data, indices)
        assert got.shape == indices.shape
        for p, i, j in np.ndindex(2, 2, 2):
            assert got[p, i, j] == data[p].reshape(-1)[indices[p, i, j]]

    @pytest.mark.parametrize(
        "dtype, is_garbage",
        [
            (np.float32, np.isnan),
            (ml_dtypes.bfloat16, np.isnan),
            (ml_dtypes.float8_e4m3, np.isnan),
            (np.int16, lambda x: x == -1),
            (np.bool_, lambda x: x),
        ],
    )
    def test_out_of_range_is_garbage_and_nothing_else_is(self, dtype, is_garbage):
        data = np.zeros((1, 4), dtype)
        got = semantics.gather_flattened(data, np.array([[0, 4, 3, 2**32 - 1]], np.uint32))
        assert got.dtype == data.dtype
        assert [bool(is_garbage(v)) for v in got[0]] == [False, True, False, True]


class TestLocalGather:
    @pytest.mark.parametrize(
        "partitions, free, n, valid",
        [(16, (3,), 1, None), (32, (2,), 4, 32), (128, (4,), 4, 64), (32, (2, 2), 2, 19)],
    )
    def test_like_a_loop(self, partitions, free, n, valid):
        rng = np.random.default_rng(partitions)
        src = tagged(partitions, 8, 4)
        index = rng.integers(0, 32 - n, (partitions, *free)).astype(np.uint16)
        got = semantics.local_gather(src, index, n, valid)
        flat_index = index.reshape(partitions, -1)
        count = valid or 16 * flat_index.shape[1]
        assert got.shape == (
            (partitions, count // 16, 16, n) if count % 16 == 0 else (partitions, count, n)
        )
        got = got.reshape(partitions, count, n)
        for p in range(partitions):
            for k in range(count):
                # index k of a core sits in its partition k % 16, column k // 16
                offset = int(flat_index[p // 16 * 16 + k % 16, k // 16])
                np.testing.assert_array_equal(got[p, k], src[p].reshape(-1)[offset : offset + n])


class TestSequenceBounds:
    @given(st.lists(st.integers(0, 2), min_size=1, max_size=12), st.booleans())
    def test_like_a_loop(self, ids, as_float):
        n = len(ids)
        tile = np.array([ids], np.float32 if as_float else np.int32)
        got = semantics.sequence_bounds(tile)
        assert got.shape == (1, 2, n) and got.dtype == np.int32
        for i, label in enumerate(ids):
            start = end = i
            while start > 0 and ids[start - 1] == label:
                start -= 1
            while end < n and ids[end] == label:
                end += 1
            assert got[0, :, i].tolist() == ([n, -1] if label == 0 else [start, end])
