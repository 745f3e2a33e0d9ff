"""Does `tune` find the best block sizes that were measured? AWS's blocked matmul, on a grid.

    python tools/benchmarks/tune_matmul_grid.py [--sources DIR] [--write]

The measurements are published ones that come with nkisim (calibration/measurements-nki.json): one
kernel of the package nki, and 74 choices of the tiles of a block. `tune` predicts every combination
of those values, and its table is held against the times of the chip. Without `--sources`, a folder
with a checkout of aws-neuron/aws-neuron-sdk as DIR/aws-neuron+aws-neuron-sdk, a kernel of ours with
the structure of AWS's is tuned.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from kernels_vs_floor import put
from rich.console import Console
from rich.table import Table

import nkisim
from labkit.load import load_module
from nkisim.tuning.tune import Row

CALIBRATION = Path(nkisim.__file__).parent / "calibration"
NAMES = ("TILES_IN_BLOCK_M", "TILES_IN_BLOCK_N", "TILES_IN_BLOCK_K")
#: what is measured differs by less from one run to the next: choices this near are equally good
NOISE = 0.005
#: gaps of this and more count when pairs are compared
GAP = 0.05


def values(kwargs: Any) -> tuple[int, ...]:
    """Return the block sizes of a call."""
    return tuple(int(kwargs[name]) for name in NAMES)


def grids() -> dict[str, list[dict[str, Any]]]:
    """Return the measured records with block sizes, by problem."""
    found: dict[str, list[dict[str, Any]]] = {}
    for record in json.loads((CALIBRATION / "measurements-nki.json").read_text("utf-8"))["records"]:
        if set(NAMES) <= set(record.get("kwargs", {})):
            key = json.dumps([record["args"], record["target"], record["descriptors"]])
            found.setdefault(key, []).append(record)
    return found


def kernel(sources: Path | None, record: dict[str, Any]) -> Any:
    """Return the kernel of a record: the published one, or ours with its structure."""
    if sources is None:
        return getattr(
            load_module(CALIBRATION / record["twin"]["file"], "twin"), record["twin"]["function"]
        )
    source = record["source"]
    checkouts = sorted(sources.glob(source["repo"].replace("/", "+") + "*"), reverse=True)
    for checkout in checkouts:  # the newest first: the dialect is a recent one
        path = checkout / source["path"]
        if path.is_file() and re.search(r"^(import|from) nki\b", path.read_text("utf-8"), re.M):
            return getattr(load_module(path, "published"), source["function"])
    sys.exit(
        f"{sources} has no checkout of {source['repo']} with {source['path']} for `import nki`"
    )


def agreement(rows: list[Row], measured: dict[tuple[int, ...], float]) -> tuple[int, int]:
    """Return how many pairs whose measured times differ are predicted in that order, and of all."""
    both = [
        (r.prediction.us, measured[values(r.values)]) for r in rows if values(r.values) in measured
    ]
    pairs = [(a, b) for a, b in combinations(both, 2) if abs(a[1] - b[1]) > GAP * min(a[1], b[1])]
    return sum((a[0] < b[0]) == (a[1] < b[1]) for a, b in pairs), len(pairs)


def main() -> int:
    """Print what tune finds; return 1 if the choice it would take is far from the fastest."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sources", type=Path, help="a folder of checkouts, OWNER+NAME")
    parser.add_argument("--jobs", type=int, default=None, help="processes; default one a core")
    parser.add_argument("--rows", type=int, default=8, help="of the table")
    parser.add_argument("--write", action="store_true", help="say it in docs/tuning.md")
    options = parser.parse_args()
    missed, said = 0, []
    for records in grids().values():
        one, measured = records[0], {values(r["kwargs"]): float(r["value_us"]) for r in records}
        choices = {name: sorted({v[i] for v in measured}) for i, name in enumerate(NAMES)}
        inputs = [np.zeros(a["shape"], a["dtype"]) for a in one["args"]]
        found = nkisim.tune(
            kernel(options.sources, one),
            *inputs,
            choices=choices,
            best=0,
            target=one["target"],
            descriptors=one["descriptors"],
            jobs=options.jobs,
        )
        order = sorted(measured, key=lambda v: measured[v])
        fastest = measured[order[0]]
        table = Table(
            title=f"{' x '.join(str(a['shape']) for a in one['args'])} "
            f"{one['args'][0]['dtype']}, {one['target']}: {len(measured)} choices "
            f"measured, {len(found.rows)} predicted",
            title_justify="left",
            box=None,
        )
        for name in (
            "tiles of M, N, K",
            "predicted us",
            "measured us",
            "rank measured",
            "over the best",
        ):
            table.add_column(name, justify="right")
        for r in found.rows[: options.rows]:
            v = values(r.values)
            us = measured.get(v)
            table.add_row(
                ", ".join(map(str, v)),
                f"{r.prediction.us:,.1f}",
                *(
                    (f"{us:,.1f}", str(order.index(v) + 1), f"{us / fastest - 1:+.1%}")
                    if us
                    else ("-", "-", "-")
                ),
            )
        Console(width=None if sys.stdout.isatty() else 150).print(table)
        timed = [r for r in found.rows if values(r.values) in measured]
        first = measured[values(timed[0].values)] / fastest - 1
        frugal = found.moves_least(found.fastest)
        assert frugal is not None
        least = measured[values(frugal.values)] / fastest - 1
        ties = [v for v in order if measured[v] <= fastest * (1 + NOISE)]
        hit, pairs = agreement(found.rows, measured)
        tied = [values(r.values) for r in (found.rows[0], *found.tied)]
        takes = ", ".join(map(str, values(frugal.values)))
        said.append(
            f"The fastest predicted is {first:.1%} slower on the chip than the fastest "
            f"measured; what moves least among equals ({takes}) {least:.1%}. The fastest "
            f"measured is {'' if order[0] in tied else 'not '}among those that tune "
            f"cannot tell from its first. {len(ties)} measured choices are within "
            f"{NOISE:.1%} of it. Of {pairs} pairs that differ by more than {GAP:.0%}, "
            f"{hit / pairs:.0%} are in the right order."
        )
        print(said[-1])
        missed += least > GAP
    if options.write:
        put("grid", "\n\n".join(said))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
