"""The puzzles: small, graded, and each has a wrong answer that is named (test_ladders.py)."""

from __future__ import annotations

import re

import pytest

from labkit.evaluate import PASSED
from labkit.grade.plan import load_plan
from labkit.load import load_lab, load_module
from labkit.progress import progress
from labkit.show import step_state
from labkit.starter.markers import split_file

from .natural import LABS, changed
from .test_ladders import NATURAL

LAB = load_lab(LABS / "puzzles")
PAGE = (LABS / "puzzles" / "README.md").read_text("utf-8")
REGIONS = split_file(LAB.kernels)[1]


def test_a_puzzle_is_3_to_10_lines_with_a_text_a_drawing_and_a_hint():
    assert len(REGIONS) == len(LAB.steps) == len(LAB.cases) == 14
    for region, step in zip(REGIONS, LAB.steps):
        assert region.section == step.section and 3 <= len(region.lines) <= 10
        part = PAGE.split(f"## {step.section}\n")[1].split("\n## ")[0]
        assert "<summary>Hint</summary>" in part and f"puzzle-{step.cases[0]}.svg" in part


def test_points_are_one_for_each_puzzle():
    assert load_plan(LABS / "puzzles").points == sum(line.points for line in LAB.rubric) == 14


def test_every_puzzle_has_a_named_wrong_answer():
    assert {row[0] for row in NATURAL["puzzles"]} | {"two_buffers"} == {c.name for c in LAB.cases}


def test_one_place_for_all_tiles_is_right_and_too_slow(tmp_path):
    outcome = changed(
        LAB, LAB.case("two_buffers"), "x.shape[1]), 1)]", "x.shape[1]), 0)]", tmp_path
    )
    assert outcome.status == PASSED and outcome.meets_threshold is False
    assert step_state([outcome], speed=True) == "too slow"
    assert step_state([outcome]) == "passing"


def test_a_notebook_shows_the_report_and_the_drawing_of_a_students_kernel(tmp_path, monkeypatch):
    """Twins: a step that passes, one that fails, and one that is not started."""
    made = progress("puzzles", 4)
    html = made._repr_html_()
    assert made.passing == 1 and "row_sums" in html and "<svg" in html and "nisa" in html
    folder = tmp_path / "labs" / "puzzles"
    folder.mkdir(parents=True)
    for file in (LABS / "puzzles").glob("*.*"):
        (folder / file.name).write_bytes(file.read_bytes())
    text, _ = split_file(LAB.kernels)
    (folder / "kernels_nki.py").write_text(text, "utf-8")
    monkeypatch.setenv("LABKIT_LABS", str(tmp_path / "labs"))
    assert [s.state for s in progress("puzzles").states] == ["not started"] * 14
    wrong = LAB.kernels.read_text("utf-8").replace(
        "op=nl.add, data=tile", "op=nl.maximum, data=tile"
    )
    (folder / "kernels_nki.py").write_text(wrong, "utf-8")
    html = progress("puzzles", 4)._repr_html_()
    assert "failing" in html and "the largest element of each row" in html and "<svg" in html


def test_a_step_that_there_is_not_is_said():
    with pytest.raises(Exception, match=re.escape("no step 15; its steps: 1, 2")):
        progress("puzzles", 15)


def test_reference_and_kernels_agree_on_names():
    module = load_module(LABS / "puzzles" / "reference.py")
    assert all(callable(getattr(module, case.reference)) for case in LAB.cases)
