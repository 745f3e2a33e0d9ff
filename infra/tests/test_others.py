"""docs/other-tools.md: other people's programs read its files, and Cloud Custodian acts by them."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml

from classroom.spec import tags
from conftest import INFRA, ClassFolder, Lab, to_the_real_time
from other_tools import find, needs

PAGE = (INFRA.parent / "docs/other-tools.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r'^```yaml title="([\w-]+)\.yml"\n(.*?)^```', PAGE, re.M | re.S))
REGION = "us-east-2"
FILLED = {
    "CLASS": "lab",
    "DELETE_AFTER": "2099-01-01",
    "ZONE": "utc",
    "HOUR": "0",
    "ACCOUNT": "012345678901",
    "SPARED": "999999999999",
    "SUBNET": "subnet-0123456789abcdef0",
    "NETWORK": "203.0.113.0/24",
}


def write(folder: ClassFolder, tool: str, **filled: str) -> dict[str, Any]:
    """Copy a tool's file from the page and fill it in; return what it holds."""
    path = folder.path / f"{tool}.yml"
    words = re.compile(rf"\b({'|'.join(FILLED)})\b")
    path.write_text(words.sub(lambda m: {**FILLED, **filled}[m[1]], FILES[tool]))
    return yaml.safe_load(path.read_text())


def custodian(folder: ClassFolder, *words: str, **environ: str) -> subprocess.CompletedProcess:
    """Run Cloud Custodian on the class's policies."""
    return subprocess.run(
        [find("custodian"), words[0], *words[1:], str(folder.path / "custodian.yml")],
        env={**os.environ, "HOME": str(folder.path), **environ},
        cwd=folder.path,
        capture_output=True,
        text=True,
        timeout=120,
    )


def act(folder: ClassFolder, *words: str, **environ: str) -> subprocess.CompletedProcess:
    """Let Cloud Custodian act by the class's policies."""
    seen = ("--region", REGION, "--cache-period", "0", "-s", str(folder.path / "seen"))
    return custodian(folder, "run", *seen, *words, **environ)


def test_the_page_explains_every_word_that_is_to_be_filled_in() -> None:
    assert list(FILES) == ["custodian", "aws-nuke", "parallelcluster"]
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.M) == list(FILLED)


def test_aws_nuke_gets_one_account_and_keeps_the_doors(folder: ClassFolder) -> None:
    """The keys are those of aws-nuke's documentation (docs/config.md, version 3)."""
    made = write(folder, "aws-nuke")
    assert set(made) == {"blocklist", "regions", "resource-types", "settings", "accounts"}
    assert made["blocklist"] == ["999999999999"], "an empty blocklist is refused"
    assert list(made["accounts"]) == ["012345678901"], "unquoted it would be another number"
    assert made["regions"] == ["all"] and set(made["resource-types"]) == {"includes"}
    filters = made["accounts"]["012345678901"]["filters"]
    assert set(filters) <= set(made["resource-types"]["includes"])
    for kind, rules in filters.items():
        assert all(set(r) == {"type", "value"} and r["type"] == "glob" for r in rules), kind
    assert "IAMUser" not in made["resource-types"]["includes"], "who runs it stays"


def test_aws_nuke_is_told_of_every_kind_that_a_class_makes(lab: Lab) -> None:
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
    lab.write(my="lambda", work_copies="s3", elastic_ip=True)
    lab("provision")
    unknown_to_it = {"schedule-group"}  # the page says so
    made = lab.kinds() - unknown_to_it
    assert {"instance", "bucket", "role"} <= made
    assert {names[kind] for kind in made} <= set(
        write(lab.folder, "aws-nuke")["resource-types"]["includes"]
    )


@needs("pcluster")
def test_parallelclusters_own_schema_takes_the_cluster(folder: ClassFolder) -> None:
    made = write(folder, "parallelcluster")
    path = folder.path / "parallelcluster.yml"

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
    made["Scheduling"]["SlurmQueues"][0]["ComputeResources"][0]["MaxNodes"] = (
        3  # there is no such key
    )
    path.write_text(json.dumps(made))
    code, words = read()
    assert code == 1 and "MaxNodes" in words


@needs("custodian")
def test_custodian_validates_the_policies(folder: ClassFolder) -> None:
    made = write(folder, "custodian")
    done = custodian(folder, "validate")
    assert done.returncode == 0, done.stderr
    made["policies"][0]["filters"].append({"type": "instance-uptimes", "days": 1})
    (folder.path / "custodian.yml").write_text(json.dumps(made))
    assert custodian(folder, "validate").returncode == 1


@pytest.mark.sample(1)
@needs("custodian")
@pytest.mark.parametrize("zone", ["utc", "Asia/Kolkata"])
def test_custodian_takes_the_time_zone(folder: ClassFolder, zone: str) -> None:
    write(folder, "custodian", ZONE=zone)
    done = act(folder, "--dryrun", "-p", "none-of-these")
    assert "timezone" not in done.stderr, done.stderr
    assert custodian(folder, "validate").returncode == 0


@pytest.mark.full
@needs("custodian")
def test_custodian_stops_what_is_unarmed_and_removes_what_is_left(lab: Lab) -> None:
    """It runs against the fake, whose machines began three hours ago, and goes by the real time.
    First nothing is due; then a machine is not armed; then the class is over."""
    earlier = dt.datetime.now(dt.timezone.utc) - dt.timedelta(hours=3)
    to_the_real_time(lab.cloud, lab.folder)
    lab.post("reset", at=earlier.strftime("%Y-%m-%dT%H:%M:%S"))
    night = (earlier.hour + 9) % 24  # six hours from now: no night comes meanwhile
    lab.write(elastic_ip=True, time_zone="UTC", stop_nightly=f"{night:02d}:30")
    lab("provision")

    def run(**filled: str) -> None:
        write(lab.folder, "custodian", HOUR=str((night + 1) % 24), **filled)
        done = act(lab.folder, **lab.cloud.environ)
        assert done.returncode == 0, done.stderr
        assert "Error" not in done.stderr, done.stderr

    run()
    assert len(lab.running()) == 2
    ec2 = boto3.client("ec2", REGION)
    found = ec2.describe_instances(Filters=[{"Name": f"tag:{tags.OWNER}", "Values": ["bob"]}])
    bob = found["Reservations"][0]["Instances"][0]["InstanceId"]
    guard = {"Key": tags.GUARD, "Value": "pending-lab"}
    ec2.create_tags(Resources=[bob], Tags=[guard])
    run()
    assert len(lab.running()) == 1 and bob not in lab.running()
    over = (dt.date.today() - dt.timedelta(days=1)).isoformat()
    run(DELETE_AFTER=over)
    assert lab.running() == []
    lab.post("advance", seconds=120)
    run(DELETE_AFTER=over)  # what the machines held is free now
    left = lab.kinds() & {"instance", "volume", "elastic-ip"}
    assert not left


@pytest.mark.full
@needs("custodian")
def test_custodian_names_a_machine_of_no_class_and_leaves_it(lab: Lab) -> None:
    lab("provision")
    ec2 = boto3.client("ec2", REGION)
    machines = [r["id"] for r in lab.machines()]
    ec2.delete_tags(Resources=machines[:1], Tags=[{"Key": tags.CLASS}])
    write(lab.folder, "custodian")
    done = act(lab.folder, "-p", "lab-of-no-class", **lab.cloud.environ)
    assert done.returncode == 0, done.stderr
    named = json.loads((lab.folder.path / "seen/lab-of-no-class/resources.json").read_text())
    assert [m["InstanceId"] for m in named] == machines[:1] and len(lab.running()) == 2
