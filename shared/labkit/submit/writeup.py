"""A writeup whose figures are the student's own: each is held against their results.json.

A figure is quoted with the case that it is of:

    The transposition takes 44.1 us (transpose_1024x512, trn2).
    It makes 12 transfers (dma_transfers of transpose_1024x512, trn2).

Every figure with a unit of time, and every count with its name, must be what a run of that case
recorded, to the digits that are written. A time that is not said to be predicted or measured, where
the record says which, is an error too; so are questions that are left as they were. A figure that
was worked out from others stands between backticks. Lines that begin with > are not looked at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

TODO = "(your answer)"
#: Counts by the names that they are quoted by: those of the record, and that of the tables.
_COUNTS = {
    **{name: name for name in ("dma_transfers", "hbm_read_bytes", "hbm_write_bytes")},
    "dma_transfer_count": "dma_transfers",
}
_TIME = re.compile(
    r"(predicted|measured)?\s*(?:at\s+)?(\d[\d,]*(?:\.\d+)?)\s*(us|µs|μs|ms)\b"
    r"[^()\n]*\(([\w.-]+),\s*(trn\d)\)"
)
_COUNT = re.compile(
    r"(\d[\d,]*)[^()\n]*\((" + "|".join(_COUNTS) + r")\s+of\s+([\w.-]+),\s*(trn\d)\)"
)
_CODE = re.compile(r"`[^`]*`")
_LOOSE = re.compile(r"(\d[\d,]*(?:\.\d+)?)\s*(us|µs|μs|ms)\b")


def recorded(path: Path, lab: str) -> Iterator[dict[str, Any]]:
    """Yield the cases of all runs of a lab in results.json, the latest first."""
    try:
        runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
        of_lab = [run for run in runs if run.get("lab") == lab]
        for run in reversed(of_lab):
            yield from run["cases"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return


def _agrees(text: str, value: float) -> bool:
    """Return whether a written number is `value`, rounded to the digits that are written."""
    plain = text.replace(",", "")
    digits = len(plain.partition(".")[2])
    return abs(float(plain) - value) <= 0.5 * 10**-digits + 1e-9


def check_writeup(path: Path, results: Iterable[Path], lab: str) -> list[str]:
    """Return what is wrong with a writeup, a sentence each with its line; [] if nothing is.

    `results`: the files that the student's runs are in.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    cases = [case for file in results for case in recorded(file, lab)]
    problems = []
    for number, line in enumerate(text.splitlines(), 1):
        place = f"{path.name}:{number}"
        if line.startswith(">"):
            continue  # what staff say
        if TODO in line:
            problems.append(f"{place}: a question without an answer")
        quoted = [m.span(2) for m in _TIME.finditer(line)]
        for match in _TIME.finditer(line):
            problems += _time(place, match, cases)
        for match in _COUNT.finditer(line):
            count, name, case, target = match.groups()
            values = {
                c["stats"].get(_COUNTS[name])
                for c in cases
                if c["case"] == case and c["target"] == target and isinstance(c.get("stats"), dict)
            }
            problems += _verdict(place, count, f"{name} of {case} on {target}", values, 1.0)
        plain = _CODE.sub(lambda code: " " * len(code.group()), line)
        for match in _LOOSE.finditer(plain):
            if match.span(1) not in quoted and not line.lstrip().startswith("|"):
                problems.append(
                    f"{place}: {match.group()} for which case? Write (CASE, TARGET) after "
                    "it, such as (transpose_1024x512, trn2); a figure that you worked "
                    f"out yourself goes between backticks: `{match.group()}`"
                )
    return problems


def _time(place: str, match: re.Match[str], cases: list[dict[str, Any]]) -> list[str]:
    kind, value, unit, case, target = match.groups()
    matching = [
        c
        for c in cases
        if c.get("case") == case and c.get("target") == target and c.get("latency_us")
    ]
    values = {v for c in matching for v in c["latency_us"].values()}
    problems = _verdict(
        place, value, f"the latency of {case} on {target}", values, 1000.0 if unit == "ms" else 1.0
    )
    kinds = {c.get("latency_kind") for c in matching}
    if not problems and kinds and kind not in kinds:
        problems.append(
            f"{place}: {value} {unit} is a {' and a '.join(sorted(map(str, kinds)))} "
            "time: write so before the figure"
        )
    return problems


def _verdict(place: str, text: str, what: str, values: set[Any], scale: float) -> list[str]:
    numbers = sorted(float(v) for v in values if isinstance(v, (int, float)))
    if not numbers:
        return [f"{place}: {text} is said to be {what}, but no run of yours recorded that"]
    if any(_agrees(text, v / scale) for v in numbers):
        return []
    return [
        f"{place}: {text} is said to be {what}; your runs recorded "
        + ", ".join(f"{v / scale:,.6g}" for v in numbers[-3:])
    ]
