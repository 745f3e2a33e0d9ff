"""How many instructions a second a prediction without arithmetic takes, on one core.

    python tools/benchmarks/timing_only.py [--repeat N] [--only TEXT] [--target trn1|trn2]

CPU time of this process, best of N runs: the trace (the kernel's own Python code included), the
schedule, and what `nkisim.profile` does around them. "every iteration": of loops is executed, where
others follow from the first. "written out": without loops, thousands of lines that run once each.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

for _name in ("OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from labkit.inputs import make_inputs  # noqa: E402
from labkit.load import load_lab, load_module  # noqa: E402
from nkisim.chip import hw  # noqa: E402
from nkisim.simulation.launch import as_kernel, launch  # noqa: E402
from nkisim.simulation.prediction import Profile  # noqa: E402

LABS = Path(__file__).resolve().parents[2] / "labs"
#: instructions per second that a prediction should reach
AIM = 150_000


def lab_case(
    lab_name: str, case_name: str, file: str = "kernels.py"
) -> tuple[Callable, list[Any], dict[str, Any]]:
    """Return (kernel, inputs, keyword arguments) of a case of a lab."""
    lab = load_lab(LABS / lab_name)
    case = lab.case(case_name)
    kernels = load_module(lab.folder / file, f"timing_{lab_name}_{file.removesuffix('.py')}")
    for constant, value in case.constants.items():
        setattr(kernels, constant, value)
    return (
        getattr(kernels, case.kernel),
        make_inputs(case, lab.seed),
        {**case.kwargs, **case.kernel_kwargs},
    )


def gemm() -> tuple[Callable, list[Any], dict[str, Any]]:
    """Return a bfloat16 product of 4096 x 8192 and 8192 x 8192: 32768 matmuls."""
    import ml_dtypes
    import neuronxcc.nki as nki
    import neuronxcc.nki.isa as nisa
    import neuronxcc.nki.language as nl

    @nki.jit
    def product(lhs_t, rhs):
        k, m = lhs_t.shape
        n = rhs.shape[1]
        out = nl.ndarray((m, n), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
        steps, rows = k // 128, 8
        for j in nl.affine_range(n // 512):
            right = nl.ndarray((steps, nl.par_dim(128), 512), dtype=rhs.dtype, buffer=nl.sbuf)
            for s in nl.affine_range(steps):
                right[s] = nl.load(rhs[s * 128 : (s + 1) * 128, j * 512 : (j + 1) * 512])
            for i in nl.affine_range(m // (rows * 128)):
                wide = slice(i * rows * 128, (i + 1) * rows * 128)
                left = nl.ndarray(
                    (steps, nl.par_dim(128), rows * 128), dtype=lhs_t.dtype, buffer=nl.sbuf
                )
                for s in nl.affine_range(steps):
                    left[s] = nl.load(lhs_t[s * 128 : (s + 1) * 128, wide])
                for r in nl.affine_range(rows):
                    acc = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
                    for s in nl.affine_range(steps):
                        acc += nisa.nc_matmul(left[s, :, r * 128 : (r + 1) * 128], right[s])
                    at = (i * rows + r) * 128
                    nl.store(
                        out[at : at + 128, j * 512 : (j + 1) * 512], nl.copy(acc, dtype=lhs_t.dtype)
                    )
        return out

    shapes = ((8192, 4096), (8192, 8192))
    return product, [np.zeros(s, ml_dtypes.bfloat16) for s in shapes], {}


def softmax() -> tuple[Callable, list[Any], dict[str, Any]]:
    """Return the softmax of the rows of 64 x 1024 x 512, with loops of Python."""
    import nki
    import nki.isa as nisa
    import nki.language as nl

    @nki.jit
    def softmax(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for image in range(x.shape[0]):
            for i in range(x.shape[1] // 128):
                tile = nl.ndarray((128, x.shape[2]), dtype=x.dtype, buffer=nl.sbuf)
                total = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
                nisa.dma_copy(dst=tile, src=x[image, i * 128 : (i + 1) * 128])
                nisa.tensor_reduce(dst=total, data=tile, op=nl.maximum, axis=1, negate=True)
                nisa.activation(dst=tile, op=nl.exp, data=tile, bias=total)
                nisa.tensor_reduce(dst=total, data=tile, op=nl.add, axis=1)
                nisa.reciprocal(dst=total, data=total)
                nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=total)
                nisa.dma_copy(dst=out[image, i * 128 : (i + 1) * 128], src=tile)
        return out

    return softmax, [np.zeros((64, 1024, 512), np.float32)], {}


def written_out(blocks: int = 250) -> tuple[Callable, list[Any], dict[str, Any]]:
    """Return a convolution of 3 x 3 in which each instruction of each block has a line."""
    import neuronxcc.nki as nki
    import neuronxcc.nki.isa as nisa
    import neuronxcc.nki.language as nl

    lines = [
        "def convolution(x, w):",
        f"out = nl.ndarray((128, {blocks}, 512), dtype=x.dtype, buffer=nl.shared_hbm)",
        "taps = nl.load(w)",
    ]
    for b in range(blocks):
        lines += [
            f"rows = nl.load(x[:, {b}])",
            "acc = nl.zeros((128, 16, 32), dtype=nl.float32, buffer=nl.psum)",
        ]
        lines += [
            f"acc += nisa.nc_matmul(taps[:, {3 * i + j}], rows[:, {i}:{i} + 16, {j}:{j} + 32])"
            for i in range(3)
            for j in range(3)
        ]
        lines += [
            "y = nisa.activation(nl.relu, acc, dtype=x.dtype)",
            f"nl.store(out[:, {b}], y.reshape((128, 512)))",
        ]
    names: dict[str, Any] = {"nl": nl, "nisa": nisa}
    exec(compile("\n    ".join([*lines, "return out"]), "written_out.py", "exec"), names)
    shapes = ((128, blocks, 18, 34), (128, 9, 128))
    return nki.jit(names["convolution"]), [np.zeros(s, np.float16) for s in shapes], {}


LARGE, SMALL = "speed_224x224_float16", "in256_out256_filter5x5_batch16_32x32_float16"


def cases() -> Iterator[tuple[str, bool, tuple[Callable, list[Any], dict[str, Any]]]]:
    """Yield (name, whether every iteration is executed, (kernel, inputs, keyword arguments))."""
    yield "vecadd, one row at a time", False, lab_case("vecadd", "tiled_25600_rows1")
    yield "GEMM 4096 x 8192 x 8192", False, gemm()
    yield "softmax of rows, Python's range", False, softmax()
    yield "softmax of rows, Python's range, every iteration", True, softmax()
    yield "3 x 3 taps, written out", False, written_out()
    for name, case in (
        ("conv2d 224 x 224 fp16, 3 x 3", LARGE),
        ("conv2d 32 x 32 fp16, 5 x 5", SMALL),
    ):
        yield name, False, lab_case("conv2d", case)
        yield f"{name}, every iteration", True, lab_case("conv2d", case)
        yield f"{name}, import nki", False, lab_case("conv2d", case, "kernels_nki.py")


def spent(repeat: int, function: Callable[[], Any]) -> tuple[float, Any]:
    """Return the least CPU seconds of a few calls, and what the last one returned."""
    best, result = float("inf"), None
    for _ in range(repeat):
        result = None  # the last one's memory first
        begun = time.process_time()
        result = function()
        best = min(best, time.process_time() - begun)
    return best, result


def main() -> None:
    """Run the cases and print one table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--target", default="trn2", choices=("trn1", "trn2"))
    args = parser.parse_args()
    core = hw.get(args.target)
    table = Table(
        title=f"Predictions without arithmetic ({args.target}), one core, best of {args.repeat}",
        title_justify="left",
        box=None,
    )
    for name in (
        "kernel",
        "instructions",
        "trace us/instr.",
        "schedule us/instr.",
        "instr./s",
        "of the aim",
    ):
        table.add_column(name, justify="left" if name == "kernel" else "right")
    for name, every, (kernel, inputs, kwargs) in cases():
        if args.only not in name or args.target == "trn1" and "import nki" in name:
            continue
        inner = as_kernel(getattr(kernel, "kernel", kernel))
        settings = {"target": core.name, "compute": False, "every_iteration": every}
        trace_s, run = spent(args.repeat, partial(launch, inner, inputs, kwargs, **settings))
        count = len(run.trace)
        plan_s, _ = spent(args.repeat, lambda: Profile(run, core, "static", name))  # noqa: B023
        rate = count / (trace_s + plan_s)
        table.add_row(
            name,
            f"{count:,}",
            f"{1e6 * trace_s / count:.2f}",
            f"{1e6 * plan_s / count:.2f}",
            f"{rate:,.0f}",
            f"{rate / AIM:.2f}",
        )
    Console().print(table)
    print(f"The aim is {AIM:,} instructions per second.")


if __name__ == "__main__":
    main()
