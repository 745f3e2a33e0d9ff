"""The drill: one small machine goes through every guard, and what AWS answered is kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from classroom.cli import drill
from classroom.guards import roles
from conftest import Lab


def test_a_drill_shows_that_every_guard_acts_and_leaves_nothing(lab: Lab) -> None:
    lab.post("set", regions=["us-east-1", "us-east-2", "us-west-2"])
    done = lab("doctor", drill=True)
    steps = json.loads((lab.folder.path / drill.FILE).read_text())["steps"]
    assert done["exit_code"] == 0 and len(steps) == 8, steps
    assert lab.leftovers() == []
    why = {e["why"] for e in lab.post("events") if e["kind"] == "stopped"}
    why |= {e["why"] for e in lab.post("events") if e["kind"] == "stopping"}
    assert {"schedule unarmed", "alarm trainium-labs.lab-drill.drill.idle"} <= why
    assert any("No drill" in line for line in lab("provision")["lines"]) is False


def test_a_drill_finds_guards_that_aws_refuses(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.post("set", regions=["us-east-1", "us-east-2", "us-west-2"])
    good = roles.guard_policy

    def old(run: Any) -> dict[str, Any]:
        document = good(run)
        for s in document["Statement"]:
            if s["Action"] == "ssm:StartAutomationExecution":
                s["Resource"] = [r for r in s["Resource"] if "automation-definition" in r]
        return document

    monkeypatch.setattr(roles, "guard_policy", old)
    done = lab("doctor", drill=True)
    assert done["exit_code"] == 1 and lab.leftovers() == []
    steps = json.loads((lab.folder.path / drill.FILE).read_text())["steps"]
    (bad,) = [s for s in steps if not s["good"]]
    assert bad["step"].startswith("a schedule starts") and "AWS refused" in bad["seen"]
    assert any("No drill" in line for line in lab("provision")["lines"])


def test_a_transcript_that_may_be_given_away_names_no_one(lab: Lab) -> None:
    steps = [
        {
            "step": "x",
            "seen": "i-0123456789abcdef0 of arn:aws:iam::123456789012:role/trainium-labs.lab.guard"
            " at 198.51.100.7 in account 123456789012, staff@example.edu, class lab-drill, alice",
        }
    ]
    data = {"account": "123456789012", "region": "us-east-2", "good": True, "steps": steps}
    (lab.folder.path / drill.FILE).write_text(json.dumps(data))
    lab("doctor", submit_transcript=True)
    text = (lab.folder.path / "drill-transcript.json").read_text()
    for secret in ("123456789012", "i-0123", "198.51", "example.edu", "alice", "lab-drill"):
        assert secret not in text, (secret, text)
    assert "us-east-2" in text


def test_a_drill_tries_what_else_the_class_asks_for(lab: Lab) -> None:
    lab.post("set", regions=["us-east-1", "us-east-2", "us-west-2"])
    lab.write(my="lambda", work_copies="s3", market="spot")
    done = lab("doctor", drill=True)
    steps = json.loads((lab.folder.path / drill.FILE).read_text())["steps"]
    assert done["exit_code"] == 0, steps
    seen = {s["step"]: s["seen"] for s in steps}
    assert "called" in seen["a schedule calls the students' function"]
    assert "keeps" in seen["the bucket for copies is made and read back"]
    assert "its request carries" in seen["a spot machine starts and stays ended"]
    assert lab.leftovers() == []
