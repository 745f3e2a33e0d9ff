"""`python -m nkisim check script.py args...`: run a script, say all that is wrong with its kernels.

Findings come grouped by rule, worst first: id, places, one sentence, one suggestion. `--json`,
`--sarif` and `--github` are for programs and CI. The script itself runs as it is.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nkisim import __version__
from nkisim.checks.finding import SEVERITIES, Finding, as_finding, worst_first
from nkisim.cli import script
from nkisim.errors import NkiError
from nkisim.errors.rules import RULES
from nkisim.finder import install
from nkisim.simulation import launch

#: level -> the least severity that makes the exit code 1
LEVELS = {"teach": "error", "strict": "warning", "off": ""}
_COLOURS = {"error": "31", "warning": "33", "note": "34"}  # of ANSI terminals
_PLACES = 5  # of a rule and sentence that are listed


def command(argv: list[str]) -> int:
    """Check a script; return 0 if nothing is wrong, 1 if something is, 2 if it could not run."""
    parser = argparse.ArgumentParser(
        prog="python -m nkisim check",
        usage="python -m nkisim check [options] script.py [args ...]\n"
        "       python -m nkisim check [options] -m module [args ...]",
        description="Run a script or module with neuronxcc.nki served by the import rule, and "
        "report the findings of all its kernels.",
    )
    parser.add_argument(
        "--level",
        choices=tuple(LEVELS),
        default="teach",
        help="what fails the check: errors (teach, the default), warnings as well "
        "(strict), nothing (off)",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the findings as JSON; what the script prints goes to standard error",
    )
    parser.add_argument("--sarif", metavar="FILE", help="also write them as SARIF 2.1.0")
    parser.add_argument(
        "--github", action="store_true", help="also print them as annotations of GitHub Actions"
    )
    parser.add_argument("-m", dest="module", help="run a module, as python -m does")
    parser.add_argument("script", nargs="?")
    own, rest = _split(argv)
    options = parser.parse_args(own)
    if options.script is None and options.module is None:
        parser.print_usage(sys.stderr)
        print("nkisim check: name a script, or a module after -m", file=sys.stderr)
        return 2
    install()
    try:
        start = (
            script._prepare_module(options.module, rest)
            if options.module is not None
            else script._prepare_script(options.script, rest)
        )
    except script.CannotRun as problem:
        print(f"nkisim check: {problem}", file=sys.stderr)
        return 2
    aside = contextlib.redirect_stdout(sys.stderr) if options.json else contextlib.nullcontext()
    with launch.watched() as runs, aside:  # what the script prints is no JSON
        code = _run(start, runs)
    if code == 2:
        return 2
    findings = worst_first(f for found in runs for f in found)
    written = _write(findings, options, len(runs))
    if not runs and not code:
        print(
            "nkisim check: the script calls no kernel. Call one in it, or check the script that "
            "does; in the folder of a lab: python tester.py --check",
            file=sys.stderr,
        )
    least = LEVELS[options.level]
    bad = least and any(SEVERITIES.index(f.severity) <= SEVERITIES.index(least) for f in findings)
    return 1 if written and (code or bad) else 2 if not (written and runs) else 0


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Cut the arguments behind the name of the script or module."""
    for i, word in enumerate(argv):
        if i and argv[i - 1] in ("--level", "--sarif"):
            continue
        if word == "-m":
            return argv[: i + 2], argv[i + 2 :]
        if not word.startswith("-"):
            return argv[: i + 1], argv[i + 1 :]
    return argv, []


def _run(start: Any, runs: list[list[Finding]]) -> int:
    """Run the program to its end; a rule that it breaks is a finding like others."""
    try:
        start()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return 1 if end.code not in (None, 0) else 0
    except script.CannotRun as problem:
        print(f"nkisim check: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        rule = getattr(error, "nki_error", error)
        if not isinstance(rule, NkiError):
            script.trim(error)
            sys.excepthook(type(error), error, error.__traceback__)
            return 1
        runs.append([as_finding(rule)])
    return 0


def _write(findings: list[Finding], options: argparse.Namespace, runs: int) -> bool:
    """Print the findings, and write them where asked; return whether that went well."""
    if options.github:
        for f in findings:
            print(annotation(f))
    if options.json:
        print(json.dumps([as_dict(f) for f in findings], indent=1))
    else:
        _print(findings, runs)
    if options.sarif:
        try:
            Path(options.sarif).write_text(json.dumps(sarif(findings), indent=1) + "\n", "utf-8")
        except OSError as error:
            print(
                f"nkisim check: {options.sarif} cannot be written: {error.strerror}",
                file=sys.stderr,
            )
            return False
    return True


def _print(findings: list[Finding], runs: int) -> None:
    for (severity, id, text), places in _grouped(findings).items():
        rule = RULES.get(id)
        print(f"{_coloured(severity)} {id}  {rule.title if rule else ''}\n  {text}")
        for f in places[:_PLACES]:
            for label, place in (("at", f.where), ("and", f.other)):
                if place is not None and not (label == "and" and place == f.where):
                    print(f"  {label} {place}: {place.text}")
        if len(places) > _PLACES:
            print(f"  and {len(places) - _PLACES} more places")
        if hint := places[0].suggestion():
            print(f"  try: {hint}")
        print(f"  more: python -m nkisim explain {id}\n")
    counts = [
        f"{n} {s}{'s' if n != 1 else ''}"
        for s in SEVERITIES
        if (n := sum(f.severity == s for f in findings))
    ]
    print(
        f"{runs} kernel run{'s' if runs != 1 else ''}: "
        + (", ".join(counts) or "no findings" if runs else "nothing was checked")
    )


def _coloured(severity: str) -> str:
    """Return the word, coloured on a terminal that is not asked for none (no-color.org)."""
    if (
        not sys.stdout.isatty()
        or os.environ.get("NO_COLOR")
        or os.environ.get("TERM") == "dumb"
        or not _shows_colours()
    ):
        return severity
    return f"\033[1;{_COLOURS[severity]}m{severity}\033[0m"


@lru_cache(maxsize=1)
def _shows_colours() -> bool:
    """Return whether the terminal reads escape sequences; Windows has to be asked to.

    One that does not (before Windows 10, or in its legacy mode) would print them.
    """
    if sys.platform != "win32":
        return True
    import ctypes
    import msvcrt

    kernel, mode = ctypes.windll.kernel32, ctypes.c_ulong()
    console = ctypes.c_void_p(msvcrt.get_osfhandle(sys.stdout.fileno()))
    reads_sequences = 4  # ENABLE_VIRTUAL_TERMINAL_PROCESSING
    return bool(
        kernel.GetConsoleMode(console, ctypes.byref(mode))
        and kernel.SetConsoleMode(console, mode.value | reads_sequences)
    )


def _grouped(findings: list[Finding]) -> dict[tuple[str, str, str], list[Finding]]:
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for f in findings:
        groups.setdefault((f.severity, f.id, f.text), []).append(f)
    return groups


def as_dict(finding: Finding) -> dict[str, Any]:
    """Return a finding for JSON."""
    places = [
        {"file": p.file, "line": p.line, "function": p.function, "source": p.text}
        for p in (finding.where, finding.other)
        if p is not None
    ]
    return {
        "id": finding.id,
        "severity": finding.severity,
        "text": finding.text,
        "try": finding.suggestion(),
        "places": places,
    }


def annotation(finding: Finding) -> str:
    """Return a finding as a workflow command of GitHub Actions."""
    level = {"error": "error", "warning": "warning", "note": "notice"}[finding.severity]
    where = (
        f" file={_escaped(_relative(finding.where.file), True)},line={finding.where.line},"
        if finding.where
        else " "
    )
    return f"::{level}{where}title={finding.id}::{_escaped(finding.text)}"


def _escaped(text: str, of_property: bool = False) -> str:
    """Escape as workflow commands need it."""
    for char, code in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
        text = text.replace(char, code)
    return text.replace(":", "%3A").replace(",", "%2C") if of_property else text


def _relative(file: str) -> str:
    """Return a path as seen from the working folder, if it lies in it."""
    try:
        return Path(file).resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return Path(file).as_posix()


def _uri(file: str) -> str:
    """Return a path as SARIF wants it: a URI, relative if the file lies in the working folder."""
    path = Path(_relative(file))
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())


def sarif(findings: list[Finding]) -> dict[str, Any]:
    """Return findings as a SARIF 2.1.0 log (OASIS), which code hosts and editors read."""
    ids = sorted({f.id for f in findings})
    rules = [
        {
            "id": id,
            "shortDescription": {"text": RULES[id].title},
            "fullDescription": {"text": RULES[id].text},
        }
        for id in ids
        if id in RULES
    ]
    results = []
    for f in findings:
        result: dict[str, Any] = {"ruleId": f.id, "level": f.severity, "message": {"text": f.text}}
        places = [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(p.file)},
                    "region": {"startLine": p.line},
                }
            }
            for p in (f.where, f.other)
            if p is not None
        ]
        if places:
            result["locations"], result["relatedLocations"] = places[:1], places[1:]
        results.append(result)
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "nkisim", "version": __version__, "rules": rules}},
                "results": results,
            }
        ],
    }
