"""What advice promises against what following it brings, both predicted.

    python tools/benchmarks/advice.py [--target trn2]

The kernels are those of tests/nkisim/kernels_to_advise*.py: each loses time in one way, and
stands beside the kernel that one has after following the advice. The table has what the advice
said it would save, what it saved, and the ratio. Nothing is measured.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import nkisim

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "nkisim"))
import kernels_to_advise
import kernels_to_advise_beta1

#: (cause, what is other about it) -> job
JOBS = {
    **{(cause, ""): job for cause, job in kernels_to_advise.JOBS.items()},
    **kernels_to_advise.MORE,
    **{(cause, "beta 1"): job for cause, job in kernels_to_advise_beta1.JOBS.items()},
}


def followed(case: tuple[str, str], target: str) -> tuple[float, float, float | None]:
    """Return the latency before and after following the advice on a cause, and what it said it
    would save (None: it said nothing); in microseconds."""
    cause, _ = case
    slow, given, fast, taken, options = JOBS[case]
    before, after = (
        nkisim.profile(kernel, *args, target=target, compute=False, **options)
        for kernel, args in ((slow, given), (fast, taken))
    )
    said = next((a.saves_us for a in before.advice if a.cause == cause), None)
    return before.latency_us, after.latency_us, said


def main() -> int:
    """Print the table; return 1 if a cause is not named, else 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--target", default="trn2")
    options = parser.parse_args()
    table = Table(title=f"Predicted by nkisim for {options.target}, us", box=None)
    for name in ("cause", "before", "after", "said", "saved", "said / saved"):
        table.add_column(name, justify="left" if name == "cause" else "right")
    ratios, missing = [], 0
    for case in JOBS:
        before, after, said = followed(case, options.target)
        saved = before - after
        missing += said is None
        if said is not None:
            ratios.append(said / saved)
        cells = ("-", "-") if said is None else (f"{said:,.1f}", f"{said / saved:.2f}")
        name = ", ".join(filter(None, case))
        table.add_row(name, f"{before:,.1f}", f"{after:,.1f}", cells[0], f"{saved:,.1f}", cells[1])
    Console(width=None if sys.stdout.isatty() else 100).print(table)
    print(
        f"{len(ratios)} of {len(JOBS)} causes are named; "
        f"{sum(abs(r - 1) <= 0.2 for r in ratios)} savings are within 20 %, "
        f"median {np.median(ratios):.2f}"
    )
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
