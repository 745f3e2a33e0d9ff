"""What accounts of organisations ask for: own networks, tags and boundaries, machines without
public addresses, no budgets; and whose rule has refused something.

Sources: Systems Manager guide, "Allow and control permissions for SSH connections through Session
Manager" (the command, and the document) and "Verify or add instance permissions for Session
Manager" (what the machine's role needs); EC2 guide, "Connect using EC2 Instance Connect Endpoint
to a Linux instance" (the command; "Limitations": 20 connections at a time, 3,600 seconds each);
Organizations guide, "Service control policies".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

NO_BUDGET = "none"
STUDENT_USD = 50.0
PROXIES = {
    "session-manager": (
        "aws ssm start-session --region {region} --target %h"
        " --document-name AWS-StartSSHSession --parameters portNumber=%p"
    ),
    "instance-connect": (
        "aws ec2-instance-connect open-tunnel --region {region} --instance-id %h --remote-port %p"
    ),
}
REFUSED = re.compile(r"not authorized to perform: (\S+)(?: on resource: (\S+))?")
POLICY = "service control policy"

Said = tuple[tuple, str, str]


# ---- machines without a public address ----


def proxy(reach: str, region: str) -> str:
    """Return the ProxyCommand of ssh to machines that are reached this way; "" for none."""
    return PROXIES[reach].format(region=region) if reach in PROXIES else ""


def address(instance: dict[str, Any], reach: str) -> str:
    """Return by which name ssh finds a machine: its public address, or its id."""
    return instance["InstanceId"] if reach in PROXIES else instance.get("PublicIpAddress") or ""


# ---- class.yml ----


def own_budget(students: int) -> dict[str, Any]:
    """Return what `budget: none` means: caps that are ours alone, and no budget of AWS's."""
    return {
        "in_aws": False,
        "per_student_usd": STUDENT_USD,
        "class_usd": STUDENT_USD * max(1, students),
    }


def check(good: dict[str, Any], data: dict[str, Any]) -> Iterator[Said]:
    """Yield what is wrong between the keys of organisations; `good` are the values that are right
    each for itself, `data` all that class.yml says."""
    private = data.get("reach", "public") != "public"
    if data.get("reach") == "session-manager":
        if data.get("ssh_cidrs"):
            problem = "With `reach: session-manager` no port is open, so `ssh_cidrs` opens nothing."
            yield ("ssh_cidrs",), problem, "Remove it."
    elif "ssh_cidrs" not in data:
        problem = "`ssh_cidrs` is missing."
        yield ("ssh_cidrs",), problem, "See infra/examples/class.yml for a filled-in one."
    elif good.get("ssh_cidrs") == []:
        yield ("ssh_cidrs",), "`ssh_cidrs` is empty.", "Write at least one."
    if private and good.get("elastic_ip"):
        problem = f"`reach: {data['reach']}` gives machines no public address."
        yield ("elastic_ip",), problem, "Remove elastic_ip."
    yield from _places(good)
    yield from _money(good)


def _places(good: dict[str, Any]) -> Iterator[Said]:
    regions = good.get("regions") or []
    for key in ("vpc", "subnets"):
        given = good.get(key) or {}
        if "" in given and len(regions) > 1:
            problem = f"`{key}` does not say which region's, and the class has {len(regions)}."
            yield (key,), problem, f"Write {key}: {{{regions[0]}: ..., {regions[1]}: ...}}."
        for region in sorted(set(given) - {"", *regions}):
            problem = f"`{key}` names {region}, which is not one of `regions`."
            yield (key, region), problem, "Add it there, or remove it here."
    named = {**(good.get("vpc") or {}), **(good.get("subnets") or {})}
    missing = [r for r in regions if r not in named]
    if named and set(named) <= set(regions) and missing:
        problem = f"{', '.join(missing)} has no line in `vpc` or `subnets`."
        key = "subnets" if good.get("subnets") else "vpc"
        yield (key,), problem, "Add one, or take the region out of `regions`."


def _money(good: dict[str, Any]) -> Iterator[Said]:
    budget = good.get("budget")
    if budget is not None and not budget.in_aws and budget.stop_each:
        problem = "`stop_each` is a budget of AWS's, and `in_aws: false` makes none."
        yield ("budget", "stop_each"), problem, "Remove one of them."


# ---- whose rule it was ----


def explained(message: str, region: str) -> tuple[str, str] | None:
    """Return (what, remedy) for a refusal by a rule of the organisation, or None for any other. AWS
    says which action and resource, and not which condition."""
    match = REFUSED.search(message)
    if POLICY not in message or not match:
        return None
    action, resource = match[1], match[2] or "*"
    problem = f"A rule of your organisation (a service control policy) forbids {action}."
    return problem, _remedy(action, resource, region)


def _remedy(action: str, resource: str, region: str) -> str:
    service, _, verb = action.partition(":")
    if verb.startswith(("Describe", "Get", "List", "View")) and service != "budgets":
        return f"It may not allow {region or 'this region'}: take the region out of `regions:`."
    if service == "budgets":
        return "Write `budget: none` into class.yml: alarms and schedules guard the class then."
    if service == "iam":
        return (
            "Organisations let roles be made under their own permissions boundary, or with their"
            " tags: write `boundary:` (its ARN) and `tags:` into class.yml."
        )
    if verb == "RunInstances" and "network-interface" in resource:
        return (
            "It may forbid public addresses: write `reach: session-manager` and `subnets:` into"
            " class.yml."
        )
    if verb == "RunInstances":
        return (
            "It may ask for tags, or forbid the type or the region: write `tags:`, another"
            " `instance_type:` or other `regions:` into class.yml."
        )
    return (
        "It may ask for tags on all that is made: ask your cloud team which, and write them under"
        " `tags:` in class.yml."
    )
