"""The two roles of a class: what the guards may do, and what machines may do (nothing)."""

from __future__ import annotations

import json
from typing import Any

from . import tags
from .cloud import doing
from .problems import ClassroomError
from .run import Run


def guard_role(run: Run) -> str:
    """Return the name of the role that schedules and budgets act with."""
    return tags.prefix(run.spec) + "guard"


def machine_role(run: Run) -> str:
    """Return the name of the role (and profile) that machines carry."""
    return tags.prefix(run.spec) + "machine"


def roles(run: Run) -> str:
    """Make the guard role and the machines' profile; return the ARN of the guard role."""
    account, role = run.cloud.account, guard_role(run)
    trust = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {
                    "Service": [
                        "scheduler.amazonaws.com",
                        "ssm.amazonaws.com",
                        "budgets.amazonaws.com",
                    ]
                },
                "Action": "sts:AssumeRole",
                "Condition": {"StringEquals": {"aws:SourceAccount": account}},
            }
        ],
    }
    _role(run, role, trust, guard_policy(run))
    # The machines' role holds no permission at all: a student on the machine can do nothing in AWS.
    ec2_trust = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": "ec2.amazonaws.com"},
                "Action": "sts:AssumeRole",
            }
        ],
    }
    _role(run, machine_role(run), ec2_trust, None)
    _profile(run, machine_role(run))
    return f"arn:aws:iam::{account}:role/{role}"


def guard_policy(run: Run) -> dict[str, Any]:
    """Return what the guards may do: stop, end and release what carries the class's tag, nothing
    else."""
    account, own = (
        run.cloud.account,
        {"StringEquals": {f"aws:ResourceTag/{tags.CLASS}": run.spec.name}},
    )
    documents = ("AWS-StopEC2Instance", "AWS-TerminateEC2Instance", "AWS-ReleaseElasticIP")
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": ["ec2:StopInstances", "ec2:TerminateInstances", "ec2:ReleaseAddress"],
                "Resource": "*",
                "Condition": own,
            },
            {
                "Effect": "Allow",
                "Action": [
                    "ec2:DescribeInstances",
                    "ec2:DescribeInstanceStatus",
                    "ec2:DescribeAddresses",
                    "tag:GetResources",
                    "ssm:GetAutomationExecution",
                ],
                "Resource": "*",
            },
            {
                "Effect": "Allow",
                "Action": "cloudwatch:SetAlarmState",
                "Resource": f"arn:aws:cloudwatch:*:{account}:alarm:{tags.prefix(run.spec)}*",
            },
            # AWS asks about the runbook under both of its names, and about the execution; with one
            # of the three missing every schedule and the budget's stop are refused, silently.
            {
                "Effect": "Allow",
                "Action": "ssm:StartAutomationExecution",
                "Resource": [
                    *(f"arn:aws:ssm:*:*:automation-definition/{d}:*" for d in documents),
                    *(f"arn:aws:ssm:*:*:document/{d}" for d in documents),
                    f"arn:aws:ssm:*:{account}:automation-execution/*",
                ],
            },
            {
                "Effect": "Allow",
                "Action": "iam:PassRole",
                "Resource": f"arn:aws:iam::{account}:role/{guard_role(run)}",
                "Condition": {"StringEquals": {"iam:PassedToService": "ssm.amazonaws.com"}},
            },
        ],
    }


def _role(run: Run, name: str, trust: dict[str, Any], policy: dict[str, Any] | None) -> None:
    iam = run.cloud.client("iam")
    with doing("read the roles"):
        try:
            role = iam.get_role(RoleName=name)["Role"]
        except iam.exceptions.NoSuchEntityException:
            role = None
    with doing(f"create the role {name}"):
        if role is None:

            def create() -> None:
                try:
                    iam.create_role(
                        RoleName=name,
                        AssumeRolePolicyDocument=json.dumps(trust),
                        Tags=tags.as_list(tags.common(run.spec)),
                        Description="trainium-labs",
                        MaxSessionDuration=3600,
                    )
                except iam.exceptions.EntityAlreadyExistsException:
                    pass

            run.do(f"create role {name}", create)
        elif not tags.ours(role.get("Tags"), run.spec.name):
            raise ClassroomError(
                f"A role {name} exists that is not tagged as this class's.", "Rename or delete it."
            )
        elif role["AssumeRolePolicyDocument"] != trust:
            run.do(
                f"repair who may use role {name}",
                lambda: iam.update_assume_role_policy(
                    RoleName=name, PolicyDocument=json.dumps(trust)
                ),
            )
        if policy is None:
            return
        try:
            have = (
                None
                if role is None
                else iam.get_role_policy(RoleName=name, PolicyName="guard")["PolicyDocument"]
            )
        except iam.exceptions.NoSuchEntityException:
            have = None
        if have != policy:
            run.do(
                f"set the policy of role {name}",
                lambda: iam.put_role_policy(
                    RoleName=name, PolicyName="guard", PolicyDocument=json.dumps(policy)
                ),
            )


def _profile(run: Run, name: str) -> None:
    iam = run.cloud.client("iam")
    with doing(f"create the instance profile {name}"):
        try:
            profile = iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]
        except iam.exceptions.NoSuchEntityException:
            profile = None
        if profile is None:

            def create() -> None:
                try:
                    iam.create_instance_profile(
                        InstanceProfileName=name, Tags=tags.as_list(tags.common(run.spec))
                    )
                except iam.exceptions.EntityAlreadyExistsException:
                    pass

            run.do(f"create instance profile {name}", create)
        if not profile or not profile["Roles"]:

            def fill() -> None:
                try:
                    iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
                except iam.exceptions.LimitExceededException:
                    pass

            run.do(f"put the role into instance profile {name}", fill)
