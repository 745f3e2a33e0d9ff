"""A kernel of this process, launched as the tester does and as the grader does.

The grader sees a kernel through stand-ins, in a process of its own, and carries out what it asked
for. Here that process is a fork of this one, in which the names that a kernel uses are replaced:
so any kernel of any test can be tried, wherever it is defined. As a plugin (`-p both_ways`) it
tries each kernel that pytest's tests launch, and ends the run with the differences.
"""

from __future__ import annotations

import copy
import enum
import functools
import linecache
import os
import signal
import sys
import time
import types
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nkisim
from labkit.dialect import PACKAGE
from labkit.grade import sandbox_worker as worker
from labkit.grade.facade import MODULES, Facade
from labkit.grade.judge import Bench
from labkit.grade.rpc_server import Refused, Session, StudentError
from labkit.run.backends import SHUFFLE
from nkisim.lint import level
from nkisim.simulation import launch as launching

#: of packages that a kernel's own names do not come from
_OTHERS = ("nkisim", "neuronxcc", "nki", "labkit", "numpy", "pytest", "_pytest", "hypothesis")
SECONDS = 60.0
#: tests of the simulator whose kernels the grader takes otherwise, and why
OTHERWISE = {
    "leaves_no_garbage|error_that_is_caught|packed_types": "ends at an error that it catches",
    "what_has_room_runs": "an integer of more than 64 bits",
    "cli/test_coverage|test_rows.py|column_of_indices": "uses the simulator's own files and names",
    "who_chose_the_course|unknown_target|test_strict_refuses": "both are refused before they run",
    "Index cannot be given|test_random_calls": "uses objects that the test made for one launch",
    "release_hold|test_older_releases|second_row|test_nki_configured": "the environment decides",
    "also_in_other_files|launcher_inside|of_a_wrapper|test_tune": "names that are not replaced",
    "a_loop_runs_as_often_as_a_tile_says": "nt.scalar would tell values",
    "tiles_and_cuts_the_last|packs_the_cells|bounds_and_loops": "asks for the type of a stand-in",
    "loops_that_0_7_removed": "a register is a condition: the source is refused",
    "masks_joined_by_and": "both refuse it, by another rule",
    "annotation_checks_a_shape": "the inputs are the lab's",
    "wrong_value_would|test_who_waits|tiles_of_an_allocator": "findings of lines in no file",
}


@functools.lru_cache(maxsize=1)
def facade() -> Facade:
    return Facade()


class Swap:
    """Replaces what a kernel can reach of NKI by stand-ins, in a process that serves the judge."""

    def __init__(self, folder: str) -> None:
        self.folder, real = folder, facade()
        roots = [root + part for root, parts in MODULES.items() for part in parts]
        self.modules = {id(sys.modules[name]): name for name in roots if name in sys.modules}
        self.paths = real.paths
        self.launchers = {
            id(getattr(sys.modules[root], name))
            for root, names in real.launchers.items()
            for name in names
        }
        self.done: dict[int, Any] = {}
        worker.build(*real.describe())

    def __call__(self, value: Any) -> Any:
        """Return what stands for a value; what holds others is changed in place."""
        if id(value) in self.modules:
            return sys.modules[self.modules[id(value)]]
        if isinstance(value, type) and issubclass(value, enum.Enum):
            path = self.paths.get(id(next(iter(value), None)), "")
            module = sys.modules.get(path.rpartition(".")[0].rpartition(".")[0])
            return vars(module).get(value.__name__, value) if module else value
        if id(value) in self.launchers:
            return worker.jit
        if id(value) in self.paths and (
            isinstance(value, enum.Enum) or not isinstance(value, (bool, int, float, str))
        ):
            return worker.State.constants[self.paths[id(value)]]
        if isinstance(value, str):
            return str(value)  # a data type of `import nki`, too
        if id(value) in self.done:
            return self.done[id(value)]
        self.done[id(value)] = value
        made = self._made(value)
        self.done[id(value)] = made
        return made

    def _made(self, value: Any) -> Any:
        if isinstance(value, launching.Kernel):
            grid = value.grid[0] if len(value.grid) == 1 else value.grid or None
            edges = getattr(value, "schedule", ()) or None
            schedule = edges and [
                edges,
                [
                    value.scheduled_at.file.removeprefix(self.folder),
                    value.scheduled_at.line,
                    "kernel",
                ],
            ]
            return worker.Kernel(self(value.func), value.nki_options, grid, schedule)
        if isinstance(value, functools.partial):
            return functools.partial(self(value.func), *self(value.args), **self(value.keywords))
        if type(value) in (list, tuple, set):
            return type(value)(self(v) for v in value)
        if type(value) is dict:
            return {self(k): self(v) for k, v in value.items()}
        if isinstance(value, (types.MethodType, staticmethod, classmethod)):
            self(value.__func__)
            return value
        if not _is_theirs(value):
            return value
        if isinstance(value, types.FunctionType):
            self._names(value.__globals__)
            for cell in value.__closure__ or ():
                try:
                    cell.cell_contents = self(cell.cell_contents)
                except ValueError:
                    pass  # it is empty still
            value.__defaults__ = self(value.__defaults__)
            value.__kwdefaults__ = self(value.__kwdefaults__)
        elif isinstance(value, types.ModuleType):
            self._names(vars(value))
        elif isinstance(value, type):
            for name, item in list(vars(value).items()):
                if not name.startswith("__") and (made := self(item)) is not item:
                    setattr(value, name, made)
        elif hasattr(value, "__dict__"):
            self._names(vars(value))
            self(type(value))
        return value

    def _names(self, names: dict[str, Any]) -> None:
        if id(names) in self.done:
            return
        self.done[id(names)] = names
        for name, value in list(names.items()):
            if not (name.startswith("__") and name.endswith("__")):
                names[name] = self(value)


def _is_theirs(value: Any) -> bool:
    """Return whether something is of the kernel's own files, not of a package."""
    if isinstance(value, types.ModuleType):
        file, name = getattr(value, "__file__", None) or "", value.__name__
        return (
            name.split(".")[0] not in _OTHERS and "site-packages" not in file and "/tests/" in file
        )
    if isinstance(value, types.FunctionType):
        file = value.__code__.co_filename
        return not any(part in file for part in ("/nkisim/", "/labkit/grade/", "/lib/python")) or (
            "/tests/" in file
        )
    home = getattr(value, "__module__", None) or getattr(type(value), "__module__", None) or ""
    if not isinstance(home, str) or home.split(".")[0] in _OTHERS:
        return False
    module = sys.modules.get(home)
    file = getattr(module, "__file__", None)
    return module is None or (file is not None and "/lib/python" not in file)


class Fork(Bench):
    """A judge of one kernel, whose process is a fork of this one."""

    def __init__(self, kernel: launching.Kernel):
        self.kernel, self.package = kernel, PACKAGE[kernel.dialect.name]
        self.session, self.student, self.told = None, None, False
        code = getattr(_plain(kernel.func), "__code__", None)
        file = Path(code.co_filename if code else "kernel.py")
        self.folder = f"{file.parent}/" if file.parent != Path(".") else file.name[:1]
        names = [p.name for p in file.parent.glob("*.py")] if file.is_file() else []
        self.files = {n: "".join(linecache.getlines(f"{self.folder}{n}")) for n in names}
        self.files.setdefault(str(file).removeprefix(self.folder), "")

    def start(self) -> Session:
        """Fork the process that has the kernel."""
        if self.session is None:
            facade()
            there, write = os.pipe()
            read, here = os.pipe()
            self.child = os.fork()
            if not self.child:
                os.close(read), os.close(write)
                self._serve(there, here)
            os.close(there), os.close(here)
            self.session = Session(facade(), read, write, self.files, self.package)
            self.ends = read, write
        self.session.deadline = time.monotonic() + SECONDS
        return self.session

    def stop(self) -> None:
        """End it."""
        if self.session is not None:
            os.kill(self.child, signal.SIGKILL)
            os.waitpid(self.child, 0)
            for end in self.ends:
                os.close(end)
        self.session = None

    def _serve(self, read: int, write: int) -> None:
        try:
            worker.State.pipe, worker.State.folder = worker.Pipe(read, write), self.folder
            swap = Swap(self.folder)
            kernels = types.SimpleNamespace(kernel=swap(self.kernel))
            while True:
                job = worker.State.pipe.take()
                try:
                    reply = worker.work(job, {"kernels": kernels})
                except BaseException as error:
                    reply = worker.describe(error)
                worker.State.pipe.send(reply)
        finally:
            os._exit(1)


def _plain(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__func__", function)


def tester(kernel: Any, args: Any, kwargs: Any, target: str) -> dict[str, Any]:
    """Return what a launch gives: outputs, time, rules of its findings; or its error."""
    return _said(kernel, lambda: nkisim.profile(kernel, *args, target=target, **kwargs))


def grader(kernel: launching.Kernel, args: Any, kwargs: Any, target: str) -> dict[str, Any]:
    """Return what the grader's launch gives."""
    bench = Fork(kernel)
    case = types.SimpleNamespace(
        kernel="kernel", inputs=args, kwargs=kwargs, kernel_kwargs={}, constants={}
    )

    def run() -> Any:
        launched = bench._recorded(case, target, list(args))
        return nkisim.profile(launched, *args, target=target, **kwargs)

    try:
        return _said(kernel, run)
    finally:
        bench.stop()


def _said(kernel: launching.Kernel, run: Any) -> dict[str, Any]:
    """Return what a run gives. The grader reads the source by itself (rules.py): what is found
    there is left out, and so is the note that a number was put back, which its process does."""
    try:
        made = run()
    except Refused as error:
        return {"error": f"refused: {error}"}
    except StudentError as error:
        return {"error": error.kind, "text": error.text}
    except Exception as error:
        rule = getattr(error, "nki_error", error)
        return {"error": getattr(rule, "id", "") or type(error).__name__, "text": str(error)}
    outputs = made.outputs if isinstance(made.outputs, (tuple, list)) else (made.outputs,)
    in_source = Counter(f.id for f in level.of_kernel(kernel.func, kernel.dialect.name))
    of_run = Counter(f.id for f in made.findings if f.id != "NKI-L07") - in_source
    return {
        "us": float(made.latency_us),
        "outputs": [np.asarray(array) for array in outputs],
        "findings": sorted(of_run.elements()),
        "instructions": dict(made.instructions),
    }


def difference(kernel: launching.Kernel, args: Any, kwargs: Any, target: str) -> str:
    """Return how the two differ, "" if they do not."""
    one = tester(kernel, *copy.deepcopy((args, kwargs)), target)
    other = grader(kernel, *copy.deepcopy((args, kwargs)), target)
    for what in ("error", "instructions", "us", "findings"):
        if what == "error" and {*map(bool, (one.get(what), other.get(what)))} == {True}:
            if not (one[what].startswith("NKI") and other[what].startswith("NKI")):
                continue  # the verdict is the same; Python's own error may come first
        if one.get(what) != other.get(what):
            text = " ".join(str(side.get("text", "")) for side in (one, other))[:500]
            return f"{what}: {one.get(what)} by the tester, {other.get(what)} by the grader {text}"
    for a, b in zip(one.get("outputs", ()), other.get("outputs", ()), strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"outputs: {a.shape} {a.dtype}, {b.shape} {b.dtype}"
        if not _alike(a, b):
            return "outputs: other values"
    return ""


def _alike(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two arrays are the same but for the order of sums: the simulator puts products
    together as they come, so the last bits of a sum differ where they are computed at other times.
    """
    if one.tobytes() == other.tobytes():
        return True
    if one.dtype.kind in "biu":
        return False
    one, other = one.astype(np.float64), other.astype(np.float64)
    most = np.abs(one[np.isfinite(one)]).max(initial=0.0)
    return bool(np.allclose(one, other, rtol=0, atol=16 * 2.0**-24 * most, equal_nan=True))


# -- as a plugin of pytest -------------------------------------------------------------------------
MOST = int(os.environ.get("BOTH_WAYS_LAUNCHES", "1"))  # of a test
#: `process`: the one whose tests end where enough was tried, if this is a plugin
_state: dict[str, Any] = {"test": "", "launches": 0, "busy": False, "process": 0}
_state |= {"tried": 0, "skipped": 0}
DIFFERENCES: list[tuple[str, str, str]] = []
_PLAIN = (np.ndarray, np.generic, bool, int, float, str, type(None))


def _launch(m: Any, kernel: Any, args: Any, kwargs: Any) -> Any:
    enough = _state["launches"] >= MOST
    if enough and not _state["busy"] and _state["process"] == os.getpid():  # no forked worker
        pytest.skip("enough was tried; the test itself runs elsewhere")
    inside = _state["busy"] or not _state["test"] or enough
    given = (*args, *kwargs.values())
    # labs have no kernels that return nothing, and none on several cores
    others = kernel.mode == "trace" or kernel.together and kernel.grid not in ((), (1,))
    others |= SHUFFLE in os.environ  # what is found then depends on the order
    if inside or others or not all(isinstance(v, _PLAIN) for v in given):
        _state["skipped"] += not inside
        return _original(m, kernel, args, kwargs)
    kept = copy.deepcopy((args, kwargs))
    _state["launches"] += 1
    try:
        return _original(m, kernel, args, kwargs)
    finally:
        _state["busy"] = True
        try:
            found = difference(kernel, *kept, m.hw.name)
        except Exception as error:
            found = f"the comparison fails: {type(error).__name__}: {error}"
        finally:
            _state["busy"] = False
        _state["tried"] += 1
        if found:
            DIFFERENCES.append((_state["test"], kernel.__name__, found))
            if log := os.environ.get("BOTH_WAYS_LOG"):
                with open(log, "a") as file:
                    file.write(f"{_state['test']} {kernel.__name__}: {found}\n")


_original = launching._launch


@contextmanager
def tried(test: str) -> Iterator[list[tuple[str, str, str]]]:
    """Try the launches of a block both ways; the list that it gives has the differences."""
    DIFFERENCES.clear()
    launching._launch = _launch
    _state.update(test=test, launches=0)
    try:
        yield DIFFERENCES
    finally:
        launching._launch = _original
        _state["test"] = ""


def pytest_configure(config: pytest.Config) -> None:
    """Try each launch both ways."""
    launching._launch, _state["process"] = _launch, os.getpid()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Count launches by test."""
    _state.update(test=item.nodeid, launches=0)
    try:
        return (yield)
    finally:
        _state["test"] = ""


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what differs."""
    write = terminalreporter.write_line
    write(f"{_state['tried']} launches tried both ways, {_state['skipped']} not")
    for test, name, found in DIFFERENCES:
        write(f"DIFFERENCE {test} {name}: {found}")
