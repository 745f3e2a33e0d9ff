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
    table = Table(
        title="Conformance (in brackets: the last run, where it differs)",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    table.add_column("suite", no_wrap=True)
    for name in ("checkouts", *OUTCOMES):
        table.add_column(name, justify="right")
    table.add_column("findings")
    for suite, some in now.items():
        count = counting.total(some)
        old = counting.total(before.get(suite, {}), some)
        compared = bool(set(before.get(suite, {})) & set(some))
        cells = [_beside(count[o], old[o], compared) for o in OUTCOMES]
        names = sorted({**counting.findings(count), **counting.findings(old)})
        found = ", ".join(f"{n} {_beside(count[n], old[n], compared)}" for n in names)
        table.add_row(suite, str(len(some)), *cells, found or "none")
    return table


def _beside(now: int, before: int, known: bool) -> str:
    return f"{now} ({before})" if known and now != before else str(now)


def reasons(console: Console, done: Sequence[Done], sources: Path, most: int) -> None:
    """Print why cases were refused, failed or not run, by reason; `most` places of each."""
    for outcome in (REFUSED, FAILED, NOT_HERE):
        for suite, some in _grouped(done, outcome).items():
            console.print(f"\n[bold {_STYLE[outcome]}]{outcome}[/] in {escape(suite)}")
            for why, places in sorted(some.items(), key=lambda x: -_cases(x[1])):
                console.print(f"  {_cases(places):4d}  {escape(why)}", highlight=False)
                for lines in list(places.values())[:most]:
                    _place(console, lines, sources)
                if len(places) > most:
                    console.print(f"          and {len(places) - most} more places", style="dim")


#: place -> the cases that ended there
Places = dict[tuple[str, str], list[tuple[Done, Result]]]


def _grouped(done: Sequence[Done], outcome: str) -> dict[str, dict[str, Places]]:
    """Return suite -> reason -> place -> cases."""
    grouped: dict[str, dict[str, Places]] = defaultdict(lambda: defaultdict(dict))
    for one in done:
        for result in one.results:
            if result.outcome == outcome:
                where = result.place or result.case
                grouped[one.job.suite][kind(result.reason)].setdefault(
                    (one.job.checkout.name, where), []
                ).append((one, result))
    return grouped


def _cases(places: Places) -> int:
    return sum(len(cases) for cases in places.values())


def kind(reason: str) -> str:
    """Return what cases of one reason have in common: a rule's id, or words without numbers."""
    if reason.startswith("NKI-"):
        return reason.partition(" ")[0]
    return re.sub(r"\d[\d.e+-]*", "N", reason)[:100]


def _place(console: Console, cases: list[tuple[Done, Result]], sources: Path) -> None:
    """Print a place and the first case that ended there."""
    one, result = cases[0]
    text = f"{one.job.checkout.name}  {result.case}"
    if len(cases) > 1:
        text += f" and {len(cases) - 1} more"
    place = result.place.replace(f"{sources.resolve()}/", "")
    if place:
        text += "  at " + place.replace(f"{one.job.checkout.name}/", "")
    if result.reason.startswith("NKI-"):
        text += f": {result.reason.partition(' ')[2]}"
    console.print(f"          {escape(text)}", style="dim", highlight=False, soft_wrap=True)


def line(one: Done) -> str:
    """Return a finished job in a line: what became of it, why, and how much was found."""
    number = {o: [r for r in one.results if r.outcome == o] for o in OUTCOMES}
    words = [
        f"{len(some)} {outcome}" + "".join(f" ({r.reason})" for r in some[:1] if r.reason)
        for outcome, some in number.items()
        if some
    ]
    if one.findings:
        words.append(", ".join(f"{f.severity} {f.id}" for f in one.findings))
    return f"{one.job.suite}: {one.job.checkout.name} {one.job.name}: " + "; ".join(words)


def findings(console: Console, done: Iterable[Done], sources: Path) -> None:
    """Print every warning and error, each place once."""
    seen: set[tuple[str, str]] = set()
    for one in done:
        for finding in one.findings:
            place = finding.place or f"{one.job.checkout.name} {one.job.name}"
            if (finding.id, place) not in seen:
                seen.add((finding.id, place))
                place = place.replace(f"{sources.resolve()}/", "")
                console.print(
                    f"{finding.severity} {finding.id} {place}: {finding.text}",
                    highlight=False,
                    markup=False,
                    soft_wrap=True,
                )
