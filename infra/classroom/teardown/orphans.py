"""Disks, addresses and snapshots that were made by hand, on a class's machines or in its time.

They carry no tag of the class, so a teardown must not remove them, and once the machines are gone
nothing shows whose they were; so it names them while they can be found. A detached disk shows not
even that: those without a tag of any class are named that were made since the class began, in the
regions that it has used.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from functools import partial
from typing import Any

from ..aws.cloud import Cloud, aware, each, words_of
from ..spec import tags
from ..spec.ledger import Ledger
from .sweep import Found

PER_FILTER = 200  # values that a filter takes (documented: 200)


def find(cloud: Cloud, name: str, machines: list[Found], known: Ledger) -> list[str]:
    """Return a line for each, and for each region that could not be checked."""
    regions: dict[str, list[Found]] = {}
    for m in machines:
        regions.setdefault(m.region, []).append(m)
    used = {entry["region"] for entry in known.machines.values()} & set(cloud.regions())
    out: list[str] = []
    looks: list[tuple[str, Callable[[], list[str]]]]
    looks = [(region, partial(_of, cloud, name, region, regions[region])) for region in regions]
    looks += [(region, partial(_detached, cloud, region, known)) for region in sorted(used)]
    for (region, _), found, error in each(lambda look: look[1](), looks):
        out += found or []
        if error:
            out.append(f"what was made in {region} could not be looked for: {words_of(error)}")
    return out


def _detached(cloud: Cloud, region: str, known: Ledger) -> list[str]:
    """Return the disks that hang on no machine and carry no class's tag, from the class's time."""
    began = min(dt.datetime.fromisoformat(e["first_seen"]) for e in known.machines.values())
    unused = [{"Name": "status", "Values": ["available"]}]
    return [
        f"volume {v['VolumeId']} of {v['Size']} GiB, detached, made {v['CreateTime']:%Y-%m-%d},"
        f" perhaps someone else's (aws ec2 delete-volume --region {region} --volume-id"
        f" {v['VolumeId']})"
        for v in cloud.pages("ec2", region, "describe_volumes", "Volumes", Filters=unused)
        if tags.CLASS not in tags.as_dict(v.get("Tags")) and aware(v["CreateTime"]) >= began
    ]


def _of(cloud: Cloud, name: str, region: str, machines: list[Found]) -> list[str]:
    who = {m.id: tags.as_dict(m.raw.get("Tags")).get(tags.MACHINE, m.id) for m in machines}

    def listed(operation: str, key: str, by: str, ids: list[str], **more: Any) -> list[Any]:
        return [
            item
            for i in range(0, len(ids), PER_FILTER)
            for item in cloud.pages(
                "ec2",
                region,
                operation,
                key,
                Filters=[{"Name": by, "Values": ids[i : i + PER_FILTER]}],
                **more,
            )
            if not tags.ours(item.get("Tags"), name)
        ]

    disks = {
        b["Ebs"]["VolumeId"]: (m, b["Ebs"].get("DeleteOnTermination", True))
        for m in machines
        for b in m.raw.get("BlockDeviceMappings", [])
        if "Ebs" in b
    }
    stay = sorted(v for v, (_, goes) in disks.items() if not goes)
    out = [
        f"volume {v['VolumeId']} of {who[disks[v['VolumeId']][0].id]} in {region}"
        for v in listed("describe_volumes", "Volumes", "volume-id", stay)
    ]
    out += [
        f"snapshot {s['SnapshotId']} of a disk of {who[disks[s['VolumeId']][0].id]} in {region}"
        for s in listed(
            "describe_snapshots", "Snapshots", "volume-id", sorted(disks), OwnerIds=["self"]
        )
    ]
    return out + [
        f"elastic-ip {a.get('PublicIp')} of {who[a['InstanceId']]} in {region}"
        for a in listed("describe_addresses", "Addresses", "instance-id", sorted(who))
    ]
