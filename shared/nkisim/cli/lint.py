"""`python -m nkisim lint FILE...`: what a compiler of NKI would say of kernels, without a run."""

from __future__ import annotations

import argparse
import sys
import tokenize
from pathlib import Path
from typing import Any

from nkisim.cli import answer, document
from nkisim.cli.words import CannotRun
from nkisim.lint import level, mixed, program
from nkisim.lint.constructs import BETA1, NKI, VERSIONS


def parser() -> answer.Parser:
    """Return the parser of the command."""
    parser = answer.Parser(
        "lint",
        description="Report what a compiler of NKI refuses in the "
        "source of kernels: functions with @nki.jit (or another launcher) on them, and the "
        "functions of the same file that they call. Nothing is run.",
    )
    parser.add_argument("paths", nargs="+", metavar="FILE", help="a file, or a folder of them")
    parser.add_argument(
        "--release",
        "--language-version",
        choices=VERSIONS,
        metavar="V",
        help=f"the release of NKI that is asked about, {VERSIONS[0]} to "
        f"{VERSIONS[-1]} (default: NKI_LANGUAGE_VERSION, else the newest)",
    )
    parser.add_argument(
        "--dialect", choices=(BETA1, NKI), default="", help="for files whose imports do not say it"
    )
    parser.add_argument(
        "--every", action="store_true", help="take every function at the top of a file for a kernel"
    )
    parser.add_argument(
        "--notes",
        action="store_true",
        help="also what is accepted: deprecated, or not in the documents",
    )
    document.add_json(parser)
    return parser


def command(argv: list[str]) -> int:
    """Report on files; return 0 if nothing is refused, 1 if something is, 2 if one is no Python."""
    options = parser().parse_args(argv)
    return answer.give("lint", lambda: _lint(options), as_json=options.json)


def _lint(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    version = options.release or level.requested()[1]
    files, unread = _files(options.paths)
    kernels, read, findings = 0, 0, []
    for file in files:
        try:
            with tokenize.open(file) as source:  # in the encoding that it declares
                text = source.read()
            functions = program.of_text(
                text,
                str(file),
                options.dialect,
                (lambda node: True) if options.every else program.is_launched,
            )
        except (SyntaxError, UnicodeDecodeError) as error:
            line = getattr(error, "lineno", None)
            why = getattr(error, "msg", "") if line else "its text is not UTF-8"
            unread.append(f"{file}{f', line {line},' if line else ''} is not Python: {why}")
            continue
        except (OSError, ValueError) as error:
            unread.append(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}")
            continue
        read += 1
        kernels += sum(f.launched for f in functions)
        findings += level.scan(functions, version) + mixed.scan(functions)
    refused = [f for f in findings if f.severity != "note"]
    for finding in findings if options.notes else refused:
        print(finding)
    notes = len(findings) - len(refused)
    hidden = "" if options.notes or not notes else " (--notes shows them)"
    if read:
        print(
            f"{_count(read, 'file')}, {_count(kernels, 'kernel')}: "
            f"{len(refused)} refused, {_count(notes, 'note')}{hidden}"
        )
    for line in unread:
        print(f"nkisim lint: {line}", file=sys.stderr)
    fields = {
        "release": version,
        "files": read,
        "kernels": kernels,
        "refused": len(refused),
        "findings": [f.to_dict() for f in findings],
        "unread": unread,
    }
    if not unread and not kernels:
        raise CannotRun(
            "there is no kernel: a function with @nki.jit in a file that imports nki or "
            "neuronxcc.nki"
        )
    if unread:
        return 2, {**fields, "error": answer.sentence("; ".join(unread))}
    return int(bool(refused)), fields


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _files(paths: list[str]) -> tuple[list[Path], list[str]]:
    """Return (files to read, sentences about what is not there)."""
    files: list[Path] = []
    unread: list[str] = []
    for name in paths:
        path = Path(name)
        if path.is_dir():
            files += sorted(path.rglob("*.py"))
        elif path.is_file():
            files.append(path)
        else:
            unread.append(f"there is no file {name}")
    return files, unread
