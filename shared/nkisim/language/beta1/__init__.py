"""`neuronxcc.nki`: decorators and launchers, on the simulator."""

from __future__ import annotations

import logging
from typing import Any

from ...errors import trim
from ...machine.context import current
from ...machine.operand_errors import mixed
from ...machine.tensor import Tensor as tensor
from ...simulation.launch import Kernel, as_kernel, launch, report_findings
from . import compiler, isa, language, sdk, typing

__simulator__ = True

# Importing the SDK adds a level above CRITICAL, and course kernels use it to silence the compiler:
# logging.disable(logging.OFF)
if not hasattr(logging, "OFF"):
    logging.OFF = logging.CRITICAL + 10  # type: ignore[attr-defined]


def _own(func: Any, launcher: str) -> Kernel:
    """Return the kernel of a function; raise NKI-K20 for one of the package nki since 0.3."""
    kernel = as_kernel(func)
    if kernel.dialect.name == "nki" and not kernel.dialect.older:
        raise trim(
            mixed(
                f"neuronxcc.nki.{launcher} is given {kernel.__name__}, a kernel of import nki: "
                "on a chip its outputs were zeros",
                "nki.simulate(kernel)(*arrays), or kernel(*tensors) on the chip; "
                "nkisim.profile(kernel, *arrays) predicts its time",
            )
        )
    return kernel


def jit(func: Any = None, mode: str = "auto", **options: Any) -> Any:
    """Make a function a kernel; called with NumPy arrays it runs on the simulator.

    Options of the SDK are accepted; `platform_target` picks the generation, and
    `kernel_return=False` says what `nki.trace` does: outputs are parameters.
    """
    if func is None:
        return lambda f: jit(f, mode, **options)
    if options.get("kernel_return") is False:
        mode = "trace"
    inner = _own(func, "jit").func if isinstance(func, Kernel) else func
    kernel = Kernel(
        as_kernel(inner).func,
        mode,
        options.get("platform_target"),
        getattr(func, "nki_options", ()),
    )
    if mode == "benchmark":
        return sdk.Benchmark(kernel, options)
    return kernel


def trace(func: Any = None, **options: Any) -> Any:
    """Make a function a kernel of the old style: outputs are parameters that it writes."""
    if func is None:
        return lambda f: trace(f, **options)
    return jit(func, mode="trace")


def baremetal(kernel: Any = None, **options: Any) -> Any:
    """Run a kernel with NumPy arrays in and out; here on the simulator."""
    if kernel is None:
        return lambda k: baremetal(k, **options)
    return sdk.Baremetal(_own(kernel, "baremetal"), options)


def benchmark(kernel: Any = None, **options: Any) -> Any:
    """Measure a kernel: `.benchmark_result.nc_latency.get_latency_percentile(p)`, in us."""
    if kernel is None:
        return lambda k: benchmark(k, **options)
    return sdk.Benchmark(_own(kernel, "benchmark"), options)


def profile(func: Any = None, **options: Any) -> Any:
    """Capture a profile of a kernel into `working_directory`."""
    if func is None:
        return lambda k: profile(k, **options)
    return sdk.Profile(_own(func, "profile"), options)


def simulate_kernel(kernel: Any, *args: Any, **kwargs: Any) -> Any:
    """Run a kernel on the simulator and return its outputs.

    Inside a launch (a harness that benchmarks a function which simulates) the kernel becomes part
    of that launch, so that its instructions are counted and timed.
    """
    kernel = _own(kernel, "simulate_kernel")
    if current.get() is not None:
        return kernel(*args, **kwargs)
    return report_findings(launch(kernel, args, kwargs)).outputs


def __getattr__(name: str) -> Any:
    """Say that a name of the SDK is not modelled, or that it does not exist."""
    from .missing import missing

    raise missing("nki", name, globals())


_ = compiler, isa, language, typing, tensor  # submodules are attributes of nki
__all__ = [
    "baremetal",
    "benchmark",
    "compiler",
    "isa",
    "jit",
    "language",
    "profile",
    "simulate_kernel",
    "tensor",
    "trace",
    "typing",
]
