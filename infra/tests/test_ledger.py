"""The ledger in the account: what any computer knows of a class, and what it sees by it. Each test
is a way in which a machine once ran unseen."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest

from classroom.aws.problems import ClassroomError
from conftest import ClassFolder, Lab
from labcloud.client import LabCloud

GUARDS = {"schedule", "schedule-group", "role", "budget"}


@pytest.fixture()
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., ClassFolder]:
    """Return a function that writes the same class on another computer, with some changes."""

    def other(folder: ClassFolder, **changes: Any) -> ClassFolder:
        made = ClassFolder(tmp_path_factory.mktemp("laptop"))
        made.data.update(folder.data)
        made.write(folder.students, **changes)
        return made

    return other


@pytest.fixture(params=["the first computer", "another one"])
def computer(
    request: pytest.FixtureRequest, laptop: Callable[..., ClassFolder]
) -> Callable[[ClassFolder], ClassFolder]:
    """Return a function that gives the folder to work in: the one that brought the class up, or
    one on a computer that knows it from the account only."""
    return laptop if request.param == "another one" else lambda folder: folder


def untag(cloud: LabCloud) -> str:
    """Take the class's tag from a machine that works; return its id."""
    i = sorted(cloud.running())[0]
    boto3.client("ec2", region_name="us-east-2").delete_tags(
        Resources=[i], Tags=[{"Key": "trainium-labs:class"}]
    )
    cloud.settle()
    return i


def test_the_account_keeps_the_ledger_and_teardown_removes_it_last(
    lab: Lab, laptop: Callable[..., ClassFolder]
) -> None:
    lab("provision")
    names = {r["id"] for r in lab.leftovers() if r["kind"] == "parameter"}
    assert {n.split("/")[3] for n in names} == {"settings", "regions", "machines"}
    assert lab("provision")["changed"] is False
    other = laptop(lab.folder)
    lab("status", other.file)
    here, there = (f.path / "out" / "lab" / "ledger.json" for f in (lab.folder, other))
    assert here.read_text() == there.read_text()
    assert lab("teardown", other.file)["exit_code"] == 0 and lab.leftovers() == []


@pytest.mark.sample(1)
def test_a_machine_that_lost_its_tag_is_an_error_and_keeps_its_guards(
    lab: Lab, computer: Callable[[ClassFolder], ClassFolder]
) -> None:
    lab("provision")
    lost = untag(lab.cloud)
    seen = lab("status", computer(lab.folder).file)
    assert seen["exit_code"] == 1 and any(lost in p for p in seen["problems"])
    done = lab("teardown", computer(lab.folder).file)
    assert done["exit_code"] == 1 and any(f"--resources {lost}" in line for line in done["lines"])
    assert GUARDS <= lab.kinds() and lab.running() == [lost]
    ec2 = boto3.client("ec2", region_name="us-east-2")
    ec2.create_tags(Resources=[lost], Tags=[{"Key": "trainium-labs:class", "Value": "lab"}])
    lab.settle()
    assert lab("teardown")["exit_code"] == 0 and lab.leftovers() == []


@pytest.mark.sample(1)
def test_a_region_that_was_disabled_is_blind_and_keeps_the_guards(
    lab: Lab, computer: Callable[[ClassFolder], ClassFolder]
) -> None:
    lab.write(regions=["us-west-2"])
    lab("provision")
    lab.post("set", regions=["us-east-1", "us-east-2"])
    used = computer(lab.folder)
    used.write(regions=["us-east-2"])
    seen = lab("status", used.file)
    assert seen["exit_code"] == 1 and any("us-west-2 is not enabled" in p for p in seen["blind"])
    with pytest.raises(ClassroomError, match="us-west-2 is not enabled.*alice.*second machine"):
        lab("provision", used.file)
    done = lab("teardown", used.file)
    assert done["exit_code"] == 1 and any("us-west-2" in line for line in done["lines"])
    lab.post("set", regions=["us-east-1", "us-east-2", "us-west-2"])
    assert GUARDS <= lab.kinds() and len(lab.running()) == 2
    lab.post("advance", seconds=86400)
    assert lab.running() == [], "so the night stopped them"
    assert lab("teardown", used.file)["exit_code"] == 0 and lab.leftovers() == []


def test_a_region_that_the_class_never_used_is_no_one_s_business(lab: Lab) -> None:
    lab("provision")
    lab.post("set", regions=["us-east-1", "us-east-2"])
    lab.write(regions=["us-east-2"])
    assert lab("teardown")["exit_code"] == 0 and lab.leftovers() == []


def test_an_account_that_keeps_no_parameters_has_its_class_all_the_same(lab: Lab) -> None:
    lab.post("set", denied=["ssm:PutParameter"])
    made = lab("provision")
    assert made["exit_code"] == 0 and any("Only this computer" in w for w in made["warnings"])
    lab.post("set", denied=["ssm:GetParametersByPath"])
    seen = lab("status")
    assert seen["exit_code"] == 1 and any("knows of the class" in b for b in seen["blind"])
    done = lab("teardown")
    assert done["exit_code"] == 1 and any("parameters in us-east-1" in p for p in done["lines"])
    lab.post("set", denied=[])
    assert lab("teardown")["exit_code"] == 0 and lab.leftovers() == []


def test_teardown_of_a_wrong_name_says_which_classes_there_are(lab: Lab, tmp_path: Path) -> None:
    lab("provision")
    done = lab("teardown", tmp_path / "empty" / "class.yml", name="lap")
    assert done["exit_code"] == 1 and "Classes in this account: lab." in done["summary"]


CHANGES = {
    "an earlier end": ({"teardown": "2026-11-23"}, "the end of the class.*2026-11-23.*2027-01-15"),
    "a lower cap of the class": (
        {"budget": {"per_student_usd": 50, "class_usd": 60}},
        r"cap of the class: \$60.00 in class.yml, \$100.00",
    ),
    "a lower cap of students": (
        {"budget": {"per_student_usd": 30, "class_usd": 100}},
        r"cap of the student: \$30.00 in class.yml, \$50.00",
    ),
    "another region": ({"regions": ["us-west-2"]}, "the regions: us-west-2.*us-east-2, us-west-2"),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("command", ["provision", "extend"])
@pytest.mark.parametrize("change", CHANGES)
def test_what_takes_away_from_a_class_asks_and_status_says_what_differs(
    lab: Lab, laptop: Callable[..., ClassFolder], change: str, command: str
) -> None:
    lab("provision")
    changes, words = CHANGES[change]
    stale = laptop(lab.folder)
    stale.write(**changes)
    mark = len(lab.writes())
    with pytest.raises(ClassroomError, match=f"{words}.*from arn:aws.*confirm-changes"):
        lab(command, stale.file)
    assert len(lab.writes()) == mark, "nothing was done"
    seen = lab("status", stale.file)
    assert seen["exit_code"] == 1 and any("in class.yml" in p for p in seen["problems"])
    assert lab("status")["exit_code"] == 0
    lab(command, stale.file, confirm_changes=True)
    assert lab("status", stale.file)["exit_code"] == 0
    assert lab("status")["exit_code"] == 1, "now the other file is the stale one"


def test_what_adds_to_a_class_asks_nothing(lab: Lab) -> None:
    lab("provision")
    lab.write(teardown="2027-02-15", regions=["us-east-2", "us-west-2", "us-east-1"])
    lab.write(budget={"per_student_usd": 70, "class_usd": 140})
    assert lab("status")["exit_code"] == 1, "status says that AWS has less"
    assert lab("provision")["exit_code"] == 0
    assert lab("status")["exit_code"] == 0


def test_a_class_from_before_the_ledger_is_known_by_its_schedules_and_its_budget(lab: Lab) -> None:
    lab("provision")
    ssm = boto3.client("ssm", region_name="us-east-1")
    for r in lab.leftovers():
        if r["kind"] == "parameter":
            ssm.delete_parameter(Name=r["id"])
    shutil.rmtree(lab.folder.path / "out")
    lab.write(teardown="2026-11-30")
    with pytest.raises(ClassroomError, match="2026-11-30.*in class.yml, 2027-01-15"):
        lab("provision")
    lab.write(teardown="2027-01-15", budget={"per_student_usd": 50, "class_usd": 99})
    with pytest.raises(ClassroomError, match="cap of the class"):
        lab("provision")


def test_a_detached_disk_of_the_class_s_time_is_named_with_the_command_that_ends_it(
    lab: Lab,
) -> None:
    ec2 = boto3.client("ec2", region_name="us-east-2")
    old = ec2.create_volume(AvailabilityZone="us-east-2a", Size=9)["VolumeId"]
    lab.post("advance", seconds=60)
    lab("provision")
    new = ec2.create_volume(AvailabilityZone="us-east-2a", Size=100)["VolumeId"]
    lab.settle()
    done = lab("teardown")
    assert done["exit_code"] == 0 and f"delete-volume --region us-east-2 --volume-id {new}" in str(
        done["summary"]
    )
    assert old not in done["summary"] and {r["id"] for r in lab.leftovers()} == {old, new}


def test_a_network_interface_in_the_class_s_group_is_named_with_the_command_that_ends_it(
    lab: Lab,
) -> None:
    lab("provision")
    ec2 = boto3.client("ec2", region_name="us-east-2")
    (group,) = (
        r["id"]
        for r in lab.leftovers()
        if r["kind"] == "security-group" and r["region"] == "us-east-2"
    )
    subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    card = ec2.create_network_interface(SubnetId=subnet, Groups=[group])["NetworkInterface"]
    card_id = card["NetworkInterfaceId"]
    lab.settle()
    lab.fault("DeleteSecurityGroup", code="DependencyViolation", status=400, times=1000)
    done = lab("teardown")
    command = f"delete-network-interface --region us-east-2 --network-interface-id {card_id}"
    assert done["exit_code"] == 1 and any(command in line for line in done["lines"])


@pytest.mark.sample(1)
@pytest.mark.parametrize("text", ["{", "[1]", '{"i-1": {}}'])
def test_a_ledger_that_somebody_garbled_is_a_sentence(
    lab: Lab, laptop: Callable[..., ClassFolder], text: str
) -> None:
    lab("provision")
    ssm = boto3.client("ssm", region_name="us-east-1")
    name = next(r["id"] for r in lab.leftovers() if "/machines/" in r["id"])
    ssm.put_parameter(Name=name, Value=text, Overwrite=True)
    other = laptop(lab.folder)
    seen = lab("status", other.file)
    assert seen["exit_code"] == 1 and any("is garbled" in b for b in seen["blind"])
    done = lab("teardown", other.file)
    assert done["exit_code"] == 1 and any("is garbled" in line for line in done["lines"])
    assert {"role", "budget", "parameter"} <= lab.kinds()
    ssm.delete_parameter(Name=name)
    assert lab("teardown")["exit_code"] == 0 and lab.leftovers() == []
