"""Saved work of the students: archives with size and checksum, and the rule that no machine which
holds work is deleted without one.

The rule is asked where machines are ended (teardown, a student removed, a region left), not in the
commands that lead there, so that no command can forget it.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..aws.problems import ClassroomError
from ..fleet.inventory import Machine

FRESH_MINUTES = 60  # so old an archive of a running machine may be


@dataclass(frozen=True)
class Archive:
    """Hold one archive: its student, machine, place, size and checksum."""

    instance: str
    student: str
    file: str
    size: int
    sha256: str
    at: str


def sha256(path: Path) -> str:
    """Return the checksum of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


class Shelf:
    """Hold the archives of a class in out/<class>/work, listed in manifest.json."""

    _lock = threading.Lock()  # of all shelves: each student's fetch opens its own, side by side

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def manifest(self) -> Path:
        """Return the file that lists the archives."""
        return self.folder / "manifest.json"

    def all(self) -> list[Archive]:
        """Return what the manifest lists; [] also when it cannot be read, for then nothing is
        proven."""
        try:
            return [Archive(**a) for a in json.loads(self.manifest.read_text(encoding="utf-8"))]
        except (OSError, ValueError, TypeError):
            return []

    def find(self, instance: str, student: str) -> Archive | None:
        """Return the archive of a student's work on a machine."""
        return next((a for a in self.all() if (a.instance, a.student) == (instance, student)), None)

    def name(self, instance: str, student: str) -> str:
        """Return a file name; one that holds another machine's work is not taken."""
        plain = f"{student}.tar.gz"
        taken = any(a.file == plain and a.instance != instance for a in self.all())
        return f"{student}-{instance}.tar.gz" if taken else plain

    def keep(self, part: Path, instance: str, student: str, checksum: str, at: str) -> Archive:
        """Give a whole archive its name and list it in the manifest; raise OSError. An archive of
        the same machine that was there is replaced."""
        with self._lock:
            file = self.name(instance, student)
            archive = Archive(instance, student, file, part.stat().st_size, checksum, at)
            part.replace(self.folder / file)
            key = (instance, student)
            rest = [a for a in self.all() if (a.instance, a.student) != key]
            lines = sorted((a.__dict__ for a in [*rest, archive]), key=lambda a: a["file"])
            temporary = self.manifest.with_suffix(".tmp")
            temporary.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")
            temporary.replace(self.manifest)
        return archive

    def problem(self, machine: Machine, student: str, now: dt.datetime) -> str:
        """Return why a student's work on a machine is not safe, or ""."""
        archive = self.find(machine.id, student)
        if archive is None:
            return "no archive"
        path = self.folder / archive.file
        if not path.is_file() or path.stat().st_size != archive.size:
            return f"{path.name} is not there, or not as large as it was"
        if sha256(path) != archive.sha256:
            return f"{path.name} is damaged"
        saved = dt.datetime.fromisoformat(archive.at)
        if now - saved <= dt.timedelta(minutes=FRESH_MINUTES):
            return ""
        if machine.state == "stopped" and (ended := stopped_at(machine)) and ended <= saved:
            return ""
        return f"the archive is of {archive.at[:16]}, and the machine has run since"


def stopped_at(machine: Machine) -> dt.datetime | None:
    """Return when a machine was stopped, if AWS says so: "User initiated (2026-11-21 12:00:00
    GMT)"."""
    match = re.search(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)", machine.why)
    return dt.datetime.fromisoformat(match[1]).replace(tzinfo=dt.timezone.utc) if match else None


def names(text: str | Iterable[str]) -> frozenset[str]:
    """Return the names of --discard-work."""
    parts = text.split(",") if isinstance(text, str) else text
    return frozenset(p.strip() for p in parts if p.strip())


def unsafe(
    folder: Path,
    name: str,
    machines: Iterable[Machine],
    discard: Collection[str],
    now: dt.datetime,
) -> dict[str, str]:
    """Return machine -> why it must not be ended; the class's or a student's name in `discard`
    gives their work up."""
    shelf, out = Shelf(folder / "work"), {}
    for m in machines:
        if name in discard or m.name in discard:
            continue
        problems = {s: shelf.problem(m, s, now) for s in m.students if s not in discard}
        bad = [f"{s}: {why}" if s != m.name else why for s, why in problems.items() if why]
        if bad:
            out[m.name] = "; ".join(bad)
    return out


class WorkNotSaved(ClassroomError):
    """Refuse to end machines that hold work without a good archive here."""

    def __init__(self, name: str, found: dict[str, str]) -> None:
        reasons = "; ".join(f"{m} ({why})" for m, why in sorted(found.items()))
        super().__init__(
            f"The work on {len(found)} machines is not saved, so nothing was deleted: {reasons}.",
            "Run the same command again, which fetches it first, or give it up:"
            f" --discard-work with the students' names, or {name} for all.",
            exit_code=1,
        )


def require(
    folder: Path,
    name: str,
    machines: Iterable[Machine],
    discard: Collection[str],
    now: dt.datetime,
) -> None:
    """Raise WorkNotSaved unless every machine may be ended."""
    problems = unsafe(folder, name, machines, discard, now)
    if problems:
        raise WorkNotSaved(name, problems)


def summary(shelf: Shelf, machines: Iterable[Machine]) -> list[dict[str, Any]]:
    """Return what the manifest knows of some machines' work, for --json."""
    ids = {m.id for m in machines}
    return [a.__dict__ for a in shelf.all() if a.instance in ids]
