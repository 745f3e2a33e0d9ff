"""How far to trust a predicted time: what the model was off by for kernels like this one.

The errors are those of published measurements, each predicted by constants that were fitted
without its family (`python -m nkisim calibrate`, data/calibration.json).
"""
from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from .chip.hw import NeuronCore
from .timing.cost import Transfer, issue_us
from .timing.schedule import Schedule

#: kernels are alike whose bodies lie between the same two of these, in microseconds
SIZES = (50.0, 1000.0)
FEW = 4                     # families: fewer are no neighbourhood
SHARE = 2 / 3               # of families not seen: so many are no further off than what is said
NOBODY_KNOWS = 100.0        # %: what is said where there is nothing to compare with
WEIGHTY = 0.25              # of the body: what is not understood matters from there on

BOUND_BY = {"tensor": "Tensor-Engine-bound", "vector": "Vector-Engine-bound",
            "scalar": "Scalar-Engine-bound", "gpsimd": "GpSimd-bound", "dma": "DMA-bound",
            "sync": "DMA-issue-bound", "latency": "latency-bound"}


@dataclass(frozen=True)
class Trust:
    """What is known of a prediction's error: `pct`, as `like` so many kernels; or `unknown`."""

    text: str
    pct: float | None = None
    like: int = 0
    unknown: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        return {"pct": self.pct, "like": self.like, "unknown": self.unknown}


@cache
def calibration() -> dict[str, Any]:
    """Return what `calibrate --write` left: errors of all records."""
    text = resources.files("nkisim").joinpath("data/calibration.json").read_text("utf-8")
    return json.loads(text)


def overall() -> str:
    """Say how far the model is from all published measurements that nkisim carries."""
    facts = calibration()
    return (f"median |error| {facts['median_error_pct']} %, 90th percentile "
            f"{facts['p90_error_pct']} % on {facts['compared']} published measurements")


def trust(plan: Schedule, hw: NeuronCore, dge: bool, bound: str, body_us: float) -> Trust:
    """Return what is known of the error of a schedule's time."""
    if not hw.calibrated:
        return Trust("not calibrated", unknown=f"nothing was compared on {hw.name}")
    for what, (is_it, text) in UNKNOWN.items():
        if hw.name == what[0] and _share(plan, hw, dge, is_it) >= WEIGHTY:
            why = f"{text} on {hw.name}"
            return Trust(f"unknown: {why}", unknown=why)
    band = expected(calibration().get("neighbours", ()), hw.name, bound, body_us)
    shown = f"{band.pct:.0f}" if band.pct >= 1 else "1"
    return Trust(f"±{shown} % (like {band.like} {band.words})", round(band.pct, 1), band.like)


@dataclass(frozen=True)
class Band:
    """What errors to expect: `pct`, from `like` so many kernels, in `words`."""

    pct: float
    like: int
    words: str


def expected(near: Iterable[dict[str, Any]], target: str, bound: str, body_us: float) -> Band:
    """Return the error to expect of a kernel of a family that is not among its neighbours.

    `near`: records with target, bound, body_us, family and error_pct. Of these the most alike that
    are of FEW families: a family of many variants says no more than one of few. The kernel's own
    family counts as one more, which may be anywhere: so few neighbours do not make a narrow band.
    Without any it is NOBODY_KNOWS.
    """
    every, size = list(near), _size(body_us)
    kind = BOUND_BY.get(bound, f"{bound}-bound")
    mine, words = every, "kernels of all kinds"
    for text, wanted in ((f"{kind} kernels of {_words(size)}", (target, bound, size)),
                         (f"{kind} kernels of {_words(size)}", (None, bound, size)),
                         (f"{kind} kernels", (None, bound, None))):
        some = [n for n in every
                if all(w in (None, is_it) for w, is_it in
                       zip(wanted, (n["target"], n["bound"], _size(n["body_us"]))))]
        if len({n["family"] for n in some}) >= FEW:
            mine, words = some, text
            break
    if not mine:
        return Band(NOBODY_KNOWS, 0, words)
    members = Counter(n["family"] for n in mine)
    by_error = sorted(mine, key=lambda n: n["error_pct"])
    counted = np.cumsum([1 / members[n["family"]] for n in by_error])
    place = np.searchsorted(counted, SHARE * (len(members) + 1) - 1e-9)
    return Band(by_error[min(int(place), len(mine) - 1)]["error_pct"], len(mine), words)


def _size(body_us: float) -> int:
    return bisect_left(SIZES, body_us)


def _words(size: int) -> str:
    return ("less than 50 us", "50 us to 1 ms", "more than 1 ms")[size]


def _share(plan: Schedule, hw: NeuronCore, dge: bool, is_it: Callable[[Transfer], bool]) -> float:
    """Return how much of the body such DMAs take, of their queue or of the DMA engines."""
    body = float(plan.end.max(initial=0.0) - plan.issue.min(initial=np.inf)) \
        if len(plan.end) else 0.0
    count = np.bincount(plan.deps.kind, minlength=len(plan.transfers)).tolist()
    issued = served = 0.0
    for x, n in zip(plan.transfers, count):
        if x is not None and is_it(x):
            issued += n * issue_us(x, hw, dge)
            served += n * x.us * x.engines / hw.dma_engines
    return max(issued, served) / body if body > 0 else 0.0


def _scattered(x: Transfer) -> bool:
    return x.rows > 1 and x.nbytes <= 4 * x.rows


def _one_row(x: Transfer) -> bool:
    return x.rows == 1 and x.nbytes <= 4


#: (target, name): what the model is known not to understand there, and how it is called
UNKNOWN: dict[tuple[str, str], tuple[Callable[[Transfer], bool], str]] = {
    ("trn1", "one row"): (_one_row, "one-row DMAs"),
    ("trn1", "scattered"): (_scattered, "DMAs of 4 bytes a partition"),
}
