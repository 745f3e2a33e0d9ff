"""The class as files of other people's tools: policies of Cloud Custodian (a second net beside the
guards), a configuration of aws-nuke (for a dedicated account, after the term) and one of AWS
ParallelCluster (in the place of `mode: cluster`). docs/cluster.md and infra/README.md say when to
use which. Nothing here asks AWS."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from ..aws.problems import ClassroomError
from ..spec import lock, tags
from ..spec.class_file import ClassSpec

GRACE_DAYS = 2  # after the teardown, before the second net deletes
UNARMED_HOURS = 2  # until then the guards of the class have stopped a machine themselves
PARALLEL = "trainium-labs:parallelcluster"  # no guard of ours reads it
NEURON_TYPE = "^(trn|inf)[0-9]"
# What a class makes, in the names that aws-nuke 3 has for it.
NUKED = (
    "EC2Instance EC2Volume EC2Snapshot EC2Address EC2NetworkInterface EC2SecurityGroup EC2KeyPair"
    " EC2LaunchTemplate CloudWatchAlarm CloudWatchLogsLogGroup SchedulerSchedule LambdaFunction"
    " S3Bucket S3Object BudgetsBudget IAMRole IAMRolePolicy IAMRolePolicyAttachment IAMPolicy"
    " IAMInstanceProfile IAMInstanceProfileRole SSMParameter SNSTopic"
    " CloudWatchEventsRule CloudWatchEventsTarget"
).split()
# Roles by which an organisation or its sign-in reaches the account: no one signs in without them.
KEPT_ROLES = (
    *("OrganizationAccountAccessRole", "AWSControlTower*", "AWSReservedSSO_*", "stacksets-*"),
)
OS = {"22.04": "ubuntu2204", "24.04": "ubuntu2404"}
CAPACITY = {"on-demand": "ONDEMAND", "spot": "SPOT", "capacity-block": "CAPACITY_BLOCK"}
Settings = dict[str, Any]


def custodian(spec: ClassSpec, _: Settings) -> dict[str, Any]:
    """Return policies that stop what no guard has stopped, delete what is left after the end, and
    name Trainium machines that belong to no class."""
    of_class = {f"tag:{tags.CLASS}": spec.name}
    running = {"State.Name": "running"}
    hour = int(spec.stop_nightly.split(":")[0])
    zone = "utc" if spec.time_zone in ("UTC", "Etc/UTC") else spec.time_zone
    over = spec.teardown + dt.timedelta(days=GRACE_DAYS)
    ended = [
        {
            "type": "value",
            "key": "now",
            "op": "greater-than",
            "value_type": "date",
            "value": over.isoformat(),
        }
    ]

    def policy(name: str, resource: str, filters: list[Any], **more: Any) -> dict[str, Any]:
        return {
            "name": f"{spec.name}-{name}",
            "resource": f"aws.{resource}",
            "filters": filters,
            **more,
        }

    night = policy(
        "night",
        "ec2",
        # the hour after the stop; custodian runs every hour
        [
            of_class,
            {
                "type": "offhour",
                "tag": "trainium-labs:custodian",
                "opt-out": True,
                "weekends": False,
                "default_tz": zone,
                "offhour": (hour + 1) % 24,
            },
        ],
        description="A machine that the nightly stop has missed.",
        actions=["stop"],
    )
    return {
        # Custodian writes each part of a zone's name with a capital letter: where that is another
        # name (America/Port_of_Spain), it would refuse the whole file
        "policies": [
            policy(
                "unarmed",
                "ec2",
                [
                    of_class,
                    running,
                    {"not": [{f"tag:{tags.GUARD}": tags.ARMED}]},
                    {"type": "instance-uptime", "op": "greater-than", "days": UNARMED_HOURS / 24},
                ],
                description="A machine that runs for hours and is not armed: provision was killed.",
                actions=["stop"],
            ),
            *([night] if zone == "utc" or zone == zone.title() else []),
            policy(
                "ended-machines",
                "ec2",
                [of_class],
                conditions=ended,
                actions=[{"type": "terminate", "force": True}],
            ),
            policy(
                "ended-disks",
                "ebs",
                [of_class, {"Attachments": []}],
                conditions=ended,
                actions=["delete"],
            ),
            policy(
                "ended-addresses",
                "elastic-ip",
                [of_class],
                conditions=ended,
                actions=[{"type": "release", "force": True}],
            ),
            policy(
                "ended-parallelcluster",
                "cfn",
                [{f"tag:{PARALLEL}": spec.name}],
                conditions=ended,
                actions=[{"type": "delete", "force": True}],
            ),
            policy(
                "of-no-class",
                "ec2",
                [
                    {f"tag:{tags.CLASS}": "absent"},
                    {f"tag:{PARALLEL}": "absent"},
                    {"type": "value", "key": "InstanceType", "op": "regex", "value": NEURON_TYPE},
                ],
                description="Made by hand. It is named, not stopped: it may hold someone's work.",
            ),
        ]
    }


def aws_nuke(spec: ClassSpec, options: Settings) -> dict[str, Any]:
    """Return a configuration that empties the class's account of what classes make. It is for an
    account that holds nothing else."""
    account = spec.account or str(lock.read(spec.folder).get("account") or "")
    if not account:
        raise ClassroomError(
            "Nothing says which account the class has.",
            "Write `account:` into class.yml, or run provision first. Nothing was written.",
        )
    spared = [w.strip() for w in str(options.get("spare") or "").split(",") if w.strip()]
    wrong = [w for w in spared if not re.fullmatch(r"\d{12}", w)]
    if not spared or wrong:
        raise ClassroomError(
            f"{', '.join(wrong)} is not an account of 12 digits."
            if wrong
            else "aws-nuke asks for accounts that it must never touch.",
            "Name at least one, as `--spare 123456789012`. Nothing was written.",
        )
    if account in spared:
        raise ClassroomError(
            f"{account} is the class's account; it cannot be both emptied and spared.",
            "Nothing was written.",
        )
    keep = [{"type": "glob", "value": role} for role in KEPT_ROLES]
    parts = [{"type": "glob", "value": f"{role} -> *"} for role in KEPT_ROLES]
    filters = {"IAMRole": keep, "IAMRolePolicy": parts, "IAMRolePolicyAttachment": parts}
    return {
        "blocklist": spared,
        "regions": ["all"],
        "resource-types": {"includes": list(NUKED)},
        "settings": {
            "EC2Instance": {"DisableStopProtection": True, "DisableDeletionProtection": True}
        },
        "accounts": {account: {"filters": filters}},
    }


def parallelcluster(spec: ClassSpec, options: Settings) -> dict[str, Any]:
    """Return a cluster of the size that class.yml says."""
    from ..spec.sdk import ubuntu_for

    if spec.cluster is None:
        raise ClassroomError(
            f"{spec.name} has no cluster.", "Write `mode: cluster` and `cluster:` into class.yml."
        )
    subnet = str(options.get("subnet") or "")
    if not re.fullmatch(r"subnet-[0-9a-f]{8,17}", subnet):
        raise ClassroomError(
            f"{subnet!r} is not a subnet." if subnet else "Nothing says where the cluster stands.",
            "Name a subnet of a zone that has the machines: --subnet subnet-0123456789abcdef0."
            " `aws ec2 describe-subnets` lists them. Nothing was written.",
        )
    nodes = spec.cluster.nodes
    minutes = {"batch": spec.cluster.batch_minutes, "interactive": spec.cluster.interactive_minutes}
    share = {"batch": nodes} if nodes == 1 else {"batch": nodes - 1, "interactive": 1}
    label = spec.instance_type.replace(".", "-")
    queues = [
        {
            "Name": queue,
            "CapacityType": CAPACITY[spec.market],
            "CustomSlurmSettings": {"MaxTime": minutes[queue]},
            "ComputeResources": [
                {
                    "Name": label,
                    "Instances": [{"InstanceType": spec.instance_type}],
                    "MinCount": 0,
                    "MaxCount": count,
                }
            ],
            "ComputeSettings": {
                "LocalStorage": {"RootVolume": {"Size": spec.disk_gib, "Encrypted": True}}
            },
            "Networking": {"SubnetIds": [subnet]},
        }
        for queue, count in share.items()
    ]
    return {
        "Region": spec.regions[0],
        "Image": {"Os": OS[ubuntu_for(spec.sdk)]},
        "Imds": {"ImdsSupport": "v2.0"},
        "HeadNode": {
            "InstanceType": "t3.large",
            "Networking": {"SubnetId": subnet},
            "Ssh": {"KeyName": tags.prefix(spec) + "staff", "AllowedIps": spec.ssh_cidrs[0]},
            "LocalStorage": {"RootVolume": {"Size": 200, "Encrypted": True}},
        },
        "Scheduling": {
            "Scheduler": "slurm",
            "SlurmSettings": {"ScaledownIdletime": spec.idle.minutes},
            "SlurmQueues": queues,
        },
        "Tags": [{"Key": PARALLEL, "Value": spec.name}],
    }


HEADS = {
    "custodian": "Cloud Custodian: custodian run --region all -s out THIS_FILE, every hour. Add\n"
    "# --dryrun to see what it would do.",
    "aws-nuke": "aws-nuke 3, for an account that holds nothing but classes, after `teardown`:\n"
    "# aws-nuke run --config THIS_FILE lists; --no-dry-run deletes. Spot requests, capacity\n"
    "# reservations and schedule groups it does not know: teardown removes those.",
    "parallelcluster": "AWS ParallelCluster 3: pcluster create-cluster --dryrun true -n NAME -c"
    " THIS_FILE.\n# The image must bring the Neuron driver: see docs/cluster.md.",
}
TOOLS: dict[str, Callable[[ClassSpec, Settings], dict[str, Any]]] = {
    "custodian": custodian,
    "aws-nuke": aws_nuke,
    "parallelcluster": parallelcluster,
}


def write(spec: ClassSpec, options: Settings, check: bool) -> dict[str, Any]:
    """Write the file of the tool that `--tool` names to out/<class>; return the command's
    result."""
    tool = str(options.get("tool") or "")
    if tool not in TOOLS:
        raise ClassroomError(
            f"There is no file for {tool!r}." if tool else "Say for which tool.",
            f"Use --tool {', --tool '.join(TOOLS)}. Nothing was written.",
        )
    data = TOOLS[tool](spec, options)
    path: Path = spec.out / f"{tool}.yml"
    if not check:
        lock.close_folder(spec.folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = yaml.dump(data, Dumper=_Plain, sort_keys=False, width=100)
        path.write_text(f"# {HEADS[tool]}\n{text}", encoding="utf-8")
    return {"file": str(path), "summary": f"{path} {'would be' if check else 'is'} written"}


class _Plain(yaml.SafeDumper):
    """Write lists out instead of referring to them: other tools' readers, and people, like that
    better."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return True: nothing is referred to."""
        return True
