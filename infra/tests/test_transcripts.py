"""Transcripts: nothing secret is in them, commands understand them, the fake is held to them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3
import pytest

from classroom.aws import rate_limit, transcripts
from classroom.aws.redact import REMOVED, Redactor
from classroom.cli import commands, main
from conftest import INFRA, ClassFolder
from labcloud.client import LabCloud
from other_tools import needs
from transcript_check import differences

FOLDER = INFRA / "transcripts"
#: transcripts of AWS itself, which users have recorded
RECORDED = sorted(FOLDER.glob("*.jsonl"))


@pytest.fixture(
    scope="module",
    params=[
        "labcloud",
        pytest.param("ministack", marks=[pytest.mark.full, needs("ministack")]),
        *[p.stem for p in RECORDED],
    ],
)
def transcript(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a transcript, of an emulator a new one."""
    if (file := FOLDER / f"{request.param}.jsonl") in RECORDED:
        return file
    file = tmp_path_factory.mktemp("recorded") / file.name
    script = Path(__file__).with_name("record_examples.py")
    environ = {k: v for k, v in os.environ.items() if k != "CLASSROOM_NOW"}  # it has its own time
    subprocess.run([sys.executable, script, request.param, file], env=environ, check=True)
    return file


def record(folder: ClassFolder, cloud: LabCloud, *words: str) -> str:
    """Run a command with --record, as a person does; return what the file holds then."""
    file = folder.path / "aws.jsonl"
    assert main.main([words[0], str(folder.file), *words[1:], "--record", str(file)]) == 0
    cloud.settle()
    return file.read_text(encoding="utf-8")


def test_nothing_that_is_secret_or_personal_is_left(
    folder: ClassFolder, cloud: LabCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A class with all that a class can have, and a student who left the roster before."""
    folder.sections = {"alice": "monday", "bobby": "friday"}
    mails = {"mail_from": "staff@uni.example.org", "contact": "chief@uni.example.org"}
    more = {"my": "lambda", "work_copies": "s3", "elastic_ip": True}
    folder.write(["alice", "bobby", "zoe"], name="fall26", **mails, **more)
    record(folder, cloud, "provision", "--yes")
    (folder.path / "aws.jsonl").unlink()
    (folder.path / "aws.jsonl.private").unlink()
    monkeypatch.setenv("CLASSROOM_NOW", cloud.post("now")["now"])
    folder.write(["alice", "bobby"], budget={"per_student_usd": 50, "class_usd": 150})
    record(folder, cloud, "pages")
    record(folder, cloud, "status")
    text = record(folder, cloud, "provision", "--yes", "--discard-work", "zoe")
    text = record(folder, cloud, "teardown", "--yes", "--discard-work", "fall26")
    function = boto3.client("lambda", "us-east-2").list_functions()["Functions"]
    assert function == []
    names = ["alice", "bobby", "zoe", "fall26", "monday", "friday", "chief", "uni.example.org"]
    names += ["123456789012", "AKIAFAKE", str(folder.path), "203.0.113"]
    rows = (folder.path / "roster.csv").read_text(encoding="utf-8").splitlines()[1:]
    public = [row.split(",")[2] for row in rows]
    names += [key.split()[1] for key in public] + [folder.data["lab"]["repository"]]
    assert [n for n in names if n in text] == []
    for pattern in (
        r"AAAA[BC]3",
        r"\b(AROA|AIDA)(?!0)",
        r"\bi-(?!0000)",
        r"\bvol-(?!0000)",
        r"@(?!example\.edu)",
        r"https://(?!0{20})[0-9a-z]+\.lambda-url",
        r"cloud-config",
        r"BEGIN [A-Z ]*PRIVATE",
    ):
        assert not re.search(pattern, text), pattern
    assert "student1" in text and "course1" in text and "section1" in text
    calls = [c for s in transcripts.read(folder.path / "aws.jsonl") for c in s["calls"]]
    made = [c for c in calls if c["operation"].startswith("GetFunction")]
    assert made and all(c["answer"].get("Environment", REMOVED) == REMOVED for c in made)
    private = folder.path / "aws.jsonl.private"
    assert private.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("key", "value", "clean"),
    [
        ("Arn", "arn:aws:sts::210987654321:assumed-role/Admin/jane.doe", "/Admin/person"),
        ("Arn", "arn:aws:iam::210987654321:user/jane", "::000000000001:user/person"),
        ("UserData", "I2Nsb3Vk", REMOVED),
        ("KeyFingerprint", "aa:bb", REMOVED),
        ("Output", "boot log", REMOVED),
        ("Value", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA host", f"ssh-ed25519 {REMOVED}"),
        ("PublicIp", "18.220.1.2", "198.51.100.1"),
        ("PublicDnsName", "ec2-18-220-1-2.us-east-2.compute.amazonaws.com", "ec2-198-51-100-1."),
        ("CidrIp", "18.220.0.0/16", "198.18.1.0/24"),
        ("CidrIp", "0.0.0.0/0", "0.0.0.0/0"),
        ("PrivateIpAddress", "172.31.4.5", "172.31.4.5"),
        ("Message", "Encoded authorization failure message: " + "aB3_" * 30, f"message: {REMOVED}"),
        (
            "PolicyDocument",
            "%7B%22Resource%22%3A%22arn%3Aaws%3Aiam%3A%3A210987654321%3Arole%22%7D",
            '{"Resource": "arn:aws:iam::000000000001:role"}',
        ),
        ("Bucket", "trainium-labs--lab--210987654321", "trainium-labs--lab--000000000001"),
        ("Body", b"notes", REMOVED),
    ],
)
def test_what_becomes_of_a_value(key: str, value: Any, clean: str) -> None:
    assert str(Redactor().clean({key: value})[key]).endswith(clean) or clean in str(
        Redactor().clean({key: value})[key]
    )


def test_the_same_thing_becomes_the_same_in_the_next_command(tmp_path: Path) -> None:
    first = Redactor()
    one = [first.clean(f"i-0{n:016x}") for n in (7, 8, 7)]
    assert one[0] == one[2] != one[1]
    first.name("alice", "student")
    first.save(tmp_path / "kept")
    later = Redactor.load(tmp_path / "kept")
    assert later.clean("i-00000000000000008") == one[1]
    assert later.named("lab-alice alice2 trainium-labs") == "lab-student1 alice2 trainium-labs"


def test_the_folder_says_what_each_file_is() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert all(f"`{path.name}`" in text for path in FOLDER.iterdir() if path.name != "README.md")


def test_the_commands_understand_what_was_recorded(
    folder: ClassFolder, transcript: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No cloud answers here but the transcript."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAFAKE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "fake")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.setattr(rate_limit, "sleep", lambda seconds: None)
    sections = transcripts.read(transcript)
    for section in sections:
        described = dict(section["class"])
        folder.write(described.pop("students"), **described)
        monkeypatch.setenv("CLASSROOM_NOW", section["at"])
        replay = transcripts.Replay(section["calls"])
        with transcripts.using(replay):
            done = commands.run(section["command"], str(folder.file), **section["options"])
        assert done.get("exit_code", 0) == 0, (section["command"], done)
        assert replay.unknown == [] and replay.unasked == [], section["command"]
    assert "0 billable resources" in done["summary"]


def test_the_fake_differs_from_a_transcript_only_as_listed(transcript: Path) -> None:
    found, asked = differences(transcript)
    known = FOLDER / f"{transcript.stem}.differences"
    listed = known.read_text(encoding="utf-8").splitlines() if known.exists() else []
    assert found == [line for line in listed if not line.startswith("#")]
    assert asked > 100


@pytest.mark.parametrize("transcript", ["labcloud"], indirect=True)
def test_another_answer_is_a_difference(transcript: Path, tmp_path: Path) -> None:
    """What the check would miss, it does not check: three changes of a transcript are found."""
    lines = transcript.read_text(encoding="utf-8").splitlines()
    changed = []
    for line in lines:
        call = json.loads(line)
        if call.get("operation") == "DescribeRegions":
            call["answer"]["Regions"] = [{**r, "Geography": "x"} for r in call["answer"]["Regions"]]
        if call.get("operation") == "GetPolicy":
            call.update(error={"Code": "NoSuchEntityException", "Message": ""}, answer={})
        if call.get("operation") == "DescribeVpcs":
            for vpc in call["answer"]["Vpcs"]:
                del vpc["IsDefault"]
        changed.append(json.dumps(call))
        if call.get("operation") == "DescribeVpcs":
            break
    (tmp_path / "t.jsonl").write_text("\n".join(changed))
    found, _ = differences(tmp_path / "t.jsonl")
    assert "ec2 DescribeRegions Regions[].Geography: there only" in found
    assert "ec2 DescribeVpcs Vpcs[].IsDefault: here only" in found
    assert "iam GetPolicy: NoSuchEntityException there, NoSuchEntity here" in found
