"""The command line of the conformance run."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from . import counts as counting
from . import layouts, pool, report
from .suites import SUITES, Suite


class CannotRun(Exception):
    """There is nothing to run; the message is a sentence for the user."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run suites; return 0 if nothing is worse than accepted, 1 if it is, 2 if nothing ran."""
    options = _parse(argv)
    console = Console(width=None if sys.stdout.isatty() else 160, emoji=False)
    try:
        sources = Path(options.sources).resolve()
        chosen = [_sampled(suite, options.sample) for suite in _chosen(options.suite)]
        jobs = _jobs(chosen, sources, options.full, options.cases)
    except CannotRun as problem:
        print(f"conformance: {problem}", file=sys.stderr)
        return 2
    if options.list:
        for job in jobs:
            print(f"{job.suite}: {job.checkout.name} {job.name}")
        return 0
    done, whole = _run(jobs, options.workers)
    _show(console, done, sources, options)
    if not whole:
        print("conformance: interrupted; nothing is compared or kept", file=sys.stderr)
        return 130
    return 0 if options.cases else _compare(console, done, sources, options)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="nox -s conformance --",
        description="Run public suites and course repositories "
        "from a folder of checkouts, DIR/owner+name or DIR/owner+name@ref.",
    )
    parser.add_argument("--sources", required=True, metavar="DIR", help="the folder of checkouts")
    parser.add_argument(
        "--suite",
        action="append",
        default=[],
        metavar="NAME",
        help="only this suite; can be given again",
    )
    parser.add_argument(
        "--cases",
        default="",
        metavar="TEXT",
        help="only checkouts and cases with this text in their names; such a run "
        "is neither compared nor kept",
    )
    parser.add_argument("--full", action="store_true", help="also what takes an hour")
    parser.add_argument(
        "--sample",
        type=int,
        default=0,
        metavar="N",
        help="N cases of each test function of the suites that run samples, the smallest first; "
        "these are counted apart",
    )
    parser.add_argument("--workers", type=int, default=2, help="processes at a time (default 2)")
    parser.add_argument(
        "--findings", action="store_true", help="list each warning and error with its place"
    )
    parser.add_argument(
        "--most",
        type=int,
        default=20,
        metavar="N",
        help="list up to N places of a reason (default 20)",
    )
    parser.add_argument("--list", action="store_true", help="list the cases and run none")
    parser.add_argument(
        "--accept", action="store_true", help="write the counts to tools/conformance/counts.json"
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=counting.LAST,
        metavar="FILE",
        help="where all results go (default results/conformance.json)",
    )
    options = parser.parse_args(argv)
    if options.accept and options.cases:
        parser.error("--accept takes whole suites; leave out --cases")
    if options.sample < 0 or options.sample and options.full:
        parser.error("--sample takes a number of cases, and no --full, which runs all of them")
    if options.workers < 1:
        parser.error("--workers must be at least 1")
    return options


def _chosen(names: Sequence[str]) -> list[Suite]:
    suites = {suite.name: suite for suite in SUITES}
    for name in names:
        if name not in suites:
            near = difflib.get_close_matches(name, suites, n=1, cutoff=0.3)
            raise CannotRun(
                f"there is no suite {name!r}; "
                + (f"did you mean {near[0]!r}? " if near else "")
                + f"There are: {', '.join(suites)}"
            )
    return [suites[name] for name in names] or list(SUITES)


def _sampled(suite: Suite, sample: int) -> Suite:
    """Return a suite with so many cases of each function where it runs samples (0: its own)."""
    parts = tuple(
        replace(part, sample=sample) if sample and part.sample else part for part in suite.parts
    )
    return replace(suite, parts=parts)


def _jobs(chosen: Sequence[Suite], sources: Path, full: bool, cases: str) -> list[layouts.Job]:
    if not sources.is_dir():
        raise CannotRun(f"there is no folder {sources}.\n{_how_to_get(chosen)}")
    jobs: list[layouts.Job] = []
    missing = []
    for suite in chosen:
        there = layouts.checkouts(suite, sources)
        missing += [suite] * (not there)
        for checkout in there:
            jobs += layouts.jobs(suite, checkout, full)
    if not jobs:
        raise CannotRun(
            f"{sources} holds no checkout of these suites"
            + ("" if full else " that has cases without --full")
            + f".\n{_how_to_get(chosen)}"
        )
    for suite in missing:
        print(
            f"conformance: no checkout of {suite.name} is there; it is left out.\n"
            f"{_how_to_get([suite])}",
            file=sys.stderr,
        )
    jobs = [job for job in jobs if cases in f"{job.checkout.name} {job.name}"]
    if not jobs:
        raise CannotRun(f"no case has {cases!r} in its name; --list shows them all")
    return jobs


def _how_to_get(chosen: Sequence[Suite]) -> str:
    """Return the commands that bring the checkouts of some suites."""
    lines = []
    for suite in chosen:
        for name in suite.checkouts:
            repository, _, ref = name.partition("@")
            folder = f"DIR/{name.replace('/', '+')}"
            lines.append(
                f"  git clone https://github.com/{repository} {folder}"
                + (f" && git -C {folder} checkout {ref}" if ref else "")
            )
        if not suite.checkouts:
            lines.append(
                f"  {suite.name}: any checkout DIR/owner+name that has {' and '.join(suite.marks)}"
            )
    return "To get checkouts (DIR is what --sources names):\n" + "\n".join(dict.fromkeys(lines))


def _run(jobs: Sequence[layouts.Job], workers: int) -> tuple[list[pool.Done], bool]:
    """Run the jobs with a progress bar on stderr; return those that ended, in the order of `jobs`,
    and whether these are all (Ctrl-C stops the rest)."""
    done: list[pool.Done] = []
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("conformance", total=len(jobs))

        try:
            for one in pool.Pool(workers).run(jobs):
                done.append(one)
                bar.update(task, advance=1, description=f"{one.job.suite}: {one.job.checkout.name}")
                if not console.is_terminal:  # a log shows what goes on
                    print(report.line(one), file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            pass
    order = {job: i for i, job in enumerate(map(id, jobs))}
    return sorted(done, key=lambda one: order[id(one.job)]), len(done) == len(jobs)


def _mode(options: argparse.Namespace) -> str:
    return "full" if options.full else f"sample {options.sample}" if options.sample else "quick"


def _show(
    console: Console, done: Sequence[pool.Done], sources: Path, options: argparse.Namespace
) -> None:
    """Print the reasons, the findings if asked for, and the table beside the last counts."""
    before = counting.read(options.results, _mode(options)) or counting.read(
        counting.ACCEPTED, _mode(options)
    )
    report.reasons(console, done, sources, options.most)
    if options.findings:
        console.print("\n[bold]findings[/]")
        report.findings(console, done, sources)
    console.print()
    console.print(report.suites(counting.of(done), {} if options.cases else before))


def _compare(
    console: Console, done: Sequence[pool.Done], sources: Path, options: argparse.Namespace
) -> int:
    """Keep the counts; return 0, or 1 if one is worse than what was accepted."""
    mode, now = _mode(options), counting.of(done)
    accepted = counting.read(counting.ACCEPTED, mode)
    counting.write_last(done, mode, now, sources, options.results)
    if options.accept:
        counting.accept(mode, now)
        console.print(f"\naccepted: {counting.ACCEPTED}", highlight=False)
        return 0
    bad = counting.worse(now, accepted)
    for sentence in bad:
        console.print(f"[red]worse than accepted:[/] {sentence}", highlight=False)
    new = sum(
        commit not in accepted.get(suite, {}) for suite, some in now.items() for commit in some
    )
    if new:
        console.print(
            f"{new} checkouts have no accepted counts; --accept writes them", highlight=False
        )
    return 1 if bad else 0
