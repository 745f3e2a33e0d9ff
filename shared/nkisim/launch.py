"""Launching kernels: arguments in, the kernel's function run on a machine, outputs out."""
from __future__ import annotations

import copy
import functools
import inspect
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import banner, collector, uncaught
from .checks import clean
from .checks import level as strict
from .checks.capacity import check_capacity, check_placed
from .checks.finding import Finding
from .checks.hazards import check_loops, may_meet
from .checks.ignore import kept
from .checks.inputs import unread_inputs
from .checks.races import between_waits
from .checks.sums import check_sums
from .chip import dtypes, hw, pages
from .errors import DIALECT, NkiError, fail, find_where, in_user_code, trim
from .handed import Arguments, no_tensor, outputs, place_of
from .isa import lower
from .lint import level
from .machine import plainrange
from .machine.beside import beside
from .machine.context import NeedsValues, current
from .machine.cores import Cores
from .machine.grid import grid_sizes
from .machine.machine import Machine
from .machine.products import Products
from .machine.replay import Diverged
from .machine.tensor import Tensor
from .machine.values import TileValues
from .trace.trace import Trace


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

    def _sum(self, what: str) -> int:
        return sum(n * getattr(self.trace.kinds[k], what)
                   for k, n in self.trace.counts().items())

    @property
    def may_meet(self) -> bool:
        """Tell whether run-time indices choose what iterations write, which may be the same."""
        return may_meet(self.machine)

    @property
    def instructions(self) -> Counter:
        """Return the number of instructions by name."""
        out: Counter = Counter()
        for k, n in self.trace.counts().items():
            out[self.trace.kinds[k].row.name] += n
        return out

    @property
    def dma_transfers(self) -> int:
        """Return the number of DMA transfers (dma_transfer_count of a profile)."""
        return sum(n for k, n in self.trace.counts().items()
                   if self.trace.kinds[k].engine == "dma")

    @property
    def hbm_read_bytes(self) -> int:
        return self._sum("read_bytes")

    @property
    def hbm_write_bytes(self) -> int:
        return self._sum("write_bytes")


class Kernel:
    """A function decorated with `@nki.jit`: callable with arrays, and inside other kernels."""

    __name__: str                           # of the function
    dialect = "beta1"
    default_target: str | None = None
    together = False                        # the instances of the grid are cores that run at once
    inputs_mutable = False                  # a kernel may write into any of its arguments

    def __init__(self, func: Callable, mode: str = "auto", target: str | None = None,
                 options: tuple[str, ...] = (), grid: tuple[int, ...] = ()):
        functools.update_wrapper(self, func)
        del self.__dict__["__wrapped__"]    # a kernel is no plain function: tools must not unwrap
        try:
            self.__signature__ = inspect.signature(func)
        except (TypeError, ValueError):     # builtins have none
            pass
        self.func = func
        self.mode, self.target = mode, target
        self.nki_options = (*getattr(func, "nki_options", ()), *options)
        self.grid = grid

    def __getitem__(self, grid: Any) -> Kernel:
        """Return the kernel launched over a grid: kernel[4, 2](x)."""
        k = copy.copy(self)
        try:
            k.grid = grid_sizes(grid)
        except NkiError as exc:
            raise trim(exc)             # noqa: B904 (the same exception)
        return k

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        m = current.get()
        if m is None:
            return tell(launch(self, args, kwargs)).outputs
        if self.grid:
            raise fail("NKI-K02", "a kernel is launched over a grid from inside a kernel",
                       given=f"{self.__name__}[{', '.join(map(str, self.grid))}]",
                       limit="only the outermost kernel has a grid",
                       hint="call it without the grid, in a loop")
        m.flush()
        m.depth += 1
        try:
            return self.func(*args, **kwargs)
        finally:
            m.depth -= 1

    def core(self, target: str | None) -> hw.NeuronCore:
        """Return what is simulated: as asked, as the environment says, or the dialect's default."""
        chosen = target or self.target
        if chosen is None and not os.environ.get(hw.TARGET_VARIABLE):
            chosen = self.default_target
        return hw.get(chosen)

    def enter(self, t: Tensor, name: str, shared: bool) -> Any:
        """Return an argument as kernels of the dialect hold it."""
        return t

    def enter_empty(self, m: Machine, array: np.ndarray, name: str) -> Any:
        """Return an argument without elements as kernels hold it, None if they cannot."""
        return None

    def leave(self, x: Any) -> Any:
        """Return what a kernel returns as the machine's tensor."""
        return x

    def launched(self) -> Kernel:
        """Return the kernel as the environment has it launched."""
        return self

    def ended(self, m: Machine) -> None:
        """Do what is to be done once all instructions are recorded."""

    def __repr__(self) -> str:
        return f"<nki kernel {getattr(self, '__name__', '?')}>"


#: tell for a plain function whether it is of a dialect, and make it a kernel of that
DIALECTS: list[Callable[[Callable], Kernel | None]] = []


def as_kernel(func: Any, what: str = "a kernel") -> Kernel:
    """Return a kernel for a decorated or plain function, or raise; of a launcher, its kernel."""
    inner = getattr(func, "kernel", None)       # nki.benchmark of what nki.benchmark decorates
    func = inner if isinstance(inner, Kernel) else func
    if isinstance(func, Kernel):
        return func
    if not callable(func):
        raise trim(fail("NKI-K03", f"{what} is not a function", given=f"{type(func).__name__}",
                        limit="a function, plain or decorated with @nki.jit"))
    return next(filter(None, (known(func) for known in DIALECTS)), None) or Kernel(func)


def _bind(kernel: Kernel, args: tuple, kwargs: dict) -> list[str]:
    """Return the names of the positional arguments, or raise for a call that does not fit."""
    try:
        sig = inspect.signature(kernel.func)
        sig.bind(*args, **kwargs)
    except TypeError as exc:
        plain = sig.replace(return_annotation=sig.empty, parameters=[
            p.replace(annotation=sig.empty) for p in sig.parameters.values()])
        raise fail("NKI-K04", f"kernel {kernel.__name__} was not called as it is defined: {exc}",
                   limit=f"{kernel.__name__}{plain}",
                   given=f"{kernel.__name__}({', '.join(_as_called(args, kwargs))})",
                   where=find_where()) from None
    names = [p.name for p in sig.parameters.values()]
    return names + [names[-1] if names else "args"] * len(args)


def _as_called(args: tuple, kwargs: dict) -> Iterator[str]:
    """Say what a call hands over: arrays by shape and dtype, other things by their type."""
    for name, value in (*(("", a) for a in args), *kwargs.items()):
        shape = getattr(value, "shape", None)
        what = type(value).__name__ if shape is None else \
            f"{getattr(value, 'dtype', '')}{list(shape)}"
        yield f"{name}={what}" if name else what


# -- launching -----------------------------------------------------------------------------------

def launch(kernel: Any, args: tuple, kwargs: dict, *, target: str | None = None,
           compute: bool = True, replays: bool = True,
           tile_values: TileValues | None = None) -> Run:
    """Run a kernel on the simulated NeuronCore and return what it produced.

    `compute=False` leaves out the arithmetic; then `replays` lets loops that repeat themselves be
    recorded without executing every iteration (replay.py), which changes nothing in the record. A
    kernel's own prints in such a loop come from the iterations that are executed. If a loop turns
    out not to go on as it began, the whole kernel runs again, and prints again. `tile_values` looks
    at what each instruction writes.
    Raises NkiError when a rule is broken; IndexError for a run-time index outside of a tensor.
    """
    try:
        with pages.busy():
            if replays and not compute:
                try:
                    return _launch(as_kernel(kernel), args, kwargs, target, compute, replays=True)
                except Diverged:                # only a run of all iterations can tell
                    pass
            return _launch(as_kernel(kernel), args, kwargs, target, compute,
                           tile_values=tile_values)
    except NeedsValues:                         # a loop whose bound the kernel computes
        run = launch(kernel, *copy.deepcopy((args, kwargs)), target=target)
        run.outputs = None
        return run
    except Exception as exc:
        uncaught.watch()
        raise in_user_code(exc)         # noqa: B904 (it is the same, or has its own context)


def _launch(kernel: Kernel, args: tuple, kwargs: dict, target: str | None, compute: bool,
            replays: bool = False, tile_values: TileValues | None = None) -> Run:
    kernel = kernel.launched()
    core, strictness = kernel.core(target), strict.requested()
    banner.announce(core.name)
    m = Machine(core, lower, compute=compute, replays=replays,
                in_order="skip_middle_end_transformations" in kernel.nki_options)
    m.kernel, m.dialect, m.older = kernel, kernel.dialect, level.older()
    m.traced = kernel.dialect == "nki" and level.traced()
    m.scalars = m.traced and level.release() >= "0.7"
    m.watch, m.checks = tile_values, strictness != strict.OFF
    names = _bind(kernel, args, kwargs)
    if m.checks:
        m.findings += level.of_kernel(kernel.func, kernel.dialect)
    box = Arguments(m, kernel)
    tensors = [box.convert(a, n) for a, n in zip(args, names)]
    named = {k: box.convert(v, k) for k, v in kwargs.items()}
    token, spoken = current.set(m), DIALECT.set(kernel.dialect)
    try:
        with collector.paused(), np.errstate(all="ignore"), dtypes.precision(), \
                beside(compute) as m.products.flying:
            result = plainrange.known_to(kernel.func)(_run_instances)(m, kernel, tensors, named)
            m.replays.finish()
            kernel.ended(m)
            m.products.start()
            error, said, unread = _looked_through(m, kernel, box)   # while products are computed
            m.catch_up()        # nothing has read them: a kernel may return PSUM itself
            m.findings += said
    except Exception as exc:
        if not m.replays.trusts(exc):
            raise Diverged from exc
        _until_it_broke(m, exc)
        told = no_tensor(exc, kernel, [*zip(names, tensors), *named.items()])
        if told is not None:
            raise told.with_traceback(exc.__traceback__) from None
        raise
    finally:
        m.products.land()
        current.reset(token)
        DIALECT.reset(spoken)
    if error is not None:
        _until_it_broke(m, error)
        raise error
    spoken = DIALECT.set(kernel.dialect)
    try:
        handed = None
        if compute or result is not None and not any(k.write_bytes for k in m.trace.kinds):
            handed = outputs(m, kernel, box, result)    # of nothing, no time is predicted either
    finally:
        DIALECT.reset(spoken)
    if all(f.severity == "note" for f in m.findings):
        m.findings += unread
    findings = kept(m.findings) if m.checks else []
    if strictness == strict.STRICT and (error := strict.as_error(findings)) is not None:
        _until_it_broke(m, error)
        raise error
    _let_go(m)
    run = Run(handed, findings, m.trace, core.name, m)
    if _watchers:
        _watchers[-1].append(run.findings)
    return run


def _looked_through(m: Machine, kernel: Kernel, box: Arguments
                    ) -> tuple[NkiError | None, list[Finding], list[Finding]]:
    """Return the error and the findings of the passes over the record, and of those what is of
    interest where nothing worse is found."""
    if not m.checks:
        return None, [], []
    inputs = [(name, t) for name, _, t, _ in box.inputs]
    look = clean.look_of(m, (t for _, t in inputs)) if not m.findings and m.cores is None else None
    if look is not None and clean.is_clean(look):
        return None, [], []
    before, error = len(m.findings), None
    if m.cores is None:
        error = check_loops(m)
    else:
        _races(m)
    unread = []
    if m.compute:                       # a profile counts what does not fit as it schedules
        check_capacity(m)
        check_placed(m)
        if m.dialect == "beta1":        # the package nki says it as it is issued
            check_sums(m)
        if error is None and all(f.severity == "note" for f in m.findings):
            unread = unread_inputs(m.trace, inputs, place_of(kernel))
    said = m.findings[before:]
    del m.findings[before:]
    if look is not None and error is None and not said and not unread:
        clean.remember(look)
    return error, said, unread


def _let_go(m: Machine) -> None:
    """Keep the record of a launch, and nothing of what only its kernel needs: the next one uses
    that memory, without a garbage collector that would have to find it."""
    m.products = Products()
    del m.undefined                     # which knows the machine
    for used in (m.again, m.accepted, m.constants, m.arenas, m.shared, m.sites):
        used.clear()


def _races(m: Machine) -> None:
    """Report what two cores do to the same bytes of HBM without waiting for each other."""
    kinds = m.trace.loop_kind
    kinds[:] = ["grid" if kind == "cores" else kind for kind in kinds]
    error = check_loops(m, between_waits(m.trace, m.cores.nodes))
    if error is not None:
        m.findings.append(Finding(error.id, "warning", f"{error.what}. {error.hint}", error.where,
                                  None))


def _until_it_broke(m: Machine, error: Exception) -> None:
    """Give the findings of a run that an error has ended to whoever watches.

    What was found in the line of the error the error says itself.
    """
    where = getattr(getattr(error, "nki_error", error), "where", None)
    if _watchers and (found := [f for f in m.findings if where is None or f.where != where]):
        _watchers[-1].append(kept(found))


_told: set[tuple] = set()
_watchers: list[list[list[Finding]]] = []


@contextmanager
def watched() -> Iterator[list[list[Finding]]]:
    """Collect the findings of each kernel run in this block, instead of printing them."""
    runs: list[list[Finding]] = []
    _watchers.append(runs)
    try:
        yield runs
    finally:
        _watchers.remove(runs)


def tell(run: Run) -> Run:
    """Print a run's errors and warnings to stderr, once a process for each place, whatever the
    shapes; NKI_FINDINGS=0 silences.

    Scripts that call kernels directly would otherwise never see them; `nkisim.run` returns them.
    """
    if _watchers or os.environ.get("NKI_FINDINGS") == "0" or sys.stderr is None:
        return run
    for finding in run.findings:
        if finding.severity != "note" and finding.key not in _told:
            _told.add(finding.key)
            print(str(finding), file=sys.stderr, flush=True)
    return run


def _run_instances(m: Machine, kernel: Kernel, args: list, kwargs: dict) -> Any:
    """Call the kernel once, or once for each instance of its grid."""
    m.depth = 1
    if not kernel.grid:
        result = kernel.func(*args, **kwargs)
        m.flush()
        return result
    m.grid = kernel.grid
    if kernel.together:
        m.cores = Cores(m, kernel.grid[0])
        return m.cores.run(lambda: kernel.func(*args, **kwargs))
    result = None
    ids = list(np.ndindex(*kernel.grid))
    for i in m.loop("grid", range(len(ids))):
        m.program_id, m.shared_at, m.top = ids[i], 0, m.node
        result = kernel.func(*args, **kwargs)
        m.flush()
    return result
