"""Rosters from what Canvas and Gradescope export, merged into roster.csv.

Canvas, *Grades > Export > Export Entire Gradebook*: `Student` (Last, First), `ID`, `SIS User ID`,
`SIS Login ID`, `Section`, assignments and totals; after the header a row `    Points Possible` and,
where grades are posted by hand, one of `Manual Posting`; the last student is Canvas's own,
`Student, Test`. It holds no mail addresses: the login is one, or needs the school's domain.

Gradescope, *Roster > Download Roster* or *Download Grades*: `First Name`, `Last Name` (or `Name`),
`SID`, `Email`, `Role` (Student, TA, Reader, Instructor), `Section` or `Sections`.

Who is in roster.csv keeps id and key. Who is not in the export has dropped the course, or the
export was of one section only: they stay until `--remove-dropped` is given.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..aws.problems import ClassroomError
from . import assistants
from . import roster as rosters
from .roster import EMAIL, RESERVED, RESERVED_START, STUDENT

CANVAS = ("student", "id", "section")
NOT_PEOPLE = ("points possible", "manual posting", "test student", "student, test")
STAFF = {"ta": "ta", "reader": "ta", "instructor": "instructor"}
ROUNDED = re.compile(r"\d([.,]\d+)?E\+\d+", re.I)  # what Excel makes of a long number
HEADER = ("student", "email", "public_key", "section")


@dataclass(frozen=True)
class Person:
    """Hold one row of an export: login or "", address or "", section, role, and the school's
    number or ""."""

    name: str
    login: str
    email: str
    section: str
    role: str = "student"
    line: int = 0
    number: str = ""


def read(path: Path, domain: str) -> tuple[str, list[Person]]:
    """Read an export; return the course and its people. Raises ClassroomError."""
    if domain and not re.fullmatch(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+", domain):
        raise ClassroomError(
            f"--mail-domain {domain!r} is not a domain.", "Write it as example.edu."
        )
    rows = _rows(path.name, _text(path))
    if not rows:
        raise ClassroomError(f"{path.name} is empty.", "Export it again.")
    header = [c.lower() for c in rows[0][1]]
    cells = []
    for n, r in rows[1:]:
        if any(r[len(header) :]):
            raise _shifted(path.name, n)
        cells.append((n, {c: "" for c in header} | dict(zip(header, r))))
    if set(CANVAS) <= set(header) and ("sis login id" in header or "sis user id" in header):
        return "Canvas", _canvas(path.name, cells, domain)
    if "email" in header and {"sid", "role", "name", "first name"} & set(header):
        return "Gradescope", _gradescope(cells)
    raise ClassroomError(
        f"{path.name} is neither of Canvas nor of Gradescope: its columns are"
        f" {', '.join(header)[:120]}.",
        "Canvas: Grades > Export > Export Entire Gradebook. Gradescope: Roster > Download Roster."
        f" Or write {', '.join(rosters.COLUMNS)} yourself.",
    )


def _text(path: Path) -> str:
    """Return the text of a file: UTF-8, or what Excel calls Unicode text."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ClassroomError(
            f"{path} cannot be read: {error.strerror}.", "Check the name."
        ) from None
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError:
        raise ClassroomError(
            f"{path.name} is not UTF-8 text.",
            "Export it again as CSV; from Excel save it as `CSV UTF-8`.",
        ) from None


def _rows(name: str, text: str) -> list[tuple[int, list[str]]]:
    """Return (line, cells) of the rows that hold something, the header first. Spreadsheets in many
    countries write semicolons, and tabs as Unicode text."""
    start = text.lstrip("\ufeff\r\n \t")
    skipped = text[: len(text) - len(start)].count("\n")
    first = start.splitlines()[0] if start else ""
    if re.fullmatch(r"sep=.", first):  # a line for Excel alone
        start, skipped = start[len(first) :].lstrip("\r\n"), skipped + 1
        first = start.splitlines()[0] if start else ""
    mark = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(start, newline=""), delimiter=mark, strict=True)
    try:
        return [
            (reader.line_num + skipped, [c.strip() for c in row])
            for row in reader
            if any(c.strip() for c in row)
        ]
    except csv.Error as error:
        raise ClassroomError(
            f"{name}:{reader.line_num + skipped}: the quotes do not fit together ({error});"
            " rows after it would be lost, so nothing was written.",
            "Export it again.",
        ) from None


def _shifted(name: str, line: int) -> ClassroomError:
    """Return the error for a row whose cells are not under their headings."""
    return ClassroomError(
        f"{name}:{line}: the cells are not under their headings, as if a comma in a name were not"
        " in quotes; nothing was written.",
        "Put quotes around the name, or export it again.",
    )


def _canvas(file: str, cells: list[tuple[int, dict[str, str]]], domain: str) -> list[Person]:
    out = []
    for line, row in cells:
        name = row["student"]
        if not name or name.lower() in NOT_PEOPLE:
            continue
        if re.search(r"[^\d.,E+]", row["id"]):  # Canvas's own is a number, rounded or not
            raise _shifted(file, line)
        login = row.get("sis login id", "")
        if ROUNDED.fullmatch(login):
            raise ClassroomError(
                f"A spreadsheet has rounded the login in line {line} to {login}; nothing was"
                " written.",
                "Export it again, and do not save it from a spreadsheet.",
            )
        email = login if EMAIL.fullmatch(login) else f"{login}@{domain}" if login and domain else ""
        number = row.get("sis user id") or row["id"]
        out.append(
            Person(name, login.split("@")[0], email, row["section"], line=line, number=number)
        )
    return out


def _gradescope(cells: list[tuple[int, dict[str, str]]]) -> list[Person]:
    out = []
    for line, row in cells:
        name = row.get("name") or f"{row.get('first name', '')} {row.get('last name', '')}".strip()
        email, role = row.get("email", ""), (row.get("role") or "student").lower()
        section = row.get("section") or row.get("sections") or row.get("section_name") or ""
        role = STAFF.get(role, "student")
        number = row.get("sid", "")
        out.append(Person(name, email.split("@")[0], email, section, role, line, number))
    return out


def identity(person: Person, taken: set[str]) -> str:
    """Return a free student id: the login, as Linux and AWS take it."""
    base = re.sub(r"[^a-z0-9]+", "-", (person.login or person.email.split("@")[0]).lower())
    base = base.strip("-")[:28].rstrip("-")
    if not base or not base[0].isalpha():
        base = f"s{base}" if base else "student"
    if len(base) < 2 or base in RESERVED or base.startswith(RESERVED_START):
        base = f"s-{base}"[:28].rstrip("-")
    free, n = base, 2
    while free in taken:
        free, n = f"{base}-{n}", n + 1
    assert STUDENT.fullmatch(free), free
    return free


def sections_of(text: str) -> list[str]:
    """Return sections as a tag and a word of a command line take them."""
    words = (re.sub(r"[^a-z0-9]+", "-", s.lower()) for s in re.split(r",| and |;|\|", text))
    return [s for s in (f.strip("-")[:40].strip("-") for f in words) if s]


def section_of(text: str) -> str:
    """Return the first of a student's sections, or ""."""
    return next(iter(sections_of(text)), "")


@dataclass
class Enrolled:
    """Hold an export compared with roster.csv: the export's rows, new ids, students who are only in
    roster.csv, and staff."""

    rows: list[rosters.Student] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    dropped: list[rosters.Student] = field(default_factory=list)
    staff: list[Person] = field(default_factory=list)


def merge(folder: Path, source: Path, domain: str, remove: bool, check: bool) -> dict[str, Any]:
    """Merge an export into roster.csv next to class.yml; return what changed, with no names of
    people but ids."""
    kind, people = read(source, domain)
    target = folder / "roster.csv"
    old, problems = rosters.read(target, target.name) if target.exists() else ([], [])
    problems = [p for p in problems if "empty" not in p.what]
    if problems:
        raise ClassroomError(
            "\n".join(["roster.csv has mistakes; nothing was written.", *map(str, problems)])
        )
    _refuse_without_address(source.name, kind, people)
    enrolled = _enrol(source.name, people, old)
    rows = sorted(enrolled.rows + ([] if remove else enrolled.dropped), key=lambda s: s.id)
    if not rows:
        raise ClassroomError(f"{source.name} holds no students.", "Nothing was written.")
    staff, left = _staff(folder, enrolled.staff, remove)
    if not check:
        _write(target, HEADER, [(s.id, s.email, s.public_key, s.section) for s in rows])
        if staff:
            _write(folder / assistants.FILE, assistants.COLUMNS, staff)
    lines = _changes(enrolled, rows, remove)
    if enrolled.staff:
        lines.append(_dropped_staff(staff, left, remove))
        lines += [
            f"line {p.line}: staff without a mail address, passed over"
            for p in enrolled.staff
            if not EMAIL.fullmatch(p.email)
        ]
    return {
        "lines": lines,
        "new": enrolled.new,
        "dropped": [s.id for s in enrolled.dropped],
        "students": [s.id for s in rows],
        "changed": True,
        "summary": f"{kind}: {len(rows)} students in {target.name}"
        + ("; nothing was written" if check else ""),
    }


def _refuse_without_address(name: str, kind: str, people: list[Person]) -> None:
    bad = [p for p in people if p.role == "student" and not EMAIL.fullmatch(p.email)]
    if bad:
        where = ", ".join(str(p.line) for p in bad[:10]) + (" ..." if len(bad) > 10 else "")
        raise ClassroomError(
            f"{len(bad)} students of {name} have no mail address (lines {where}); nothing was"
            " written.",
            "Give the school's domain: --mail-domain example.edu."
            if kind == "Canvas"
            else "Fill in the addresses there, and export again.",
        )


def _enrol(name: str, people: list[Person], old: list[rosters.Student]) -> Enrolled:
    """Find each student of an export in the old roster, or give an id. Raises ClassroomError where
    two people have one address."""
    out = Enrolled()
    by_mail = {s.email.lower(): s for s in old}
    taken, seen = {s.id for s in old}, dict[str, Person]()
    for p in people:
        if p.role != "student":
            out.staff.append(p)
            continue
        first = seen.setdefault(p.email.lower(), p)
        if first.number and p.number and first.number != p.number:
            raise ClassroomError(
                f"{name}: lines {first.line} and {p.line} are two people with one address;"
                " nothing was written, for one of them would have no machine.",
                "Correct the login or the address, and run it again.",
            )
        if first is not p:
            continue  # enrolled in two sections: one row each in some exports
        student = by_mail.get(p.email.lower())
        if student is None:
            student = rosters.Student(identity(p, taken), p.email)
            taken.add(student.id)
            out.new.append(student.id)
        out.rows.append(replace(student, section=section_of(p.section)))
    out.dropped = [s for s in old if s.email.lower() not in seen]
    return out


def _changes(found: Enrolled, rows: list[rosters.Student], remove: bool) -> list[str]:
    """Return a line each for who is new, who is not in the export, and the sections."""
    lines = [f"new: {', '.join(found.new)}"] if found.new else []
    if found.dropped:
        gone = ", ".join(s.id for s in found.dropped)
        lines.append(
            f"removed: {gone}. Their machines end with the next provision, after their work is"
            " saved."
            if remove
            else f"not in the export, kept: {gone}. If they have dropped the course, run this again"
            " with --remove-dropped."
        )
    sections = sorted({s.section for s in rows if s.section})
    if sections:
        lines.append(f"sections: {', '.join(sections)} (--limit section:{sections[0]})")
    return lines


def _staff(
    folder: Path, helpers: list[Person], remove: bool
) -> tuple[list[tuple[str, ...]], list[str]]:
    """Return the rows of staff.csv after an export, and the addresses that are not in it. Keys are
    kept, and sections where the export has none; an export without staff says nothing of them."""
    if not helpers:
        return [], []
    old, problems = assistants.read(folder / assistants.FILE)
    if problems:
        raise ClassroomError(
            "\n".join(["staff.csv has mistakes; nothing was written.", *map(str, problems)])
        )
    rows = {a.email: (a.role, " ".join(sorted(a.sections)), a.public_key) for a in old}
    named: dict[str, set[str]] = {}
    for p in helpers:
        email = p.email.lower()
        if not EMAIL.fullmatch(email):
            continue
        named.setdefault(email, set()).update(sections_of(p.section))
        _, sections, key = rows.get(email, ("", "", ""))
        rows[email] = (p.role, " ".join(sorted(named[email])) or sections, key)
    left = sorted(set(rows) - set(named))
    for email in left if remove else ():
        del rows[email]
    return [(email, *rest) for email, rest in sorted(rows.items())], left


def _dropped_staff(staff: list[tuple[str, ...]], left: list[str], remove: bool) -> str:
    text = f"{len(staff)} staff are in staff.csv"
    if keyless := sum(not key for *_, key in staff):
        text += f", {keyless} without a public_key (no SSH)"
    if nowhere := sum(role != "instructor" and not where for _, role, where, _ in staff):
        text += f", {nowhere} without a section (no machine; write sections, or all)"
    if left:
        text += f"; {len(left)} are not in the export and were " + ("removed" if remove else "kept")
    return text


def _write(path: Path, header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    part = path.with_suffix(".part")
    part.write_text(out.getvalue(), encoding="utf-8")
    part.replace(path)
