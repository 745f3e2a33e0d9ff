"""The two dialects of NKI that labs are written in."""

from __future__ import annotations

import json
from pathlib import Path

import nkisim

#: the file at the top of a students' repository that says what it was made of
MANIFEST = "starter.json"
#: dialect -> the file of a lab's kernels; "beta1" is `neuronxcc.nki`, "nki" is `import nki`
KERNELS = {"beta1": "kernels.py", "nki": "kernels_nki.py"}
DIALECTS = tuple(KERNELS)
PACKAGE = {"beta1": "neuronxcc.nki", "nki": "nki"}
#: dialect -> the generation that is simulated where neither a flag nor a course says one
DEFAULT_TARGET = {dialect: course.target for dialect, course in nkisim.course.OF_DIALECT.items()}


def dialect_of(stem: str) -> str:
    """Return the dialect of a file of kernels by its name without the ending."""
    return next((d for d, file in KERNELS.items() if file == f"{stem}.py"), "beta1")


def course_dialect(start: Path | None = None) -> str:
    """Return the dialect of the course, else of the students' repository around a folder, or ""."""
    course = nkisim.course.chosen(start=start).course
    if course is not None:
        return str(course.dialect)
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        try:
            dialect = json.loads((folder / MANIFEST).read_text(encoding="utf-8")).get("dialect", "")
        except (OSError, ValueError, AttributeError):
            continue
        return dialect if dialect in KERNELS else ""
    return ""


def default_dialect(start: Path | None = None) -> tuple[str, str]:
    """Return the dialect to use by default, and why: the course's, else what the SDK speaks."""
    course = course_dialect(start)
    return (
        (course, "what this course writes")
        if course
        else (nkisim.installed_dialect(), "what the SDK here speaks")
    )
