"""Runs public solutions of the labs' assignments through the model, each in a process of its own.

They are found as `conformance` finds them: by the files that a course's repositories have. One
counts for a kernel if it is right on the small shapes of the course's own tests, and can do the
shape of our case. No author is named: these are solutions to assignments that are still given.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from conformance import courses
from conformance.layouts import checkouts, kernels_in
from conformance.suites import SUITES

import nkisim
from labkit.inputs import dtype_of
from labkit.load import load_module
from nkisim.simulation.launch import Kernel
from nkisim.workers import Workers

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
    tasks = [
        (lab, file, path, target, case)
        for lab, file, path in files(sources)
        for name, case in cases
        if name == lab and case.kernel in WRITTEN[lab] and case.kernel in kernels_in(file)
    ]
    out = []
    # a new process for each: files of one course have one name, and set what others read
    with Workers(
        _answering, jobs=2, seconds=seconds, method="spawn", recycle=1, script=False
    ) as workers:
        for (lab, file, _, _, case), answer in zip(tasks, workers.map(tasks)):
            found = answer if isinstance(answer, Found) else Found(case.name, 0.0, answer.text)
            print(target, lab, file.name, case.name, found.why or "right", file=sys.stderr)
            out.append(found)
    return out


def _answering() -> Callable[[Any], Found]:
    """Return what answers a task in its process."""
    sys.stdout = open(os.devnull, "w")  # what their kernels print
    return lambda task: _run(*task)


def _run(lab: str, file: Path, path: tuple[str, ...], target: str, case: Any) -> Found:
    """Run a solution on a case, after a look whether it is right."""
    sys.path[:0] = [str(file.parent), *path]
    try:
        if wrong := _complaint(lab, file, case.kernel, target):
            return Found(case.name, 0.0, wrong)
        if lab == "ffnn":
            _sizes(case)
        inputs = [np.zeros(t.shape, dtype_of(t.dtype)) for t in case.inputs]
        kernel = getattr(load_module(file, "public_solution"), case.kernel)
        settings = {**case.kwargs, **case.kernel_kwargs, "descriptors": "static"}
        prof = nkisim.profile(kernel, *inputs, target=target, compute=False, **settings)
        return Found(case.name, prof.latency_us)
    except BaseException as error:  # other people's code: it can fail in any way
        return Found(case.name, 0.0, f"{type(error).__name__}: {error}"[:200])


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
