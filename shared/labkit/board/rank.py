"""Ranks: the geometric mean, over the fleet, of how much less a kernel takes than the reference.

Less time, or less time and fewer bytes of HBM, as the lab's contest says (`spec.Contest`).

Predicted and measured times, backends, generations and versions of SDK or simulator are ranked
in separate tables, because their numbers do not compare. So are the two dialects, unless the course
ranks them together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .entries import Entry

REFERENCE = "reference"


@dataclass(frozen=True)
class Standing:
    """A line of a table: rank (equal scores share it), the best entry, all scores in time.

    `speed`, `fewer`: how many times less time and fewer bytes than the reference; `mean_us`,
    `mean_bytes`: geometric means over the cases; `over_least`: bytes as a multiple of those that
    every right kernel has to move. None where entries do not say the bytes.
    """

    rank: int
    name: str
    score: float  # 1.0: as good as the reference
    speed: float
    mean_us: float
    entries: int
    history: tuple[float, ...]
    best: Entry
    fewer: float | None = None
    mean_bytes: float | None = None
    over_least: float | None = None


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
    ranks_on: tuple[str, ...] = ("time",)

    @property
    def on_bytes(self) -> bool:
        """Return whether bytes count."""
        return "bytes" in self.ranks_on

    @property
    def rule(self) -> str:
        """Return how it is ranked, in words."""
        if self.ranks_on == ("time",):
            return "Ranked on time: how many times as fast as the reference (geometric mean)."
        if self.ranks_on == ("bytes",):
            return "Ranked on bytes: how many times fewer than the reference (geometric mean)."
        return (
            "Ranked on time and bytes: the score is the geometric mean of how many times as fast "
            "as the reference and how many times fewer bytes. Half of the bytes count as much as "
            "half of the time."
        )


def _less(numbers: Mapping[str, float], reference: Mapping[str, float]) -> float | None:
    """Return the geometric mean of reference / mine over the reference's cases; None if any lacks.

    Rounded to four digits: what is closer than that is a tie.
    """
    if not reference or set(reference) - set(numbers):
        return None
    logs = [math.log(n / numbers[case]) for case, n in sorted(reference.items())]
    return round(math.exp(sum(logs) / len(logs)), 4)


def _numbers(entry: Entry, quantity: str) -> Mapping[str, float]:
    return entry.times if quantity == "time" else entry.hbm_bytes


def score_of(entry: Entry, reference: Entry) -> float | None:
    """Return how much less than the reference an entry takes of what the reference's contest ranks
    on; None where a case or a quantity lacks."""
    parts = [_less(_numbers(entry, q), _numbers(reference, q)) for q in reference.rank]
    logs = [math.log(part) for part in parts if part]
    return round(math.exp(sum(logs) / len(logs)), 4) if len(logs) == len(parts) else None


Key = tuple[str, str, str, str, str, str]


def tables(entries: Iterable[Entry], together: bool = False) -> list[Table]:
    """Return a table for each lab, kind, backend, version, target and dialect; measured ones first.

    `together`: the dialects are in one table.
    """
    groups: dict[Key, list[Entry]] = {}
    for e in entries:
        dialect = "" if together else e.dialect
        groups.setdefault((e.lab, e.kind, e.backend, e.version, e.target, dialect), []).append(e)
    out = []
    for key, members in sorted(groups.items()):
        references = sorted((e for e in members if e.name == REFERENCE), key=lambda e: e.at)
        if references:
            out.append(_table(key, members, references[-1]))
        else:
            out.append(
                Table(
                    *key,
                    (),
                    (),
                    tuple(
                        sorted(
                            f"{name}: there is no entry of the reference to compare with"
                            for name in {e.name for e in members}
                        )
                    ),
                )
            )
    return out


def _table(key: Key, entries: list[Entry], reference: Entry) -> Table:
    scores: dict[str, list[tuple[str, float, Entry]]] = {}
    left_out = set()
    for e in entries:
        score = score_of(e, reference)
        if score is not None:
            scores.setdefault(e.name, []).append((e.at, score, e))
        elif set(reference.times) - set(e.times):
            left_out.add(f"{e.name}: not all cases are right and timed")
        else:
            left_out.add(
                f"{e.name}: its entry does not say the bytes, which count here; judge it and sign "
                "it again"
            )
    lines = []
    for name, scores_of_lab in scores.items():
        scores_of_lab.sort(key=lambda m: m[0])
        best = max(scores_of_lab, key=lambda m: (m[1], m[0]))
        lines.append((best[1], name, tuple(m[1] for m in scores_of_lab), best[2]))
    lines.sort(key=lambda line: (-line[0], line[1]))
    standings: list[Standing] = []
    for place, (score, name, history, entry) in enumerate(lines, 1):
        tied = standings and standings[-1].score == score
        rank = standings[-1].rank if tied else place
        standings.append(_standing(rank, name, score, history, entry, reference))
    return Table(
        *key,
        tuple(sorted(reference.times)),
        tuple(standings),
        tuple(sorted(left_out)),
        reference.rank,
    )


def _standing(
    rank: int, name: str, score: float, history: tuple[float, ...], entry: Entry, reference: Entry
) -> Standing:
    moved, least = entry.hbm_bytes, entry.least_bytes
    cases = list(reference.times)
    speed, mean_us = _less(entry.times, reference.times), _mean(entry.times, cases)
    mean_bytes, mean_least = _mean(moved, cases), _mean(least, cases)
    assert speed is not None and mean_us is not None  # who has a score has all times
    return Standing(
        rank,
        name,
        score,
        speed,
        round(mean_us, 2),
        len(history),
        history,
        entry,
        _less(moved, reference.hbm_bytes),
        mean_bytes,
        mean_bytes / mean_least if mean_bytes and mean_least else None,
    )


def _mean(numbers: Mapping[str, float], cases: Sequence[str]) -> float | None:
    """Return the geometric mean over some cases; None if any lacks."""
    if not set(cases) <= set(numbers):
        return None
    return math.exp(sum(math.log(numbers[c]) for c in cases) / len(cases))


def sparkline(history: Sequence[float], width: int = 80, height: int = 20) -> str:
    """Return the points of a polyline of scores in time; a single one is a flat line."""
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
