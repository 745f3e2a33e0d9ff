"""`status` and `report` when AWS does not show everything: machines first, and what is missing said
part by part."""

from __future__ import annotations

import pytest

from classroom.aws.problems import ClassroomError
from conftest import ClassFolder, Classroom, Lab
from labcloud.client import LabCloud

# action -> a word of the line that says what is not known
PARTS = {
    "budgets:ViewBudget": "What the budgets have seen",
    "budgets:DescribeBudgetActionsForBudget": "Whether the class budget stops",
    "cloudwatch:GetMetricData": "hours of machines",
    "cloudwatch:DescribeAlarmHistory": "what the idle alarms did",
    "ssm:DescribeAutomationExecutions": "what the schedules did",
    "ec2:DescribeSpotInstanceRequests": "spot machines",
}


@pytest.fixture()
def stopped(folder: ClassFolder, cloud: LabCloud, classroom: Classroom) -> ClassFolder:
    """Return a class of two spot machines, stopped."""
    folder.write(["alice", "bob"], market="spot")
    classroom("provision", folder.file)
    cloud.post("advance", seconds=1200)
    classroom("stop", folder.file)
    return folder


def test_each_read_that_is_refused_hides_nothing_else(
    stopped: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    whole = classroom("status", stopped.file)
    assert whole["exit_code"] == 0 and whole["blind"] == []
    for action, words in PARTS.items():
        cloud.post("set", denied=[action])
        seen = classroom("status", stopped.file)
        assert [r[:3] for r in seen["tables"][0]["rows"]] == [
            r[:3] for r in whole["tables"][0]["rows"]
        ], action
        assert seen["exit_code"] == 1 and any(words in p for p in seen["blind"]), (action, seen)
        assert seen["problems"][: len(seen["blind"])] == seen["blind"]
        assert not [p for p in seen["problems"] if "stops nothing" in p]
        done = classroom("report", stopped.file)
        assert done["exit_code"] == 1 and done["files"], action


def test_all_of_them_at_once(stopped: ClassFolder, cloud: LabCloud, classroom: Classroom) -> None:
    cloud.post("set", denied=[*PARTS, "ce:ListCostAllocationTags"])
    seen = classroom("status", stopped.file)
    assert [r[0] for r in seen["tables"][0]["rows"]] == ["alice", "bob"]
    assert len(seen["blind"]) == len(PARTS) + 1, "the class's cap is compared, too"


def test_unknown_hours_are_no_zeros(
    stopped: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    cloud.post("set", denied=["cloudwatch:GetMetricData"])
    seen = classroom("status", stopped.file)
    assert {tuple(r[-3:]) for r in seen["tables"][0]["rows"]} == {("-", "-", "-")}
    assert "at least $0.00" in seen["summary"]
    done = classroom("report", stopped.file)
    assert {r[-1] for r in done["tables"][0]["rows"]} == {"unknown"}


def test_a_region_that_cannot_be_read_hides_no_other(lab: Lab) -> None:
    lab.post("set", quotas={"*": 5000.0, "L-2C3B7624": 8.0})
    lab("provision")  # a machine in each region
    lab.fault("DescribeInstances", region="us-west-2", code="InternalError", times=1000)
    seen = lab("status")
    assert len(seen["tables"][0]["rows"]) == 1 and "us-west-2" in seen["blind"][0]
    assert seen["exit_code"] == 1
    lab.fault("DescribeInstances", region="us-east-2", code="InternalError", times=1000)
    with pytest.raises(ClassroomError, match="AWS had an internal error"):
        lab("status")


def test_stop_needs_none_of_them_and_start_refuses_without_the_hours(
    stopped: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    cloud.post("set", denied=["cloudwatch:GetMetricData"])
    with pytest.raises(ClassroomError, match="hours"):
        classroom("start", stopped.file)
    cloud.post("set", denied=[])
    classroom("start", stopped.file)
    cloud.post("set", denied=list(PARTS))
    assert classroom("stop", stopped.file).get("exit_code", 0) == 0 and cloud.running() == []
