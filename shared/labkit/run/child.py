"""What answers jobs in the process that student code runs in (nkisim.workers).

Answers are JSON and .npy files: what a kernel prints cannot be taken for an answer, and nothing
that the parent reads can run code. The verdict is the parent's.
"""

from __future__ import annotations

import difflib
import json
import linecache
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import astuple
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from ..dialect import PACKAGE
from ..inputs import make_inputs
from ..load import load_module
from ..spec import Case, Passes, SpecError, Tensor
from .backends import BackendError, prepare_process, run_kernel
from .refused import as_told, in_source, with_found

#: what kernels print, in the folder of their process
LOG = "log.txt"
_modules: dict[str, ModuleType] = {}


def job_of(case: Case, **more: Any) -> dict[str, Any]:
    """Return the JSON form of what the child must know of a case."""
    job = {
        "case": case.name,
        "kernel": case.kernel,
        "kwargs": {**case.kwargs, **case.kernel_kwargs},
        "constants": dict(case.constants),
        "hw_options": dict(case.hw_options),
        "meant_to_be_wrong": not isinstance(case.expect, Passes),
        "inputs": [astuple(t) for t in case.inputs],
        **more,
    }
    try:
        json.dumps(job)
    except TypeError as error:
        raise SpecError(f"case {case.name}: arguments must be plain values ({error})") from None
    return job


def do(job: dict[str, Any], workdir: Path) -> dict[str, Any]:
    """Run a job and return the reply; outputs go to files in `workdir`."""
    begun = time.perf_counter()
    path, loading = Path(job["kernels"]), True
    try:
        prepare_process(job["backend"], job.get("dialect", "beta1"))
        module = _kernels(path)
        loading = False
        reply = _run(module, job, workdir)
    except BackendError as error:
        reply = {"error": {"kind": "backend", "text": str(error)}}
    except SpecError as error:
        reply = {"error": {"kind": "request", "text": str(error)}}
    except SyntaxError as error:
        place = f"{Path(error.filename).name}:{error.lineno}" if error.filename else path.name
        text = syntax_text(place, error.msg, error.text or "")
        reply = {"error": {"kind": "import", "text": text}}
    except (Exception, SystemExit) as error:
        reply = {"error": describe(error, path)}
        if loading:  # no kernel of the file has begun
            reply["error"]["kind"] = "import"
    return {"id": job["id"], "seconds": time.perf_counter() - begun, **reply}


def _run(module: ModuleType, job: dict[str, Any], workdir: Path) -> dict[str, Any]:
    dialect = job.get("dialect", "beta1")
    kernel = getattr(module, job["kernel"], None)
    if not callable(kernel):
        callables = [
            name
            for name, value in vars(module).items()
            if callable(value) and getattr(value, "__module__", "") == module.__name__
        ]
        near = difflib.get_close_matches(job["kernel"], callables, 1)
        raise SpecError(
            f"{Path(job['kernels']).name} has no kernel named {job['kernel']}"
            + (f"; there is {near[0]}" if near else "")
        )
    plain = kernel
    while hasattr(plain, "func"):  # of a kernel, of functools.partial
        plain = plain.func
    if not hasattr(plain, "__name__"):
        raise SpecError(
            f"{Path(job['kernels']).name} has an object as {job['kernel']}; a kernel is a function"
        )
    inputs = make_inputs(
        Case(
            "job",
            job["kernel"],
            "",
            tuple(Tensor(tuple(shape), *more) for shape, *more in job["inputs"]),
        ),
        job["seed"],
    )
    if job["backend"] == "sim" and isinstance(kernel, FunctionType):  # as the grader launches it
        kernel = import_module(PACKAGE[dialect]).jit(kernel)
    before = {name: getattr(module, name, None) for name in job["constants"]}
    for name, value in job["constants"].items():
        if not hasattr(module, name):
            raise SpecError(f"{Path(job['kernels']).name} has no constant named {name}")
        setattr(module, name, value)
    level = os.environ.get("NKISIM_CHECKS")
    refused: list[dict[str, Any]] = []
    if job["backend"] == "sim":  # elsewhere the compiler says it itself
        refused = in_source(Path(job["kernels"]), job["kernel"], dialect)
    if (job.get("meant_to_be_wrong") or refused) and level == "strict":
        del os.environ["NKISIM_CHECKS"]  # so that it comes to its end
    try:
        ran = run_kernel(
            job["backend"],
            kernel,
            inputs,
            job["kwargs"],
            job["target"],
            dialect=dialect,
            hw_options=job["hw_options"],
            measure=job.get("measure", False),
            profile=job.get("profile", ""),
            limit_us=job.get("limit_us"),
            one_core=job.get("one_core", False),
            case=job.get("case", ""),
        )
    finally:
        if level is not None:
            os.environ["NKISIM_CHECKS"] = level
        for name, value in before.items():
            setattr(module, name, value)
    several = isinstance(ran.outputs, (tuple, list))
    reply = {
        "several": several,
        "stats": ran.stats,
        "findings": as_told(with_found(refused, ran.findings)),
        "latency": ran.latency,
        "latency_kind": ran.latency_kind,
    }
    for name, outputs in (("outputs", ran.outputs), ("shuffled", ran.shuffled)):
        if isinstance(outputs, str) and name == "shuffled":
            reply[name] = outputs
        elif name == "outputs" or outputs is not None:
            reply[name] = [
                _save(array, workdir / f"{name}-{job['id']}-{i}.npy")
                for i, array in enumerate(outputs if several else [outputs])
            ]
    return reply


def _kernels(path: Path) -> ModuleType:
    if str(path) not in _modules:
        _modules[str(path)] = load_module(path, "kernels")
    return _modules[str(path)]


def _save(output: Any, path: Path) -> dict[str, str]:
    if not isinstance(output, np.ndarray):
        return {"kind": "nothing" if output is None else type(output).__name__}
    # .npy knows no bfloat16 or fp8: the bytes travel as integers with the dtype's name
    plain = output if output.dtype.isbuiltin == 1 else output.view(f"u{output.dtype.itemsize}")
    np.save(path, plain, allow_pickle=False)
    return {"kind": "array", "file": path.name, "dtype": output.dtype.name}


def describe(error: BaseException, kernels: Path) -> dict[str, Any]:
    """Put an exception of a kernel in words, with the line of the student's file."""
    import nkisim

    nki_error = getattr(nkisim, "NkiError", ())
    if isinstance(error, nki_error):
        where = error.where  # type: ignore[attr-defined]
        if where is not None and Path(where.file).parent == Path(__file__).parent:
            error.where = None  # the call is ours  # type: ignore[attr-defined]
        return {
            "kind": "nki",
            "id": error.id,
            "name": error.name,  # type: ignore[attr-defined]
            "text": error.render(),
        }  # type: ignore[attr-defined]
    text, rule = str(error), getattr(error, "nki_error", None)
    if isinstance(rule, nki_error):  # it travels inside the type that the SDK raises
        rendered = f"{type(error).__name__}: {text}{_where(error, kernels)}\n{rule.render()}"
        return {"kind": "nki", "id": rule.id, "name": rule.name, "text": rendered}
    if isinstance(error, NotImplementedError) and text:  # a step that is not written yet
        return {"kind": "kernel", "id": "", "name": "not_written", "text": text}
    if isinstance(error, AssertionError):
        problem = (
            f"the kernel refuses this input: {text}" if text else "an assert of the kernel fails"
        )
    elif isinstance(error, SystemExit):
        problem = f"the kernel ends the program (exit {error.code})"
    else:
        problem = f"{type(error).__name__}: {text}" if text else type(error).__name__
    name = next(
        (
            word.strip(".,:)#").replace("-", "_")
            for word in text.split("#")
            if word.startswith(("err-", "err_"))
        ),
        "",
    )
    return {
        "kind": "kernel",
        "id": "",
        "name": name.split()[0] if name else "",
        "text": problem + _where(error, kernels),
    }


def _where(error: BaseException, kernels: Path) -> str:
    """Return the innermost line of the student's folder that the exception passed through."""
    folder = str(kernels.resolve().parent)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if os.path.abspath(frame.filename).startswith(folder):
            line = linecache.getline(frame.filename, frame.lineno or 0).rstrip("\\\n ").strip()
            return (
                f"\n  where  {Path(frame.filename).name}:{frame.lineno} in {frame.name}"
                f"\n         {line}"
            )
    return ""


def syntax_text(place: str, message: str, line: str) -> str:
    """Return in words that a line of a file is not Python."""
    line = line.strip()
    text = f"{place} is not Python: {message}" + (f"\n         {line}" if line else "")
    if "null bytes" in text:  # every second byte of UTF-16
        text += "\n  try    save it as UTF-8: an editor may have written UTF-16"
    return text


def begin(folder: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return what answers jobs in this process; what kernels print goes to a file of the folder."""
    with open(Path(folder) / LOG, "ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    sys.stdout, sys.stderr = (
        open(fd, "w", 1, encoding="utf-8", errors="replace", closefd=False) for fd in (1, 2)
    )

    def answer(job: dict[str, Any]) -> dict[str, Any]:
        reply = do(job, Path(folder))
        sys.stdout.flush()
        sys.stderr.flush()
        return reply

    return answer
