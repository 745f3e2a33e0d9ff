"""A class against the fake cloud: bring up, again, change the roster, fall back, start, extend,
tear down."""

from __future__ import annotations

from typing import Any

import boto3
import pytest

from classroom.aws.problems import ClassroomError
from conftest import Lab
from labcloud.client import LabCloud


def owners(cloud: LabCloud) -> set[str]:
    """Return owner tags of everything that exists, staff aside."""
    return {
        (r["tags"] or {}).get("trainium-labs:owner", "") for r in cloud.leftovers() if r["tags"]
    } - {"staff"}


def test_guards_are_there_before_each_machine_and_name_it_after(lab: Lab) -> None:
    lab("provision")
    started = [e for e in lab.post("events") if e["kind"] == "running"]
    assert len(started) == 2
    for event in started:
        assert {"nightly", "teardown", "unarmed", "budget"} <= set(event["guards"]), event
    tags = [m["tags"] for m in lab.machines()]
    assert all(t["trainium-labs:guard"] == "armed" for t in tags)
    ec2 = boto3.client("ec2", region_name="us-east-2")
    for instance in (i for r in ec2.describe_instances()["Reservations"] for i in r["Instances"]):
        assert instance["MetadataOptions"]["HttpTokens"] == "required"
        volume = ec2.describe_volumes(
            VolumeIds=[instance["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]]
        )["Volumes"][0]
        assert (volume["Size"], volume["Encrypted"], volume["VolumeType"]) == (150, True, "gp3")
    groups = ec2.describe_security_groups(
        Filters=[{"Name": "group-name", "Values": ["trainium-labs.lab.ssh"]}]
    )["SecurityGroups"]
    assert [r["CidrIp"] for p in groups[0]["IpPermissions"] for r in p["IpRanges"]] == [
        "203.0.113.0/24"
    ]


def test_what_someone_opened_by_hand_is_said_at_each_provision(lab: Lab) -> None:
    ec2 = boto3.client("ec2", region_name="us-east-2")
    assert lab("provision")["warnings"] == []
    (group,) = ec2.describe_security_groups(
        Filters=[{"Name": "group-name", "Values": ["trainium-labs.lab.ssh"]}]
    )["SecurityGroups"]
    world = {"IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
    for rule in (
        {"IpProtocol": "-1", **world},
        {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 9000, **world},
        {"IpProtocol": "tcp", "FromPort": 8888, "ToPort": 8888, **world},
        {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, **world},
    ):
        ec2.authorize_security_group_ingress(GroupId=group["GroupId"], IpPermissions=[rule])
    again = lab("provision")
    assert [c for c in again["changes"] if "SSH" in c] == ["us-east-2: stop SSH from 0.0.0.0/0"]
    said = " ".join(again["warnings"])
    for opened in ("everything to 0.0.0.0/0", "tcp 22-9000 to 0.0.0.0/0", "tcp 8888 to 0.0.0.0/0"):
        assert opened in said, said
    assert len(again["warnings"]) == 3 and group["GroupId"] in said


def test_no_machine_starts_while_a_guard_is_missing(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    from classroom.guards import class_guards

    real = class_guards.desired
    calls = {"n": 0}

    def forget(run: Any, role: str, addresses: list[str], region: str = "") -> dict[str, Any]:
        calls["n"] += 1
        wanted = real(run, role, addresses, region)
        if calls["n"] == 1:  # what is written lacks the teardown; what is verified does not
            wanted.pop("teardown")
        return wanted

    monkeypatch.setattr(class_guards, "desired", forget)
    with pytest.raises(class_guards.GuardMissing, match="schedule teardown in us-east-2"):
        lab("provision")
    assert lab.machines() == [] and not any(c["op"] == "RunInstances" for c in lab.log())


def without_the_ledger(cloud: LabCloud) -> list[dict[str, Any]]:
    """Return what exists but the ledger, which forgets no machine."""
    return [r for r in cloud.leftovers() if r["kind"] != "parameter"]


def test_a_student_more_or_less_is_one_students_resources_more_or_less(lab: Lab) -> None:
    lab.post("set", quotas={"L-0263D0A3": 100.0})
    lab.write(["alice", "bob", "carol", "dave", "erin", "frank"], elastic_ip=True)
    lab("provision")
    before = without_the_ledger(lab.cloud)
    lab.write([*lab.folder.students, "grace"])
    assert lab("provision")["launched"] == ["grace"]
    after = without_the_ledger(lab.cloud)
    more = sorted(
        r["kind"] for r in after if r["tags"] and r["tags"].get("trainium-labs:owner") == "grace"
    )
    assert more == ["alarm", "budget", "elastic-ip", "instance", "network-interface", "volume"]
    assert len(after) == len(before) + len(more)
    lab.write([s for s in lab.folder.students if s != "grace"])
    gone = lab("provision", confirm_changes=True)  # the class's cap falls, too
    assert gone["removed"] == ["grace"]
    assert sorted(r["id"] for r in without_the_ledger(lab.cloud)) == sorted(r["id"] for r in before)


def test_a_truncated_roster_terminates_no_one_without_a_second_yes(lab: Lab) -> None:
    lab.write(10)
    lab("provision")
    lab.write(lab.folder.students[:4])
    with pytest.raises(ClassroomError, match="would terminate 6 of 10"):
        lab("provision")
    assert len(lab.machines()) == 10
    assert len(lab("provision", confirm_removals=True, confirm_changes=True)["removed"]) == 6
    assert len(lab.machines()) == 4


def test_check_mode_changes_nothing_and_says_what_it_would(lab: Lab) -> None:
    result = lab("provision", check=True)
    assert lab.writes() == [] and lab.leftovers() == []
    assert any("launch alice" in c for c in result["changes"]) and any(
        "create schedule teardown" in c for c in result["changes"]
    )
    assert (
        not (lab.folder.path / "class.lock.yml").exists()
        and not (lab.folder.path / "out" / "lab" / "alice.md").exists()
    )


def test_limit_touches_one_student_and_refuses_unknown_ones(lab: Lab) -> None:
    assert lab("provision", limit=["bob"])["launched"] == ["bob"]
    assert owners(lab.cloud) == {"bob"}
    assert lab("provision")["launched"] == ["alice"]
    with pytest.raises(ClassroomError, match="mallory, who is not in the roster"):
        lab("stop", limit=["mallory"])
    lab("stop", limit=["alice"])
    assert len(lab.running()) == 1


def test_full_zones_fall_back_to_other_zones_then_to_the_next_region_with_its_guards(
    lab: Lab,
) -> None:
    lab.write(6, regions=["us-west-2", "us-east-2"])
    zones = {
        s["AvailabilityZone"]: s["SubnetId"]
        for s in boto3.client("ec2", region_name="us-west-2").describe_subnets()["Subnets"]
    }
    lab.fault(
        "RunInstances",
        code="InsufficientInstanceCapacity",
        status=500,
        times=1000,
        region="us-west-2",
        match={"NetworkInterface.1.SubnetId": zones["us-west-2b"]},
    )
    first = lab("provision")
    assert first["exit_code"] == 0 and {row[3] for row in first["tables"][0]["rows"]} == {
        "us-west-2d"
    }
    lab.write(9)
    lab.fault(
        "RunInstances",
        code="InsufficientInstanceCapacity",
        status=500,
        times=1000,
        region="us-west-2",
    )
    second = lab("provision")
    assert second["exit_code"] == 0 and len(second["launched"]) == 3
    assert sum(m["region"] == "us-east-2" for m in lab.machines()) == 3
    for event in (e for e in lab.post("events") if e["kind"] == "running"):
        assert {"nightly", "teardown", "unarmed", "budget"} <= set(event["guards"])
    assert lab("teardown")["exit_code"] == 0 and lab.leftovers() == []


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("VcpuLimitExceeded", "quota"),
        ("PendingVerification", "validating"),
        ("InsufficientInstanceCapacity", "no free machine"),
    ],
)
def test_partial_success_is_a_state_that_the_next_run_continues(
    lab: Lab, code: str, words: str
) -> None:
    lab.write(["alice", "bob", "carol"], regions=["us-east-2"])
    lab.fault("RunInstances", code=code, status=400, times=1000, skip=1)
    first = lab("provision")
    assert first["exit_code"] == 1 and len(first["launched"]) == 1 and len(first["unplaced"]) == 2
    assert all(words in why for why in first["unplaced"].values())
    lab.post("clear")
    second = lab("provision")
    assert second["exit_code"] == 0 and len(second["launched"]) == 2 and len(lab.machines()) == 3


def test_a_small_quota_launches_what_fits_and_prepares_the_request(lab: Lab) -> None:
    lab.post("set", quotas={"L-2C3B7624": 8.0})
    lab.write(["alice", "bob", "carol"], regions=["us-east-2"])
    result = lab("provision")
    assert len(result["launched"]) == 1 and len(result["unplaced"]) == 2
    assert any("--quota-code L-2C3B7624 --desired-value 24" in w for w in result["warnings"])
    assert lab("doctor")["exit_code"] == 1
    asked = lab("doctor", request_quota=True)
    assert any("24 asked for" in row[2] for row in asked["tables"][0]["rows"])


UNKNOWN_YET = {
    "RunInstances": ("InvalidParameterValue", "Invalid IAM Instance Profile name"),
    "CreateSchedule": (
        "ValidationException",
        "The execution role you provide must allow AWS EventBridge Scheduler to assume the role.",
    ),
    "CreateBudgetAction": ("AccessDeniedException", "Budgets cannot assume the role"),
}


def test_a_role_that_is_not_known_everywhere_yet_is_waited_for(lab: Lab) -> None:
    for op, (code, message) in UNKNOWN_YET.items():
        lab.fault(op, code=code, status=400, times=2, message=message)
    assert lab("provision")["exit_code"] == 0
    assert {m["region"] for m in lab.machines()} == {"us-east-2"}, "not in the next one"
    assert {c["op"] for c in lab.log() if c["status"] == 400} >= UNKNOWN_YET.keys()


def test_the_image_is_locked_and_an_older_sdk_is_found_although_deprecated(lab: Lab) -> None:
    lab("provision")
    lock = (lab.folder.path / "class.lock.yml").read_text()
    assert "(Ubuntu 22.04) 20251112" in lock and "2.26.1" in lock
    lab.write(sdk="2.25.0")
    with pytest.raises(ClassroomError, match="no Neuron image of SDK 2.25.0"):
        lab("provision")
    lab.write(sdk="2.32.0", dialect="nki")
    lab("provision")
    assert "(Ubuntu 24.04) 20260821" in (lab.folder.path / "class.lock.yml").read_text()


def test_shared_machines_keep_everybodys_seat(lab: Lab) -> None:
    lab.write(["alice", "bob", "carol", "dave", "erin"], mode="shared")
    lab("provision")

    def seats() -> dict[str, tuple[str, str]]:
        return {
            v: (m["tags"]["trainium-labs:machine"], k[-2:])
            for m in lab.machines()
            for k, v in m["tags"].items()
            if ":core-" in k
        }

    before = seats()
    assert len(lab.machines()) == 3 and set(before) == set(lab.folder.students)
    lab.write(["bob", "carol", "dave", "erin", "frank"])
    result = lab("provision")
    after = seats()
    assert (
        result["launched"] == [] and after.pop("frank") == before.pop("alice") and after == before
    )


def test_start_rearms_and_refuses_without_guards(lab: Lab) -> None:
    lab("provision")
    lab("stop")
    assert lab.running() == []
    scheduler = boto3.client("scheduler", region_name="us-east-2")
    scheduler.delete_schedule(GroupName="trainium-labs.lab", Name="nightly")
    with pytest.raises(ClassroomError, match="schedule nightly in us-east-2"):
        lab("start")
    assert lab.running() == []
    lab("provision")
    assert lab("start")["exit_code"] == 0 and len(lab.running()) == 2


def test_extend_moves_the_end_and_every_expiry(lab: Lab) -> None:
    lab("provision")
    lab.write(teardown="2027-02-20", stop_nightly="01:00")
    lab("extend")
    assert {m["tags"]["trainium-labs:expires"] for m in lab.machines()} == {"2027-02-20"}
    scheduler = boto3.client("scheduler", region_name="us-east-2")
    assert (
        scheduler.get_schedule(GroupName="trainium-labs.lab", Name="nightly")["ScheduleExpression"]
        == "cron(0 1 * * ? *)"
    )
    assert (
        scheduler.get_schedule(GroupName="trainium-labs.lab", Name="teardown")["StartDate"].month
        == 2
    )
    mark = len(lab.log())
    assert lab("extend")["changed"] is False and lab.writes(mark) == []


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            {"op": "GetCallerIdentity", "code": "ExpiredToken", "status": 403},
            "credentials have expired",
        ),
        (
            {"op": "GetCallerIdentity", "code": "InvalidClientTokenId", "status": 403},
            "does not know this access key",
        ),
        ({"op": "DescribeRegions", "code": "RequestLimitExceeded", "status": 503}, "slow down"),
        ({"op": "DescribeRegions", "html": True}, "sign-in page"),
        ({"op": "GetCallerIdentity", "html": True}, "sign-in page"),
    ],
)
def test_what_aws_refuses_is_a_sentence_and_nothing_is_created(
    lab: Lab, fault: dict, words: str
) -> None:
    lab.fault(times=1000, **fault)
    with pytest.raises(ClassroomError, match=words):
        lab("provision")
    assert lab.leftovers() == []


def test_missing_permission_wrong_region_no_credentials(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.post("set", denied=["scheduler:CreateSchedule", "ec2:RunInstances"])
    with pytest.raises(ClassroomError, match="lacks a permission"):
        lab("provision")
    assert lab.leftovers() == [], "EC2 was asked before anything was made"
    lab.post("set", denied=[])
    lab.write(regions=["eu-north-1"])
    with pytest.raises(ClassroomError, match="eu-north-1 is not enabled"):
        lab("provision")
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(key)
    with pytest.raises(ClassroomError, match="no usable AWS credentials"):
        lab("provision", fresh=True)
    assert lab.leftovers() == []


def test_generated_keys_are_encrypted_and_never_said(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (lab.folder.path / "roster.csv").write_text(
        "student,email,public_key\nalice,alice@example.edu,\n"
    )
    monkeypatch.delenv("ANSIBLE_VAULT_PASSWORD_FILE", raising=False)
    for check in (True, False):
        with pytest.raises(ClassroomError, match="ANSIBLE_VAULT_PASSWORD_FILE"):
            lab("provision", check=check)
    assert lab.leftovers() == []
    (tmp_path / "password").write_text("a long enough password\n")
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(tmp_path / "password"))
    result = lab("provision")
    keys = lab.folder.path / "out" / "lab" / "keys"
    assert (keys / "alice.vault").read_text().startswith("$ANSIBLE_VAULT")
    assert (
        sorted(p.name for p in keys.iterdir()) == ["alice.pub", "alice.vault"]
        and (keys / "alice.vault").stat().st_mode & 0o077 == 0
    )
    from ansible.constants import DEFAULT_VAULT_ID_MATCH
    from ansible.parsing.vault import VaultLib, VaultSecret

    clear = VaultLib([(DEFAULT_VAULT_ID_MATCH, VaultSecret(b"a long enough password"))]).decrypt(
        (keys / "alice.vault").read_bytes()
    )
    assert b"BEGIN OPENSSH PRIVATE KEY" in clear
    everywhere = (
        str(result)
        + str(lab.log())
        + "".join(
            p.read_text()
            for p in lab.folder.path.rglob("*")
            if p.is_file() and p.suffix != ".vault"
        )
    )
    assert "PRIVATE KEY" not in everywhere
    page = (lab.folder.path / "out" / "lab" / "alice.md").read_text()
    assert "LocalForward 3001" in page and "LocalForward 8086" in page and "37 hours" in page


def test_doctor_makes_every_check_also_after_one_failed(lab: Lab) -> None:
    lab("provision")
    lab.fault("DescribeInstances", code="UnauthorizedOperation", status=403, times=1000)
    result = lab("doctor")
    rows = {row[1]: row[0] for row in result["tables"][0]["rows"]}
    assert rows["us-east-2: machines"] == "NO" and rows["us-west-2: quota of vCPUs"] == "ok"
    lab.fault("DescribeRegions", code="ExpiredToken", status=403, times=1000)
    result = lab("doctor")
    assert result["exit_code"] == 1 and [r[0] for r in result["tables"][0]["rows"]][:3] == [
        "ok",
        "ok",
        "NO",
    ]
    lab.post("clear")
    notes = [r[2] for r in lab("doctor")["tables"][0]["rows"] if r[0] == "note"]
    assert any("From memory" in n for n in notes) and any("To refresh" in n for n in notes)
