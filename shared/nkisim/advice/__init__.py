"""The advisor: from a schedule to at most three sentences that say what to change first.

Each names the line, the physical cause, the remedy, and the time that it would save: what the same
schedule takes less when that cost is removed (timing/whatif.py). Like every time of nkisim, it is
predicted. The causes are one table, `causes.CAUSES`; nothing here knows a kernel.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..chip.hw import NeuronCore
from ..errors import Where
from ..timing.critical_path import CriticalPath
from ..timing.schedule import Schedule
from .causes import CAUSES, Cause, Sign
from .facts import Facts

MOST = 3  # sentences
#: what saves a smaller part of the latency is not worth a sentence: the model is not that exact
LEAST_SHARE = 0.03
#: savings this near to each other are alike: the order of the table decides
ALIKE = 0.85
#: an engine that is busy for less of the body leaves waits that are worth a sentence
WAITS = 0.85
#: lines that have less of a cause than this share of the worst one are not named
ALSO = 0.1
#: a schedule is run so often at most, and less often if it is long
TRIES, INSTRUCTIONS = 16, 400_000


@dataclass(frozen=True)
class Advice:
    """One sentence. `saves_us` of `latency_us` are predicted, in microseconds."""

    cause: str
    where: Where | None
    line: int  # id in the trace, -1 if unknown
    text: str  # what the chip does
    remedy: str
    saves_us: float
    latency_us: float
    also: tuple[Where, ...] = ()  # other lines that have it, worst first

    @property
    def sentence(self) -> str:
        """Return cause, remedy and what it would save, without the place."""
        also = f" (also line {', '.join(str(w.line) for w in self.also)})" if self.also else ""
        return (
            f"{self.text}{also}; {self.remedy}. That would save "
            f"{us(self.saves_us)} of {us(self.latency_us)} (predicted)."
        )

    @property
    def place(self) -> str:
        """Return file and line, without the folder; "" if unknown."""
        return self.where.short if self.where else ""

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.place, self.sentence)))

    def to_dict(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return {
            "cause": self.cause,
            "sentence": str(self),
            "where": str(self.where) if self.where else None,
            "also": [str(w) for w in self.also],
            "text": self.text,
            "remedy": self.remedy,
            "saves_us": self.saves_us,
            "latency_us": self.latency_us,
            "predicted": True,
        }


def us(time: float) -> str:
    """Return microseconds as people say them."""
    return f"{time:,.0f} us" if time >= 100 else f"{time:.1f} us"


def advise(
    plan: Schedule,
    hw: NeuronCore,
    *,
    dge: bool,
    on: frozenset[str],
    latency_us: float,
    keep_dtypes: bool = False,
) -> list[Advice]:
    """Return what to change first, the greatest saving first, other dtypes last; [] if nothing is.

    `keep_dtypes`: nothing whose remedy is a shorter dtype.
    """
    facts = Facts(plan, hw, dge, on)
    causes = [c for c in CAUSES if not (keep_dtypes and c.narrows)]
    return _advise(facts, latency_us, causes) if facts.body else []


def _advise(facts: Facts, latency_us: float, causes: list[Cause]) -> list[Advice]:
    signs = [
        (c, s)
        for c in causes
        if (s := _whole(list(c.find(facts)))) and s.most >= LEAST_SHARE * latency_us
    ]
    signs.sort(key=lambda found: -found[1].most)
    tries = max(MOST, min(TRIES, INSTRUCTIONS // max(1, len(facts.spec))))
    found: list[tuple[float, Cause, Sign]] = []
    for cause, sign in signs[:tries]:
        if len(found) > MOST and sign.most < sorted(f[0] for f in found)[-MOST]:
            break  # it would not be told
        saves = facts.body - cause.without(facts, sign)
        if saves >= LEAST_SHARE * latency_us:
            found.append((saves, cause, sign))
    return [_advice(facts, *each, latency_us) for each in _chosen(found)]


def _whole(signs: list[Sign]) -> Sign | None:
    """Return the signs of one cause as one, at the line that has most of it."""
    if not signs:
        return None
    signs.sort(key=lambda s: -s.most)
    first = signs[0]
    also = [s.line for s in signs[1:] if s.most >= ALSO * first.most]
    return replace(
        first,
        most=sum(s.most for s in signs),
        also=tuple(also),
        instrs=np.concatenate([s.instrs for s in signs]),
    )


def _chosen(found: list[tuple[float, Cause, Sign]]) -> list[tuple[float, Cause, Sign]]:
    """Return what is told, in order: the greatest saving first, one cause of a kin.

    Other dtypes come last: they are another task, which the advisor cannot know to be allowed.
    """
    left, out = list(found), list[tuple[float, Cause, Sign]]()
    while left and len(out) < MOST:
        best = max(saves for saves, _, _ in left)
        alike = [f for f in left if f[0] >= ALIKE * best]
        chosen = min(alike, key=lambda f: CAUSES.index(f[1]))
        out.append(chosen)
        left = [f for f in left if f is not chosen and (not f[1].kin or f[1].kin != chosen[1].kin)]
    return sorted(out, key=lambda chosen: chosen[1].narrows)


def _advice(facts: Facts, saves: float, cause: Cause, sign: Sign, latency_us: float) -> Advice:
    also = tuple(w for w in map(facts.where, sign.also) if w)
    return Advice(
        cause.name,
        facts.where(sign.line),
        sign.line,
        cause.says.format(**sign.say),
        cause.remedy.format(**sign.say),
        saves,
        latency_us,
        also,
    )


def verdict(plan: Schedule, hw: NeuronCore, dge: bool = False) -> str:
    """Return the sentence for a schedule for which there is no advice: what is busy, and, where
    that leaves much of the time, what the longest wait on the critical path is for."""
    facts = Facts(plan, hw, False, frozenset())
    names = {
        "tensor": "the Tensor Engine is",
        "vector": "the Vector Engine is",
        "scalar": "the Scalar Engine is",
        "gpsimd": "the GpSimd Engine is",
        "sync": "the queue of loads is",
        "dma": "the DMA engines are",
    }
    busy = (
        f"No known cause would save {LEAST_SHARE:.0%} of the time; {names[facts.bound]} busy "
        f"for {facts.of_latency[facts.bound]:.0%} of it (predicted)."
    )
    if not facts.body or facts.share[facts.bound] >= WAITS:
        return busy
    path = CriticalPath(plan, hw, dge).to_dict(most=0)
    row = next((r for r in path["by_line"] if r["why"] not in ("queue", "start")), None)
    if row is None:
        return busy
    place = f"{os.path.basename(row['where'].split(',')[0])}'s " if row["where"] else ""
    return (
        f"{busy} The rest are waits. The longest on the critical path: {place}"
        f"{row['instruction']} {row['why_text']} ({us(row['us'])})."
    )


__all__ = ["Advice", "advise", "us", "verdict"]
