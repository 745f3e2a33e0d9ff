"""Ranks: the geometric mean, over the fleet, of how much faster than the reference.

Predicted and measured times, backends, generations and versions of SDK or simulator are ranked
in separate tables, because their numbers do not compare. So are the two dialects, unless the course
ranks them together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .entries import Entry

REFERENCE = "reference"


@dataclass(frozen=True)
class Standing:
    """A line of a table: rank (equal speeds share it), the best entry, all speeds in time."""

    rank: int
    name: str
    speed: float  # 1.0: as fast as the reference
    mean_us: float
    entries: int
    history: tuple[float, ...]
    best: Entry


@dataclass(frozen=True)
class Table:
    """Standings that may be compared, and entries that could not be ranked with them."""

    lab: str
    kind: str
    backend: str
    version: str
    target: str
    dialect: str  # "" where the dialects are ranked together
    cases: tuple[str, ...]
    standings: tuple[Standing, ...]
    left_out: tuple[str, ...]


def speed_of(entry: Entry, reference: Entry) -> float | None:
    """Return the geometric mean of reference / entry over the reference's cases; None if any lacks.

    Rounded to four digits: what is closer than that is a tie.
    """
    if set(reference.times) - set(entry.times):
        return None
    logs = [math.log(us / entry.times[case]) for case, us in sorted(reference.times.items())]
    return round(math.exp(sum(logs) / len(logs)), 4)


Key = tuple[str, str, str, str, str, str]


def tables(entries: Iterable[Entry], together: bool = False) -> list[Table]:
    """Return a table for each lab, kind, backend, version, target and dialect; measured ones first.

    `together`: the dialects are in one table.
    """
    groups: dict[Key, list[Entry]] = {}
    for e in entries:
        dialect = "" if together else e.dialect
        groups.setdefault((e.lab, e.kind, e.backend, e.version, e.target, dialect), []).append(e)
    found = []
    for key, mine in sorted(groups.items()):
        references = sorted((e for e in mine if e.name == REFERENCE), key=lambda e: e.at)
        if references:
            found.append(_table(key, mine, references[-1]))
        else:
            found.append(
                Table(
                    *key,
                    (),
                    (),
                    tuple(
                        sorted(
                            f"{name}: there is no entry of the reference to compare with"
                            for name in {e.name for e in mine}
                        )
                    ),
                )
            )
    return found


def _table(key: Key, entries: list[Entry], reference: Entry) -> Table:
    speeds: dict[str, list[tuple[str, float, Entry]]] = {}
    left_out = set()
    for e in entries:
        speed = speed_of(e, reference)
        if speed is None:
            left_out.add(f"{e.name}: not all cases are right and timed")
        else:
            speeds.setdefault(e.name, []).append((e.at, speed, e))
    lines = []
    for name, mine in speeds.items():
        mine.sort(key=lambda m: m[0])
        best = max(mine, key=lambda m: (m[1], m[0]))
        us = [best[2].times[c] for c in reference.times]
        mean = math.exp(sum(map(math.log, us)) / len(us))
        lines.append((best[1], name, mean, len(mine), tuple(m[1] for m in mine), best[2]))
    lines.sort(key=lambda line: (-line[0], line[1]))
    standings: list[Standing] = []
    for place, (speed, name, mean, count, history, entry) in enumerate(lines, 1):
        tied = standings and standings[-1].speed == speed
        standings.append(
            Standing(
                standings[-1].rank if tied else place,
                name,
                speed,
                round(mean, 2),
                count,
                history,
                entry,
            )
        )
    return Table(*key, tuple(sorted(reference.times)), tuple(standings), tuple(sorted(left_out)))


def sparkline(history: Sequence[float], width: int = 80, height: int = 20) -> str:
    """Return the points of a polyline of speeds in time; a single one is a flat line."""
    values = [history[0], *history] if len(history) == 1 else list(history)
    low, high = min(values), max(values)
    span = high - low or 1.0
    step = (width - 4) / (len(values) - 1)
    return " ".join(
        f"{2 + i * step:.1f},{height - 3 - (height - 6) * (v - low) / span:.1f}"
        for i, v in enumerate(values)
    )


def blocks(history: Sequence[float]) -> str:
    """Return a sparkline of characters."""
    low, high = min(history), max(history)
    return "".join(
        "▁▂▃▄▅▆▇█"[int(7 * (v - low) / (high - low))] if high > low else "▄" for v in history[-12:]
    )
