"""Whether what a prediction says of its own error holds: for records, and for pairs of variants.

Each record is told the error of kernels of other families (error_bands.py), as a user's kernel is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import combinations
from typing import Any

import numpy as np

from ..simulation.error_bands import expected
from .outcomes import CLEAR, Outcome, variants


def neighbours(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Return what is kept of records that were compared, for bands of others.

    Errors are those by constants that do not know the family. Left out: records whose
    ratios alone count, and those whose prediction says that its error is unknown.
    """
    return [
        {
            "target": o.target,
            "bound": o.bound,
            "body_us": round(o.body_us, 1),
            "family": o.family,
            "error_pct": round(_error(o), 1),
        }
        for o in outcomes
        if o.error_pct is not None and not o.relative and not o.unknown
    ]


def _error(o: Outcome) -> float:
    return abs(o.error_pct or 0.0 if o.across_pct is None else o.across_pct)


def held(outcomes: Iterable[Outcome]) -> dict[str, Any]:
    """Return how often bands hold: for records, for families alike, and for pairs of variants.

    Pairs (that were measured to differ by more than CLEAR) are `apart` if their predictions differ
    by more than their bands, else `alike`; `..._right`: in the order of the measurements.
    """
    some = [o for o in outcomes if o.error_pct is not None and not o.unknown]
    near = neighbours(some)
    band = {
        id(o): round(told.pct, 1)
        for o in some
        if (
            told := expected(
                (n for n in near if n["family"] != o.family), o.target, o.bound, o.body_us
            )
        )
        is not None
    }
    some = [o for o in some if id(o) in band]  # the others' errors are unknown
    families: dict[str, list[bool]] = defaultdict(list)
    for o in some:
        families[o.family].append(round(_error(o), 1) <= band[id(o)])
    out: dict[str, Any] = {
        "records": len(some),
        "within": sum(map(sum, families.values())),
        "families": len(families),
        "within_pct": round(100 * float(np.mean([np.mean(f) for f in families.values()])), 1),
        "median_pct": round(float(np.median(list(band.values()))), 1),
        **dict.fromkeys(("apart", "apart_right", "alike", "alike_right"), 0),
    }
    for group in variants(some).values():
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
