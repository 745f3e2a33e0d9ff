"""Every playbook as its user runs it: --check changes nothing, --limit touches one student's."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import boto3
import pytest

from classroom.aws.problems import ClassroomError
from conftest import INFRA, ClassFolder, Classroom, Lab, public_key
from labcloud.client import LabCloud

STUDENTS = ["alice", "bob", "carol"]
YES = ("-e", "yes=true", "-e", "discard_work=lab")


def play(folder: ClassFolder, cloud: LabCloud, name: str, *more: str) -> tuple[int, str]:
    """Run a playbook from the top of the repository; return exit code and output."""
    environ = {
        **os.environ,
        **cloud.in_its_time,
        "CLASSROOM_NOW": cloud.post("now")["now"],
        "ANSIBLE_TIMEOUT": "2",
        "CLASSROOM_SSH": "false",
    }
    done = subprocess.run(
        ["ansible-playbook", f"infra/playbooks/{name}.yml", "-e", f"class={folder.file}", *more],
        cwd=INFRA.parent,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )
    cloud.settle()
    return done.returncode, done.stdout + done.stderr


def lose_alarms(folder: ClassFolder, cloud: LabCloud, classroom: Classroom) -> None:
    """Delete all idle alarms behind our back: provision makes them again."""
    names = [r["id"] for r in cloud.leftovers() if r["kind"] == "alarm"]
    boto3.client("cloudwatch", region_name="us-east-2").delete_alarms(AlarmNames=names)


def later(folder: ClassFolder, cloud: LabCloud, classroom: Classroom) -> None:
    """Give the class a later end everywhere but on its machines' tags, and another idle rule."""
    folder.write(teardown="2027-02-20")
    classroom("extend", folder.file)
    folder.write(idle={"minutes": 30})


def stop(folder: ClassFolder, cloud: LabCloud, classroom: Classroom) -> None:
    """Stop all machines."""
    classroom("stop", folder.file)


def other_keys(folder: ClassFolder, cloud: LabCloud, classroom: Classroom) -> None:
    """Change keys of staff and students in the files."""
    (folder.path / "staff.pub").write_text(public_key(77) + "\n")
    folder.keys = {"alice": public_key(78), "bob": public_key(79)}
    folder.write()


# playbook -> (what comes before, options, does it change the cloud, does it log in to machines)
CASES: dict[str, tuple[Any, tuple[str, ...], bool, bool]] = {
    "provision": (lose_alarms, YES, True, False),
    "configure": (None, (), False, True),
    "start": (stop, (), True, False),
    "stop": (None, (), True, False),
    "status": (None, (), False, False),
    "extend": (later, (), True, False),
    "rotate_keys": (other_keys, (), True, True),
    "save_work": (None, (), False, True),  # nothing answers: it ends with 2
    "teardown": (None, YES, True, False),
}


def test_every_playbook_is_in_the_table() -> None:
    assert set(CASES) == {p.stem for p in (INFRA / "playbooks").glob("*.yml")}


def files(folder: ClassFolder) -> dict[str, bytes]:
    """Return what lies in the class's folder, the inventory's own file aside."""
    found = (p for p in folder.path.rglob("*") if p.is_file() and p.name != "aws_ec2.yml")
    return {str(p): p.read_bytes() for p in found}


@pytest.mark.parametrize(
    "name", [n if n == "provision" else pytest.param(n, marks=pytest.mark.full) for n in CASES]
)
def test_check_changes_nothing_and_limit_touches_one_student(lab: Lab, name: str) -> None:
    """What happens on machines is tested on booted ones (test_hosts); here nothing answers there,
    so playbooks that log in may end with 4, unreachable."""
    before, options, changes, on_machines = CASES[name]
    lab.write(STUDENTS, elastic_ip=True)
    lab("provision")
    if before:
        before(lab.folder, lab.cloud, lab)
    good = (0, 2, 4) if on_machines else (0,)
    mark, old = len(lab.log()), files(lab.folder)

    code, output = play(lab.folder, lab.cloud, name, *options, "--check")
    assert code in good, output
    assert lab.writes(mark) == [] and files(lab.folder) == old
    code, output = play(lab.folder, lab.cloud, name, *options, "--check", "--limit", "alice")
    assert code in good and lab.writes(mark) == [] and files(lab.folder) == old, output

    others = {
        r["id"]
        for r in lab.leftovers()
        if (r["tags"] or {}).get("trainium-labs:owner") in ("bob", "carol")
    }
    assert len(others) >= 10
    code, output = play(lab.folder, lab.cloud, name, *options, "--limit", "alice")
    assert code in good, output
    touched = [c for c in lab.log()[mark:] if c["op"] in lab.writes(mark)]
    if name == "rotate_keys":
        assert touched == [], "one student's key is no key pair"
        assert play(lab.folder, lab.cloud, name)[0] in good
        assert lab.writes(mark) == ["DeleteKeyPair", "ImportKeyPair"]
        (pair,) = boto3.client("ec2", region_name="us-east-2").describe_key_pairs(
            IncludePublicKey=True
        )["KeyPairs"]
        assert pair["PublicKey"].split()[:2] == public_key(77).split()
        mark = len(lab.log())
        assert play(lab.folder, lab.cloud, name)[0] in good and lab.writes(mark) == []
        return
    assert bool(touched) is changes, [c["op"] for c in touched]
    for call in touched:
        text = json.dumps(call["params"])
        assert not any(i in text for i in others) and "bob" not in text, call
    if name == "extend":
        assert {c["op"] for c in touched} == {"PutMetricAlarm"}
    left = {r["id"] for r in lab.leftovers()}
    assert others <= left
    if name == "teardown":
        owners = {(r["tags"] or {}).get("trainium-labs:owner") for r in lab.leftovers()}
        assert "alice" not in owners


def test_one_student_cannot_be_extended_beyond_the_class(lab: Lab) -> None:
    lab("provision")
    lab.write(teardown="2027-02-20")
    mark = len(lab.log())
    with pytest.raises(ClassroomError, match="Run extend without --limit first"):
        lab("extend", limit=["alice"])
    assert lab.writes(mark) == []


@pytest.mark.parametrize("command", ["stop", "teardown"])
def test_a_shared_machine_is_not_taken_from_the_others(lab: Lab, command: str) -> None:
    lab.write(["alice", "bob", "carol"], mode="shared")
    lab("provision")
    with pytest.raises(ClassroomError, match="bob would lose it too"):
        lab(command, limit=["alice"])
    assert len(lab.running()) == 2
    lab(command, limit=["node-01"])
    assert len(lab.running()) == 1
    lab(command, limit=["carol"])  # alone on her machine
    assert lab.running() == []


def test_who_leaves_the_roster_is_not_ended_with_work_that_could_not_be_fetched(lab: Lab) -> None:
    lab.write(STUDENTS, elastic_ip=True)
    lab("provision")
    lab.write(["alice", "bob"], budget={"per_student_usd": 50, "class_usd": 150})
    mark = len(lab.log())
    code, output = play(lab.folder, lab.cloud, "provision", "-e", "yes=true", "--limit", "alice")
    assert code == 0 and lab.writes(mark) == [], output
    code, output = play(lab.folder, lab.cloud, "provision", "-e", "yes=true")
    assert lab.writes(mark) == [], "she runs, but nothing answers there"
    assert code and "nothing was deleted: carol" in output, output
    code, output = play(
        lab.folder, lab.cloud, "provision", "-e", "yes=true", "-e", "discard_work=carol"
    )
    assert code == 0 and "1 removed" in output, output


@pytest.mark.sample(1)
@pytest.mark.parametrize("broken", [False, True], ids=["class.yml is fine", "class.yml is broken"])
def test_teardown_deletes_nothing_while_no_machine_answers(lab: Lab, broken: bool) -> None:
    lab.write(STUDENTS, elastic_ip=True)
    lab("provision")
    if broken:
        lab.write(stop_nightly="late")
    before = lab.leftovers()
    code, output = play(lab.folder, lab.cloud, "teardown", "-e", "yes=true")
    assert code and "The work on 3 machines is not saved" in output, output
    assert lab.leftovers() == before
    code, output = play(lab.folder, lab.cloud, "teardown", *YES)
    assert code == 0 and lab.leftovers() == [], output


def test_a_playbook_that_cannot_list_the_machines_does_not_end_green(lab: Lab) -> None:
    lab("provision")
    lab.fault("DescribeInstances", code="RequestLimitExceeded", status=503, times=99)
    code, output = play(lab.folder, lab.cloud, "configure")
    assert code and "could not be listed" in output, output


@pytest.mark.full
def test_a_second_look_with_amazon_aws_finds_what_the_library_would_miss(
    lab: Lab, tmp_path: Path
) -> None:
    lab.write(STUDENTS, elastic_ip=True)
    lab("provision")
    kinds = ("instance", "volume", "elastic-ip")
    bills = {r["id"] for r in lab.leftovers() if r["kind"] in kinds}
    assert len(bills) == 9
    lost = next(r["id"] for r in lab.machines())
    boto3.client("ec2", "us-east-2").delete_tags(
        Resources=[lost], Tags=[{"Key": "trainium-labs:class"}]
    )
    lab.settle()
    looked = tmp_path / "second_look.yml"
    tasks = INFRA / "playbooks/tasks/second_look.yml"
    answer = {"class_name": "lab", "touched": ["us-east-2"], "ledger": {"us-east-2": [lost]}}
    looked.write_text(
        json.dumps(
            [
                {
                    "hosts": "localhost",
                    "gather_facts": False,
                    "vars": {"classroom_result": answer},
                    "tasks": [{"ansible.builtin.include_tasks": str(tasks)}],
                }
            ]
        )
    )
    done = subprocess.run(
        ["ansible-playbook", "-i", "localhost,", "-c", "local", str(looked)],
        env={
            **os.environ,
            **lab.cloud.environ,
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode, done.stdout
    assert all(id in done.stdout for id in bills), done.stdout
    label = {"Key": "trainium-labs:class", "Value": "lab"}
    boto3.client("ec2", "us-east-2").create_tags(Resources=[lost], Tags=[label])
    lab.settle()
    code, output = play(lab.folder, lab.cloud, "teardown", *YES)
    assert code == 0 and "amazon.aws found nothing that bills in us-east-2" in output, output
    assert lab.leftovers() == []
