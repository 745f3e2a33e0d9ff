"""Exports that went through a spreadsheet, a browser or someone's hands before they got here."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from classroom.aws.problems import ClassroomError
from classroom.spec import enrolment, roster
from conftest import public_key
from test_plumbing import CANVAS, GRADESCOPE, merge, rows


def again(text: str, delimiter: str, quoting: int = csv.QUOTE_MINIMAL) -> str:
    """Return a CSV as a spreadsheet saves it."""
    out = io.StringIO()
    cells = csv.reader(io.StringIO(text.lstrip("\ufeff"), newline=""))
    csv.writer(out, delimiter=delimiter, quoting=quoting, lineterminator="\r\n").writerows(cells)
    return out.getvalue()


SAVED = {
    "as exported": CANVAS.encode(),
    "without a mark": CANVAS.lstrip("\ufeff").encode(),
    "semicolons": again(CANVAS, ";").encode("utf-8-sig"),
    "sep=": ("sep=;\r\n" + again(CANVAS, ";")).encode(),
    "Unicode text of Excel": again(CANVAS, "\t").encode("utf-16"),
    "big-endian": b"\xfe\xff" + again(CANVAS, "\t").encode("utf-16-be"),
    "everything in quotes": again(CANVAS, ",", csv.QUOTE_ALL).encode("utf-8-sig"),
    "lines of an old Mac": CANVAS.replace("\r\n", "\r").encode(),
    "empty lines and columns": ("\r\n\r\n" + CANVAS.replace("\r\n", ",,\r\n,,,\r\n")).encode(),
    "lines that end early": CANVAS.replace(",Manual Posting,,", "").replace(",,,\r", "\r").encode(),
    "spaces around": CANVAS.replace(",S1001,al123,", ",S1001,\u00a0 al123 ,").encode(),
}


@pytest.mark.parametrize("how", SAVED)
def test_an_export_saved_in_another_way_gives_the_same_roster(tmp_path: Path, how: str) -> None:
    (tmp_path / "wanted").mkdir()
    merge(tmp_path / "wanted", CANVAS)
    source = tmp_path / "export.csv"
    source.write_bytes(SAVED[how])
    enrolment.merge(tmp_path, source, "example.edu", False, False)
    assert (tmp_path / "roster.csv").read_text() == (tmp_path / "wanted/roster.csv").read_text()


def test_students_of_the_same_name_and_twice_enrolled(tmp_path: Path) -> None:
    text = (
        "First Name,Last Name,SID,Email,Role,Sections\n"
        "Ada,Lee,1,ada.lee@example.edu,Student,A\n"
        "Ada,Lee,2,ada.lee2@example.edu,Student,B\n"
        "Ada,Lee,3,Ada.Lee@Other.edu,Student,C\n"
        'Bo,"Li, Jr.\nthe second",4,bo@example.edu,Student,"A, B"\n'
        "Bo,Li,4,BO@example.edu,Student,B\n"
    )
    done = merge(tmp_path, text, domain="")
    assert done["students"] == ["ada-lee", "ada-lee-2", "ada-lee2", "bo"]
    found = {r["email"]: (s, r["section"]) for s, r in rows(tmp_path).items()}
    assert found["Ada.Lee@Other.edu"] == ("ada-lee-2", "c")
    assert found["bo@example.edu"] == ("bo", "a"), "one row, of the first of two sections"
    before = (tmp_path / "roster.csv").read_text()
    lines = text.splitlines(keepends=True)
    merge(tmp_path, lines[0] + "".join(reversed(lines[1:3])) + "".join(lines[3:]), domain="")
    assert (tmp_path / "roster.csv").read_text() == before, "ids do not depend on the order"


def test_blank_addresses_are_told_with_their_lines(tmp_path: Path) -> None:
    text = GRADESCOPE.replace("root@example.edu", "").replace("tia@example.edu", " ")
    with pytest.raises(ClassroomError, match=r"1 students .* no mail address \(lines 3\)"):
        merge(tmp_path, text, domain="")
    assert not (tmp_path / "roster.csv").exists() and not (tmp_path / "staff.csv").exists()
    lines = merge(tmp_path, GRADESCOPE.replace("tia@example.edu", ""), domain="")["lines"]
    assert "line 4: staff without a mail address, passed over" in lines
    two = 'First Name,Last Name,SID,Email,Role\n"A\nB",L,1,a@x.edu,Student\nC,D,2,,Student\n'
    with pytest.raises(ClassroomError, match=r"\(lines 4\)"):  # of the file, as an editor counts
        merge(tmp_path, two, domain="")


@pytest.mark.parametrize(
    "old, new, says",
    [
        ("al123", "1.00123E+09", "rounded the login in line 4 to 1.00123E"),
        ('"Ng, 木"', '"Ng, 木', "the quotes do not fit together"),
        ('"Ng, 木"', '"Ng, "木"', "the quotes do not fit together"),
        ("al123", "=HYPERLINK(x)@x.edu", "no mail address (lines 4)"),
        ("al123", '"a@x.edu, b@x.edu"', "no mail address (lines 4)"),
        ('"Ng, 木"', "Ng, 木", "cells are not under their headings, as if a comma"),
        ("al123", "Mu.Ng@uni.edu", "are two people with one address"),
    ],
)
def test_what_would_lose_or_change_a_student_is_refused(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    mails = CANVAS.replace("Mu.Ng", "Mu.Ng@uni.edu").replace("root", "root@uni.edu")
    with pytest.raises(ClassroomError) as caught:
        merge(tmp_path, mails.replace(old, new), domain="")
    assert says in str(caught.value) and not (tmp_path / "roster.csv").exists()


def test_a_student_who_drops_and_comes_back_has_the_same_id_and_key(tmp_path: Path) -> None:
    merge(tmp_path, CANVAS)
    file = tmp_path / "roster.csv"
    file.write_text(file.read_text().replace(".edu,,cs-149-02", f".edu,{public_key(3)},cs-149-02"))
    without = "".join(line for line in CANVAS.splitlines(keepends=True) if "Ng" not in line)
    assert merge(tmp_path, without)["dropped"] == ["mu-ng"]
    assert merge(tmp_path, CANVAS)["dropped"] == [] and rows(tmp_path)["mu-ng"]["public_key"]
    gone = merge(tmp_path, without, remove=True)
    assert gone["dropped"] == ["mu-ng"] and merge(tmp_path, CANVAS)["new"] == ["mu-ng"]


def test_a_quote_too_many_in_the_roster_loses_no_one(tmp_path: Path) -> None:
    """Read loosely, the cell of ada's key would end at the end of the file, and its first two words
    are a good key: bob, and his machine, would be gone."""
    file = tmp_path / "roster.csv"
    file.write_text(
        "student,email,public_key\n"
        f'ada,ada@example.edu,"{public_key(1)}\n'
        f"bob,bob@example.edu,{public_key(2)}\n"
    )
    students, problems = roster.read(file, "roster.csv")
    assert students == [] and "The quotes do not fit together" in problems[0].what


CELL = st.text(alphabet=st.characters(codec="utf-8"), max_size=12)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(CELL, max_size=8), max_size=8), st.booleans(), st.binary(max_size=40))
def test_whatever_comes_is_a_roster_or_a_sentence(
    tmp_path: Path, cells: list[list[str]], canvas: bool, noise: bytes
) -> None:
    head = CANVAS.splitlines()[0] if canvas else GRADESCOPE.splitlines()[0]
    for data in (
        (head + "\n" + "\n".join(",".join(row) for row in cells)).encode(),
        head.encode() + b"\n" + noise,
        noise,
    ):
        source = tmp_path / "export.csv"
        source.write_bytes(data)
        (tmp_path / "roster.csv").unlink(missing_ok=True)
        (tmp_path / "staff.csv").unlink(missing_ok=True)
        try:
            made = enrolment.merge(tmp_path, source, "example.edu", False, False)
        except ClassroomError:
            assert not (tmp_path / "roster.csv").exists()
            continue
        students, problems = roster.read(tmp_path / "roster.csv", "roster.csv")
        assert problems == [] and [s.id for s in students] == made["students"]
