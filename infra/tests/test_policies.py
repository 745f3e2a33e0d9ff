"""The printed policies: enough for a class, no way to more, under a boundary that guards fit in."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from classroom.aws.problems import ClassroomError
from classroom.guards import policies
from conftest import Lab, bounded
from labcloud.client import LabCloud

ACCOUNT = "123456789012"
BOUNDARY = policies.boundary_arn(ACCOUNT)
ADMIN = json.dumps(
    {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
)


def test_the_boundary_is_what_the_roles_of_any_class_do() -> None:
    words = {"class": "lab", "account": ACCOUNT, "sender": "course@example.edu"}
    roles = [policies.read(kind, words) for kind in ("guard", "my", "machine")]
    actions = [s["Action"] for document in roles for s in document["Statement"]]
    assert actions == [s["Action"] for s in policies.boundary()["Statement"]]


def trust(service: str) -> str:
    """Return a trust policy for a service."""
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


@pytest.fixture()
def staff(cloud: LabCloud) -> LabCloud:
    """Return a cloud whose caller has the printed policy only."""
    role = {"RoleName": "trainium-labs.old.guard", "AssumeRolePolicyDocument": trust("x")}
    for name in ("admin", "trainium-labs.old.guard"):  # made by others, without the boundary
        boto3.client("iam").create_role(**{**role, "RoleName": name})
    bounded(cloud)
    return cloud


def refused(call: Callable[..., Any], **arguments: Any) -> None:
    """Assert that AWS says no for want of a permission."""
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    assert caught.value.response["Error"]["Code"] in ("AccessDenied", "UnauthorizedOperation")


def test_no_role_is_made_or_written_outside_of_the_boundary(staff: LabCloud) -> None:
    iam, named = boto3.client("iam"), {"RoleName": "trainium-labs.lab.mine"}
    document = {"AssumeRolePolicyDocument": trust("ec2.amazonaws.com")}
    refused(iam.create_role, **named, **document)
    refused(iam.create_role, **named, **document, PermissionsBoundary=ADMIN_POLICY)
    refused(iam.create_role, RoleName="mine", **document, PermissionsBoundary=BOUNDARY)
    iam.create_role(**named, **document, PermissionsBoundary=BOUNDARY)
    write = {"PolicyName": "p", "PolicyDocument": ADMIN}
    iam.put_role_policy(**named, **write)  # it may say what it likes
    for role in ("admin", "trainium-labs.old.guard"):  # but not where there is no boundary
        refused(iam.put_role_policy, RoleName=role, **write)
    refused(iam.attach_role_policy, **named, PolicyArn=ADMIN_POLICY)
    refused(iam.delete_role_permissions_boundary, **named)
    refused(iam.put_role_permissions_boundary, **named, PermissionsBoundary=ADMIN_POLICY)
    refused(iam.create_policy_version, PolicyArn=BOUNDARY, PolicyDocument=ADMIN, SetAsDefault=True)
    refused(iam.delete_policy, PolicyArn=BOUNDARY)
    refused(iam.create_policy, PolicyName="p", PolicyDocument=ADMIN)
    refused(iam.create_user, UserName="new-user")
    refused(iam.update_assume_role_policy, RoleName="admin", PolicyDocument=trust("x"))


ADMIN_POLICY = "arn:aws:iam::aws:policy/AdministratorAccess"


def test_a_role_with_every_permission_can_do_what_guards_do_and_no_more(staff: LabCloud) -> None:
    """PassRole is no way up: whoever takes the role has what policy and boundary both allow."""
    everything = {"policies": [json.loads(ADMIN)], "boundary": policies.boundary()}
    ec2, iam = boto3.client("ec2", "us-east-2"), boto3.client("iam")
    staff.post("set", callers={})
    image = ec2.describe_images(IncludeDeprecated=True)["Images"][0]["ImageId"]
    launch = {"ImageId": image, "MinCount": 1, "MaxCount": 1}
    ours = [{"ResourceType": "instance", "Tags": [{"Key": "trainium-labs:class", "Value": "lab"}]}]
    foreign = ec2.run_instances(**launch)["Instances"][0]["InstanceId"]
    own = ec2.run_instances(**launch, TagSpecifications=ours)["Instances"][0]["InstanceId"]
    staff.settle()
    staff.post("set", callers={"AKIAFAKE": everything})
    refused(iam.create_user, UserName="new-user")
    refused(iam.create_access_key, UserName="root")
    refused(iam.list_roles)
    refused(ec2.run_instances, **launch)
    refused(ec2.create_tags, Resources=[foreign], Tags=ours[0]["Tags"])
    refused(ec2.terminate_instances, InstanceIds=[foreign])
    refused(boto3.client("secretsmanager", "us-east-2").list_secrets)
    ec2.stop_instances(InstanceIds=[own])


def test_foreign_roles_are_passed_to_no_one(staff: LabCloud) -> None:
    admin = f"arn:aws:iam::{ACCOUNT}:role/admin"
    target = {"Arn": "arn:aws:scheduler:::aws-sdk:iam:createUser", "RoleArn": admin, "Input": "{}"}
    refused(
        boto3.client("scheduler", "us-east-2").create_schedule,
        Name="x",
        ScheduleExpression="rate(1 hour)",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target=target,
    )
    ours = f"arn:aws:iam::{ACCOUNT}:role/trainium-labs.lab.guard"
    refused(  # nor ours to a service that has no business with it
        boto3.client("lambda", "us-east-2").create_function,
        FunctionName="x",
        Role=ours,
        Code={"ZipFile": b"x"},
        Runtime="python3.12",
        Handler="x.y",
    )
    iam = boto3.client("iam")
    iam.create_instance_profile(InstanceProfileName="trainium-labs.lab.mine")
    profile = {"InstanceProfileName": "trainium-labs.lab.mine"}
    refused(iam.add_role_to_instance_profile, **profile, RoleName="admin")


def test_machines_of_others_are_not_touched(staff: LabCloud) -> None:
    ec2, mark = boto3.client("ec2", "us-east-2"), len(staff.log())
    staff.post("set", callers={})
    image = ec2.describe_images(IncludeDeprecated=True)["Images"][0]["ImageId"]
    theirs = ec2.run_instances(ImageId=image, MinCount=1, MaxCount=1)["Instances"][0]["InstanceId"]
    stray = staff.post("stray", region="us-east-2")
    staff.settle()
    staff.post("set", callers={"AKIAFAKE": {"policies": [policies.policy()]}})
    tag = [{"Key": "trainium-labs:class", "Value": "lab"}]
    refused(ec2.create_tags, Resources=[theirs], Tags=tag)
    for call in (ec2.stop_instances, ec2.terminate_instances):
        refused(call, InstanceIds=[theirs])
    refused(ec2.delete_volume, VolumeId=stray["volume"])
    refused(ec2.release_address, AllocationId=stray["elastic-ip"])
    refused(ec2.delete_security_group, GroupId=stray["security-group"])
    assert mark < len(staff.log())


def test_schedules_alarms_budgets_and_secrets_of_others_are_not_touched(staff: LabCloud) -> None:
    scheduler = boto3.client("scheduler", "us-east-2")
    cloudwatch, budgets = boto3.client("cloudwatch", "us-east-2"), boto3.client("budgets")
    ssm = boto3.client("ssm", "us-east-2")
    refused(scheduler.delete_schedule, Name="backup", GroupName="theirs")
    refused(scheduler.delete_schedule_group, Name="theirs")
    refused(cloudwatch.delete_alarms, AlarmNames=["theirs"])
    refused(cloudwatch.set_alarm_state, AlarmName="theirs", StateValue="OK", StateReason="x")
    refused(budgets.delete_budget, AccountId=ACCOUNT, BudgetName="theirs")
    refused(ssm.get_parameter, Name="/production/password", WithDecryption=True)
    cloudwatch.delete_alarms(AlarmNames=["trainium-labs.lab.alice.idle"])


def test_without_the_boundary_the_printed_policy_ends_with_a_sentence(lab: Lab) -> None:
    lab.post("set", callers={"AKIAFAKE": {"policies": [policies.policy()]}})
    with pytest.raises(ClassroomError, match=r"under the permissions boundary trainium-labs\."):
        lab("provision")
    assert [r for r in lab.leftovers() if r["kind"] not in ("budget",)] == []


def test_roles_from_before_the_boundary_are_put_under_it(lab: Lab) -> None:
    lab("provision")
    iam = boto3.client("iam")
    guard = iam.get_role(RoleName="trainium-labs.lab.guard")["Role"]
    assert "PermissionsBoundary" not in guard, "an administrator needs none"
    bounded(lab.cloud)
    assert lab("provision")["exit_code"] == 0
    for role in ("guard", "machine"):
        made = iam.get_role(RoleName=f"trainium-labs.lab.{role}")["Role"]
        assert made["PermissionsBoundary"]["PermissionsBoundaryArn"] == BOUNDARY
    assert lab("provision")["changed"] is False
    lab.post("advance", seconds=24 * 3600)
    assert lab.running() == [], "the guards act under it"


def test_both_policies_are_printed_as_aws_takes_them(lab: Lab) -> None:
    lines = lab("doctor", policy=True)["lines"]
    documents = [json.loads(line) for line in lines if line.startswith("{")]
    assert documents == [policies.boundary(), policies.policy()]
    # IAM user guide, "IAM and AWS STS quotas": characters without white space in a managed policy
    assert all(len(json.dumps(d, separators=(",", ":"))) <= 6144 for d in documents)
