"""Teardown: everything of the class in every region, nothing else, and never guards before
machines."""

from __future__ import annotations

import boto3
import pytest

from classroom.aws.problems import ClassroomError
from conftest import ClassFolder, Lab

GUARDS = {"alarm", "budget", "schedule", "schedule-group", "role"}


def test_teardown_touches_only_its_own_and_finds_far_regions(lab: Lab) -> None:
    strangers = lab.post("stray", region="us-west-2")
    lab.write(elastic_ip=True)
    lab("provision")
    other = lab.folder.path / "other"
    other.mkdir()
    neighbour = ClassFolder(other)
    neighbour.write(["alice"], name="lab-2")  # same prefix, another class
    lab("provision", neighbour.file)
    lab("stop")
    assert len(lab.running()) == 1, "the neighbour's"
    ec2 = boto3.client("ec2", region_name="ap-southeast-4")
    ec2.create_volume(
        AvailabilityZone="ap-southeast-4a",
        Size=9,
        TagSpecifications=[
            {"ResourceType": "volume", "Tags": [{"Key": "trainium-labs:class", "Value": "lab"}]}
        ],
    )  # left by an older class.yml
    lab.settle()
    listed = lab("teardown", dry_run=True)
    assert (
        any("ap-southeast-4" in line for line in listed["left"])
        and lab.writes()[-1] == "CreateVolume"
    )
    result = lab("teardown")
    assert result["exit_code"] == 0 and result["summary"].startswith(
        "0 billable resources of class lab "
    )
    left = lab.leftovers()
    assert {r["id"] for r in left if not r["tags"] and r["kind"] != "schedule"} == set(
        strangers.values()
    )
    assert {(r["tags"] or {}).get("trainium-labs:class") for r in left if r["tags"]} == {"lab-2"}
    again = lab("teardown")
    assert again["exit_code"] == 0 and again["removed"] == []
    assert lab("provision", neighbour.file)["changed"] is False, "the neighbour is whole"


def test_teardown_looks_at_every_region_of_the_account_and_not_more_often_than_needed(
    lab: Lab,
) -> None:
    """All regions that AWS has, opt-in ones too: what is found where no class.yml says."""
    everywhere = lab.post("all_regions")
    assert len(everywhere) > 25
    lab.post("set", regions=everywhere)
    lab.write(elastic_ip=True)
    lab("provision")
    far = sorted(set(everywhere) - {"us-east-2"})[-1]
    boto3.client("ec2", region_name=far).allocate_address(
        Domain="vpc",
        TagSpecifications=[
            {"ResourceType": "elastic-ip", "Tags": [{"Key": "trainium-labs:class", "Value": "lab"}]}
        ],
    )
    lab.settle()
    mark = len(lab.log())
    result = lab("teardown")
    assert result["exit_code"] == 0 and f"from {len(everywhere)} regions" in result["summary"]
    assert lab.leftovers() == []
    # One look finds, one look proves; about twelve listings in a region each time.
    assert len(lab.log()) - mark < 2 * 15 * len(everywhere) + 100


def test_teardown_admits_what_it_could_not_see_or_remove(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    from classroom.teardown import removal

    monkeypatch.setattr(removal, "PASSES", 1)
    lab("provision")
    lab.fault("DeleteSecurityGroup", code="DependencyViolation", status=400, times=1000)
    lab.fault("DescribeVolumes", code="InternalError", status=500, times=1000, region="us-west-2")
    result = lab("teardown")
    assert (
        result["exit_code"] == 1
        and "0 billable and 1 other" in result["summary"]
        and "1 places could not be read" in result["summary"]
    )
    lab.post("clear")
    assert lab("teardown")["exit_code"] == 0


def test_teardown_needs_nothing_but_the_name(lab: Lab) -> None:
    lab("provision")
    lab.folder.file.unlink()
    with pytest.raises(ClassroomError, match="--name"):
        lab("teardown")
    assert lab("teardown", name="lab")["exit_code"] == 0 and lab.leftovers() == []


def test_guards_stay_while_machines_may_not_be_ended(lab: Lab) -> None:
    lab("provision")
    lab.post("set", denied=["ec2:TerminateInstances"])
    result = lab("teardown")
    assert result["exit_code"] == 1
    assert any("lacks a permission" in line for line in result["lines"])
    assert any("guards of us-east-2: kept" in line for line in result["lines"])
    assert GUARDS <= lab.kinds() and len(lab.running()) == 2
    refused = sum(c["op"] == "TerminateInstances" for c in lab.log())
    assert refused <= 6, "what is refused is not asked for again and again"
    lab.post("advance", seconds=86400)
    assert lab.running() == [], "so the night stops them"
    lab.post("set", denied=[])
    assert lab("teardown")["exit_code"] == 0 and lab.leftovers() == []


def test_guards_stay_where_machines_could_not_be_seen(lab: Lab) -> None:
    lab("provision")
    lab.fault("DescribeInstances", status=500, times=1000, region="us-east-2")
    result = lab("teardown")
    assert result["exit_code"] == 1 and GUARDS <= lab.kinds() and len(lab.running()) == 2
    lab.post("clear")
    assert lab("teardown")["exit_code"] == 0 and lab.leftovers() == []


def test_some_regions_only_leave_the_guards_of_the_others_alone(lab: Lab) -> None:
    lab("provision")
    before = lab.leftovers()
    with pytest.raises(ClassroomError, match="us-est-2 is not enabled"):
        lab("teardown", regions="us-est-2")
    result = lab("teardown", regions="us-west-2")
    assert result["exit_code"] == 0 and "roles and budgets stay" in result["summary"]
    assert lab.leftovers() == before
    assert lab("teardown")["exit_code"] == 0 and lab.leftovers() == []


@pytest.mark.sample(1)
@pytest.mark.parametrize("op", ["DescribeInstances", "DescribeAlarms", "TerminateInstances"])
def test_credentials_that_expire_in_the_middle_are_one_sentence(lab: Lab, op: str) -> None:
    lab("provision")
    lab.fault(op, code="ExpiredToken", status=400, times=1000)
    if op == "TerminateInstances":
        lab.fault("DescribeVolumes", code="ExpiredToken", status=400, times=1000, skip=4)
    with pytest.raises(ClassroomError, match="credentials have expired.*Sign in again"):
        lab("teardown")
    assert GUARDS <= lab.kinds()
    lab.post("clear")
    assert lab("teardown")["exit_code"] == 0 and lab.leftovers() == []


def test_a_class_after_its_last_day_can_be_seen_stopped_and_removed_but_not_started(
    lab: Lab,
) -> None:
    lab.write(teardown="2026-11-23")
    lab("provision")
    lab.post("advance", seconds=15 * 86400)
    assert lab.running() == []
    for command in ("status", "cost", "stop", "doctor"):
        lab(command)
    for command in ("provision", "start", "extend"):
        with pytest.raises(ClassroomError, match="not in the future"):
            lab(command)
    assert lab("teardown")["exit_code"] == 0 and lab.leftovers() == []
