"""Checks that cost nothing, made before anything is created: who are we, may we, is there room?

Of quotas, what others in the account use counts too. Sources: Service Quotas console, services
"Amazon EC2" and "Amazon EBS" (codes and units documented, the defaults are the account's).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import botocore.exceptions as be

from ..aws import organisations
from ..aws.cloud import DENIED, code_of, doing
from ..aws.problems import ClassroomError
from ..guards.policies import policy
from ..spec import instance_types, tags
from ..spec.run import Run
from . import forecast

DISKS = ("ebs", "L-7A658B76", "Storage for gp3 volumes", "TiB")
ADDRESSES = ("ec2", "L-0263D0A3", "EC2-VPC Elastic IPs", "addresses")
GIB_PER_TIB = 1024
COUNTED = ["pending", "running", "stopping"]  # states whose vCPUs count (documented)


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
    if organisations.POLICY in str(error) and not _refusal(
        run, region, image, instance_types.DRILL.name
    ):
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
class Need:
    """Hold one quota of a region, what others use of it, and what some machines need: `each`."""

    region: str
    service: str
    code: str
    name: str
    unit: str
    others: float
    each: float
    machines: int
    quota: float | None = None  # None: it could not be read

    @property
    def needed(self) -> float:
        """Return what all machines need."""
        return self.each * self.machines

    @property
    def enough(self) -> bool:
        """Return whether they fit; a quota that cannot be read does not say no."""
        return self.quota is None or self.others + self.needed <= self.quota

    @property
    def fit(self) -> int:
        """Return how many of the machines fit."""
        if self.quota is None or self.enough:
            return self.machines
        return max(0, int((self.quota - self.others) / self.each))

    @property
    def sentence(self) -> str:
        """Return one sentence about it."""
        used = f", {self.others:.4g} of it used by others" if self.others else ""
        if self.quota is None:
            return f"{self.name} ({self.code}) could not be read"
        return (
            f"{self.name} ({self.code}): {self.quota:g} {self.unit}{used}; the class needs"
            f" {self.needed:.4g}"
        )

    @property
    def wish(self) -> float:
        """Return the value to ask AWS for: it takes whole numbers."""
        return float(-int(-(self.others + self.needed) // 1))

    @property
    def command(self) -> str:
        """Return the command that asks AWS for enough."""
        return (
            f"aws service-quotas request-service-quota-increase --region {self.region}"
            f" --service-code {self.service} --quota-code {self.code}"
            f" --desired-value {self.wish:g}"
        )


def _quota(run: Run, region: str, service: str, code: str) -> float | None:
    """Return the value of a quota, or None (and a warning) when it may not be read."""
    with doing(f"read the quota {code}", region):
        try:
            return float(
                run.cloud.client("service-quotas", region).get_service_quota(
                    ServiceCode=service, QuotaCode=code
                )["Quota"]["Value"]
            )
        except be.ClientError as error:
            if code_of(error) not in (*DENIED, "NoSuchResourceException"):
                raise
            run.warn(
                f"{region}: the quota {code} could not be read ({code_of(error)}); going on"
                " without the check."
            )
            return None


def _ours(run: Run, thing: dict[str, Any]) -> bool:
    return tags.ours(thing.get("Tags"), run.spec.name)


def _vcpus_of_others(run: Run, region: str) -> float:
    """Return the vCPUs that machines of others take of the class's quota."""
    family = run.spec.machine.family[:3]
    spot = run.spec.market == "spot"
    try:
        reservations = run.cloud.pages(
            "ec2",
            region,
            "describe_instances",
            "Reservations",
            Filters=[{"Name": "instance-state-name", "Values": COUNTED}],
        )
    except be.ClientError as error:
        if code_of(error) not in DENIED:
            raise
        run.warn(f"{region}: machines of others could not be counted against the vCPU quota.")
        return 0
    return sum(
        _vcpus(i)
        for r in reservations
        for i in r["Instances"]
        if i["InstanceType"].startswith(family)
        and not _ours(run, i)
        and (i.get("InstanceLifecycle") or "") == ("spot" if spot else "")
    )


def _vcpus(instance: dict[str, Any]) -> int:
    options = instance.get("CpuOptions") or {}
    instance_type = instance_types.TYPES.get(instance["InstanceType"])
    counted = options.get("CoreCount", 0) * options.get("ThreadsPerCore", 1)
    return instance_type.vcpus if instance_type else counted


def _tib_of_others(run: Run, region: str) -> float:
    with doing("list the disks", region):
        volumes = run.cloud.pages(
            "ec2",
            region,
            "describe_volumes",
            "Volumes",
            Filters=[{"Name": "volume-type", "Values": ["gp3"]}],
        )
    return sum(v["Size"] for v in volumes if not _ours(run, v)) / GIB_PER_TIB


def _addresses_of_others(run: Run, region: str) -> int:
    with doing("list the Elastic IPs", region):
        addresses = run.cloud.ec2(region).describe_addresses()["Addresses"]
    return sum(not _ours(run, a) for a in addresses)


def vcpus(run: Run, region: str, count: int) -> Need | None:
    """Return the vCPU quota that `count` machines need, or None: capacity blocks need none."""
    machine = run.spec.machine
    limit = instance_types.quota_for(machine, run.spec.market)
    quota = ("ec2", *limit, "vCPUs") if limit else None
    return quota and _need(run, region, quota, _vcpus_of_others, machine.vcpus, count)


def disks(run: Run, region: str, count: int) -> Need:
    """Return the disk quota that `count` machines need."""
    return _need(run, region, DISKS, _tib_of_others, run.spec.disk_gib / GIB_PER_TIB, count)


def needs(run: Run, region: str) -> list[Need]:
    """Return what the whole class needs in a region, quota by quota."""
    count = forecast.count(run.spec)
    cores = vcpus(run, region, count)
    out = [*([cores] if cores else []), disks(run, region, count)]
    if run.spec.elastic_ip:
        out.append(_need(run, region, ADDRESSES, _addresses_of_others, 1, count))
    return out


def _need(
    run: Run,
    region: str,
    what: tuple[str, str, str, str],
    of_others: Callable[[Run, str], float],
    per_machine: float,
    count: int,
) -> Need:
    quota = _quota(run, region, *what[:2])
    others = 0 if quota is None else of_others(run, region)
    return Need(region, *what, others, per_machine, count, quota)


def ask(run: Run, need: Need, request: bool) -> str:
    """Return what a quota has; ask AWS for more if `request`, else raise when it is too small."""
    if need.enough:
        return need.sentence
    if not request:
        raise ClassroomError(f"{need.sentence}.", f"Ask for more: {need.command}")
    with doing(f"ask for more of {need.name}", need.region):
        client = run.cloud.client("service-quotas", need.region)
        open_ones = client.list_requested_service_quota_change_history_by_quota(
            ServiceCode=need.service, QuotaCode=need.code
        )["RequestedQuotas"]
        if any(
            q["Status"] in ("PENDING", "CASE_OPENED") and q["DesiredValue"] >= need.wish
            for q in open_ones
        ):
            return f"{need.sentence}; an increase is already asked for"
        run.do(
            f"{need.region}: ask AWS for {need.wish:g} {need.unit} ({need.code})",
            lambda: client.request_service_quota_increase(
                ServiceCode=need.service, QuotaCode=need.code, DesiredValue=need.wish
            ),
        )
    return f"{need.sentence}; {need.wish:g} asked for, which takes hours to days"
