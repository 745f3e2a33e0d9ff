"""What a kinder fake did not show: wrong accounts and names, regions that were left, nights without
a stop, zones of capacity blocks, alarms that are too early."""

from __future__ import annotations

import datetime as dt
import json

import boto3
import pytest
from botocore.exceptions import ClientError

from classroom.aws.problems import BadClass, ClassroomError
from classroom.guards import alarms
from classroom.spec import class_file
from conftest import START, ClassFolder, Lab
from labcloud import automation
from labcloud.client import LabCloud

# ---- names and accounts ----


@pytest.mark.parametrize("name", ["nki-*", "*", "nki-?", "", "nki fall", "Lab"])
def test_a_name_with_wildcards_ends_no_one(lab: Lab, name: str) -> None:
    lab.write(name="nki-fall")
    lab("provision", discard_work="")
    if not name:
        lab.folder.file.write_text(lab.folder.file.read_text().replace("nki-fall", "'nki-*'"))
    with pytest.raises(ClassroomError, match="does not fit into AWS names"):
        lab("teardown", name=name)
    assert len(lab.running()) == 2


def test_the_sweep_checks_the_tag_of_machines_too(cloud: LabCloud, folder: ClassFolder) -> None:
    from classroom.aws.cloud import Cloud
    from classroom.teardown import sweep

    ec2 = boto3.client("ec2", "us-east-2")
    image = ec2.describe_images(IncludeDeprecated=True)["Images"][0]["ImageId"]
    label = {"Key": "trainium-labs:class", "Value": "nki-a"}
    tags = [{"ResourceType": "instance", "Tags": [label]}]
    ec2.run_instances(ImageId=image, MinCount=1, MaxCount=1, TagSpecifications=tags)
    assert sweep.sweep(Cloud(), "nki-*", ["us-east-2"]).found == []


def test_account_in_class_yml_counts_before_anything_exists(lab: Lab) -> None:
    lab.write(account="999999999999")
    with pytest.raises(ClassroomError, match="lives in 999999999999"):
        lab("provision")
    assert lab.leftovers() == []
    lab.write(account=1234)
    with pytest.raises(BadClass, match="is not the number of an AWS account"):
        lab("provision")


def test_a_name_that_was_never_seen_is_no_proof(lab: Lab) -> None:
    lab("provision")
    typo = lab("teardown", name="lap")
    assert typo["exit_code"] == 1 and "nothing here says that it ever did" in typo["summary"]
    first = lab("teardown")
    assert first["exit_code"] == 0
    assert json.loads(open(first["report"]).read())["account"] == "123456789012"
    assert lab("teardown")["exit_code"] == 0, "a second one is fine"


# ---- nights ----


def test_a_stop_in_the_hour_that_spring_skips_is_refused(folder: ClassFolder) -> None:
    now = dt.datetime.fromisoformat(START + "+00:00")
    folder.write(stop_nightly="02:30", teardown="2027-05-01")
    with pytest.raises(BadClass, match="There is no 02:30 on 2027-03-14 in America/New_York"):
        class_file.load(folder.file, now)
    folder.write(teardown="2027-03-01")
    assert class_file.load(folder.file, now), "it ends before"
    folder.write(teardown="2027-05-01", time_zone="America/Phoenix")
    assert class_file.load(folder.file, now), "no such night there"


def test_the_fake_skips_a_time_that_is_not_there() -> None:
    from labcloud import clock

    utc = dt.timezone.utc
    after = dt.datetime(2027, 3, 14, 0, tzinfo=utc)
    fires = clock.fires("cron(30 2 * * ? *)", "America/New_York", after, after)
    assert next(fires) == dt.datetime(2027, 3, 15, 6, 30, tzinfo=utc)


def test_a_day_that_does_not_exist_is_a_sentence(lab: Lab) -> None:
    lab.folder.file.write_text(lab.folder.file.read_text().replace("'2027-01-15'", "2027-02-30"))
    assert "2027-02-30" in lab.folder.file.read_text()
    with pytest.raises(BadClass, match="teardown"):
        lab("provision")
    assert lab("teardown", name="lab")["exit_code"] == 1, "never there"


# ---- capacity blocks, alarms ----


def test_the_crude_alarm_comes_after_the_guard_on_the_machine(folder: ClassFolder) -> None:
    idle = class_file.load(folder.file, dt.datetime.fromisoformat(START + "+00:00")).idle
    assert alarms.alarm_minutes(idle) >= idle.minutes + idle.grace_minutes + 10


# ---- late reads ----


def test_what_is_seen_late_is_made_once_and_found_by_a_teardown(lab: Lab) -> None:
    lab.post("set", late_seconds=4)
    lab.write(["alice", "bob"], elastic_ip=True)
    assert lab("provision")["exit_code"] == 0
    kinds = [r["kind"] for r in lab.leftovers()]
    assert [kinds.count(k) for k in ("instance", "elastic-ip", "security-group")] == [2, 2, 1]
    assert lab("provision")["changed"] is False
    assert lab("teardown")["exit_code"] == 0
    ec2 = boto3.client("ec2", "us-west-2")
    image = ec2.describe_images(IncludeDeprecated=True)["Images"][0]["ImageId"]
    label = {"Key": "trainium-labs:class", "Value": "lab"}
    tags = [{"ResourceType": "instance", "Tags": [label]}]
    ec2.run_instances(ImageId=image, MinCount=1, MaxCount=1, TagSpecifications=tags)
    assert lab("teardown")["exit_code"] == 0
    assert lab.running() == [], "a machine that a killed run made a moment ago"


# ---- states in between ----


def test_a_machine_that_is_only_starting_is_stopped_too(lab: Lab) -> None:
    lab("provision")
    lab("stop")
    first, *_ = lab.machines()
    ec2 = boto3.client("ec2", first["region"])
    lab.post("set", turn_seconds={"pending": 40, "stopping": 4, "shutting-down": 4})
    ec2.start_instances(InstanceIds=[first["id"]])
    with pytest.raises(ClientError, match="IncorrectInstanceState"):
        ec2.stop_instances(InstanceIds=[first["id"]])
    assert lab("stop").get("exit_code", 0) == 0 and lab.running() == []


def test_a_group_is_held_until_its_machines_are_gone(lab: Lab) -> None:
    lab("provision")
    lab.post("set", turn_seconds={"pending": 4, "stopping": 4, "shutting-down": 90})
    assert lab("teardown")["exit_code"] == 0 and lab.leftovers() == []
    assert not [c for c in lab.log() if "DependencyViolation" in c.get("error", "")], "it waited"


def test_roles_keys_and_templates_that_are_seen_late_are_waited_for(lab: Lab) -> None:
    lab.post("set", late_seconds=5)
    assert lab("provision")["exit_code"] == 0
    late = {c["op"] for c in lab.log() if "NotFound" in c.get("error", "")}
    late |= {c["op"] for c in lab.log() if "NoSuchEntity" in c.get("error", "")}
    assert "RunInstances" in late and len(lab.running()) == 2
    mark = len(lab.log())
    assert lab("provision")["changed"] is False and lab.writes(mark) == []


def test_automations_choose_with_wildcards_and_look_between_their_steps() -> None:
    targets = {"Targets": [{"Key": "tag:class", "Values": ["cs-*"]}]}
    assert automation.chooses(targets, "i-0", {"class": "cs-149"})
    assert len(automation.needs("AWS-StopEC2Instance", "us-east-2", "i-0")) == 3
