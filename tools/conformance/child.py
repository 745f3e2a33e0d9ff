"""What runs one job, in a process of its own.

Each result is a line of a file, written as soon as it is known, so that what was finished
counts when the time is up. A first line names the cases to come. Findings go to stderr.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import re
import runpy
import signal
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import nkisim
from nkisim.simulation import launch

from . import courses
from .outcome import FAILED, NOT_HERE, PASSED, Result, of_exception

STANDINS = Path(__file__).parent / "standins"
#: What a script that compares prints when it is wrong, and goes on.
_WRONG = re.compile(r"differ|mismatch|not match|\bfail|close\W+false|passed\W+false", re.IGNORECASE)


class Log:
    """Writes the results of a job."""

    def __init__(self, path: Path):
        self.path = path

    def expect(self, cases: list[str]) -> None:
        """Name the cases that will follow."""
        self._write({"expected": cases})

    def add(self, result: Result) -> None:
        """Record a case's result."""
        self._write(result.to_dict())

    def _write(self, line: dict[str, Any]) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def run(job: dict[str, Any], results: Path) -> None:
    """Run a job, and write what became of its cases."""
    log = Log(results)
    os.environ.update(job["detail"].get("env", {}))
    root, file = Path(job["checkout"]), Path(job["file"])
    sys.path[:] = [p for p in sys.path if p]  # not the working folder
    sys.path[:0] = [str(file.parent), *job["path"]]
    sys.path += [str(STANDINS), str(STANDINS / "xla")]  # last: what is installed wins
    if job["how"] == "tests":
        _tests(job, root, file, log)
        return
    cases = job["detail"].get("cases", [""])
    names = {case: f"{job['name']} {case}".strip() for case in cases}
    log.expect(list(names.values()))
    do = {"script": _script, "calls": _call, "pair": _pair, "harness": _harness}[job["how"]]
    for case, name in names.items():
        begun = time.perf_counter()
        try:
            wrong = do(job, file, case)
            result = Result(name, FAILED if wrong else PASSED, wrong)
        except (Exception, SystemExit) as error:
            result = of_exception(name, error, root, asserts=job["how"] == "script")
        log.add(replace(result, seconds=round(time.perf_counter() - begun, 2)))


# -- kernels on inputs of ours --------------------------------------------------------------------


def _import(file: Path, name: str = "kernels_of_case") -> ModuleType:
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # tools that look at a kernel's source ask there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _run(kernel: Any, args: list[Any], kwargs: Any = None) -> Any:
    """Run a kernel and return its outputs; print what the run found, as a direct call would."""
    run = nkisim.run(kernel, *args, **(kwargs or {}))
    _tell(run.findings)
    return run.outputs


def _tell(findings: list[nkisim.Finding]) -> None:
    for finding in findings:
        if finding.severity != "note":
            print(finding, file=sys.stderr)


def _call(job: dict[str, Any], file: Path, name: str) -> str:
    """Call a course's kernel with its test's shapes; return what our lab's reference says of it."""
    course = job["detail"]["course"]
    case = courses.find(course, name)
    if case.constants:
        utils = importlib.import_module("utils")
        for constant, value in case.constants.items():
            setattr(utils, constant, value)
    kernel = getattr(_import(file), case.kernel)
    args = case.arrays()
    given = _run(kernel, [a.copy() for a in args], {**case.kwargs, **case.options})
    if not case.reference:
        return ""
    right = courses.reference(course, case)(*args, **case.kwargs)
    if case.flat and isinstance(given, np.ndarray) and given.size == right.size:
        given = given.reshape(right.shape)
    return courses.complaint(right, given, case.rtol, case.atol)


def _pair(job: dict[str, Any], file: Path, _: str) -> str:
    """Compare a kernel with its NumPy reference, by the relative L2 norm as NKIBench does."""
    reference = _import(Path(job["detail"]["reference"]), "reference_of_case")
    np.random.seed(42)
    inputs = reference.get_inputs()
    if not job["detail"]["values"]:
        args = reference.transform_to_nki_inputs(inputs)
        _tell(nkisim.profile(_import(file).kernel, *args, compute=False).findings)
        return ""
    right = courses.several(reference.forward(*inputs))
    args = reference.transform_to_nki_inputs(inputs)
    kernel = _import(file).kernel
    given = _run(kernel, list(args))
    outputs = reference.transform_nki_outputs(given, tuple(right) if len(right) > 1 else right[0])
    if len(outputs) != len(right):
        return f"{len(outputs)} outputs, not {len(right)}"
    limit = 3e-5 if "mamba" in file.name else 2e-5  # NKIBench's own
    for one, other in zip(outputs, right):
        error = np.linalg.norm(np.asarray(one, np.float64) - np.asarray(other, np.float64))
        size = np.linalg.norm(np.asarray(other, np.float64))
        if not error < limit * size:
            return f"relative L2 error {error / size:.2g}, not under {limit:g}"
    return ""


# -- programs that judge themselves ---------------------------------------------------------------


class _Tee:
    """Keeps what a script prints, and passes it on."""

    def __init__(self, stream: Any):
        self.stream, self.text = stream, ""

    def write(self, text: str) -> int:
        self.text += text
        return self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _script(job: dict[str, Any], file: Path, _: str) -> str:
    """Run a script as `python FILE`: it must end well and not say that it is wrong."""
    sys.argv[:] = [str(file)]
    tee = sys.stdout = _Tee(sys.stdout)
    try:
        runpy.run_path(str(file), run_name="__main__")
    except SystemExit as end:
        if end.code:
            return f"exit {end.code}"
    finally:
        sys.stdout = tee.stream
    said = next((line.strip() for line in tee.text.splitlines() if _WRONG.search(line)), "")
    return said and f"it says: {said}"


def _harness(job: dict[str, Any], file: Path, _: str) -> str:
    """Put a kernel into the program that compares it with another one; return what that says."""
    text = Path(job["detail"]["program"]).read_text(encoding="utf-8")
    reference = re.search(r"test_nki\w*\((\w+), *solution", text)
    whole = text.replace("# SUBSTITUTE HERE", file.read_text(encoding="utf-8"))
    module = ModuleType("kernels_of_case")
    place = str(file.with_suffix(".harness.py"))  # where errors say they are
    nkisim.register_source(place, whole)
    sys.modules[module.__name__] = module
    exec(compile(whole, place, "exec"), module.__dict__)
    names = [n for n in vars(module) if n.startswith("test_nki")]
    if reference is None or len(names) != 1:
        return "the harness has no test_nki(reference, solution)"
    right = getattr(module, names[0])(getattr(module, reference[1]), module.solution)
    return "" if right else "the harness finds another result"


class TooLong(BaseException):
    """A case did not end in its time. No test takes it for an error of the kernel."""


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise TooLong after some seconds of the processor, or five times as many of the clock (0:
    never), where the system has alarms: what else a machine does is no fault of a kernel's."""
    if not seconds or not hasattr(signal, "SIGALRM"):
        yield
        return

    def end(*_: Any) -> None:
        raise TooLong(f"not finished in {seconds} s")

    timers = (
        (signal.ITIMER_PROF, signal.SIGPROF, seconds),
        (signal.ITIMER_REAL, signal.SIGALRM, 5 * seconds),
    )
    for timer, sign, limit in timers:
        signal.signal(sign, end)
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for timer, _, _ in timers:
            signal.setitimer(timer, 0)


def _volume(nodeid: str) -> int:
    """Return the product of the numbers in a case's parameters: most of them are of its shapes."""
    return prod(int(n) or 1 for n in re.findall(r"\d+", nodeid.partition("[")[2]))


class _Watch:
    """A pytest plugin that records what became of each test."""

    def __init__(self, job: dict[str, Any], root: Path, log: Log):
        self.job, self.root, self.log = job, root, log
        self.ran = True  # a kernel, in the case that runs

    def _name(self, nodeid: str) -> str:
        return f"{self.job['name']}::{nodeid.partition('::')[2]}"

    @pytest.hookimpl(trylast=True)  # what a mark deselects is gone by then
    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        """Keep a sample of each test function's cases: its smallest, and larger ones."""
        size = self.job["detail"].get("sample", 0)
        if not size:
            return
        functions: dict[str, list[Any]] = {}
        for item in items:
            functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
        kept = set()
        for cases in functions.values():
            runs = [c for c in cases if c.get_closest_marker("skip") is None] or cases
            runs.sort(key=lambda case: _volume(case.nodeid))
            kept |= {runs[i * len(runs) // size] for i in range(size)}
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: Any) -> Iterator[None]:
        """Note whether a sample's case comes to a kernel; end it after its time, if it has one."""
        self.ran = True
        np.random.seed(42)  # some tests draw without a seed, and pass by chance
        with launch.collected_findings() as runs, time_limit(self.job["detail"].get("each", 0)):
            try:
                return (yield)
            finally:
                self.ran = bool(runs) or not self.job["detail"].get("sampled")
                for findings in runs:
                    _tell(findings)

    def pytest_runtest_logfinish(self) -> None:
        """Let go of what a failed test has computed: its traceback holds it."""
        for name in ("last_exc", "last_value", "last_traceback"):
            setattr(sys, name, None)
        gc.collect()

    def pytest_collection_finish(self, session: Any) -> None:
        """Name the tests to come."""
        self.log.expect([self._name(item.nodeid) for item in session.items])

    def pytest_exception_interact(self, node: Any, call: Any, report: Any) -> None:
        """Record a file that could not be imported."""
        if report.when == "collect":
            error = call.excinfo.value
            error = error.__cause__ or error  # pytest wraps an ImportError
            self.log.add(of_exception(self.job["name"], error, self.root, asserts=False))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Generator[None, Any, Any]:
        """Record a test that ran, or whose set-up failed."""
        report: Any = yield
        name, error = self._name(item.nodeid), call.excinfo and call.excinfo.value
        if isinstance(error, TooLong):
            self.log.add(Result(name, FAILED, str(error)))
        elif report.skipped and hasattr(report, "wasxfail"):
            self.log.add(Result(name, NOT_HERE, f"it says that it fails: {report.wasxfail}"))
        elif isinstance(error, pytest.skip.Exception):
            self.log.add(Result(name, NOT_HERE, f"skipped: {error}"))
        elif error is not None:
            self.log.add(of_exception(name, error, self.root, asserts=True, ran=self.ran))
        elif call.when == "call":
            self.log.add(Result(name, PASSED, seconds=round(call.duration, 2)))
        return report


def _tests(job: dict[str, Any], root: Path, file: Path, log: Log) -> None:
    """Run a file of tests with pytest; output is not captured, so that findings reach stderr."""
    options = ["-q", "-s", "-p", "no:cacheprovider", "-o", "addopts=", "--rootdir", str(root)]
    here = os.getcwd()
    pytest.main([*options, *job["detail"]["options"], str(file)], plugins=[_Watch(job, root, log)])
    os.chdir(here)
