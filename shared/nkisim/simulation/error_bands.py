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
from . import kinds

#: kernels are alike whose bodies lie between the same two of these, in microseconds
SIZES = (50.0, 1000.0)
FEW = 4  # families: fewer are no neighbourhood
SHARE = 0.85  # of families not seen: so many are no further off than what is said
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
    kind = kinds.kind_of(plan, hw, dge, bound, cores)
    band = expected(calibration().get("neighbours", ()), hw.name, bound, body_us(plan), kind)
    why = "" if hw.calibrated else f"nothing was compared on {hw.name}"
    if not why and band is None and kind in kinds.SPECIAL:
        why = kinds.SPECIAL[kind]
    why = why or _unlike(plan, hw, dge)
    if not why and band is None:
        why = f"hardly any measured kernel is {_spec(bound)}"
    if why or band is None:
        return Trust(f"unknown: {why}" if hw.calibrated else "not calibrated", unknown=why)
    shown = f"{band.pct:.0f}" if band.pct >= 1 else "1"
    return Trust(f"±{shown} % (like {band.like} {band.words})", round(band.pct, 1), band.like)


def _unlike(plan: Schedule, hw: NeuronCore, dge: bool) -> str:
    """Return why nothing that was measured tells about a schedule, "" if something does."""
    facts = calibration()
    for kind, (is_it, text) in UNKNOWN.items():
        if hw.name == kind[0] and kinds.share(plan, hw, dge, is_it) >= WEIGHTY:
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


def shares(plan: Schedule, hw: NeuronCore, dge: bool) -> dict[str, float]:
    """Return the share of the body that instructions take: by "name on engine", of DMAs whose
    indices are data "name (indirect) on dma"."""
    out: dict[str, float] = defaultdict(float)
    body = body_us(plan) or 1.0
    count = np.bincount(plan.deps.spec, minlength=len(plan.works)).tolist()
    for n, spec, engine, w, transfer in zip(
        count, plan.trace.op_specs, plan.engines, plan.works, plan.transfers
    ):
        if n:
            us = (
                w.interval_us
                if w is not None
                else 0.0
                if transfer is None
                else max(
                    issue_us(transfer, hw, dge), transfer.us * transfer.engines / hw.dma_engines
                )
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
    near: Iterable[dict[str, Any]], target: str, bound: str, body_us: float, kind: str = ""
) -> Band | None:
    """Return the error to expect of a kernel of a family that is not among its neighbours.

    `near`: records with target, bound, body_us, family, error_pct and kind. A kernel of a special
    `kind` has only records of its kind for neighbours, any other kernel none of these. Of them the
    most alike that are of FEW families: a family of many variants says no more than one of few. The
    kernel's own family counts as one more, which may be anywhere: so few neighbours do not make a
    narrow band. None: the same engine limits too few families of kernels.
    """
    size, spec = _size(body_us), _spec(bound)
    special = kind if kind in kinds.SPECIAL else ""
    measured = [n for n in near if (k if (k := n.get("kind")) in kinds.SPECIAL else "") == special]
    steps: tuple[tuple[str, tuple[Any, ...]], ...] = (
        (f"{spec} kernels of {_words(size)}", (target, bound, size)),
        (f"{spec} kernels of {_words(size)}", (None, bound, size)),
        (f"{spec} kernels", (None, bound, None)),
    )
    if special:
        steps = ((f"{special} kernels", (None, None, None)),)
    for text, wanted in steps:
        similar = [
            n
            for n in measured
            if all(
                w in (None, is_it)
                for w, is_it in zip(wanted, (n["target"], n["bound"], _size(n["body_us"])))
            )
        ]
        members = Counter(n["family"] for n in similar)
        if len(members) >= FEW:
            by_error = sorted(similar, key=lambda n: n["error_pct"])
            counted = np.cumsum([1 / members[n["family"]] for n in by_error])
            place = np.searchsorted(counted, SHARE * (len(members) + 1) - 1e-9)
            return Band(
                by_error[min(int(place), len(similar) - 1)]["error_pct"], len(similar), text
            )
    return None


def _spec(bound: str) -> str:
    return BOUND_BY.get(bound, f"{bound}-bound")


def _size(body_us: float) -> int:
    return bisect_left(SIZES, body_us)


def _words(size: int) -> str:
    return ("less than 50 us", "50 us to 1 ms", "more than 1 ms")[size]


def _scattered(transfer: Transfer) -> bool:
    return transfer.rows > 1 and transfer.nbytes <= 4 * transfer.rows


def _one_row(transfer: Transfer) -> bool:
    return transfer.rows == 1 and transfer.nbytes <= 4


#: (target, name): what the model is known not to understand there, and how it is called
UNKNOWN: dict[tuple[str, str], tuple[Callable[[Transfer], bool], str]] = {
    ("trn1", "one row"): (_one_row, "one-row DMAs"),
    ("trn1", "scattered"): (_scattered, "DMAs of 4 bytes a partition"),
}
