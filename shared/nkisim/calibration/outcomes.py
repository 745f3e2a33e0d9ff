"""What became of each record of a calibration, and the figures of all of them together."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

#: numbers that differ by less than this are the same: repeated runs differ by so much
SAME = 0.005
#: variants that differ by more than this are worth telling apart
CLEAR = 0.05

REASONS = 8  # for which records were skipped: so many are listed


@dataclass
class Outcome:
    """What became of one record."""

    id: str
    target: str
    metric: str
    measured_us: float
    predicted_us: float | None = None
    error_pct: float | None = None
    skipped: str | None = None  # why it has no prediction
    family: str = ""
    variant: str = ""
    bound: str = ""
    unknown: str = ""  # what the prediction says that it does not understand
    instructions: int = 0
    shares: dict[str, float] = field(default_factory=dict)  # of its time, by instruction
    seconds: float = 0.0  # of our own time
    body_us: float = 0.0
    kind: str = ""  # which mechanism decides its time (simulation/kinds.py)
    blind_us: float | None = None  # predicted by constants that do not know the kind
    blind_pct: float | None = None
    relative: bool = False  # only ratios within the family count: its error is that
    ranked: bool = True
    file: str = ""  # of the records
    across_us: float | None = None  # predicted by constants fitted without the family
    across_pct: float | None = None
    counted: dict[str, float] = field(default_factory=dict)  # by the profiler ...
    counters: dict[str, float] = field(default_factory=dict)  # ... and by the model


def level(outcomes: Iterable[Outcome]) -> None:
    """Let errors of records whose machine is not ours be those of ratios within the family."""
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for o in outcomes:
        if o.relative and o.predicted_us is not None:
            groups[o.family].append(o)
    for group in groups.values():
        for o, error in zip(group, _levelled(group, [o.predicted_us for o in group])):
            o.error_pct = error
        if all(o.across_us is not None for o in group):
            for o, error in zip(group, _levelled(group, [o.across_us for o in group])):
                o.across_pct = error
        predicted = [o.predicted_us if o.blind_us is None else o.blind_us for o in group]
        for o, error in zip(group, _levelled(group, predicted)):
            o.blind_pct = error


def _levelled(family: list[Outcome], predicted: list[float | None]) -> list[float]:
    logs = np.log(np.array(predicted, float) / [o.measured_us for o in family])
    return (100.0 * np.expm1(logs - np.median(logs))).tolist()


def variants(
    outcomes: Iterable[Outcome], unseen: bool = False
) -> dict[tuple[str, str, str], dict[str, list[Outcome]]]:
    """Return records with a prediction whose order counts: by family, target and metric, then by
    variant. `unseen`: those with `across_us`."""
    groups: dict[tuple, dict[str, list[Outcome]]] = defaultdict(lambda: defaultdict(list))
    for o in outcomes:
        if (o.across_us if unseen else o.predicted_us) is not None and o.ranked:
            groups[o.family, o.target, o.metric][o.variant or o.id].append(o)
    return groups


def order(outcomes: Iterable[Outcome], unseen: bool = False) -> dict[str, int]:
    """Return how many pairs of variants, and best variants, of a family are told rightly.

    Pairs are those that differ by more than CLEAR; a best one is right if the one that is
    predicted to be best is within CLEAR of the one that is. `unseen`: by `across_us`.
    """
    out = dict.fromkeys(("pairs", "pairs_right", "families", "best_right"), 0)
    for group in variants(outcomes, unseen).values():
        ordered = [
            (
                float(np.mean([o.measured_us for o in v])),
                float(np.mean([(o.across_us if unseen else o.predicted_us) or 0.0 for o in v])),
            )
            for v in group.values()
        ]
        if len(ordered) < 2:
            continue
        for a, b in combinations(sorted(ordered), 2):
            if b[0] > a[0] * (1 + CLEAR):
                out["pairs"] += 1
                out["pairs_right"] += a[1] < b[1]
        out["families"] += 1
        best = min(ordered, key=lambda pair: pair[1])
        out["best_right"] += best[0] <= min(ordered)[0] * (1 + CLEAR)
    return out


def figures(outcomes: Iterable[Outcome], unseen: bool = False) -> dict[str, Any] | None:
    """Return records, median, 90th percentile and mean of |error| in percent, and the order of
    variants. None if there is no prediction.

    `unseen`: by constants that were fitted without the family.
    """
    compared = list(outcomes)
    errors = [
        abs(e) for o in compared if (e := o.across_pct if unseen else o.error_pct) is not None
    ]
    if not errors:
        return None
    return {
        "records": len(errors),
        "median_error_pct": float(np.median(errors)),
        "p90_error_pct": float(np.percentile(errors, 90)),
        "mean_error_pct": float(np.mean(errors)),
        **order(compared, unseen),
    }


def by_file(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Return the figures of each file of records: as they are, and of families unseen."""
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for o in outcomes:
        groups[o.file].append(o)
    return [
        {"file": name, **seen, "across": figures(group, unseen=True)}
        for name, group in groups.items()
        if (seen := figures(group)) is not None
    ]


def rank_correlation(a: list[float], b: list[float]) -> float:
    """Return Spearman's rank correlation; values within SAME share the mean of their ranks."""

    def ranks(x: list[float]) -> np.ndarray:
        values = np.asarray(x, float)
        order = np.argsort(values, kind="stable")
        steps = np.diff(values[order]) > SAME * values[order][:-1]
        group = np.concatenate([[0], np.cumsum(steps)])
        out = np.empty(len(x))
        for g in set(group.tolist()):
            out[order[group == g]] = np.flatnonzero(group == g).mean()
        return out

    ra, rb = ranks(a), ranks(b)
    if ra.std() == 0 or rb.std() == 0:
        return float("nan")
    return float(np.corrcoef(ra, rb)[0, 1])


def families(outcomes: list[Outcome]) -> dict[str, tuple[int, float]]:
    """Return {family: (variants, rank correlation)} of families with two and more variants.

    What several people measured of one variant counts once, as the mean.
    """
    groups: dict[str, dict[str, list[Outcome]]] = defaultdict(lambda: defaultdict(list))
    for o in outcomes:
        if o.predicted_us is not None:
            groups[o.family][o.variant or o.id].append(o)
    return {
        name: (
            len(g),
            rank_correlation(
                [float(np.mean([o.measured_us for o in v])) for v in g.values()],
                [float(np.mean([float(o.predicted_us or 0) for o in v])) for v in g.values()],
            ),
        )
        for name, g in sorted(groups.items())
        if len(g) >= 2
    }


def by_family(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Return how far each family is off: records, median and worst |error| in percent."""
    groups: dict[str, list[float]] = defaultdict(list)
    for o in outcomes:
        if o.error_pct is not None:
            groups[o.family].append(abs(o.error_pct))
    return [
        {
            "family": name,
            "records": len(e),
            "median_error_pct": round(float(np.median(e)), 1),
            "worst_error_pct": round(max(e), 1),
        }
        for name, e in sorted(groups.items())
    ]


def report(outcomes: list[Outcome], twins: Iterable[Outcome] = ()) -> dict[str, Any]:
    """Return everything as one JSON-ready dict; figures are of the records, not of our twins."""
    level(outcomes)
    errors = [abs(o.error_pct) for o in outcomes if o.error_pct is not None]
    return {
        "records": [asdict(o) for o in outcomes],
        "compared": len(errors),
        "skipped": len(outcomes) - len(errors),
        "median_error_pct": float(np.median(errors)) if errors else None,
        "p90_error_pct": float(np.percentile(errors, 90)) if errors else None,
        "mean_error_pct": float(np.mean(errors)) if errors else None,
        "across": figures(outcomes, unseen=True),
        "order": order(outcomes),
        "files": by_file(outcomes),
        "families": [
            {"family": f, "variants": n, "rank_correlation": None if r != r else r}
            for f, (n, r) in families(outcomes).items()
        ],
        "twins": [asdict(o) for o in twins],
    }


def _table(outcomes: list[Outcome]) -> list[str]:
    width = max((len(o.id) for o in outcomes), default=2)
    out = [f"{'id':<{width}}  target  metric         measured us  predicted us   error %"]
    for o in outcomes:
        head = f"{o.id:<{width}}  {o.target:<6}  {o.metric:<13} {o.measured_us:>12.1f}"
        out.append(
            f"{head}  skipped: {o.skipped}"
            if o.predicted_us is None
            else f"{head}  {o.predicted_us:>12.1f}  {o.error_pct:>+8.1f}"
        )
    return out


def lines(outcomes: list[Outcome], twins: list[Outcome] | None = None) -> list[str]:
    """Return the tables as text."""
    facts = report(outcomes)
    out = [*_table(outcomes), ""]
    if facts["compared"]:
        out.append(
            f"{facts['compared']} records compared, {facts['skipped']} skipped; |error|: "
            f"median {facts['median_error_pct']:.1f} %, "
            f"90th percentile {facts['p90_error_pct']:.1f} %, mean {facts['mean_error_pct']:.1f} %"
        )
    else:
        out.append(f"nothing was compared: {facts['skipped']} records skipped")
    if facts["across"]:
        out.append(
            f"{facts['across']['records']} of them by constants that were fitted without "
            f"their family: median {facts['across']['median_error_pct']:.1f} %, "
            f"90th percentile {facts['across']['p90_error_pct']:.1f} %"
        )
    for share, ending in ((facts["order"], ""), (facts["across"], ", by such constants")):
        if share and share["pairs"]:
            out.append(
                f"of {share['pairs']} pairs of variants that differ by more than {CLEAR:.0%},"
                f" {share['pairs_right'] / share['pairs']:.0%} are told apart rightly{ending}; "
                f"the best one of {share['best_right']} families of {share['families']}"
            )
    for f in facts["files"] if len(facts["files"]) > 1 else ():
        for share, ending in ((f, ""), (f["across"], " (families unseen)")):
            if share:
                out.append(
                    f"  {f['file']}{ending}: {share['records']} records, median "
                    f"{share['median_error_pct']:.1f} %, 90th percentile "
                    f"{share['p90_error_pct']:.1f} %; {share['pairs_right']} of "
                    f"{share['pairs']} pairs, {share['best_right']} of "
                    f"{share['families']} best ones"
                )
    for f in facts["families"]:
        rank = f["rank_correlation"]
        out.append(
            f"  rank correlation {'   n/a' if rank is None else f'{rank:6.3f}'} over "
            f"{f['variants']} variants of {f['family']}"
        )
    if twins:
        out += [
            "",
            "Kernels of ours with the structure of the published ones (no sources needed):",
            *_table(twins),
        ]
        errors = [abs(o.error_pct) for o in twins if o.error_pct is not None]
        if errors:
            out += [
                "",
                f"{len(errors)} compared; |error|: median {np.median(errors):.1f} %, "
                f"90th percentile {np.percentile(errors, 90):.1f} %",
            ]
    return out


def skipped_lines(outcomes: Iterable[Outcome]) -> list[str]:
    """Return why records have no prediction, the commonest reasons first; [] if all have one."""
    rows = list(outcomes)
    reasons = Counter(o.skipped for o in rows if o.predicted_us is None)
    if not reasons:
        return []
    shown = reasons.most_common(REASONS)
    more = len(reasons) - len(shown)
    return [
        f"{sum(reasons.values())} of {len(rows)} records were skipped:",
        *(f"{count:>5}  {reason}" for reason, count in shown),
        *([f"       and for {more} more reasons: --json has them all"] if more else []),
    ]


def counter_lines(outcomes: list[Outcome]) -> list[str]:
    """Return what profilers counted beside what the model counts, as text.

    Below it: of each counter how many are near. A share (0 to 1) of an engine that neither saw busy
    is not counted.
    """
    out = [f"{'id':<44}{'counter':<17}{'counted':>15}{'model':>15}"]
    exact = total = 0
    near: dict[str, list[bool]] = {}
    for o in outcomes:
        for name, value in o.counted.items():
            if name not in o.counters:
                continue
            ours, whole = o.counters[name], float(value).is_integer() and value > 1
            total, exact = total + whole, exact + (whole and ours == value)
            if name.endswith("_active"):
                if ours or value:
                    near.setdefault(f"{name} within 10 points", []).append(abs(ours - value) <= 0.1)
            elif "hbm" in name or "bytes" in name:
                near.setdefault(f"{name} within 2 %", []).append(abs(ours - value) <= 0.02 * value)
            shown = (
                f"{int(value):>15,}{int(ours):>15,}" if whole else f"{value:>15.3f}{ours:>15.3f}"
            )
            out.append(
                f"{o.id[:43]:<44}{name:<17}{shown}"
                + ("" if not whole or ours == value else f"  {ours / value - 1:+.1%}")
            )
    return [
        *out,
        "",
        f"{exact} of {total} whole numbers are exactly those of the profiler",
        *(f"{sum(equal)} of {len(equal)} {counter}" for counter, equal in sorted(near.items())),
    ]
