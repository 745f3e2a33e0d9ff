"""Solutions between markers, and the stubs that students get instead.

    # BEGIN SOLUTION step=2 section="2. nki_transpose"
    ...
    # END SOLUTION

`section` is the heading of the lab's README that says what to write; `stub` replaces the default
stub, which raises a sentence with both, the function and its file. Whatever is not exactly this
(an END without a BEGIN, a region in a region, an unknown key) is an error with its line: a typo
must not publish an answer.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

#: How the message of a stub begins; testers know by it that a step is not started.
NOT_WRITTEN = "is not written yet"
_MARKER = re.compile(r"^(\s*)#\s*(BEGIN|END)\s+SOLUTION\b(.*)$")
_ALMOST = re.compile(r"#.*\b(begin|end|beginning|start|stop)\b\W*\bsolutions?\b", re.IGNORECASE)
_FUNCTION = re.compile(r"^(\s*)def (\w+)\(")
_KEYS = ("step", "section", "stub")


class MarkerError(Exception):
    """The markers of a file are not in order; the text names file and line."""


@dataclass(frozen=True)
class Region:
    """A solution: its lines, the first one's number (from 1), and what its marker says."""

    file: str
    line: int
    step: int
    section: str
    stub: str
    lines: tuple[str, ...]


def default_stub(step: int, section: str, function: str, file: str) -> str:
    """Return the statement that stands for a solution that is not written.

    It names the function and its file: a lab may have a file of kernels for each dialect.
    """
    todo = f"write {function} in {file}; " if function else f"it belongs in {file}; "
    where = f"see '{section}' in README.md" if section else "see README.md"
    return (
        f"raise NotImplementedError(\n    {f'step {step} {NOT_WRITTEN}: {todo}'!r}\n    {where!r})"
    )


def _options(text: str, place: str) -> tuple[int, str, str | None]:
    """Return (step, section, stub) of a BEGIN marker."""
    values: dict[str, str] = {}
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise MarkerError(f"{place}: {error}") from None
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or key not in _KEYS:
            raise MarkerError(f"{place}: {word!r} is not one of {', '.join(_KEYS)}=...")
        if key in values:
            raise MarkerError(f"{place}: {key} is given twice")
        values[key] = value
    if not values.get("step", "").isdigit():
        raise MarkerError(f"{place}: BEGIN SOLUTION needs step=NUMBER")
    return int(values["step"]), values.get("section", ""), values.get("stub")


def split(text: str, file: str) -> tuple[str, list[Region]]:
    """Return the text with stubs for its solutions, and the solutions.

    Raises MarkerError for markers that are nested, unclosed, stray or misspelt.
    """
    kept: list[str] = []
    regions: list[Region] = []
    begun: tuple[int, str, int, str, str | None] | None = None
    inside: list[str] = []
    function = ""  # the one around a line: the last that was defined
    for number, line in enumerate(text.splitlines(), 1):
        place = f"{file}:{number}"
        marker = _MARKER.match(line)
        if not marker:
            if _ALMOST.search(line):
                raise MarkerError(
                    f"{place}: this looks like a marker but is not one: {line.strip()}"
                )
            (inside if begun else kept).append(line)
            if not begun and (defined := _FUNCTION.match(line)):
                function = defined[2]
            continue
        indent, word, rest = marker.groups()
        if word == "BEGIN":
            if begun:
                raise MarkerError(f"{place}: BEGIN SOLUTION inside the one of line {begun[0]}")
            begun = (number, indent, *_options(rest, place))
            inside = []
        else:
            if not begun:
                raise MarkerError(f"{place}: END SOLUTION without a BEGIN")
            if rest.strip():
                raise MarkerError(f"{place}: END SOLUTION takes nothing, here {rest.strip()!r}")
            first, indent, step, section, stub = begun
            around = function if indent else ""
            if stub is None:
                stub = default_stub(step, section, around, file.rpartition("/")[2])
            kept += [indent + part for part in stub.replace("\\n", "\n").splitlines()]
            regions.append(Region(file, first, step, section, stub, tuple(inside)))
            begun = None
    if begun:
        raise MarkerError(f"{file}:{begun[0]}: BEGIN SOLUTION is never ended")
    return "\n".join(kept) + "\n", regions


def split_file(path: Path) -> tuple[str, list[Region]]:
    """Return what `split` does of a file."""
    return split(path.read_text(encoding="utf-8"), f"{path.parent.name}/{path.name}")
