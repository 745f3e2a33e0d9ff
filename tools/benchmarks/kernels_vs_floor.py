"""Predicted time of the labs' kernels against the floor of their problem, and against others'.

    python tools/benchmarks/kernels_vs_floor.py [--only TEXT] [--target trn1 --target trn2]
                                          [--dialect nki] [--sources DIR] [--newer] [--write]

The floor is what no kernel on this core can undercut by the figures of its chip: the launch, and
the longest of these:

- the way of a load, what the Tensor Engine has to do, one instruction that drains it, the way of a
  store. The engine's work: each product's columns at one a cycle (float32: four passes) in as few
  instructions as there can be; the transposes of an operand that comes in the wrong layout; and
  half the clock until its first window is over.
- every input and output through the DMA engines once
- the inputs, an instruction, the way of a store
- the way of a load, an instruction, the outputs.

A way is a DMA of one descriptor: start, read, completion. What this leaves out is what the work
costs to be done in pieces: the first and the last piece, which nothing overlaps, and the work of
the Vector and Scalar Engines.

`--newer` takes the labs that are written in `import nki` alone, on trn2 and trn3: the cases of
their contest, for each step of their ladder.

`--sources DIR` runs the public solutions of courses that are in a folder of checkouts (as for
`nox -s conformance`) through the same model; `--write` puts the tables into docs/tuning.md.
Everything is predicted, nothing is measured.
"""

from __future__ import annotations

import argparse
import copy
import functools
import re
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import nkisim
from labkit.inputs import dtype_of
from labkit.load import discover, load_lab, load_module
from nkisim.chip import hw
from nkisim.simulation.launch import as_kernel
from nkisim.timing.floor import floor_us

ROOT = Path(__file__).resolve().parents[2]
LABS, PAGE = ROOT / "labs", ROOT / "docs" / "tuning.md"
#: above this a kernel of ours has something left that is worth a look
NEAR = 1.05
#: kernels that have to turn an input for the Tensor Engine, and which
TURNED = {
    "conv2d_nki": 1, "fused_conv2d_maxpool": 1, "nki_forward": 0, "nki_predict": 0,
    "padded": 1, "strided": 1, "batched": 1,
}  # fmt: skip
#: matmuls of the ffnn lab that are steps on the way to the last one
STEPS = ("tiled", "hoist_load", "block_free_dimension")
#: solutions that go beyond what a lab asks for
BEYOND = {("ffnn", "forward"): "solutions/step2_fused_layers"}


@dataclass(frozen=True)
class Row:
    """One kernel on one case: its floor and what is predicted, in microseconds."""

    lab: str
    case: str
    target: str
    step: bool  # on the way to a better one, and meant to be slower
    tensor: float  # what the Tensor Engine has to do
    bytes: float  # inputs and outputs through the DMA engines
    floor: float
    ours: float
    busiest: str  # engine, and how long it works
    busy: float
    launch: float

    @property
    def ratio(self) -> float:
        return self.ours / self.floor


def cases() -> Iterator[tuple[Any, Any]]:
    """Yield (lab, case) of the labs' large cases."""
    vecadd, ffnn, conv = (load_lab(LABS / name) for name in ("vecadd", "ffnn", "conv2d"))
    for name in (
        "stream_256000_free1000",
        "alloc_256000_free1000",
        "transpose_1024x512",
        "transpose_4096x4096",
    ):
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
    same = copy.copy(as_kernel(kernel))  # its dialect and options stay

    @functools.wraps(same.func)
    def spy(*args: Any, **kwargs: Any) -> Any:
        out = as_kernel(kernel).func(*args, **kwargs)
        some = out if isinstance(out, (tuple, list)) else [out]
        nbytes.append(sum(int(np.prod(t.shape)) * np.dtype(t.dtype).itemsize for t in some))
        return out

    same.func = spy
    inputs = [np.zeros(t.shape, dtype_of(t.dtype)) for t in case.inputs]
    prof = nkisim.profile(
        same, *inputs, target=target, compute=False, descriptors="static", **case.kwargs, **more
    )
    return prof, nbytes[-1]


def tensor_us(core: Any, case: Any, flops: int) -> float:
    """Return how long the Tensor Engine works at least, besides its slow start."""
    t, wide = core.timing, case.inputs[0].dtype == "float32"
    columns = flops / (2 * core.pmax**2)
    instructions, passes = (t.pe_wide_instructions, t.pe_wide_passes) if wide else (1, 1)
    exposed = t.pe_exposed_load_cycles if wide else 0.0
    products = np.ceil(columns / core.gemm_moving_fmax)
    cycles = columns * passes + products * instructions * (t.pe_gap_cycles + exposed)
    if case.kernel in TURNED:
        tiles = np.prod(case.inputs[TURNED[case.kernel]].shape) / core.pmax**2
        once = t.pe_transpose_passes if wide else 1
        cycles += tiles * (core.pmax * once + t.pe_gap_cycles)
    return float(cycles) / core.ghz("tensor") / 1e3


def floor(core: Any, tensor: float, came: int, went: int) -> tuple[float, float]:
    """Return the microseconds of all bytes, and the floor, for the bytes of inputs and outputs."""
    per_us = core.dma_engines * core.timing.dma_engine_gbps * 1e3
    return (came + went) / per_us, floor_us(core, came, went, tensor)


def row(lab: Any, case: Any, target: str, dialect: str, file: str = "kernels") -> Row:
    """Return how a kernel of ours does on a case."""
    core = hw.get(target)
    kernels = load_module(lab.folder / f"{file}{dialect}.py", f"floor_{lab.name}{dialect}")
    for constant, value in case.constants.items():
        setattr(kernels, constant, value)
    options = case.kernel_kwargs if file == "kernels" else {}
    prof, went = predict(getattr(kernels, case.kernel), case, core.name, **options)
    came = sum(int(np.prod(t.shape)) * dtype_of(t.dtype).itemsize for t in case.inputs)
    came, went = int(came * case.reads), int(went * case.writes)
    tensor = tensor_us(core, case, case.flops or prof.flops)
    moved, least = floor(core, tensor, came, went)
    busy = prof.schedule.busy
    top = max(busy, key=lambda e: busy[e])
    step = any(
        case.name.startswith(f"matmul_{s}") or s == case.kernel_kwargs.get("matmul_kernel")
        for s in STEPS
    )
    name = case.name if file == "kernels" else f"{case.name}, {Path(file).stem}"
    return Row(
        lab.name,
        name,
        target,
        step and file == "kernels",
        tensor,
        moved,
        least,
        prof.latency_us,
        top,
        busy[top],
        core.timing.launch_us,
    )


def newer(target: str) -> Iterator[Row]:
    """Yield the steps of the labs that have one dialect, on the cases of their contest."""
    for name in discover(LABS):
        lab = load_lab(LABS / name)
        if lab.dialects != ("nki",):
            continue
        steps = sorted((lab.folder / "solutions").glob("step*_nki.py"))
        files = [f"solutions/{s.stem.removesuffix('_nki')}" for s in steps] + ["kernels"]
        for case in lab.fleet("contest", target):
            for file in files:
                module = load_module(lab.folder / f"{file}_nki.py", f"newer_{name}")
                if hasattr(module, case.kernel):
                    yield row(lab, case, target, "_nki", file)


HEAD = ("case", "PE", "bytes", "floor", "ours", "of floor", "busiest", "waits")


def cells(r: Row) -> tuple[str, ...]:
    """Return a row of the table."""
    return (
        r.case + ("*" if r.step else ""),
        f"{r.tensor:,.1f}",
        f"{r.bytes:,.1f}",
        f"{r.floor:,.1f}",
        f"{r.ours:,.1f}",
        f"{r.ratio:.2f}",
        f"{r.busiest} {r.busy:,.1f}",
        f"{r.ours - r.busy - r.launch:,.1f}",
    )


def total(rows: list[Row]) -> str:
    """Return the sentence below a table."""
    last = [r.ratio for r in rows if not r.step]
    if not last:
        return ""
    return (
        f"{len(last)} kernels without the steps (*): {np.exp(np.mean(np.log(last))):.2f} of "
        f"the floor (geometric mean), {sum(x > NEAR for x in last)} above {NEAR}."
    )


def compared(rows: list[Row], found: list[Any]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each case that a public solution can do: case, ours, how many, their best and
    median.
    """
    for r in rows:
        theirs = sorted(f.us for f in found if f.case == r.case and f.us)
        tried = sum(f.case == r.case for f in found)
        if not r.step and theirs:
            yield (
                r.case,
                f"{r.ours:,.0f}",
                f"{len(theirs)} of {tried}",
                *(f"{x:,.0f} ({x / r.ours:.2f})" for x in (theirs[0], statistics.median(theirs))),
            )


SOLUTIONS = ("case", "ours", "right and can", "their best", "their median")


def show(title: str, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print a table."""
    table = Table(title=title, title_justify="left", box=None)
    for name in head:
        table.add_column(
            name, justify="left" if name in ("case", "busiest") else "right", overflow="fold"
        )
    for r in rows:
        table.add_row(*r)
    Console(width=None if sys.stdout.isatty() else 150).print(table)


def markdown(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a table as Markdown."""
    line = [f"| {' | '.join(c)} |" for c in rows]
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *line])


def put(mark: str, text: str) -> None:
    """Replace what stands between two marks of the page."""
    page = PAGE.read_text(encoding="utf-8")
    new, n = re.subn(
        rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)",
        lambda m: f"{m[1]}{text}\n{m[2]}",
        page,
        flags=re.S,
    )
    if n != 1:
        sys.exit(f"{PAGE} has no place for {mark}")
    PAGE.write_text(new, encoding="utf-8", newline="\n")


def show_newer(write: bool) -> int:
    """Print the tables of the labs that have one dialect, and write them if asked for."""
    lines: list[str] = []
    for target in ("trn2", "trn3"):
        rows = [cells(r) for r in newer(target)]
        show(f"Predicted by nkisim for {target}; nothing is measured. Times in us", HEAD, rows)
        lines += [f"{target}:", "", markdown(HEAD, rows), ""]
    if write:
        put("newer", "\n".join(lines).rstrip())
    return 0


def main() -> int:
    """Print the tables; return 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--target", action="append", choices=("trn1", "trn2"), help="default: both")
    parser.add_argument(
        "--dialect",
        choices=("beta1", "nki"),
        default="beta1",
        help="which of our two files of kernels",
    )
    parser.add_argument("--sources", type=Path, help="a folder of checkouts, OWNER+NAME")
    parser.add_argument("--seconds", type=int, default=300, help="limit of a public solution")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/tuning.md")
    parser.add_argument("--newer", action="store_true", help="labs of import nki alone, instead")
    options = parser.parse_args()
    if options.newer:
        return show_newer(options.write)
    if options.sources and not options.sources.is_dir():
        parser.error(f"--sources {options.sources}: there is no such folder")
    if options.write and (options.only or options.target or options.dialect != "beta1"):
        parser.error("--write is for the whole tables: without --only, --target and --dialect")
    ending = {"beta1": "", "nki": "_nki"}[options.dialect]
    if options.sources:
        sys.path.insert(0, str(ROOT / "tools"))  # conformance, which finds them
        from public_solutions import run_all
    written: dict[str, list[str]] = {"kernels": [], "solutions": []}
    for target in options.target or ("trn1", "trn2"):
        rows = []
        for lab, case in cases():
            if options.only in case.name:
                rows.append(row(lab, case, target, ending))
                print(f"{target} {case.name}: {rows[-1].ratio:.2f}", file=sys.stderr, flush=True)
            if options.only in case.name and (lab.name, case.name) in BEYOND:
                rows.append(row(lab, case, target, ending, BEYOND[lab.name, case.name]))
        table = [cells(r) for r in rows]
        show(
            f"Predicted by nkisim for {target}, static descriptors; nothing is measured. "
            "Times in us",
            HEAD,
            table,
        )
        print(total(rows), end="\n\n")
        written["kernels"] += [f"{target}. {total(rows)}", "", markdown(HEAD, table), ""]
        if options.sources:
            wanted = [(lab.name, case) for lab, case in cases() if options.only in case.name]
            found = run_all(options.sources, target, wanted, options.seconds)
            theirs = list(compared(rows, found))
            show(
                f"Public solutions, predicted by the same model for {target}, in us (ours = 1)",
                SOLUTIONS,
                theirs,
            )
            written["solutions"] += [f"{target}:", "", markdown(SOLUTIONS, theirs), ""]
    if options.write:
        for mark, lines in written.items():
            if lines:
                put(mark, "\n".join(lines).rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
