"""`nkisim.tune`: predict all candidates, run the fastest, and say what the model can tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import fail
from ..simulation import order
from ..simulation.error_bands import UNKNOWN_BAND
from . import plot, space, verify
from .bench import Bench
from .space import Candidate, value_text
from .sweep import SECONDS, Job, Prediction
from .table import TIE, table
from .verify import Verdict

#: candidates that are run with arithmetic, unless the caller wants another number
BEST = 5


@dataclass
class Row:
    """A candidate: its prediction, whether nothing beats it, and what a run with arithmetic says.

    `number`: its place among the candidates; `alike`: the model cannot tell it from the fastest
    one; `verdict`: None if it was not run.
    """

    prediction: Prediction
    number: int = -1
    pareto: bool = False
    tied: bool = False
    verdict: Verdict | None = None

    @property
    def values(self) -> dict[str, Any]:
        """Return the values of the candidate by name."""
        return dict(self.prediction.candidate.values)

    def to_dict(self) -> dict[str, Any]:
        """Return the row, ready for JSON; times are predicted, in microseconds."""
        p = self.prediction
        return {
            "file": p.candidate.file,
            "kernel": p.candidate.name,
            "variant": p.candidate.variant,
            "values": {
                n: v if isinstance(v, (int, float, str, type(None))) else value_text(v)
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
                    "like_the_fastest": self.tied,
                    "defer": p.error_pct is None,
                }
            ),
            "was_run": self.verdict is not None,
            "right": self.verdict.right if self.verdict else None,
            "verdict": self.verdict.text if self.verdict else "not run",
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
    def fastest(self) -> Row | None:
        """Return the candidate that is predicted the fastest, run or not; None if all are refused.

        Broken kernels tend to be fast: `best` is one that was run.
        """
        return self.rows[0] if self.rows else None

    @property
    def best(self) -> Row | None:
        """Return the fastest candidate that was run and is right; None if there is none.

        Without a reference: that computes what the kernel computes as it is now.
        """
        return next((r for r in self.rows if r.verdict and r.verdict.right is not False), None)

    @property
    def tied(self) -> list[Row]:
        """Return the candidates that the model cannot tell from the fastest one."""
        return [r for r in self.rows[1:] if r.tied]

    @property
    def frugal(self) -> Row | None:
        """Return the one that moves least of the best candidate and those within TIE of it.

        Fewest bytes to and from HBM, then fewest transfers: what a model of the chip leaves out
        grows with both. It was run and is right; None if there is no best one.
        """
        row = self.moves_least(self.best)
        return row if row is None or row.verdict else self.best

    def moves_least(self, row: Row | None) -> Row | None:
        """Return what moves least of the candidates within TIE of one's time, run or not.

        Candidates that were run and are wrong do not count.
        """
        if row is None:
            return None
        near = [
            r
            for r in self.rows
            if r.prediction.us <= (1 + TIE) * row.prediction.us
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
    seconds: float | None = SECONDS,
    memory: int | None = None,
    **kwargs: Any,
) -> Tuning:
    """Predict a kernel with every combination of some values, and run the fastest ones.

    Args:
        kernel: a function, decorated or plain, `kernel[grid]`, or a list of such: variants.
        args, kwargs: what the kernel takes.
        choices: values to try, by name: of an argument of the kernel, or of a constant of its
            file, as in {"FREE_DIM": [500, 1000, 2000]}. A constant is set for the run only.
        target: "trn1", "trn2" ...; default: as for every kernel.
        reference: takes what the kernel takes and returns what it should; without it candidates
            are held against what the kernel computes as it is now.
        best: how many right ones are wanted: candidates are run with arithmetic, the fastest
            first, until so many are right.
        jobs: processes; default one a core. Other systems than Linux use one, this one.
        descriptors, compiler: as for `nkisim.profile`.
        progress: called with (candidates predicted, of all).
        seconds: how long a candidate may take, None: as long as it does. One that takes longer,
            or ends its process, is refused; the others go on.
        memory: bytes that a candidate may take (Linux).

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
        seconds=seconds,
        memory=memory,
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
    core = space.kernel_of(job.variants[0]).core(job.settings["target"])
    with Bench(job, jobs) as bench:
        *predictions, base = bench.predict(progress)
        rows = sorted(
            (Row(p, n) for n, p in enumerate(predictions) if not p.refused),
            key=lambda r: _axes(r.prediction),
        )
        _mark(rows)
        tuned = Tuning(rows, [p for p in predictions if p.refused], base, core.name, [])
        if best:
            _run_the_fastest(tuned, bench, reference, best)
    tuned.notes += _unused(predictions, names)
    tuned.notes += dict.fromkeys(n for f in job.variants for n in space.derived(f, names))
    return tuned


def _run_the_fastest(
    found: Tuning, bench: Bench, reference: Callable[..., Any] | None, best: int
) -> None:
    """Run candidates, the fastest first, until `best` of them are right; then the one that moves
    least of those that are as fast as the best."""
    judge = _Judge(bench, reference, found.base)
    right = 0
    while right < best and (rows := [r for r in found.rows if r.verdict is None][: best - right]):
        judge.run(rows)
        right = sum(r.verdict is not None and r.verdict.right is not False for r in found.rows)
    while (row := found.moves_least(found.best)) is not None and row.verdict is None:
        judge.run([row])


class _Judge:
    """Runs candidates and says whether they are right: as the reference says; without one, as the
    kernel computes it as it is now; if it does not, as the first that was run does."""

    def __init__(self, bench: Bench, reference: Callable[..., Any] | None, base: Prediction):
        self.bench, self.reference = bench, reference
        self.others: Any = None
        self.name = "the first that was run"
        if reference is None and not base.refused:
            (ran,) = bench.run([len(bench.job.wanted) - 1])
            if not ran.refused and not ran.errors:
                self.others, self.name = ran.outputs, "the kernel as it is"

    def run(self, rows: Sequence[Row]) -> None:
        """Give each row its verdict."""
        for row, ran in zip(rows, self.bench.run([r.number for r in rows])):
            right = None
            if self.reference is not None and not ran.refused:
                right = self._expected(row)
            row.verdict = verify.judge(ran, right, self.others, self.name)
            if self.reference is None and self.others is None and row.verdict.right is not False:
                self.others = ran.outputs

    def _expected(self, row: Row) -> Any:
        """Return what the reference makes of a candidate's arguments."""
        job, candidate = self.bench.job, row.prediction.candidate
        kernel_parameters = space.parameters(job.variants[candidate.variant])
        named = {n: v for n, v in candidate.values if n in kernel_parameters}
        assert self.reference is not None
        args, kwargs = job.arguments()
        return verify.expected(self.reference, args, kwargs | named)


def as_it_is(variants: Sequence[Any], wanted: Sequence[Candidate]) -> Candidate:
    """Return the first variant with the values that it has without tuning."""
    return Candidate(
        0, wanted[0].name, tuple((n, space.now(variants[0], n)) for n, _ in wanted[0].values)
    )


def _mark(rows: Sequence[Row]) -> None:
    """Say of each row whether nothing is better in all, and whether it is like the fastest."""
    for row in rows:
        axes = _axes(row.prediction)
        row.pareto = not any(
            theirs != axes and all(a <= b for a, b in zip(theirs, axes))
            for theirs in map(_axes, (r.prediction for r in rows))
        )
    if not rows:
        return
    fastest = rows[0].prediction
    for row in rows:
        p = row.prediction
        if fastest.error_pct is None or p.error_pct is None:
            row.tied = p.us <= fastest.us * (1 + UNKNOWN_BAND / 100)
        else:
            variants = fastest.candidate.variant == p.candidate.variant
            row.tied = not order.told_apart(p.us, fastest.us, variants)


def _axes(p: Prediction) -> tuple[float, int, int]:
    return p.us, p.sbuf, p.hbm


def _unused(predictions: Sequence[Prediction], names: Sequence[str]) -> list[str]:
    """Return a sentence for each name of several values that change nothing that is predicted."""
    out = []
    for name in names:
        groups: dict[tuple[Any, ...], list[Prediction]] = {}
        for p in predictions:
            key = (
                p.candidate.variant,
                *(value_text(v) for n, v in p.candidate.values if n != name),
            )
            groups.setdefault(key, []).append(p)
        several = [g for g in groups.values() if len(g) > 1]
        if several and all(p.same(g[0]) for g in several for p in g):
            out.append(
                f"{name} changes nothing: all of its values are predicted alike. Does the "
                "kernel use it?"
            )
    return out
