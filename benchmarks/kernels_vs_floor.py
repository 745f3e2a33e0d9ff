"""Predicted time of the labs' kernels against the floor of their problem, and against others'.

    python benchmarks/kernels_vs_floor.py [--only TEXT] [--target trn1|trn2]
                                          [--solution LAB:FILE.py:FUNCTION ...]

The floor is what no kernel on this core can undercut, by the documented figures of the chip: the
launch, the way of one load and of one store, and between them the longer of two: the columns of the
products at one a cycle (float32: four passes), and every input and output through the DMA engines
once. What all of it leaves out: filling the pipeline, and what a product needs besides columns.

`--solution` runs another kernel on the cases of a lab, through the same model: its own file, with
the arguments of ours. Everything is predicted, nothing is measured.
"""
from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import nkisim
from labkit.inputs import dtype_of
from labkit.load import load_lab, load_module
from nkisim.chip import hw

LABS = Path(__file__).resolve().parents[1] / "labs"
#: above this a kernel of ours has something left that is worth a look
NEAR = 1.05
DMA_ENGINES = 16


def cases() -> Iterator[tuple[Any, Any]]:
    """Yield (lab, case) of the labs' large cases."""
    vecadd, ffnn, conv = (load_lab(LABS / name) for name in ("vecadd", "ffnn", "conv2d"))
    for name in ("stream_256000_free1000", "alloc_256000_free1000", "transpose_1024x512",
                 "transpose_4096x4096"):
        yield vecadd, vecadd.case(name)
    for case in ffnn.cases:
        if "lab" in case.fleets or case.name.endswith("512x640x1536"):
            yield ffnn, case
    for case in conv.cases:
        if case.name.startswith("speed_") or "berkeley" in case.fleets:
            yield conv, case


def predict(kernel: Callable, case: Any, target: str, **more: Any) -> tuple[Any, int]:
    """Return a kernel's profile on a case, and the bytes of what it returns."""
    nbytes: list[int] = []

    def spy(*args: Any, **kwargs: Any) -> Any:
        out = kernel(*args, **kwargs)
        some = out if isinstance(out, (tuple, list)) else [out]
        nbytes.append(sum(int(np.prod(t.shape)) * np.dtype(t.dtype).itemsize for t in some))
        return out
    inputs = [np.zeros(t.shape, dtype_of(t.dtype)) for t in case.inputs]
    prof = nkisim.profile(spy, *inputs, target=target, compute=False, descriptors="static",
                          **case.kwargs, **more)
    return prof, nbytes[-1] + sum(a.nbytes for a in inputs)


def floor(core: Any, compute_us: float, nbytes: int) -> float:
    """Return the floor in microseconds."""
    t = core.timing
    transfers = nbytes / (DMA_ENGINES * t.dma_engine_gbps * 1e3)
    ways = 2 * (t.dma_start_us + t.dma_done_us)
    return t.launch_us + ways + max(compute_us, transfers)


def main() -> int:
    """Print one table; return 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--target", default="trn2", choices=("trn1", "trn2"))
    parser.add_argument("--solution", action="append", default=[], metavar="LAB:FILE.py:FUNCTION",
                        help="another kernel for the cases of a lab that call a function of this "
                             "name, or any function of the lab if its name is not in it")
    options = parser.parse_args()
    others: list[tuple[str, str, Callable]] = []
    for n, text in enumerate(options.solution):
        lab, _, rest = text.partition(":")
        path, _, function = rest.rpartition(":")
        if not Path(path).is_file():
            parser.error(f"--solution {text}: there is no file {path}")
        module = load_module(Path(path), f"solution_{n}")
        if not hasattr(module, function):
            parser.error(f"--solution {text}: {path} has no {function}")
        others.append((lab, Path(path).resolve().parents[1].name, getattr(module, function)))
    core = hw.get(options.target)
    table = Table(title=f"Predicted by nkisim for {core.name}, static descriptors; nothing is "
                        "measured. Times in us", title_justify="left", box=None)
    for name in ("case", "PE", "bytes", "floor", "ours", "of floor", "bound by", "others"):
        table.add_column(name, justify="left" if name in ("case", "others") else "right",
                         overflow="fold")
    ratios, above = [], 0
    for lab, case in cases():
        if options.only not in case.name:
            continue
        kernels = load_module(lab.folder / "kernels.py", f"floor_{lab.name}")
        for constant, value in case.constants.items():
            setattr(kernels, constant, value)
        prof, nbytes = predict(getattr(kernels, case.kernel), case, core.name,
                               **case.kernel_kwargs)
        compute = prof.mfu * prof.latency_us
        least = floor(core, compute, nbytes)
        ratio = prof.latency_us / least
        ratios.append(ratio)
        above += ratio > NEAR
        said = []
        for name, who, kernel in others:
            if name != lab.name or getattr(kernel, "__name__", "") != case.kernel \
                    and hasattr(kernels, getattr(kernel, "__name__", "")):
                continue
            try:
                other = predict(kernel, case, core.name)[0].latency_us
                said.append(f"{who} {other:,.0f} ({other / prof.latency_us:.2f} of ours)")
            except Exception as error:          # other people's code: it can fail in any way
                said.append(f"{who}: {str(error).splitlines()[0][:50]}")
        us = DMA_ENGINES * core.timing.dma_engine_gbps * 1e3
        table.add_row(case.name, f"{compute:,.1f}", f"{nbytes / us:,.1f}", f"{least:,.1f}",
                      f"{prof.latency_us:,.1f}", f"{ratio:.2f}", prof.bound, "; ".join(said))
        print(f"{case.name}: {ratio:.2f}", file=sys.stderr, flush=True)
    console = Console()
    console.print(table)
    if ratios:
        print(f"{len(ratios)} cases: {np.exp(np.mean(np.log(ratios))):.2f} of the floor "
              f"(geometric mean), {above} above {NEAR}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
