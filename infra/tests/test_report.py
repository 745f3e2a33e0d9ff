"""The week's report: figures that add up, pages that load nothing."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import boto3
import pytest

from classroom.spec import instance_types, tags
from conftest import ClassFolder, Classroom, Lab
from labcloud.client import LabCloud

RATE = instance_types.price_table()["on_demand_hour"]["trn1.2xlarge"]


@pytest.fixture()
def weeks(folder: ClassFolder, cloud: LabCloud, classroom: Classroom) -> Path:
    """Return the out folder of a class that has run in two weeks; bob asks for more."""
    folder.write(
        ["alice", "bob", "carol"],
        stop_nightly="06:00",
        budget={"per_student_usd": 20, "class_usd": 60},
    )
    classroom("provision", folder.file)
    ids = {r["tags"][tags.OWNER]: r["id"] for r in cloud.machines()}
    for i in ids.values():
        cloud.post(
            "busy", instance=i, start=cloud.post("now")["now"], end="2027-12-31T00:00:00+00:00"
        )
    cloud.post("advance", seconds=6 * 3600)
    classroom("stop", folder.file)
    cloud.post("advance", seconds=6 * 24 * 3600)
    classroom("start", folder.file, limit=["bob"])
    cloud.post("advance", seconds=8 * 3600)
    classroom("stop", folder.file)
    boto3.client("ec2", "us-east-2").create_tags(
        Resources=[ids["bob"]], Tags=[{"Key": tags.ASKS, "Value": "2026-11-27T20:00+00:00"}]
    )
    cloud.settle()
    return folder.path / "out/lab"


def test_figures_add_up_by_student_and_week(lab: Lab, weeks: Path) -> None:
    done = lab("report")
    assert done["files"] == ["report.csv", "report.html", "staff.html"]
    with (weeks / "report.csv").open(newline="") as file:
        rows = {r["machine"]: r for r in csv.DictReader(file)}
    assert float(rows["alice"]["hours"]) == pytest.approx(6, abs=0.2)
    assert float(rows["bob"]["hours"]) == pytest.approx(14, abs=0.3)
    for r in rows.values():
        by_week = [float(v) for k, v in r.items() if k.startswith("week of ")]
        assert sum(by_week) == pytest.approx(float(r["dollars"]), abs=0.02)
        assert float(r["dollars"]) == pytest.approx(float(r["hours"]) * RATE, abs=0.1)
    assert [k for k in rows["bob"] if k.startswith("week")] == [
        "week of 2026-11-16",
        "week of 2026-11-23",
    ]
    assert (
        rows["bob"]["verdict"] == "near the cap"
        and rows["alice"]["verdict"] == "on plan"
        or (rows["alice"]["verdict"] == "above plan")
    )
    total = sum(float(r["dollars"]) for r in rows.values())
    assert done["used_usd"] == pytest.approx(total, abs=0.05)
    assert any(line.startswith("bob: asks for more") for line in done["lines"])


def test_the_staffs_page_has_machines_guards_spend_and_queue(lab: Lab, weeks: Path) -> None:
    lab.write(["alice", "bob", "carol", "dave"])
    lab("report")
    text = (weeks / "staff.html").read_text()
    for part in (
        "nightly",
        "unarmed",
        "asks for more",
        "has no machine",
        "alice",
        "armed",
        "extend --limit bob",
    ):
        assert part in text, part
    assert "Budgets are blind" in text, "what is wrong comes first"
    assert text.index("Budgets are blind") < text.index("<h2>Machines")


def test_pages_load_nothing_and_run_nothing(lab: Lab, weeks: Path) -> None:
    lab("report")
    for name in ("report.html", "staff.html"):
        text = (weeks / name).read_text()
        assert "default-src 'none'" in text and "<script" not in text
        assert not re.search(r"(src|href)=|url\(|@import", text)


def test_a_report_of_a_class_that_has_not_begun_is_empty_and_right(lab: Lab) -> None:
    done = lab("report")
    assert (
        done["used_usd"] == 0
        and "Nothing has run yet" in (lab.folder.path / "out/lab/report.html").read_text()
    )
    before = (lab.folder.path / "out/lab/report.csv").stat().st_mtime_ns
    lab("report", check=True)
    assert (lab.folder.path / "out/lab/report.csv").stat().st_mtime_ns == before
