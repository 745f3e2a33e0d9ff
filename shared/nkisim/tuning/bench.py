"""Where candidates are predicted and run: processes that each take the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from .. import workers
from ..workers import Lost, Workers
from .sweep import Job, Prediction, predict, silence
from .verify import Ran, compute

PREDICT, RUN = "predict", "run"


class Bench:
    """The candidates of a job, predicted and run apart from each other.

    One that loops, ends its process or takes too much memory is refused, with the reason; the
    others go on. Where functions can neither be forked nor loaded anew (a notebook on macOS or
    Windows), all run in this process, and one that ends it does.
    """

    def __init__(self, job: Job, jobs: int | None = None):
        self.job = job
        self._workers: Workers | None = None
        if workers.METHOD == "fork" or job.load is not None:
            args: tuple[Any, ...] = (job,)
            if workers.METHOD != "fork":
                args = (replace(job, variants=(), wanted=()),)
            self._workers = Workers(_begin, args, jobs=jobs, seconds=job.seconds, memory=job.memory)

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        if self._workers is not None:
            self._workers.close()

    def predict(self, progress: Callable[[int, int], None] | None = None) -> list[Prediction]:
        """Return the predictions of all candidates, in their order.

        `progress` is called with (done, of all).
        """
        out: list[Prediction] = []
        for answer in self._answers(PREDICT, range(len(self.job.wanted))):
            candidate = self.job.wanted[len(out)]
            if isinstance(answer, Lost):
                answer = Prediction(candidate, refused=answer.text, page=answer.text)
            out.append(replace(answer, candidate=candidate))
            if progress is not None:
                progress(len(out), len(self.job.wanted))
        return out

    def run(self, numbers: Sequence[int]) -> Iterator[Ran]:
        """Yield what a run with arithmetic of each of these candidates made."""
        for answer in self._answers(RUN, numbers):
            yield Ran(refused=answer.text) if isinstance(answer, Lost) else answer

    def _answers(self, what: str, numbers: Sequence[int]) -> Iterator[Any]:
        tasks = [(what, n) for n in numbers]
        return self._workers.map(tasks) if self._workers else map(partial(_answer, self.job), tasks)


def _begin(job: Job) -> Callable[[tuple[str, int]], Any]:
    """Return what answers in a process: the job as it was forked, or loaded anew."""
    if not job.variants:
        assert job.load is not None
        with silence():
            job.variants, job.wanted = job.load()
    return partial(_answer, job)


def _answer(job: Job, task: tuple[str, int]) -> Any:
    step, number = task
    candidate = job.wanted[number]
    if step == RUN:
        return compute(job, candidate)
    return replace(predict(job, candidate), candidate=None)  # it may hold functions
