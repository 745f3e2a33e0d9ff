"""`python -m nkisim compare kernels.json --base FOLDER`: kernels before and after a change.

What the GitHub Action of this repository runs: kernels whose files differ from those in FOLDER are
evaluated, and those of FOLDER as well. Findings become SARIF and annotations, times a table.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from nkisim.checks.finding import Finding
from nkisim.cli.check import annotation, sarif
from nkisim.cli.serve import Desk, add_worker_arguments, desk_of
from nkisim.errors import Where

_EXAMPLE = """kernels.json is a list of requests (docs/evaluate.md), with paths from its own folder:
  [{"kernel": "kernels.py:add", "args": ["128x512:float32"], "reference": "reference.py:add"}]

Times are predicted, not measured. Exit codes: 0 nothing is wrong, 1 a kernel is wrong or refused,
2 it could not run."""


class CannotCompare(Exception):
    """There is nothing to compare; the message is a sentence for the user."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of compare."""
    parser = argparse.ArgumentParser(
        prog="nkisim compare",
        description="Evaluate the kernels of a list whose files have changed, before and after.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("list", metavar="kernels.json")
    parser.add_argument("--base", metavar="FOLDER", help="the same files before the change")
    parser.add_argument("--all", action="store_true", help="also kernels whose files are the same")
    parser.add_argument("--markdown", metavar="FILE", help="write the table there")
    parser.add_argument("--sarif", metavar="FILE", help="write what is wrong as SARIF 2.1.0")
    parser.add_argument("--json", metavar="FILE", help="write all answers there")
    parser.add_argument(
        "--github", action="store_true", help="also print annotations of GitHub Actions"
    )
    add_worker_arguments(parser)
    return parser


def command(argv: list[str]) -> int:
    """Evaluate what has changed; print the table, write the files asked for."""
    options = parser().parse_args(argv)
    try:
        with desk_of(options) as desk:
            pairs = compared(Path(options.list), options.base, desk, options.all)
        table = markdown(pairs)
        for path, text in (
            (options.markdown, table),
            (options.sarif, json.dumps(sarif(findings(pairs)), indent=1) + "\n"),
            (options.json, json.dumps(pairs, indent=1) + "\n"),
        ):
            if path:
                Path(path).write_text(text, "utf-8")
    except (CannotCompare, OSError) as problem:
        print(f"nkisim compare: {problem}", file=sys.stderr)
        return 2
    print(table)
    if options.github:
        print("\n".join(annotation(f) for f in findings(pairs)))
    codes = [pair["after"]["exit_code"] for pair in pairs]
    return max(codes, default=0)


def compared(path: Path, base: str | None, desk: Desk, unchanged_too: bool) -> list[dict[str, Any]]:
    """Return {"kernel", "before", "after"} of each kernel of a list whose file has changed.

    `before` is None without a base, or where the base does not have it. Raises CannotCompare.
    """
    try:
        asked = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise CannotCompare(f"{path} cannot be read: {error}") from None
    if not isinstance(asked, list) or not all(
        isinstance(r, dict) and isinstance(r.get("kernel"), str) for r in asked
    ):
        raise CannotCompare(f'{path} is no list of requests: [{{"kernel": "FILE:KERNEL", ...}}]')
    here = path.resolve().parent
    folder = None if base is None else Path(base).resolve() / os.path.relpath(here)
    wanted = [
        r for r in asked if unchanged_too or folder is None or changed(r["kernel"], here, folder)
    ]
    after = list(desk.ask_all(moved(r, here) for r in wanted))
    before: list[Any] = [None] * len(wanted)
    if folder is not None:
        there_too = [k for k, r in enumerate(wanted) if (folder / file_of(r["kernel"])).is_file()]
        answers = desk.ask_all(moved(wanted[k], folder) | {"fixes": False} for k in there_too)
        for k, answer in zip(there_too, answers):
            before[k] = answer
    return [
        {"kernel": r["kernel"], "before": b, "after": a} for r, b, a in zip(wanted, before, after)
    ]


def file_of(kernel: str) -> str:
    """Return the file of FILE:KERNEL."""
    return kernel.rpartition(":")[0]


def changed(kernel: str, here: Path, there: Path) -> bool:
    """Return whether a kernel's file is not the same in two folders."""
    files = [folder / file_of(kernel) for folder in (here, there)]
    return not files[1].is_file() or files[0].read_bytes() != files[1].read_bytes()


def moved(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a request with its paths from a folder."""
    out = dict(request)
    out.update((k, str(folder / request[k])) for k in ("kernel", "reference") if k in request)
    return out


def markdown(pairs: list[dict[str, Any]]) -> str:
    """Return the table of a pull request's comment."""
    if not pairs:
        return "No kernel of the list has changed.\n"
    lines = [
        "| kernel | verdict | before, us | after, us | change | floor, us |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for pair in pairs:
        before, after = _us(pair["before"]), _us(pair["after"])
        change = "" if not before or not after else f"{after / before - 1:+.1%}"
        if change and _unsure(pair):
            change += " (?)"
        floor = (pair["after"].get("floor") or {}).get("floor_us")
        lines.append(
            f"| `{pair['kernel']}` | {_verdict(pair)} | {_number(before)} | {_number(after)} | "
            f"{change} | {_number(floor)} |"
        )
    return (
        "\n".join(lines) + "\n\nTimes are predicted by nkisim, not measured. (?): the model does "
        "not know enough to say which is faster.\n"
    )


def _us(answer: dict[str, Any] | None) -> float | None:
    time = (answer or {}).get("time")
    return None if time is None else float(time["latency_us"])


def _unsure(pair: dict[str, Any]) -> bool:
    """Return whether a time is unknown, or both lie in the band of the other."""
    one, two = pair["before"]["time"], pair["after"]["time"]
    if one["defer"] or two["defer"]:
        return True
    return bool(one["low_us"] <= two["latency_us"] <= one["high_us"])


def _verdict(pair: dict[str, Any]) -> str:
    now, then = pair["after"]["verdict"], (pair["before"] or {}).get("verdict")
    return now if then in (None, now) else f"{now} (was {then})"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"


def findings(pairs: list[dict[str, Any]]) -> list[Finding]:
    """Return what is wrong with the kernels as they are now, notes left out."""
    out = []
    for pair in pairs:
        after = pair["after"]
        wrong = [f for f in after.get("findings", ()) if f["severity"] != "note"]
        for f in wrong:
            text = f["text"] + "".join(f"; fix: {fix['title']}" for fix in f["fixes"][:1])
            out.append(
                Finding(f["id"], f["severity"], text, _where(f["where"]), _where(f["other"]))
            )
        if after["exit_code"] and not wrong:
            error = after.get("error") or {}
            steps = [s["text"] for s in after.get("ladder", ()) if s["passed"] is False]
            text = error.get("what") or "; ".join(steps) or after["verdict"]
            where = _where(error.get("where"))
            out.append(Finding(error.get("id", ""), "error", f"{pair['kernel']}: {text}", where))
    return out


def _where(place: dict[str, Any] | None) -> Where | None:
    if place is None:
        return None
    return Where(os.path.abspath(place["file"]), place["line"], place["function"])
