"""Every command, at every age of a class, with exactly the policy that `doctor --policy` prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import boto3
import pytest

from classroom.aws.problems import ClassroomError
from classroom.cli import options
from conftest import Lab, bounded
from labcloud.client import LabCloud

# Asks AWS's policy simulator; commands need no permission for it.
UNASKED = {"SimulatePrincipalPolicy"}
DAY = 24 * 3600
PARTS = {
    "elastic_ip": True,
    "my": "lambda",
    "mail_from": "course@example.edu",
    "work_copies": "s3",
    "reservations": [{"begins": "2026-11-21", "ends": "2026-11-24", "max_usd": 900}],
}
# command -> the options with which it is run, one after the other
WAYS: dict[str, list[dict[str, Any]]] = {
    "pages": [{}],
    "links": [{}, {"revoke": True}, {"sign_in": True}],
    "check": [{}],
    "forecast": [{}],
    "prices": [{}],
    "provision": [{}, {"confirm_removals": True}, {"confirm_changes": True}],
    "status": [{}],
    "hosts": [{}],
    "cost": [{}],
    "report": [{}],
    "reserve": [{}, {"cancel": True}],
    "extend": [{}],
    "save_work": [{}],
    "restore": [{}],
    "doctor": [{}, {"request_quota": True}, {"policy": True}, {"policy": True, "assistant": "all"}],
    "keys": [{}, {"rotate": True}],
    "stop": [{}],
    "start": [{}, {"over_budget": True}, {"elsewhere": True}],
}
ELSEWHERE = {"init", "roster", "teardown"}  # no class yet, or no class any more: below
AGES = {"just made": 6, "booted": 180, "an hour": 3600, "the next day": DAY}


def denied(cloud: LabCloud, since: int = 0) -> list[str]:
    """Return what was refused to the caller."""
    return [
        f"{c['service']}:{c['op']} {c.get('error', '')}"
        for c in cloud.log(since)
        if c["status"] == 403 and c["op"] not in UNASKED
    ]


def quiet(call: Callable[[], Any]) -> None:
    """Run a command whose own refusal (no network, no work yet) is not the question."""
    try:
        call()
    except ClassroomError as error:
        assert "permission" not in str(error).lower(), error


def test_every_command_has_a_row() -> None:
    assert set(WAYS) | ELSEWHERE == set(options.COMMANDS)


@pytest.mark.sample(1)
@pytest.mark.parametrize("age", AGES)
def test_the_printed_policy_is_enough_for_every_command(lab: Lab, age: str) -> None:
    bounded(lab.cloud)
    lab.post("set", regions=["us-east-1", "us-east-2", "us-west-2"])
    lab.write(["alice", "bob"], **PARTS)
    assert lab("provision")["exit_code"] == 0
    lab.post("advance", seconds=AGES[age])
    for command, ways in WAYS.items():
        for way in ways:
            mark = len(lab.log())
            quiet(lambda command=command, way=way: lab(command, **way))
            assert denied(lab.cloud, mark) == [], (age, command, way)
    lab.write(["alice"])
    lab("provision", confirm_changes=True)
    lab("teardown", dry_run=True)
    assert lab("teardown")["exit_code"] == 0
    assert denied(lab.cloud) == []


def test_the_printed_policy_is_enough_for_the_drill(lab: Lab) -> None:
    bounded(lab.cloud)
    lab.post("set", regions=["us-east-1", "us-east-2", "us-west-2"])
    done = lab("doctor", drill=True)
    assert denied(lab.cloud) == [] and done["exit_code"] == 0, done
    lab("doctor", submit_transcript=True)


def test_host_keys_are_read_from_the_console_with_the_printed_policy(lab: Lab) -> None:
    bounded(lab.cloud)
    lab("provision")
    lab.post("advance", seconds=180)
    done = lab("pages")
    assert done["warnings"] == []
    assert len((lab.folder.path / "out/lab/known_hosts").read_text().splitlines()) == 2


def test_a_console_that_may_not_be_read_is_told(lab: Lab) -> None:
    lab("provision")
    lab.post("advance", seconds=180)
    lab.post("set", denied=["ec2:GetConsoleOutput"])
    (warning,) = lab("pages")["warnings"]
    assert "ec2:GetConsoleOutput" in warning and "alice, bob" in warning, warning
    assert not (lab.folder.path / "out/lab/known_hosts").exists()


def test_the_console_of_another_machine_stays_closed(lab: Lab) -> None:
    lab("provision")
    ours = next(r["id"] for r in lab.machines())
    bounded(lab.cloud)
    ec2 = boto3.client("ec2", "us-east-2")
    ec2.get_console_output(InstanceId=ours)
    with pytest.raises(ec2.exceptions.ClientError, match="UnauthorizedOperation"):
        ec2.get_console_output(InstanceId="i-0123456789abcdef0")


def test_the_printed_policy_starts_machines_of_a_class_only(lab: Lab) -> None:
    ec2 = boto3.client("ec2", "us-east-2")
    (image, *_) = ec2.describe_images(Owners=["898082745236"], IncludeDeprecated=True)["Images"]
    bounded(lab.cloud)
    asked = {"ImageId": image["ImageId"], "MinCount": 1, "MaxCount": 1, "DryRun": True}
    for kind, code in (
        ("trn1.2xlarge", "DryRunOperation"),
        ("inf2.xlarge", "DryRunOperation"),
        ("t3.nano", "DryRunOperation"),
        ("p5.48xlarge", "UnauthorizedOperation"),
        ("m5.24xlarge", "UnauthorizedOperation"),
    ):
        with pytest.raises(ec2.exceptions.ClientError, match=code):
            ec2.run_instances(InstanceType=kind, **asked)
    with pytest.raises(ec2.exceptions.ClientError, match="UnauthorizedOperation"):
        ec2.run_instances(**asked)
