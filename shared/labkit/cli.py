"""What all testers share on the command line, and the fleet runner behind `nox -s simulate`."""

from __future__ import annotations

import argparse
import errno
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from .dialect import DIALECTS, KERNELS, course_dialect, default_dialect
from .evaluate import Outcome, evaluate, exit_code, score
from .history.results import ResultsError, append_run, provenance, write_times
from .load import discover, labs_root, load_lab
from .remote.flags import add_host_flags, asks_for_host
from .run.backends import BACKENDS
from .show import (
    case_table,
    progress,
    replace_unencodable_output,
    show_check,
    show_failures,
    show_printed,
    show_score,
    show_slow,
    show_stats,
    show_steps,
    show_table,
    summary_table,
    terminal,
    totals,
)
from .spec import FLEET_TARGETS, TARGETS, TIME_LIMIT_S, Case, Lab, SpecError

#: dialect -> the generation that testers simulate: import nki is not for trn1
DEFAULT_TARGET = {"beta1": "trn1", "nki": "trn2"}
RESULTS = Path("results") / "results.json"
SAVE_S = 5.0  # between two times that finished cases are written


def add_common_flags(parser: argparse.ArgumentParser, lab: Lab) -> None:
    """Add the flags that every lab's tester has."""
    add_host_flags(parser)
    parser.add_argument(
        "--target",
        choices=TARGETS,
        help="generation to simulate (default: trn1, for kernels of nki trn2)",
    )
    parser.set_defaults(one_target=True)
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default="sim",
        help="sim: our simulator; sdk-sim: the SDK's; hw: the chip (default: sim)",
    )
    parser.add_argument("--simulate", action="store_true", help="the same as --backend sim")
    add_language_flags(parser, *default_dialect(lab.folder))
    add_case_limit(parser)
    parser.add_argument(
        "--seed", type=seed, default=lab.seed, help="seed of the inputs (default: %(default)s)"
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=RESULTS,
        metavar="FILE",
        help="where results are appended (default: %(default)s)",
    )
    parser.add_argument(
        "--in-process", action="store_true", help="run the kernel in this process, for a debugger"
    )
    parser.add_argument(
        "--list",
        action="store_true",
        help="show the cases with their tolerances and thresholds, and run none",
    )


def add_language_flags(parser: argparse.ArgumentParser, default: str, why: str = "") -> None:
    """Add the flags that say in which dialect kernels are, and how strictly they are read."""
    files = ", ".join(f"{d}: {file}" for d, file in KERNELS.items())
    parser.add_argument(
        "--dialect",
        choices=DIALECTS,
        default=default or None,
        help=f"{files} (default: {default or 'both'}" + (f", {why})" if why else ")"),
    )
    parser.add_argument(
        "--language",
        choices=("refuse", "teach", "strict", "off"),
        help="what is done about Python that a compiler of NKI refuses: said (the "
        "default), an error, nothing (docs/language-limits.md)",
    )
    parser.add_argument(
        "--check",
        nargs="?",
        const="teach",
        choices=("teach", "strict", "off"),
        help="list all findings of the simulator about the kernels, notes as well; "
        "strict: a warning fails its case, off: look for none",
    )


def add_case_limit(parser: argparse.ArgumentParser) -> None:
    """Add the flag that says how long a case may run."""
    parser.add_argument(
        "--case-limit",
        type=positive,
        metavar="SECONDS",
        help=f"stop a kernel that runs longer (default: {TIME_LIMIT_S:.0f}; more "
        "for large cases, and where the SDK compiles first)",
    )


def in_dialect_of(lab: Lab, args: argparse.Namespace) -> Lab:
    """Return the lab in the dialect that the flags ask for, as it is if they ask for none."""
    if getattr(args, "language", None):
        os.environ["NKI_LANGUAGE"] = args.language  # the child that runs the kernel reads it
    if getattr(args, "check", None):
        os.environ["NKISIM_CHECKS"] = args.check
    dialect = getattr(args, "dialect", None)
    lab = lab.speaking(dialect) if dialect else lab
    if getattr(args, "one_target", False):
        args.target = args.target or DEFAULT_TARGET[lab.dialect]
    return lab


def add_bench_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of testers that judge speed."""
    parser.add_argument(
        "--record",
        action="store_true",
        help="write the latencies to execution_times.json, next to the results",
    )
    parser.add_argument(
        "--profile",
        nargs="?",
        const="{case}",
        default="",
        metavar="NAME",
        help="on the chip: write NAME.neff and NAME.ntff (default: the case's "
        "name); simulated: NAME.html and NAME.pftrace, and the counts",
    )


def positive(text: str) -> int:
    """Parse a size from the command line."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not a size; it must be at least 1")
    return value


def seed(text: str) -> int:
    """Parse a seed from the command line."""
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a seed; it must be 0 or more")
    return int(text)


def backend_of(args: argparse.Namespace) -> str:
    """Return the backend that the flags ask for; raise SpecError if they contradict each other."""
    if args.simulate and args.backend != "sim":
        raise SpecError(
            f"--simulate and --backend {args.backend} contradict each other; give one of them"
        )
    return "sim" if args.simulate else args.backend


def seed_of(args: argparse.Namespace, lab: Lab) -> int:
    """Return the seed of a run: the flag's, else the lab's."""
    return lab.seed if args.seed is None else args.seed


def guarded(
    main: Any, argv: Sequence[str] | None = None, program: Sequence[str] = (), local: bool = False
) -> int:
    """Run a tester's main; turn what we know can go wrong into a sentence and exit code 2.

    With --host it runs on another machine: `program` with the same arguments (default: the script
    that was started). `local`: the program itself knows what --host means.
    """
    replace_unencodable_output()
    console = Console(stderr=True)
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if not local and asks_for_host(arguments) and not {"-h", "--help"} & set(arguments):
            from .remote.front import elsewhere

            return elsewhere(program or sys.argv[:1], arguments)
        return int(main(argv))
    except (SpecError, ResultsError) as error:
        console.print(
            f"[red]could not run:[/] {escape(str(error))}", highlight=False, soft_wrap=True
        )
    except SyntaxError as error:
        place = f"{Path(error.filename or '?').name}:{error.lineno}"
        console.print(
            f"[red]could not run:[/] {escape(place)} is not Python: {error.msg}", highlight=False
        )
    except MemoryError as error:
        console.print(
            "[red]could not run:[/] this machine has too little memory for the inputs or "
            f"the reference: {escape(str(error) or 'none is left')}; try a smaller "
            "size",
            highlight=False,
            soft_wrap=True,
        )
    except OSError as error:  # of a folder that is read-only, a disk that is full, ...
        if error.filename is None and error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise  # a write does not know the name of its file
        place = "a file" if error.filename is None else str(error.filename)
        console.print(
            f"[red]could not run:[/] {escape(place)}: {escape(error.strerror or str(error))}",
            highlight=False,
            soft_wrap=True,
        )
    except KeyboardInterrupt:
        console.print("stopped by you; what was finished before was recorded", highlight=False)
    return 2


def run_cases(
    lab: Lab,
    runs: Sequence[tuple[Case, str]],
    args: argparse.Namespace,
    console: Console,
    profile: str = "",
    measure: bool = False,
) -> list[Outcome]:
    """Run cases with progress and record them, finished ones also if the run is stopped.

    Every few seconds what is finished is written, so that not even a kill loses it.
    """
    profile = profile.removesuffix(".html")  # NAME is meant, not its file
    backend, outcomes = backend_of(args), []
    facts: dict[str, dict[str, Any]] = {}
    saved = time.monotonic()
    lab = in_dialect_of(lab, args)
    try:
        with progress(console) as bar:
            task = bar.add_task(lab.label, total=len(runs))
            for outcome in evaluate(
                lab,
                runs,
                backend=backend,
                seed=args.seed,
                in_process=args.in_process,
                profile=profile,
                measure=measure,
                time_limit=args.case_limit,
            ):
                if outcome.error and outcome.error["kind"] == "backend":
                    raise SpecError(outcome.error["text"])  # nor can any other case
                outcomes.append(outcome)
                bar.advance(task)
                if time.monotonic() - saved > SAVE_S and len(outcomes) < len(runs):
                    record(lab, outcomes, args, backend, console, facts, unfinished=True)
                    saved = time.monotonic()
    finally:
        if outcomes:
            record(lab, outcomes, args, backend, console, facts)
    return outcomes


def record(
    lab: Lab,
    outcomes: Sequence[Outcome],
    args: argparse.Namespace,
    backend: str,
    console: Console,
    facts: dict[str, dict[str, Any]],
    unfinished: bool = False,
) -> None:
    """Append outcomes to the results file, one run per target; `facts` keeps what a run is known by
    from call to call, so that a later one replaces what an unfinished one wrote."""
    used = seed_of(args, lab)
    for target in dict.fromkeys(o.target for o in outcomes):
        if target not in facts:
            facts[target] = provenance(lab, backend, target, used)
        run = {
            "lab": lab.name,
            **facts[target],
            **({"unfinished": True} if unfinished else {}),
            "cases": [o.to_dict() for o in outcomes if o.target == target],
        }
        for note in append_run(args.results, run):
            console.print(escape(note), highlight=False)


def run_fleet(
    labs: Sequence[Lab],
    fleet: str,
    targets: Sequence[str],
    args: argparse.Namespace,
    console: Console,
) -> int:
    """Run a fleet of some labs, print one table, return the exit code."""
    everything: list[tuple[str, Outcome]] = []
    labs = [in_dialect_of(lab, args) for lab in labs]
    for lab in labs:
        runs = [
            (case, target)
            for case in lab.cases
            for target in targets
            if fleet in case.fleets and target in case.targets
        ]
        everything += [(lab.label, o) for o in run_cases(lab, runs, args, console)]
    outcomes = [o for _, o in everything]
    if not outcomes:
        raise SpecError(f"no case is in the fleet {fleet!r}")
    show_table(console, summary_table(everything))
    show_failures(console, outcomes)
    show_printed(console, outcomes)
    show_slow(console, outcomes)
    show_check(console, outcomes, notes=args.check in ("teach", "strict"))
    for lab in labs:
        show_steps(console, lab, [o for n, o in everything if n == lab.label])
        if lab.rubric:
            show_score(console, lab, score(lab, [o for n, o in everything if n == lab.label]))
    note_latency(console, outcomes)
    console.print(
        f"{totals(outcomes)}; recorded in {args.results}", highlight=False, soft_wrap=True
    )
    return exit_code(outcomes)


def run_tester(lab: Lab, cases: Sequence[Case], args: argparse.Namespace) -> int:
    """Run some cases of a lab on one target as its tester does; return the exit code."""
    console = terminal()
    lab = in_dialect_of(lab, args)
    if args.list:
        show_table(console, case_table(lab))
        return 0
    runs = [(case, args.target) for case in cases if args.target in case.targets]
    if not runs:
        raise SpecError(f"none of these cases is for {args.target}")
    profile = args.profile
    if profile and "{case}" not in profile and len(runs) > 1:
        profile += "_{case}"
    outcomes = run_cases(lab, runs, args, console, profile)
    show_table(console, summary_table((lab.label, o) for o in outcomes))
    show_failures(console, outcomes)
    show_printed(console, outcomes)
    show_slow(console, outcomes)
    show_check(console, outcomes, notes=args.check in ("teach", "strict"))
    if profile:
        for outcome in outcomes:
            show_stats(console, outcome)
    show_steps(console, lab, outcomes)
    show_score(console, lab, score(lab, outcomes))
    if args.record:
        console.print(
            write_times(
                args.results.with_name("execution_times.json"),
                lab,
                outcomes,
                backend_of(args),
                seed_of(args, lab),
            ),
            highlight=False,
            soft_wrap=True,
        )
    note_latency(console, outcomes)
    console.print(
        f"{totals(outcomes)}; recorded in {args.results}", highlight=False, soft_wrap=True
    )
    return exit_code(outcomes)


def note_latency(console: Console, outcomes: Sequence[Outcome]) -> None:
    """Say what kind of latencies were shown, if any."""
    kinds = {o.latency_kind for o in outcomes if o.latency}
    if "predicted" in kinds:
        console.print("\nLatencies are predicted by nkisim, not measured.", highlight=False)
        for error in dict.fromkeys(filter(None, (o.stats.get("model_error") for o in outcomes))):
            console.print(f"Error of the model: {error}", highlight=False)
    elif not kinds:
        console.print(
            "\nCounts are simulated. nox -s benchmark predicts latencies.", highlight=False
        )


def known_labs() -> tuple[list[str], Callable[[Sequence[str]], list[Lab]]]:
    """Return the names of the labs here, and a function that loads some (all by default)."""
    root = labs_root()
    names = discover(root)

    def load(wanted: Sequence[str]) -> list[Lab]:
        unknown = [name for name in wanted if name not in names]
        if unknown:
            raise SpecError(f"there is no lab {unknown[0]!r}; the labs are {', '.join(names)}")
        if not names:
            raise SpecError("there are no labs in the folder labs")
        return [load_lab(root / name) for name in wanted or names]

    return names, load


def simulate(argv: Sequence[str] | None = None) -> int:
    """Run the labs' fleets in simulation: `python -m labkit simulate [LAB...] [--full]`."""
    names, load = known_labs()
    parser = argparse.ArgumentParser(prog="labkit simulate", description=simulate.__doc__)
    parser.add_argument(
        "labs", nargs="*", metavar="LAB", help=f"labs to run (default: all of {', '.join(names)})"
    )
    parser.add_argument("--full", action="store_true", help="all cases, not only the quick ones")
    parser.add_argument(
        "--target",
        choices=TARGETS,
        action="append",
        help=f"generation to simulate (default: {' and '.join(FLEET_TARGETS)})",
    )
    parser.add_argument("--seed", type=seed, help="seed of the inputs (default: each lab's)")
    parser.add_argument(
        "--results",
        type=Path,
        default=RESULTS,
        metavar="FILE",
        help="where results are appended (default: %(default)s)",
    )
    parser.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    add_language_flags(parser, course_dialect())
    add_case_limit(parser)
    add_host_flags(parser)
    args = parser.parse_args(argv, argparse.Namespace(backend="sim", simulate=True))
    labs = load(args.labs)
    if args.dialect is None:
        labs = [lab.speaking(dialect) for lab in labs for dialect in lab.dialects]
    return run_fleet(
        labs, "full" if args.full else "quick", args.target or FLEET_TARGETS, args, terminal()
    )
