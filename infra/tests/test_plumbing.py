"""What a course begins with: answers, and rosters as Canvas and Gradescope export them."""

from __future__ import annotations

import csv
import datetime as dt
import io
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from classroom.aws.problems import ClassroomError
from classroom.cli import main
from classroom.spec import enrolment, interview, roster
from conftest import Lab, public_key

NOW = dt.datetime(2026, 11, 21, tzinfo=dt.timezone.utc)
# As Canvas writes them: a byte order mark, the row of points indented, its own student at the end,
# sections joined in words, names with commas in quotes.
CANVAS = (
    "\ufeffStudent,ID,SIS User ID,SIS Login ID,Section,vecadd (481),conv2d (482),Current Score\r\n"
    ",,,,,Manual Posting,,\r\n"
    "    Points Possible,,,,,100.00,100.00,(read only)\r\n"
    '"Lovelace, Ada",11,S1001,al123,CS 149-01,90.00,,90.00\r\n'
    '"Ng, 木",12,S1002,Mu.Ng,CS 149-02 and CS 149-03,80.00,,80.00\r\n'
    '"O\'Neil, Bo, Jr.",13,S1003,root,CS 149-01,,,\r\n'
    '"Student, Test",99,,6d1f8c5b2e,CS 149-01,,,\r\n'
)
GRADESCOPE = (
    "\ufeffFirst Name,Last Name,SID,Email,Role,Sections\r\n"
    "Ada,Lovelace,S1001,al123@example.edu,Student,CS 149-01\r\n"
    "Bo,O'Neil,S1003,root@example.edu,Student,\r\n"
    "Tia,Assist,,tia@example.edu,TA,CS 149-02\r\n"
    "Rea,Der,,rea@example.edu,Reader,\r\n"
    "Ina,Struct,,ina@example.edu,Instructor,\r\n"
)


def merge(folder: Path, text: str, **more: Any) -> dict[str, Any]:
    """Merge an export."""
    source = folder / "export.csv"
    source.write_bytes(text.encode())
    given = {"domain": "example.edu", "remove": False, "check": False, **more}
    return enrolment.merge(folder, source, **given)


def rows(folder: Path) -> dict[str, dict[str, str]]:
    """Return the rows of roster.csv."""
    with (folder / "roster.csv").open(newline="") as file:
        return {r["student"]: r for r in csv.DictReader(file)}


def test_a_canvas_export_becomes_a_roster(tmp_path: Path) -> None:
    done = merge(tmp_path, CANVAS)
    assert done["students"] == ["al123", "mu-ng", "s-root"], "no points, no test student"
    found = rows(tmp_path)
    assert found["al123"]["email"] == "al123@example.edu"
    assert found["mu-ng"]["section"] == "cs-149-02" and found["s-root"]["section"] == "cs-149-01"
    students, problems = roster.read(tmp_path / "roster.csv", "roster.csv")
    assert problems == [] and len(students) == 3
    assert not any("Lovelace" in line or "木" in line for line in done["lines"])


def test_canvas_has_no_addresses_and_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ClassroomError, match=r"lines 4, 5, 6\).*--mail-domain") as caught:
        merge(tmp_path, CANVAS, domain="")
    assert "Lovelace" not in str(caught.value) and not (tmp_path / "roster.csv").exists()
    mails = CANVAS.replace("al123", "al123@uni.edu").replace("Mu.Ng", "Mu.Ng@uni.edu")
    merge(tmp_path, mails.replace("root", "root@uni.edu"), domain="")
    assert rows(tmp_path)["mu-ng"]["email"] == "Mu.Ng@uni.edu"


def test_a_gradescope_export_brings_staff_with_their_roles(tmp_path: Path) -> None:
    done = merge(tmp_path, GRADESCOPE, domain="")
    assert done["students"] == ["al123", "s-root"]
    with (tmp_path / "staff.csv").open(newline="") as file:
        staff = {r["email"]: (r["role"], r["section"]) for r in csv.DictReader(file)}
    assert staff == {
        "tia@example.edu": ("ta", "cs-149-02"),
        "rea@example.edu": ("ta", ""),
        "ina@example.edu": ("instructor", ""),
    }
    whole = GRADESCOPE.replace("First Name,Last Name", "Name,Nothing").replace(
        "Sections", "Section"
    )
    assert merge(tmp_path, whole)["new"] == []


def test_who_is_known_keeps_id_and_key_and_the_dropped_stay_until_someone_says_so(
    tmp_path: Path,
) -> None:
    (tmp_path / "roster.csv").write_text(
        f"student,email,public_key\nada,AL123@example.edu,{public_key(7)}\n"
        f"gone,gone@example.edu,{public_key(8)}\n"
    )
    done = merge(tmp_path, CANVAS)
    assert done["dropped"] == ["gone"] and "kept: gone" in " ".join(done["lines"])
    found = rows(tmp_path)
    assert found["ada"]["public_key"] == public_key(7) and "al123" not in found
    assert found["gone"]["public_key"] == public_key(8)
    again = merge(tmp_path, CANVAS)
    assert again["new"] == [] and rows(tmp_path) == found, "a second time changes nothing"
    assert merge(tmp_path, CANVAS, remove=True, check=True)["dropped"] == ["gone"]
    assert rows(tmp_path) == found
    merge(tmp_path, CANVAS, remove=True)
    assert "gone" not in rows(tmp_path)


@pytest.mark.parametrize(
    "text, says",
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("a,b,c\n1,2,3\n", "neither of Canvas nor of Gradescope"),
        ("Student,ID,SIS Login ID,Section\n    Points Possible,,,\n", "holds no students"),
        ("First Name,Last Name,SID,Email,Role\nAda,L,1,,Student\n", "no mail address (lines 2)"),
    ],
)
def test_what_is_no_export_is_said(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ClassroomError) as caught:
        merge(tmp_path, text)
    assert says in str(caught.value) and not (tmp_path / "roster.csv").exists()
    with pytest.raises(ClassroomError, match="cannot be read"):
        enrolment.merge(tmp_path, tmp_path / "none.csv", "", False, False)
    (tmp_path / "latin.csv").write_bytes("Student,ID,Section\nÄ".encode("latin-1"))
    with pytest.raises(ClassroomError, match="not UTF-8"):
        enrolment.merge(tmp_path, tmp_path / "latin.csv", "", False, False)


@given(st.lists(st.text(max_size=40), max_size=30))
def test_every_login_gives_an_id_of_its_own_that_linux_and_aws_take(logins: list[str]) -> None:
    taken: set[str] = set()
    for login in logins:
        made = enrolment.identity(enrolment.Person("x", login, "", ""), taken)
        assert roster.STUDENT.fullmatch(made) and made not in taken
        assert made not in roster.RESERVED and not made.startswith(roster.RESERVED_START)
        taken.add(made)


def test_a_section_is_a_limit_and_a_tag(lab: Lab) -> None:
    lab.folder.sections = {"alice": "Lab-01", "bob": "lab-02"}
    lab.write(["alice", "bob"])
    lab("provision")
    tagged = {
        r["tags"]["trainium-labs:owner"]: r["tags"].get("trainium-labs:section")
        for r in lab.machines()
    }
    assert tagged == {"alice": "lab-01", "bob": "lab-02"}
    lab("stop", limit=["section:LAB-02"])
    assert len(lab.running()) == 1
    with pytest.raises(ClassroomError, match="no section lab-9.*lab-01, lab-02"):
        lab("stop", limit=["section:lab-9"])


def test_an_assistant_looks_and_stops_a_section_and_no_more(lab: Lab) -> None:
    lab.folder.sections = {"alice": "lab-01", "bob": "lab-02"}
    lab.write(["alice", "bob"], my="lambda", work_copies="s3")
    lab("provision")
    policy = lab("doctor", policy=True, assistant="lab-01")["policy"]
    with pytest.raises(ClassroomError, match="no section lab-3. The roster has: lab-01, lab-02"):
        lab("doctor", policy=True, assistant="lab-3")
    lab.post("permit", key="AKIAFAKE", policies=[policy])
    lab("status")
    assert lab("report")["files"]
    lab("stop", limit=["section:lab-01"])
    assert len(lab.running()) == 1
    refused: tuple[tuple[str, dict[str, Any]], ...] = (
        ("stop", {"limit": ["bob"]}),
        ("pages", {}),
        ("links", {"revoke": True}),
        ("restore", {}),
        ("provision", {}),
        ("extend", {}),
    )
    mark = len(lab.log())
    for command, options in refused:
        with pytest.raises(ClassroomError, match="lacks a permission"):
            lab(command, **options)
    assert lab("teardown")["exit_code"] == 1
    assert len(lab.running()) == 1 and lab.writes(mark) == []


ANSWERS = {
    "name": "nki-fall",
    "contact": "staff@example.edu",
    "ssh_cidrs": ["203.0.113.0/24"],
    "budget.class_usd": 250,
    "teardown": "2027-01-15",
    "staff_key": "staff.pub",
    "lab.repository": "https://github.com/example/labs.git",
    "lab.commit": "0" * 40,
}


def test_init_writes_a_class_from_a_file_of_answers(tmp_path: Path) -> None:
    folder = tmp_path / "class"
    folder.mkdir()
    (folder / "staff.pub").write_text(public_key(1))
    (tmp_path / "answers.yml").write_text(yaml.safe_dump(ANSWERS))
    done = interview.init(folder, str(tmp_path / "answers.yml"), NOW)
    assert done["changed"] and (folder / "roster.csv").exists()
    merge(folder, CANVAS)
    from classroom.spec import class_file

    loaded = class_file.load(folder / "class.yml", NOW)
    assert loaded.instance_type == "trn1.2xlarge" and loaded.my == "" and loaded.work_copies == ""
    assert loaded.stop_nightly == "23:30" and len(loaded.students) == 3
    with pytest.raises(ClassroomError, match="exists"):
        interview.init(folder, str(tmp_path / "answers.yml"), NOW)


def test_wrong_answers_in_a_file_are_told_all_at_once_and_write_nothing(tmp_path: Path) -> None:
    wrong = {**ANSWERS, "name": "X", "teardown": "soon", "surprise": 1}
    (tmp_path / "answers.yml").write_text(yaml.safe_dump(wrong))
    with pytest.raises(ClassroomError) as caught:
        interview.init(tmp_path / "class", str(tmp_path / "answers.yml"), NOW)
    text = str(caught.value)
    assert all(w in text for w in ("class name 'X'", "`teardown`", "`surprise`", "answers.yml: "))
    assert not (tmp_path / "class/class.yml").exists()
    with pytest.raises(ClassroomError, match="cannot be read"):
        interview.init(tmp_path / "class", str(tmp_path / "none.yml"), NOW)


def test_nothing_in_a_table_is_cut_off() -> None:
    names = ["on_demand_hour.trn1.2xlarge", "on_demand_hour.trn1.32xlarge"]
    rows = [[n, 1.5, "an hour", "from memory, " * 4, "https://example.com/" * 3] for n in names]
    out = Console(file=io.StringIO(), width=60)
    main.show({"tables": [{"columns": list("abcde"), "rows": rows}]}, out)
    text = out.file.getvalue()
    cells = "".join(line.split("│")[1].strip() for line in text.splitlines() if "│" in line)
    assert all(name in cells for name in names) and "…" not in text


def test_init_asks_again_until_an_answer_is_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "staff.pub").write_text(public_key(1))
    said = {
        "A short name": ["X!", "nki-fall"],
        "Your mail": ["nobody", "staff@example.edu"],
        "Networks": ["0.0.0.0", "203.0.113.0/24"],
        "Your public SSH": ["staff.pub"],
        "Dollars the class": ["much", "500"],
        "The day": ["2027-13-01", "2027-01-15"],
        "The lab repository": ["https://github.com/example/labs.git"],
        "Its commit": ["main", "0" * 40],
        "Machines": ["trn1", "trn1.2xlarge"],
        "Shall students": ["lambda"],
    }

    def ask(question: str) -> str:
        for start, answers in said.items():
            if question.startswith(start):
                return answers.pop(0)
        return ""

    interview.init(tmp_path, "", NOW, ask)
    output = capsys.readouterr().err
    assert "does not fit into AWS names" in output and "not a full commit id" in output
    data = yaml.safe_load((tmp_path / "class.yml").read_text())
    assert data["my"] == "lambda" and data["budget"] == {"per_student_usd": 50, "class_usd": 500}


def test_the_command_line_has_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "answers.yml").write_text(yaml.safe_dump(ANSWERS))
    folder = tmp_path / "new"
    folder.mkdir()
    (folder / "staff.pub").write_text(public_key(1))
    assert main.main(["init", str(folder), "--answers", str(tmp_path / "answers.yml")]) == 0
    (tmp_path / "canvas.csv").write_bytes(CANVAS.encode())
    call = ["roster", str(folder), "--source", str(tmp_path / "canvas.csv")]
    assert main.main([*call, "--mail-domain", "example.edu"]) == 0
    assert main.main(["check", str(folder)]) == 0
    assert "3 students, no mistakes" in capsys.readouterr().out
    assert main.main(["roster", str(folder)]) == 2
    monkeypatch.setattr("sys.stdin", None)
