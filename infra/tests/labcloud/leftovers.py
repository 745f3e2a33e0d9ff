"""Read every billable or lasting thing straight from moto's memory, so that proofs do not rely on
the code under test."""

from __future__ import annotations

from typing import Any

from moto.budgets.models import budgets_backends
from moto.cloudwatch.models import cloudwatch_backends
from moto.ec2.models import ec2_backends
from moto.events.models import events_backends
from moto.iam.models import iam_backends
from moto.scheduler.models import scheduler_backends
from moto.sns.models import sns_backends
from moto.ssm.models import ssm_backends

from . import functions, market, storage
from .world import ACCOUNT, WORLD, tags_of


def everything() -> list[dict[str, Any]]:
    """Return each resource that is not part of a fresh account, with its tags."""
    out: list[dict[str, Any]] = []

    def add(kind: str, region: str, name: str, tags: dict[str, str] | None) -> None:
        out.append({"kind": kind, "region": region, "id": name, "tags": tags})

    for region in WORLD.regions:
        ec2 = ec2_backends[ACCOUNT][region]
        for reservation in ec2.reservations.values():
            for i in reservation.instances:
                if i.state not in ("terminated", "shutting-down"):  # on its way, not billed
                    add("instance", region, i.id, tags_of(i))
        for v in ec2.volumes.values():
            add("volume", region, v.id, tags_of(v))
        for s in ec2.snapshots.values():
            if s.owner_id == ACCOUNT and s.from_ami is None:
                add("snapshot", region, s.id, tags_of(s))
        for e in ec2.enis.values():
            add("network-interface", region, e.id, tags_of(e))
        for a in ec2.addresses:
            add("elastic-ip", region, a.allocation_id, tags_of(a))
        for r in WORLD.spot.values():
            if r["region"] == region and r["State"] not in ("cancelled", "closed"):
                label = {t["Key"]: t["Value"] for t in r["Tags"]}
                add("spot-request", region, r["SpotInstanceRequestId"], label)
        for k in ec2.describe_key_pairs([]):
            add("key-pair", region, k.key_name, tags_of(k))
        for groups in ec2.groups.values():
            for g in groups.values():
                if g.name != "default":
                    add("security-group", region, g.id, tags_of(g))
        for t in ec2.launch_templates.values():
            add("launch-template", region, t.id, tags_of(t))
        for name, group in scheduler_backends[ACCOUNT][region].schedule_groups.items():
            backend = scheduler_backends[ACCOUNT][region]
            if name != "default":
                add(
                    "schedule-group",
                    region,
                    name,
                    {
                        t["Key"]: t["Value"]
                        for t in backend.list_tags_for_resource(group.arn)["Tags"]
                    },
                )
            for schedule in group.schedules:
                add("schedule", region, f"{name}/{schedule}", None)
        for r in market.reserved(region):
            label = {t["Key"]: t["Value"] for t in r["Tags"]}
            add("reservation", region, r["CapacityReservationId"], label)
        for f in functions.functions(region):
            add("function", region, f.function_name, dict(f.tags or {}))
        for topic in sns_backends[ACCOUNT][region].topics.values():
            add("topic", region, topic.arn, dict(topic._tags))
        bus = events_backends[ACCOUNT][region]
        for rule in bus.list_rules()[0]:
            label = bus.list_tags_for_resource(rule.arn)["Tags"]
            add("rule", region, rule.name, {t["Key"]: t["Value"] for t in label})
        cloudwatch = cloudwatch_backends[ACCOUNT][region]
        for name, alarm in cloudwatch.alarms.items():
            add("alarm", region, name, cloudwatch.tagger.get_tag_dict_for_resource(alarm.alarm_arn))
    for name, budget in budgets_backends[ACCOUNT]["aws"].budgets[ACCOUNT].items():
        add(
            "budget",
            "us-east-1",
            name,
            {t["Key"]: t["Value"] for t in getattr(budget, "resource_tags", [])},
        )
    ssm = ssm_backends[ACCOUNT]["us-east-1"]
    for name in ssm._parameters:
        if not name.startswith("/aws/"):
            tags = ssm.list_tags_for_resource("Parameter", name)
            add("parameter", "us-east-1", name, dict(tags))
    for bucket, region, label in storage.buckets():
        add("bucket", region, bucket, label)
    iam = iam_backends[ACCOUNT]["aws"]
    for kind, items in (
        ("role", iam.roles.values()),
        ("instance-profile", iam.instance_profiles.values()),
    ):
        for item in items:
            if item.path.startswith("/aws-service-role/"):
                continue  # AWS's own; they stay and cost nothing
            tags = item.tags.values() if isinstance(item.tags, dict) else item.tags
            add(kind, "us-east-1", item.name, {t["Key"]: t["Value"] for t in tags})
    return out


def plant(region: str) -> dict[str, str]:
    """Put things of someone else into a region: teardown must not touch them."""
    ec2 = ec2_backends[ACCOUNT][region]
    volume = ec2.create_volume(size=10, zone_name=f"{region}a")
    address = ec2.allocate_address("vpc")
    group = ec2.create_security_group("somebody-elses", "not ours", vpc_id=ec2.get_default_vpc().id)
    return {"volume": volume.id, "elastic-ip": address.allocation_id, "security-group": group.id}
