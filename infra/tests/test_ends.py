"""Accounts as they are: each command ends clean, or with a sentence, and the exit code says which:
0 done, 1 not all of it, 2 could not run. Through the command line, as its user sees it."""

from __future__ import annotations

import json
from collections.abc import Callable

import boto3
import pytest

from classroom.cli import main
from classroom.guards import policies
from conftest import ClassFolder
from labcloud.client import LabCloud

Seen = tuple[int, str]
OPEN = ["us-east-1", "us-east-2", "us-west-2"]


class Person:
    """Type commands; hold the class that they are about."""

    def __init__(
        self,
        folder: ClassFolder,
        cloud: LabCloud,
        patch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        self.folder, self.cloud, self.patch, self.capsys = folder, cloud, patch, capsys

    def types(self, command: str, *more: str) -> Seen:
        """Run a command; return its exit code and what it printed."""
        self.patch.setenv("CLASSROOM_NOW", self.cloud.post("now")["now"])
        if command in ("provision", "teardown"):
            more = (*more, "--yes")
        code = main.main([command, str(self.folder.file), *more])
        self.cloud.settle()
        shown = self.capsys.readouterr()
        assert "Traceback" not in shown.err
        return code, " ".join((shown.out + shown.err).split())

    def ends(self, name: str = "lab") -> None:
        """Tear down; nothing may be left."""
        code, said = self.types("teardown", "--name", name, "--discard-work", name)
        assert code == 0 and f"0 billable resources of class {name}" in said, said


@pytest.fixture()
def person(
    folder: ClassFolder,
    cloud: LabCloud,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Person:
    """Return someone at a terminal, before a class of two."""
    return Person(folder, cloud, monkeypatch, capsys)


def test_the_wrong_account(person: Person, cloud: LabCloud) -> None:
    assert person.types("provision")[0] == 0
    cloud.post("set", callers={"AKIAOTHER": {"account": "999999999999"}})
    person.patch.setenv("AWS_ACCESS_KEY_ID", "AKIAOTHER")
    mark = len(cloud.log())
    for command in ("provision", "start", "stop", "status", "save-work", "teardown"):
        code, said = person.types(command)
        assert code == 2 and "999999999999, but the class lives in 123456789012" in said, command
    assert cloud.writes(mark) == []
    assert person.types("doctor")[0] == 1
    person.patch.setenv("AWS_ACCESS_KEY_ID", "AKIAFAKE")
    assert len(cloud.running()) == 2
    person.ends()


def test_a_renamed_class(person: Person, cloud: LabCloud, folder: ClassFolder) -> None:
    assert person.types("provision")[0] == 0
    folder.write(name="lab-new")
    for command in ("provision", "start", "stop", "status", "extend"):
        code, said = person.types(command)
        assert code == 2 and "brought up as lab, and a class cannot be renamed" in said, command
    assert len(cloud.running()) == 2
    person.ends("lab")
    assert person.types("provision")[0] == 0
    person.ends("lab-new")
    assert cloud.leftovers() == []


def test_a_removed_region(person: Person, cloud: LabCloud, folder: ClassFolder) -> None:
    assert person.types("provision")[0] == 0
    before = cloud.running()
    folder.write(regions=["us-west-2"])
    code, said = person.types("provision")
    assert code == 2 and "the regions: us-west-2 in class.yml, us-east-2, us-west-2 in" in said
    code, said = person.types("provision", "--confirm-changes")
    assert code == 0 and "us-east-2 is not in `regions` any more" in said and "stay" in said
    assert cloud.running() == before, "no second machine for anybody"
    (action,) = boto3.client("budgets", "us-east-1").describe_budget_actions_for_budget(
        AccountId="123456789012", BudgetName="trainium-labs.lab.class"
    )["Actions"]
    assert action["Definition"]["SsmActionDefinition"]["Region"] == "us-east-2"
    assert all(student in person.types("status")[1] for student in ("alice", "bob"))
    assert person.types("stop")[0] == 0 and cloud.running() == []
    assert person.types("start")[0] == 0 and len(cloud.running()) == 2
    person.ends()
    assert cloud.leftovers() == []


def closed(regions: list[str]) -> list[dict]:
    """Return an organisation's policies that allow some regions only, as AWS's example does."""
    free = ["iam:*", "budgets:*", "ce:*", "sts:*", "pricing:*"]
    where = {"StringNotEquals": {"aws:RequestedRegion": regions}}
    deny = {"Effect": "Deny", "NotAction": free, "Resource": "*", "Condition": where}
    return [{"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}, deny]}]


@pytest.mark.full
def test_an_organisation_that_denies_fifteen_regions(
    person: Person, cloud: LabCloud, folder: ClassFolder
) -> None:
    others = [r for r in cloud.post("all_regions") if r not in OPEN][:15]
    cloud.post("set", regions=sorted([*OPEN, *others]), organisation=closed(OPEN))
    folder.write(regions=["us-east-2", "us-west-2"])
    for command in ("doctor", "provision", "status", "stop", "start"):
        assert person.types(command)[0] == 0, command
    code, said = person.types("teardown", "--discard-work", "lab")
    assert code == 0 and "0 billable resources of class lab" in said
    assert all(r in said for r in others) and "denied to you, also to launch" in said
    assert cloud.leftovers() == []


def test_a_region_that_is_denied_after_the_class_used_it(
    person: Person, cloud: LabCloud, folder: ClassFolder
) -> None:
    assert person.types("provision")[0] == 0
    cloud.post("set", organisation=closed(["us-east-1", "us-west-2"]))
    code, said = person.types("teardown", "--discard-work", "lab")
    assert code == 1 and "us-east-2" in said and "could not be read" in said, "no proof"
    cloud.post("set", organisation=None)
    person.ends()


def test_a_least_privilege_user_with_only_the_printed_policy(
    person: Person, cloud: LabCloud, folder: ClassFolder
) -> None:
    code, said = person.types("doctor", "--policy")
    assert code == 0
    boundary, policy = (json.loads(d) for d in documents(said))
    folder.write(elastic_ip=True, market="spot")
    cloud.post("set", callers={"AKIAFAKE": {"policies": [policy]}})
    code, said = person.types("provision")
    assert code == 2 and f"boundary {policies.BOUNDARY}, which this account does not have" in said
    assert cloud.leftovers() == []
    cloud.post("set", callers={})
    iam = boto3.client("iam")
    iam.create_policy(PolicyName=policies.BOUNDARY, PolicyDocument=json.dumps(boundary))
    cloud.post("set", callers={"AKIAFAKE": {"policies": [policy]}})
    mark = len(cloud.log())
    for command in ("doctor", "provision", "status", "stop", "start", "extend"):
        assert person.types(command)[0] == 0, command
    refused = {c["op"] for c in cloud.log(mark) if c["status"] == 403}
    assert refused <= {"SimulatePrincipalPolicy"}, refused
    cloud.post("advance", seconds=26 * 3600)
    assert cloud.running() == [], "the guards act under the boundary"
    person.ends()
    left = [r for r in cloud.leftovers() if "aws-service-role" not in r["id"]]
    assert left == []


def documents(said: str) -> list[str]:
    """Return the JSON documents in a text."""
    out, decoder, at = [], json.JSONDecoder(), said.find("{")
    while at >= 0:
        _, end = decoder.raw_decode(said, at)
        out.append(said[at:end])
        at = said.find("{", end)
    return out


WRONG: dict[str, Callable[[ClassFolder], object]] = {
    "no class.yml": lambda f: f.file.unlink(),
    "a mistake in it": lambda f: f.write(regions=["mars-1"]),
    "a region that is not enabled": lambda f: f.write(regions=["eu-north-1"]),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_run_is_2_and_changes_nothing(
    person: Person, cloud: LabCloud, folder: ClassFolder, what: str
) -> None:
    WRONG[what](folder)
    code, said = person.types("provision")
    assert code == 2 and said and cloud.writes() == [] and cloud.leftovers() == []
