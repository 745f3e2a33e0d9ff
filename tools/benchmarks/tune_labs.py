"""`tune` on the constants of the labs' own kernels: is there a better value than the one they have?

    python tools/benchmarks/tune_labs.py [--write]

A better one is worth taking if it gains more than the error of the model. `--write` puts the table
into docs/tuning.md. Everything is predicted, nothing is measured.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from kernels_vs_floor import markdown, put, show

import nkisim
from labkit.inputs import dtype_of
from labkit.load import load_lab, load_module

LABS = Path(__file__).resolve().parents[2] / "labs"


class Sweep(NamedTuple):
    """A kernel on a case of its lab, and the values to try."""

    lab: str
    case: str
    choices: dict[str, list[int]]


SWEEPS = (
    Sweep(
        "vecadd", "stream_256000_free1000", {"FREE_DIM": [100, 125, 200, 250, 400, 500, 1000, 2000]}
    ),
    Sweep(
        "vecadd",
        "alloc_256000_free1000",
        {"ALLOC_FREE_DIM": [125, 250, 400, 500, 1000, 2000], "ALLOC_TILES": [1, 2, 3, 4, 8]},
    ),
    Sweep("conv2d", "speed_224x224_float16", {"WIDE": [1024, 2048, 4096, 8192, 16384]}),
    Sweep("conv2d", "speed_224x224_float32_pool", {"WIDE": [1024, 2048, 4096, 8192, 16384]}),
    Sweep(
        "conv2d",
        "in128_out256_filter3x3_batch16_32x32_float32",
        {"WIDE": [1024, 2048, 4096, 8192, 16384]},
    ),
)
HEAD = (
    "case",
    "target",
    "as it is",
    "us",
    "fastest",
    "us ",
    "gain",
    "error of the model",
    "moves least",
)


def row(sweep: Sweep, target: str) -> tuple[str, ...]:
    """Return a row of the table: the constants as the case has them, against the best ones."""
    lab = load_lab(LABS / sweep.lab)
    case = lab.case(sweep.case)
    kernels = load_module(lab.folder / "kernels.py", f"tuned_{sweep.lab}")
    for name, value in case.constants.items():
        setattr(kernels, name, value)
    inputs: list[Any] = [np.zeros(t.shape, dtype_of(t.dtype)) for t in case.inputs]
    found = nkisim.tune(
        getattr(kernels, case.kernel),
        *inputs,
        choices=sweep.choices,
        best=0,
        target=target,
        descriptors="static",
        **case.kwargs,
    )
    best, now = found.fastest, found.base
    frugal = found.moves_least(best)
    if best is None or frugal is None:
        sys.exit(f"{sweep.case}: all candidates are refused")
    p = best.prediction
    return (
        sweep.case,
        target,
        str(now.candidate),
        f"{now.us:,.1f}",
        str(p.candidate),
        f"{p.us:,.1f}",
        f"{now.us / p.us - 1:.0%}",
        "unknown" if p.error_pct is None else f"±{p.error_pct:.0f} %",
        str(frugal.prediction.candidate),
    )


def main() -> int:
    """Print the table; return 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", action="store_true", help="put the table into docs/tuning.md")
    options = parser.parse_args()
    rows = []
    for sweep in SWEEPS:
        for target in ("trn1", "trn2"):
            rows.append(row(sweep, target))
            print(" ".join(rows[-1]), file=sys.stderr, flush=True)
    show("The constants of our own kernels; predicted by nkisim, not measured", HEAD, rows)
    if options.write:
        put("constants", markdown(HEAD, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
