"""Print what a run of CI did not test, and why, from the results that pytest left in a folder.

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


def table(folder: Path) -> list[str]:
    """Return the lines: minutes of each session, what was skipped, and the totals of all runs."""
    total: Counter = Counter()
    lines = ["", "session    minutes"]
    sessions = folder / "sessions"
    for line in sessions.read_text().splitlines() if sessions.exists() else ():
        name, seconds = line.split()
        lines.append(f"{name:<10} {int(seconds) / 60:7.1f}")
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
