"""`init`: ask for what a class needs, or take the answers from a file, and write class.yml.

Each answer is checked as `check` does, at once, so a mistake in the first
answer shows before the tenth question.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import yaml
from pydantic import TypeAdapter, ValidationError

from ..aws.problems import BadClass, ClassroomError
from . import sdk as sdks
from .class_file import ClassSpec, _say, load

Ask = Callable[[str], str]


@dataclass(frozen=True)
class Question:
    """Hold one question: key of class.yml (dots go into a part), words, what is usual."""

    key: str
    words: str
    usual: str = ""
    many: bool = False


QUESTIONS = (
    Question("name", "A short name for the class (a-z, 0-9, -)"),
    Question("contact", "Your mail address: budget alerts go there"),
    Question("account", "The AWS account's 12 digits (empty: whatever you are signed in to)"),
    Question("regions", "Regions, the preferred first", "us-east-2 us-west-2", many=True),
    Question("instance_type", "Machines", "trn1.2xlarge"),
    Question(
        "mode", "A machine each (per-student), or several students on one (shared)", "per-student"
    ),
    Question("market", "Paid by the hour (on-demand), spot, or capacity-block", "on-demand"),
    Question("sdk", "Neuron SDK", "2.26.1"),
    Question("ssh_cidrs", "Networks that may reach port 22, as 203.0.113.0/24", many=True),
    Question("staff_key", "Your public SSH key", "~/.ssh/id_ed25519.pub"),
    Question("budget.per_student_usd", "Dollars a student may cost", "50"),
    Question("budget.class_usd", "Dollars the class may cost"),
    Question("hours_per_student", "Hours that you plan for each student", "30"),
    Question("stop_nightly", "When all machines stop at night", "23:30"),
    Question("time_zone", "Time zone", "America/New_York"),
    Question("teardown", "The day on which everything is deleted, as 2027-01-15"),
    Question("lab.repository", "The lab repository, as https://...git"),
    Question("lab.commit", "Its commit, all 40 digits (git rev-parse HEAD)"),
    Question("my", "Shall students start and stop their own machine by a link (lambda, or empty)"),
    Question("work_copies", "Shall their work be copied to a bucket (s3, or empty)"),
)
NUMBERS = ("budget.per_student_usd", "budget.class_usd", "hours_per_student")


def _typed(q: Question, text: str) -> Any:
    if q.many:
        return [part for part in text.replace(",", " ").split() if part]
    if q.key in NUMBERS:
        try:
            return float(text) if "." in text else int(text)
        except ValueError:
            return text
    if q.key == "teardown":
        try:
            return dt.date.fromisoformat(text)
        except ValueError:
            return text
    return text


def mistake(key: str, value: Any) -> str:
    """Return what is wrong with one answer, or ""."""
    first, _, rest = key.partition(".")
    model: Any = ClassSpec
    if rest:
        model, first = model.model_fields[first].annotation, rest
    field = model.model_fields[first]
    hints = (field.annotation, *(field.metadata or [None]))
    try:
        TypeAdapter(cast(Any, Annotated[hints])).validate_python(value)
    except ValidationError as error:
        problem, remedy = _say({**dict(error.errors()[0]), "loc": (first,)})
        return f"{problem} {remedy}"
    return ""


def _put(out: dict[str, Any], key: str, value: Any) -> None:
    first, _, rest = key.partition(".")
    if rest:
        out.setdefault(first, {})[rest] = value
    else:
        out[key] = value


def interview(ask: Ask, say: Callable[[str], None]) -> dict[str, Any]:
    """Ask every question until its answer is right."""
    out: dict[str, Any] = {}
    for q in QUESTIONS:
        while True:
            text = ask(f"{q.words}{f' [{q.usual}]' if q.usual else ''}: ").strip() or q.usual
            if not text and q.key in ("my", "work_copies", "account"):
                break
            value = _typed(q, text)
            wrong = mistake(q.key, value)
            if not wrong:
                _put(out, q.key, value)
                break
            say(wrong)
    if out["sdk"] and sdks.dialect_problem(sdks.normal(out["sdk"]), "neuronxcc.nki"):
        out["dialect"] = "nki"
    return out


def answers(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read answers from a YAML file: the keys of class.yml, flat or with dots. Return them with
    what is usual for the others, and that alone."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ClassroomError(f"{path} cannot be read: {error.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ClassroomError(f"{path.name} is not YAML: {error}.") from None
    if not isinstance(data, Mapping):
        raise ClassroomError(f"{path.name} holds no answers.", "Write `key: value` lines.")
    out: dict[str, Any] = {}
    for key, value in data.items():
        _put(out, str(key), value)
    usual = _usual(out)
    for key, value in usual.items():
        _put(out, key, value)
    return out, usual


def _usual(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is taken for the keys that were not given."""
    out = {}
    for q in QUESTIONS:
        first, _, rest = q.key.partition(".")
        have = given.get(first)
        if q.usual and (have is None or (rest and isinstance(have, dict) and rest not in have)):
            out[q.key] = _typed(q, q.usual)
    return out


def _shown(usual: Mapping[str, Any]) -> str:
    """Return keys and values in a line."""
    return ", ".join(
        f"{key} {' '.join(value) if isinstance(value, list) else value}"
        for key, value in usual.items()
    )


def init(folder: Path, file: str, now: dt.datetime, ask: Ask | None = None) -> dict[str, Any]:
    """Write class.yml (and an empty roster.csv) into a folder; an existing class.yml stays."""
    target = folder / "class.yml"
    if target.exists():
        raise ClassroomError(f"{target} exists.", "Edit it, or name another folder.")
    if not file and ask is None and not sys.stdin.isatty():
        raise ClassroomError(
            "The questions cannot be asked here: there is no terminal.",
            "Give a file: --answers FILE.",
        )
    usual: dict[str, Any] = {}
    if file:
        given, usual = answers(Path(file).expanduser())
    else:
        given = interview(ask or input, lambda text: print(text, file=sys.stderr))
    folder.mkdir(parents=True, exist_ok=True)
    text = "# Written by `python -m classroom init`; infra/examples/class.yml explains every key.\n"
    text += yaml.safe_dump(given, sort_keys=False, allow_unicode=True)
    part = folder / "class.yml.part"
    part.write_text(text, encoding="utf-8")
    made = not (folder / "roster.csv").exists()
    lines = []
    try:
        load(part, now)
    except BadClass as error:
        problems = [p for p in error.problems if p.file != "roster.csv"]
        if problems and file:
            part.unlink()
            # the lines are those of the class.yml that would be: not of the answers
            shown = [f"{Path(file).name}: {p.what} {p.remedy}" for p in problems]
            raise ClassroomError(
                "\n".join(["The answers have mistakes; nothing was written.", *shown])
            ) from None
        lines = [str(p).replace(".part", "") for p in problems]
    part.replace(target)
    ignore = folder / ".gitignore"  # the names of a class are private
    if not ignore.exists():
        ignore.write_text("roster.csv\nstaff.csv\nout/\n", encoding="utf-8")
    if made:
        (folder / "roster.csv").write_text("student,email,public_key,section\n", encoding="utf-8")
    return {
        "changed": True,
        "lines": [
            *lines,
            *([f"Not in {Path(file).name}, so as usual: {_shown(usual)}."] if usual else []),
            *(
                [
                    "The roster is empty: `python -m classroom roster --source EXPORT.csv` fills it"
                    " from Canvas or Gradescope."
                ]
                if made
                else []
            ),
        ],
        "summary": f"{target} is written. Next: roster, check, forecast.",
    }
