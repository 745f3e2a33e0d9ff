"""The assistants of a class: staff.csv, and which machines each of them may log in to.

`staff.csv` stands next to class.yml: `email`, `role` (ta or instructor), `section` (several with
spaces, or `all`; an instructor has all), `public_key`. `roster` writes the first three from an
export of Gradescope; the keys are asked for. An assistant gets into a machine as the staff do, as
`ubuntu`, where every student of the machine is of the assistant's sections: a user who is `ubuntu`
reads all that is there. Who has no section, or no key, gets into none.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..aws.problems import Problem
from .roster import EMAIL, Student, csv_rows, key_problem

if TYPE_CHECKING:
    from .class_file import ClassSpec

FILE = "staff.csv"
COLUMNS = ("email", "role", "section", "public_key")
ROLES = ("ta", "instructor")
ALL = "all"
SECTION = re.compile(r"[a-z0-9-]{1,40}")


@dataclass(frozen=True)
class Assistant:
    """Hold one row; `id` names the key on machines, `public_key` may be empty."""

    id: str
    email: str
    role: str
    sections: frozenset[str]
    public_key: str = ""

    def sees(self, students: Iterable[Student]) -> bool:
        """Return whether all of these students are of the assistant's sections."""
        have = {s.section for s in students}
        return (
            self.role == "instructor"
            or ALL in self.sections
            or (bool(have) and have <= self.sections)
        )


def read(path: Path) -> tuple[list[Assistant], list[Problem]]:
    """Read staff.csv; return the good rows and every mistake. A class without the file has none."""
    problems: list[Problem] = []

    def bad(line: int, what: str, remedy: str) -> None:
        problems.append(Problem(path.name, line, what, remedy))

    try:
        rows = csv_rows(path, "The list of staff", bad)
    except FileNotFoundError:
        return [], []
    if rows is None:
        return [], problems
    header = [c.strip().lower() for c in (rows[0][1] if rows else [])]
    wrong = [c for c in header if c and c not in COLUMNS]
    if wrong or "email" not in header:
        bad(1, "The header is not that of a list of staff.", f"Write `{','.join(COLUMNS)}`.")
        return [], problems
    assistants: list[Assistant] = []
    seen: dict[str, int] = {}
    for line, cells in rows[1:]:
        if not any(c.strip() for c in cells):
            continue
        row = {c: "" for c in COLUMNS} | dict(zip(header, (c.strip() for c in cells)))
        email, role = row["email"].lower(), row["role"].lower() or "ta"
        sections = frozenset(re.split(r"[\s,;|]+", row["section"].lower())) - {""}
        before = len(problems)
        if not EMAIL.fullmatch(email):
            bad(line, "The e-mail address is missing or not an address.", "Write name@example.edu.")
        if role not in ROLES:
            bad(line, f"The role {role[:20]!r} is not known.", f"Write {' or '.join(ROLES)}.")
        if any(not SECTION.fullmatch(s) for s in sections):
            bad(line, "A section is not of a-z, 0-9 and -.", "Write them as lab-01 lab-02, or all.")
        if row["public_key"]:
            if problem := key_problem(row["public_key"]):
                bad(line, *problem)
            row["public_key"] = " ".join(row["public_key"].split()[:2])
        for value, what in ((email, "e-mail address"), (row["public_key"], "public key")):
            if value and value in seen:
                bad(line, f"The {what} is the same as in line {seen[value]}.", "One row for each.")
            elif value:
                seen[value] = line
        if len(problems) == before:
            name = _id(email, {a.id for a in assistants})
            assistants.append(Assistant(name, email, role, sections, row["public_key"]))
    return assistants, problems


def _id(email: str, taken: set[str]) -> str:
    base = re.sub(r"[^a-z0-9]+", "-", email.split("@")[0]).strip("-")[:28] or "staff"
    names = itertools.chain([base], (f"{base}-{k}" for k in itertools.count(2)))
    return next(n for n in names if n not in taken)


def of_machine(
    spec: ClassSpec, names: Iterable[str], without: Iterable[str] = ()
) -> list[dict[str, str]]:
    """Return [{name, key}] of who gets into the machine of these students. `without` are keys that
    open it already: theirs who are also staff, or students of this machine."""
    here, known = list(names), set(without)
    return [
        {"name": a.id, "key": a.public_key}
        for a in sorted(spec.assistants, key=lambda a: a.id)
        if a.public_key and a.public_key not in known and gets_into(spec, a, here)
    ]


def gets_into(spec: ClassSpec, one: Assistant, names: Iterable[str]) -> bool:
    """Return whether an assistant gets into the machine of these students."""
    if spec.cluster:  # all students work on every node
        return one.sees(spec.students)
    by_id = {s.id: s for s in spec.students}
    return one.sees([by_id.get(n) or Student(n, "") for n in names])  # left: of no section


def staff_key(given: str, folder: Path) -> tuple[str, tuple[str, str] | None]:
    """Read the public key that class.yml names; return it, and what is wrong with it."""
    path = Path(given).expanduser()
    try:
        text = (path if path.is_absolute() else folder / path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        remedy = "Make one with `ssh-keygen -t ed25519`, or name another .pub file."
        return "", (f"The staff key {given!r} cannot be read.", remedy)
    if mistake := key_problem(text):
        problem = mistake[0].replace("The key", "The staff key")
        return "", (problem, "Name the .pub file of an ed25519 key.")
    return " ".join(text.split()[:2]), None
