"""The puzzles: right on both generations, small, graded, and wrong answers are named."""

from __future__ import annotations

import re

import pytest

from labkit.evaluate import FAILED, PASSED
from labkit.grade.plan import load_plan
from labkit.load import load_lab, load_module
from labkit.progress import progress
from labkit.show import step_state
from labkit.starter.markers import split_file

from .natural import LABS, all_right, changed, declared, named

LAB = load_lab(LABS / "puzzles")
PAGE = (LABS / "puzzles" / "README.md").read_text("utf-8")
REGIONS = split_file(LAB.kernels)[1]


@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_the_solutions_pass_with_hidden_shapes_and_nothing_is_found(target):
    all_right(LAB, target, at_least=5)


def test_a_puzzle_is_3_to_10_lines_with_a_text_a_drawing_and_a_hint():
    assert len(REGIONS) == len(LAB.steps) == len(LAB.cases) == 14
    for region, step in zip(REGIONS, LAB.steps):
        assert region.section == step.section and 3 <= len(region.lines) <= 10
        part = PAGE.split(f"## {step.section}\n")[1].split("\n## ")[0]
        assert "<summary>Hint</summary>" in part and f"puzzle-{step.cases[0]}.svg" in part


def test_points_are_one_for_each_puzzle():
    assert load_plan(LABS / "puzzles").points == sum(line.points for line in LAB.rubric) == 14


@pytest.mark.parametrize("reference, mistake", declared("puzzles"), ids=lambda x: str(x)[:60])
def test_what_is_declared_is_named(reference, mistake):
    assert named("puzzles", reference, mistake)


#: puzzle, the solution's words, a student's, and what is said of them
NATURAL = [
    ("first_tile", "    nisa.dma_copy(dst=tile, src=x)\n    nisa.tensor_s", "    nisa.tensor_s",
     "NKI-U01"),
    ("first_tile", "    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=10.0)\n"
     "    nisa.dma_copy(dst=out, src=tile)", "    nisa.tensor_scalar(out, x, nl.add, 10.0)",
     "copy it into a tile first"),
    ("first_tile", "op0=nl.add, operand0=10.0)\n    nisa", "op0=nl.multiply, operand0=10.0)\n"
     "    nisa", "x is multiplied by 10"),
    ("many_rows", "tile = load(x[row:row + P])", "tile = load(x)", "128 partitions"),
    ("many_rows", "tile = load(x[row:row + P])", "tile = load(x[0:P])",
     "every tile holds the first 128 rows"),
    ("scale_rows", "tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=column)",
     "tensor_tensor(dst=tile, data1=tile, data2=column, op=nl.multiply)", "nisa.tensor_scalar("),
    ("row_sums", "op=nl.add, data=tile, axis=1", "op=nl.maximum, data=tile, axis=1",
     "the largest element of each row"),
    ("row_sums", "axis=1, keepdims=True", "axis=0, keepdims=True", "partition dim"),
    ("edge_tile", "end = min(row + P, x.shape[0])", "end = row + P", "x[row:min(end, 300)]"),
    ("edge_tile", "for row in range(0, x.shape[0], P):\n        end",
     "for row in range(0, x.shape[0] // P * P, P):\n        end", "NaN"),
    ("transpose", "tensor_copy(dst=tile, src=turned)\n    nisa.dma_copy(dst=out, src=tile)",
     "tensor_copy(dst=tile, src=turned)\n    nisa.dma_copy(dst=out, src=turned)",
     "nisa.tensor_copy(dst=tile"),
    ("transpose", "x.shape[0]), x.dtype, nl.psum)", "x.shape[0]), x.dtype)", "buffer=nl.psum"),
    ("matmul", "stationary=load(x), moving=load(y)", "stationary=load(y), moving=load(x)",
     "gemm_stationary_fmax"),
    ("long_sums", "accumulate=k > 0", "accumulate=False", "only the last 128 rows are in the sum"),
    ("long_sums", "accumulate=k > 0", "accumulate=True", "accumulate=(k > 0)"),
    ("wide_relu", "moving=right[:, n:n + BANK]", "moving=right[:, 0:BANK]",
     "first 512 columns are repeated"),
    ("wide_relu", "nisa.activation(dst=tile[:, n:n + BANK], op=nl.relu, data=sums)",
     "nisa.tensor_copy(dst=tile[:, n:n + BANK], src=sums)", "relu is missing"),
    ("one_activation", "scale=0.5, bias=column", "bias=column", "x is not scaled"),
    ("lower_triangle", "[[-1, x.shape[1]]], channel_multiplier=1",
     "[[1, x.shape[1]]], channel_multiplier=-1", "the upper triangle is kept"),
    ("lower_triangle", "[[-1, x.shape[1]]], channel_multiplier=1",
     "[[-1, x.shape[1]]], channel_multiplier=0", "only the first column is kept"),
    ("lower_triangle", "cmp_op=nl.greater_equal", "cmp_op=nl.greater", "the diagonal is missing"),
    ("running_sum", "op0=nl.multiply, op1=nl.add", "op0=nl.add, op1=nl.multiply",
     "the two operators are exchanged"),
    ("running_sum", "initial=0.0", "initial=1.0", "the scan begins with 1"),
    ("pick_rows", "vector_offset=index", "vector_offset=which", "SBUF first"),
    ("pick_rows", "dst=tile, src=chosen", "dst=tile, src=table[0:128]", "the index is not used"),
]  # fmt: skip


@pytest.mark.parametrize(
    "case, right, wrong, says", NATURAL, ids=[f"{row[0]}-{row[3]}" for row in NATURAL]
)
def test_a_natural_mistake_is_named(tmp_path, case, right, wrong, says):
    outcome = changed(LAB, LAB.case(case), right, wrong, tmp_path)
    assert outcome.status == FAILED and says in outcome.detail, outcome.detail


def test_every_puzzle_has_a_named_wrong_answer():
    assert {row[0] for row in NATURAL} | {"two_buffers"} == {c.name for c in LAB.cases}


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
