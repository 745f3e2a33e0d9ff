"""How far to trust a predicted time: what the model was off by for kernels like this one.

The errors are those of published measurements, each predicted by constants that were fitted
without its family (`python -m nkisim calibrate`, data/calibration.json).
"""
from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable
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
FEW = 5                     # fewer are no neighbourhood
SHARE = 2 / 3               # so many of the neighbours are no further off than what is said
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
    every = [n for n in calibration().get("neighbours", ()) if n["bound"] == bound]
    size = _size(body_us)
    mine = [n for n in every if n["target"] == hw.name and _size(n["body_us"]) == size]
    where = f" of {_words(size)}"
    if len(mine) < FEW:
        mine = [n for n in every if _size(n["body_us"]) == size]
    if len(mine) < FEW:
        mine, where = every, ""
    kind = BOUND_BY.get(bound, f"{bound}-bound")
    if len(mine) < FEW:
        return Trust(f"unknown: only {len(mine)} {kind} kernels were compared",
                     unknown=f"{kind} kernels")
    pct = float(np.quantile([n["error_pct"] for n in mine], SHARE))
    shown = f"{pct:.0f}" if pct >= 1 else "1"
    return Trust(f"±{shown} % (like {len(mine)} {kind} kernels{where})", round(pct, 1), len(mine))


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
