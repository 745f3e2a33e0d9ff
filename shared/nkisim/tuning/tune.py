"""`nkisim.tune`: predict all candidates, run the fastest, and say what the model can tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import fail
from ..simulation.error_bands import UNKNOWN_BAND
from . import plot, space
from .space import Candidate, shown
from .sweep import Job, Prediction, sweep
from .table import TIE, table
from .verify import Verdict, verify

#: candidates that are run with arithmetic, unless the caller wants another number
BEST = 5


@dataclass
class Row:
    """A candidate: its prediction, whether nothing beats it, and what a run with arithmetic says.

    `alike`: the model cannot tell it from the fastest one.
    """

    prediction: Prediction
    pareto: bool = False
    alike: bool = False
    verdict: Verdict | None = None

    @property
    def values(self) -> dict[str, Any]:
        """Return the values of the candidate by name."""
        return dict(self.prediction.candidate.values)

    def to_dict(self) -> dict[str, Any]:
        """Return the row, ready for JSON; times are predicted, in microseconds."""
        p = self.prediction
        return {
            "kernel": p.candidate.name,
            "values": {
                n: v if isinstance(v, (int, float, str, type(None))) else shown(v)
                for n, v in p.candidate.values
            },
            "refused": p.refused or None,
            **(
                {}
                if p.refused
                else {
                    "predicted_us": p.us,
                    "sbuf_peak_bytes": p.sbuf,
                    "psum_peak_banks": p.psum,
                    "hbm_bytes": p.hbm,
                    "dma_transfer_count": p.transfers,
                    "spill_bytes": p.spilled,
                    "bound": p.bound,
                    "model_error": p.model_error,
                    "model_error_pct": p.error_pct,
                    "warnings": p.warnings,
                    "pareto": self.pareto,
                    "like_the_fastest": self.alike,
                }
            ),
            **(
                {}
                if self.verdict is None
                else {"right": self.verdict.right, "verdict": self.verdict.text}
            ),
        }


class Tuning:
    """What a sweep found: `rows` (the possible ones, fastest first) and `refused` ones.

    Times are predictions of the latency model for `target`, never measured.
    """

    def __init__(
        self,
        rows: list[Row],
        refused: list[Prediction],
        base: Prediction,
        target: str,
        notes: list[str],
    ):
        self.rows, self.refused, self.base = rows, refused, base
        self.target, self.notes = target, notes

    @property
    def best(self) -> Row | None:
        """Return the fastest candidate that did not turn out to be wrong; None if there is none."""
        return next(
            (r for r in self.rows if r.verdict is None or r.verdict.right is not False), None
        )

    @property
    def alike(self) -> list[Row]:
        """Return the candidates that the model cannot tell from the fastest one."""
        return [r for r in self.rows[1:] if r.alike]

    @property
    def frugal(self) -> Row | None:
        """Return the one that moves least of the best candidate and those within TIE of it.

        Fewest bytes to and from HBM, then fewest transfers: what a model of the chip leaves out
        grows with both. None if there is no best one.
        """
        best = self.best
        if best is None:
            return None
        near = [
            r
            for r in self.rows
            if r.prediction.us <= (1 + TIE) * best.prediction.us
            and (r.verdict is None or r.verdict.right is not False)
        ]
        return min(near, key=lambda r: (r.prediction.hbm, r.prediction.transfers, r.prediction.us))

    @property
    def wrong(self) -> list[Row]:
        """Return the candidates that a run with arithmetic found wrong."""
        return [r for r in self.rows if r.verdict is not None and r.verdict.right is False]

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return {
            "target": self.target,
            "predicted": True,
            "notes": self.notes,
            "as_it_is_us": None if self.base.refused else self.base.us,
            "candidates": [r.to_dict() for r in self.rows]
            + [Row(p).to_dict() for p in self.refused],
        }

    def table(self, most: int = 20) -> str:
        """Return the result as text: the Pareto front and the fastest, at most `most` rows."""
        return table(self, most)

    def save_svg(self, path: str | Path) -> None:
        """Draw predicted time against SBUF; needs matplotlib (the extra `plot`)."""
        plot.save(self, path)

    def __repr__(self) -> str:
        return self.table()


def tune(
    kernel: Any,
    *args: Any,
    choices: Mapping[str, Iterable[Any]] | None = None,
    target: str | None = None,
    reference: Callable[..., Any] | None = None,
    best: int = BEST,
    jobs: int | None = None,
    descriptors: str | None = None,
    compiler: Iterable[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
    **kwargs: Any,
) -> Tuning:
    """Predict a kernel with every combination of some values, and run the fastest ones.

    Args:
        kernel: a function, decorated or plain, `kernel[grid]`, or a list of such: variants.
        args, kwargs: what the kernel takes.
        choices: values to try, by name: of an argument of the kernel, or of a constant of its
            file, as in {"FREE_DIM": [500, 1000, 2000]}. A constant is set for the run only.
        target: "trn1", "trn2" ...; default: as for every kernel.
        reference: takes what the kernel takes and returns what it should; without it the fastest
            candidates are held against each other.
        best: how many of the fastest candidates are run with arithmetic.
        jobs: processes; default one a core. Other systems than Linux use one.
        descriptors, compiler: as for `nkisim.profile`.
        progress: called with (candidates predicted, of all).

    Returns: a Tuning. A candidate that breaks a rule of the chip, or that the kernel itself
    refuses, is one of its `refused`.
    Raises: NkiError (NKI-K17) for a name that the kernel does not know and for values that are
    none; what the reference raises.
    """
    variants = list(kernel) if isinstance(kernel, (list, tuple)) else [kernel]
    wanted = space.candidates(variants, choices or {})
    if len(wanted) < 2 and not choices:
        raise fail(
            "NKI-K17",
            "there is nothing to choose between",
            given="one kernel, no values",
            limit="values of a constant or an argument, or several kernels",
            hint='choices={"FREE_DIM": [500, 1000]}; --set FREE_DIM=500,1000',
        )
    job = Job(
        variants,
        wanted,
        args,
        kwargs,
        {"target": target, "descriptors": descriptors, "compiler": compiler},
    )
    return run(job, reference, best, jobs, progress)


def run(
    job: Job,
    reference: Callable[..., Any] | None,
    best: int,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Tuning:
    """Do what `tune` does for a job."""
    names = list(dict(job.wanted[0].values))
    job.wanted = [*job.wanted, as_it_is(job.variants, job.wanted)]
    *predictions, base = sweep(job, jobs, progress)
    core = space.kernel_of(job.variants[0]).core(job.settings["target"])
    rows = sorted((Row(p) for p in predictions if not p.refused), key=lambda r: _axes(r.prediction))
    refused = [p for p in predictions if p.refused]
    _mark(rows)
    first = None
    for row in rows[:best]:
        row.verdict = verify(job, row.prediction.candidate, reference, first)
        if first is None and row.verdict.outputs is not None and row.verdict.right is not False:
            first = row.verdict
        elif row.verdict is not first:
            row.verdict.outputs = None  # they may be large
    if first is not None:
        first.outputs = None
    notes = _unused(predictions, names)
    notes += dict.fromkeys(n for f in job.variants for n in space.derived(f, names))
    return Tuning(rows, refused, base, core.name, notes)


def as_it_is(variants: Sequence[Any], wanted: Sequence[Candidate]) -> Candidate:
    """Return the first variant with the values that it has without tuning."""
    return Candidate(
        0, wanted[0].name, tuple((n, space.now(variants[0], n)) for n, _ in wanted[0].values)
    )


def _mark(rows: Sequence[Row]) -> None:
    """Say of each row whether nothing is better in all, and whether it is like the fastest."""
    for row in rows:
        mine = _axes(row.prediction)
        row.pareto = not any(
            theirs != mine and all(a <= b for a, b in zip(theirs, mine))
            for theirs in map(_axes, (r.prediction for r in rows))
        )
    if not rows:
        return
    fastest = rows[0].prediction
    for row in rows:
        error = max(
            UNKNOWN_BAND if p.error_pct is None else p.error_pct for p in (fastest, row.prediction)
        )
        row.alike = row.prediction.us <= fastest.us * (1 + error / 100)


def _axes(p: Prediction) -> tuple[float, int, int]:
    return p.us, p.sbuf, p.hbm


def _unused(predictions: Sequence[Prediction], names: Sequence[str]) -> list[str]:
    """Return a sentence for each name of several values that change nothing that is predicted."""
    out = []
    for name in names:
        groups: dict[tuple[Any, ...], list[Prediction]] = {}
        for p in predictions:
            key = (p.candidate.variant, *(shown(v) for n, v in p.candidate.values if n != name))
            groups.setdefault(key, []).append(p)
        several = [g for g in groups.values() if len(g) > 1]
        if several and all(p.same(g[0]) for g in several for p in g):
            out.append(
                f"{name} changes nothing: all of its values are predicted alike. Does the "
                "kernel use it?"
            )
    return out
