"""What nkisim keeps of a comparison: data/calibration.json, and the figures of its page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..simulation.error_bands import SEEN
from . import bands
from .outcomes import CLEAR, Outcome, by_family, report


def write(path: Path, outcomes: list[Outcome], twins: Iterable[Outcome]) -> None:
    """Write what a comparison of all records said: nkisim carries it as data/calibration.json.

    Predictions are in microseconds, by the record's id; `twins` of kernels of ours.
    """
    for o in outcomes:  # figures are those of the predictions as they are kept
        if o.predicted_us is not None:
            o.predicted_us = round(o.predicted_us, 4)
            o.error_pct = 100.0 * (o.predicted_us / o.measured_us - 1.0)
        if o.across_us is not None:
            o.across_us = round(o.across_us, 4)
            o.across_pct = 100.0 * (o.across_us / o.measured_us - 1.0)
    facts = report(outcomes)
    document = {
        "schema": 3,
        "compared": facts["compared"],
        "skipped": facts["skipped"],
        "median_error_pct": round(facts["median_error_pct"], 1),
        "p90_error_pct": round(facts["p90_error_pct"], 1),
        "mean_error_pct": round(facts["mean_error_pct"], 1),
        "across": rounded(facts["across"]),
        "order": facts["order"],
        "files": [rounded(f) for f in facts["files"]],
        "families": by_family(outcomes),
        "predicted_us": _us(outcomes, "predicted_us"),
        "across_us": _us(outcomes, "across_us"),
        "twins_us": _us(twins, "predicted_us"),
        "bands": bands.hit_rates(outcomes),
        "kinds": bands.by_kind(outcomes),
        "neighbours": bands.neighbours(outcomes),
        "instructions": sorted(
            {
                name
                for o in outcomes
                if o.predicted_us is not None
                for name, share in o.shares.items()
                if share >= SEEN
            }
        ),
    }
    text = json.dumps(document, indent=1)
    text = re.sub(
        r"\{\s+(\"(?:target|family)\": [^{}]*?)\s+\}",  # a line each
        lambda m: "{" + re.sub(r"\s+", " ", m[1]) + "}",
        text,
    )
    path.write_text(text + "\n", encoding="utf-8")


def page(facts: dict[str, Any]) -> str:
    """Return the figures that `write` wrote, in Markdown: residuals of docs/latency-model.md."""
    inside, across = facts["order"], facts["across"]

    def rate(right: int, of: int) -> str:
        return f"{right} of {of} ({100 * right / of:.0f} %)" if of else "-"

    out = [
        f"{facts['compared']} records compared, {facts['skipped']} skipped; |error|: median "
        f"{facts['median_error_pct']} %, 90th percentile {facts['p90_error_pct']} %, mean "
        f"{facts['mean_error_pct']} %. Of "
        f"{inside['pairs']} pairs of variants that differ by more than {100 * CLEAR:.0f} %, "
        f"{100 * inside['pairs_right'] / inside['pairs']:.0f} % are told apart rightly; the best "
        f"variant (within {100 * CLEAR:.0f} %) of {inside['best_right']} families of "
        f"{inside['families']}.",
        "",
        "| records | constants | number | median % | 90th percentile % | mean % | pairs right | "
        "best right |",
        "|---|---|---|---|---|---|---|---|",
    ]
    rows = [(f"`{f['file']}`", f, f["across"]) for f in facts["files"]]
    rows.append(
        (
            "all",
            {
                **inside,
                "records": facts["compared"],
                **{k: facts[k] for k in ("median_error_pct", "p90_error_pct", "mean_error_pct")},
            },
            across,
        )
    )
    for name, seen, unseen in rows:
        for f, fitted in ((seen, "as they are"), (unseen, "fitted without the family")):
            if f:
                out.append(
                    f"| {name} | {fitted} | {f['records']} | {f['median_error_pct']} | "
                    f"{f['p90_error_pct']} | {f['mean_error_pct']} | "
                    f"{rate(f['pairs_right'], f['pairs'])} | "
                    f"{rate(f['best_right'], f['families'])} |"
                )
    inside = facts["bands"]
    out += [
        "",
        f"Of {inside['records']} records {inside['within']} "
        f"({100 * inside['within'] / inside['records']:.0f} %) lie in the band that a kernel of "
        f"another family would be told, {inside['within_pct']:.0f} % where families count alike;"
        f" half of the bands are ±{inside['median_pct']} % or less. Of the pairs that differ by "
        f"more than their band {rate(inside['apart_right'], inside['apart'])} are told apart "
        f"rightly, of the others {rate(inside['alike_right'], inside['alike'])}.",
    ]
    if facts.get("kinds"):
        out += [
            "",
            "Each kind of kernel as if it had never been seen: by constants that do not know it, "
            "and told the errors of other kinds. Records of one family count as one.",
            "",
            *bands.kind_lines(facts["kinds"]),
        ]
    out += ["", "| family | records | median error % | worst error % |", "|---|---|---|---|"]
    out += [
        f"| {f['family']} | {f['records']} | {f['median_error_pct']} | {f['worst_error_pct']} |"
        for f in facts["families"]
    ]
    return "\n".join(out)


def write_page(path: Path, facts: dict[str, Any]) -> None:
    """Put `page` between the marks of a Markdown file; raise ValueError where there are none."""
    text = path.read_text("utf-8")
    new, n = re.subn(
        r"(<!-- residuals -->\n).*?(\n<!-- /residuals -->)",
        lambda m: m[1] + page(facts) + m[2],
        text,
        flags=re.S,
    )
    if not n:
        raise ValueError("it has no <!-- residuals --> ... <!-- /residuals -->")
    path.write_text(new, "utf-8")


def rounded(facts: dict[str, Any] | None) -> dict[str, Any]:
    """Return figures as they are kept, with one digit; {} for none."""
    return {
        k: round(v, 1) if isinstance(v, float) else rounded(v) if k == "across" else v
        for k, v in (facts or {}).items()
    }


def _us(outcomes: Iterable[Outcome], name: str) -> dict[str, float]:
    """Return one of the predictions of each record, by its id."""
    return {o.id: round(us, 4) for o in outcomes if (us := getattr(o, name)) is not None}
