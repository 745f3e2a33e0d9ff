"""Print what a run of CI did not test, why, and what was slowest, from the results of pytest.

The folder has a JUnit file for each run of pytest, `sessions` (name, seconds) and `not-installed`
(package: reason). A green run must not hide what it did not do.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path


def read(path: Path) -> tuple[Counter, Counter]:
    """Return (how many tests ended how, how many were skipped for which reason)."""
    ended: Counter = Counter()
    reasons: Counter = Counter()
    for case in ET.parse(path).iter("testcase"):
        skipped = case.find("skipped")
        if skipped is not None:
            reasons[" ".join(skipped.get("message", "").split()) or "no reason given"] += 1
        bad = case.find("failure") is not None or case.find("error") is not None
        ended["failed" if bad else "passed" if skipped is None else "skipped"] += 1
    return ended, reasons


def slowest(folder: Path, count: int = 10) -> list[str]:
    """Return a line for each of the slowest tests of all runs."""
    found = []
    for path in folder.glob("*.xml"):
        for case in ET.parse(path).iter("testcase"):
            place = case.get("classname", "").split(".")[-1]
            found.append((float(case.get("time", 0)), f"{path.stem}: {place}::{case.get('name')}"))
    return [f"{seconds:>7.0f}  {name}" for seconds, name in sorted(found, reverse=True)[:count]]


def table(folder: Path) -> list[str]:
    """Return the lines: minutes of sessions, the slowest tests, what was skipped, the totals."""
    total: Counter = Counter()
    lines = ["", "session    minutes"]
    sessions = folder / "sessions"
    for line in sessions.read_text().splitlines() if sessions.exists() else ():
        name, seconds = line.split()
        lines.append(f"{name:<10} {int(seconds) / 60:7.1f}")
    lines += ["", "seconds  the slowest tests", *slowest(folder)]
    lines += ["", "not run    tests  why"]
    before = len(lines)
    for path in sorted(folder.glob("*.xml")):
        ended, reasons = read(path)
        total += ended
        lines += [f"{path.stem:<10} {n:>5}  {why}" for why, n in sorted(reasons.items())]
    absent = folder / "not-installed"
    for line in absent.read_text().splitlines() if absent.exists() else ():
        lines.append(f"{'not here':<10} {'-':>5}  {line}")
    if len(lines) == before:
        lines.append("nothing: all was run")
    lines += ["", f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped"]
    return lines


if __name__ == "__main__":
    print("\n".join(table(Path(sys.argv[1]))))
