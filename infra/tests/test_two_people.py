"""Two of the staff at once: each command begins while the other one's is under way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import boto3
import pytest

from classroom.aws.problems import ClassroomError
from classroom.cli import provision
from conftest import Lab
from labcloud.client import LabCloud


def meanwhile(monkeypatch: pytest.MonkeyPatch, what: Callable[[], Any]) -> None:
    """Let someone else do something in the moment before machines are launched."""
    launch, done = provision.launch.launch, []

    def later(*args: Any) -> Any:
        if not done:
            done.append(1)
            what()
        return launch(*args)

    monkeypatch.setattr(provision.launch, "launch", later)


def kinds(cloud: LabCloud) -> list[str]:
    """Return the kinds of all that exists."""
    return sorted(r["kind"] for r in cloud.leftovers())


def test_two_provisions_make_one_machine_for_each(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.write(["alice", "bob"], elastic_ip=True)
    meanwhile(monkeypatch, lambda: lab("provision"))
    lab("provision")
    assert lab("provision")["exit_code"] == 0
    found = kinds(lab.cloud)
    assert found.count("instance") == found.count("elastic-ip") == 2
    assert found.count("alarm") == 2 + 2, "and two on guards that fail"
    assert lab("teardown")["exit_code"] == 0
    assert lab.leftovers() == []


def test_a_teardown_during_a_provision_is_noticed(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.write(["alice", "bob"])
    meanwhile(monkeypatch, lambda: lab("teardown"))
    with pytest.raises(ClassroomError, match="guard|assume the role"):
        lab("provision")
    assert "instance" not in kinds(lab.cloud), "the launch template has gone with the rest"
    assert lab("teardown")["exit_code"] == 0
    assert lab.leftovers() == []


def test_what_someone_has_made_by_hand_is_named_before_its_owner_is_forgotten(lab: Lab) -> None:
    lab.write(["alice", "bob"])
    lab("provision")
    ec2 = boto3.client("ec2", "us-east-2")
    machines = [
        i
        for r in ec2.describe_instances()["Reservations"]
        for i in r["Instances"]
        if i["State"]["Name"] == "running"
    ]
    (alice,) = [
        i for i in machines if {"Key": "trainium-labs:machine", "Value": "alice"} in i["Tags"]
    ]
    disk = ec2.create_volume(AvailabilityZone=alice["Placement"]["AvailabilityZone"], Size=100)
    ec2.attach_volume(VolumeId=disk["VolumeId"], InstanceId=alice["InstanceId"], Device="/dev/sdf")
    root = alice["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
    copy = ec2.create_snapshot(VolumeId=root)["SnapshotId"]
    address = ec2.allocate_address(Domain="vpc")
    ec2.associate_address(AllocationId=address["AllocationId"], InstanceId=alice["InstanceId"])
    lab.settle()
    named = (disk["VolumeId"], copy, address["PublicIp"])
    for options in ({"dry_run": True}, {}):
        said = lab("teardown", **options)["summary"]
        assert "made by hand" in said and all(f"{x} of" in said for x in named), said
        assert "of alice in us-east-2" in said and "bob" not in said
    assert lab.kinds() == {"volume", "snapshot", "elastic-ip"}
    again = lab("teardown")["summary"]
    assert named[0] in again and "detached" in again, "it still bills, on no machine"
