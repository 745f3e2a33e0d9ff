"""Run jobs in child processes, a few at a time, each with a time limit and a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from .layouts import Job
from .outcome import FAILED, Finding, Result, findings_in

ROOT = Path(__file__).resolve().parents[2]
#: Memory of a child, in bytes: a kernel that runs away must not take the machine with it.
MEMORY = 12 << 30


@dataclass(frozen=True)
class Done:
    """A job and what came of it."""

    job: Job
    results: list[Result]
    findings: list[Finding]


class Pool:
    """Runs jobs, `workers` at a time; `program`: what Python runs, with the job and a place for
    its results."""

    program: tuple[str, ...] = ("-m", "conformance.child")

    def __init__(self, workers: int):
        self.workers = workers
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def run(self, jobs: Sequence[Job]) -> Iterator[Done]:
        """Yield jobs as they end. Whoever stops asking (Ctrl-C) stops those that run."""
        with ThreadPoolExecutor(self.workers) as threads:
            futures = [threads.submit(self.run_one, job) for job in jobs]
            try:
                for future in as_completed(futures):
                    yield future.result()
            finally:
                self._stopped = True
                threads.shutdown(wait=False, cancel_futures=True)
                for process in tuple(self._running):
                    process.kill()

    def run_one(self, job: Job) -> Done:
        """Run one job in a child process and read what it wrote."""
        with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
            here = Path(folder)
            plain = {**asdict(job), "checkout": str(job.checkout), "file": str(job.file)}
            (here / "job.json").write_text(json.dumps(plain), encoding="utf-8")
            out = here / "results.jsonl"
            (here / "work").mkdir()
            with open(here / "stderr.txt", "wb") as stderr:
                ended = self._wait(job, here, stderr)
            printed = (here / "stderr.txt").read_text(encoding="utf-8", errors="replace")
            return Done(job, _read(job, out, ended, printed), findings_in(printed))

    def _wait(self, job: Job, here: Path, stderr: IO[bytes]) -> str:
        """Run the child to its end, or to its time limit; return what was wrong with the end."""
        command = [
            sys.executable,
            *self.program,
            str(here / "job.json"),
            str(here / "results.jsonl"),
        ]
        process = subprocess.Popen(
            command,
            cwd=here / "work",
            env=_environment(job),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            preexec_fn=_limit if os.name == "posix" else None,
        )
        self._running.add(process)
        try:
            if self._stopped:
                process.kill()
            code = process.wait(job.seconds)
        except subprocess.TimeoutExpired:
            return f"not finished in {job.seconds} s"
        finally:
            process.kill()
            process.wait()
            self._running.discard(process)
        return "" if code == 0 else f"the process ended with {code}"


def _environment(job: Job) -> dict[str, str]:
    ours = [str(ROOT / "tools"), str(ROOT / "shared")]
    path = [*ours, *filter(None, [os.environ.get("PYTHONPATH")])]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {
        **os.environ,
        **threads,
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUTF8": "1",
        "NKI_BACKEND": "sim",
        "NKI_BANNER": "0",
        "NEURON_PLATFORM_TARGET_OVERRIDE": job.target,
        "COLUMNS": "200",
        "MPLBACKEND": "agg",
        "PYTHONBREAKPOINT": "0",
    }


def _limit() -> None:
    """Limit the child's memory (in the child, before it becomes Python)."""
    import resource

    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


def _read(job: Job, out: Path, ended: str, printed: str) -> list[Result]:
    """Return the results that the child wrote, and a failure for each it did not come to."""
    lines = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
    expected: list[str] = []
    results: dict[str, Result] = {}
    for line in lines:
        try:
            record = json.loads(line)
        except ValueError:  # cut off: the child was ended, or the disk was full
            ended = ended or "its results were cut off"
            continue
        if "expected" in record:
            expected += record["expected"]
        else:
            results[record["case"]] = Result(**record)
    missing = [name for name in expected if name not in results]
    if not lines or ended and not expected and not results:
        missing = [job.name]
        ended = ended or "no test in it"
    tail = printed.strip().splitlines()[-1:] if not lines else []
    for name in missing:
        results[name] = Result(name, FAILED, "; ".join([ended or "not run", *tail]))
    return list(results.values())
