"""What the SDK's launchers return: callables with options, results and files.

The files that scripts expect to find (`file.neff` ...) are small placeholders that say what they
are: there is no compiled kernel in a simulation.
"""
from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

from .errors import fail
from .launch import Kernel, launch, tell

_PLACEHOLDER = "This is not a {what}: the kernel {name} ran on nkisim, which compiles nothing.\n"


class Wrapped:
    """A kernel with launcher options; keeps the kernel's name."""

    def __init__(self, kernel: Kernel, options: dict[str, Any]):
        functools.update_wrapper(self, kernel)
        self.kernel, self.options = kernel, options

    def __getitem__(self, grid: Any) -> Any:
        return type(self)(self.kernel[grid], self.options)

    def _write(self, option: str, what: str) -> None:
        """Write a placeholder where a script expects a file of the compiler or profiler."""
        name = self.options.get(option)
        if not name:
            return
        folder = self.options.get("working_directory") or "."
        path = Path(folder) / str(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_PLACEHOLDER.format(what=what, name=self.kernel.__name__))
        except OSError as exc:
            raise fail("NKI-K07", f"the file of {option} cannot be written", given=str(path),
                       limit=exc.strerror or str(exc)) from None


class Baremetal(Wrapped):
    """`nki.baremetal(kernel)`: runs with arrays in and out."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        out = tell(launch(self.kernel, args, kwargs)).outputs
        self._write("save_neff_name", "NEFF")
        self._write("save_trace_name", "NTFF")
        return out


class _Latency:
    """`nc_latency`: percentiles, in microseconds. NaN while there is no latency model."""

    def get_latency_percentile(self, percentile: int) -> float:
        """Return the latency percentile in microseconds: NaN, nothing is invented."""
        if percentile not in (0, 1, 10, 25, 50, 90, 99, 100):
            raise fail("NKI-K08", "this latency percentile is not recorded",
                       given=str(percentile), limit="0, 1, 10, 25, 50, 90, 99, 100")
        return float("nan")


class BenchmarkResult:
    """`kernel.benchmark_result` after a call."""

    def __init__(self) -> None:
        self.nc_latency = _Latency()


class Benchmark(Wrapped):
    """`nki.benchmark(kernel)`: traces the kernel; outputs are undefined, as on the SDK."""

    benchmark_result: BenchmarkResult | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        run = launch(self.kernel, args, kwargs, compute=False)
        self._write("save_neff_name", "NEFF")
        self._write("save_trace_name", "NTFF")
        self.benchmark_result = BenchmarkResult()
        counts = ", ".join(f"{n} {name}" for name, n in run.instructions.most_common())
        print(f"nkisim: no latency model yet, so {self.kernel.__name__} has no time on "
              f"{run.target} (latencies are nan). Counted: {counts}.", file=sys.stderr)


class Profile(Benchmark):
    """`nki.profile(...)`: like a benchmark, with its files in `working_directory`."""

    def __init__(self, kernel: Kernel, options: dict[str, Any]):
        super().__init__(kernel, {"save_neff_name": "file.neff",
                                  "save_trace_name": "profile.ntff", **options})
