"""Guards that fail are heard: by mail, and by the exit code of `status`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import boto3
import pytest

from conftest import ClassFolder
from labcloud.client import LabCloud

Classroom = Callable[..., dict[str, Any]]
ROLE = "trainium-labs.lab.guard"


def mails(cloud: LabCloud) -> set[tuple[str, str]]:
    """Return (alarm, address) of each mail about a guard."""
    said = [e for e in cloud.post("events") if e["kind"] == "failure-mail"]
    return {(e["alarm"], e["to"]) for e in said}


def break_the_role() -> None:
    boto3.client("iam").delete_role_policy(RoleName=ROLE, PolicyName="guard")


def test_a_guard_that_aws_refuses_is_mailed_and_status_ends_with_one(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    classroom("provision", folder.file)
    cloud.post("advance", seconds=3600)
    assert mails(cloud) == set() and classroom("status", folder.file)["exit_code"] == 0
    break_the_role()
    cloud.post("advance", seconds=2 * 3600)
    assert {to for _, to in mails(cloud)} == {"staff@example.edu"}
    seen = classroom("status", folder.file)
    assert seen["exit_code"] == 1 and any("did not act" in p for p in seen["problems"])
    assert classroom("provision", folder.file)["exit_code"] == 0
    assert classroom("teardown", folder.file)["exit_code"] == 0 and cloud.leftovers() == []


def test_an_automation_that_may_not_stop_machines_is_mailed(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    classroom("provision", folder.file)
    iam = boto3.client("iam")
    policy = iam.get_role_policy(RoleName=ROLE, PolicyName="guard")["PolicyDocument"]
    forbid = {"Effect": "Deny", "Action": "ec2:StopInstances", "Resource": "*"}
    policy["Statement"].append(forbid)
    iam.put_role_policy(RoleName=ROLE, PolicyName="guard", PolicyDocument=json.dumps(policy))
    cloud.post("advance", seconds=24 * 3600)  # the nightly stop is one of these hours
    assert mails(cloud) == {("trainium-labs.lab.failures", "staff@example.edu")}
    assert classroom("status", folder.file)["exit_code"] == 1
    iam.delete_role_policy(RoleName=ROLE, PolicyName="guard")
    assert classroom("provision", folder.file)["exit_code"] == 0
    assert classroom("teardown", folder.file)["exit_code"] == 0 and cloud.leftovers() == []


def test_a_students_function_that_fails_is_mailed(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    folder.write(my="lambda")
    classroom("provision", folder.file)
    cloud.post("advance", seconds=2 * 3600)
    assert mails(cloud) == set()
    cloud.post("set", failing_functions=True)
    cloud.post("advance", seconds=2 * 3600)
    assert mails(cloud) == {("trainium-labs.lab.failures.Errors", "staff@example.edu")}


def test_an_address_that_never_agreed_is_named_by_status_and_asked_again(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    cloud.post("set", unconfirmed=True)
    made = classroom("provision", folder.file)
    words = "has sent staff@example.edu a mail"
    assert made["exit_code"] == 0 and any(words in w for w in made["warnings"])
    seen = classroom("status", folder.file)
    assert seen["exit_code"] == 1 and any(words in p for p in seen["problems"])
    mark = len(cloud.log())
    assert any(words in w for w in classroom("provision", folder.file)["warnings"])
    assert "Subscribe" in cloud.writes(mark)
    cloud.post("set", unconfirmed=False)
    assert classroom("status", folder.file)["exit_code"] == 0


def test_another_contact_is_told_instead(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    classroom("provision", folder.file)
    folder.write(contact="new@example.edu")
    assert classroom("status", folder.file)["exit_code"] == 1
    classroom("provision", folder.file)
    break_the_role()
    cloud.post("advance", seconds=2 * 3600)
    assert {to for _, to in mails(cloud)} == {"new@example.edu"}


def test_an_account_without_sns_has_its_class_all_the_same(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    cloud.post("set", denied=["sns:CreateTopic"])
    made = classroom("provision", folder.file)
    assert made["exit_code"] == 0 and any("No mail will be sent" in w for w in made["warnings"])
    assert classroom("status", folder.file)["exit_code"] == 1


@pytest.mark.parametrize("what", ["topic", "alarms", "rule"])
def test_what_somebody_deleted_is_named_and_made_again(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom, what: str
) -> None:
    classroom("provision", folder.file)
    if what == "topic":
        (topic,) = (r["id"] for r in cloud.leftovers() if r["kind"] == "topic")
        boto3.client("sns", "us-east-2").delete_topic(TopicArn=topic)
    elif what == "rule":
        events = boto3.client("events", "us-east-2")
        events.remove_targets(Rule="trainium-labs.lab.failures", Ids=["mail"])
        events.delete_rule(Name="trainium-labs.lab.failures")
    else:
        names = [
            r["id"] for r in cloud.leftovers() if "failures" in r["id"] and r["kind"] == "alarm"
        ]
        boto3.client("cloudwatch", "us-east-2").delete_alarms(AlarmNames=names)
    assert classroom("status", folder.file)["exit_code"] == 1
    classroom("provision", folder.file)
    assert classroom("status", folder.file)["exit_code"] == 0
