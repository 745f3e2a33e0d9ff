"""Time the simulator against the same arithmetic in NumPy, and print the ratios of this run.

    python tools/benchmarks/simulator_vs_numpy.py

Wall time of this machine, best of three; it says nothing about the time on a chip.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

import nkisim
from labkit.inputs import make_inputs
from labkit.load import load_lab, load_module

VECADD = Path(__file__).resolve().parents[2] / "labs" / "vecadd"
CASES = (
    "tiled_25600_rows1",
    "tiled_25600_rows128",
    "stream_256000_free1000",
    "alloc_256000_free1000",
    "transpose_4096x4096",
)


def best(function: Callable[[], object], times: int = 3) -> float:
    """Return the shortest wall time of a few calls, in seconds."""
    spent = []
    for _ in range(times):
        begun = time.perf_counter()
        function()
        spent.append(time.perf_counter() - begun)
    return min(spent)


def main() -> None:
    """Run the cases and print one table."""
    lab, kernels = load_lab(VECADD), load_module(VECADD / "kernels.py")
    reference = load_module(VECADD / "reference.py")
    table = Table(title="Simulator against NumPy", box=None)
    for name in ("case", "instructions", "simulator s", "us/instr.", "NumPy s", "ratio"):
        table.add_column(name, justify="left" if name == "case" else "right")
    for name in CASES:
        case = lab.case(name)
        for constant, value in case.constants.items():
            setattr(kernels, constant, value)
        kernel, inputs = getattr(kernels, case.kernel), make_inputs(case, lab.seed)
        count = sum(nkisim.run(kernel, *inputs, target="trn1").instructions.values())
        ours = best(lambda: nkisim.simulate(kernel, *inputs, target="trn1"))  # noqa: B023
        theirs = best(lambda: getattr(reference, case.reference)(*inputs).copy())  # noqa: B023
        table.add_row(
            name,
            f"{count:,}",
            f"{ours:.3f}",
            f"{1e6 * ours / count:.1f}",
            f"{theirs:.5f}",
            f"{ours / theirs:.0f}x",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
