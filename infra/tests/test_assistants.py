"""Assistants: staff.csv, whose machines they get into, and what they are given to get there. That a
key opens a machine, and no longer does when its owner has left, is tried in test_hosts.py."""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from classroom.aws.problems import BadClass, ClassroomError
from classroom.fleet import hostkeys
from classroom.fleet.inventory import Machine
from classroom.spec import assistants, class_file
from classroom.spec.run import Run
from classroom.students import pages
from conftest import ClassFolder, public_key
from labcloud.client import LabCloud
from test_plumbing import CANVAS, GRADESCOPE, merge

ID = "i-0123456789abcdef0"


def staff(folder: ClassFolder, *rows: str) -> class_file.ClassSpec:
    """Write staff.csv and read the class."""
    folder.staff(*rows)
    return class_file.load(folder.file)


@pytest.fixture()
def sections(folder: ClassFolder) -> ClassFolder:
    """Return a class of three in two sections."""
    folder.sections = {"alice": "lab-01", "bob": "lab-02"}
    folder.write(["alice", "bob", "carol"])
    return folder


def test_an_assistant_gets_in_where_all_students_are_of_their_sections(
    sections: ClassFolder,
) -> None:
    loaded = staff(
        sections,
        f"tia@example.edu,ta,lab-01,{public_key(50)} tia@laptop",
        f"uma@example.edu,TA,lab-01 lab-02,{public_key(51)}",
        f"ina@example.edu,instructor,,{public_key(52)}",
        f"all@example.edu,ta,all,{public_key(53)}",
        f"non@example.edu,ta,,{public_key(54)}",
        "key@example.edu,ta,all,",
    )

    def into(*students: str) -> list[str]:
        return [a["name"] for a in assistants.of_machine(loaded, students)]

    assert into("alice") == ["all", "ina", "tia", "uma"]
    assert into("bob") == into("alice", "bob") == ["all", "ina", "uma"]
    assert into("carol") == ["all", "ina"], "she is of no section"
    assert into("alice", "who-left") == ["all", "ina"]
    assert into() == ["all", "ina"]
    keys = {a["key"] for a in assistants.of_machine(loaded, ["alice"])}
    assert public_key(50) in keys, "without the comment, which may hold a name"
    without = assistants.of_machine(loaded, ["alice"], [public_key(50), public_key(52)])
    assert [a["name"] for a in without] == ["all", "uma"], "these open it already"
    sections.write(mode="cluster", cluster={"nodes": 2}, sdk="2.29.0", regions=["us-east-2"])
    loaded = class_file.load(sections.file)
    assert into("node-01") == ["all", "ina"], "on a node everybody works"


@pytest.mark.parametrize(
    "row, says",
    [
        ("tia,ta,lab-01,", "staff.csv:2: The e-mail address is missing or not an address"),
        ("tia@example.edu,boss,lab-01,", "The role 'boss' is not known. Write ta or instructor"),
        ("tia@example.edu,ta,Übung,", "A section is not of a-z, 0-9 and -"),
        ("tia@example.edu,ta,all,ssh-dss AAAA", "'ssh-dss' is not accepted"),
        ("tia@example.edu,ta,all,-----BEGIN OPENSSH PRIVATE KEY-----", "a PRIVATE key"),
        ("a@example.edu,ta,,\nA@example.edu,ta,,", "staff.csv:3: The e-mail address is the same"),
        (f"a@b.edu,ta,,{public_key(5)}\nc@b.edu,ta,,{public_key(5)}", "The public key is the same"),
    ],
)
def test_mistakes_in_the_list_of_staff_are_said_with_their_line(
    folder: ClassFolder, row: str, says: str
) -> None:
    with pytest.raises(BadClass) as caught:
        staff(folder, row)
    assert says in str(caught.value)


def test_a_list_of_something_else_is_refused(folder: ClassFolder) -> None:
    (folder.path / "staff.csv").write_text("name,phone\nT,1\n")
    with pytest.raises(BadClass, match="not that of a list of staff. Write `email,role"):
        class_file.load(folder.file)
    (folder.path / "staff.csv").write_bytes("email,role\nä".encode("latin-1"))
    with pytest.raises(BadClass, match="staff.csv:1: The list of staff is not UTF-8"):
        class_file.load(folder.file)
    (folder.path / "staff.csv").unlink()
    assert class_file.load(folder.file).assistants == []


def test_two_of_the_same_name_have_ids_of_their_own(folder: ClassFolder) -> None:
    loaded = staff(folder, "t.a@x.edu,ta,,", "t-a@y.edu,ta,,", "???@z.edu,ta,,", "!@z.edu,,,")
    assert [a.id for a in loaded.assistants] == ["t-a", "t-a-2", "staff", "staff-2"]


def test_a_later_export_keeps_keys_and_names_who_left(tmp_path: Path) -> None:
    lines = merge(tmp_path, GRADESCOPE, domain="")["lines"]
    assert "3 staff are in staff.csv, 3 without a public_key (no SSH), 1 without a section" in (
        " ".join(lines)
    )
    file = tmp_path / "staff.csv"
    file.write_text(
        file.read_text().replace("cs-149-02,", f"cs-149-02,{public_key(9)}")
        + f"old@example.edu,ta,all,{public_key(8)}\n"
    )

    def rows() -> dict[str, dict[str, str]]:
        with file.open(newline="") as opened:
            return {r["email"]: r for r in csv.DictReader(opened)}

    both = GRADESCOPE.replace(
        "Tia,Assist,,tia@example.edu,TA,CS 149-02",
        'Tia,Assist,,TIA@example.edu,TA,"CS 149-02, CS 149-03"',
    )
    lines = merge(tmp_path, both, domain="")["lines"]
    assert "1 are not in the export and were kept" in " ".join(lines)
    found = rows()
    assert found["tia@example.edu"]["public_key"] == public_key(9)
    assert found["tia@example.edu"]["section"] == "cs-149-02 cs-149-03"
    assert "old@example.edu" in found
    before = file.read_text()
    merge(tmp_path, CANVAS)
    assert file.read_text() == before, "Canvas exports no staff, so it says nothing of them"
    merge(tmp_path, both, domain="", remove=True, check=True)
    assert file.read_text() == before
    merge(tmp_path, both, domain="", remove=True)
    assert "old@example.edu" not in rows()
    file.write_text("email,role\nnobody,ta\n")
    with pytest.raises(ClassroomError, match="staff.csv has mistakes; nothing was written"):
        merge(tmp_path, both, domain="")


def test_what_an_assistant_is_given_reaches_their_machines_and_no_others(
    sections: ClassFolder,
) -> None:
    row = f"tia@example.edu,ta,lab-01,{public_key(50)}"
    loaded = staff(sections, row, "key@example.edu,ta,all,")
    kind = ("203.0.113.7", "trn1.2xlarge", "on-demand", "2026-11-21")
    machines = [
        Machine(
            n,
            "us-east-2",
            f"{ID[:-1]}{k}",
            "running",
            "us-east-2a",
            *kind,
            tags={"trainium-labs:owner": n},
        )
        for k, n in enumerate(["alice", "bob"])
    ]
    hostkeys._keep(loaded.out, machines[0].id, public_key(60))
    hostkeys._keep(loaded.out, machines[1].id, public_key(61))
    run = Run(loaded, None)  # type: ignore[arg-type]
    assert pages.write_staff(run, machines) == ["staff/tia/config", "staff/tia/known_hosts"]
    given = loaded.out / "staff/tia"
    assert public_key(61) not in (given / "known_hosts").read_text()
    # OpenSSH itself reads it
    config = subprocess.run(
        ["ssh", "-G", "-F", str(given / "config"), "lab-alice"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert f"hostkeyalias {machines[0].id}" in config and "user ubuntu" in config
    assert "hostname 203.0.113.7" in config and "lab-bob" not in (given / "config").read_text()
    assert pages.write_staff(run, machines) == [], "nothing has changed"
    assert pages.write_staff(Run(staff(sections), None, check=True), machines)  # type: ignore[arg-type]
    assert given.exists()
    pages.write_staff(Run(staff(sections), None), machines)  # type: ignore[arg-type]
    assert not list(given.iterdir()), "who has left has nothing there"


def test_pages_writes_it(
    sections: ClassFolder, cloud: LabCloud, classroom: Callable[..., dict[str, Any]]
) -> None:
    staff(sections, f"tia@example.edu,ta,lab-02,{public_key(50)}")
    classroom("provision", sections.file)
    classroom("pages", sections.file)
    text = (sections.path / "out/lab/staff/tia/config").read_text()
    assert "Host lab-bob\n" in text and "alice" not in text
