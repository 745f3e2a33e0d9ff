"""A floor of physics: what is faster fails, what is suspiciously fast is shown to the staff."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

import nkisim
from grading import ROOT, SOLVED, hand_in, needs_sandbox, run, small_lab
from labkit import make_inputs
from labkit.evaluate import FAILED, PASSED, Outcome
from labkit.grade.plan import load_plan
from labkit.grade.time_flags import floor_us, least_bytes, refuse, review_reason, too_few_bytes
from labkit.load import load_lab, load_module

pytestmark = pytest.mark.skipif(os.name != "posix", reason="grading is not for Windows")


FIRST, NEWER = ("vecadd", "ffnn", "conv2d"), ("puzzles", "norms", "attention", "convnet", "moe")


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "name, file, target",
    [(name, "kernels", target) for name in FIRST for target in ("trn1", "trn2")]
    + [(name, "kernels_nki", "trn2") for name in (*NEWER, *FIRST)],
)
def test_staffs_kernels_are_above_the_floor(name, file, target):
    """In time and in bytes: what the spec says a case needs is what every right kernel needs."""
    lab = load_plan(ROOT / "labs" / name).lab
    module = load_module(lab.folder / f"{file}.py", f"floor_{name}_{file}")
    seen = 0
    for case in lab.cases:
        if (
            type(case.expect).__name__ != "Passes"
            or np.prod(case.inputs[0].shape) > 3e5
            or target not in case.targets
        ):
            continue
        for key, value in case.constants.items():
            setattr(module, key, value)
        prof = nkisim.profile(
            getattr(module, case.kernel),
            *make_inputs(case, 3),
            target=target,
            **case.kwargs,
            **case.kernel_kwargs,
        )
        least = floor_us(case, target, prof.outputs)
        assert nkisim.least_us(target, 0, 0, moved=True) <= least <= prof.latency_us, case.name
        moved = prof.hbm_read_bytes + prof.hbm_write_bytes
        assert moved >= sum(least_bytes(case, prof.outputs)), case.name
        seen += 1
    assert seen > 2


def test_too_few_bytes_are_shown_to_the_staff():
    case = load_lab(ROOT / "labs" / "vecadd").case("transpose_128x128")
    stats = {"hbm_read_bytes": 65536, "hbm_write_bytes": 65535, "least_bytes": 131072}
    few = Outcome(case, "trn2", PASSED, "", stats=stats)
    assert "131,071 bytes of HBM" in too_few_bytes(few) and "131,072" in too_few_bytes(few)
    assert too_few_bytes(Outcome(case, "trn2", PASSED, "", stats={**stats, "least_bytes": 9})) == ""


def test_what_is_changed_in_place_need_not_be_written_as_a_whole():
    """Rows of a table, and one row of a cache: the floor is of these."""
    for name, kernel in (("moe", "scatter_add"), ("attention", "decode")):
        cases = load_lab(ROOT / "labs" / name).cases
        assert all((case.writes < 0.1) == (case.kernel == kernel) for case in cases), name


def test_the_floor_is_physics():
    empty = nkisim.least_us("trn2", 0, 0, moved=True)
    megabyte = nkisim.least_us("trn2", 1 << 20, 1 << 20, moved=True) - empty
    assert 2.0 < megabyte < 3.5  # 435 GB/s: 2.4 us, as it is moved once
    there_and_back = nkisim.least_us("trn2", 1 << 26, 1 << 26) - nkisim.least_us("trn2", 0, 0)
    assert there_and_back == pytest.approx(2 * 64 * megabyte, rel=0.1)
    flops = 79e12 / 1e6  # of a microsecond, bfloat16
    base = nkisim.least_us("trn2", 0, 0, flops=1e6 * flops, dtype="bfloat16")
    assert base == pytest.approx(1e6, rel=0.01)
    assert nkisim.least_us("trn2", 0, 0, flops=1e6 * flops) == pytest.approx(3e6, rel=0.01)
    assert nkisim.least_us("trn2", 0, 0, flops=1e6 * flops, dtype="float8_e4m3") == pytest.approx(
        5e5, rel=0.01
    )


def timed(us, **stats):
    case = load_lab(ROOT / "labs" / "vecadd").case("transpose_1024x512")
    return Outcome(case, "trn2", PASSED, "right", latency={"p50": us, "p99": us}, stats=stats)


@pytest.mark.parametrize(
    "us, staff, pct, says",
    [
        (99.0, None, 10, "is below the floor, 100.00 us"),
        (100.0, None, 10, "is within 3 % of the floor"),
        (102.9, None, 10, "within 3 %"),
        (103.1, None, 10, ""),
        (150.0, 160.0, 10, ""),  # 10 % slower would be staff's
        (140.0, 160.0, 10, "faster than staff's, 160.00 us, by more than the model's error, 10 %"),
        (140.0, 160.0, None, ""),
        (110.0, 230.0, None, "which is unknown"),
    ],
)
def test_what_is_looked_at(us, staff, pct, says):
    outcome = timed(us, model_error_pct=pct)
    known = {} if staff is None else {"transpose_1024x512|trn2": staff}
    refuse(outcome, 100.0)
    found = review_reason(outcome, 100.0, known)
    assert says in found and bool(says) == bool(found)
    assert (outcome.status == FAILED) == (us < 100)
    assert us >= 100 or "the least in which any kernel can do this" in outcome.text


@pytest.mark.full
@needs_sandbox
def test_a_time_that_cannot_be_is_refused_and_shown(tmp_path, monkeypatch):
    """In a lab whose spec says that the transpose needs a second of products, no time can be."""
    labs = small_lab(tmp_path)
    spec = labs / "vecadd" / "spec.py"
    spec.write_text(spec.read_text().replace("accumulate=0,\n", "accumulate=0, flops=1e13,\n"))
    monkeypatch.setenv("LABKIT_LABS", str(labs))
    assert run(hand_in(tmp_path / "subs", ann=SOLVED), tmp_path / "out") == 0
    verdict = json.loads((tmp_path / "out/verdicts/ann.json").read_text())
    assert verdict["points"] == 0 and "pages" not in verdict
    shown, hidden = verdict["cases"]
    assert "the least in which any kernel can do this" in shown["text"]
    assert not any(c.isdigit() for c in hidden["text"])
    page = (tmp_path / "out/looks/ann/transpose_128x128-trn1.html").read_text()
    assert "<html" in page and "matrix_transpose" in page
    summary = (tmp_path / "out/summary.html").read_text()
    assert "is below the floor" in summary and "looks/ann/transpose_128x128-trn1.html" in summary
    assert "below the floor" not in (tmp_path / "out/reports/ann.html").read_text()


@needs_sandbox
def test_who_is_much_faster_than_staff_is_shown_and_keeps_the_points(tmp_path, monkeypatch):
    labs = small_lab(tmp_path)
    kernels = labs / "vecadd" / "kernels.py"
    slow = SOLVED.replace(
        "    rows, columns = matrix.shape\n",
        """\
    rows, columns = matrix.shape
    for _ in nl.sequential_range(50):
        spare = nl.load(matrix[0:128, 0:128])
""",
        1,
    )
    assert slow != SOLVED
    kernels.write_text(slow)
    monkeypatch.setenv("LABKIT_LABS", str(labs))
    subs = hand_in(tmp_path / "subs", ann=SOLVED, bob=slow)
    assert run(subs, tmp_path / "out") == 0
    ann, bob = (
        json.loads((tmp_path / f"out/verdicts/{n}.json").read_text()) for n in ("ann", "bob")
    )
    assert ann["points"] == bob["points"] == 10 and not bob["looks"]
    assert [("faster than staff's" in x["what"], x["page"]) for x in ann["looks"]] == [
        (True, "transpose_128x128-trn1.html"),
        (True, "transpose_128x256-trn1.html"),
    ]
    before = (tmp_path / "out/verdicts/ann.json").read_bytes()
    assert run(subs, tmp_path / "out") == 0  # staff's times are kept
    assert (tmp_path / "out/verdicts/ann.json").read_bytes() == before
    assert (tmp_path / "out/looks/ann/transpose_128x128-trn1.html").is_file()
    assert "2" in (tmp_path / "out/grades.csv").read_text().splitlines()[1].split(",")[6]
