"""Kernels of this dialect: `nki.jit`, `kernel[lnc]`, `nki.simulate`."""

from __future__ import annotations

import copy
import functools
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from ...chip import hw
from ...dialect import NKI, Dialect
from ...errors import NkiError, Where, fail, trim
from ...indexing.index import as_int
from ...lint import level
from ...machine import allocate
from ...machine.context import current
from ...machine.interface import Machine
from ...machine.tensor import Tensor
from ...simulation import launch as launching
from ...simulation.host_arrays import place_of
from . import jax_calls, refusals
from .compiler import Options
from .enums import MemoryRegion
from .grids import NkiGrid, instead
from .handles import edge, edge_error
from .tensor import Empty, NkiTensor
from .typing import Shape

LNC_VARIABLE = "NEURON_LOGICAL_NC_CONFIG"  # of AWS's: physical cores of a logical one


@cache
def _of_release(older: bool, traced: bool, scalars: bool) -> Dialect:
    return replace(NKI, older=older, traced=traced, scalars=scalars)


class Kernel(launching.Kernel):
    """A function decorated with `@nki.jit`."""

    inputs_mutable = True
    together = True
    schedule: tuple[tuple[str, tuple[str, ...]], ...] = ()  # edges between named calls,
    scheduled_at: Where | None = None  # and where they were given
    asked = Options()  # of the compiler
    lnc: int | None = None  # as kernel[lnc] says
    unlike = ""  # what is to be said of it: the environment says another one

    def __init__(self, func: Callable, *args: Any, **kwargs: Any):
        super().__init__(func, *args, **kwargs)
        self.__wrapped__ = self.func  # so that inspect.getsource(kernel) finds it

    @property
    def dialect(self) -> Dialect:  # type: ignore[override]
        """Return the dialect in the release that is asked about."""
        traced = level.traced()
        return _of_release(level.older(), traced, traced and level.release() >= "0.7")

    def __getitem__(self, lnc: Any) -> Kernel:
        """Return the kernel launched on 1 or 2 cores that run together: kernel[2](x)."""
        n = as_int(lnc)
        if n not in (1, 2):
            raise trim(
                fail(
                    "NKI-K06",
                    "a kernel is launched over a grid",
                    given=f"kernel[{lnc!r}]",
                    limit="kernel[1] or kernel[2]: the cores that run it together",
                    hint="the grids of neuronxcc.nki are loops in the kernel now",
                )
            )
        k = copy.copy(self)
        k.lnc, k.grid = n, () if n == 1 else (2,)
        return k

    def launched(self) -> Kernel:
        """Return the kernel on as many cores as NEURON_LOGICAL_NC_CONFIG says (since 0.7).

        kernel[n] with another number runs as it says, and that is said (NKI-K18): graphs are
        compiled for one of them, and there is no graph here. Raises it if NKI_LANGUAGE=strict.
        """
        given = os.environ.get(LNC_VARIABLE, "").strip()
        if not given or level.release() < "0.7":
            return self
        if given not in ("1", "2"):
            raise fail(
                "NKI-K18", f"{LNC_VARIABLE} is neither 1 nor 2", given=f"{LNC_VARIABLE}={given}"
            ).nowhere()
        if self.lnc in (None, int(given)):
            return self[int(given)]
        problem = (
            f"kernel {self.__name__} is configured with LNC={self.lnc}, but the graph with "
            f"LNC={given}"
        )
        remedy = f"leave [{self.lnc}] out, or set {LNC_VARIABLE}={self.lnc}"
        if level.requested()[0] == "strict":
            raise fail(
                "NKI-K18",
                problem,
                name="NCC_EVRF066",
                given=f"{LNC_VARIABLE}={given}",
                limit="one degree for all kernels of a graph",
                hint=remedy,
            )
        k = copy.copy(self)
        k.unlike = (
            f"{problem}: neuronx-cc refuses that (NCC_EVRF066). It runs on {self.lnc} here. "
            f"Try: {remedy}"
        )
        return k

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if current.get() is None and any(map(jax_calls.is_tracer, (*args, *kwargs.values()))):
            return jax_calls.call(super().__call__, args, kwargs)
        m = current.get()
        if m is not None and isinstance(m.launch.kernel, Kernel):
            self._inlined(m, m.launch.kernel)
        return super().__call__(*args, **kwargs)

    def _inlined(self, m: Machine, outer: Kernel) -> None:
        """Look at what a kernel that another one calls asks of the compiler."""
        option = self.asked.differs(outer.asked)
        if not option:
            return
        problem = (
            f"kernel {self.__name__} has another {option} than {outer.__name__}, which calls it"
        )
        if not outer.asked.overrides:
            raise fail(
                "NKI-N14",
                problem,
                limit="the configuration of the kernel that is launched",
                hint="SpecializationConfig(allow_nested_config_override=True) for "
                f"{outer.__name__} lets it pass",
            )
        m.find("NKI-N14", "warning", f"{problem}: that of {outer.__name__} is taken", m.here())

    def with_schedule(self, edges: Any) -> Kernel:
        """Return the kernel with edges (consumer, producer or producers) between named calls.

        A consumer begins when its producers are done, in the predicted time as well; results are
        those of the program. Raises NKI-N11 for what is no such pair, and when it runs for names
        that no instruction has.
        """
        k = copy.copy(self)
        try:
            k.schedule = tuple(
                (consumer, (producers,) if isinstance(producers, str) else tuple(producers))
                for consumer, producers in edges
            )
            names: list[Any] = [n for c, producers in k.schedule for n in (c, *producers)]
        except (TypeError, ValueError):
            names = [None]
        if not all(isinstance(n, str) for n in names):
            raise trim(
                edge_error(
                    "with_schedule takes pairs of names",
                    f"{edges!r}",
                    '[("consumer", "producer"), ("consumer", ["one", "two"])]',
                )
            )
        frame = sys._getframe(1)
        k.scheduled_at = Where(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        return k

    def ended(self, m: Machine) -> None:
        """Let consumers of the schedule wait for their producers, on each core."""
        refusals.chip(m)
        refusals.mixed(m)
        if self.unlike and level.requested()[0] != "off":
            m.find("NKI-K18", "warning", self.unlike)
        cores = m.launch.cores.nodes if m.launch.cores is not None else [0]
        for consumer, producers in self.schedule:
            for name in (consumer, *producers):
                if name not in m.trace.named:
                    raise fail(
                        "NKI-N11",
                        f"no instruction has the name {name!r}",
                        given=f"with_schedule: {consumer!r} after {', '.join(producers)}",
                        limit="names: " + (", ".join(sorted(m.trace.named)[:12]) or "none"),
                        where=self.scheduled_at,
                    )
            for inside in map(m.trace.below, cores):
                after = [i for i in m.trace.named[consumer] if inside[i]]
                before = [i for p in producers for i in m.trace.named[p] if inside[i]]
                for b in before:
                    for a in after:
                        edge(m, b, a)

    def enter(self, t: Tensor, name: str, shared: bool) -> NkiTensor:
        """Return an argument as the kernel sees it; `nt.tensor[...]` checks its shape."""
        try:  # `from __future__ import annotations` makes texts of them
            notes = inspect.get_annotations(self.func, eval_str=True)
        except Exception:  # a name that is there for type checkers only
            notes = inspect.get_annotations(self.func)
        if isinstance(note := notes.get(name), Shape):
            note.check(name, t.shape, place_of(self))
        region = (
            MemoryRegion.shared_hbm if shared or t.m.dialect.older else MemoryRegion.private_hbm
        )
        return NkiTensor(t, region, name)

    def enter_empty(self, m: Machine, array: np.ndarray, name: str) -> NkiTensor:
        """Return an argument without elements: a shape to ask for; any use of it is an error."""
        t = allocate.input_tensor(m, np.zeros(1, array.dtype), name, mutable=False)
        error = allocate.without_elements(name, array.shape)
        return NkiTensor(Empty(t, array.shape, error), name=name)  # type: ignore[arg-type]

    def leave(self, x: Any) -> Any:
        """Return what the kernel returns as the machine's tensor, or raise."""
        if isinstance(x, NkiGrid):
            raise instead(x, "what a kernel returns")
        if not isinstance(x, NkiTensor):
            return x
        if not isinstance(x._t, Tensor):
            raise fail(
                "NKI-O02",
                f"{self.__name__} returns a view with a run-time offset",
                limit="outputs are HBM tensors",
            )
        made = x._t.storage
        if x.buffer is MemoryRegion.private_hbm and made is not None and made.where >= 0:
            refusals.output(x._t.m, made.where)
        return x._t


def jit(
    fn: Any = None, *, compile_config: Any = None, specialization_config: Any = None, **kwargs: Any
) -> Any:
    """Make a function a kernel; called with arrays it runs on the simulator.

    On a machine with the SDK it is compiled and runs on the chip. `grid=[2]` is kernel[2].
    `platform_target`, an argument
    until 0.2, picks the generation; what is said of it is NKI-G37.

    Raises: NkiError for a generation that there is none of, and for any if NKI_LANGUAGE=strict.
    """
    if fn is None:
        return lambda f: jit(
            f, compile_config=compile_config, specialization_config=specialization_config, **kwargs
        )
    kernel = as_nki_kernel(fn)
    if compile_config is not None or specialization_config is not None:
        kernel = copy.copy(kernel)
        kernel.asked = Options(compile_config, specialization_config)
    grid = kwargs.get("grid")
    if grid is not None:
        kernel = kernel[grid[0] if isinstance(grid, (list, tuple)) and len(grid) == 1 else grid]
    target = kwargs.get("platform_target")
    if target is not None:
        try:
            level.in_run("jit_target", f"platform_target={target!r}")
            target = hw.get(target).name
        except NkiError as error:
            raise trim(error) from None
        kernel = copy.copy(kernel)
        kernel.target = target
    return kernel


def as_nki_kernel(fn: Any) -> Kernel:
    """Return a kernel of this dialect: of a plain function, a partial, or a kernel of the other."""
    if isinstance(fn, Kernel):
        return fn
    if isinstance(fn, functools.partial):
        k = copy.copy(as_nki_kernel(fn.func))
        k.func = functools.partial(k.func, *fn.args, **fn.keywords)
        return k
    return Kernel(getattr(fn, "func", fn))


def simulate(kernel: Any) -> Kernel:
    """Return a kernel that runs on the simulator with NumPy or torch arrays, as all do here.

    Arrays that the kernel writes into are changed in place, as on the chip. Cores are chosen before
    or after: simulate(kernel[2])(x), simulate(kernel)[2](x).
    """
    if not callable(kernel):
        raise trim(
            fail(
                "NKI-K03",
                "nki.simulate takes a kernel",
                given=type(kernel).__name__,
                limit="a function, plain or decorated with @nki.jit",
            )
        )
    return as_nki_kernel(kernel)


def cpu_simulate(kernel: Any) -> Kernel:
    """Return a kernel that is simulated: cpu_simulate(kernel)[2](x=..., y=...).

    The call of the simulation mode of AWS's kernel library; NKI_NC_VERSION names the generation.
    """
    k = copy.copy(jit(kernel))
    k.target = os.environ.get("NKI_NC_VERSION") or k.target
    return k


def of_function(func: Callable) -> Kernel | None:
    """Return a kernel for a plain function that uses this dialect, else None."""
    names = getattr(getattr(func, "__code__", None), "co_names", ())
    global_names = getattr(func, "__globals__", {})
    for name in names:
        module = getattr(global_names.get(name), "__name__", "") or ""
        if module.startswith(__package__):
            return Kernel(func)
    return None


launching.DIALECTS.append(of_function)
__all__ = ["Kernel", "NkiError", "jit", "simulate"]
