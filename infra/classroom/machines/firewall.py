"""The class's security group in a region: SSH from the networks of class.yml, between the nodes of
a cluster everything, and nothing else."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from functools import partial
from typing import Any

from ..aws import rate_limit
from ..aws.cloud import code_of, doing
from ..aws.problems import ClassroomError
from ..spec import tags
from ..spec.run import Run

SSH = ("tcp", 22, 22)
RANGES = (("IpRanges", "CidrIp"), ("Ipv6Ranges", "CidrIpv6"))


def ensure(run: Run, region: str, vpc: str) -> str:
    """Make the group, or correct it; return its id. Rules added by hand are reported, and left
    to who did it. Raises ClassroomError where a group of that name is not the class's."""
    name = tags.prefix(run.spec) + "ssh"
    group = _find(run, region, vpc, name) or _create(run, region, vpc, name)
    if group is None:
        return "sg-would-be-created"
    if not tags.ours(group.get("Tags"), run.spec.name):
        raise ClassroomError(
            f"{region} has a security group {name} that is not tagged as this class's.",
            "Rename or delete it.",
        )
    _ssh(run, region, group)
    if run.spec.cluster:
        _between_nodes(run, region, group)
    for opened in sorted(_by_hand(group)):
        run.warn(
            f"{region}: {opened} was opened by hand in the security group {name}"
            f" ({group['GroupId']}); the class needs it for nothing. Remove the rule in EC2's"
            " console unless you want it."
        )
    return group["GroupId"]


def _find(run: Run, region: str, vpc: str, name: str) -> dict[str, Any] | None:
    with doing("read the security groups", region):
        groups = run.cloud.ec2(region).describe_security_groups(
            Filters=[
                {"Name": "group-name", "Values": [name]},
                {"Name": "vpc-id", "Values": [vpc]},
            ]
        )
    return (groups["SecurityGroups"] or [None])[0]


def _create(run: Run, region: str, vpc: str, name: str) -> dict[str, Any] | None:
    """Return the group as AWS shows it; None if nothing may be changed."""

    def create() -> None:
        try:
            run.cloud.ec2(region).create_security_group(
                GroupName=name,
                Description="SSH to machines of the class",
                VpcId=vpc,
                TagSpecifications=tags.spec_for(["security-group"], tags.common(run.spec)),
            )
        except Exception as error:
            if code_of(error) != "InvalidGroup.Duplicate":  # an earlier answer was lost
                raise

    with doing("create the security group", region):
        run.do(f"{region}: create security group {name}", create)
    if run.check:
        return None
    group = rate_limit.wait_until_found(partial(_find, run, region, vpc, name))
    if group is None:
        raise ClassroomError(
            f"{region}: the security group {name} was created, but AWS does not show it yet.",
            "Run provision again.",
            exit_code=1,
        )
    return group


def _ports(rule: dict[str, Any]) -> tuple[str, int | None, int | None]:
    return rule["IpProtocol"], rule.get("FromPort"), rule.get("ToPort")


def _networks(rule: dict[str, Any]) -> Iterator[str]:
    return (r[key] for ranges, key in RANGES for r in rule.get(ranges, []))


def _ssh(run: Run, region: str, group: dict[str, Any]) -> None:
    """Open port 22 to the networks of class.yml and to no others."""
    ec2, wanted = run.cloud.ec2(region), set(run.spec.ssh_cidrs)
    have = {n for rule in group["IpPermissions"] if _ports(rule) == SSH for n in _networks(rule)}
    for cidr in sorted(wanted - have):
        with doing("open port 22", region):
            run.do(
                f"{region}: allow SSH from {cidr}",
                partial(_allow, ec2, group["GroupId"], _permission(cidr)),
            )
    for cidr in sorted(have - wanted):
        with doing("close port 22", region):
            run.do(
                f"{region}: stop SSH from {cidr}",
                partial(
                    ec2.revoke_security_group_ingress,
                    GroupId=group["GroupId"],
                    IpPermissions=[_permission(cidr)],
                ),
            )


def _permission(cidr: str) -> dict[str, Any]:
    ranges, key = RANGES[ipaddress.ip_network(cidr).version == 6]
    protocol, first, last = SSH
    return {
        "IpProtocol": protocol,
        "FromPort": first,
        "ToPort": last,
        ranges: [{key: cidr, "Description": "trainium-labs SSH"}],
    }


def _allow(ec2: Any, ident: str, rule: dict[str, Any]) -> None:
    try:
        ec2.authorize_security_group_ingress(GroupId=ident, IpPermissions=[rule])
    except Exception as error:
        if code_of(error) != "InvalidPermission.Duplicate":
            raise


def _between_nodes(run: Run, region: str, group: dict[str, Any]) -> None:
    """Let the nodes of a cluster reach each other, and no one else: Slurm's daemons, interactive
    jobs (any port), and the share of /home."""
    ident = group["GroupId"]
    if any(_is_itself(group, pair) for p in group["IpPermissions"] for pair in _groups(p)):
        return
    rule = {
        "IpProtocol": "tcp",
        "FromPort": 0,
        "ToPort": 65535,
        "UserIdGroupPairs": [{"GroupId": ident, "Description": "trainium-labs cluster"}],
    }
    with doing("open the ports between the nodes", region):
        run.do(
            f"{region}: let the nodes reach each other",
            partial(_allow, run.cloud.ec2(region), ident, rule),
        )


def _groups(rule: dict[str, Any]) -> list[dict[str, Any]]:
    return rule.get("UserIdGroupPairs", [])


def _is_itself(group: dict[str, Any], pair: dict[str, Any]) -> bool:
    return pair.get("GroupId") == group["GroupId"]


def _by_hand(group: dict[str, Any]) -> Iterator[str]:
    """Describe the rules that are not ours: other ports, other groups, lists of networks."""
    for rule in group["IpPermissions"]:
        protocol, first, last = _ports(rule)
        span = f"{first}" if first == last else f"{first}-{last}"
        traffic = "everything" if protocol == "-1" else f"{protocol} {span}"
        if _ports(rule) != SSH:
            yield from (f"{traffic} to {network}" for network in _networks(rule))
        for pair in _groups(rule):
            if not _is_itself(group, pair):
                yield f"{traffic} to the group {pair.get('GroupId', '?')}"
        for networks in rule.get("PrefixListIds", []):
            yield f"{traffic} to the list {networks['PrefixListId']}"
