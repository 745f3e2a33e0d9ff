"""How many pairs of kernels does the model order rightly, against how many it is not asked about?

    python tools/benchmarks/when_to_trust.py [--write]

Each published measurement has a prediction by constants that were fitted without its family of
kernels (data/calibration.json, `across_us`). Pairs are two records of one generation and metric
whose measured times differ by more than 5 %: of one family (variants of one kernel), and of
different ones. A pair is deferred if its predictions differ by less than a threshold.
`--write` puts the table into docs/evaluate.md, and into the package, where `tune` and
`Evaluation.faster_than` read from how much on two times can be told apart (data/order.json).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import nkisim

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "evaluate.md"
DATA = Path(nkisim.__file__).parent / "data"
CALIBRATION = DATA.with_name("calibration")
THRESHOLDS = (0, 1, 2, 5, 10, 20, 50)  # % by which two predictions differ
CLEAR = 0.05  # measured times that are nearer are no order


def pairs() -> Iterator[tuple[bool, float, bool]]:
    """Yield (of one family, predicted difference in %, whether the order is right)."""
    facts = json.loads((DATA / "calibration.json").read_text("utf-8"))
    records = [
        r
        for name in facts["files"]
        for r in json.loads((CALIBRATION / name["file"]).read_text("utf-8"))["records"]
        if r["id"] in facts["across_us"]
    ]
    for a, b in combinations(records, 2):
        if (a["target"], a["metric"]) != (b["target"], b["metric"]):
            continue
        x, y = float(a["value_us"]), float(b["value_us"])
        if max(x, y) <= min(x, y) * (1 + CLEAR):
            continue
        p, q = facts["across_us"][a["id"]], facts["across_us"][b["id"]]
        same = all(a["source"].get(k) == b["source"].get(k) for k in ("repo", "path", "function"))
        yield same, 100 * (max(p, q) / min(p, q) - 1), (p < q) == (x < y)


def curve(every: list[tuple[bool, float, bool]], variants: bool) -> list[dict[str, float]]:
    """Return a row for each threshold: pairs, the share deferred, the share ordered rightly."""
    mine = [(d, right) for same, d, right in every if same == variants]
    rows = []
    for least in THRESHOLDS:
        kept = [right for d, right in mine if d >= least]
        rows.append(
            {
                "differ_pct": least,
                "pairs": len(mine),
                "deferred": round(1 - len(kept) / len(mine), 4),
                "right": round(sum(kept) / max(1, len(kept)), 4),
            }
        )
    return rows


def main() -> int:
    """Print the table; write it if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    every = list(pairs())
    lines = [
        "| predictions differ by less than | variants deferred | ordered rightly | "
        "other pairs deferred | ordered rightly |",
        "| --- | --- | --- | --- | --- |",
    ]
    found = {"variants": curve(every, True), "others": curve(every, False)}
    for rows in zip(found["variants"], found["others"]):
        cells = [f"{r['deferred']:.0%} | {r['right']:.1%}" for r in rows]
        lines.append(f"| {rows[0]['differ_pct']} % | {' | '.join(cells)} |")
    counts = [found[kind][0]["pairs"] for kind in ("variants", "others")]
    lines += ["", f"{counts[0]:,} pairs of variants, {counts[1]:,} others."]
    print("\n".join(lines))
    if options.write:
        table = "<!-- trust -->\n" + "\n".join(lines) + "\n<!-- /trust -->"
        text = PAGE.read_text("utf-8")
        text = re.sub(r"<!-- trust -->.*?<!-- /trust -->", lambda _: table, text, flags=re.S)
        PAGE.write_text(text, "utf-8")
        (DATA / "order.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
