"""Predict a candidate, timing only."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from typing import Any

from ..errors import NkiError
from ..simulation.prediction import profile
from ..workers import TimeUp, limited
from .space import Candidate, applied

#: seconds that a candidate may take to be predicted, or to be run with values
SECONDS = 60.0


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

    `load` makes variants and candidates anew where a process cannot be forked: functions cannot be
    sent there. `seconds`: how long a candidate may take, None: as long as it does; `memory`: bytes
    that it may take, None: what the machine has.
    """

    variants: Sequence[Any]
    wanted: Sequence[Candidate]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    settings: dict[str, Any]  # target, descriptors, compiler
    load: Callable[[], tuple[Sequence[Any], Sequence[Candidate]]] | None = None
    seconds: float | None = SECONDS
    memory: int | None = None

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of one run: kernels may write into theirs."""
        return copy.deepcopy((self.args, self.kwargs))


#: how a candidate ends that does not return: it is the user's, and can fail in any way
ENDS = (Exception, SystemExit, GeneratorExit, TimeUp)


def refusal(error: BaseException) -> tuple[str, str]:
    """Return why a candidate is not possible: in a line, and as a page."""
    if isinstance(error, TimeUp):
        return str(error), str(error)
    if isinstance(error, SystemExit):
        text = f"it ends the program: sys.exit({'' if error.code is None else repr(error.code)})"
        return text, text
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
        with limited(job.seconds), applied(function, candidate) as named, silence():
            prof = profile(function, *args, compute=False, **job.settings, **{**kwargs, **named})
    except ENDS as error:
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
