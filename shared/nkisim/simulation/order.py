"""Can the model tell which of two kernels is faster? As often as it was right of published ones.

data/order.json is the curve: of pairs of measured kernels whose predictions differ by at least so
much, how many were ordered rightly (`python tools/benchmarks/when_to_trust.py --write`).
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources

from .error_bands import UNKNOWN_BAND

#: share of pairs that must have been ordered rightly
SURE = 0.99
#: % by which predictions of a few nearly equal block sizes still are in the wrong order
LEAST_PCT = 2.0


@cache
def least_pct(variants: bool) -> float:
    """Return by how many % two predictions must differ to be ordered: of variants of one kernel
    (other constants), or of different kernels."""
    rows = json.loads(
        resources.files("nkisim").joinpath("data/order.json").read_text(encoding="utf-8")
    )["variants" if variants else "others"]
    sure = [row["differ_pct"] for row in rows if row["right"] >= SURE]
    return float(max(LEAST_PCT, min(sure, default=UNKNOWN_BAND)))


def told_apart(one_us: float, two_us: float, variants: bool) -> bool:
    """Return whether the model can tell which of two predicted times is the smaller one."""
    slow, fast = max(one_us, two_us), min(one_us, two_us)
    return slow > fast * (1 + least_pct(variants) / 100)


def text() -> str:
    """Return the rule in a sentence."""
    return (
        f"{least_pct(True):g} % (of another kernel: {least_pct(False):g} %), at which "
        f"{SURE:.0%} of published pairs are ordered rightly"
    )
