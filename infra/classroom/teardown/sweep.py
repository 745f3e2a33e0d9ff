"""Find everything that carries a class's tag, type by type and region by region.

The tagging API misses Elastic IPs, key pairs, launch templates, schedule groups and more, so each
type is described itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import botocore.exceptions as be

from ..aws.cloud import (
    DENIED,
    GLOBAL,
    IDS_PER_FILTER,
    SIGNED_OUT,
    Cloud,
    code_of,
    each,
    words_of,
)
from ..aws.problems import ClassroomError, explain
from ..guards import failures
from ..guards.drift import closed_regions
from ..machines import reserve
from ..spec import instance_types as machines_
from ..spec import ledger, tags

UNTAGGED = "untagged-machine"
ENDED = ("terminated", "shutting-down")
# kind -> (operation, key of the answer, key of the id, billable by itself)
EC2_KINDS: dict[str, tuple[str, str, str, bool]] = {
    "spot-request": (
        "describe_spot_instance_requests",
        "SpotInstanceRequests",
        "SpotInstanceRequestId",
        True,
    ),
    "elastic-ip": ("describe_addresses", "Addresses", "AllocationId", True),
    "volume": ("describe_volumes", "Volumes", "VolumeId", True),
    "snapshot": ("describe_snapshots", "Snapshots", "SnapshotId", True),
    "network-interface": (
        "describe_network_interfaces",
        "NetworkInterfaces",
        "NetworkInterfaceId",
        False,
    ),
    "security-group": ("describe_security_groups", "SecurityGroups", "GroupId", False),
    "key-pair": ("describe_key_pairs", "KeyPairs", "KeyName", False),
    "launch-template": ("describe_launch_templates", "LaunchTemplates", "LaunchTemplateId", False),
}


@dataclass(frozen=True)
class Found:
    """Hold one resource of the class."""

    kind: str
    region: str
    id: str
    state: str = ""
    billable: bool = False
    raw: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __str__(self) -> str:
        """Return kind, id, state, region."""
        return (
            f"{self.kind} {self.id}{' (' + self.state + ')' if self.state else ''} in {self.region}"
        )


@dataclass
class Sweep:
    """Hold what was found, and where we could not look."""

    found: list[Found] = field(default_factory=list)
    blind: list[str] = field(default_factory=list)
    unseen: set[str] = field(default_factory=set)  # regions where machines may run unseen
    regions: list[str] = field(default_factory=list)
    looks: int = 0
    closed: list[str] = field(default_factory=list)  # where the caller may not launch either
    known: ledger.Ledger = field(default_factory=ledger.Ledger)

    @property
    def billable(self) -> list[Found]:
        """Return what costs money."""
        return [f for f in self.found if f.billable]


def _closed(cloud: Cloud, region: str) -> bool:
    """Return whether the caller may not launch machines in a region either: many organisations
    deny whole regions, and where no machine can start, none needs to be found."""
    try:
        cloud.ec2(region).run_instances(
            DryRun=True,
            ImageId="ami-00000000000000000",
            InstanceType=machines_.DRILL.name,
            MinCount=1,
            MaxCount=1,
        )
    except be.ClientError as error:
        return code_of(error) in DENIED
    except be.BotoCoreError:
        return False
    return False


def sweep(
    cloud: Cloud,
    name: str,
    regions: list[str],
    everywhere: bool = True,
    known: ledger.Ledger | None = None,
    unbudgeted: bool = False,
) -> Sweep:
    """Look at every type in every region, and with `everywhere` at the global ones. `known` is what
    this computer knows of the class, to which the account's ledger is added: a denial in a region
    that it has used is never taken for emptiness, and its machines are looked for by their ids,
    too. `unbudgeted`: the class never had budgets, and an account that may not list them has
    none."""
    out = Sweep(regions=list(regions))
    known = out.known = _known(cloud, name, known or ledger.Ledger(), out)
    jobs: list[tuple[str, str, Callable[[], list[Found]]]] = []
    for region in regions:
        jobs.append(("instances", region, partial(_instances, cloud, name, region)))
        if ids := known.ids(region):
            jobs.append(("instances", region, partial(untagged, cloud, name, region, ids)))
        for kind in EC2_KINDS:
            jobs.append((kind, region, partial(_ec2, cloud, name, region, kind)))
        jobs.append(("alarms", region, partial(_alarms, cloud, name, region)))
        jobs.append(("topics", region, partial(_topics, cloud, name, region)))
        jobs.append(("rules", region, partial(_rules, cloud, name, region)))
        jobs.append(("schedules", region, partial(_schedules, cloud, name, region)))
        jobs.append(("reservations", region, partial(_reservations, cloud, name, region)))
        jobs.append(("functions", region, partial(_functions, cloud, name, region)))
    if everywhere:
        jobs.append(("budgets", GLOBAL, partial(_budgets, cloud, name)))
        jobs.append(("roles", GLOBAL, partial(_iam, cloud, name)))
        jobs.append(("buckets", GLOBAL, partial(buckets, cloud, name)))
    out.looks += len(jobs)
    if everywhere:
        for region, why in closed_regions(known, regions).items():
            out.blind.append(f"machines in {region}: {why} Enable it, and run teardown again")
            out.unseen.add(region)
    else:
        out.found = [f for f in out.found if f.kind != "parameter"]
    results = each(lambda job: job[2](), jobs)
    refused = {r for (what, r, _), _, e in results if what == "instances" and code_of(e) in DENIED}
    out.closed = [r for r in sorted(refused - known.regions) if _closed(cloud, r)]
    for (what, region, _), resources, error in results:
        everywhere_ = ("budgets", "roles", "buckets")
        if error is not None and region in out.closed and what not in everywhere_:
            continue
        if code_of(error) in DENIED and what == "budgets" and unbudgeted:
            continue
        if error is not None:
            if code_of(error) in SIGNED_OUT:
                raise explain(code_of(error), "", f"look for what class {name} has", region)
            out.blind.append(f"{what} in {region}: {words_of(error)}")
            if what in ("instances", "spot-request"):
                out.unseen.add(region)
        else:
            out.found += resources or []
    listed = {f.id for f in out.found if f.kind == "spot-request"}
    out.found += [
        Found("spot-request", f.region, request, "", True, {"InstanceId": f.id})
        for f in out.found
        if f.kind == "instance"
        and (request := f.raw.get("SpotInstanceRequestId"))
        and request not in listed
    ]  # whatever its tags are, it would relaunch what ends
    return out


def _instances(cloud: Cloud, name: str, region: str) -> list[Found]:
    reservations = cloud.pages(
        "ec2",
        region,
        "describe_instances",
        "Reservations",
        Filters=[{"Name": f"tag:{tags.CLASS}", "Values": [name]}],
    )
    return [
        Found("instance", region, i["InstanceId"], i["State"]["Name"], True, i)
        for r in reservations
        for i in r["Instances"]
        if i["State"]["Name"] != "terminated" and tags.ours(i.get("Tags"), name)
    ]


def untagged(cloud: Cloud, name: str, region: str, ids: list[str]) -> list[Found]:
    """Return the machines of the ledger that still exist but lack the class's tag, by which guards
    find machines."""
    reservations = [
        r
        for i in range(0, len(ids), IDS_PER_FILTER)
        for r in cloud.pages(
            "ec2",
            region,
            "describe_instances",
            "Reservations",
            Filters=[{"Name": "instance-id", "Values": ids[i : i + IDS_PER_FILTER]}],
        )
    ]
    return [
        Found(UNTAGGED, region, i["InstanceId"], i["State"]["Name"], True, i)
        for r in reservations
        for i in r["Instances"]
        if i["State"]["Name"] not in ENDED and not tags.ours(i.get("Tags"), name)
    ]


def without_a_tag(f: Found, name: str) -> str:
    """Return a sentence about a machine of `untagged`, with what to do."""
    place = f"--region {f.region}"
    return (
        f"machine {f.id} in {f.region} is {f.state}, and its tag {tags.CLASS} was removed."
        f" The guards of class {name} find machines by that tag, so they no longer stop or end this"
        f" one. Put the tag back: aws ec2 create-tags {place} --resources {f.id} --tags"
        f" Key={tags.CLASS},Value={name}; or end the machine: aws ec2 terminate-instances {place}"
        f" --instance-ids {f.id}"
    )


def _known(cloud: Cloud, name: str, known: ledger.Ledger, out: Sweep) -> ledger.Ledger:
    """Return the ledger with what the account adds to it; what keeps it there goes into `out`."""
    out.looks += 1
    ((_, found, error),) = each(lambda n: ledger.parameters(cloud, n), [name])
    if error is not None:
        if code_of(error) in SIGNED_OUT:
            raise explain(code_of(error), "", f"look for what class {name} has", GLOBAL)
        out.blind.append(f"parameters in {GLOBAL}: {words_of(error)}")
        return known
    out.found += [Found("parameter", GLOBAL, p["Name"], "", False, p) for p in found or []]
    try:
        whole = ledger.parse(found or [], name)
    except ClassroomError as error:
        out.blind.append(f"parameters in {GLOBAL}: {error}")
        out.unseen.add(GLOBAL)  # what it said of machines is lost: role and budgets stay
        return known
    whole.add(known.machines)
    return whole


def machines(
    cloud: Cloud, name: str, regions: list[str] | None = None, blind: list[str] | None = None
) -> list[Found]:
    """Return the machines of a class in some regions, or all. For a region that cannot be read,
    `blind` gets a line; without `blind`, the caller looks again and says so then."""
    by_region = each(lambda region: _instances(cloud, name, region), regions or cloud.regions())
    if blind is not None:
        blind += [f"{region} could not be read: {words_of(e)}" for region, _, e in by_region if e]
    return [f for _, listed, _ in by_region for f in listed or []]


def _ec2(cloud: Cloud, name: str, region: str, kind: str) -> list[Found]:
    operation, key, id_key, billable = EC2_KINDS[kind]
    more: dict[str, Any] = {"OwnerIds": ["self"]} if kind == "snapshot" else {}
    items = cloud.pages(
        "ec2",
        region,
        operation,
        key,
        Filters=[{"Name": f"tag:{tags.CLASS}", "Values": [name]}],
        **more,
    )
    gone = ("cancelled", "closed", "failed", "deleting", "deleted")
    # The filter is checked again here: nothing without our tag may ever get into a list of things
    # to delete.
    return [
        Found(kind, region, i[id_key], str(i.get("State") or i.get("Status") or ""), billable, i)
        for i in items
        if tags.ours(i.get("Tags") or i.get("TagSet"), name) and i.get("State") not in gone
    ]


def _alarms(cloud: Cloud, name: str, region: str) -> list[Found]:
    client = cloud.client("cloudwatch", region)
    out = []
    for a in cloud.pages(
        "cloudwatch",
        region,
        "describe_alarms",
        "MetricAlarms",
        AlarmNamePrefix=f"trainium-labs.{name}.",
    ):
        if tags.ours(client.list_tags_for_resource(ResourceARN=a["AlarmArn"])["Tags"], name):
            out.append(Found("alarm", region, a["AlarmName"], a["StateValue"], True, a))
    return out


def _rules(cloud: Cloud, name: str, region: str) -> list[Found]:
    rule = failures.read_rule(cloud, name, region)
    if rule is None:
        return []
    label = cloud.client("events", region).list_tags_for_resource(ResourceARN=rule["Arn"])["Tags"]
    return [Found("rule", region, rule["Name"])] if tags.ours(label, name) else []


def _topics(cloud: Cloud, name: str, region: str) -> list[Found]:
    topic = failures.topic_arn(cloud, name, region)
    if not failures.exists(cloud, topic, region):
        return []
    label = cloud.client("sns", region).list_tags_for_resource(ResourceArn=topic)["Tags"]
    return [Found("topic", region, topic)] if tags.ours(label, name) else []


def _schedules(cloud: Cloud, name: str, region: str) -> list[Found]:
    client = cloud.client("scheduler", region)
    out = []
    for g in cloud.pages(
        "scheduler",
        region,
        "list_schedule_groups",
        "ScheduleGroups",
        NamePrefix=f"trainium-labs.{name}",
    ):
        if g["State"] == "ACTIVE" and tags.ours(
            client.list_tags_for_resource(ResourceArn=g["Arn"])["Tags"], name
        ):
            for s in cloud.pages(
                "scheduler", region, "list_schedules", "Schedules", GroupName=g["Name"]
            ):
                out.append(
                    Found("schedule", region, f"{g['Name']}/{s['Name']}", s["State"], False, s)
                )
            out.append(Found("schedule-group", region, g["Name"], "", False, g))
    return out


def _reservations(cloud: Cloud, name: str, region: str) -> list[Found]:
    return [
        Found("reservation", region, r["CapacityReservationId"], r["State"], True, r)
        for r in reserve.read(cloud, name, region)
    ]


def _functions(cloud: Cloud, name: str, region: str) -> list[Found]:
    client = cloud.client("lambda", region)
    out = []
    for f in cloud.pages("lambda", region, "list_functions", "Functions"):
        if f["FunctionName"].startswith(f"trainium-labs_{name}_"):
            tags_of = client.list_tags(Resource=f["FunctionArn"])["Tags"]
            if tags_of.get(tags.CLASS) == name:
                out.append(Found("function", region, f["FunctionName"], "", False, f))
    return out


def buckets(cloud: Cloud, name: str) -> list[Found]:
    """Return the bucket of a class, wherever it is."""
    s3, out = cloud.client("s3"), []
    for b in s3.list_buckets().get("Buckets", []):
        if not b["Name"].startswith(f"trainium-labs--{name}--"):
            continue
        region = s3.get_bucket_location(Bucket=b["Name"]).get("LocationConstraint") or GLOBAL
        try:
            client = cloud.client("s3", region)
            label = client.get_bucket_tagging(Bucket=b["Name"])["TagSet"]
        except be.ClientError as error:
            if code_of(error) != "NoSuchTagSet":
                raise
            label = []
        # made by a run that was killed before it could tag: name and account say whose it is
        whole = b["Name"] == f"trainium-labs--{name}--{cloud.account}" and not label
        if whole or tags.ours(label, name):
            out.append(Found("bucket", region, b["Name"], "", True, b))
    return out


def _budgets(cloud: Cloud, name: str) -> list[Found]:
    client = cloud.client("budgets")
    out = []
    for b in cloud.pages("budgets", GLOBAL, "describe_budgets", "Budgets", AccountId=cloud.account):
        if b["BudgetName"].startswith(f"trainium-labs.{name}."):
            arn = f"arn:aws:budgets::{cloud.account}:budget/{b['BudgetName']}"
            if tags.ours(client.list_tags_for_resource(ResourceARN=arn)["ResourceTags"], name):
                out.append(Found("budget", GLOBAL, b["BudgetName"], "", False, b))
    return out


def _iam(cloud: Cloud, name: str) -> list[Found]:
    iam = cloud.client("iam")
    out = []
    for p in cloud.pages("iam", GLOBAL, "list_instance_profiles", "InstanceProfiles"):
        if p["InstanceProfileName"].startswith(f"trainium-labs.{name}.") and tags.ours(
            iam.get_instance_profile(InstanceProfileName=p["InstanceProfileName"])[
                "InstanceProfile"
            ].get("Tags"),
            name,
        ):
            out.append(Found("instance-profile", GLOBAL, p["InstanceProfileName"], "", False, p))
    for r in cloud.pages("iam", GLOBAL, "list_roles", "Roles"):
        if r["RoleName"].startswith(f"trainium-labs.{name}.") and tags.ours(
            iam.list_role_tags(RoleName=r["RoleName"])["Tags"], name
        ):
            out.append(Found("role", GLOBAL, r["RoleName"], "", False, r))
    return out
