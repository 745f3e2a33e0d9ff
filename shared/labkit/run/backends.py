"""Run one kernel on one backend: the simulator, the SDK's own simulator, or the chip.

This module runs in the child process, with the student's code.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import numpy as np

from ..dialect import PACKAGE
from .refused import as_dict

BACKENDS = ("sim", "sdk-sim", "hw")
#: What NKI_BACKEND must be in the process that runs a backend.
PROVIDER = {"sim": "sim", "sdk-sim": "sdk", "hw": "sdk"}
WARMUP, ITERATIONS = 5, 20
#: What is kept of the SDK's benchmark, and its percentile.
PERCENTILES = {"p50": 50, "p99": 99, "min": 0, "p10": 10, "p90": 90, "max": 100}


class BackendError(Exception):
    """The backend cannot be used on this machine; the text is a sentence for the user."""


@dataclass
class Ran:
    """What came out of a run; `latency`: microseconds by percentile ("p50", "p99").

    `latency_kind` is "measured" (on the chip) or "predicted" (by the simulator's model).
    """

    outputs: Any
    stats: dict[str, Any] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)
    latency: dict[str, float] | None = None
    latency_kind: str | None = None
    shuffled: Any = None  # the outputs with iterations in another order, where it may matter


#: findings of the simulator about iterations that are not independent of each other
ORDER = ("NKI-L02", "NKI-L05")
SHUFFLE = "NKISIM_SHUFFLE"


def in_another_order(run: Any, again: Callable[[], Any]) -> Any:
    """Return what `again()` gives with iterations shuffled and DMAs as late as nothing orders
    them; None where that cannot matter to the `run` of nkisim that it repeats.

    It can where iterations meet in some byte, which is what the findings of `ORDER` say, and no
    comment has turned off; the simulator finds all of them, but for those that run-time indices
    choose. A run that ends in an error returns its text.
    """
    if SHUFFLE in os.environ or not (
        run.may_meet or any(f.id in ORDER and f.severity == "warning" for f in run.findings)
    ):
        return None
    os.environ[SHUFFLE] = "1"
    try:
        return again()
    except Exception as error:
        return str(error)
    finally:
        del os.environ[SHUFFLE]


def copies(args: Sequence[Any]) -> list[Any]:
    """Return copies of arrays: a kernel may write into its arguments, and it runs again."""
    return [np.copy(a) if isinstance(a, np.ndarray) else a for a in args]


def run_kernel(
    backend: str,
    kernel: Callable[..., Any],
    args: Sequence[np.ndarray],
    kwargs: Mapping[str, Any],
    target: str,
    *,
    dialect: str = "beta1",
    hw_options: Mapping[str, Any] = {},
    measure: bool = False,
    profile: str = "",
    limit_us: float | None = None,
    one_core: bool = True,
    case: str = "",
) -> Ran:
    """Run `kernel` and return its outputs and what is known about the run.

    If it takes longer than `limit_us`, the simulator says why (stats: "advice"). `one_core`: it is
    refused if it asks for two, as those of labs are. `case`: what a page calls the run. The package
    `nki` has nothing that measures: on the chip its NEFF is profiled, and where that fails the
    latency is None (stats: "not_measured").
    """
    if backend == "sim":
        if one_core:
            check_cores(kernel)
        return _simulate(kernel, args, kwargs, target, measure, profile, limit_us, case)
    nki = _sdk(backend, dialect)
    if backend == "sdk-sim":
        if dialect == "nki":
            return Ran(nki.simulate(kernel)(*args, **kwargs))
        return Ran(nki.simulate_kernel(kernel, *args, **kwargs))
    on_chip = kernel if dialect == "nki" else nki.baremetal(kernel, **hw_options)
    latency, stats = None, {}
    try:
        if dialect == "nki" and (measure or profile):
            from .neuron_profiles import measure as by_neff

            outputs, latency, why = by_neff(lambda: on_chip(*args, **kwargs), profile)
            stats = {"not_measured": why} if why else {}
        else:
            outputs = on_chip(*args, **kwargs)
    except Exception as error:
        if has_neuron_devices():
            raise
        raise BackendError(
            "--backend hw needs a Neuron device, and this machine has none "
            f"(/dev/neuron0 is missing): {error}"
        ) from error
    if dialect != "nki" and (measure or profile):
        latency = _measure(nki, kernel, args, kwargs, hw_options, profile)
    return Ran(outputs, stats, latency=latency, latency_kind="measured" if latency else None)


def one_core() -> None:
    """Let kernels of this process run on one core, for which the labs' counts and points are.

    A shell of a Neuron machine may say two for the programs of the SDK.
    """
    os.environ.pop("NEURON_LOGICAL_NC_CONFIG", None)


def check_cores(kernel: Any) -> None:
    """Raise ValueError for a kernel that says itself that two cores run it together."""
    if getattr(kernel, "together", False) and getattr(kernel, "grid", ()):
        raise ValueError(
            f"kernel{list(kernel.grid)} asks for {kernel.grid[0]} cores, and counts, "
            "times and points of the labs are for one: leave the brackets out"
        )


def prepare_process(backend: str, dialect: str = "beta1") -> None:
    """Make the dialect's import resolve to what the backend needs; before any kernel's import."""
    os.environ["NKI_BACKEND"] = PROVIDER[backend]
    if backend == "sim":
        one_core()
    import nkisim  # noqa: F401 (installs the import rule)

    if backend != "sim":
        _sdk(backend, dialect)


def _simulate(
    kernel: Callable[..., Any],
    args: Sequence[np.ndarray],
    kwargs: Mapping[str, Any],
    target: str,
    measure: bool,
    profile: str,
    limit_us: float | None = None,
    case: str = "",
) -> Ran:
    """Run on the simulator; with `measure`, predict the latency of this very run as well.

    `profile` names the files that picture it: NAME.html and NAME.pftrace.
    """
    import nkisim

    if measure or profile:
        # the page shows what tiles held
        values = {"tile_values": True} if profile else {}
        prediction = nkisim.profile(kernel, *copies(args), target=target, **{**values, **kwargs})
        prediction.case = case
        prediction.keep_dtypes = True  # the case says what they are
        run, transfers = prediction, prediction.dma_transfer_count
        # the model has no noise: every percentile is the same
        latency = {p: float(prediction.latency_us) for p in ("p50", "p99")}
    else:
        run = nkisim.run(kernel, *copies(args), target=target, **kwargs)
        transfers, latency = run.dma_transfers, None
    stats = {
        "instructions": {str(k): int(n) for k, n in run.instructions.items()},
        "dma_transfers": int(transfers),
        "hbm_read_bytes": int(run.hbm_read_bytes),
        "hbm_write_bytes": int(run.hbm_write_bytes),
    }
    if latency:
        stats["model_error"] = prediction.model_error
    if latency and (profile or (limit_us is not None and latency["p50"] > limit_us)):
        stats["advice"] = [str(a) for a in prediction.advice] or [prediction.verdict]
    if profile:
        page, trace = f"{profile}.html", f"{profile}.pftrace"
        stats["files"] = [page, trace]
        try:
            prediction.save_html(page)
            prediction.save_perfetto(trace)
        except OSError as error:
            why = f"cannot write {error.filename or profile}: {error.strerror or error}"
            raise BackendError(f"{why}; --profile names another place") from None
    findings = [as_dict(f) for f in run.findings]
    again = in_another_order(
        run, lambda: nkisim.run(kernel, *args, target=target, **kwargs).outputs
    )
    return Ran(run.outputs, stats, findings, latency, "predicted" if latency else None, again)


def _sdk(backend: str, dialect: str = "beta1") -> Any:
    """Return the SDK's package of a dialect; raise BackendError if it is absent or unusable."""
    package = PACKAGE[dialect]
    try:
        nki = import_module(package)
    except ImportError as error:
        if PathFinder.find_spec(package.split(".")[0]) is None:
            raise _no_sdk(backend, package) from None
        raise BackendError(
            f"--backend {backend} needs the AWS Neuron SDK, which is not usable "
            f"here: {error}\nWithout it, use --backend sim."
        ) from None
    if getattr(nki, "__simulator__", False):
        raise _no_sdk(backend, package)
    return nki


def _no_sdk(backend: str, package: str) -> BackendError:
    problem = (
        "a machine with Neuron devices and the AWS Neuron SDK"
        if backend == "hw"
        else "the AWS Neuron SDK"
    )
    return BackendError(
        f"--backend {backend} needs {problem}; this Python has no package {package} "
        "of it. --backend sim (the default) simulates."
    )


def has_neuron_devices() -> bool:
    """Return whether this machine has a Neuron device (the driver makes /dev/neuron0)."""
    return Path("/dev/neuron0").exists()


def _measure(
    nki: Any,
    kernel: Callable[..., Any],
    args: Sequence[np.ndarray],
    kwargs: Mapping[str, Any],
    hw_options: Mapping[str, Any],
    profile: str,
) -> dict[str, float]:
    """Time the kernel on the chip with the SDK's benchmark."""
    options: dict[str, Any] = dict(hw_options, warmup=WARMUP, iters=ITERATIONS)
    if profile:  # the SDK insists on this name while it captures a trace
        options.update(
            save_neff_name="file.neff",
            save_trace_name=f"{profile}.ntff",
            additional_compile_opt="--disable-dge",
        )
    bench = nki.benchmark(kernel, **options)
    bench(*args, **kwargs)
    if profile:
        os.replace("file.neff", f"{profile}.neff")
        from .neuron_profiles import bring

        bring(profile)
    latency = bench.benchmark_result.nc_latency
    return {name: float(latency.get_latency_percentile(p)) for name, p in PERCENTILES.items()}
