"""`nkisim check script.py args...`: run a script, say all that is wrong with its kernels.

Findings come grouped by rule, worst first: id, places, one sentence, one suggestion. `--json`,
`--sarif` and `--github` are for programs and CI. The script itself runs as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nkisim import __version__
from nkisim.checks.finding import SEVERITIES, Finding, as_finding, worst_first
from nkisim.cli import answer, script, watch
from nkisim.cli.kernel_arguments import file_of
from nkisim.cli.time_limit import OutOfTime
from nkisim.cli.words import CannotRun
from nkisim.errors import NkiError
from nkisim.errors.rules import RULES
from nkisim.simulation import launch

#: level -> the least severity that makes the exit code 1
LEVELS = {"teach": "error", "strict": "warning", "off": ""}
_COLOURS = {"error": "31", "warning": "33", "note": "34"}  # of ANSI terminals
_PLACES = 5  # of a rule and sentence that are listed


def parser() -> answer.Parser:
    """Return the parser of the command."""
    parser = answer.Parser(
        "check",
        usage=script._USAGE.format("check"),
        description="Run a script, a module or one kernel of a file, and report all that is wrong "
        "with the kernels.",
        epilog="Exit codes: 0 no errors (--level strict: no warnings either; off: whatever is "
        "found), 1 something is wrong, 2 nothing could be checked.",
    )
    parser.add_argument("--sarif", metavar="FILE", help="also write them as SARIF 2.1.0")
    parser.add_argument(
        "--github", action="store_true", help="also print them as annotations of GitHub Actions"
    )
    script.add_script(parser)
    return parser


def command(argv: list[str]) -> int:
    """Check a script; return 0 if nothing is wrong, 1 if something is, 2 if it could not run."""
    options, rest = script.parse(parser(), argv)
    if options.watch:
        return watch.rerun("check", argv, file_of(options.script or "."))
    return answer.give(
        "check",
        lambda: _check(options, rest),
        as_json=options.json,
        seconds=options.timeout,
        kernels_only=True,
    )


def _check(options: argparse.Namespace, rest: list[str]) -> tuple[int, dict[str, Any]]:
    least = LEVELS[options.level or "teach"]
    options.level = None  # what fails the check; the run itself goes to its end
    start = script.prepared(options, rest)
    with launch.collected_findings() as runs:
        code, problem = _run(start, runs)
    findings = worst_first(f for of_run in runs for f in of_run)
    _write(findings, options, len(runs), bool(code))
    if not runs and not code:
        raise script.no_kernel(options, "Check", "in its folder, python tester.py --level teach")
    bad = least and any(SEVERITIES.index(f.severity) <= SEVERITIES.index(least) for f in findings)
    fields = {"kernels": len(runs), "findings": [f.to_dict() for f in findings]}
    return code or int(bool(bad)), {**fields, "error": problem}


def _run(start: Any, runs: list[list[Finding]]) -> tuple[int, dict[str, Any] | None]:
    """Run the program to its end; a rule that it breaks is a finding like others.

    Returns the exit code, and the error that ended the program, if one did.
    """
    try:
        start()
    except SystemExit as end:
        return 1 if answer.exit_code(end) else 0, None
    except (script.CannotRun, OutOfTime, KeyboardInterrupt):
        raise
    except BaseException as error:
        rule = getattr(error, "nki_error", error)
        if not isinstance(rule, NkiError):
            answer.say("check", error)
            return answer.code_of(error), answer.error_of(error)
        if rule.id in answer.WRONG_CALL and rule.where is None:
            raise  # of the course or the target: nothing was checked
        runs.append([as_finding(rule)])
    return 0, None


def _write(findings: list[Finding], options: argparse.Namespace, runs: int, failed: bool) -> None:
    """Print the findings, and write them where asked."""
    if options.github:
        for f in findings:
            print(annotation(f))
    _print(findings, runs, failed)
    if options.sarif:
        try:
            Path(options.sarif).write_text(json.dumps(sarif(findings), indent=1) + "\n", "utf-8")
        except OSError as error:
            raise CannotRun(f"{options.sarif} cannot be written: {error.strerror}") from None


def _print(findings: list[Finding], runs: int, failed: bool) -> None:
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
    nothing = "it failed before a kernel ended" if failed else "nothing was checked"
    counts = [
        f"{n} {s}{'s' if n != 1 else ''}"
        for s in SEVERITIES
        if (n := sum(f.severity == s for f in findings))
    ]
    print(
        f"{runs} kernel run{'s' if runs != 1 else ''}: "
        + (", ".join(counts) or "no findings" if runs else nothing)
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
