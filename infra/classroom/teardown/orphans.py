"""Disks, addresses and snapshots that were made by hand and are attached to a class's machines.

They carry no tag of the class, so a teardown must not remove them, and once the machines are gone
nothing shows whose they were; so it names them while they can be found.
"""

from __future__ import annotations

from typing import Any

from ..aws.cloud import Cloud, each, words_of
from ..spec import tags
from .sweep import Found

PER_FILTER = 200  # values that a filter takes (documented: 200)


def find(cloud: Cloud, name: str, machines: list[Found]) -> list[str]:
    """Return a line for each, and for each region that could not be checked."""
    regions: dict[str, list[Found]] = {}
    for m in machines:
        regions.setdefault(m.region, []).append(m)
    out: list[str] = []
    for region, found, error in each(lambda r: _of(cloud, name, r, regions[r]), sorted(regions)):
        out += found or []
        if error:
            out.append(f"what was made in {region} could not be looked for: {words_of(error)}")
    return out


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
