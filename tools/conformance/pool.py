"""Run jobs in child processes, a few at a time, each with a time limit and a folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nkisim.workers import Lost, Workers

from . import child
from .layouts import Job
from .outcome import FAILED, Finding, Result, findings_in

#: Memory of a child, in bytes: a kernel that runs away must not take the machine with it.
MEMORY = 12 << 30
#: what runs a job and writes its results to a file
Do = Callable[[dict[str, Any], Path], object]
_ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUTF8": "1",
    "NKI_BACKEND": "sim",
    "NKI_BANNER": "0",
    "COLUMNS": "200",
    "MPLBACKEND": "agg",
    "PYTHONBREAKPOINT": "0",
}


@dataclass(frozen=True)
class Done:
    """A job and what came of it."""

    job: Job
    results: list[Result]
    findings: list[Finding]


class Pool:
    """Runs jobs, `workers` at a time; `do` runs one in its process, with a place for its results.

    `do` is a function of a module that a new process can import.
    """

    def __init__(self, workers: int, do: Do = child.run):
        self.workers, self.do = workers, do

    def run(self, jobs: Sequence[Job]) -> Iterator[Done]:
        """Yield jobs as they end. Whoever stops asking (Ctrl-C) stops those that run."""
        with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
            tasks = [(job, Path(folder) / str(n)) for n, job in enumerate(jobs)]
            with Workers(
                _begin,
                (self.do,),
                jobs=self.workers,
                seconds=lambda task: task[0].seconds,
                memory=MEMORY,
                method="spawn",
                recycle=1,
                script=False,
                environment=_ENVIRONMENT,
            ) as workers:
                for number, answer in workers.as_completed(tasks):
                    job, here = tasks[number]
                    ended = answer.text if isinstance(answer, Lost) else ""
                    printed = here / "stderr.txt"
                    text = printed.read_text("utf-8", "replace") if printed.exists() else ""
                    results = _read(job, here / "results.jsonl", ended, text)
                    yield Done(job, results, findings_in(text))
                    shutil.rmtree(here, ignore_errors=True)


def _begin(do: Do) -> Callable[[tuple[Job, Path]], None]:
    def answer(task: tuple[Job, Path]) -> None:
        job, here = task
        (here / "work").mkdir(parents=True)
        os.chdir(here / "work")
        with open(here / "stderr.txt", "wb") as printed, open(os.devnull, "r+b") as nothing:
            for file, fd in ((nothing, 0), (nothing, 1), (printed, 2)):
                os.dup2(file.fileno(), fd)
        sys.stdout, sys.stderr = (
            open(fd, "w", 1, encoding="utf-8", closefd=False) for fd in (1, 2)
        )
        os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = job.target
        plain = {**asdict(job), "checkout": str(job.checkout), "file": str(job.file)}
        do(plain, here / "results.jsonl")

    return answer


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
