"""What a person sees: a row per suite beside the last counts, and the reasons."""
from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from . import counts as counting
from .outcome import FAILED, NOT_HERE, OUTCOMES, REFUSED, Result
from .pool import Done

_STYLE = {REFUSED: "yellow", FAILED: "red", NOT_HERE: "dim"}


def suites(now: counting.Counts, before: counting.Counts) -> Table:
    """Return one row per suite; in brackets what the last run counted, where it differs."""
    table = Table(title="Conformance (in brackets: the last run, where it differs)",
                  title_justify="left", box=None, pad_edge=False)
    table.add_column("suite", no_wrap=True)
    for name in ("checkouts", *OUTCOMES):
        table.add_column(name, justify="right")
    table.add_column("findings")
    for suite, some in now.items():
        count = counting.total(some)
        old = counting.total(before.get(suite, {}), some)
        known = bool(set(before.get(suite, {})) & set(some))
        cells = [_beside(count[o], old[o], known) for o in OUTCOMES]
        names = sorted({**counting.findings(count), **counting.findings(old)})
        found = ", ".join(f"{n} {_beside(count[n], old[n], known)}" for n in names)
        table.add_row(suite, str(len(some)), *cells, found or "none")
    return table


def _beside(now: int, before: int, known: bool) -> str:
    return f"{now} ({before})" if known and now != before else str(now)


def reasons(console: Console, done: Sequence[Done], sources: Path, most: int) -> None:
    """Print why cases were refused, failed or not run, by reason; `most` cases of each."""
    for outcome in (REFUSED, FAILED, NOT_HERE):
        grouped: dict[str, dict[str, list[tuple[Done, Result]]]] = defaultdict(
            lambda: defaultdict(list))
        for one in done:
            for result in one.results:
                if result.outcome == outcome:
                    grouped[one.job.suite][kind(result.reason)].append((one, result))
        for suite, some in grouped.items():
            console.print(f"\n[bold {_STYLE[outcome]}]{outcome}[/] in {escape(suite)}")
            for why, cases in sorted(some.items(), key=lambda x: -len(x[1])):
                console.print(f"  {len(cases):4d}  {escape(why)}", highlight=False)
                for one, result in cases[:most]:
                    _case(console, one, result, sources)
                if len(cases) > most:
                    console.print(f"          and {len(cases) - most} more", style="dim")


def kind(reason: str) -> str:
    """Return what cases of one reason have in common: a rule's id, or words without numbers."""
    if reason.startswith("NKI-"):
        return reason.partition(" ")[0]
    return re.sub(r"\d[\d.e+-]*", "N", reason)[:100]


def _case(console: Console, one: Done, result: Result, sources: Path) -> None:
    place = result.place.replace(f"{sources.resolve()}/", "")
    place = place.replace(f"{one.job.checkout.name}/", "")
    text = f"{one.job.checkout.name}  {result.case}"
    if place:
        text += f"  at {place}"
    if result.reason.startswith("NKI-"):
        text += f": {result.reason.partition(' ')[2]}"
    console.print(f"          {escape(text)}", style="dim", highlight=False, soft_wrap=True)


def line(one: Done) -> str:
    """Return a finished job in a line: what became of it, why, and how much was found."""
    number = {o: [r for r in one.results if r.outcome == o] for o in OUTCOMES}
    words = [f"{len(some)} {outcome}" + "".join(f" ({r.reason})" for r in some[:1] if r.reason)
             for outcome, some in number.items() if some]
    if one.findings:
        words.append(", ".join(f"{f.severity} {f.id}" for f in one.findings))
    return f"{one.job.suite}: {one.job.checkout.name} {one.job.name}: " + "; ".join(words)


def findings(console: Console, done: Iterable[Done], sources: Path) -> None:
    """Print every warning and error, each place once."""
    seen: set[tuple[str, str]] = set()
    for one in done:
        for finding in one.findings:
            if (finding.id, finding.place) not in seen:
                seen.add((finding.id, finding.place))
                place = finding.place.replace(f"{sources.resolve()}/", "")
                console.print(f"{finding.severity} {finding.id} {place or one.job.name}: "
                              f"{finding.text}", highlight=False, markup=False, soft_wrap=True)
