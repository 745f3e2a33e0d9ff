"""The commands of AWS_SETUP.md and docs/aws-teardown.md work as written, against the fake cloud."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from classroom.aws import problems
from classroom.guards import policies
from classroom.spec import instance_types
from conftest import INFRA, public_key
from labcloud.client import LabCloud

ROOT = INFRA.parent
DOCUMENTS = ("AWS_SETUP.md", "docs/aws-teardown.md")


def blocks(name: str) -> list[str]:
    """Return the shell blocks that a document marks for testing."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return re.findall(r"<!-- test -->\n```sh(?: needs-aws)?\n(.*?)```", text, re.S)


def test_the_documents_mark_their_commands() -> None:
    assert len(blocks("AWS_SETUP.md")) >= 4 and len(blocks("docs/aws-teardown.md")) >= 3


def edit_as_a_lone_student(folder: Path, key: str) -> None:
    """Do what step 4 says to a student with a credit code: one row, own budget and address."""
    (folder / "roster.csv").write_text(f"student,email,public_key\nalice,alice@example.edu,{key}\n")
    text = (folder / "class.yml").read_text(encoding="utf-8")
    for old, new in (
        ("class_usd: 100", "class_usd: 50"),
        ("[203.0.113.0/24]", "[203.0.113.7/32]"),
        ("contact: staff@example.edu", "contact: alice@example.edu"),
    ):
        assert old in text
        text = text.replace(old, new)
    (folder / "class.yml").write_text(text, encoding="utf-8")


@pytest.mark.full
@pytest.mark.parametrize("who", ["staff", "lone student"])
def test_every_command_of_the_documents_works(cloud: LabCloud, tmp_path: Path, who: str) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id_ed25519.pub").write_text(public_key(1) + " mine\n")
    shutil.copytree(INFRA / "examples", home / "my-class")
    if who == "staff":
        (home / "password").write_text("a long enough password\n")
    else:  # brings a key, so that nothing has to be encrypted
        edit_as_a_lone_student(home / "my-class", public_key(1))
    environ = {
        **os.environ,
        **cloud.in_its_time,
        "HOME": str(home),
        **({"ANSIBLE_VAULT_PASSWORD_FILE": str(home / "password")} if who == "staff" else {}),
        "ANSIBLE_LOCAL_TEMP": str(tmp_path / "ansible"),
    }
    last = ""
    for document in DOCUMENTS:
        for block in blocks(document):
            for command in block.strip().splitlines():
                done = subprocess.run(
                    ["bash", "-c", command],
                    cwd=ROOT,
                    env=environ,
                    capture_output=True,
                    text=True,
                    timeout=300,
                    stdin=subprocess.DEVNULL,
                )
                # by name alone, from a computer that knows nothing of a class that is gone already
                gone = "--name" in command and "it is gone" in " ".join(done.stdout.split())
                assert done.returncode == (1 if gone else 0), (
                    f"{document}: {command}\n{done.stdout}\n{done.stderr}"
                )
                cloud.settle()
                last = last if gone else done.stdout
    assert "0 billable resources of class nki-fall" in last and cloud.leftovers() == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_paths_and_playbooks_that_the_documents_name_exist(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    for path in re.findall(r"infra/[\w./-]+\.(?:yml|txt|csv|py)", text):
        assert (ROOT / path).exists(), path


def test_every_answer_that_the_setup_explains_has_a_sentence_of_ours() -> None:
    text = (ROOT / "AWS_SETUP.md").read_text(encoding="utf-8").split("## When AWS says no")[1]
    codes = set(re.findall(r"`([A-Z][a-z]\w+[a-z])`", text)) - {"Unsupported"}
    codes = {c for c in codes if not c.startswith(("Deep", "ADDRESS"))}
    assert {"VcpuLimitExceeded", "PendingVerification"} <= codes and codes <= set(
        problems.AWS_ERRORS
    ), codes - set(problems.AWS_ERRORS)


REFUSALS = (  # what AWS may say to a new account, and to an organisation's
    "no default network",
    "service control policy",
    "public addresses",
    "`iam:CreateRole`",
    "`budgets:...`",
    "SES is in the sandbox",
    "its services know a new role",
    "L-7A658B76",
    "AWS ended it while it started",
    "`AddressLimitExceeded`",
    "ahead of AWS's",
    "second machine",
)


@pytest.mark.parametrize("refusal", REFUSALS)
def test_every_refusal_has_its_row(refusal: str) -> None:
    text = (ROOT / "AWS_SETUP.md").read_text(encoding="utf-8").split("## When AWS says no")[1]
    rows = [line for line in text.splitlines() if line.startswith("| ") and refusal in line]
    assert rows and all(line.count(" | ") == 2 for line in rows), rows


def test_the_policy_names_every_service_that_the_code_calls() -> None:
    called = set()
    for file in (INFRA / "classroom").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        called |= set(re.findall(r'(?:client|pages)\(\s*"([a-z0-9-]+)"', text))
    assert {"ec2", "iam", "budgets", "sts"} <= called, called
    prefixes = {"service-quotas": "servicequotas", "sesv2": "ses"}  # in the names of actions
    called = {prefixes.get(s, s) for s in called}
    document = str(policies.policy())
    named = {*re.findall(r"'([a-z0-9-]+):[A-Z*]", document), "sts"}
    assert called <= named, called - named


def test_prices_in_the_documents_are_those_of_the_table() -> None:
    prices = instance_types.price_table()
    machine, disk = prices["on_demand_hour"]["trn1.2xlarge"], 150 * prices["gp3_gib_month"]
    setup, teardown = ((ROOT / d).read_text(encoding="utf-8") for d in DOCUMENTS)
    for text in (
        f"(${machine:.2f} an hour for the machine",
        f"the disk costs ${disk * 12 / 365:.2f} a day",
        f"${machine:.2f} an hour for each running trn1.2xlarge",
        f"${disk:.0f} a month for each 150 GiB disk",
        f"${prices['public_ipv4_hour']:g} an hour for each public address",
        f"${prices['alarm_month']:.2f} a month for each idle alarm",
        f"${prices['automation_step']:g} for each automation step",
        f"${prices['action_budget_day']:.2f} a day\nfor each budget with an action",
    ):
        assert text in setup, text
    assert f"costs ${prices['alarm_month']:.2f} a month" in teardown
    assert f"${disk:.0f} a month for its disk" in teardown
    assert "removes what costs nothing" not in teardown, "alarms cost"


def test_the_setup_says_what_only_root_can_do_and_where_blocks_are_sold() -> None:
    setup = (ROOT / "AWS_SETUP.md").read_text(encoding="utf-8")
    assert "IAM user and role access to Billing information" in setup and "*Paid plan*" in setup
    (blocks_line,) = (line for line in setup.splitlines() if "capacity blocks in" in line)
    assert "`ap-southeast-4`" in blocks_line and "`sa-east-1`" in blocks_line
