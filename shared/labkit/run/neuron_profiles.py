"""From NEFF and NTFF to files that can be read at home: the events as JSON, and the summary."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .neuron_tools import NeuronError, Profiler, call, profiler

RUNS = 5  # captures of a NEFF where nothing else measures it
TABLES = ("Instruction", "DmaPacketAggregated", "Summary")


def capture(neff: Path, ntff: Path, execution: int = 2) -> Path:
    """Run a NEFF and record its execution; return the trace's path.

    Documented: --profile-nth-exec=N records the N-th execution (the first is warming up) and puts
    _exec_N into the name.
    """
    call(
        profiler().name,
        "capture",
        "-n",
        str(neff),
        "-s",
        str(ntff),
        f"--profile-nth-exec={execution}",
    )
    written = ntff.with_name(f"{ntff.stem}_exec_{execution}{ntff.suffix}")
    if written.exists():
        os.replace(written, ntff)
    if not ntff.exists():
        raise NeuronError(f"{profiler().name} capture ended and there is no {ntff.name}")
    return ntff


def summary(neff: Path, ntff: Path) -> dict[str, Any]:
    """Return the metrics of a trace by AWS's names: times in seconds."""
    text = call(
        profiler().name, "view", "-n", str(neff), "-s", str(ntff), "--output-format", "summary-json"
    )
    start = min((text.find(c) for c in "{[" if c in text), default=-1)
    try:
        metrics = json.loads(text[start:])
    except ValueError:
        raise NeuronError(f"{profiler().name} did not print a summary as JSON") from None
    return flat(metrics)


def flat(found: Any) -> dict[str, Any]:
    """Return the metrics of a summary-json; they may lie below the name of a NEFF or in a list."""
    while isinstance(found, (list, dict)) and not (
        isinstance(found, dict) and "total_time" in found
    ):
        inner = list(found.values()) if isinstance(found, dict) else found
        found = next((value for value in inner if isinstance(value, (list, dict))), None)
    if not isinstance(found, dict):
        raise NeuronError("the summary of the profiler has no total_time")
    return found


def events(neff: Path, ntff: Path, out: Path) -> Path:
    """Write the events of a trace as JSON for `python -m nkisim view --measured`.

    neuron-profile writes them itself. Neuron Explorer's JSON ends after SDK 2.33, so its Parquet
    tables are read, which are its default output (needs pyarrow).
    """
    tool = profiler()
    if tool.name == "neuron-profile":
        call(
            tool.name,
            "view",
            "-n",
            str(neff),
            "-s",
            str(ntff),
            "--output-format",
            "json",
            "--output-file",
            str(out),
        )
    else:
        with tempfile.TemporaryDirectory(prefix="labkit-neuron-") as folder:
            call(
                tool.name,
                "view",
                "-n",
                str(neff),
                "-s",
                str(ntff),
                "--output-format",
                "parquet",
                "--output-file",
                folder,
            )
            out.write_text(json.dumps(tables(Path(folder))), encoding="utf-8")
    if not out.exists():
        raise NeuronError(f"{tool.name} view ended and wrote no {out.name}")
    return out


def tables(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the tables of Neuron Explorer that we read, rows as dictionaries.

    A large table is split into several files; the table is what the file's name begins with.
    """
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise NeuronError(
            "Neuron Explorer writes Parquet, for which pyarrow is needed: run  "
            "python -m pip install pyarrow"
        ) from None
    tables_of: dict[str, list[dict[str, Any]]] = {}
    for name in TABLES:
        rows: list[dict[str, Any]] = []
        for path in sorted(folder.rglob(f"{name}*.parquet")):
            if path.name.split(".")[0].rstrip("0123456789_-") == name:
                rows += parquet.read_table(path).to_pylist()
        if rows:
            tables_of[name] = rows
    if "Instruction" not in tables_of:
        raise NeuronError(f"there is no Instruction.parquet in {folder}")
    return tables_of


def bring(profile: str) -> list[str]:
    """Write readable files next to NAME.neff and NAME.ntff; return them, or why not."""
    neff, ntff = Path(f"{profile}.neff"), Path(f"{profile}.ntff")
    made = [str(neff), str(ntff)]
    for out, write in (
        (
            Path(f"{profile}.summary.json"),
            lambda path: path.write_text(
                json.dumps(summary(neff, ntff), indent=1), encoding="utf-8"
            ),
        ),
        (Path(f"{profile}.measured.json"), lambda path: events(neff, ntff, path)),
    ):
        try:
            write(out)
            made.append(str(out))
        except NeuronError as error:
            made.append(f"{out.name} was not written: {error}")
    return made


# ---- SDKs without nki.benchmark


@contextlib.contextmanager
def keeping_neffs() -> Iterator[Path]:
    """Let the compiler save the NEFF into a folder of ours: NEURON_FRAMEWORK_DEBUG (documented)."""
    before, place = os.environ.get("NEURON_FRAMEWORK_DEBUG"), os.getcwd()
    with tempfile.TemporaryDirectory(prefix="labkit-neff-") as folder:
        os.environ["NEURON_FRAMEWORK_DEBUG"] = "1"
        os.chdir(folder)
        try:
            yield Path(folder)
        finally:
            os.chdir(place)
            if before is None:
                del os.environ["NEURON_FRAMEWORK_DEBUG"]
            else:
                os.environ["NEURON_FRAMEWORK_DEBUG"] = before


def measure(
    run: Callable[[], Any], profile: str = "", runs: int = RUNS
) -> tuple[Any, dict[str, float] | None, str]:
    """Run something that compiles a kernel, and measure its NEFF on the device.

    For SDKs whose `nki` has no benchmark. Returns what `run` returned, the latency in us (each
    capture is an execution after a warm-up; total_time is what the device took), and where it could
    not be measured None and why.
    """
    with keeping_neffs() as folder:
        outputs = run()
        try:
            return outputs, _measure(folder, profile, runs), ""
        except NeuronError as error:
            return outputs, None, str(error)


def _measure(folder: Path, profile: str, runs: int) -> dict[str, float]:
    neffs = sorted(folder.rglob("*.neff"), key=lambda p: p.stat().st_mtime)
    if not neffs:
        raise NeuronError(
            "the compiler saved no NEFF, so the kernel cannot be measured "
            "(NEURON_FRAMEWORK_DEBUG=1 was set)"
        )
    neff, times = neffs[-1], []
    for number in range(runs):
        ntff = capture(neff, folder / f"run{number}.ntff")
        times.append(float(summary(neff, ntff)["total_time"]) * 1e6)
    if profile:
        shutil.move(str(neff), f"{profile}.neff")
        shutil.move(str(ntff), f"{profile}.ntff")
        bring(profile)
    return percentiles(times)


def percentiles(us: list[float]) -> dict[str, float]:
    """Return p50, p99, mean, min, max and the standard deviation of times in us.

    Few times have no 99th percentile of their own: the largest stands for it.
    """
    ordered = sorted(us)

    def at(p: float) -> float:
        return ordered[min(len(ordered) - 1, round(p * (len(ordered) - 1) + 0.49))]

    return {
        "p50": statistics.median(ordered),
        "p99": at(0.99),
        "mean": statistics.fmean(ordered),
        "min": ordered[0],
        "max": ordered[-1],
        "std": statistics.stdev(ordered) if len(ordered) > 1 else 0.0,
    }


def open_page(neff: Path, ntff: Path, host: str, tool: Profiler | None = None) -> list[str]:
    """Return the lines to tell and the command to start for the tool's own page."""
    tool = tool or profiler()
    words = [tool.name, "view", "-n", str(neff), "-s", str(ntff)]
    return [
        f"at home, in another terminal:  {tool.tunnel(host)}",
        f"then open http://localhost:{tool.ports[0]} in the browser",
        " ".join(words),
    ]
