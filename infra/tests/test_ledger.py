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
from conftest import ClassFolder
from labcloud.client import LabCloud

Classroom = Callable[..., dict[str, Any]]
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


def kinds(cloud: LabCloud) -> set[str]:
    return {r["kind"] for r in cloud.leftovers()}


def untag(cloud: LabCloud) -> str:
    """Take the class's tag from a machine that works; return its id."""
    i = sorted(cloud.running())[0]
    boto3.client("ec2", region_name="us-east-2").delete_tags(
        Resources=[i], Tags=[{"Key": "trainium-labs:class"}]
    )
    cloud.settle()
    return i


def test_the_account_keeps_the_ledger_and_teardown_removes_it_last(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom, laptop: Callable[..., ClassFolder]
) -> None:
    classroom("provision", folder.file)
    names = {r["id"] for r in cloud.leftovers() if r["kind"] == "parameter"}
    assert {n.split("/")[3] for n in names} == {"settings", "regions", "machines"}
    assert classroom("provision", folder.file)["changed"] is False
    other = laptop(folder)
    classroom("status", other.file)
    here, there = (f.path / "out" / "lab" / "ledger.json" for f in (folder, other))
    assert here.read_text() == there.read_text()
    assert classroom("teardown", other.file)["exit_code"] == 0 and cloud.leftovers() == []


def test_a_machine_that_lost_its_tag_is_an_error_and_keeps_its_guards(
    folder: ClassFolder,
    cloud: LabCloud,
    classroom: Classroom,
    computer: Callable[[ClassFolder], ClassFolder],
) -> None:
    classroom("provision", folder.file)
    lost = untag(cloud)
    seen = classroom("status", computer(folder).file)
    assert seen["exit_code"] == 1 and any(lost in p for p in seen["problems"])
    done = classroom("teardown", computer(folder).file)
    assert done["exit_code"] == 1 and any(f"--resources {lost}" in line for line in done["lines"])
    assert GUARDS <= kinds(cloud) and cloud.running() == [lost]
    ec2 = boto3.client("ec2", region_name="us-east-2")
    ec2.create_tags(Resources=[lost], Tags=[{"Key": "trainium-labs:class", "Value": "lab"}])
    cloud.settle()
    assert classroom("teardown", folder.file)["exit_code"] == 0 and cloud.leftovers() == []


def test_a_region_that_was_disabled_is_blind_and_keeps_the_guards(
    folder: ClassFolder,
    cloud: LabCloud,
    classroom: Classroom,
    computer: Callable[[ClassFolder], ClassFolder],
) -> None:
    folder.write(regions=["us-west-2"])
    classroom("provision", folder.file)
    cloud.post("set", regions=["us-east-1", "us-east-2"])
    used = computer(folder)
    used.write(regions=["us-east-2"])
    seen = classroom("status", used.file)
    assert seen["exit_code"] == 1 and any("us-west-2 is not enabled" in p for p in seen["blind"])
    with pytest.raises(ClassroomError, match="us-west-2 is not enabled.*alice.*second machine"):
        classroom("provision", used.file)
    done = classroom("teardown", used.file)
    assert done["exit_code"] == 1 and any("us-west-2" in line for line in done["lines"])
    cloud.post("set", regions=["us-east-1", "us-east-2", "us-west-2"])
    assert GUARDS <= kinds(cloud) and len(cloud.running()) == 2
    cloud.post("advance", seconds=86400)
    assert cloud.running() == [], "so the night stopped them"
    assert classroom("teardown", used.file)["exit_code"] == 0 and cloud.leftovers() == []


def test_a_region_that_the_class_never_used_is_no_one_s_business(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    classroom("provision", folder.file)
    cloud.post("set", regions=["us-east-1", "us-east-2"])
    folder.write(regions=["us-east-2"])
    assert classroom("teardown", folder.file)["exit_code"] == 0 and cloud.leftovers() == []


def test_an_account_that_keeps_no_parameters_has_its_class_all_the_same(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    cloud.post("set", denied=["ssm:PutParameter"])
    made = classroom("provision", folder.file)
    assert made["exit_code"] == 0 and any("Only this computer" in w for w in made["warnings"])
    cloud.post("set", denied=["ssm:GetParametersByPath"])
    seen = classroom("status", folder.file)
    assert seen["exit_code"] == 1 and any("knows of the class" in b for b in seen["blind"])
    done = classroom("teardown", folder.file)
    assert done["exit_code"] == 1 and any("parameters in us-east-1" in p for p in done["lines"])
    cloud.post("set", denied=[])
    assert classroom("teardown", folder.file)["exit_code"] == 0 and cloud.leftovers() == []


def test_teardown_of_a_wrong_name_says_which_classes_there_are(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom, tmp_path: Path
) -> None:
    classroom("provision", folder.file)
    done = classroom("teardown", tmp_path / "empty" / "class.yml", name="lap")
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


@pytest.mark.sample(3)
@pytest.mark.parametrize("command", ["provision", "extend"])
@pytest.mark.parametrize("change", CHANGES)
def test_what_takes_away_from_a_class_asks_and_status_says_what_differs(
    folder: ClassFolder,
    cloud: LabCloud,
    classroom: Classroom,
    laptop: Callable[..., ClassFolder],
    change: str,
    command: str,
) -> None:
    classroom("provision", folder.file)
    changes, words = CHANGES[change]
    stale = laptop(folder)
    stale.write(**changes)
    mark = len(cloud.writes())
    with pytest.raises(ClassroomError, match=f"{words}.*from arn:aws.*confirm-changes"):
        classroom(command, stale.file)
    assert len(cloud.writes()) == mark, "nothing was done"
    seen = classroom("status", stale.file)
    assert seen["exit_code"] == 1 and any("in class.yml" in p for p in seen["problems"])
    assert classroom("status", folder.file)["exit_code"] == 0
    classroom(command, stale.file, confirm_changes=True)
    assert classroom("status", stale.file)["exit_code"] == 0
    assert classroom("status", folder.file)["exit_code"] == 1, "now the other file is the stale one"


def test_what_adds_to_a_class_asks_nothing(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    classroom("provision", folder.file)
    folder.write(teardown="2027-02-15", regions=["us-east-2", "us-west-2", "us-east-1"])
    folder.write(budget={"per_student_usd": 70, "class_usd": 140})
    assert classroom("status", folder.file)["exit_code"] == 1, "status says that AWS has less"
    assert classroom("provision", folder.file)["exit_code"] == 0
    assert classroom("status", folder.file)["exit_code"] == 0


def test_a_class_from_before_the_ledger_is_known_by_its_schedules_and_its_budget(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    classroom("provision", folder.file)
    ssm = boto3.client("ssm", region_name="us-east-1")
    for r in cloud.leftovers():
        if r["kind"] == "parameter":
            ssm.delete_parameter(Name=r["id"])
    shutil.rmtree(folder.path / "out")
    folder.write(teardown="2026-11-30")
    with pytest.raises(ClassroomError, match="2026-11-30.*in class.yml, 2027-01-15"):
        classroom("provision", folder.file)
    folder.write(teardown="2027-01-15", budget={"per_student_usd": 50, "class_usd": 99})
    with pytest.raises(ClassroomError, match="cap of the class"):
        classroom("provision", folder.file)


def test_a_detached_disk_of_the_class_s_time_is_named_with_the_command_that_ends_it(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    ec2 = boto3.client("ec2", region_name="us-east-2")
    old = ec2.create_volume(AvailabilityZone="us-east-2a", Size=9)["VolumeId"]
    cloud.post("advance", seconds=60)
    classroom("provision", folder.file)
    new = ec2.create_volume(AvailabilityZone="us-east-2a", Size=100)["VolumeId"]
    cloud.settle()
    done = classroom("teardown", folder.file)
    assert done["exit_code"] == 0 and f"delete-volume --region us-east-2 --volume-id {new}" in str(
        done["summary"]
    )
    assert old not in done["summary"] and {r["id"] for r in cloud.leftovers()} == {old, new}


def test_a_network_interface_in_the_class_s_group_is_named_with_the_command_that_ends_it(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    classroom("provision", folder.file)
    ec2 = boto3.client("ec2", region_name="us-east-2")
    (group,) = (
        r["id"]
        for r in cloud.leftovers()
        if r["kind"] == "security-group" and r["region"] == "us-east-2"
    )
    subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    card = ec2.create_network_interface(SubnetId=subnet, Groups=[group])["NetworkInterface"]
    card_id = card["NetworkInterfaceId"]
    cloud.settle()
    cloud.fault("DeleteSecurityGroup", code="DependencyViolation", status=400, times=1000)
    done = classroom("teardown", folder.file)
    command = f"delete-network-interface --region us-east-2 --network-interface-id {card_id}"
    assert done["exit_code"] == 1 and any(command in line for line in done["lines"])


@pytest.mark.sample(1)
@pytest.mark.parametrize("text", ["{", "[1]", '{"i-1": {}}'])
def test_a_ledger_that_somebody_garbled_is_a_sentence(
    folder: ClassFolder,
    cloud: LabCloud,
    classroom: Classroom,
    laptop: Callable[..., ClassFolder],
    text: str,
) -> None:
    classroom("provision", folder.file)
    ssm = boto3.client("ssm", region_name="us-east-1")
    name = next(r["id"] for r in cloud.leftovers() if "/machines/" in r["id"])
    ssm.put_parameter(Name=name, Value=text, Overwrite=True)
    other = laptop(folder)
    seen = classroom("status", other.file)
    assert seen["exit_code"] == 1 and any("is garbled" in b for b in seen["blind"])
    done = classroom("teardown", other.file)
    assert done["exit_code"] == 1 and any("is garbled" in line for line in done["lines"])
    assert {"role", "budget", "parameter"} <= kinds(cloud)
    ssm.delete_parameter(Name=name)
    assert classroom("teardown", folder.file)["exit_code"] == 0 and cloud.leftovers() == []
