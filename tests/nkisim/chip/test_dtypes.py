"""Data types: spellings, promotion as documented, casts as the engines do them."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkisim.chip import dtypes as dt
from nkisim.errors import NkiError

E4M3, E5M2 = ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2
pytestmark = pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
any_float32 = st.floats(width=32)


class TestNormalize:
    @pytest.mark.parametrize(
        "spelling, expected",
        [
            (np.float32, dt.FLOAT32),
            (np.dtype("float32"), dt.FLOAT32),
            ("float32", dt.FLOAT32),
            ("f4", dt.FLOAT32),
            (ml_dtypes.bfloat16, dt.BFLOAT16),
            ("bfloat16", dt.BFLOAT16),
            (np.dtype(ml_dtypes.bfloat16), dt.BFLOAT16),
            (E4M3, dt.FLOAT8_E4M3),
            ("float8_e5m2", dt.FLOAT8_E5M2),
            (bool, dt.BOOL),
            (np.bool_, dt.BOOL),
            ("bool_", dt.BOOL),
            ("tfloat32", dt.TFLOAT32),
            (np.dtype("|V4"), dt.TFLOAT32),
            (np.uint32, dt.UINT32),
        ],
    )
    def test_every_spelling(self, spelling, expected):
        assert dt.normalize(spelling) == expected

    @pytest.mark.parametrize("dtype", dt.SUPPORTED)
    def test_name_and_dtype_round_trip(self, dtype):
        assert dt.normalize(dt.name(dtype)) == dtype == dt.normalize(dtype)

    @pytest.mark.parametrize(
        "wide, to",
        [
            (np.float64, "np.float32"),
            ("float64", "np.float32"),
            (float, "nl.float32"),
            (np.int64, "np.int32"),
            (int, "nl.int32"),
            (np.uint64, "np.int32"),
            (np.ones(3).dtype, "np.float32"),
        ],
    )
    def test_64_bits_say_what_to_convert_to(self, wide, to):
        with pytest.raises(NkiError) as caught:
            dt.normalize(wide)
        assert caught.value.id == "NKI-D01" and to in caught.value.hint

    @pytest.mark.parametrize(
        "bad, hint",
        [
            ("bf16", "bfloat16"),
            ("float23", "float32"),
            (np.dtype(">f4"), "order"),
            (None, "nl."),
            ([1, 2], "nl."),
            (np.complex64, "nl."),
            (np.void, "nl."),
            (np.str_, "nl."),
            (ml_dtypes.float8_e4m3b11fnuz, "float8_e4m3"),
        ],
    )
    def test_other_types_are_refused_with_a_hint(self, bad, hint):
        with pytest.raises(NkiError) as caught:
            dt.normalize(bad)
        assert caught.value.id == "NKI-D02" and hint in caught.value.hint

    @pytest.mark.parametrize("dtype", dt.NEWER)
    def test_numpy_makes_arrays_of_the_names_of_the_newer_dialect(self, dtype):
        array = np.zeros((2, 3), dtype=dt.name(dtype))
        assert array.dtype == dtype and dt.normalize(array.dtype) == dtype

    def test_tfloat32_is_not_float32_but_is_stored_as_it(self):
        assert dt.TFLOAT32 != dt.FLOAT32 and dt.TFLOAT32.itemsize == 4
        assert dt.storage(dt.TFLOAT32) == dt.FLOAT32
        assert dt.storage(dt.BFLOAT16) == dt.BFLOAT16

    def test_every_type_is_float_or_integer(self):
        assert all(dt.is_float(d) != dt.is_int(d) for d in dt.SUPPORTED)
        assert dt.is_float(dt.TFLOAT32) and dt.is_int(dt.BOOL)


class TestPromotion:
    @pytest.mark.parametrize(
        "a, b, result",
        [
            # the examples of the documentation
            ("int32", "float16", "float16"),
            ("uint16", "tfloat32", "tfloat32"),
            ("float32", "tfloat32", "float32"),
            ("float32", "bfloat16", "float32"),
            ("float16", "bfloat16", "float32"),
            ("float8_e4m3", "float16", "float16"),
            ("float8_e4m3", "bfloat16", "bfloat16"),
            ("float8_e4m3", "float8_e5m2", "bfloat16"),
            ("int16", "int32", "int32"),
            ("uint8", "uint16", "uint16"),
            ("uint16", "int32", "int32"),
            ("int8", "uint8", "int16"),
            ("int8", "uint16", "int32"),
            ("int32", "uint32", "float32"),
            # what follows from the rules
            ("int8", "uint32", "float32"),
            ("bool", "int8", "int16"),
            ("bool", "bool", "bool"),
            ("bool", "float16", "float16"),
            ("tfloat32", "bfloat16", "tfloat32"),
            ("float8_e5m2", "float16", "float16"),
        ],
    )
    def test_table(self, a, b, result):
        a, b = dt.normalize(a), dt.normalize(b)
        assert dt.name(dt.promote(a, b)) == dt.name(dt.promote(b, a)) == result

    def test_is_total_and_symmetric_and_stays_on_the_chip(self):
        for a in dt.SUPPORTED:
            assert dt.promote(a, a) == a
            for b in dt.SUPPORTED:
                assert dt.promote(a, b) == dt.promote(b, a)
                assert dt.promote(a, b) in dt.SUPPORTED

    @pytest.mark.parametrize(
        "value, expected",
        [
            (True, "uint8"),
            (2, "int32"),
            (-(2**31), "int32"),
            (2**31, "uint32"),
            (0xFFFFFFFF, "uint32"),
            (1.2, "float32"),
            (math.inf, "float32"),
            (np.float64(1.2), "float32"),
            (np.int64(7), "int32"),
            (np.float16(2), "float16"),
            (np.int8(2), "int8"),
            (ml_dtypes.bfloat16(2), "bfloat16"),
            (np.float32(1), "float32"),
        ],
    )
    def test_scalars(self, value, expected):
        assert dt.name(dt.of_scalar(value)) == expected

    def test_a_typed_scalar_avoids_the_widening_of_a_bare_one(self):
        assert dt.promote(dt.FLOAT16, dt.of_scalar(1.2)) == dt.FLOAT32
        assert dt.promote(dt.FLOAT16, dt.of_scalar(np.float16(1.2))) == dt.FLOAT16

    @pytest.mark.parametrize(
        "value, id",
        [(2**32, "NKI-D03"), (-(2**31) - 1, "NKI-D03"), ("1", "NKI-D02"), (None, "NKI-D02")],
    )
    def test_what_is_no_scalar_of_the_chip(self, value, id):
        with pytest.raises(NkiError) as caught:
            dt.of_scalar(value)
        assert caught.value.id == id


def cast_one(value: float, dtype: np.dtype):
    """Cast one float32 number."""
    return dt.cast(np.array([value], np.float32), dtype)[0]


class TestCast:
    @pytest.mark.parametrize(
        "value, dtype, expected",
        [
            (0.5, dt.INT32, 0),
            (1.5, dt.INT32, 2),
            (2.5, dt.INT32, 2),
            (-1.5, dt.INT32, -2),
            (1e10, dt.INT32, 2**31 - 1),
            (-1e10, dt.INT32, -(2**31)),
            (1e10, dt.UINT32, 2**32 - 1),
            (-1.0, dt.UINT32, 0),
            (300.0, dt.UINT8, 255),
            (-300.0, dt.INT8, -128),
            (math.inf, dt.INT16, 32767),
            (-math.inf, dt.INT16, -32768),
            (math.nan, dt.INT32, 0),
            (math.nan, dt.UINT8, 0),
            (254.5, dt.UINT8, 254),
            (0.3, dt.BOOL, True),
            (0.0, dt.BOOL, False),
        ],
    )
    def test_float_to_integer_rounds_to_even_and_saturates(self, value, dtype, expected):
        assert cast_one(value, dtype) == expected

    @given(any_float32, st.sampled_from([d for d in dt.SUPPORTED if dt.is_int(d) and d != dt.BOOL]))
    def test_float_to_integer_like_python(self, value, dtype):
        limits = np.iinfo(dtype)
        if math.isnan(value):
            expected = 0
        elif math.isinf(value):
            expected = limits.max if value > 0 else limits.min
        else:
            expected = min(max(round(value), limits.min), limits.max)  # round() is half to even
        assert int(cast_one(value, dtype)) == expected

    @given(any_float32.filter(math.isfinite))
    def test_tfloat32_is_the_nearest_with_ten_mantissa_bits(self, value):
        got = float(cast_one(value, dt.TFLOAT32))
        assert np.float32(got).view(np.uint32) & 0x1FFF == 0
        exponent = max(math.frexp(value)[1] - 1, -126) if value else 0
        nearest = round(value * 2.0 ** (10 - exponent)) * 2.0 ** (exponent - 10)
        assert got == np.float32(nearest)  # beyond the largest number: infinity

    @pytest.mark.parametrize("ulps, expected", [(0.5, 0), (1.5, 2), (2.5, 2), (1.25, 1)])
    def test_tfloat32_ties_go_to_even(self, ulps, expected):
        ulp = 2.0**-10
        assert cast_one(1 + ulps * ulp, dt.TFLOAT32) == 1 + expected * ulp
        assert cast_one(-1 - ulps * ulp, dt.TFLOAT32) == -1 - expected * ulp

    @pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
    def test_tfloat32_keeps_what_is_not_finite(self, value):
        np.testing.assert_equal(cast_one(value, dt.TFLOAT32), np.float32(value))

    @pytest.mark.parametrize(
        "value, dtype, expected",
        [
            (1 + 2**-8, ml_dtypes.bfloat16, 1.0),
            (1 + 3 * 2**-8, ml_dtypes.bfloat16, 1 + 2**-6),
            (dt.FP32_MIN, ml_dtypes.bfloat16, -math.inf),
            (dt.FP32_MIN, np.float16, -math.inf),
            (1 + 2**-4, E4M3, 1.0),
            (300.0, E4M3, math.inf),
            (2049.0, np.float16, 2048.0),
        ],
    )
    def test_float_to_smaller_float_rounds_to_nearest_even(self, value, dtype, expected):
        assert float(cast_one(value, np.dtype(dtype))) == expected

    def test_fp32_min_has_the_documented_bits(self):
        assert dt.FP32_MIN.view(np.uint32) == 0xFF7FFFFF

    def test_integers_pass_through_float32(self):
        big = np.array([2**24 + 1, -1, 70000], np.int32)
        assert dt.cast(big, dt.UINT32).tolist() == [2**24, 0, 70000]
        assert dt.cast(big, dt.INT16).tolist() == [32767, -1, 32767]
        assert dt.cast(big, dt.FLOAT32).tolist() == [2**24, -1, 70000]

    @pytest.mark.parametrize("dtype", [d for d in dt.SUPPORTED if d != dt.TFLOAT32])
    def test_equal_dtypes_keep_every_bit(self, dtype):
        rng = np.random.default_rng(0)
        raw = (
            rng.integers(0, 2, 64, np.uint8)
            if dtype == dt.BOOL
            else rng.integers(0, 256, 64 * dtype.itemsize, np.uint8)
        )
        src = raw.view(dtype)
        got = dt.cast(src, dtype)
        assert got.tobytes() == src.tobytes()
        assert not np.shares_memory(got, src)

    @pytest.mark.parametrize("source", [d for d in dt.SUPPORTED if d != dt.TFLOAT32])
    @pytest.mark.parametrize("target", dt.SUPPORTED)
    def test_every_pair_of_types_keeps_small_integers(self, source, target):
        top = 2 if dt.BOOL in (source, target) else 5
        src = dt.cast(np.arange(12, dtype=np.float32).reshape(3, 4) % top, source)
        out = np.zeros((3, 8), dt.storage(target))[:, ::2]  # strided destination
        assert dt.cast(src, target, out=out) is out
        np.testing.assert_array_equal(out.astype(np.float32), src.astype(np.float32))

    def test_strided_source_to_tfloat32(self):
        src = np.arange(24, dtype=np.float32).reshape(4, 6)[:, ::2]
        np.testing.assert_array_equal(dt.cast(src, dt.TFLOAT32), src)

    def test_as_float32_copies_only_when_it_must(self):
        x = np.ones(3, np.float32)
        assert dt.as_float32(x) is x
        assert dt.as_float32(x.view("V4")).dtype == dt.FLOAT32
        assert dt.as_float32(x.astype(ml_dtypes.bfloat16)).dtype == dt.FLOAT32
