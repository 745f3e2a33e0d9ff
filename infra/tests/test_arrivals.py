"""Machines that AWS accepts and then does not start: who is without one, why, and the exit code."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import boto3
import pytest

from conftest import ClassFolder
from labcloud.client import LabCloud

Classroom = Callable[..., dict[str, Any]]


def minutes(cloud: LabCloud, since: int = 0) -> float:
    """Return the virtual minutes that the calls since `since` took."""
    log = cloud.log(since)
    first, last = (dt.datetime.fromisoformat(log[k]["t"]) for k in (0, -1))
    return (last - first).total_seconds() / 60


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("Client.VolumeLimitExceeded", "quota of disks"),
        ("Client.InternalError", "key that encrypts"),
        ("Client.InvalidSnapshot.NotFound", "snapshot"),
        ("Server.InternalError", "internal error"),
        ("Client.NeverHeardOf", "ended it while it started"),
    ],
)
def test_a_machine_that_dies_while_pending_is_no_success(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom, code: str, words: str
) -> None:
    folder.write(["alice", "bob"], regions=["us-east-2"])
    cloud.post("set", failing=[{"code": code, "times": 1}])
    done = classroom("provision", folder.file)
    assert done["exit_code"] == 1 and len(done["unplaced"]) == 1 and len(done["launched"]) == 1
    (reason,) = done["unplaced"].values()
    assert words in reason and code in reason and "us-east-2" in reason, reason
    assert [r[2] for r in done["tables"][0]["rows"]] == ["running"], "the dead one is not shown"
    assert minutes(cloud) < 4, "nothing waits for a machine that is gone"
    cloud.post("advance", seconds=300)
    again = classroom("provision", folder.file)
    assert again["exit_code"] == 0 and again["launched"] == list(done["unplaced"])
    assert len(cloud.running()) == 2


def test_a_failed_launch_is_tried_in_the_next_region_if_that_may_help(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    cloud.post("set", failing=[{"code": "Client.VolumeLimitExceeded", "times": 2}])
    done = classroom("provision", folder.file)
    assert done["exit_code"] == 0 and sorted(done["launched"]) == ["alice", "bob"]
    found = [r["region"] for r in cloud.leftovers() if r["kind"] == "instance"]
    assert found == ["us-west-2"] * 2


def test_machines_whose_disks_have_no_room_are_not_launched_and_doctor_says_so_before(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    folder.write(["alice", "bob", "carol"], regions=["us-east-2"])
    cloud.post("set", quotas={"*": 5000.0, "L-7A658B76": 0.3})  # 307 GiB: two disks of 150
    doctor = classroom("doctor", folder.file)
    (row,) = [r for r in doctor["tables"][0]["rows"] if "L-7A658B76" in r[2]]
    assert row[0] == "NO" and "0.3 TiB" in row[2] and doctor["exit_code"] == 1
    done = classroom("provision", folder.file)
    assert done["exit_code"] == 1 and len(done["launched"]) == 2 and len(done["unplaced"]) == 1
    assert "it has no room" in done["unplaced"]["carol"]
    launched = [c for c in cloud.log() if c["op"] == "RunInstances" and c["status"] == 200]
    assert len(launched) == 2, "none is launched to die"
    assert "DesiredValue" not in str(done["warnings"]) and "L-7A658B76" in str(done["warnings"])
    classroom("doctor", folder.file, request_quota=True)
    asked = [c["params"] for c in cloud.log() if c["op"] == "RequestServiceQuotaIncrease"]
    (wish,) = [p for p in asked if p["QuotaCode"] == "L-7A658B76"]
    assert wish["ServiceCode"] == "ebs" and wish["DesiredValue"] >= 450 / 1024


def test_a_spot_machine_that_dies_is_not_launched_again_by_its_request(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    folder.write(["alice"], regions=["us-east-2"], market="spot")
    cloud.post("set", failing=[{"code": "Client.InternalError", "times": 1}])
    assert classroom("provision", folder.file)["exit_code"] == 1
    cloud.post("advance", seconds=300)
    assert cloud.running() == []
    assert [r for r in cloud.leftovers() if r["kind"] == "spot-request"] == []


def test_a_start_that_fails_is_told(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    classroom("provision", folder.file)
    classroom("stop", folder.file)
    wish = {"code": "Server.InsufficientInstanceCapacity", "times": 1, "start": True}
    cloud.post("set", failing=[wish])
    done = classroom("start", folder.file)
    assert done["exit_code"] == 1 and len(cloud.running()) == 1
    assert any("did not start" in line and "no free machine" in line for line in done["lines"])
    assert classroom("start", folder.file)["exit_code"] == 0 and len(cloud.running()) == 2


def test_machines_of_others_count_against_the_quota(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    cloud.post("set", quotas={"L-2C3B7624": 24.0})
    folder.write(["alice", "bob", "carol"], regions=["us-east-2"])
    (image, *_) = boto3.client("ec2", "us-east-2").describe_images(
        Owners=["898082745236"], IncludeDeprecated=True
    )["Images"]
    boto3.client("ec2", "us-east-2").run_instances(
        ImageId=image["ImageId"], InstanceType="trn1.2xlarge", MinCount=1, MaxCount=1
    )
    cloud.settle()
    done = classroom("provision", folder.file)
    assert len(done["launched"]) == 2 and done["exit_code"] == 1
    assert "8 of it used by others" in next(iter(done["unplaced"].values()))
    (row,) = [r for r in classroom("doctor", folder.file)["tables"][0]["rows"] if "L-2C3" in r[2]]
    assert row[0] == "NO" and "8 of it used by others" in row[2] and "value 32" in row[2]
