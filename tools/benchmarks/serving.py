"""How many kernels a second does `nkisim serve` evaluate, and how long does one take?

    python tools/benchmarks/serving.py [--candidates 1000] [--jobs 2] [--write]

Candidates are texts of a small kernel with a number of its own each, so that nothing is answered
from what was kept; in the last row one in twenty loops for ever or ends its process. As many
clients ask as there are processes, and what each waits is a time of the table. Wall time of
this machine, not of a chip. `--write` puts the table into docs/searchers.md.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import threading
import time
from pathlib import Path

import numpy as np

import nkisim
from nkisim.cli import requests
from nkisim.cli.serve import Desk

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "searchers.md"
SOURCE = """import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0={factor})
    nisa.dma_copy(dst=out, src=tile)
    return out
"""
REFERENCE = "def reference(x):\n    return 2 * x\n"
LOOP = "    while True:\n        pass\n"
DIE = "    __import__('os')._exit(1)\n"


def candidate(n: int, broken: bool) -> dict:
    """Return the request for candidate number n."""
    text = SOURCE.format(factor=2.0 if n % 2 else 2.0 + n)
    text = text.replace("import nki\n", f"# candidate {n}\nimport nki\n", 1)
    if broken and n % 20 == 0:
        text = text.replace("    out =", (LOOP if n % 40 else DIE) + "    out =", 1)
    return {
        "id": n, "kernel": ":kernel", "source": text, "args": ["128x128:float32"],
        "reference": ":reference", "reference_source": REFERENCE, "target": "trn2",
        "details": False, "fixes": False, "seconds": 1,
    }  # fmt: skip


def measure(count: int, jobs: int, broken: bool) -> list[str]:
    """Return a row of the table for one way: as many clients as processes; each client asks again
    when it has its answer, and the times are what a client waits."""
    numbers = iter(range(count))
    took: list[float] = []

    def client() -> None:
        for n in numbers:
            start = time.perf_counter()
            right.append(bool(desk.ask(candidate(n, broken))["right"]))
            took.append((time.perf_counter() - start) * 1e3)

    right: list[bool] = []
    with Desk(jobs) as desk:
        list(desk.ask_all(candidate(-n - 1, False) for n in range(4 * jobs)))  # processes are there
        clients = [threading.Thread(target=client) for _ in range(jobs)]
        start = time.perf_counter()
        for one in clients:
            one.start()
        for one in clients:
            one.join()
        total = time.perf_counter() - start
    assert len(took) == count and sum(right) >= 0.4 * count
    return [
        f"serve, {jobs} processes" + (", one in twenty loops (1 s) or dies" if broken else ""),
        f"{count}", f"{count / total:.0f}", f"{np.median(took):.1f}",
        f"{np.quantile(took, 0.99):.1f}",
    ]  # fmt: skip


def in_process(count: int) -> list[list[str]]:
    """Return the rows of one process: `answer` of a text, `evaluate` of a function, the kernel's
    own work, and what `evaluate` takes beside that."""
    ways = {
        "one process, from text": lambda n: requests.answer(candidate(n, False)),
        "one process, `nkisim.evaluate`": _evaluate(details=False),
        "the kernel's own work: `run`, `profile`": _own(),
    }
    took: dict[str, list[float]] = {name: [] for name in ways}
    for n in range(count):  # in turn, so that other work of the machine meets all of them
        for name, one in ways.items():
            start = time.perf_counter()
            one(n)
            took[name].append((time.perf_counter() - start) * 1e3)
    rows = [
        [name, f"{count}", f"{1e3 / np.mean(ms):.0f}", f"{np.median(ms):.1f}",
         f"{np.quantile(ms, 0.99):.1f}"]
        for name, ms in took.items()
    ]  # fmt: skip
    _, whole, own = (np.median(ms) for ms in took.values())
    rows.append(["`nkisim.evaluate` beside that work", f"{count}", "", f"{whole - own:.1f}", ""])
    return rows


def _kernel():
    return requests._load(candidate(1, False), "kernel", "source")


def _evaluate(details: bool):
    kernel, x = _kernel(), np.random.default_rng(0).standard_normal((128, 128), np.float32)
    return lambda _: nkisim.evaluate(kernel, x, reference=lambda x: 2 * x, target="trn2").to_dict(
        details
    )


def _own():
    kernel, x = _kernel(), np.random.default_rng(0).standard_normal((128, 128), np.float32)

    def work(_: int) -> None:
        nkisim.profile(kernel, x, target="trn2")
        nkisim.run(kernel, x, target="trn2")

    return work


def main() -> int:
    """Measure, print the table, write it if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows = [
        *in_process(min(200, options.candidates)),
        measure(options.candidates, options.jobs, False),
        measure(options.candidates, options.jobs, True),
    ]
    head = ["way", "candidates", "a second", "ms, median", "ms, 99 %"]
    lines = [f"| {' | '.join(r)} |" for r in (head, ["---"] * len(head), *rows)]
    print("\n".join(lines))
    if options.write:
        text = PAGE.read_text("utf-8")
        table = "<!-- serving -->\n" + "\n".join(lines) + "\n<!-- /serving -->"
        PAGE.write_text(
            re.sub(r"<!-- serving -->.*?<!-- /serving -->", lambda _: table, text, flags=re.S),
            "utf-8",
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
