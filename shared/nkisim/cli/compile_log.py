"""`python -m nkisim doctor --log FILE`: the errors of a compile log, the cause first.

The file may have any size and encoding: it is read in pieces, one line at a time.
"""

from __future__ import annotations

import codecs
import gzip
import io
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from nkisim.cli import document, known_errors
from nkisim.cli.known_errors import Known

_PIECE = 1 << 16  # characters of a line that are looked at together
_SHOWN = 160  # characters of a line that are shown
_UNKNOWN = 3  # lines that are shown of those without a page
_DECOR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f│┃║╎╏─━]+")
_ERROR = re.compile(
    r"\b(?:error|exception|fatal|traceback|segmentation fault|core dumped)\b|"
    r"\b\w+(?:Error|Exception)\b",
    re.I,
)
_NO_ERROR = re.compile(r"\b(?:no|0|without) (?:\w+ )?errors?\b|\berrors?[:=]\s*(?:0|none)\b", re.I)


@dataclass
class Found:
    """An error of a log: its first line, and how many lines have it."""

    known: Known
    line: int
    text: str
    count: int = 1


@dataclass
class Report:
    """What a log holds: errors with a page, causes first, and lines that no page describes."""

    found: list[Found] = field(default_factory=list)
    unknown: list[tuple[int, str]] = field(default_factory=list)
    unknown_count: int = 0
    lines: int = 0

    @property
    def exit_code(self) -> int:
        """Return 0 for a log without errors, 1 for one with errors, also such without a page."""
        return int(bool(self.found or self.unknown_count))


def command(path: str, as_json: bool) -> int:
    """Report on the log at `path`, - for standard input; return the exit code."""
    try:
        if path == "-":
            report = read(sys.stdin.buffer)
        else:
            with open(path, "rb") as file:
                report = read(file)
    except (OSError, EOFError) as error:
        why = error.strerror or error if isinstance(error, OSError) else "its end is missing"
        text = f"{path} cannot be read: {why}"
        print(f"nkisim doctor: {text}", file=sys.stderr)
        if as_json:
            document.print_json(document.document("doctor", 2, document.sentence(text)))
        return 2
    if as_json:
        document.print_json(document.document("doctor", report.exit_code, **as_object(report)))
    else:
        print(render(report))
    return report.exit_code


def read(file: IO[bytes]) -> Report:
    """Look for errors in a log."""
    report = Report()
    seen: dict[Known, Found] = {}
    before = ""
    for number, text in _lines(file):
        matches = known_errors.found_in(text)
        if not matches and before:
            # a message that goes on in the next line
            cut = len(before)
            matches = [
                m for m in known_errors.found_in(f"{before} {text}") if m.start < cut < m.end
            ]
        for match in {m.known: m for m in matches}.values():
            if match.known in seen:
                seen[match.known].count += 1
            else:
                seen[match.known] = Found(match.known, number, _excerpt(text, match))
        if not matches and _ERROR.search(text) and not _NO_ERROR.search(text):
            report.unknown_count += 1
            if len(report.unknown) < _UNKNOWN:
                report.unknown.append((number, text[:_SHOWN].strip()))
        before = text if len(text) < 2000 and not matches else ""
        report.lines = number
    report.found = sorted(seen.values(), key=lambda f: (f.known.wrapper, f.line))
    return report


def _excerpt(text: str, match: known_errors.Match) -> str:
    """Return what is shown of a line: all of it, or what surrounds the match."""
    start = max(0, min(match.start, len(text)) - _SHOWN // 4)
    return text[start if len(text) > _SHOWN else 0 :][:_SHOWN].strip()


def _lines(file: Any) -> Iterator[tuple[int, str]]:
    """Yield (number, text) of the lines of a log; a very long line comes in pieces."""
    stream: Any = io.BufferedReader(file)
    head = stream.peek(4)[:4]
    if head[:2] == b"\x1f\x8b":
        stream = io.BufferedReader(gzip.GzipFile(fileobj=stream))
        head = b""
    encoding = next(
        (
            name
            for bom, name in (
                (codecs.BOM_UTF8, "utf-8-sig"),
                (codecs.BOM_UTF16_LE, "utf-16"),
                (codecs.BOM_UTF16_BE, "utf-16"),
            )
            if head.startswith(bom)
        ),
        "utf-8",
    )
    reader = codecs.getreader(encoding)(stream, "replace")
    number, rest = 1, ""
    while piece := reader.read(_PIECE, _PIECE):
        *whole, rest = (rest + piece).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        for text in whole:
            yield number, _DECOR.sub(" ", text)
            number += 1
        if len(rest) > _PIECE:
            yield number, _DECOR.sub(" ", rest[:-512])
            rest = rest[-512:]  # a message may lie across the cut
    if rest:
        yield number, _DECOR.sub(" ", rest)


def render(report: Report) -> str:
    """Return the report as text."""
    from nkisim.cli.main import all_rules

    rules = all_rules()
    lines = []
    for number, error in enumerate(report.found, 1):
        times = f" and {error.count - 1} more" if error.count > 1 else ""
        lines += [
            f"{number}. line {error.line}{times}: {error.text}",
            "",
            *(
                "   " + line if line else ""
                for line in known_errors.page_text(error.known, rules).splitlines()
            ),
            "",
        ]
    if report.unknown_count:
        lines += [
            f"{report.unknown_count} line{'s' * (report.unknown_count > 1)} that "
            f"{'look' if report.unknown_count > 1 else 'looks'} like an error and "
            f"{'have' if report.unknown_count > 1 else 'has'} no page:",
            *(f"  line {number}: {text}" for number, text in report.unknown),
            "",
        ]
    if not report.exit_code:
        lines += [f"No error was found in {report.lines} line{'s' * (report.lines != 1)}.", ""]
    return "\n".join(lines).rstrip()


def as_object(report: Report) -> dict[str, Any]:
    """Return the report for JSON."""
    return {
        "errors": [
            {
                "names": list(f.known.names),
                "line": f.line,
                "count": f.count,
                "text": f.text,
                "wrapper": f.known.wrapper,
                "cause": f.known.cause,
                "try": f.known.cure,
                "findings": list(f.known.here),
                "page": f.known.address,
            }
            for f in report.found
        ],
        "unknown": {
            "count": report.unknown_count,
            "first": [{"line": n, "text": text} for n, text in report.unknown],
        },
        "lines": report.lines,
    }
