"""Exit codes mean what the README says: 0 done, 1 not all of it, 2 nothing was done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from classroom.aws.problems import ClassroomError
from conftest import ClassFolder
from labcloud.client import LabCloud

Classroom = Callable[..., dict[str, Any]]
REFUSED = {"code": "AccessDenied", "status": 403, "times": 10_000}


def outcome(call: Callable[[], dict[str, Any]]) -> tuple[int, str]:
    """Return the exit code that the command line gives, and the sentence."""
    try:
        done = call()
    except ClassroomError as error:
        return error.exit_code, str(error)
    return int(done.get("exit_code", 0)), str(done.get("warnings"))


@pytest.mark.parametrize("op", ["DescribeAutomationExecutions", "PutMetricAlarm", "DescribeAlarms"])
def test_provision_that_fails_with_machines_up_shows_them_and_exits_with_one(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom, op: str
) -> None:
    cloud.fault("RunInstances", code="VcpuLimitExceeded", status=400, times=10_000)
    classroom("provision", folder.file)  # the guards are proven
    cloud.post("clear")
    first = classroom("provision", folder.file)["exit_code"]
    assert first == 0
    cloud.fault(op, **REFUSED)
    folder.write(["alice", "bob", "carol"])
    code, _ = outcome(lambda: classroom("provision", folder.file))
    assert code == 1
    cloud.post("clear")
    cloud.settle()
    assert classroom("provision", folder.file)["exit_code"] == 0


def test_machines_are_shown_when_the_proof_cannot_be_read_after_the_launch(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    cloud.fault("DescribeAutomationExecutions", skip=1, **REFUSED)
    cloud.post("set", policy_seconds=0)
    done = classroom("provision", folder.file)
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
def test_two_means_that_nothing_was_done(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom, op: str, code: int
) -> None:
    cloud.fault(op, **REFUSED)
    mark = len(cloud.log())
    found, words = outcome(lambda: classroom("provision", folder.file, fresh=True))
    assert found == code, (op, words)
    assert bool(cloud.writes(mark)) == (code == 1), op


def test_stop_works_with_a_class_yml_that_is_broken(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    classroom("provision", folder.file)
    folder.write(stop_nightly="late", regions=["us-middle-9"])
    done = classroom("stop", folder.file, limit=["alice"])
    assert len(cloud.running()) == 1 and "has mistakes" in done["warnings"][0]
    cloud.fault("DescribeInstances", region="us-west-2", status=500, times=99)
    blind = classroom("stop", folder.file, check=True)
    assert any("us-west-2 could not be read" in w for w in blind["warnings"])
    cloud.post("clear")
    folder.file.write_text("name: [half", encoding="utf-8")  # class.lock.yml knows the name
    done = classroom("stop", folder.file)
    assert cloud.running() == [] and done["exit_code"] == 1 and done["lines"]
    (folder.path / "class.lock.yml").unlink()
    with pytest.raises(ClassroomError, match="class.yml"):
        classroom("stop", folder.file)
