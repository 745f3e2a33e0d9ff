"""`nox -s benchmark` and `nox -s profile`: latencies of the labs' fleets, and pictures of them.

On a machine with Neuron devices they are measured there; elsewhere they are predicted by nkisim,
and every table says which. Correctness is judged on the very run that is timed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from ..cli import (
    RESULTS,
    add_language_flags,
    add_timeout,
    choose_course,
    known_labs,
    note_latency,
    run_cases,
    seed,
    targets_of,
)
from ..dialect import default_dialect
from ..evaluate import PASSED, Outcome, exit_code
from ..remote.flags import add_host_flags
from ..run.backends import BACKENDS, has_neuron_devices
from ..show import add_json, show_failures, show_printed, show_slow, show_table, terminal, totals
from ..spec import FLEET_TARGETS, TARGETS, MustFailNumerically, MustRaise, SpecError

PROFILES = Path("profiles")


def latency_table(outcomes: Sequence[tuple[str, Outcome]], kind: str) -> Table:
    """Return a row per case and target: latency, threshold and what became of it."""
    table = Table(title=f"Latency, {kind}", title_justify="left", box=None, pad_edge=False)
    table.add_column("case", overflow="fold")
    table.add_column("target")
    for name in ("us", "threshold", "instr.", "DMAs"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    last = ""
    for lab, o in outcomes:
        if lab != last:
            table.add_row(f"[bold]{lab}[/]")
            last = lab
        limit = o.case.threshold_us.get(o.target)
        took = o.latency[f"p{o.case.percentile}"] if o.latency else None
        verdict = (
            o.status
            if o.status != PASSED or o.meets_threshold is None
            else "within"
            if o.meets_threshold
            else "too slow"
        )
        color = {"passed": "green", "within": "green"}.get(verdict, "red")
        table.add_row(
            o.case.name,
            o.target,
            "-" if took is None else f"{took:,.1f}",
            "-" if limit is None else f"{limit:,}",
            f"{sum(o.stats['instructions'].values()):,}" if o.stats else "-",
            f"{o.stats['dma_transfers']:,}" if o.stats else "-",
            f"[{color}]{verdict}[/]",
        )
    return table


def benchmark_parser() -> argparse.ArgumentParser:
    """Return the parser of benchmark."""
    return _parser("benchmark", benchmark.__doc__)


def profile_parser() -> argparse.ArgumentParser:
    """Return the parser of profile."""
    return _parser("profile", profile.__doc__)


def _parser(name: str, text: str | None) -> argparse.ArgumentParser:
    names, _ = known_labs()
    parser = argparse.ArgumentParser(prog=f"labkit {name}", description=text)
    parser.add_argument(
        "labs", nargs="*", metavar="LAB", help=f"labs to run (default: all of {', '.join(names)})"
    )
    parser.add_argument("--full", action="store_true", help="all cases, not only the quick ones")
    parser.add_argument("--case", action="append", metavar="NAME", help="only this case")
    parser.add_argument(
        "--target",
        choices=TARGETS,
        action="append",
        help=f"generation to predict for (default: {' and '.join(FLEET_TARGETS)})",
    )
    parser.add_argument("--seed", type=seed, help="seed of the inputs (default: each lab's)")
    parser.add_argument(
        "--results",
        type=Path,
        default=RESULTS,
        metavar="FILE",
        help="where results are appended (default: %(default)s)",
    )
    parser.add_argument(
        "--backend",
        choices=[b for b in BACKENDS if b != "sdk-sim"],
        help="hw: measure on the chip; sim: predict (default: hw where a Neuron device is)",
    )
    parser.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    add_language_flags(parser, *default_dialect())
    parser.set_defaults(dialect=None)  # each lab's own
    add_timeout(parser)
    add_json(parser)
    add_host_flags(parser)
    return parser


def _run(args: argparse.Namespace, folder: Path | None) -> int:
    """Time the fleets; with `folder`, save a profile of each case there."""
    _, load = known_labs()
    if folder:
        folder.mkdir(exist_ok=True)
    args.backend = args.backend or ("hw" if has_neuron_devices() else "sim")
    args.simulate = args.backend == "sim"
    console = terminal()
    labs = load(args.labs)
    choose_course(args)
    default, _ = default_dialect()
    labs = [
        lab.speaking(args.dialect or (default if default in lab.dialects else lab.dialect))
        for lab in labs
        if args.labs or args.dialect in (None, *lab.dialects)
    ]
    everything: list[tuple[str, Outcome]] = []
    fleet = "full" if args.full or args.case else "quick"
    for lab in labs:
        for target in targets_of(lab, args.target):
            runs = [
                (case, target)
                for case in lab.cases
                if fleet in case.fleets
                and lab.runs(case, target)
                and not isinstance(case.expect, MustRaise)
                and not (folder and isinstance(case.expect, MustFailNumerically))
                and (not args.case or case.name in args.case)
            ]
            if not runs:
                continue
            profile = str(folder.resolve() / f"{lab.name}_{{case}}_{target}") if folder else ""
            everything += [
                (lab.label, o) for o in run_cases(lab, runs, args, console, profile, measure=True)
            ]
    outcomes = [o for _, o in everything]
    if not outcomes:
        raise SpecError(
            "no case fits these arguments"
            + (f": there is no case {', '.join(args.case)}" if args.case else "")
        )
    kinds = {o.latency_kind for o in outcomes if o.latency}
    show_table(
        console, latency_table(everything, " and ".join(sorted(filter(None, kinds))) or "none")
    )
    show_failures(console, outcomes)
    show_printed(console, outcomes)
    show_slow(console, outcomes)
    note_latency(console, outcomes)
    if folder:
        console.print(
            f"profiles in {folder}: open a .html in a browser, a .pftrace in Perfetto",
            highlight=False,
        )
    console.print(
        f"{totals(outcomes)}; recorded in {args.results}", highlight=False, soft_wrap=True
    )
    late = any(o.meets_threshold is False for o in outcomes)
    return exit_code(outcomes, finished=False) or int(late)


def benchmark(argv: Sequence[str] | None = None) -> int:
    """Time the labs' fleets: measured on a Neuron machine, elsewhere predicted."""
    return _run(benchmark_parser().parse_args(argv), None)


def profile(argv: Sequence[str] | None = None) -> int:
    """Profile the labs' fleets: a page and a trace for each case (NEFF and NTFF on the chip)."""
    return _run(profile_parser().parse_args(argv), PROFILES)
