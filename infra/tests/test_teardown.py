"""Teardown: everything of the class in every region, nothing else, and never guards before
machines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import boto3
import pytest

from classroom.aws.problems import ClassroomError
from conftest import ClassFolder
from labcloud.client import LabCloud

Classroom = Callable[..., dict[str, Any]]
GUARDS = {"alarm", "budget", "schedule", "schedule-group", "role"}


def kinds(cloud: LabCloud) -> set[str]:
    """Return what kinds of resources exist."""
    return {r["kind"] for r in cloud.leftovers()}


def test_teardown_touches_only_its_own_and_finds_far_regions(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    strangers = cloud.post("stray", region="us-west-2")
    folder.write(elastic_ip=True)
    classroom("provision", folder.file)
    other = folder.path / "other"
    other.mkdir()
    neighbour = ClassFolder(other)
    neighbour.write(["alice"], name="lab-2")  # same prefix, another class
    classroom("provision", neighbour.file)
    classroom("stop", folder.file)
    assert len(cloud.running()) == 1, "the neighbour's"
    ec2 = boto3.client("ec2", region_name="ap-southeast-4")
    ec2.create_volume(
        AvailabilityZone="ap-southeast-4a",
        Size=9,
        TagSpecifications=[
            {"ResourceType": "volume", "Tags": [{"Key": "trainium-labs:class", "Value": "lab"}]}
        ],
    )  # left by an older class.yml
    cloud.settle()
    listed = classroom("teardown", folder.file, dry_run=True)
    assert (
        any("ap-southeast-4" in line for line in listed["left"])
        and cloud.writes()[-1] == "CreateVolume"
    )
    result = classroom("teardown", folder.file)
    assert result["exit_code"] == 0 and result["summary"].startswith(
        "0 billable resources of class lab "
    )
    left = cloud.leftovers()
    assert {r["id"] for r in left if not r["tags"] and r["kind"] != "schedule"} == set(
        strangers.values()
    )
    assert {(r["tags"] or {}).get("trainium-labs:class") for r in left if r["tags"]} == {"lab-2"}
    again = classroom("teardown", folder.file)
    assert again["exit_code"] == 0 and again["removed"] == []
    assert classroom("provision", neighbour.file)["changed"] is False, "the neighbour is whole"


def test_teardown_looks_at_every_region_of_the_account_and_not_more_often_than_needed(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    """All regions that AWS has, opt-in ones too: what is found where no class.yml says."""
    everywhere = cloud.post("all_regions")
    assert len(everywhere) > 25
    cloud.post("set", regions=everywhere)
    folder.write(elastic_ip=True)
    classroom("provision", folder.file)
    far = sorted(set(everywhere) - {"us-east-2"})[-1]
    boto3.client("ec2", region_name=far).allocate_address(
        Domain="vpc",
        TagSpecifications=[
            {"ResourceType": "elastic-ip", "Tags": [{"Key": "trainium-labs:class", "Value": "lab"}]}
        ],
    )
    cloud.settle()
    mark = len(cloud.log())
    result = classroom("teardown", folder.file)
    assert result["exit_code"] == 0 and f"from {len(everywhere)} regions" in result["summary"]
    assert cloud.leftovers() == []
    # One look finds, one look proves; about twelve listings in a region each time.
    assert len(cloud.log()) - mark < 2 * 15 * len(everywhere) + 100


def test_teardown_admits_what_it_could_not_see_or_remove(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    from classroom.teardown import removal

    monkeypatch.setattr(removal, "PASSES", 1)
    classroom("provision", folder.file)
    cloud.fault("DeleteSecurityGroup", code="DependencyViolation", status=400, times=1000)
    cloud.fault("DescribeVolumes", code="InternalError", status=500, times=1000, region="us-west-2")
    result = classroom("teardown", folder.file)
    assert (
        result["exit_code"] == 1
        and "0 billable and 1 other" in result["summary"]
        and "1 places could not be read" in result["summary"]
    )
    cloud.post("clear")
    assert classroom("teardown", folder.file)["exit_code"] == 0


def test_teardown_needs_nothing_but_the_name(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    classroom("provision", folder.file)
    folder.file.unlink()
    with pytest.raises(ClassroomError, match="--name"):
        classroom("teardown", folder.file)
    assert (
        classroom("teardown", folder.file, name="lab")["exit_code"] == 0 and cloud.leftovers() == []
    )


def test_guards_stay_while_machines_may_not_be_ended(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    classroom("provision", folder.file)
    cloud.post("set", denied=["ec2:TerminateInstances"])
    result = classroom("teardown", folder.file)
    assert result["exit_code"] == 1
    assert any("lacks a permission" in line for line in result["lines"])
    assert any("guards of us-east-2: kept" in line for line in result["lines"])
    assert GUARDS <= kinds(cloud) and len(cloud.running()) == 2
    refused = sum(c["op"] == "TerminateInstances" for c in cloud.log())
    assert refused <= 6, "what is refused is not asked for again and again"
    cloud.post("advance", seconds=86400)
    assert cloud.running() == [], "so the night stops them"
    cloud.post("set", denied=[])
    assert classroom("teardown", folder.file)["exit_code"] == 0 and cloud.leftovers() == []


def test_guards_stay_where_machines_could_not_be_seen(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    classroom("provision", folder.file)
    cloud.fault("DescribeInstances", status=500, times=1000, region="us-east-2")
    result = classroom("teardown", folder.file)
    assert result["exit_code"] == 1 and GUARDS <= kinds(cloud) and len(cloud.running()) == 2
    cloud.post("clear")
    assert classroom("teardown", folder.file)["exit_code"] == 0 and cloud.leftovers() == []


def test_some_regions_only_leave_the_guards_of_the_others_alone(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    classroom("provision", folder.file)
    before = cloud.leftovers()
    with pytest.raises(ClassroomError, match="us-est-2 is not enabled"):
        classroom("teardown", folder.file, regions="us-est-2")
    result = classroom("teardown", folder.file, regions="us-west-2")
    assert result["exit_code"] == 0 and "roles and budgets stay" in result["summary"]
    assert cloud.leftovers() == before
    assert classroom("teardown", folder.file)["exit_code"] == 0 and cloud.leftovers() == []


@pytest.mark.parametrize("op", ["DescribeInstances", "DescribeAlarms", "TerminateInstances"])
def test_credentials_that_expire_in_the_middle_are_one_sentence(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom, op: str
) -> None:
    classroom("provision", folder.file)
    cloud.fault(op, code="ExpiredToken", status=400, times=1000)
    if op == "TerminateInstances":
        cloud.fault("DescribeVolumes", code="ExpiredToken", status=400, times=1000, skip=4)
    with pytest.raises(ClassroomError, match="credentials have expired.*Sign in again"):
        classroom("teardown", folder.file)
    assert GUARDS <= kinds(cloud)
    cloud.post("clear")
    assert classroom("teardown", folder.file)["exit_code"] == 0 and cloud.leftovers() == []


def test_a_class_after_its_last_day_can_be_seen_stopped_and_removed_but_not_started(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    folder.write(teardown="2026-11-23")
    classroom("provision", folder.file)
    cloud.post("advance", seconds=15 * 86400)
    assert cloud.running() == []
    for command in ("status", "cost", "stop", "doctor"):
        classroom(command, folder.file)
    for command in ("provision", "start", "extend"):
        with pytest.raises(ClassroomError, match="not in the future"):
            classroom(command, folder.file)
    assert classroom("teardown", folder.file)["exit_code"] == 0 and cloud.leftovers() == []
