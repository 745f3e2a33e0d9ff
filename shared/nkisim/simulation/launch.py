"""Launching kernels: arguments in, the kernel's function run on a machine, outputs out."""

from __future__ import annotations

import copy
import functools
import inspect
import os
import pickle
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import course
from ..checks import strictness as strict
from ..checks.capacity import check_capacity, check_placed
from ..checks.execution import Execution
from ..checks.finding import Finding
from ..checks.hazards import check_loops, may_meet
from ..checks.ignore import without_ignored
from ..checks.inputs import unread_inputs
from ..checks.overlaps import check_overlaps
from ..checks.races import between_waits
from ..checks.sums import check_shared_banks, check_sums
from ..checks.unused import check_unused
from ..chip import dtypes, hw
from ..dialect import BETA1, Dialect
from ..errors import DIALECT, NkiError, fail, find_where, in_user_code, trim, uncaught
from ..isa import lower, registers
from ..lazy.async_matmul import matmul_pool
from ..lazy.products import Products
from ..lint import level
from ..loops import pyrange
from ..machine import regroupings
from ..machine.context import NeedsValues, current
from ..machine.cores import Cores
from ..machine.grid import grid_sizes
from ..machine.interface import Machine
from ..machine.interpreter import Interpreter
from ..machine.loop import shuffle_seed
from ..machine.state import Settings
from ..machine.tensor import Tensor
from ..machine.tile_values import TileValues
from ..trace import collector
from ..trace.trace import Trace
from . import banner
from .host_arrays import Arguments, no_tensor, outputs, place_of


@dataclass
class Run:
    """What one launch produced.

    `outputs`: NumPy array, or tuple of them (torch tensors if torch came in), None when
    timing-only. `instructions` counts by instruction name.
    """

    outputs: Any
    findings: list[Finding]
    trace: Trace
    target: str
    machine: Machine
    #: the call: of each array its name, storage, shape and dtype; of what else, name and value
    arguments: tuple[dict[str, Any], ...] = ()

    def _sum(self, what: str) -> int:
        return sum(
            n * getattr(self.trace.op_specs[k], what) for k, n in self.trace.counts().items()
        )

    @property
    def may_meet(self) -> bool:
        """Return whether run-time indices choose what iterations write, which may be the same."""
        return may_meet(self.trace, self.machine.settings.skip_middle_end)

    @property
    def instructions(self) -> Counter[str]:
        """Return the number of instructions by name."""
        out: Counter[str] = Counter()
        for k, n in self.trace.counts().items():
            out[self.trace.op_specs[k].row.name] += n
        return out

    @property
    def dma_transfers(self) -> int:
        """Return the number of DMA transfers (dma_transfer_count of a profile)."""
        return sum(
            n for k, n in self.trace.counts().items() if self.trace.op_specs[k].engine == "dma"
        )

    @property
    def hbm_read_bytes(self) -> int:
        return self._sum("read_bytes")

    @property
    def hbm_write_bytes(self) -> int:
        return self._sum("write_bytes")


class Kernel:
    """A function decorated with `@nki.jit`: callable with arrays, and inside other kernels."""

    __name__: str  # of the function
    dialect: Dialect = BETA1
    together = False  # the instances of the grid are cores that run at once
    inputs_mutable = False  # a kernel may write into any of its arguments
    #: gives, of (args, kwargs, target) of a launch, the kernel that is launched instead
    prepare: Callable[[tuple[Any, ...], dict[str, Any], str | None], Kernel] | None = None

    def __init__(
        self,
        func: Callable[..., Any],
        mode: str = "auto",
        target: str | None = None,
        options: tuple[str, ...] = (),
        grid: tuple[int, ...] = (),
    ):
        named = func
        while isinstance(named, functools.partial):  # which has no name of its own
            named = named.func
        functools.update_wrapper(self, named)
        del self.__dict__["__wrapped__"]  # a kernel is no plain function: tools must not unwrap
        try:
            self.__signature__ = inspect.signature(func)
        except (TypeError, ValueError):  # builtins have none
            pass
        self.func = func
        self.mode, self.target = mode, target
        self.nki_options = (*getattr(func, "nki_options", ()), *options)
        self.grid = grid

    def __get__(self, instance: Any, owner: Any = None) -> Kernel:
        """Return the kernel with its first argument bound, of a method with `self`."""
        inside = getattr(self.func, "__qualname__", "").rpartition(".")[0]
        if (
            instance is None
            or not inside
            or inside.endswith("<locals>")
            or next(iter(getattr(self, "__signature__", inspect.Signature()).parameters), "")
            != "self"
        ):
            return self  # a kernel that a class has as an attribute
        k = copy.copy(self)
        k.func = self.func.__get__(instance, owner)
        return k

    def __copy__(self) -> Kernel:
        k = type(self).__new__(type(self))
        k.__dict__.update(self.__dict__)
        return k

    def __reduce__(self) -> Any:
        """Pickle the kernel as what its module calls by its name, like a function."""
        named: Any = sys.modules.get(self.__dict__.get("__module__", ""))
        try:
            for name in self.__dict__.get("__qualname__", "").split("."):
                named = getattr(named, name)
        except AttributeError:
            named = None
        if named is self:
            return self.__qualname__
        function = getattr(self.func, "__func__", self.func)
        if isinstance(named, Kernel) and named.func is function:  # kernel[2], for one
            changed = {
                k: v
                for k, v in self.__dict__.items()
                if k not in named.__dict__ or named.__dict__[k] is not v
            }
            if function is not self.func:  # a method, which goes with its object
                del changed["func"]
                return _bound, (named, self.func.__self__, changed)  # type: ignore[attr-defined]
            return _changed, (named, changed)
        raise pickle.PicklingError(
            f"kernel {self.__name__} cannot be pickled: {self.__dict__.get('__module__')} has no "
            f"{self.__dict__.get('__qualname__')} that is this kernel. Decorate a function at the "
            "top of a module with @nki.jit, and pass that"
        )

    def __getitem__(self, grid: Any) -> Kernel:
        """Return the kernel launched over a grid: kernel[4, 2](x)."""
        k = copy.copy(self)
        try:
            k.grid = grid_sizes(grid)
        except NkiError as exc:
            raise trim(exc)  # noqa: B904 (the same exception)
        return k

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        m = current.get()
        if m is None:
            return report_findings(launch(self, args, kwargs)).outputs
        if self.grid:
            raise fail(
                "NKI-K02",
                "a kernel is launched over a grid from inside a kernel",
                given=f"{self.__name__}[{', '.join(map(str, self.grid))}]",
                limit="only the outermost kernel has a grid",
                hint="call it without the grid, in a loop",
            )
        m.flush()
        m.core.depth += 1
        try:
            return self.func(*args, **kwargs)
        finally:
            m.core.depth -= 1

    def core(self, target: str | None) -> hw.NeuronCore:
        """Return what is simulated: as asked, as the environment says, or as the course does."""
        return hw.get(self.chosen(target)[0])

    def chosen(self, target: str | None) -> tuple[str, str]:
        """Return (generation, who decided): an explicit target decides, then the course."""
        explicit = target or self.target
        variable = os.environ.get(hw.TARGET_VARIABLE)
        if not explicit and not variable:
            return course.target_of(self.dialect.name)
        name = hw.get(explicit).name  # of None: as the variable says
        why = "as asked" if explicit else hw.TARGET_VARIABLE
        if course.flag_target == (explicit or variable):
            why = "--target"
        return name, why + course.instead(name, self.dialect.name)

    def enter(self, t: Tensor, name: str, shared: bool) -> Any:
        """Return an argument as kernels of the dialect hold it."""
        return t

    def enter_empty(self, m: Machine, array: np.ndarray, name: str) -> Any:
        """Return an argument without elements as kernels hold it, None if they cannot."""
        return None

    def leave(self, value: Any) -> Any:
        """Return what a kernel returns as the machine's tensor."""
        return value

    def launched(self) -> Kernel:
        """Return the kernel as the environment has it launched."""
        return self

    def ended(self, m: Machine) -> None:
        """Do what is to be done once all instructions are recorded."""

    def __repr__(self) -> str:
        return f"<nki kernel {getattr(self, '__name__', '?')}>"


def _bound(kernel: Kernel, instance: Any, changed: dict[str, Any]) -> Kernel:
    """Return a kernel bound to an object, with some attributes changed."""
    return _changed(kernel.__get__(instance), changed)


def _changed(kernel: Kernel, changes: dict[str, Any]) -> Kernel:
    """Return a copy of a kernel with some attributes changed."""
    k = copy.copy(kernel)
    k.__dict__.update(changes)
    return k


#: tell for a plain function whether it is of a dialect, and make it a kernel of that
DIALECTS: list[Callable[[Callable[..., Any]], Kernel | None]] = []


def as_kernel(func: Any, what: str = "a kernel") -> Kernel:
    """Return a kernel for a decorated or plain function, or raise; of a launcher, its kernel."""
    inner = getattr(func, "kernel", None)  # nki.benchmark of what nki.benchmark decorates
    func = inner if isinstance(inner, Kernel) else func
    if isinstance(func, functools.partial):
        k = copy.copy(as_kernel(func.func))
        k.func = functools.partial(k.func, *func.args, **func.keywords)
        return k
    if isinstance(func, Kernel):
        return func
    if not callable(func):
        raise trim(_no_function(type(func).__name__, what))
    return next(filter(None, (kernel_of(func) for kernel_of in DIALECTS)), None) or Kernel(func)


def _no_function(given: str, what: str = "a kernel") -> NkiError:
    return fail(
        "NKI-K03",
        f"{what} is not a function",
        given=given,
        limit="a function, plain or decorated with @nki.jit",
    )


def _bind(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """Return the names of the positional arguments, or raise for a call that does not fit."""
    try:
        sig = inspect.signature(kernel.func)
        sig.bind(*args, **kwargs)
    except TypeError as exc:
        plain = sig.replace(
            return_annotation=sig.empty,
            parameters=[p.replace(annotation=sig.empty) for p in sig.parameters.values()],
        )
        raise fail(
            "NKI-K04",
            f"kernel {kernel.__name__} was not called as it is defined: {exc}",
            limit=f"{kernel.__name__}{plain}",
            given=f"{kernel.__name__}({', '.join(_as_called(args, kwargs))})",
            where=find_where() or place_of(kernel),
        ) from None
    names = [p.name for p in sig.parameters.values()]
    return names + [names[-1] if names else "args"] * len(args)


def _as_called(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[str]:
    """Say what a call hands over: arrays by shape and dtype, other things by their type."""
    for name, value in (*(("", a) for a in args), *kwargs.items()):
        shape = getattr(value, "shape", None)
        passed = (
            type(value).__name__ if shape is None else f"{getattr(value, 'dtype', '')}{list(shape)}"
        )
        yield f"{name}={passed}" if name else passed


# -- launching -----------------------------------------------------------------------------------


#: called with the name and the run of each kernel that has run to its end
OBSERVERS: list[Callable[[str, Run], None]] = []
#: when the kernels that run now began (time.monotonic), the outermost one first
RUNNING: list[float] = []


def launch(
    kernel: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    target: str | None = None,
    compute: bool = True,
    every_iteration: bool = False,
    checks: bool = True,
    tile_values: TileValues | None = None,
) -> Run:
    """Run a kernel on the simulated NeuronCore and return what it produced.

    `compute=False` leaves out the arithmetic. Loops whose iterations all follow from the first one
    are recorded without executing them (nkisim/loops), which changes nothing in the record; with
    `every_iteration` they are executed. Without `checks` nothing is looked for but what ends a
    call of NKI. `tile_values` looks at what each instruction writes.
    Raises NkiError when a rule is broken; IndexError for a run-time index outside of a tensor.
    """
    while isinstance(kernel, functools.partial):
        args, kwargs = (*kernel.args, *args), {**kernel.keywords, **kwargs}
        kernel = kernel.func
    RUNNING.append(time.monotonic())
    try:
        launched = as_kernel(kernel)
        if not hasattr(launched, "__name__"):  # nor has what it is made of
            raise _no_function("an object that can be called")
        if launched.prepare is not None:
            launched = launched.prepare(args, kwargs, target)
        launched = launched.launched()
        m = _machine(launched, target, compute, every_iteration, checks)
        m.watch = tile_values
        with _speaking(m.dialect):
            return _launch(m, launched, args, kwargs)
    except NeedsValues:  # a loop whose bound the kernel computes
        run = launch(kernel, *copy.deepcopy((args, kwargs)), target=target, checks=checks)
        run.outputs = None
        return run
    except Exception as exc:
        uncaught.install_hook()
        raise in_user_code(exc)  # noqa: B904 (it is the same, or has its own context)
    finally:
        RUNNING.pop()


def _machine(
    kernel: Kernel, target: str | None, compute: bool, every_iteration: bool, checks: bool
) -> Interpreter:
    """Return the machine of one launch of a kernel; say which NeuronCore it is."""
    core = kernel.core(target)
    settings = Settings(
        compute,
        checks=checks and strict.requested() != strict.OFF,
        skip_middle_end="skip_middle_end_transformations" in kernel.nki_options,
        every_iteration=every_iteration,
        shuffle=shuffle_seed() if compute else None,
    )
    banner.announce(core.name, kernel.chosen(target)[1])
    return Interpreter(core, lower, kernel.dialect, kernel, settings)


@contextmanager
def _speaking(dialect: Dialect) -> Iterator[None]:
    """Let errors say what to write in a dialect."""
    token = DIALECT.set(dialect)
    try:
        yield
    finally:
        DIALECT.reset(token)


def _launch(m: Machine, kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Run:
    """Bind the arguments, execute the kernel, check its record, convert what it returns, report."""
    names = _bind(kernel, args, kwargs)
    if m.settings.checks:
        m.findings += level.of_kernel(kernel.func, m.dialect.name)
    box = Arguments(m, kernel)
    tensors = [box.convert(a, n) for a, n in zip(args, names)]
    named = {k: box.convert(v, k) for k, v in kwargs.items()}
    try:
        result, unread = _execute(m, kernel, box, tensors, named)
        returned = outputs(m, kernel, box, result)  # of nothing, no time is predicted either
        m.overflow.report(array for _, array, _, mutable in box.inputs if not mutable)
        findings = _findings(m, unread)
    except Exception as exc:
        _report_before_error(m, exc)
        explained = no_tensor(exc, kernel, [*zip(names, tensors), *named.items()])
        if explained is not None:
            raise explained.with_traceback(exc.__traceback__) from None
        raise
    _release(m)
    run = Run(
        returned if m.compute else None,
        findings,
        m.trace,
        m.hw.name,
        m,
        box.called([*zip(names, args), *kwargs.items()]),
    )
    if _collectors:
        _collectors[-1].append(run.findings)
    for observe in OBSERVERS:
        observe(getattr(kernel, "__name__", "kernel"), run)
    return run


def _execute(
    m: Machine, kernel: Kernel, box: Arguments, args: list[Any], kwargs: dict[str, Any]
) -> tuple[Any, list[Finding]]:
    """Run the kernel's function, and the passes over its record while products are computed.

    Return what it returns, and the findings that are of interest where nothing worse is found.
    """
    token = current.set(m)
    try:
        with (
            collector.paused(),
            m.overflow.errstate(),
            dtypes.precision(),
            matmul_pool(m.compute) as m.products.matmul_pool,
        ):
            result = pyrange.known_to(kernel.func)(_run_instances)(m, kernel, args, kwargs)
            kernel.ended(m)
            registers.ended(m)
            regroupings.ended(m)
            m.products.start()
            error, reported, unread = _run_checks(m, kernel, box)
            m.catch_up()  # nothing has read them: a kernel may return PSUM itself
            m.findings += reported
    finally:
        m.products.join()
        current.reset(token)
    if error is not None:
        raise error
    return result, unread


def _findings(m: Machine, unread: list[Finding]) -> list[Finding]:
    """Return the findings that the user asked for; raise the worst one at the level strict."""
    if not m.settings.checks:
        return []
    if all(f.severity == "note" for f in m.findings):
        m.findings += unread
    findings = without_ignored(m.findings)
    if strict.requested() == strict.STRICT and (error := strict.as_error(findings)) is not None:
        raise error
    return findings


def _run_checks(
    m: Machine, kernel: Kernel, box: Arguments
) -> tuple[NkiError | None, list[Finding], list[Finding]]:
    """Return the error and the findings of the passes over the record, and of those what is of
    interest where nothing worse is found."""
    if not m.settings.checks:
        return None, [], []
    inputs, run = [(name, t) for name, _, t, _ in box.inputs], _execution(m)
    before, error = len(m.findings), None
    if m.launch.cores is None:
        error = check_loops(run)
    else:
        _races(run)
    check_overlaps(run)
    check_shared_banks(run)
    if error is None:
        check_unused(run)
    unread = []
    if m.compute:  # a profile counts what does not fit as it schedules
        check_capacity(run)
        check_placed(run)
        if not m.dialect.sums_are_states:  # else it is said as it is issued
            check_sums(run)
        if error is None and all(f.severity == "note" for f in m.findings):
            unread = unread_inputs(run, inputs, place_of(kernel))
    reported = m.findings[before:]
    del m.findings[before:]
    return error, reported, unread


def _execution(m: Machine) -> Execution:
    """Return what the passes over the record look at."""
    return Execution(
        m.trace,
        m.hw,
        m.dialect,
        m.findings,
        compute=m.compute,
        skip_middle_end=m.settings.skip_middle_end,
        asked_id=m.launch.asked_id,
        cores=m.launch.cores,
        direct=m.memory.direct,
        arenas=m.memory.arenas,
        indexed=m.memory.indexed,
        unseen=m.memory.unseen,
    )


def _release(m: Machine) -> None:
    """Keep the record of a launch, and nothing of what only its kernel needs: the next one uses
    that memory, without a garbage collector that would have to find it."""
    m.products = Products()
    del m.undefined, m.overflow  # which know the machine
    for used in (
        m.core.accepted,
        m.core.constants,
        m.memory.arenas,
        m.memory.shared,
        m.memory.sites,
    ):
        used.clear()


def _races(run: Execution) -> None:
    """Report what two cores do to the same bytes of HBM without waiting for each other."""
    kinds = run.trace.loop_kind
    kinds[:] = ["grid" if kind == "cores" else kind for kind in kinds]
    error = check_loops(run, between_waits(run.trace, run.cores.nodes))
    if error is not None:
        run.findings.append(
            Finding(error.id, "warning", f"{error.what}. {error.hint}", error.where, None)
        )


def _report_before_error(m: Machine, error: Exception) -> None:
    """Give the findings of a run that an error has ended to whoever watches.

    What was found in the line of the error the error says itself.
    """
    where = getattr(getattr(error, "nki_error", error), "where", None)
    if _collectors and (findings := [f for f in m.findings if where is None or f.where != where]):
        _collectors[-1].append(without_ignored(findings))


_reported: dict[tuple[Any, ...], str] = {}
_collectors: list[list[list[Finding]]] = []


@contextmanager
def collected_findings() -> Iterator[list[list[Finding]]]:
    """Collect the findings of each kernel run in this block, instead of printing them."""
    runs: list[list[Finding]] = []
    _collectors.append(runs)
    try:
        yield runs
    finally:
        _collectors.remove(runs)


def report_findings(run: Run) -> Run:
    """Print a run's errors and warnings to stderr, once a process for each place, whatever the
    shapes; NKI_FINDINGS=0 silences.

    Scripts that call kernels directly would otherwise never see them; `nkisim.run` returns them.
    """
    if _collectors or os.environ.get("NKI_FINDINGS") == "0" or sys.stderr is None:
        return run
    for finding in run.findings:
        if finding.severity != "note" and finding.key not in _reported:
            _reported[finding.key] = finding.severity
            print(str(finding), file=sys.stderr, flush=True)
    return run


def errors_found() -> int:
    """Return how many errors `report_findings` has printed in this process."""
    return sum(severity == "error" for severity in _reported.values())


def _run_instances(m: Machine, kernel: Kernel, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call the kernel once, or once for each instance of its grid."""
    m.core.depth = 1
    if not kernel.grid:
        result = kernel.func(*args, **kwargs)
        m.flush()
        return result
    m.launch.grid = kernel.grid
    if kernel.together:
        m.launch.cores = Cores(m, kernel.grid[0])
        return m.launch.cores.run(lambda: kernel.func(*args, **kwargs))
    result = None
    ids = list(np.ndindex(*kernel.grid))
    for i in m.loop("grid", range(len(ids))):
        m.core.program_id, m.core.shared_at, m.core.top = ids[i], 0, m.core.node
        result = kernel.func(*args, **kwargs)
        m.flush()
    return result
