"""Machines that AWS accepts and then does not start: who is without one, why, and the exit code."""

from __future__ import annotations

import boto3
import pytest

from conftest import Lab
from test_rates import minutes


@pytest.mark.sample(3)
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
def test_a_machine_that_dies_while_pending_is_no_success(lab: Lab, code: str, words: str) -> None:
    lab.write(["alice", "bob"], regions=["us-east-2"])
    lab.post("set", failing=[{"code": code, "times": 1}])
    done = lab("provision")
    assert done["exit_code"] == 1 and len(done["unplaced"]) == 1 and len(done["launched"]) == 1
    (reason,) = done["unplaced"].values()
    assert words in reason and code in reason and "us-east-2" in reason, reason
    assert [r[2] for r in done["tables"][0]["rows"]] == ["running"], "the dead one is not shown"
    assert minutes(lab.log()) < 4, "nothing waits for a machine that is gone"
    lab.post("advance", seconds=300)
    again = lab("provision")
    assert again["exit_code"] == 0 and again["launched"] == list(done["unplaced"])
    assert len(lab.running()) == 2


def test_a_failed_launch_is_tried_in_the_next_region_if_that_may_help(lab: Lab) -> None:
    lab.post("set", failing=[{"code": "Client.VolumeLimitExceeded", "times": 2}])
    done = lab("provision")
    assert done["exit_code"] == 0 and sorted(done["launched"]) == ["alice", "bob"]
    found = [r["region"] for r in lab.machines()]
    assert found == ["us-west-2"] * 2


def test_machines_whose_disks_have_no_room_are_not_launched_and_doctor_says_so_before(
    lab: Lab,
) -> None:
    lab.write(["alice", "bob", "carol"], regions=["us-east-2"])
    lab.post("set", quotas={"*": 5000.0, "L-7A658B76": 0.3})  # 307 GiB: two disks of 150
    doctor = lab("doctor")
    (row,) = [r for r in doctor["tables"][0]["rows"] if "L-7A658B76" in r[2]]
    assert row[0] == "NO" and "0.3 TiB" in row[2] and doctor["exit_code"] == 1
    done = lab("provision")
    assert done["exit_code"] == 1 and len(done["launched"]) == 2 and len(done["unplaced"]) == 1
    assert "it has no room" in done["unplaced"]["carol"]
    launched = [c for c in lab.log() if c["op"] == "RunInstances" and c["status"] == 200]
    assert len(launched) == 2, "none is launched to die"
    assert "DesiredValue" not in str(done["warnings"]) and "L-7A658B76" in str(done["warnings"])
    lab("doctor", request_quota=True)
    asked = [c["params"] for c in lab.log() if c["op"] == "RequestServiceQuotaIncrease"]
    (wish,) = [p for p in asked if p["QuotaCode"] == "L-7A658B76"]
    assert wish["ServiceCode"] == "ebs" and wish["DesiredValue"] >= 450 / 1024


def test_a_spot_machine_that_dies_is_not_launched_again_by_its_request(lab: Lab) -> None:
    lab.write(["alice"], regions=["us-east-2"], market="spot")
    lab.post("set", failing=[{"code": "Client.InternalError", "times": 1}])
    assert lab("provision")["exit_code"] == 1
    lab.post("advance", seconds=300)
    assert lab.running() == []
    assert [r for r in lab.leftovers() if r["kind"] == "spot-request"] == []


def test_a_start_that_fails_is_told(lab: Lab) -> None:
    lab("provision")
    lab("stop")
    wish = {"code": "Server.InsufficientInstanceCapacity", "times": 1, "start": True}
    lab.post("set", failing=[wish])
    done = lab("start")
    assert done["exit_code"] == 1 and len(lab.running()) == 1
    assert any("did not start" in line and "no free machine" in line for line in done["lines"])
    assert lab("start")["exit_code"] == 0 and len(lab.running()) == 2


def test_machines_of_others_count_against_the_quota(lab: Lab) -> None:
    lab.post("set", quotas={"L-2C3B7624": 24.0})
    lab.write(["alice", "bob", "carol"], regions=["us-east-2"])
    (image, *_) = boto3.client("ec2", "us-east-2").describe_images(
        Owners=["898082745236"], IncludeDeprecated=True
    )["Images"]
    boto3.client("ec2", "us-east-2").run_instances(
        ImageId=image["ImageId"], InstanceType="trn1.2xlarge", MinCount=1, MaxCount=1
    )
    lab.settle()
    done = lab("provision")
    assert len(done["launched"]) == 2 and done["exit_code"] == 1
    assert "8 of it used by others" in next(iter(done["unplaced"].values()))
    (row,) = [r for r in lab("doctor")["tables"][0]["rows"] if "L-2C3" in r[2]]
    assert row[0] == "NO" and "8 of it used by others" in row[2] and "value 32" in row[2]
