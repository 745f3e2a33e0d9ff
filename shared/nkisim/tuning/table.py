"""The result of a sweep as text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..simulation import order
from .space import value_text

if TYPE_CHECKING:
    from .sweep import Prediction
    from .tune import Row, Tuning

#: candidates whose predictions differ by less are as fast as each other for all anybody knows
TIE = 0.02
_NAMED = 6  # candidates that a sentence names


def table(tuning: Tuning, most: int) -> str:
    """Return headline, table, what is alike, what is refused, notes."""
    rows = tuning.rows
    lines = [_headline(tuning)]
    if rows:
        chosen = [r for k, r in enumerate(rows) if r.pareto or r.tied or r.verdict or k < most]
        left = chosen[most:]
        lines += ["", *_grid(tuning, chosen[:most])]
        hidden = len(rows) - len(chosen[:most])
        if hidden:
            front = sum(r.pareto for r in left)
            lines.append(
                f"  ... and {hidden} more"
                + (f", {front} of them on the front" if front else "")
                + " (--rows N, --json FILE)"
            )
        lines += [
            "",
            "* nothing is better in time, SBUF and HBM bytes at once (the Pareto front)",
            *(
                [
                    f"~ cannot tell: slower than the fastest by less than {order.text()}",
                    "  (where the error is unknown: by less than its time)",
                ]
                if tuning.tied
                else []
            ),
            "",
            *_advice(tuning),
        ]
    for text, names in reasons(tuning.refused):
        shown_names = "; ".join(names[:_NAMED]) + (
            f"; {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        )
        lines.append(f"refused ({len(names)}): {text}\n    {shown_names}")
    lines += [f"note: {text}" for text in tuning.notes]
    return "\n".join(lines)


def _headline(tuning: Tuning) -> str:
    total = len(tuning.rows) + len(tuning.refused)
    names = {p.candidate.name for p in (*(r.prediction for r in tuning.rows), *tuning.refused)}
    text = (
        f"{', '.join(sorted(names))}: {total} candidates, {len(tuning.refused)} refused; "
        f"predicted by nkisim for {tuning.target} - not measured"
    )
    if tuning.rows:
        text += f"\nerror of the model for the fastest: {tuning.rows[0].prediction.model_error}"
    return text


def _grid(tuning: Tuning, rows: list[Row]) -> list[str]:
    """Return the rows as aligned columns; a column for each name that varies."""
    names = list(rows[0].values)
    variants = len({r.prediction.candidate.name for r in tuning.rows}) > 1
    head = [
        "",
        *(["kernel"] if variants else []),
        *names,
        "predicted us",
        "error",
        "SBUF B/partition",
        "PSUM banks",
        "HBM bytes",
        "bound by",
        "with arithmetic",
    ]
    cells = [head]
    for row in rows:
        p = row.prediction
        mark = ("*" if row.pareto else " ") + (
            "~" if row.tied and row is not tuning.rows[0] else " "
        )
        verdict = (
            ", ".join(["not run", *p.warnings])
            if row.verdict is None
            else ", ".join([row.verdict.text, *row.verdict.warnings])
        )
        cells.append(
            [
                mark,
                *([p.candidate.name] if variants else []),
                *(value_text(v) for v in row.values.values()),
                f"{p.us:,.1f}",
                "?" if p.error_pct is None else f"±{p.error_pct:.0f} %",
                f"{p.sbuf:,}",
                str(p.psum),
                f"{p.hbm:,}",
                p.bound + (" (spills)" if p.spilled else ""),
                verdict,
            ]
        )
    widths = [max(len(line[c]) for line in cells) for c in range(len(head))]
    left = {0, len(head) - 1, len(head) - 2} | ({1} if variants else set())
    return [
        "  ".join(
            cell.ljust(w) if c in left else cell.rjust(w)
            for c, (cell, w) in enumerate(zip(line, widths))
        ).rstrip()
        for line in cells
    ]


def _advice(tuning: Tuning) -> list[str]:
    """Return what to take, against what is there now, and what is as good for all we know."""
    was_run = any(r.verdict for r in tuning.rows)
    best = tuning.best if was_run else tuning.fastest
    if best is None:
        return ["None of those that were run is right."]
    p = best.prediction
    several = len({r.prediction.candidate.name for r in tuning.rows}) > 1
    name = (
        f"{p.candidate.name} with {p.candidate}"
        if several and best.values
        else p.candidate.name
        if several
        else str(p.candidate)
    )
    text = (
        f"fastest{' that is right' if best is not tuning.rows[0] else ''}: {name}, "
        f"{p.us:,.1f} us predicted{'' if was_run else ', not run'}"
    )
    now = tuning.base
    if now.refused:
        text += f"; as it is ({now.candidate}) the kernel is refused"
    elif not now.same(p):
        text += f"; as it is ({now.candidate}): {now.us:,.1f} us, {now.us / p.us:.2f} times that"
    else:
        text += "; that is what it is now"
    lines = [text]
    tied = [r for r in tuning.tied if r is not best]
    if tied:
        small = min([best, *tied], key=lambda r: (r.prediction.sbuf, r.prediction.us))
        lines.append(
            f"{len(tied)} more that the model cannot order: only a measurement can "
            "tell them apart"
            + (
                f"; of these {small.prediction.candidate} takes least SBUF"
                if small is not best
                else ""
            )
        )
    frugal = tuning.frugal if was_run else tuning.moves_least(best)
    if frugal is not None and frugal is not best:
        q = frugal.prediction
        lines.append(
            f"as fast within {TIE:.0%}, {q.candidate} moves least ({q.hbm:,} bytes in "
            f"{q.transfers:,} transfers): what a model leaves out grows with that"
        )
    return lines


def reasons(refused: Sequence[Prediction]) -> list[tuple[str, list[str]]]:
    """Return [(reason, candidates)] of those that are refused, the most frequent reason first.

    A kernel's own sentence has the numbers of its candidate in it; they count as one reason.
    """
    refusals: Counter[str] = Counter()
    texts: dict[str, tuple[str, list[str]]] = {}
    for p in refused:
        text = re.sub(r"\d+", "#", p.refused)
        refusals[text] += 1
        texts.setdefault(text, (p.refused, []))[1].append(str(p.candidate))
    return [texts[text] for text, _ in refusals.most_common()]
