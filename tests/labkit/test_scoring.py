"""Points, thresholds and recorded times: right and in time, in one run, and honest about which."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from labkit import Case, Lab, RubricLine, SpecError, Tensor, make_inputs
from labkit.evaluate import FAILED, PASSED, Outcome, score
from labkit.history.results import ResultsError, write_times
from labkit.show import case_table, show_score

CASE = Case(
    "c",
    "k",
    "same",
    (Tensor((128, 4)),),
    threshold_us={"trn1": 100, "trn2": 60},
    relaxed_us={"trn2": 80},
    percentile=99,
)
LINE = RubricLine("fast", 10, ("c",), speed=True, relaxed=0.5)


def lab(*rubric: RubricLine) -> Lab:
    return Lab("small", "A small lab", Path(__file__).parent, (CASE,), rubric)


def ran(
    us: float | None, target: str = "trn2", status: str = PASSED, kind: str = "measured"
) -> Outcome:
    latency = None if us is None else {"p50": 1.0, "p99": us}
    return Outcome(
        CASE, target, status, "a text", latency=latency, latency_kind=kind if latency else None
    )


@pytest.mark.parametrize(
    "outcome, points, why",
    [
        (ran(60), 10, "measured 60 of 60 us"),
        (ran(61), 5, "relaxed"),
        (ran(81), 0, "too slow"),
        (ran(float("nan")), 0, "too slow"),  # a time that is no number is not in time
        (ran(10, status=FAILED), 0, "a text"),  # fast and wrong
        (ran(None), None, "not judged"),
        (ran(90, "trn1"), 10, "measured 90 of 100 us"),
        (ran(101, "trn1"), 0, "too slow"),  # no relaxed threshold on that target
        (ran(50, kind="predicted"), 10, "predicted 50 of 60 us"),
    ],
)
def test_points_for_speed(outcome, points, why):
    ((_, got, text),) = score(lab(LINE), [outcome])
    assert got == points and why in text


def test_a_line_for_a_target_ignores_other_targets():
    line = RubricLine("right on trn2", 3, ("c",), target="trn2", course="Autumn")
    assert score(lab(line), [ran(1, "trn1", FAILED)]) == []
    wrong_on_trn1 = [ran(1, "trn1", FAILED), ran(1, "trn2")]
    assert [points for _, points, _ in score(lab(line), wrong_on_trn1)] == [3]


def test_score_is_shown_by_course_and_counts_what_did_not_run(capsys):
    lines = [RubricLine("one", 3, ("c",), course="Autumn"), LINE]
    many = Lab(
        "small",
        "",
        Path(),
        (CASE, Case("d", "k", "same", (Tensor((1, 1)),))),
        (*lines, RubricLine("two", 4, ("d",), course="Autumn")),
    )
    show_score(Console(width=120), many, score(many, [ran(10)]))
    text = capsys.readouterr().out
    assert "Points, Autumn" in text and "1 more" in text and "Points, small" in text


def test_times_are_recorded_with_their_kind(tmp_path):
    folder = tmp_path / "lab"
    folder.mkdir()
    (folder / "kernels.py").write_text("")
    one = Lab("small", "", folder, (CASE,))
    path = tmp_path / "new" / "execution_times.json"
    assert "1 predicted latencies" in write_times(
        path, one, [ran(12.34, kind="predicted")], "sim", 7
    )
    document = json.loads(path.read_text())
    assert document["kind"] == "predicted" and document["backend"] == "sim"
    assert document["execution_times_us"] == {"c": 12.3}
    # a wrong or untimed kernel leaves the file of the last right one alone
    for outcome in (ran(1, status=FAILED), ran(None)):
        assert "nothing is written" in write_times(path, one, [outcome], "sim", 7)
    assert json.loads(path.read_text()) == document
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match="cannot write"):
        write_times(tmp_path / "file" / "x.json", one, [ran(1)], "hw", 7)


def test_case_table_says_what_each_tolerance_is(capsys):
    many = Lab(
        "small", "", Path(), (CASE, Case("moved", "k", "same", (Tensor((128, 4)),), accumulate=0))
    )
    Console(width=160).print(case_table(many, "trn2"))
    text = capsys.readouterr().out
    assert "trn2 60 us p99, trn2 80 us p99 for a part" in " ".join(text.split())
    assert "trn1" not in text and "sqrt(terms summed)" in text and "1.2e-07" in text
    assert "0.0e+00" in text.split("moved")[1]


def test_inputs_that_are_all_different_are_so_in_each_lot():
    """As the numbers of a top-k: of a row, or of a column."""
    tensors = (
        Tensor((50, 4), "int32", 2, 8, distinct=4),
        Tensor((30, 1), "int32", 0, 30, distinct=30),
    )
    rows, column = make_inputs(Case("c", "k", "same", tensors), 0)
    assert rows.dtype == np.int32 and rows.min() == 2 and rows.max() == 7
    assert all(len(set(row)) == 4 for row in rows.tolist())
    assert len({tuple(row) for row in rows.tolist()}) > 30
    assert sorted(column[:, 0].tolist()) == list(range(30))
    for shape, distinct in (((3, 4), 5), ((3, 12), 12)):
        with pytest.raises(SpecError, match="they must fit the range, and the shape"):
            Tensor(shape, "int32", 0, 8, distinct=distinct)


def test_inputs_from_files_and_constant_inputs(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.arange(8, dtype=np.float32).reshape(2, 4))
    case = Case(
        "c",
        "k",
        "same",
        (Tensor((2, 4), file=str(path)), Tensor((3, 3), "float16", low=0.5, high=0.5)),
    )
    stored, constant = make_inputs(case, 0)
    assert stored[1, 3] == 7 and (constant == 0.5).all()
    np.save(path, np.zeros((4, 2), np.float32))
    with pytest.raises(SpecError, match=r"shape \(4, 2\); expected float32 of shape \(2, 4\)"):
        make_inputs(case, 0)
