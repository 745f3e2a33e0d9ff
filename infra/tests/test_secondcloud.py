"""The class's life on a cloud that others wrote: ministack, unmodified, behind a proxy that answers
what it lacks (secondcloud/README.md lists each answer)."""

from __future__ import annotations

import datetime as dt
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from classroom.cli import commands
from classroom.spec import tags
from conftest import INFRA, ClassFolder
from link_class import ask, changed
from other_tools import needs
from secondcloud import answers
from secondcloud.cloud import SecondCloud

pytestmark = [pytest.mark.full, needs("ministack")]
REGION = "us-east-2"
COPY = INFRA / "roles/work_copies/files/trainium-work-copy"


@pytest.fixture(scope="module")
def second() -> Iterator[SecondCloud]:
    """Run one emulator for the file."""
    with SecondCloud() as running:
        yield running


@pytest.fixture()
def made(second: SecondCloud, folder: ClassFolder, monkeypatch: pytest.MonkeyPatch) -> ClassFolder:
    """Return a class of two with all that a class can have; boto3 talks to the emulator, whose
    clock is the real one."""
    for key, value in second.environ.items():
        monkeypatch.setenv(key, value)
    monkeypatch.delenv("CLASSROOM_NOW")
    monkeypatch.setenv("CLASSROOM_ATTEMPTS", "2")
    end = dt.date.today() + dt.timedelta(weeks=8)
    folder.write(teardown=end.isoformat(), my="lambda", work_copies="s3", elastic_ip=True)
    return folder


def run(folder: ClassFolder, command: str, **options: Any) -> dict[str, Any]:
    """Run a command."""
    if command in ("provision", "teardown"):
        options["discard_work"] = "lab"
    return commands.run(command, str(folder.file), **options)


def states(folder: ClassFolder) -> set[str]:
    """Return the states of the class's machines, as the emulator tells them."""
    found = boto3.client("ec2", REGION).describe_instances(
        Filters=[{"Name": f"tag:{tags.CLASS}", "Values": [folder.data["name"]]}]
    )
    return {i["State"]["Name"] for r in found["Reservations"] for i in r["Instances"]}


def links(folder: ClassFolder, cloud: SecondCloud) -> dict[str, str]:
    """Write the pages; return student -> link, at the address where the emulator answers it."""
    run(folder, "pages")
    out = {}
    for student in folder.students:
        page = (folder.path / f"out/lab/{student}.md").read_text(encoding="utf-8")
        (link,) = re.findall(r"<(https://[^>]+)>", page)
        parts = urllib.parse.urlsplit(link)
        name = (parts.hostname or "").split(".")[0]
        out[student] = f"{cloud.upstream}/_aws/lambda-url/{name}/?{parts.query}"
    return out


def machine_of(student: str) -> dict[str, Any]:
    """Return a student's machine."""
    found = boto3.client("ec2", REGION).describe_instances(
        Filters=[
            {"Name": f"tag:{tags.OWNER}", "Values": [student]},
            {"Name": "instance-state-name", "Values": ["running", "stopped"]},
        ]
    )
    (machine,) = [i for r in found["Reservations"] for i in r["Instances"]]
    return machine


def test_a_class_is_made_stopped_started_and_removed(
    second: SecondCloud, made: ClassFolder, tmp_path: Path
) -> None:
    first = run(made, "provision")
    assert first["exit_code"] == 0 and len(first["launched"]) == 2, first
    assert "AWS asks $1.11 in us-east-2" in "\n".join(first["lines"]), first
    again = run(made, "provision")
    assert again["exit_code"] == 0 and again["launched"] == [], again
    assert "2 machines, 2 running" in run(made, "status")["summary"]
    run(made, "stop")
    assert states(made) == {"stopped"}
    assert run(made, "start")["exit_code"] == 0 and states(made) == {"running"}

    students_open_their_links(second, made)
    a_machine_copies_its_work(second, tmp_path)

    gone = run(made, "teardown")
    assert gone["exit_code"] == 0 and states(made) <= {"terminated"}, gone
    looked = run(made, "teardown")
    assert looked["exit_code"] == 0 and "0 billable resources" in looked["summary"], looked
    left = boto3.client("s3", REGION).list_buckets()["Buckets"]
    assert not [b for b in left if "--lab--" in b["Name"]]


def students_open_their_links(second: SecondCloud, made: ClassFolder) -> None:
    """Open links whose function the emulator really runs, from the archive that was deployed."""
    alice = links(made, second)["alice"]
    looked = ask(alice)
    assert looked["facts"]["state"] == "running", looked
    stop = {"do": "stop", "t": looked["ticket"]}
    assert ask(alice, stop)["status"] == 200
    assert machine_of("alice")["State"]["Name"] == "stopped"
    assert machine_of("bob")["State"]["Name"] == "running"
    assert ask(alice, stop)["status"] == 409, "the same request again"
    assert ask(changed(alice, i=machine_of("bob")["InstanceId"]))["status"] == 403
    run(made, "links", revoke=True)
    assert ask(alice)["status"] == 403
    assert ask(links(made, second)["alice"])["status"] == 200


def a_machine_copies_its_work(second: SecondCloud, tmp_path: Path) -> None:
    """Run the machines' own program: what it copies is in the class's bucket."""
    place = {t["Key"]: t["Value"] for t in machine_of("bob")["Tags"]}[tags.COPIES]
    bucket, _, prefix = place.removeprefix("s3://").partition("/")
    home = tmp_path / "home"
    (home / "labs").mkdir(parents=True)
    (home / "labs/notes.txt").write_text("three tiles\n")
    settings = {"bucket": bucket, "prefix": prefix, "region": REGION, "user": "root"}
    settings |= {"student": "bob", "home": str(home), "state": str(tmp_path / "state.json")}
    (tmp_path / "work.json").write_text(json.dumps(settings))
    environ = {
        **os.environ,
        "TRAINIUM_WORK_SETTINGS": str(tmp_path / "work.json"),
        "TRAINIUM_WORK_LOCK": str(tmp_path / "lock"),
    }
    done = subprocess.run(
        [sys.executable, str(COPY), "--last"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    archive = boto3.client("s3", REGION).get_object(Bucket=bucket, Key=f"{prefix}/bob.tar.gz")
    with tarfile.open(fileobj=io.BytesIO(archive["Body"].read())) as packed:
        (notes,) = [m for m in packed.getmembers() if m.name.endswith("notes.txt")]
        found = packed.extractfile(notes)
        assert found and found.read() == b"three tiles\n"


def play(folder: ClassFolder, name: str, *more: str) -> str:
    """Run a playbook; return what it printed."""
    done = subprocess.run(
        ["ansible-playbook", f"infra/playbooks/{name}.yml", "-e", f"class={folder.file}", *more],
        cwd=INFRA.parent,
        env={
            **os.environ,
            "CLASSROOM_SSH": "false",
        },
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_playbooks_run_a_class(second: SecondCloud, made: ClassFolder) -> None:
    made.write(my="", work_copies="")
    yes = ("-e", "yes=true", "-e", "discard_work=lab")
    assert "2 machines, 2 new" in play(made, "provision", *yes)
    assert "2 machines, 2 running" in play(made, "status")
    play(made, "stop", "--limit", "alice")
    assert machine_of("alice")["State"]["Name"] == "stopped"
    assert machine_of("bob")["State"]["Name"] == "running"
    ended = play(made, "teardown", *yes)
    assert "0 billable resources" in ended
    assert f"amazon.aws found nothing that bills in {REGION}" in ended


def test_the_readme_lists_each_answer_and_each_is_needed(second: SecondCloud) -> None:
    """Runs last in this file: an answer that no call asked for is taken out."""
    text = (INFRA / "tests/secondcloud/README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` `([^`]+)` \| (.+?) \| (.+?) \|$", text, re.M)
    assert rows == [(*key, a.what, a.reason) for key, a in answers.ANSWERS.items()]
    asked = {(c["service"], c["op"]) for c in second.log}
    assert set(answers.ANSWERS) <= asked, set(answers.ANSWERS) - asked
    by_proxy = [c for c in second.log if c["by"] == "proxy"]
    assert len(by_proxy) * 4 < len(second.log), "the emulator answers most"
