"""Exit codes mean what the README says: 0 done, 1 not all of it, 2 nothing was done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from classroom.aws.problems import ClassroomError
from conftest import Lab

REFUSED = {"code": "AccessDenied", "status": 403, "times": 10_000}


def outcome(call: Callable[[], dict[str, Any]]) -> tuple[int, str]:
    """Return the exit code that the command line gives, and the sentence."""
    try:
        done = call()
    except ClassroomError as error:
        return error.exit_code, str(error)
    return int(done.get("exit_code", 0)), str(done.get("warnings"))


@pytest.mark.sample(1)
@pytest.mark.parametrize("op", ["DescribeAutomationExecutions", "PutMetricAlarm", "DescribeAlarms"])
def test_provision_that_fails_with_machines_up_shows_them_and_exits_with_one(
    lab: Lab, op: str
) -> None:
    lab.fault("RunInstances", code="VcpuLimitExceeded", status=400, times=10_000)
    lab("provision")  # the guards are proven
    lab.post("clear")
    first = lab("provision")["exit_code"]
    assert first == 0
    lab.fault(op, **REFUSED)
    lab.write(["alice", "bob", "carol"])
    code, _ = outcome(lambda: lab("provision"))
    assert code == 1
    lab.post("clear")
    lab.settle()
    assert lab("provision")["exit_code"] == 0


def test_machines_are_shown_when_the_proof_cannot_be_read_after_the_launch(lab: Lab) -> None:
    lab.fault("DescribeAutomationExecutions", skip=1, **REFUSED)
    lab.post("set", policy_seconds=0)
    done = lab("provision")
    assert done["exit_code"] == 1 and "cannot be read" in done["warnings"][0]
    assert [r[0] for r in done["tables"][0]["rows"]] == ["alice", "bob"]


@pytest.mark.parametrize(
    ("op", "code"),
    [
        ("GetCallerIdentity", 2),
        ("DescribeRegions", 2),
        ("DescribeImages", 2),
        ("CreateRole", 2),
        ("CreateBudget", 1),
        ("CreateSchedule", 1),
        ("RunInstances", 1),
        ("DescribeInstances", 2),
    ],
)
def test_two_means_that_nothing_was_done(lab: Lab, op: str, code: int) -> None:
    lab.fault(op, **REFUSED)
    mark = len(lab.log())
    found, words = outcome(lambda: lab("provision", fresh=True))
    assert found == code, (op, words)
    assert bool(lab.writes(mark)) == (code == 1), op


def test_stop_works_with_a_class_yml_that_is_broken(lab: Lab) -> None:
    lab("provision")
    lab.write(stop_nightly="late", regions=["us-middle-9"])
    done = lab("stop", limit=["alice"])
    assert len(lab.running()) == 1 and "has mistakes" in done["warnings"][0]
    lab.fault("DescribeInstances", region="us-west-2", status=500, times=99)
    blind = lab("stop", check=True)
    assert any("us-west-2 could not be read" in w for w in blind["warnings"])
    lab.post("clear")
    lab.folder.file.write_text("name: [half", encoding="utf-8")  # class.lock.yml knows the name
    done = lab("stop")
    assert lab.running() == [] and done["exit_code"] == 1 and done["lines"]
    (lab.folder.path / "class.lock.yml").unlink()
    with pytest.raises(ClassroomError, match="class.yml"):
        lab("stop")
