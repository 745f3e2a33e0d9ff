"""docs/course-plans.md: the points of each lab are those that it is graded by."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from labkit.grade.plan import load_plan

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "course-plans.md").read_text("utf-8")
ROWS = re.findall(r"^\| \[(\w+)\]\(\S+\) \| (both|`import nki`) \| (\d+) \|", PAGE, re.M)


def test_the_labs_of_the_plans_are_labs():
    labs = {p.parent.name for p in ROOT.glob("labs/*/spec.py")}
    assert len(ROWS) >= 5 and {name for name, *_ in ROWS} <= labs


@pytest.mark.parametrize("name, dialects, points", ROWS, ids=[r[0] for r in ROWS])
def test_points_and_dialects_are_those_of_the_lab(name, dialects, points):
    graded = load_plan(ROOT / "labs" / name)
    assert graded.points == int(points)
    assert len(graded.lab.dialects) == (2 if dialects == "both" else 1)
