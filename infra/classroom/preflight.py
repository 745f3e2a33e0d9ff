"""Checks that cost nothing, made before anything is created: who are we, may we, is there room?"""

from __future__ import annotations

import re
from dataclasses import dataclass

import botocore.exceptions as be

from . import machines, tags
from .cloud import code_of, doing
from .problems import ClassroomError
from .run import Run

# Every action that bringing up, guarding and tearing down a class takes. doctor --policy prints it
# as a policy.
ACTIONS = {
    "ec2": [
        "Describe*",
        "RunInstances",
        "StartInstances",
        "StopInstances",
        "TerminateInstances",
        "CreateTags",
        "DeleteTags",
        "CreateSecurityGroup",
        "AuthorizeSecurityGroupIngress",
        "RevokeSecurityGroupIngress",
        "DeleteSecurityGroup",
        "ImportKeyPair",
        "DeleteKeyPair",
        "CreateLaunchTemplate",
        "CreateLaunchTemplateVersion",
        "DeleteLaunchTemplate",
        "AllocateAddress",
        "AssociateAddress",
        "DisassociateAddress",
        "ReleaseAddress",
        "DeleteVolume",
        "DeleteSnapshot",
        "DeleteNetworkInterface",
        "CancelSpotInstanceRequests",
        "PurchaseCapacityBlock",
        "PurchaseCapacityBlockExtension",
    ],
    "iam": [
        "GetRole",
        "CreateRole",
        "DeleteRole",
        "TagRole",
        "UpdateAssumeRolePolicy",
        "GetRolePolicy",
        "PutRolePolicy",
        "DeleteRolePolicy",
        "ListRoles",
        "ListRoleTags",
        "ListRolePolicies",
        "ListAttachedRolePolicies",
        "DetachRolePolicy",
        "GetInstanceProfile",
        "CreateInstanceProfile",
        "TagInstanceProfile",
        "AddRoleToInstanceProfile",
        "RemoveRoleFromInstanceProfile",
        "DeleteInstanceProfile",
        "ListInstanceProfiles",
        "ListInstanceProfileTags",
        "PassRole",
    ],
    "scheduler": [
        "GetSchedule",
        "ListSchedules",
        "CreateSchedule",
        "UpdateSchedule",
        "DeleteSchedule",
        "GetScheduleGroup",
        "ListScheduleGroups",
        "CreateScheduleGroup",
        "DeleteScheduleGroup",
        "TagResource",
        "ListTagsForResource",
    ],
    "cloudwatch": [
        "DescribeAlarms",
        "PutMetricAlarm",
        "DeleteAlarms",
        "SetAlarmState",
        "GetMetricData",
        "TagResource",
        "ListTagsForResource",
    ],
    "budgets": [
        "ViewBudget",
        "ModifyBudget",
        "CreateBudgetAction",
        "DeleteBudgetAction",
        "DescribeBudgetActionsForBudget",
        "TagResource",
        "ListTagsForResource",
    ],
    "ssm": ["DescribeAutomationExecutions", "GetAutomationExecution"],
    "servicequotas": [
        "GetServiceQuota",
        "RequestServiceQuotaIncrease",
        "ListRequestedServiceQuotaChangeHistoryByQuota",
    ],
    "pricing": ["GetProducts"],
}


def policy() -> dict:
    """Return the policy that whoever runs these commands needs."""
    actions = [f"{service}:{action}" for service, names in ACTIONS.items() for action in names]
    return {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": sorted(actions), "Resource": "*"}],
    }


def permissions(run: Run) -> list[str]:
    """Return the actions that the caller is denied; [] also when AWS does not let us ask (root,
    some SSO roles)."""
    arn = run.cloud.identity()["Arn"]
    role = re.fullmatch(r"arn:aws:sts::(\d+):assumed-role/([^/]+)/.+", arn)
    if role:
        arn = f"arn:aws:iam::{role[1]}:role/{role[2]}"
    if arn.endswith(":root"):
        return []
    asked = [
        a
        for a in policy()["Statement"][0]["Action"]
        if not a.endswith("*") and not a.startswith(("pricing:", "servicequotas:"))
    ]
    denied = []
    try:
        for i in range(0, len(asked), 50):
            answer = run.cloud.client("iam").simulate_principal_policy(
                PolicySourceArn=arn, ActionNames=asked[i : i + 50]
            )
            denied += [
                r["EvalActionName"]
                for r in answer["EvaluationResults"]
                if r["EvalDecision"] != "allowed"
            ]
    except be.ClientError as error:
        if code_of(error) in ("AccessDenied", "NoSuchEntity", "InvalidInput", "ValidationError"):
            return []
        raise
    return denied


@dataclass(frozen=True)
class Room:
    """Say how many more machines a region's vCPU quota lets start."""

    region: str
    machines: int
    quota: float | None
    code: str
    name: str


def room(run: Run, region: str, live: int) -> Room:
    """Read the vCPU quota; `live` machines of ours count against it. An unreadable quota does not
    block."""
    machine, spec = run.spec.machine, run.spec
    found = machines.quota_for(machine, spec.market)
    if not found:
        return Room(region, 10_000, None, "", "")
    code, name = found
    try:
        value = float(
            run.cloud.client("service-quotas", region).get_service_quota(
                ServiceCode="ec2", QuotaCode=code
            )["Quota"]["Value"]
        )
    except be.ClientError as error:
        if code_of(error) not in (
            "AccessDeniedException",
            "NoSuchResourceException",
            "AccessDenied",
        ):
            with doing("read the vCPU quota", region):
                raise
        run.warn(
            f"{region}: the vCPU quota could not be read ({code_of(error)}); going on without the"
            " check."
        )
        return Room(region, 10_000, None, code, name)
    return Room(region, max(0, int(value // machine.vcpus) - live), value, code, name)


def quota_request(run: Run, r: Room, needed: int) -> str:
    """Return the command that asks AWS for enough vCPUs."""
    return (
        f"aws service-quotas request-service-quota-increase --region {r.region} --service-code ec2 "
        f"--quota-code {r.code} --desired-value {needed * run.spec.machine.vcpus}"
    )


def check(run: Run) -> None:
    """Stop with a sentence before anything is created, if it cannot work."""
    run.cloud.identity()
    enabled = set(run.cloud.regions())
    off = [r for r in run.spec.regions if r not in enabled]
    if off:
        raise ClassroomError(
            f"The region {', '.join(off)} is not enabled for this account (or does not exist).",
            "Enable it under Account > AWS Regions (it takes minutes), or remove it from"
            f" `regions`. Enabled: {', '.join(sorted(enabled))}.",
        )
    with doing("check the permissions"):
        denied = permissions(run)
    if denied:
        shown = ", ".join(denied[:6]) + (f" and {len(denied) - 6} more" if len(denied) > 6 else "")
        raise ClassroomError(
            f"The AWS user may not: {shown}. Nothing was created.",
            "Ask the account's owner to attach the policy that `python -m classroom doctor"
            " --policy` prints.",
        )


__all__ = ["ACTIONS", "Room", "check", "permissions", "policy", "quota_request", "room", "tags"]
