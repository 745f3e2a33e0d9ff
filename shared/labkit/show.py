"""What a person sees: progress with a time to go, one table, and the reports of failures."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.padding import Padding
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from .evaluate import FAILED, NOT_RUN, PASSED, Outcome
from .inputs import dtype_of
from .spec import Case, Lab, MustFailNumerically, MustRaise, Passes, RubricLine, hbm_bytes
from .tolerance import tolerance

_STYLE = {PASSED: "green", FAILED: "red", NOT_RUN: "yellow"}
_SEVERITIES = {"error": "red", "warning": "yellow", "note": "blue"}  # worst first


#: what --json prints, beside exit code and error: filled by run_cases and by commands
answer: dict[str, Any] = {}


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add --json, which `cli.guarded` answers with what stands in `answer`."""
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object: exit code, error, answer (docs/json.md of trainium-labs)",
    )


def replace_unencodable_output() -> None:
    """Let standard output show as `?` what its encoding lacks: reports quote lines and paths.

    In a pipe or a file that is Windows' 8-bit encoding, and one arrow in a kernel's comment would
    end a tester.
    """
    if getattr(sys.stdout, "errors", "") == "strict" and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")


def terminal() -> Console:
    """Return standard output; in a file or a CI log wide enough that no case name is broken."""
    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=110)


def progress(console: Console) -> Progress:
    """Return a progress bar over cases; silent where the output is not a terminal."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("elapsed"),
        TimeElapsedColumn(),
        TextColumn("to go"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def expectation(case: Case) -> str:
    """Return the outcome that a case must have, in one word."""
    if isinstance(case.expect, MustRaise):
        return "refused"
    return "wrong" if isinstance(case.expect, MustFailNumerically) else "right"


def show_table(console: Console, table: Table) -> None:
    """Print a table; in a terminal that is too narrow, each row's name on a line of its own.

    Names are in the first column; they are never broken, so that they can be copied.
    """
    names = table.columns[0]
    names.no_wrap = True
    names.min_width = max((Text.from_markup(str(name)).cell_len for name in names.cells), default=0)
    wide = console.options.update(width=1000)
    if Measurement.get(console, wide, table).minimum <= console.width:
        console.print(table)
        return
    if table.title:
        console.print(table.title, style="table.title")
    others = [[str(cell) for cell in column.cells] for column in table.columns[1:]]
    for name, *cells in zip(names.cells, *others):
        console.print(name, soft_wrap=True)
        values = [
            f"{column.header} {cell}" for column, cell in zip(table.columns[1:], cells) if cell
        ]
        if values:
            console.print(Padding(",  ".join(values), (0, 0, 0, 4), expand=False), highlight=False)
    if table.caption:
        console.print(table.caption, style="table.caption")


def _state(outcome: Outcome, before: str = "") -> str:
    """Return a case's status as rich markup. A step that is not written yet is not a failure."""
    style = _STYLE[NOT_RUN if outcome.unwritten else outcome.status]
    return f"[{style}]{before}{outcome.state}[/]"


def summary_table(outcomes: Iterable[tuple[str, Outcome]], with_bytes: bool = False) -> Table:
    """Return one row per case, a column per target; latencies with their kind where known.

    `with_bytes`: and what it read from HBM and wrote to it.
    """
    rows: dict[tuple[str, str], list[Outcome]] = {}
    for lab, outcome in outcomes:
        rows.setdefault((lab, outcome.case.name), []).append(outcome)
    targets = sorted({o.target for runs in rows.values() for o in runs})
    table = Table(title="All cases", title_justify="left", box=None, pad_edge=False)
    for name in ("case", "must be", *targets):
        table.add_column(name, overflow="fold")
    for name in ("instr.", "DMAs", *["HBM kB"] * with_bytes, "seconds"):
        table.add_column(name, justify="right")
    last = ""
    for (lab, case), runs in rows.items():
        if lab != last:
            table.add_row(f"[bold]{lab}[/]")
            last = lab
        verdict = {o.target: _state(o) + _latency(o) for o in runs}
        table.add_row(
            case,
            expectation(runs[0].case),
            *(verdict.get(target, "-") for target in targets),
            *_counts(runs, with_bytes),
        )
    return table


def _latency(outcome: Outcome) -> str:
    if not outcome.latency:
        return ""
    return f" {outcome.latency[f'p{outcome.case.percentile}']:,.0f} us {outcome.latency_kind}"


def _counts(runs: Sequence[Outcome], with_bytes: bool) -> tuple[str, ...]:
    """Return counts of instructions, of DMAs, kB of HBM (if the targets differ: all), wall time."""
    instructions = {sum(o.stats["instructions"].values()) for o in runs if o.stats}
    transfers = {o.stats["dma_transfers"] for o in runs if o.stats}
    moved = {n for o in runs if (n := hbm_bytes(o.stats)) is not None}
    return (
        "/".join(f"{n:,}" for n in sorted(instructions)) or "-",
        "/".join(f"{n:,}" for n in sorted(transfers)) or "-",
        *["/".join(f"{n / 1e3:,.1f}" for n in sorted(moved)) or "-"] * with_bytes,
        f"{sum(o.seconds for o in runs):.2f}",
    )


def show_failures(console: Console, outcomes: Iterable[Outcome]) -> None:
    """Print the report of every case that did not pass; the same report only once."""
    seen: dict[str, str] = {}
    last = ""
    for o in outcomes:
        if o.status == PASSED:
            continue
        report = o.detail if o.text in o.detail else "\n".join(filter(None, (o.text, o.detail)))
        console.print(f"\n{_state(o, f'{o.case.name} on {o.target}: ')}")
        if report in seen:
            as_that = "above" if report == last else f"that of {seen[report]}"
            console.print(f"  (the same report as {as_that})", highlight=False, soft_wrap=True)
            last = report
            continue
        seen[report], last = f"{o.case.name} on {o.target}", report
        console.print(escape(report), highlight=False, soft_wrap=True)
        show_findings(console, o)
        if o.printed:
            console.print(
                "printed by the kernel:\n" + escape(_tail(o.printed)),
                highlight=False,
                soft_wrap=True,
            )


def show_printed(console: Console, outcomes: Sequence[Outcome]) -> None:
    """Print what kernels printed in cases that passed; a failure's report has it already."""
    last, lines = "", 200 if len(outcomes) == 1 else 20
    for o in outcomes:
        if o.status != PASSED or not o.printed:
            continue
        console.print(
            f"\n{o.case.name} on {o.target}, printed by the kernel:",
            highlight=False,
            soft_wrap=True,
        )
        console.print(
            "  (the same as above)" if o.printed == last else escape(_tail(o.printed, lines)),
            highlight=False,
            soft_wrap=True,
        )
        last = o.printed


def show_slow(console: Console, outcomes: Iterable[Outcome]) -> None:
    """Say of every case that is right and too slow by how much, and what to change first."""
    for o in outcomes:
        if o.status == PASSED and o.meets_threshold is False and o.latency:
            console.print(
                f"\n[yellow]{o.case.name} on {o.target}: right, but too slow[/], "
                f"{o.latency_kind} {o.latency[f'p{o.case.percentile}']:,.0f} of "
                f"{o.case.threshold_us[o.target]:,.0f} us",
                highlight=False,
            )
            show_advice(console, o)


def show_advice(console: Console, outcome: Outcome) -> None:
    """Print what to change first, where that is known."""
    for sentence in outcome.stats.get("advice", ()):
        console.print(f"  {escape(sentence)}", highlight=False, soft_wrap=True)


def show_findings(console: Console, outcome: Outcome) -> None:
    """Print what the simulator noticed, each finding once, worst first."""
    worst_first = sorted(outcome.findings, key=lambda f: list(_SEVERITIES).index(f["severity"]))
    for text in dict.fromkeys(
        f"{f['severity']} {f['id']}: {f['text']}"
        + (f"\n  where  {f['where']}" if f["where"] else "")
        for f in worst_first
    ):
        console.print(escape(text), highlight=False, soft_wrap=True)


def show_check(console: Console, outcomes: Iterable[Outcome], notes: bool = False) -> None:
    """List findings, worst first, a place once: what, where, in which cases, and what to try.

    Without `notes` those of cases that passed (a failure's report has them), and no notes. What is
    found about a kernel that is meant to be wrong is not news.
    """
    by_place: dict[tuple[str, ...], tuple[dict[str, Any], list[str]]] = {}
    for o in (o for o in outcomes if isinstance(o.case.expect, Passes)):
        for f in o.findings:
            if not notes and (f["severity"] == "note" or o.status != PASSED):
                continue
            key = f["severity"], f["id"], f["where"] or f["text"]  # shapes differ by case
            by_place.setdefault(key, (f, []))[1].append(f"{o.case.name} on {o.target}")
    if not by_place and not notes:
        return
    console.print()
    for (severity, id, _), (f, runs) in sorted(
        by_place.items(), key=lambda item: (list(_SEVERITIES).index(item[0][0]), item[0][1:])
    ):
        more = f" and {len(runs) - 1} more" if len(runs) > 1 else ""
        console.print(
            f"[{_SEVERITIES[severity]}]{severity}[/] {id} {escape(f['text'])}\n"
            + escape(
                f"  where  {f['where']}\n" * bool(f["where"])
                + f"  in     {runs[0]}{more}\n"
                + f"  try    {f['try']}\n" * (f.get("try", "") not in f["text"])
                + f"  more   python -m nkisim explain {id}"
            ),
            highlight=False,
            soft_wrap=True,
        )
    counts = [
        f"{n} {s}{'s' if n != 1 else ''}"
        for s in _SEVERITIES
        if (n := sum(key[0] == s for key in by_place))
    ]
    console.print(f"findings: {', '.join(counts) or 'none'}", highlight=False)


def show_stats(console: Console, outcome: Outcome) -> None:
    """Print the counts of a simulated run, or the latency measured on the chip.

    Under the name of the case: a writeup quotes them with it.
    """
    table = Table(
        title=f"{outcome.case.name} on {outcome.target}",
        box=None,
        title_justify="left",
        show_header=False,
    )
    table.add_column()
    table.add_column(justify="right")
    latency = outcome.latency or {}
    if outcome.latency_kind == "predicted":  # one number: a model has no percentiles
        latency = {"": next(iter(latency.values()))} if latency else {}
    for name, value in latency.items():
        table.add_row(f"latency {name}".strip() + f", {outcome.latency_kind}", f"{value:,.1f} us")
    if outcome.stats:
        for name, count in sorted(outcome.stats["instructions"].items()):
            table.add_row(f"instructions: {name}", f"{count:,}")
        table.add_row("dma_transfer_count", f"{outcome.stats['dma_transfers']:,}")
        table.add_row("HBM bytes read", f"{outcome.stats['hbm_read_bytes']:,}")
        table.add_row("HBM bytes written", f"{outcome.stats['hbm_write_bytes']:,}")
    console.print(table)
    show_advice(console, outcome)
    for name in outcome.stats.get("files", ()):
        console.print(f"wrote {name}", highlight=False, soft_wrap=True, markup=False)


def show_score(
    console: Console, lab: Lab, lines: Sequence[tuple[RubricLine, float | None, str]]
) -> None:
    """Print points per rubric line and why, a table per course."""
    for course in dict.fromkeys(line.course for line, _, _ in lines):
        entries = [entry for entry in lines if entry[0].course == course]
        run = [entry for entry in entries if not entry[2].startswith("not run")]
        if not run:
            continue
        which = f"{course or lab.name}" + ("" if lab.dialect == "beta1" else f", {lab.dialect}")
        table = Table(title=f"Points, {which}", title_justify="left", box=None)
        for name in ("for", "points", "of", "why"):
            table.add_column(
                name, justify="right" if name in ("points", "of") else "left", overflow="fold"
            )
        for line, points, why in run:
            table.add_row(
                line.text, "-" if points is None else f"{points:g}", f"{line.points:g}", escape(why)
            )
        rest = [line for line, _, why in entries if why.startswith("not run")]
        if rest:
            table.add_row(
                f"{len(rest)} more", "-", f"{sum(line.points for line in rest):g}", "not run"
            )
        table.add_row(
            "together",
            f"{sum(points or 0 for _, points, _ in entries):g}",
            f"{sum(line.points for line, _, _ in entries):g}",
        )
        console.print(table)


def show_steps(console: Console, lab: Lab, outcomes: Sequence[Outcome]) -> None:
    """Print which steps of a lab are not started, failing or passing, and what they are worth.

    Where several courses give the lab, each counts its own points: those are in `show_score` only.
    """
    table = Table(title=f"Steps of {lab.name}", title_justify="left", box=None)
    for name in ("step", "section of README.md", "state", "points"):
        table.add_column(name, overflow="fold")
    for cells in _steps(lab, outcomes):
        table.add_row(*cells)
    if table.row_count:
        console.print(table)


def show_board(console: Console, runs: Sequence[tuple[Lab, Sequence[Outcome]]]) -> None:
    """Print the steps of several labs in one table, for who has only begun."""
    table = Table(title="How far you are", title_justify="left", box=None)
    for name in ("lab", "step", "section of its README.md", "state", "points"):
        table.add_column(name, overflow="fold")
    for lab, outcomes in runs:
        for number, cells in enumerate(_steps(lab, outcomes)):
            table.add_row("" if number else lab.label, *cells)
    console.print(table)


def _steps(lab: Lab, outcomes: Sequence[Outcome]) -> Iterator[tuple[str, ...]]:
    """Yield number, section, state and points of the steps that have outcomes."""
    one_course = len({line.course for line in lab.rubric}) == 1
    for step in lab.steps:
        results = [o for o in outcomes if o.case.name in step.cases]
        if not results:
            continue
        state = step_state(results, step.speed)
        color = {"passing": "green", "failing": "red"}.get(state, "yellow")
        points = one_course * sum(
            line.points for line in lab.rubric if set(line.cases) <= set(step.cases)
        )
        worth = f"{points:g}" if points else "-"
        yield str(step.number), step.section, f"[{color}]{state}[/]", worth


def step_state(outcomes: Sequence[Outcome], speed: bool = False) -> str:
    """Return "passing", "not started" or "failing" for the runs of a step's cases.

    With `speed`, "too slow" where the results are right and a latency is over its threshold, and
    "not timed" where no latency is held against one.
    """
    if all(o.status == PASSED for o in outcomes):
        met = [o.meets_threshold for o in outcomes] if speed else [True]
        return "too slow" if False in met else "passing" if True in met else "not timed"
    wrong = [o for o in outcomes if o.status != PASSED]
    return "not started" if all(o.unwritten for o in wrong) else "failing"


def case_table(lab: Lab, target: str) -> Table:
    """Return what every case asks: shapes, tolerance, and thresholds of a generation."""
    table = Table(title=f"Cases of {lab.name}", title_justify="left", box=None, pad_edge=False)
    for name in ("case", "inputs", "summed", "rtol", "atol / rms", "at most", "fleets"):
        table.add_column(name, overflow="fold", no_wrap=name == "atol / rms")
    for case in lab.cases:
        dtype = dtype_of(case.dtype_of_output())
        limit = tolerance(dtype, case.accumulate, np.ones(1), case.roundings, case.functions)
        limits = [
            f"{target} {us:g} us p{case.percentile}{word}"
            for thresholds, word in ((case.threshold_us, ""), (case.relaxed_us, " for a part"))
            for us in [thresholds.get(target)]
            if us
        ]
        limits += [f"{case.most_transfers:,} DMAs"] * bool(case.most_transfers)
        table.add_row(
            case.name,
            " ".join("x".join(map(str, t.shape)) for t in case.inputs) + f" {case.inputs[0].dtype}",
            str(case.accumulate),
            f"{limit.rtol:.1e}",
            f"{limit.atol:.1e}",
            ", ".join(limits) or "-",
            ", ".join(case.fleets),
        )
    table.caption = (
        "|actual - expected| <= rtol |expected| + atol. rtol: two units of rounding "
        "to the output dtype. atol: 8 x 2^-24 x sqrt(terms summed) x the root mean "
        "square of the expected output, the random walk of fp32 sums. Zero: values "
        "are only moved, and must be equal bit by bit. labkit/tolerance.py derives "
        "it; nothing is tuned per case."
    )
    table.caption_justify = "left"
    return table


def totals(outcomes: Sequence[Outcome]) -> str:
    """Return the closing line, in the words of the exit code."""
    written = [o for o in outcomes if not o.unwritten]
    count = {state: sum(o.status == state for o in written) for state in _STYLE}
    text = f"{count[PASSED]} passed, {count[FAILED]} failed"
    if len(written) < len(outcomes):
        text += f", {len(outcomes) - len(written)} not written yet"
    return text + (f", {count[NOT_RUN]} could not run" if count[NOT_RUN] else "")


def _tail(text: str, lines: int = 20) -> str:
    all_lines = text.splitlines()
    if len(all_lines) <= lines:
        return text
    return "\n".join(
        [
            f"... ({len(all_lines) - lines} lines before; --in-process shows all)",
            *all_lines[-lines:],
        ]
    )
