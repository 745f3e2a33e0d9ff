"""How long the simulator takes for the labs' large cases, against PyTorch and NumPy doing the same.

    python tools/benchmarks/labs_simulation.py [--repeat N] [--only TEXT] [--target trn1|trn2]
                                         [--threads N] [--quick] [--memory]

Simulator and reference run alternately on the same inputs, in this process, with as many threads
each; the table shows the best of N runs and the ratios, which are what to compare between machines.
On a busy machine only the ratio of CPU times, with --threads 1, means something. A variable that
tells NumPy's BLAS to be that of an older processor is taken out: PyTorch would not obey it.

--quick leaves out the cases that take seconds.

--memory measures no time: each case runs once, in a process of its own, and the table shows what it
needed at the peak beyond the imported modules, inputs included, against inputs and outputs.
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "shared"))
QUICK = 5_000_000  # elements of the inputs of a case that --quick keeps
PAUSE = 0.05  # seconds: PyTorch's threads look for more work on cores the next one wants


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each (default: 3)")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--target", default="trn2", choices=("trn1", "trn2"))
    parser.add_argument(
        "--threads",
        type=int,
        default=os.cpu_count() or 1,
        help="of both sides (default: one a core)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"only cases with at most {QUICK:,} elements in their inputs",
    )
    parser.add_argument("--memory", action="store_true", help="show memory in place of time")
    return parser.parse_args()


def conv_reference(inputs: list[Any], pool: int) -> Callable[[], Any]:
    """Return a PyTorch convolution of the inputs; in float32, which is what a CPU is fast in."""
    import torch

    x, w, b = (torch.from_numpy(a.astype("float32")) for a in inputs)

    def run() -> Any:
        out = torch.nn.functional.conv2d(x, w, b)
        return torch.nn.functional.max_pool2d(out, pool) if pool > 1 else out

    return run


def subjects(conv: Any, ffnn: Any, network: ModuleType) -> Iterator[tuple[Any, Any, Callable]]:
    """Yield (lab, case, function that makes the reference of inputs)."""
    cases = [
        conv.case("large_bias"),
        *(c for c in conv.cases if c.name.startswith("speed_224")),
        *(c for c in conv.cases if "berkeley" in c.fleets),
    ]
    for case in cases:
        yield conv, case, functools.partial(conv_reference, pool=case.kwargs.get("pool_size", 1))
    for case in (c for c in ffnn.cases if "lab" in c.fleets and c.kernel == "nki_predict"):
        yield ffnn, case, lambda x: lambda: network.probabilities(*x).argmax(axis=1)


def wanted(args: argparse.Namespace, case: Any) -> bool:
    """Return whether a case was asked for."""
    elements = sum(math.prod(t.shape) for t in case.inputs)
    return args.only in case.name and (not args.quick or elements <= QUICK)


def best_of(repeat: int, *functions: Callable[[], Any]) -> list[tuple[float, float]]:
    """Return the shortest wall and CPU time of each function; they run alternately, each on an
    idle machine: threads that spin after the other's work would count for it."""
    times: list[list[tuple[float, float]]] = [[] for _ in functions]
    for _ in range(repeat):
        for function, mine in zip(functions, times):
            time.sleep(PAUSE)
            wall, cpu = time.perf_counter(), time.process_time()
            function()
            mine.append((time.perf_counter() - wall, time.process_time() - cpu))
    return [(min(w for w, _ in mine), min(c for _, c in mine)) for mine in times]


def peak_mb(lab_name: str, case_name: str, target: str) -> tuple[float, float]:
    """Return (MB at the peak beyond imported modules, MB of inputs and outputs) of one run."""
    import resource

    import nkisim
    from labkit import make_inputs
    from labkit.load import load_lab, load_module

    lab = load_lab(ROOT / "labs" / lab_name)
    case = lab.case(case_name)
    kernels = load_module(lab.folder / "kernels.py", f"bench_{lab.name}")
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    inputs = make_inputs(case, 0)
    run = nkisim.run(
        getattr(kernels, case.kernel), *inputs, target=target, **case.kwargs, **case.kernel_kwargs
    )
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return (after - before) / 2**20, (sum(a.nbytes for a in inputs) + run.outputs.nbytes) / 2**20


def memory(names: list[tuple[str, str]], target: str) -> int:
    """Print the table of memory; return 0."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    from rich.console import Console
    from rich.table import Table

    table = Table(title="Memory of the simulator", title_justify="left", box=None)
    for name in ("lab", "case", "peak MB", "inputs and outputs MB", "of 2 x that + 300 MB"):
        table.add_column(name, justify="left" if name in ("lab", "case") else "right")
    for lab, case in names:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            peak, data = pool.submit(peak_mb, lab, case, target).result()
        table.add_row(lab, case, f"{peak:,.0f}", f"{data:,.0f}", f"{peak / (2 * data + 300):.2f}")
        print(lab, case, f"{peak / (2 * data + 300):.2f}", file=sys.stderr, flush=True)
    Console().print(table)
    return 0


def main() -> int:
    """Print the table; return 0."""
    args = arguments()
    if os.environ.pop("OPENBLAS_CORETYPE", None):
        print("OPENBLAS_CORETYPE is ignored here", file=sys.stderr)
    for name in ("OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "OMP_NUM_THREADS"):
        os.environ[name] = str(args.threads)  # before NumPy and PyTorch are imported
    from rich.console import Console
    from rich.table import Table

    import nkisim
    from labkit import make_inputs
    from labkit.load import load_lab, load_module
    from labkit.run.backends import prepare_process

    prepare_process("sim")  # as the process that testers run kernels in
    conv, ffnn = (load_lab(ROOT / "labs" / name) for name in ("conv2d", "ffnn"))
    network = load_module(ffnn.folder / "reference.py", "bench_reference")
    if args.memory:
        return memory(
            [
                (lab.name, case.name)
                for lab, case, _ in subjects(conv, ffnn, network)
                if wanted(args, case)
            ],
            args.target,
        )
    means: dict[str, list[tuple[float, float]]] = {}
    table = Table(
        title=f"Simulator ({args.target}) and reference on this machine, "
        f"{args.threads} threads, best of {args.repeat}",
        title_justify="left",
        box=None,
    )
    for name in ("lab", "case", "matmuls", "simulator s", "reference s", "ratio", "CPU ratio"):
        table.add_column(
            name, justify="left" if name in ("lab", "case") else "right", overflow="fold"
        )
    for lab, case, make in subjects(conv, ffnn, network):
        if not wanted(args, case):
            continue
        kernels = load_module(lab.folder / "kernels.py", f"bench_{lab.name}")
        inputs = make_inputs(case, 0)
        simulate = functools.partial(
            nkisim.run,
            getattr(kernels, case.kernel),
            *inputs,
            target=args.target,
            **case.kwargs,
            **case.kernel_kwargs,
        )
        matmuls = simulate().instructions["nc_matmul"]
        (wall, cpu), (wall_2, cpu_2) = best_of(args.repeat, simulate, make(inputs))
        row = (
            lab.name,
            case.name,
            f"{matmuls:,}",
            f"{wall:.2f}",
            f"{wall_2:.2f}",
            f"{wall / wall_2:.2f}",
            f"{cpu / cpu_2:.2f}",
        )
        table.add_row(*row)
        means.setdefault(lab.name, []).append((wall / wall_2, cpu / cpu_2))
        print(*row, file=sys.stderr, flush=True)
    Console().print(table)
    for name, ratios in means.items():
        wall, cpu = (math.exp(sum(map(math.log, some)) / len(some)) for some in zip(*ratios))
        print(
            f"{name}: {wall:.2f} times the reference's wall time, {cpu:.2f} times its CPU time "
            f"(geometric means of {len(ratios)})"
        )
    print("References: PyTorch's conv2d (and max_pool2d) in float32; NumPy in float32 for ffnn.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
