"""Whether what a prediction says of its own error holds: for records, and for pairs of variants.

Each record is told the error of kernels of other families (error_bands.py), as a user's kernel is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import combinations
from typing import Any

import numpy as np

from ..simulation import kinds
from ..simulation.error_bands import expected
from .outcomes import CLEAR, Outcome, order, variants


def neighbours(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Return what is kept of records that were compared, for bands of others.

    Errors are those by constants that do not know the family. Left out: records whose
    ratios alone count, and those whose prediction says that its error is unknown, but for special
    kinds: their error is unknown until enough kernels of the kind are here.
    """
    return [
        {
            "target": o.target,
            "bound": o.bound,
            "body_us": round(o.body_us, 1),
            "family": o.family,
            "kind": o.kind,
            "error_pct": round(_error(o), 1),
        }
        for o in outcomes
        if o.error_pct is not None and not o.relative and (not o.unknown or o.kind in kinds.SPECIAL)
    ]


def by_kind(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Return the figures of each kind of kernel as if the kind had never been seen, a dict a kind.

    Errors in percent: `median`, `p90` and `mape` by constants that do not know the kind
    (kinds.never_seen), `seen_median` by those of today. Records of one family count as one.
    `bands`: of how many records the error is told, and `within`: how many lie inside, where the
    bands come from kernels of other kinds alone; special kinds are told nothing then.
    """
    compared = [o for o in outcomes if o.error_pct is not None]
    near = neighbours(compared)
    out = []
    for kind in kinds.KINDS:
        of_kind = [o for o in compared if o.kind == kind]
        if not of_kind:
            continue
        count = Counter(o.family for o in of_kind)
        weight = np.array([1 / count[o.family] for o in of_kind])
        blind = np.array(
            [abs(o.error_pct or 0.0 if o.blind_pct is None else o.blind_pct) for o in of_kind]
        )
        others = [n for n in near if n["kind"] != kind]
        with_band = [
            (o, band.pct)
            for o in of_kind
            if not o.relative
            and (band := expected(others, o.target, o.bound, o.body_us, o.kind)) is not None
        ]
        pairs = order(of_kind)
        out.append(
            {
                "kind": kind,
                "records": len(of_kind),
                "families": len(count),
                "median": _weighted(blind, weight, 0.5),
                "p90": _weighted(blind, weight, 0.9),
                "mape": round(float(np.average(blind, weights=weight)), 1),
                "seen_median": _weighted(
                    np.array([abs(o.error_pct or 0.0) for o in of_kind]), weight, 0.5
                ),
                "pairs": pairs["pairs"],
                "pairs_right": pairs["pairs_right"],
                "bands": len(with_band),
                "within": sum(abs(o.error_pct or 0.0) <= pct for o, pct in with_band),
            }
        )
    return out


def kind_lines(facts: Iterable[dict[str, Any]]) -> list[str]:
    """Return the table of kinds as Markdown."""
    return [
        "| kind, left out | records | families | median % | 90th percentile % | mean % | "
        "median % with the kind | pairs right | inside bands of other kinds |",
        "|---|---|---|---|---|---|---|---|---|",
        *(
            f"| {f['kind']} | {f['records']} | {f['families']} | {f['median']} | {f['p90']} | "
            f"{f['mape']} | {f['seen_median']} | "
            + (f"{f['pairs_right']} of {f['pairs']}" if f["pairs"] else "-")
            + " | "
            + (f"{f['within']} of {f['bands']}" if f["bands"] else "error unknown")
            + " |"
            for f in facts
        ),
    ]


def _weighted(values: np.ndarray, weight: np.ndarray, share: float) -> float:
    """Return the smallest value that reaches a share of the weight, with one digit."""
    by_value = np.argsort(values)
    reach = np.cumsum(weight[by_value]) / weight.sum()
    return round(
        float(values[by_value[min(int(np.searchsorted(reach, share)), len(values) - 1)]]), 1
    )


def _error(o: Outcome) -> float:
    return abs(o.error_pct or 0.0 if o.across_pct is None else o.across_pct)


def hit_rates(outcomes: Iterable[Outcome]) -> dict[str, Any]:
    """Return how often bands hold: for records, for families alike, and for pairs of variants.

    Pairs (that were measured to differ by more than CLEAR) are `apart` if their predictions differ
    by more than their bands, else `alike`; `..._right`: in the order of the measurements.
    """
    compared = [o for o in outcomes if o.error_pct is not None and not o.unknown]
    near = neighbours(compared)
    band = {
        id(o): round(promised.pct, 1)
        for o in compared
        if (
            promised := expected(
                (n for n in near if n["family"] != o.family), o.target, o.bound, o.body_us, o.kind
            )
        )
        is not None
    }
    compared = [o for o in compared if id(o) in band]  # the others' errors are unknown
    families: dict[str, list[bool]] = defaultdict(list)
    for o in compared:
        families[o.family].append(round(_error(o), 1) <= band[id(o)])
    out: dict[str, Any] = {
        "records": len(compared),
        "within": sum(map(sum, families.values())),
        "families": len(families),
        "within_pct": round(100 * float(np.mean([np.mean(f) for f in families.values()])), 1),
        "median_pct": round(float(np.median(list(band.values()))), 1),
        **dict.fromkeys(("apart", "apart_right", "alike", "alike_right"), 0),
    }
    for group in variants(compared).values():
        for one, other in combinations(group.values(), 2):
            a, b = (
                tuple(
                    float(np.mean(x))
                    for x in zip(
                        *(
                            (o.measured_us, o.predicted_us if o.across_us is None else o.across_us)
                            for o in v
                        )
                    )
                )
                for v in (one, other)
            )
            (fast, slow), (low, high) = sorted((a, b)), sorted((a[1], b[1]))
            if slow[0] > fast[0] * (1 + CLEAR):
                pct = max(band[id(o)] for o in (*one, *other))
                kind = "apart" if high > low * (1 + pct / 100) else "alike"
                out[kind] += 1
                out[f"{kind}_right"] += fast[1] < slow[1]
    return out
