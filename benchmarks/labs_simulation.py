"""How long the simulator takes for the labs' large cases, against PyTorch and NumPy doing the same.

    python benchmarks/labs_simulation.py [--repeat N] [--only TEXT] [--target trn1|trn2]

Simulator and reference run alternately on the same inputs in this process; the table shows the
best of N runs of each, and their ratio, which is what to compare between machines. Use an idle
machine: both sides use all cores.
"""
from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "shared"))

import numpy as np  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

import nkisim  # noqa: E402
from labkit import Case, make_inputs  # noqa: E402
from labkit.load import load_lab, load_module  # noqa: E402

CONV, FFNN = (load_lab(ROOT / "labs" / name) for name in ("conv2d", "ffnn"))
FFNN_REFERENCE = load_module(ROOT / "labs" / "ffnn" / "reference.py", "bench_ffnn_reference")


def conv_reference(inputs: list[np.ndarray], pool: int) -> Callable[[], Any]:
    """Return a PyTorch convolution of the inputs; in float32, which is what a CPU is fast in."""
    import torch
    x, w, b = (torch.from_numpy(a.astype(np.float32)) for a in inputs)

    def run() -> Any:
        out = torch.nn.functional.conv2d(x, w, b)
        return torch.nn.functional.max_pool2d(out, pool) if pool > 1 else out
    return run


def subjects() -> Iterator[tuple[str, str, Case, Callable]]:
    """Yield (lab, name of the reference, case, function that makes the reference of inputs)."""
    contest = CONV.case("large_bias")
    cases = [contest, *(c for c in CONV.cases if c.name.startswith("speed_224")),
             *(c for c in CONV.cases if "berkeley" in c.fleets)]
    for case in cases:
        pool = case.kwargs.get("pool_size", 1)
        yield "conv2d", "PyTorch fp32", case, lambda x, pool=pool: conv_reference(x, pool)
    for case in (c for c in FFNN.cases if "lab" in c.fleets and c.kernel == "nki_predict"):
        yield ("ffnn", "NumPy fp32", case,
               lambda x: lambda: FFNN_REFERENCE.probabilities(*x).argmax(axis=1))


def best_of(repeat: int, first: Callable[[], Any], second: Callable[[], Any]
            ) -> tuple[float, float]:
    """Return the shortest time of each of two functions, run alternately."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeat):
        for function, mine in ((first, times[0]), (second, times[1])):
            begun = time.perf_counter()
            function()
            mine.append(time.perf_counter() - begun)
    return min(times[0]), min(times[1])


def main() -> int:
    """Print the table; return 0."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--repeat", type=int, default=3, help="runs of each (default: 3)")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--target", default="trn2", choices=("trn1", "trn2"))
    args = parser.parse_args()
    table = Table(title=f"Simulator ({args.target}) against references on this machine, best of "
                        f"{args.repeat}", title_justify="left", box=None)
    for name in ("lab", "case", "matmuls", "simulator s", "reference s", "ratio", "us/instr."):
        table.add_column(name, justify="left" if name in ("lab", "case") else "right")
    for lab, _, case, make in subjects():
        if args.only not in case.name:
            continue
        module = load_module((CONV if lab == "conv2d" else FFNN).folder / "kernels.py",
                             f"bench_{lab}")
        kernel, inputs = getattr(module, case.kernel), make_inputs(case, 0)
        simulate = functools.partial(nkisim.run, kernel, *inputs, target=args.target,
                                     **case.kwargs, **case.kernel_kwargs)
        counts = simulate().instructions
        ours, theirs = best_of(args.repeat, simulate, make(inputs))
        table.add_row(lab, case.name, f"{counts['nc_matmul']:,}", f"{ours:.2f}", f"{theirs:.2f}",
                      f"{ours / theirs:.2f}", f"{1e6 * ours / sum(counts.values()):.0f}")
        print(f"{case.name}: {ours / theirs:.2f}", file=sys.stderr, flush=True)
    Console().print(table)
    print("References: PyTorch's conv2d (and max_pool2d) in float32 for conv2d, NumPy in float32 "
          "for ffnn.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
