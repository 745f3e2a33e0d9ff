"""Checks that cost nothing, made before anything is created: who are we, may we, is there room?"""

from __future__ import annotations

import re
from dataclasses import dataclass

import botocore.exceptions as be

from ..aws import organisations
from ..aws.cloud import DENIED, code_of, doing
from ..aws.problems import ClassroomError
from ..guards.policies import ACTIONS, policy
from ..spec import instance_types as machines
from ..spec import tags
from ..spec.run import Run
from . import quotas


def _questions(account: str, boundary: str) -> list[tuple[list[str], list[str], dict[str, str]]]:
    """Return (actions, resources, condition keys) to ask AWS's simulator about, as a class uses
    them: the first value that each condition of the printed policy names."""
    asked = []
    for statement in policy(boundary)["Statement"][:-1]:
        keys = {
            key: (value if isinstance(value, str) else value[0]).replace("::*:", f"::{account}:")
            for conditions in statement.get("Condition", {}).values()
            for key, value in conditions.items()
        }
        actions = statement["Action"]
        actions = [actions] if isinstance(actions, str) else actions
        resources = statement["Resource"]
        resources = [resources] if isinstance(resources, str) else resources
        arns = [r.replace("::*:", f"::{account}:").replace("*", "x.guard") for r in resources]
        unasked = ("pricing:", "servicequotas:", "ce:", "ec2-instance-connect:")
        wanted = [a for a in actions if not a.endswith("*") and not a.startswith(unasked)]
        kinds = {"instance-profile": [a for a in wanted if "InstanceProfile" in a]}
        kinds["role"] = [a for a in wanted if a not in kinds["instance-profile"]]
        for arn in arns:
            kind = arn.rsplit(":", 1)[-1].split("/")[0]
            asked.append((kinds.get(kind, wanted), [] if resources == ["*"] else [arn], keys))
    return asked


def permissions(run: Run) -> list[str]:
    """Return the actions that AWS's simulator denies the caller; [] also when it does not let us
    ask (root, some SSO roles). It does not know how the caller signed in, so it may be wrong."""
    who = run.cloud.identity()
    arn = who["Arn"]
    role = re.fullmatch(r"arn:aws:sts::(\d+):assumed-role/([^/]+)/.+", arn)
    if role:
        arn = f"arn:aws:iam::{role[1]}:role/{role[2]}"
    if arn.endswith(":root"):
        return []
    region = run.spec.regions[0]
    denied = []
    try:
        for actions, resources, keys in _questions(who["Account"], run.spec.boundary):
            context = [
                {"ContextKeyName": k, "ContextKeyValues": [v], "ContextKeyType": "string"}
                for k, v in {"aws:RequestedRegion": region, **keys}.items()
            ]
            for i in range(0, len(actions), 50):
                answer = run.cloud.client("iam").simulate_principal_policy(
                    PolicySourceArn=arn,
                    ActionNames=actions[i : i + 50],
                    ContextEntries=context,
                    **({"ResourceArns": resources} if resources else {}),
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
    unused = () if run.spec.budget.in_aws else ("budgets:",)
    return sorted({d for d in denied if not d.startswith(unused)})


def try_launch(run: Run, region: str, image: str) -> None:
    """Ask EC2 itself, without launching, whether the caller may launch; raise if it says no."""
    kind = run.spec.instance_type
    error = _refusal(run, region, image, kind)
    if error is None:
        return
    # An organisation's rule does not say what it minds: the type, if another one is let through.
    if organisations.POLICY in str(error) and not _refusal(run, region, image, machines.DRILL.name):
        raise ClassroomError(
            f"A rule of your organisation (a service control policy) forbids {kind} in {region}.",
            "Ask your cloud team for an exception, or write another `instance_type:` into"
            " class.yml.",
        ) from error
    with doing("launch a machine (asked without launching one)", region):
        raise error


def _refusal(run: Run, region: str, image: str, kind: str) -> be.ClientError | None:
    """Return why the caller may not launch a machine of a type, or None."""
    label = tags.spec_for(["instance", "volume", "network-interface"], tags.common(run.spec))
    try:
        run.cloud.ec2(region).run_instances(
            DryRun=True,
            ImageId=image,
            InstanceType=kind,
            MinCount=1,
            MaxCount=1,
            TagSpecifications=label,
            NetworkInterfaces=[
                {"DeviceIndex": 0, "AssociatePublicIpAddress": not run.spec.private}
            ],
        )
    except be.ClientError as error:
        if code_of(error) in DENIED:  # anything else says nothing about permissions
            return error
    return None


@dataclass(frozen=True)
class Room:
    """Say how many more machines a region's vCPU quota lets start."""

    region: str
    machines: int
    quota: float | None
    code: str
    name: str
    others: int = 0  # vCPUs that machines of others in the account take


def room(run: Run, region: str, live: int) -> Room:
    """Read the vCPU quota; `live` machines of ours and those of others count against it. An
    unreadable quota does not block."""
    machine, spec = run.spec.machine, run.spec
    found = machines.quota_for(machine, spec.market)
    if not found:
        return Room(region, 10_000, None, "", "")
    code, name = found
    with doing("read the vCPU quota", region):
        value = quotas.read(run, region, "ec2", code)
        if value is None:
            return Room(region, 10_000, None, code, name)
        others = quotas.vcpus_of_others(run, region)
    free = max(0, int((value - others) // machine.vcpus) - live)
    return Room(region, free, value, code, name, others)


def quota_request(run: Run, r: Room, needed: int) -> str:
    """Return the command that asks AWS for enough vCPUs."""
    return (
        f"aws service-quotas request-service-quota-increase --region {r.region} --service-code ec2 "
        f"--quota-code {r.code} --desired-value {r.others + needed * run.spec.machine.vcpus}"
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
        run.warn(
            f"AWS's simulator says that you may not: {shown}. It does not know all conditions, so"
            " this goes on; if something is refused, ask the account's owner to attach the policy"
            " that `python -m classroom doctor --policy` prints."
        )


__all__ = ["ACTIONS", "Room", "check", "permissions", "policy", "quota_request", "room", "tags"]
