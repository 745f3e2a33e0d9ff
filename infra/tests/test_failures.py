"""Guards that fail are heard: by mail, and by the exit code of `status`."""

from __future__ import annotations

import json
from collections.abc import Callable

import boto3
import pytest

from conftest import Lab
from labcloud.client import LabCloud

ROLE = "trainium-labs.lab.guard"


def mails(cloud: LabCloud) -> set[tuple[str, str]]:
    """Return (alarm, address) of each mail about a guard."""
    said = [e for e in cloud.post("events") if e["kind"] == "failure-mail"]
    return {(e["alarm"], e["to"]) for e in said}


def break_the_role() -> None:
    boto3.client("iam").delete_role_policy(RoleName=ROLE, PolicyName="guard")


def may_not_stop(cloud: LabCloud) -> None:
    """Let automations start, and stop no machine."""
    iam = boto3.client("iam")
    policy = iam.get_role_policy(RoleName=ROLE, PolicyName="guard")["PolicyDocument"]
    forbid = {"Effect": "Deny", "Action": "ec2:StopInstances", "Resource": "*"}
    policy["Statement"].append(forbid)
    iam.put_role_policy(RoleName=ROLE, PolicyName="guard", PolicyDocument=json.dumps(policy))


#: what fails -> how, after how many hours it has, the alarms that mail it
FAILING: dict[str, tuple[Callable[[LabCloud], object], int, list[str]]] = {
    "a schedule": (lambda _: break_the_role(), 2, [".InvocationDroppedCount", ".TargetErrorCount"]),
    "an automation": (may_not_stop, 24, [""]),  # the nightly stop is one of these hours
    "the function": (lambda cloud: cloud.post("set", failing_functions=True), 2, [".Errors"]),
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("what", FAILING)
def test_a_guard_that_fails_is_mailed_and_status_ends_with_one(lab: Lab, what: str) -> None:
    spoil, hours, alarms = FAILING[what]
    lab.write(my="lambda")
    lab("provision")
    lab.post("advance", seconds=2 * 3600)
    assert mails(lab.cloud) == set() and lab("status")["exit_code"] == 0
    spoil(lab.cloud)
    lab.post("advance", seconds=hours * 3600)
    said = {(f"trainium-labs.lab.failures{a}", "staff@example.edu") for a in alarms}
    assert mails(lab.cloud) == said
    if what != "the function":  # which is no guard
        seen = lab("status")
        assert seen["exit_code"] == 1 and any("did not act" in p for p in seen["problems"])
    lab.post("set", failing_functions=False)
    assert lab("provision")["exit_code"] == 0
    assert lab("teardown")["exit_code"] == 0 and lab.leftovers() == []


def test_an_address_that_never_agreed_is_named_by_status_and_asked_again(lab: Lab) -> None:
    lab.post("set", unconfirmed=True)
    made = lab("provision")
    words = "has sent staff@example.edu a mail"
    assert made["exit_code"] == 0 and any(words in w for w in made["warnings"])
    seen = lab("status")
    assert seen["exit_code"] == 1 and any(words in p for p in seen["problems"])
    mark = len(lab.log())
    assert any(words in w for w in lab("provision")["warnings"])
    assert "Subscribe" in lab.writes(mark)
    lab.post("set", unconfirmed=False)
    assert lab("status")["exit_code"] == 0


def test_another_contact_is_told_instead(lab: Lab) -> None:
    lab("provision")
    lab.write(contact="new@example.edu")
    assert lab("status")["exit_code"] == 1
    lab("provision")
    break_the_role()
    lab.post("advance", seconds=2 * 3600)
    assert {to for _, to in mails(lab.cloud)} == {"new@example.edu"}


def test_an_account_without_sns_has_its_class_all_the_same(lab: Lab) -> None:
    lab.post("set", denied=["sns:CreateTopic"])
    made = lab("provision")
    assert made["exit_code"] == 0 and any("No mail will be sent" in w for w in made["warnings"])
    assert lab("status")["exit_code"] == 1


@pytest.mark.parametrize("what", ["topic", "alarms", "rule"])
def test_what_somebody_deleted_is_named_and_made_again(lab: Lab, what: str) -> None:
    lab("provision")
    if what == "topic":
        (topic,) = (r["id"] for r in lab.leftovers() if r["kind"] == "topic")
        boto3.client("sns", "us-east-2").delete_topic(TopicArn=topic)
    elif what == "rule":
        events = boto3.client("events", "us-east-2")
        events.remove_targets(Rule="trainium-labs.lab.failures", Ids=["mail"])
        events.delete_rule(Name="trainium-labs.lab.failures")
    else:
        names = [r["id"] for r in lab.leftovers() if "failures" in r["id"] and r["kind"] == "alarm"]
        boto3.client("cloudwatch", "us-east-2").delete_alarms(AlarmNames=names)
    assert lab("status")["exit_code"] == 1
    lab("provision")
    assert lab("status")["exit_code"] == 0
