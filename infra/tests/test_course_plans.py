"""docs/course-plans.md: what its classes cost is what the forecast says, and its labs exist."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from classroom.cli import forecast
from classroom.spec import class_file
from conftest import ClassFolder

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "course-plans.md").read_text("utf-8")
NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.timezone.utc)
PLANS = re.findall(r"^```yaml plan=(\w+) students=(\d+) weeks=(\d+)\n(.*?)^```", PAGE, re.M | re.S)


def row(plan: str) -> list[str]:
    """Return the cells of a plan's row in the table of costs."""
    found = re.search(rf"^\| {plan} \| (.*) \|$", PAGE, re.M)
    assert found
    return [cell.strip() for cell in found[1].split("|")]


def test_there_are_three_plans() -> None:
    assert [name for name, *_ in PLANS] == ["trn1", "trn2", "alone"]


@pytest.mark.parametrize("plan, students, weeks, text", PLANS, ids=[p[0] for p in PLANS])
def test_a_plan_costs_what_the_page_says(
    folder: ClassFolder, plan: str, students: str, weeks: str, text: str
) -> None:
    keys: dict[str, Any] = yaml.safe_load(text)
    end = NOW + dt.timedelta(weeks=int(weeks))
    folder.write(int(students), teardown=end.date().isoformat(), **keys)
    f = forecast.forecast(class_file.load(folder.file, NOW), NOW)
    money = (f.planned_usd, f.other_usd, f.total_usd, f.total_usd / int(students))
    expected = [students, str(f.machines), *(f"${usd:,.2f}" for usd in money)]
    assert row(plan) == expected


def test_the_labs_of_the_plans_exist() -> None:
    named = set(re.findall(r"--lab (\w+)", PAGE)) | set(re.findall(r"labs/(\w+)/README", PAGE))
    assert len(named) >= 5
    assert all((ROOT / "labs" / name / "spec.py").is_file() for name in named)
