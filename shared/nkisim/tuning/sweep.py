"""Predict every candidate, timing only, on as many cores as there are."""

from __future__ import annotations

import copy
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import NkiError, fail
from ..simulation.prediction import profile
from .space import Candidate, applied

#: candidates below which starting processes takes longer than it saves
FEW = 4
#: processes at once, which Windows bounds (concurrent.futures says so)
MOST_JOBS = 61


@dataclass
class Prediction:
    """What became of a candidate: a prediction, or the reason why it is refused.

    Times in microseconds, `sbuf` in bytes per partition, `psum` in banks, `hbm` in bytes.
    """

    candidate: Any  # a Candidate; None on its way from another process
    us: float = float("nan")
    sbuf: int = 0
    psum: int = 0
    hbm: int = 0
    transfers: int = 0
    spilled: int = 0
    bound: str = ""
    model_error: str = ""
    error_pct: float | None = None  # of kernels like this one; None: unknown
    warnings: list[str] = field(default_factory=list)
    refused: str = ""  # in a line
    page: str = ""  # the whole error

    def same(self, other: Prediction) -> bool:
        """Return whether nothing that is predicted differs."""
        return (self.us, self.sbuf, self.psum, self.hbm, self.refused) == (
            other.us,
            other.sbuf,
            other.psum,
            other.hbm,
            other.refused,
        )


@dataclass
class Job:
    """What is tried, and with which arguments.

    `load` makes variants and candidates anew in another process: functions cannot be sent there.
    """

    variants: Sequence[Any]
    wanted: Sequence[Candidate]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    settings: dict[str, Any]  # target, descriptors, compiler
    load: Callable[[], tuple[Sequence[Any], Sequence[Candidate]]] | None = None

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of one run: kernels may write into theirs."""
        return copy.deepcopy((self.args, self.kwargs))


def refusal(error: Exception) -> tuple[str, str]:
    """Return why a candidate is not possible: in a line, and as a page."""
    rule = getattr(error, "nki_error", error)
    if isinstance(rule, NkiError):
        given = f" ({rule.given}; limit: {rule.limit})" if rule.given and rule.limit else ""
        return " ".join(f"{rule.id} {rule.what}{given}".split()), rule.render()
    text = " ".join(str(error).split())
    line = text if isinstance(error, AssertionError) and text else f"{type(error).__name__}: {text}"
    return line, line


def predict(job: Job, candidate: Candidate) -> Prediction:
    """Return the prediction of one candidate."""
    function = job.variants[candidate.variant]
    out = Prediction(candidate)
    args, kwargs = job.arguments()
    try:
        with applied(function, candidate) as named, silence():
            prof = profile(function, *args, compute=False, **job.settings, **{**kwargs, **named})
    except Exception as error:  # the kernel is the user's: it can fail in any way
        out.refused, out.page = refusal(error)
        return out
    out.us, out.bound = float(prof.latency_us), prof.bound
    out.model_error, out.error_pct = prof.model_error, prof.trust.pct
    out.sbuf, out.psum = prof.sbuf_peak_bytes, prof.psum_peak_banks
    out.hbm = int(prof.hbm_read_bytes + prof.hbm_write_bytes)
    out.transfers, out.spilled = int(prof.dma_transfer_count), int(prof.spill_bytes)
    out.warnings = sorted({f.id for f in prof.findings if f.severity != "note"})
    return out


@contextmanager
def silence() -> Iterator[None]:
    """Drop what a kernel prints: it would come once for each candidate."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        yield


def sweep(
    job: Job, jobs: int | None = None, progress: Callable[[int, int], None] | None = None
) -> list[Prediction]:
    """Return the predictions of all candidates, in their order.

    `jobs`: processes (default: one a core); `progress` is called with (done, of all).
    Raises NkiError (NKI-K17) if a process is killed.
    """
    total = len(job.wanted)
    jobs = min(jobs or os.cpu_count() or 1, total, MOST_JOBS)
    if jobs < 2 or total < FEW or (job.load is None and sys.platform != "linux"):
        return _collect((predict(job, c) for c in job.wanted), total, progress)
    global _job
    shipped = None
    if job.load is None:
        _job = job  # a forked process has it
    else:
        shipped = job.load, job.args, job.kwargs, job.settings
    pool = ProcessPoolExecutor(
        jobs, multiprocessing.get_context("spawn" if shipped else "fork"), _begin, (shipped,)
    )
    try:
        done = pool.map(_predict, range(total), chunksize=max(1, min(16, total // (8 * jobs))))
        out = _collect(done, total, progress)
    except BrokenProcessPool:
        raise fail(
            "NKI-K17",
            "a process that predicts candidates was ended from outside",
            given=f"{jobs} at a time",
            limit="as many as memory allows",
            hint="use fewer: --jobs 1, or jobs=1",
        ) from None
    finally:
        _job = None
        pool.shutdown(cancel_futures=True)
    return [replace(p, candidate=c) for p, c in zip(out, job.wanted)]


def _collect(
    done: Iterable[Prediction], total: int, progress: Callable[[int, int], None] | None
) -> list[Prediction]:
    out = []
    for prediction in done:
        out.append(prediction)
        if progress is not None:
            progress(len(out), total)
    return out


_job: Job | None = None


def _begin(shipped: tuple[Any, ...] | None) -> None:
    """Make a process of the pool ready."""
    global _job
    os.environ["NKI_FINDINGS"] = os.environ["NKI_BANNER"] = "0"  # said once, by the parent
    if shipped is not None:
        load, args, kwargs, settings = shipped
        with silence():
            variants, wanted = load()
        _job = Job(variants, wanted, args, kwargs, settings)


def _predict(i: int) -> Prediction:
    assert _job is not None
    return replace(predict(_job, _job.wanted[i]), candidate=None)  # it may hold functions
