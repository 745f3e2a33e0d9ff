"""Mails that SES refuses are said before the class begins, and counted when they are refused."""

from __future__ import annotations

import base64
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import boto3
import pytest

from conftest import ClassFolder, Classroom, Lab
from labcloud.client import LabCloud
from link_class import REGION, Class

FROM = "labs@example.edu"


@pytest.fixture()
def mailing(folder: ClassFolder, cloud: LabCloud) -> ClassFolder:
    """Return a class of two that sends mail, from an address that SES knows."""
    folder.write(["alice", "bob"], my="lambda", mail_from=FROM)
    boto3.client("sesv2", REGION).create_email_identity(EmailIdentity=FROM)
    return folder


def row(done: dict[str, Any], what: str) -> list[str]:
    """Return a row of doctor's table."""
    (found,) = [r for r in done["tables"][0]["rows"] if r[1] == what]
    return found


def test_doctor_and_provision_say_that_an_account_is_in_the_sandbox(
    mailing: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    assert row(classroom("doctor", mailing.file), "mails to students")[0] == "ok"
    cloud.post("set", sandbox=True)
    found = row(classroom("doctor", mailing.file), "mails to students")
    assert found[0] == "NO" and "sandbox" in found[2] and "production access" in found[2]
    (warning,) = [w for w in classroom("provision", mailing.file)["warnings"] if "Mails" in w]
    assert "sandbox" in warning
    cloud.post("set", denied=["ses:GetAccount"])
    again = classroom("provision", mailing.file)
    assert again["exit_code"] == 0 and not [w for w in again["warnings"] if "Mails" in w]


def test_an_address_that_ses_does_not_know_is_said(
    mailing: ClassFolder, classroom: Classroom
) -> None:
    mailing.write(mail_from="other@example.org")
    found = row(classroom("doctor", mailing.file), "mails to students")
    assert found[0] == "NO" and "other@example.org" in found[2]
    boto3.client("sesv2", REGION).create_email_identity(EmailIdentity="example.org")
    assert row(classroom("doctor", mailing.file), "mails to students")[0] == "ok", "its domain is"


def test_a_class_without_mail_asks_ses_nothing(lab: Lab) -> None:
    lab("doctor")
    lab("provision")
    assert not [c for c in lab.log() if c["service"] == "ses"]


def test_refused_mails_are_counted_in_status_until_one_arrives(
    mailing: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    made = Class(mailing, cloud, classroom)
    with made.server:
        classroom("stop", mailing.file, limit=["bob"])
        cloud.post("set", sandbox=True)
        assert made.server.invoke({"do": "warn", "what": "night"}) == {"mails": 1, "sent": 0}
        cloud.settle()
        (problem,) = [p for p in classroom("status", mailing.file)["problems"] if "Mails" in p]
        assert "1 machines" in problem and "MessageRejected" in problem and "alice" in problem, (
            problem
        )
        mark = len(cloud.log())
        made.server.invoke({"do": "warn", "what": "night"})
        assert "CreateTags" not in cloud.writes(mark), "the same is not written again"
        cloud.post("set", sandbox=False)
        assert made.server.invoke({"do": "warn", "what": "night"}) == {"mails": 1, "sent": 1}
        cloud.settle()
        assert not [p for p in classroom("status", mailing.file)["problems"] if "Mails" in p]


def test_the_function_brings_the_zone_of_its_class(lab: Lab, tmp_path: Path) -> None:
    """Lambda's image may have no time zones: here neither the system's nor a package's."""
    lab.write(["alice"], my="lambda", time_zone="America/Argentina/Ushuaia")
    lab("provision")
    found = lab.post("deployed", region=REGION, name="trainium-labs_lab_my")
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(found["zip"]))) as z:
        z.extractall(tmp_path / "code")
    asked = "import zoneinfo; print(zoneinfo.ZoneInfo('America/Argentina/Ushuaia').key)"
    environ = {**os.environ, "PYTHONTZPATH": "", "PYTHONPATH": str(tmp_path / "code")}
    done = subprocess.run(
        [sys.executable, "-S", "-c", asked], env=environ, capture_output=True, text=True
    )
    assert done.stdout.strip() == "America/Argentina/Ushuaia", done.stderr
    bare = {**environ, "PYTHONPATH": ""}
    without = subprocess.run([sys.executable, "-S", "-c", asked], env=bare, capture_output=True)
    assert without.returncode != 0, "nothing else here has it"
