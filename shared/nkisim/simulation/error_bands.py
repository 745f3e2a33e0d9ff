"""How far to trust a predicted time: what the model was off by for kernels like this one.

The errors are those of published measurements, each predicted by constants that were fitted
without its family (`python -m nkisim calibrate`, data/calibration.json).
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from ..chip.hw import NeuronCore
from ..timing.cost import Transfer, issue_us
from ..timing.schedule import Schedule
from ..timing.whatif import body_us

#: kernels are alike whose bodies lie between the same two of these, in microseconds
SIZES = (50.0, 1000.0)
FEW = 4  # families: fewer are no neighbourhood
SHARE = 2 / 3  # of families not seen: so many are no further off than what is said
UNKNOWN_BAND = 100.0  # %: what counts where the error is unknown
WEIGHTY = 0.25  # of the body: what is not understood matters from there on
SEEN = 0.05  # of the body (or DMAs) of a kernel: what takes less is no matter
FAR = 2.0  # times the longest measured one, or as much less than the shortest

BOUND_BY = {
    "tensor": "Tensor-Engine-bound",
    "vector": "Vector-Engine-bound",
    "scalar": "Scalar-Engine-bound",
    "gpsimd": "GpSimd-bound",
    "dma": "DMA-bound",
    "sync": "DMA-issue-bound",
    "latency": "latency-bound",
}


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
    data: dict[str, Any] = json.loads(text)
    return data


def overall() -> str:
    """Say how far the model is from all published measurements that nkisim carries."""
    facts = calibration()
    return (
        f"median |error| {facts['median_error_pct']} %, 90th percentile "
        f"{facts['p90_error_pct']} % on {facts['compared']} published measurements"
    )


def trust(plan: Schedule, hw: NeuronCore, dge: bool, bound: str, cores: int = 1) -> Trust:
    """Return what is known of the error of a schedule's time; `cores` ran at once."""
    why = _unlike(plan, hw, dge, cores)
    band = expected(calibration().get("neighbours", ()), hw.name, bound, body_us(plan))
    if not why and band is None:
        why = f"hardly any measured kernel is {_spec(bound)}"
    if why or band is None:
        return Trust(f"unknown: {why}" if hw.calibrated else "not calibrated", unknown=why)
    shown = f"{band.pct:.0f}" if band.pct >= 1 else "1"
    return Trust(f"±{shown} % (like {band.like} {band.words})", round(band.pct, 1), band.like)


def _unlike(plan: Schedule, hw: NeuronCore, dge: bool, cores: int) -> str:
    """Return why nothing that was measured tells about a schedule, "" if something does."""
    facts = calibration()
    if not hw.calibrated:
        return f"nothing was compared on {hw.name}"
    if cores > 1:
        return f"no measured kernel runs on {cores} cores at once"
    if _gathers(plan) >= SEEN:
        return "no measured kernel gathers or scatters rows, whose descriptors GpSimd makes"
    if _spills(plan) >= WEIGHTY:
        return "what a compiler spills of such a kernel, and when, was not measured"
    for what, (is_it, text) in UNKNOWN.items():
        if hw.name == what[0] and _share(plan, hw, dge, is_it) >= WEIGHTY:
            return f"{text} on {hw.name}"
    took = [n["body_us"] for n in facts.get("neighbours", ())]
    if took and not min(took) / FAR <= body_us(plan) <= max(took) * FAR:
        return f"measured kernels take {min(took):,.0f} to {max(took):,.0f} us"
    seen = set(facts.get("instructions", ()))
    new = {name: share for name, share in shares(plan, hw, dge).items() if name not in seen}
    engines: dict[str, float] = defaultdict(float)
    for name, share in new.items():
        engines[name.partition(" on ")[2]] += share
    if seen and max(engines.values(), default=0.0) >= WEIGHTY:
        return f"no measured kernel spends its time in {max(new, key=lambda name: new[name])}"
    return ""


def _gathers(plan: Schedule) -> float:
    """Return which share of the DMAs have rows that data choose.

    GpSimd makes their descriptors, in software (AWS Neuron SDK 2.32, NKI: descriptor generation);
    at what rate is not published, so the model does not charge it, and their time says nothing.
    """
    count = np.bincount(plan.deps.spec, minlength=len(plan.transfers)).tolist()
    every = chosen = 0
    for n, spec, x in zip(count, plan.trace.op_specs, plan.transfers):
        if x is not None:
            every += n
            chosen += n * spec.indirect
    return chosen / every if every else 0.0


def _spills(plan: Schedule) -> float:
    """Return which share of the bytes that DMAs move are spills and their loads.

    The model moves whole tiles; the compiler's choice of what to move is not published.
    """
    count = np.bincount(plan.deps.spec, minlength=len(plan.transfers)).tolist()
    every = spilled = 0
    for n, spec, x in zip(count, plan.trace.op_specs, plan.transfers):
        if x is not None:
            every += n * x.nbytes
            spilled += n * x.nbytes * spec.row.spills
    return spilled / every if every else 0.0


def shares(plan: Schedule, hw: NeuronCore, dge: bool) -> dict[str, float]:
    """Return the share of the body that instructions take: by "name on engine", of DMAs whose
    indices are data "name (indirect) on dma"."""
    out: dict[str, float] = defaultdict(float)
    body = body_us(plan) or 1.0
    count = np.bincount(plan.deps.spec, minlength=len(plan.works)).tolist()
    for n, spec, engine, w, x in zip(
        count, plan.trace.op_specs, plan.engines, plan.works, plan.transfers
    ):
        if n:
            us = (
                w.interval_us
                if w is not None
                else 0.0
                if x is None
                else max(issue_us(x, hw, dge), x.us * x.engines / hw.dma_engines)
            )
            name = spec.row.name + " (indirect)" * spec.indirect
            out[f"{name} on {engine}"] += n * us / body
    return dict(out)


@dataclass(frozen=True)
class Band:
    """What errors to expect: `pct`, from `like` so many kernels, in `words`."""

    pct: float
    like: int
    words: str


def expected(
    near: Iterable[dict[str, Any]], target: str, bound: str, body_us: float
) -> Band | None:
    """Return the error to expect of a kernel of a family that is not among its neighbours.

    `near`: records with target, bound, body_us, family and error_pct. Of these the most alike that
    are of FEW families: a family of many variants says no more than one of few. The kernel's own
    family counts as one more, which may be anywhere: so few neighbours do not make a narrow band.
    None: the same engine limits too few families of kernels.
    """
    every, size, spec = list(near), _size(body_us), _spec(bound)
    for text, wanted in (
        (f"{spec} kernels of {_words(size)}", (target, bound, size)),
        (f"{spec} kernels of {_words(size)}", (None, bound, size)),
        (f"{spec} kernels", (None, bound, None)),
    ):
        some = [
            n
            for n in every
            if all(
                w in (None, is_it)
                for w, is_it in zip(wanted, (n["target"], n["bound"], _size(n["body_us"])))
            )
        ]
        members = Counter(n["family"] for n in some)
        if len(members) >= FEW:
            by_error = sorted(some, key=lambda n: n["error_pct"])
            counted = np.cumsum([1 / members[n["family"]] for n in by_error])
            place = np.searchsorted(counted, SHARE * (len(members) + 1) - 1e-9)
            return Band(by_error[min(int(place), len(some) - 1)]["error_pct"], len(some), text)
    return None


def _spec(bound: str) -> str:
    return BOUND_BY.get(bound, f"{bound}-bound")


def _size(body_us: float) -> int:
    return bisect_left(SIZES, body_us)


def _words(size: int) -> str:
    return ("less than 50 us", "50 us to 1 ms", "more than 1 ms")[size]


def _share(plan: Schedule, hw: NeuronCore, dge: bool, is_it: Callable[[Transfer], bool]) -> float:
    """Return how much of the body such DMAs take, of their queue or of the DMA engines."""
    body = body_us(plan)
    count = np.bincount(plan.deps.spec, minlength=len(plan.transfers)).tolist()
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
