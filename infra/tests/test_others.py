"""Files for other people's tools: their own readers take them, and Cloud Custodian acts by them."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml

from classroom.aws.problems import ClassroomError
from classroom.cli import others
from classroom.spec import class_file as specs
from classroom.spec import tags
from conftest import INFRA, ClassFolder, to_the_real_time
from labcloud.client import LabCloud
from other_tools import find, needs

Classroom = Callable[..., dict[str, Any]]
SUBNET, OTHER = "subnet-0123456789abcdef0", "999999999999"
REGION = "us-east-2"
CLUSTER = {"mode": "cluster", "cluster": {"nodes": 3}, "sdk": "2.29.0", "regions": [REGION]}


def export(folder: ClassFolder, tool: str, **options: Any) -> dict[str, Any]:
    """Write a tool's file as the command does; return what it holds."""
    done = others.write(specs.load(folder.file, ended_ok=True), {"tool": tool, **options}, False)
    return yaml.safe_load(Path(done["file"]).read_text(encoding="utf-8"))


def custodian(folder: ClassFolder, *words: str, **environ: str) -> subprocess.CompletedProcess:
    """Run Cloud Custodian on the class's policies."""
    return subprocess.run(
        [find("custodian"), words[0], *words[1:], str(folder.path / "out/lab/custodian.yml")],
        env={**os.environ, "HOME": str(folder.path), **environ},
        cwd=folder.path,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_command_writes_each_file_and_says_what_it_needs(
    folder: ClassFolder, classroom: Classroom
) -> None:
    with pytest.raises(ClassroomError, match="Use --tool custodian"):
        classroom("export", folder.file)
    with pytest.raises(ClassroomError, match="which account the class has"):
        classroom("export", folder.file, tool="aws-nuke", spare=OTHER)
    folder.write(account="123456789012")
    with pytest.raises(ClassroomError, match="must never touch"):
        classroom("export", folder.file, tool="aws-nuke")
    with pytest.raises(ClassroomError, match="both emptied and spared"):
        classroom("export", folder.file, tool="aws-nuke", spare=f"{OTHER},123456789012")
    with pytest.raises(ClassroomError, match="has no cluster"):
        classroom("export", folder.file, tool="parallelcluster", subnet=SUBNET)
    folder.write(**CLUSTER)
    with pytest.raises(ClassroomError, match="Nothing says where"):
        classroom("export", folder.file, tool="parallelcluster")
    assert not list(folder.path.glob("out/lab/*.yml"))
    assert "would be" in classroom("export", folder.file, tool="custodian", check=True)["summary"]
    assert not list(folder.path.glob("out/lab/*.yml"))
    for tool, more in (
        ("custodian", {}),
        ("aws-nuke", {"spare": OTHER}),
        ("parallelcluster", {"subnet": SUBNET}),
    ):
        assert Path(classroom("export", folder.file, tool=tool, **more)["file"]).exists()


def test_aws_nuke_gets_one_account_and_keeps_the_doors(folder: ClassFolder) -> None:
    """The keys are those of aws-nuke's documentation (docs/config.md, version 3)."""
    folder.write(account="123456789012")
    made = export(folder, "aws-nuke", spare=OTHER)
    known = {
        "blocklist",
        "blocklist-terms",
        "no-blocklist-terms-default",
        "regions",
        "accounts",
        "resource-types",
        "settings",
        "presets",
        "bypass-alias-check-accounts",
    }
    assert set(made) <= known and made["blocklist"] == [OTHER], "an empty blocklist is refused"
    assert list(made["accounts"]) == ["123456789012"] and made["regions"] == ["all"]
    text = (folder.path / "out/lab/aws-nuke.yml").read_text(encoding="utf-8")
    assert "'123456789012':" in text, "a number that begins with 0 would be read as another one"
    assert set(made["resource-types"]) == {"includes"}
    filters = made["accounts"]["123456789012"]["filters"]
    assert set(filters) <= set(made["resource-types"]["includes"])
    for kind, rules in filters.items():
        assert all(set(r) == {"type", "value"} and r["type"] == "glob" for r in rules), kind
    assert "IAMUser" not in made["resource-types"]["includes"], "who runs it stays"


def what_a_class_makes(cloud: LabCloud) -> set[str]:
    """Return the kinds of what exists in the fake."""
    return {r["kind"] for r in cloud.leftovers()}


def test_aws_nuke_is_told_of_every_kind_that_a_class_makes(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    names = {
        "instance": "EC2Instance",
        "volume": "EC2Volume",
        "elastic-ip": "EC2Address",
        "network-interface": "EC2NetworkInterface",
        "security-group": "EC2SecurityGroup",
        "key-pair": "EC2KeyPair",
        "launch-template": "EC2LaunchTemplate",
        "alarm": "CloudWatchAlarm",
        "schedule": "SchedulerSchedule",
        "function": "LambdaFunction",
        "bucket": "S3Bucket",
        "budget": "BudgetsBudget",
        "parameter": "SSMParameter",
        "topic": "SNSTopic",
        "rule": "CloudWatchEventsRule",
        "role": "IAMRole",
        "policy": "IAMPolicy",
        "instance-profile": "IAMInstanceProfile",
        "log-group": "CloudWatchLogsLogGroup",
    }
    folder.write(my="lambda", work_copies="s3", elastic_ip=True)
    classroom("provision", folder.file)
    unknown_to_it = {"schedule-group"}  # said in the file's head
    made = what_a_class_makes(cloud) - unknown_to_it
    assert {"instance", "bucket", "role"} <= made
    assert {names[kind] for kind in made} <= set(others.NUKED)


@needs("pcluster")
@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("market", ["on-demand", "spot"])
def test_parallelclusters_own_schema_takes_the_cluster(
    folder: ClassFolder, nodes: int, market: str
) -> None:
    folder.write(**{**CLUSTER, "cluster": {"nodes": nodes}, "market": market})
    made = export(folder, "parallelcluster", subnet=SUBNET)
    queues = made["Scheduling"]["SlurmQueues"]
    assert sum(q["ComputeResources"][0]["MaxCount"] for q in queues) == nodes
    path = folder.path / "out/lab/parallelcluster.yml"

    def read() -> tuple[int, str]:
        python = Path(find("pcluster")).parent / "python"
        done = subprocess.run(
            [python, INFRA / "tests/pcluster_schema.py", path],
            env={**os.environ, "AWS_DEFAULT_REGION": REGION},
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stderr

    code, words = read()
    assert code == 0, words
    queues[0]["ComputeResources"][0]["MaxNodes"] = 3  # there is no such key
    path.write_text(json.dumps(made))
    code, words = read()
    assert code == 1 and "MaxNodes" in words


@needs("custodian")
def test_custodian_validates_the_policies(folder: ClassFolder) -> None:
    made = export(folder, "custodian")
    done = custodian(folder, "validate")
    assert done.returncode == 0, done.stderr
    made["policies"][0]["filters"].append({"type": "instance-uptimes", "days": 1})
    (folder.path / "out/lab/custodian.yml").write_text(json.dumps(made))
    assert custodian(folder, "validate").returncode == 1


@needs("custodian")
@pytest.mark.parametrize(
    ("zone", "night"), [("UTC", True), ("Asia/Kolkata", True), ("America/Port_of_Spain", False)]
)
def test_custodian_takes_every_time_zone(folder: ClassFolder, zone: str, night: bool) -> None:
    folder.write(time_zone=zone)
    names = {p["name"] for p in export(folder, "custodian")["policies"]}
    assert ("lab-night" in names) == night
    done = custodian(
        folder,
        "run",
        "--dryrun",
        "--region",
        "us-east-2",
        "-s",
        str(folder.path / "seen"),
        "-p",
        "none-of-these",
    )
    assert "timezone" not in done.stderr, done.stderr
    assert custodian(folder, "validate").returncode == 0


@needs("custodian")
def test_custodian_stops_what_is_unarmed_and_removes_what_is_left(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    """It runs against the fake, whose machines began three hours ago, and goes by the real time.
    First nothing is due; then a machine is not armed; then the class is over."""
    earlier = dt.datetime.now(dt.timezone.utc) - dt.timedelta(hours=3)
    to_the_real_time(cloud, folder)
    cloud.post("reset", at=earlier.strftime("%Y-%m-%dT%H:%M:%S"))
    night = f"{(earlier.hour + 9) % 24:02d}:30"  # six hours from now: no night comes meanwhile
    folder.write(elastic_ip=True, time_zone="UTC", stop_nightly=night)
    classroom("provision", folder.file)

    def run() -> None:
        export(folder, "custodian")
        done = custodian(
            folder,
            "run",
            "--region",
            REGION,
            "--cache-period",
            "0",
            "-s",
            str(folder.path / "seen"),
            **cloud.environ,
        )
        assert done.returncode == 0, done.stderr
        assert "Error" not in done.stderr, done.stderr

    run()
    assert len(cloud.running()) == 2
    ec2 = boto3.client("ec2", REGION)
    found = ec2.describe_instances(Filters=[{"Name": f"tag:{tags.OWNER}", "Values": ["bob"]}])
    bob = found["Reservations"][0]["Instances"][0]["InstanceId"]
    guard = {"Key": tags.GUARD, "Value": "pending-lab"}
    ec2.create_tags(Resources=[bob], Tags=[guard])
    run()
    assert len(cloud.running()) == 1 and bob not in cloud.running()
    over = dt.date.today() - dt.timedelta(days=others.GRACE_DAYS + 1)
    folder.write(teardown=over.isoformat())
    run()
    assert cloud.running() == []
    cloud.post("advance", seconds=120)
    run()  # what the machines held is free now
    left = {r["kind"] for r in cloud.leftovers()} & {"instance", "volume", "elastic-ip"}
    assert not left


@needs("custodian")
def test_custodian_names_a_machine_of_no_class_and_leaves_it(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    classroom("provision", folder.file)
    ec2 = boto3.client("ec2", REGION)
    mine = [r["id"] for r in cloud.leftovers() if r["kind"] == "instance"]
    ec2.delete_tags(Resources=mine[:1], Tags=[{"Key": tags.CLASS}])
    export(folder, "custodian")
    done = custodian(
        folder,
        "run",
        "-p",
        "lab-of-no-class",
        "--region",
        REGION,
        "--cache-period",
        "0",
        "-s",
        str(folder.path / "seen"),
        **cloud.environ,
    )
    assert done.returncode == 0, done.stderr
    named = json.loads((folder.path / "seen/lab-of-no-class/resources.json").read_text())
    assert [m["InstanceId"] for m in named] == mine[:1] and len(cloud.running()) == 2
