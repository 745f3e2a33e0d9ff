"""Checks that cost nothing, made before anything is created: who are we, may we, is there room?"""

from __future__ import annotations

import re
from dataclasses import dataclass

import botocore.exceptions as be

from . import machines, tags
from .cloud import DENIED, code_of, doing
from .policies import ACTIONS, policy
from .problems import ClassroomError
from .run import Run


def _questions(account: str) -> list[tuple[list[str], list[str], dict[str, str]]]:
    """Return (actions, resources, condition keys) to ask AWS's simulator about, as a class uses
    them: the first value that each condition of the printed policy names."""
    asked = []
    for statement in policy()["Statement"][:-1]:
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
        unasked = ("pricing:", "servicequotas:", "ce:")
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
        for actions, resources, keys in _questions(who["Account"]):
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
    return sorted(set(denied))


def try_launch(run: Run, region: str, image: str) -> None:
    """Ask EC2 itself, without launching, whether the caller may launch; raise if it says no."""
    with doing("launch a machine (asked without launching one)", region):
        try:
            run.cloud.ec2(region).run_instances(
                DryRun=True,
                ImageId=image,
                InstanceType=run.spec.instance_type,
                MinCount=1,
                MaxCount=1,
                TagSpecifications=tags.spec_for(["instance", "volume"], tags.common(run.spec)),
            )
        except be.ClientError as error:
            if code_of(error) in DENIED:  # anything else says nothing about permissions
                raise


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
    with doing("read the vCPU quota", region):
        try:
            value = float(
                run.cloud.client("service-quotas", region).get_service_quota(
                    ServiceCode="ec2", QuotaCode=code
                )["Quota"]["Value"]
            )
        except be.ClientError as error:
            if code_of(error) not in (*DENIED, "NoSuchResourceException"):
                raise
            run.warn(
                f"{region}: the vCPU quota could not be read ({code_of(error)}); going on without"
                " the check."
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
        run.warn(
            f"AWS's simulator says that you may not: {shown}. It does not know all conditions, so"
            " this goes on; if something is refused, ask the account's owner to attach the policy"
            " that `python -m classroom doctor --policy` prints."
        )


__all__ = ["ACTIONS", "Room", "check", "permissions", "policy", "quota_request", "room", "tags"]
