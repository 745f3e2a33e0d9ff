"""Courses: what hangs together, in one row each, and who decides which row holds.

AWS runs kernels of `neuronxcc.nki` with SDKs up to 2.29, and kernels of `import nki` from 0.3 on
Trainium 2 and 3 only. So generation, dialect, release, SDK and machine are one choice.
"""

from __future__ import annotations

import functools
import os
import re
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from .errors import NkiError

VARIABLE = "NKI_COURSE"
TARGETS_VARIABLE = "NKISIM_TARGETS"  # supported, or all: what AWS does not run, too
#: the word that means no course: each kernel decides, and what AWS does not run is simulated
NONE = "none"
#: the keys of [tool.nkisim] in pyproject.toml
KEYS = ("course",)


@dataclass(frozen=True)
class Course:
    """A row: one generation, and what a class on it uses.

    `dialect`: as in `nkisim.dialect` ("beta1": neuronxcc.nki, "nki": import nki); `release`: of
    NKI, as NKI_LANGUAGE_VERSION has it ("" for neuronxcc.nki, which has none of its own); `sdk`:
    the Neuron SDK to pin; `kernels`: the file of a lab that students edit.
    """

    name: str
    target: str
    dialect: str
    package: str
    release: str
    sdk: str
    instance_type: str
    kernels: str
    audience: str

    @property
    def title(self) -> str:
        """Return the course in a few words: "trn2 (Trainium 2, import nki)"."""
        package = "import nki" if self.package == "nki" else self.package
        return f"{self.name} (Trainium {self.target[3:]}, {package})"


#: Releases and SDKs that go together: release notes of NKI and of the Neuron SDK.
COURSES = {
    course.name: course
    for course in (
        Course(
            name="trn1",
            target="trn1",
            dialect="beta1",
            package="neuronxcc.nki",
            release="",
            sdk="2.26.1",
            instance_type="trn1.2xlarge",
            kernels="kernels.py",
            audience="classes on Trainium 1, the cheapest machine with a chip",
        ),
        Course(
            name="trn2",
            target="trn2",
            dialect="nki",
            package="nki",
            release="0.7",
            sdk="2.33.0",
            instance_type="trn2.3xlarge",
            kernels="kernels_nki.py",
            audience="classes on Trainium 2, and whoever writes for a current SDK",
        ),
        Course(
            name="trn3",
            target="trn3",
            dialect="nki",
            package="nki",
            release="0.7",
            sdk="2.33.0",
            instance_type="trn3.48xlarge",  # of the Neuron driver; EC2 documents no size or price
            kernels="kernels_nki.py",
            audience="whoever writes for Trainium 3; its times are not calibrated",
        ),
    )
}
#: the course that a kernel's dialect stands for where none is chosen; the first is the labs'
OF_DIALECT = {"beta1": COURSES["trn1"], "nki": COURSES["trn2"]}
#: (dialect, generation) that no SDK runs. NKI FAQ of SDK 2.29 and later: Trainium 2 and 3.
NOT_RUN = {
    ("nki", "trn1"): "AWS runs kernels of import nki on Trainium 2 and 3 only: "
    '"NKI 0.3.0 kernels are not supported on Trn1/Inf2" (release notes of SDK 2.29).',
}


@dataclass(frozen=True)
class Choice:
    """A course that was chosen, or None, and who chose it: "NKI_COURSE", "pyproject.toml" ..."""

    course: Course | None
    why: str
    insists: bool = False  # on what AWS does not run: the word `none`


def find(name: str, origin: str = "--course") -> Choice:
    """Return the choice that a word stands for; raise NkiError NKI-T02 for other words."""
    word = name.strip().lower()
    if word == NONE:
        return Choice(None, origin, insists=True)
    if word not in COURSES:
        close = get_close_matches(word, COURSES, n=1)
        raise NkiError(
            "NKI-T02",
            f"There is no course {name!r}" + (f"; did you mean {close[0]!r}?" if close else "."),
            given=f"{origin} = {name}",
        ).nowhere()
    return Choice(COURSES[word], origin)


def chosen(name: str | None = None, start: str | os.PathLike[str] | None = None) -> Choice:
    """Return the course that holds, and who decided.

    The order: `name` (the flag --course), the variable NKI_COURSE, `course` below [tool.nkisim] in
    the nearest pyproject.toml at or above `start` (default: the working folder). Where
    none of them does, the course of the choice is None, and the dialect of each kernel decides
    (`OF_DIALECT`).
    Raises: NkiError NKI-T02 for a course that there is not.
    """
    if name:
        return find(name)
    if asked := os.environ.get(VARIABLE, "").strip():
        return _selected if _selected and asked == _word(_selected) else find(asked, VARIABLE)
    if not _heeded:
        return Choice(None, "")
    word, file = _of_folder(os.fspath(start) if start is not None else os.getcwd())
    return find(word, file) if word else Choice(None, "")


#: the generation that --target of a command asked for, "" where no flag did
flag_target = ""
_selected: Choice | None = None  # by select(): the variable alone does not say who decided


def _word(choice: Choice) -> str:
    return choice.course.name if choice.course else NONE


def select(name: str | None = None, start: str | os.PathLike[str] | None = None) -> Choice:
    """Return the choice, and set the environment so that this process and its children follow."""
    global _selected
    choice = chosen(name, start)
    if choice.why:
        os.environ[VARIABLE] = _word(choice)
        _selected = choice
    if choice.insists:
        os.environ[TARGETS_VARIABLE] = "all"
    return choice


def runs(dialect: str, target: str) -> bool:
    """Return whether AWS runs kernels of a dialect ("beta1", "nki") on a generation ("trn1").

    True for every pair where the course `none` insists (NKISIM_TARGETS=all).
    """
    insists = os.environ.get(TARGETS_VARIABLE) == "all" or chosen().insists
    return insists or (dialect, target) not in NOT_RUN


def target_of(dialect: str) -> tuple[str, str]:
    """Return (generation, why) for a kernel of a dialect where no target is given.

    Raises: NkiError NKI-T03 for a kernel of another dialect than the course's.
    """
    choice = chosen()
    course = choice.course
    if course is None:
        own = OF_DIALECT[dialect]
        return own.target, f"the default for kernels of {own.package}"
    fits(dialect)
    return course.target, f"course {course.name}, {choice.why}"


def instead(target: str, dialect: str) -> str:
    """Return the course that an explicit target is chosen over, as the end of a reason, or ""."""
    choice = chosen()
    course = choice.course
    if course is None or (course.target == target and course.dialect == dialect):
        return ""
    return f", instead of the course {course.name} ({choice.why})"


def fits(dialect: str) -> None:
    """Raise NkiError NKI-T03 if the chosen course writes another dialect than this one."""
    choice = chosen()
    if choice.course is not None and choice.course.dialect != dialect:
        raise NkiError(
            "NKI-T03",
            f"The course {choice.course.title} is chosen, and the kernel is written in "
            f"{OF_DIALECT[dialect].package}: SDK {choice.course.sdk} does not run it.",
            given=f"course {choice.course.name}, chosen by {choice.why}",
        ).nowhere()


_heeded = True


def heed_files(on: bool) -> None:
    """Read pyproject.toml, or not: what lies beside a submission must not decide how it is judged.

    `nkisim.be_strict` turns it off.
    """
    global _heeded
    _heeded = on


@functools.lru_cache(maxsize=64)
def _of_folder(folder: str) -> tuple[str, str]:
    """Return (course, file) of the nearest pyproject.toml that has [tool.nkisim], or ("", "")."""
    here = Path(folder).resolve()
    for path in (p / "pyproject.toml" for p in (here, *here.parents)):
        try:
            table = _table(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            continue
        if table is None:
            continue  # of another tool's; a folder above may have ours
        for key in table:
            if key not in KEYS:
                raise NkiError(
                    "NKI-T02",
                    f"[tool.nkisim] has no key {key!r}",
                    limit=f"keys: {', '.join(KEYS)}",
                    given=f"{path}: {key} = {table[key]!r}",
                ).nowhere()
        return str(table.get("course", "")), str(path)
    return "", ""


def _table(text: str) -> dict[str, Any] | None:
    """Return [tool.nkisim] of a pyproject.toml, None if it has none or is no TOML."""
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10: strings are all that the table has
        match = re.search(r"^\[tool\.nkisim\][^\n]*\n((?:(?!\[).*\n?)*)", text, re.M)
        lines = re.findall(r"^\s*([\w-]+)\s*=\s*[\"'](.*?)[\"']", match[1], re.M) if match else []
        return dict(lines) if match else None
    try:
        table = tomllib.loads(text).get("tool", {}).get("nkisim")
    except tomllib.TOMLDecodeError:
        return None
    return table if isinstance(table, dict) else None
