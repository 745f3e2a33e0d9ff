"""What the SDK's launchers return: callables with options, results and files.

The files that scripts expect to find (`file.neff` ...) are small placeholders that say what they
are: there is no compiled kernel in a simulation.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from ...errors import fail
from ...machine.context import current
from ...simulation.launch import Kernel, launch, report_findings
from ...simulation.prediction import Profile as Prediction
from ...simulation.prediction import profile

PERCENTILES = (0, 1, 10, 25, 50, 90, 99, 100)
_PLACEHOLDER = "This is not a {what}: the kernel {name} ran on nkisim, which compiles nothing.\n"


class Wrapped:
    """A kernel with launcher options; keeps the kernel's name."""

    def __init__(self, kernel: Kernel, options: dict[str, Any]):
        functools.update_wrapper(self, kernel)  # type: ignore[arg-type]
        self.kernel, self.options = kernel, options

    def __getitem__(self, grid: Any) -> Any:
        return type(self)(self.kernel[grid], self.options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if current.get() is not None:  # in another kernel it is a part of that one
            return self.kernel(*args, **kwargs)
        return self.launch(args, kwargs)

    def launch(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Run the kernel as the launcher does."""
        raise NotImplementedError

    def _write(self, option: str, what: str, suffix: str = "") -> None:
        """Write a placeholder where a script expects a file of the compiler or profiler.

        `suffix` goes before the file's extension.
        """
        name = self.options.get(option)
        if not name:
            return
        if suffix:
            name = Path(str(name)).with_name(Path(str(name)).stem + suffix + Path(str(name)).suffix)
        folder = self.options.get("working_directory") or "."
        path = Path(folder) / str(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_PLACEHOLDER.format(what=what, name=self.kernel.__name__))
        except OSError as exc:
            raise fail(
                "NKI-K07",
                f"the file of {option} cannot be written",
                given=str(path),
                limit=exc.strerror or str(exc),
            ) from None


class Baremetal(Wrapped):
    """`nki.baremetal(kernel)`: runs with arrays in and out."""

    def launch(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        out = report_findings(launch(self.kernel, args, kwargs)).outputs
        self._write("save_neff_name", "NEFF")
        self._write("save_trace_name", "NTFF")
        return out


class _Latency:
    """`nc_latency`: percentiles of the predicted NeuronCore latency, in microseconds.

    The model is deterministic: every percentile is the same number.
    """

    def __init__(self, us: float):
        self.us = us

    def get_latency_percentile(self, percentile: int) -> float:
        """Return the predicted latency in microseconds."""
        if percentile not in PERCENTILES:
            raise fail(
                "NKI-K08",
                "this latency percentile is not recorded",
                given=str(percentile),
                limit=", ".join(map(str, PERCENTILES)),
            )
        return self.us


class BenchmarkResult:
    """`kernel.benchmark_result` after a call: predicted, never measured."""

    def __init__(self, profile: Prediction):
        self.profile = profile
        self.nc_latency = _Latency(profile.latency_us)
        self.predicted = True


class Benchmark(Wrapped):
    """`nki.benchmark(kernel)`: predicts the latency; outputs are undefined, as on the SDK."""

    benchmark_result: BenchmarkResult | None = None

    def launch(self, args: tuple, kwargs: dict[str, Any]) -> None:
        prof = profile(self, *args, compute=False, **kwargs)
        self._write("save_neff_name", "NEFF")
        self._write_traces(prof)
        self._write_perfetto(prof)
        self.benchmark_result = BenchmarkResult(prof)
        print(table(prof, str(self.options.get("save_neff_name") or "file.neff")))

    def _write_traces(self, prof: Prediction) -> None:
        self._write("save_trace_name", "NTFF")

    def _write_perfetto(self, prof: Prediction) -> None:
        """Write a trace for the Perfetto UI beside the profiler's file."""
        name = self.options.get("save_trace_name") or self.options.get("save_neff_name")
        if not name:
            return
        path = Path(self.options.get("working_directory") or ".") / str(name)
        try:
            prof.save_perfetto(path.with_suffix(".pftrace"))
        except (ImportError, ValueError):  # no viewer, or a kernel that executed nothing
            pass


_COLUMNS = (
    ("B", 3),
    ("NC", 4),
    ("NC USED", 9),
    ("WEIGHTS", 9),
    ("MODE", 9),
    ("INF/S", 10),
    ("IRES/S", 10),
    ("L(1)", 9),
    ("L(50)", 9),
    ("L(99)", 9),
    ("NCL(1)", 9),
    ("NCL(50)", 9),
    ("NCL(99)", 9),
    ("%USER", 7),
)


def table(prof: Prediction, neff: str) -> str:
    """Return the table that neuron-bench prints, with what it can and cannot know filled in.

    The time until the host has the result (L) is not modelled, and every percentile is the same.
    """
    us = f"{prof.latency_us:.0f}" if prof.latency_us >= 100 else f"{prof.latency_us:.1f}"
    rate = f"{1e6 / prof.latency_us:.2f}"
    row = ("1", "1", "1", "dynamic", "MODEL", rate, rate, "-", "-", "-", us, us, us, "N/A")
    note = "" if prof.hw.calibrated else "; the model of this target is not calibrated"
    return "\n".join(
        (
            f"{neff}: latency of {prof.kernel_name} *predicted by nkisim for {prof.hw.name}* "
            f"({prof.descriptors} descriptors); nothing was measured{note}",
            "".join(name.rjust(width) for name, width in _COLUMNS),
            "".join(value.rjust(width) for value, (_, width) in zip(row, _COLUMNS)),
            f"NCL in microseconds, all percentiles alike: the model is deterministic. Bound by: "
            f"{prof.bound}",
        )
    )


class Profile(Benchmark):
    """`nki.profile(...)`: like a benchmark, with its files in `working_directory`."""

    def __init__(self, kernel: Kernel, options: dict[str, Any]):
        super().__init__(
            kernel, {"save_neff_name": "file.neff", "save_trace_name": "profile.ntff", **options}
        )

    def _write_traces(self, prof: Prediction) -> None:
        """Write a placeholder and a report for each execution that `profile_nth` asks for."""
        super()._write_traces(prof)
        nth, last = (int(self.options.get(k, 1)) for k in ("profile_nth", "num_execs"))
        nth = max(nth, 1)
        reports = Path(self.options.get("working_directory") or ".") / "json_reports"
        for n in range(nth, max(nth, last) + 1, nth):
            if n > 1:
                self._write("save_trace_name", "NTFF", f"_exec_{n}")
            try:
                reports.mkdir(parents=True, exist_ok=True)
                prof.save_json(reports / f"report_{n}.json")
            except OSError as exc:
                raise fail(
                    "NKI-K07",
                    "a report of nki.profile cannot be written",
                    given=str(reports),
                    limit=exc.strerror or str(exc),
                ) from None
