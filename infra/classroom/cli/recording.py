"""`--record FILE`: one command's calls of AWS, added to a transcript without names or secrets."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from ..aws import rate_limit
from ..aws.problems import ClassroomError
from ..aws.redact import Redactor
from ..aws.transcripts import VERSION, Recorder, using
from ..spec.class_file import load


@contextlib.contextmanager
def recording(file: str, command: str, class_file: Path, options: dict[str, Any]) -> Iterator[None]:
    """Record a command to a file, which is begun or continued."""
    path = Path(file).expanduser()
    private = path.with_name(path.name + ".private")
    redactor = Redactor.load(private)
    recorder = Recorder(redactor)
    described = _class(class_file, redactor)
    given = {k: v for k, v in options.items() if v}
    head = {"transcript": VERSION, "command": command, "at": rate_limit.now().isoformat()}
    head |= {"options": redactor.clean(given), "class": redactor.clean(described)}
    try:
        with using(recorder):
            yield
    finally:
        with path.open("a", encoding="utf-8") as out:
            for entry in (head, *recorder.entries):
                out.write(json.dumps(redactor.named(entry), sort_keys=True) + "\n")
        redactor.save(private)


def _class(class_file: Path, redactor: Redactor) -> dict[str, Any]:
    """Return what class.yml says, and let the redactor know the names in it and in the roster.
    Where it is broken, names are learned from tags alone."""

    try:
        data = yaml.safe_load(class_file.read_text(encoding="utf-8"))
        spec = load(class_file, ended_ok=True)
    except (OSError, ValueError, yaml.YAMLError, ClassroomError):
        return {}
    redactor.name(spec.name, "course")
    mails = redactor.known.setdefault("mail", {})
    for n, s in enumerate(spec.students, 1):
        redactor.name(s.id, "student")
        redactor.name(s.section, "section")
        mails.setdefault(s.email, f"student{n}@example.edu")
        redactor.domain(s.email)
    redactor.domain(spec.mail_from)
    for key in ("lab", "staff_key", "allow_world", "roster", "prices"):
        data.pop(key, None)
    return {**data, "students": [s.id for s in spec.students]}
