"""What a prediction says of its own error, and whether that holds."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

import nkisim
from nkisim.doors.bands import held, neighbours
from nkisim.doors.outcomes import Outcome
from nkisim.trust import expected

CALIBRATION = json.loads((Path(nkisim.__file__).parent / "data" / "calibration.json").read_text())


def near(family, *errors, bound="tensor", body_us=100.0):
    return [{"target": "trn2", "bound": bound, "body_us": body_us, "family": family,
             "error_pct": e} for e in errors]


def outcome(id, family, measured, predicted, **more):
    return Outcome(id, "trn2", "nc_latency", measured, predicted,
                   100 * (predicted / measured - 1), family=family, variant=id,
                   **{"bound": "tensor", "body_us": 100.0, **more})


def test_a_family_of_many_variants_says_no_more_than_one_of_few():
    others = [*near("b", 4.0), *near("c", 6.0), *near("d", 8.0), *near("e", 10.0)]
    few = expected([*near("a", 1.0), *others], "trn2", "tensor", 100.0)
    many = expected([*near("a", *[1.0] * 60), *others], "trn2", "tensor", 100.0)
    assert few.pct == many.pct == 8.0               # 4 of 5 families, and its own: 2 / 3 of 6
    assert (few.like, many.like) == (5, 64)
    assert many.words == "Tensor-Engine-bound kernels of 50 us to 1 ms"


def test_less_alike_kernels_are_asked_until_there_are_four_families():
    alike = near("a", 1.0) + near("b", 1.0) + near("c", 1.0)
    larger = near("d", 7.0, body_us=5000.0) + near("e", 7.0, body_us=5000.0)
    other = near("f", 20.0, bound="dma")
    band = expected(alike + larger + other, "trn2", "tensor", 100.0)
    assert (band.pct, band.like, band.words) == (7.0, 5, "Tensor-Engine-bound kernels")
    band = expected(alike + other, "trn2", "tensor", 100.0)
    assert (band.pct, band.like, band.words) == (20.0, 4, "kernels of all kinds")
    assert expected([], "trn2", "tensor", 100.0).pct == 100.0


def test_a_record_is_told_the_error_of_other_families():
    rest = [outcome(f, f, 100.0, 104.0) for f in "abcd"]
    mine = [outcome("m1", "m", 100.0, 130.0), outcome("m2", "m", 200.0, 202.0),
            outcome("m3", "m", 300.0, 200.0, unknown="something")]
    assert {n["family"] for n in neighbours([*rest, *mine])} == {*"abcd", "m"}
    told = held([*rest, *mine])
    assert told["records"] == 6 and told["within"] == 5     # m3 was told that nobody knows
    assert told["within_pct"] == pytest.approx(90.0)


def test_pairs_that_differ_by_more_than_their_band_are_told_apart():
    rest = [outcome(f, f, 100.0, 104.0) for f in "abcd"]
    mine = [outcome("m1", "m", 100.0, 100.0), outcome("m2", "m", 110.0, 120.0),
            outcome("m3", "m", 108.0, 98.0)]        # as fast as m1 for all that is known
    told = held([*rest, *mine])
    assert (told["apart"], told["apart_right"], told["alike"], told["alike_right"]) == (1, 1, 1, 0)


def test_the_bands_that_are_printed_hold_for_what_was_measured():
    """Two thirds are promised; pairs that are told apart are in the right order."""
    told = CALIBRATION["bands"]
    assert told["within"] >= 2 / 3 * told["records"] and told["within_pct"] >= 200 / 3
    assert told["apart_right"] >= 0.97 * told["apart"]
