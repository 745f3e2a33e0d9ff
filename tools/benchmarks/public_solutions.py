"""Runs public solutions of the labs' assignments through the model, each in a process of its own.

They are found as `conformance` finds them: by the files that a course's repositories have. One
counts for a kernel if it is right on the small shapes of the course's own tests, and can do the
shape of our case. No author is named: these are solutions to assignments that are still given.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Empty
from typing import Any

import numpy as np
from conformance import courses
from conformance.layouts import checkouts, kernels_in
from conformance.suites import SUITES

import nkisim
from labkit.inputs import dtype_of
from labkit.load import load_module
from nkisim.simulation.launch import Kernel

LABS = ("vecadd", "conv2d", "ffnn")
#: kernels that students write
WRITTEN = {
    "vecadd": ("matrix_transpose",),
    "conv2d": ("fused_conv2d_maxpool", "conv2d_nki"),
    "ffnn": ("nki_transpose", "nki_bias_add_act", "nki_forward", "nki_predict"),
}


@dataclass(frozen=True)
class Found:
    """A public solution on a case: predicted microseconds, 0 where it is wrong or cannot do it."""

    case: str
    us: float
    why: str = ""


def files(sources: Path) -> Iterator[tuple[str, Path, tuple[str, ...]]]:
    """Yield (lab, file, further folders of sys.path) of the solutions in a folder of checkouts."""
    for suite in SUITES:
        for checkout in checkouts(suite, sources) if suite.marks else ():
            for part in suite.parts:
                if part.how in LABS:
                    path = tuple(str(checkout.parent / p) for p in part.path)
                    for pattern in part.files:
                        for file in sorted(checkout.glob(pattern)):
                            yield part.how, file, path


def run_all(sources: Path, target: str, cases: list[tuple[str, Any]], seconds: int) -> list[Found]:
    """Return what each solution does on the cases (lab, case) that it has a kernel for."""
    jobs = []
    for lab, file, path in files(sources):
        there = kernels_in(file)
        mine = [
            case
            for name, case in cases
            if name == lab and case.kernel in WRITTEN[lab] and case.kernel in there
        ]
        if mine:
            jobs.append((lab, file, path, target, mine, seconds))
    with ThreadPoolExecutor(2) as pool:  # each waits for a process
        return [found for some in pool.map(lambda job: _in_a_process(*job), jobs) for found in some]


def _in_a_process(
    lab: str, file: Path, path: tuple[str, ...], target: str, cases: list[Any], seconds: int
) -> list[Found]:
    """Run a solution in a process, as long as it may; what it has not done by then is not done."""
    context = multiprocessing.get_context("spawn")
    results: Any = context.Queue()
    process = context.Process(target=_child, args=(lab, file, path, target, cases, results))
    process.start()
    found: dict[str, Found] = {}
    until = time.monotonic() + seconds
    while len(found) < len(cases) and time.monotonic() < until:
        try:
            one = results.get(timeout=1)
            found[one.case] = one
        except Empty:
            if not process.is_alive() and results.empty():
                break
    process.kill()
    process.join()
    print(
        f"{target} {file.name} of a {lab}: {sum(f.us > 0 for f in found.values())} of {len(cases)}",
        file=sys.stderr,
        flush=True,
    )
    return [found.get(case.name, Found(case.name, 0.0, "not finished")) for case in cases]


def _child(
    lab: str, file: Path, path: tuple[str, ...], target: str, cases: list[Any], results: Any
) -> None:
    """Run a solution on the cases; the results go to a queue, one by one."""
    sys.path[:0] = [str(file.parent), *path]
    sys.stdout = open(os.devnull, "w")  # what their kernels print
    wrong: dict[str, str] = {}
    for case in cases:
        try:
            if case.kernel not in wrong:
                wrong[case.kernel] = _complaint(lab, file, case.kernel, target)
            if wrong[case.kernel]:
                results.put(Found(case.name, 0.0, wrong[case.kernel]))
                continue
            if lab == "ffnn":
                _sizes(case)
            inputs = [np.zeros(t.shape, dtype_of(t.dtype)) for t in case.inputs]
            kernel = getattr(load_module(file, "public_solution"), case.kernel)
            prof = nkisim.profile(
                kernel,
                *inputs,
                target=target,
                compute=False,
                descriptors="static",
                **case.kwargs,
                **case.kernel_kwargs,
            )
            results.put(Found(case.name, prof.latency_us))
        except BaseException as error:  # other people's code: it can fail in any way
            results.put(Found(case.name, 0.0, f"{type(error).__name__}: {error}"[:200]))


def _complaint(lab: str, file: Path, kernel: str, target: str) -> str:
    """Return what is wrong with a kernel on the first of its course's shapes that it can do."""
    said = "no case"
    for case in courses.CASES[lab]:
        if case.kernel != kernel or case.slow:
            continue
        if case.constants:
            utils = importlib.import_module("utils")
            for name, value in case.constants.items():
                setattr(utils, name, value)
        args = case.arrays()
        module = load_module(file, "public_solution")
        try:
            if not isinstance(getattr(module, kernel), Kernel):
                return "no kernel"
            given = nkisim.run(
                getattr(module, kernel),
                *[a.copy() for a in args],
                target=target,
                **case.kwargs,
                **case.options,
            ).outputs
        except Exception as error:
            said = f"{type(error).__name__}: {error}"[:200]
            continue
        return courses.complaint(
            courses.reference(lab, case)(*args, **case.kwargs), given, case.rtol, case.atol
        )
    return said


def _sizes(case: Any) -> None:
    """Give the constants of a course's utils.py the sizes of a case of the network."""
    utils: Any = importlib.import_module("utils")
    if case.kernel in ("nki_forward", "nki_predict"):
        (batch, inputs), (_, hidden), _, (_, classes) = (t.shape for t in case.inputs[:4])
    else:
        batch, hidden = case.inputs[0].shape
        inputs = classes = hidden
    for name, value in (
        ("BATCH_SIZE", batch),
        ("INPUT_SIZE", inputs),
        ("HIDDEN_SIZE", hidden),
        ("OUTPUT_SIZE", classes),
    ):
        setattr(utils, name, value)
