"""What all testers share on the command line, and the fleet runner behind `nox -s simulate`."""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

import nkisim

from .dialect import DEFAULT_TARGET, DIALECTS, KERNELS, course_dialect, default_dialect
from .evaluate import Outcome, evaluate, exit_code, score
from .history.results import ResultsError, append_run, provenance, write_times
from .load import discover, labs_root, load_lab
from .remote.flags import add_host_flags, asks_for_host
from .run.backends import BACKENDS
from .show import (
    add_json,
    answer,
    case_table,
    progress,
    replace_unencodable_output,
    show_board,
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

ERROR = {"kind": "command", "id": "", "name": "", "what": "", "limit": "", "given": "",
         "where": None, "hint": ""}  # fmt: skip
RESULTS = Path("results") / "results.json"
SAVE_S = 5.0  # between two times that finished cases are written


def add_common_flags(parser: argparse.ArgumentParser, lab: Lab) -> None:
    """Add the flags that every lab's tester has."""
    add_host_flags(parser)
    parser.add_argument(
        "--target",
        choices=TARGETS,
        help="generation to simulate (default: "
        + (
            DEFAULT_TARGET.get(course_dialect())
            or "the course's, else trn1, for kernels of nki trn2"
        )
        + ")",
    )
    parser.set_defaults(one_target=True)
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default="sim",
        help="sim: our simulator; sdk-sim: the SDK's; hw: the chip (default: sim)",
    )
    parser.add_argument("--simulate", action="store_true", help="the same as --backend sim")
    default, why = default_dialect(lab.folder)
    if default not in lab.dialects:
        default, why = lab.dialect, "what this lab is written in"
    add_language_flags(parser, default, why, lab.dialects)
    add_json(parser)
    add_timeout(parser)
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
        "--as-graded",
        action="store_true",
        help="judge as the grader does: by the files that are handed in, on inputs that each "
        "version of them has alone; nothing is recorded",
    )
    parser.add_argument(
        "--list",
        action="store_true",
        help="show the cases with their tolerances and thresholds, and run none",
    )


class _Dialect(argparse.Action):
    """Remember that the dialect was asked for, and is not the default."""

    def __call__(self, parser: Any, args: Any, value: Any, option: Any = None) -> None:
        """Set the dialect."""
        args.dialect, args.dialect_asked = value, True


def add_language_flags(
    parser: argparse.ArgumentParser,
    default: str,
    why: str = "",
    dialects: Sequence[str] = DIALECTS,
) -> None:
    """Add the flags that say what kernels are written for, and how strictly they are read."""
    parser.add_argument(
        "--course",
        metavar="NAME",
        help=f"{', '.join(nkisim.course.COURSES)}: generation, dialect and release together; none: "
        "what AWS does not run, as well (default: NKI_COURSE, else [tool.nkisim] in "
        "pyproject.toml)",
    )
    files = ", ".join(f"{d}: {KERNELS[d]}" for d in dialects)
    parser.add_argument(
        "--dialect",
        action=_Dialect,
        choices=dialects,
        default=default or None,
        help=argparse.SUPPRESS  # a course's repository has one dialect
        if course_dialect()
        else f"{files} (default: {default or 'both'}" + (f", {why})" if why else ")"),
    )
    parser.set_defaults(dialect_asked=False)
    parser.add_argument(
        "--level",
        choices=("teach", "strict", "off"),
        help="how findings about the kernels are taken. teach: all are listed, notes as well, and "
        "errors, and what AWS's compiler is known to refuse, fail a case; strict: a warning fails "
        "it, too; off: none are looked for but what the grader refuses in the source "
        "(docs/language-limits.md of trainium-labs)",
    )
    # names of before
    parser.add_argument(
        "--language", choices=("refuse", "teach", "strict", "off"), help=argparse.SUPPRESS
    )
    parser.add_argument(
        "--check",
        dest="level",
        nargs="?",
        const="teach",
        choices=("teach", "strict", "off"),
        help=argparse.SUPPRESS,
    )


def add_timeout(parser: argparse.ArgumentParser) -> None:
    """Add the flag that says how long a case may run."""
    parser.add_argument(
        "--timeout",
        type=_time_limit,
        metavar="SECONDS",
        help=f"stop a kernel that runs longer (default: {TIME_LIMIT_S:.0f}; more "
        "for large cases, and where the SDK compiles first; 0: no limit)",
    )
    parser.add_argument(  # its name of before
        "--case-limit", dest="timeout", type=_time_limit, help=argparse.SUPPRESS
    )


def _time_limit(text: str) -> float:
    """Parse a time limit in seconds; 0, no limit, is infinite."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"{text} is not a time; it must be 0 or more")
    return value or math.inf


def choose_course(args: argparse.Namespace, folder: Path | None = None) -> nkisim.course.Choice:
    """Do what --course says, which decides the dialect; return the choice that holds.

    Raises SpecError for a course that there is not, or that writes another dialect.
    """
    try:
        choice = nkisim.course.select(getattr(args, "course", None), folder)
    except nkisim.NkiError as error:
        raise SpecError(error.render()) from None
    if choice.course is None:
        return choice
    if getattr(args, "dialect_asked", False) and args.dialect != choice.course.dialect:
        raise SpecError(
            f"the course {choice.course.title}, chosen by {choice.why}, writes "
            f"{choice.course.kernels}: --dialect {args.dialect} is another one. Leave it out, "
            "or give --course none"
        )
    args.dialect = choice.course.dialect
    return choice


def in_dialect_of(lab: Lab, args: argparse.Namespace) -> Lab:
    """Return the lab in the dialect that the flags ask for, as it is if they ask for none."""
    if getattr(args, "language", None):
        os.environ["NKI_LANGUAGE"] = args.language  # the child that runs the kernel reads it
    if getattr(args, "level", None):
        os.environ["NKISIM_CHECKS"] = args.level
    course = choose_course(args, lab.folder).course
    dialect = getattr(args, "dialect", None)
    lab = lab.speaking(dialect) if dialect else lab
    if getattr(args, "one_target", False):
        args.target = args.target or (course.target if course else DEFAULT_TARGET[lab.dialect])
        check_runs(lab, [args.target])
    return lab


def check_runs(lab: Lab, targets: Sequence[str]) -> None:
    """Raise SpecError for a generation that AWS does not run the lab's dialect on."""
    for target in targets:
        if not nkisim.course.runs(lab.dialect, target):
            raise SpecError(
                f"{lab.kernels.name} on {target}: {nkisim.course.NOT_RUN[lab.dialect, target]} "
                f"Try --target {DEFAULT_TARGET[lab.dialect]}, or --course none to simulate it all "
                "the same"
            )


def targets_of(lab: Lab, asked: Sequence[str] | None = None) -> Sequence[str]:
    """Return the generations of a fleet: as asked, the course's, or all that AWS runs."""
    if asked:
        check_runs(lab, asked)
        return list(asked)
    course = nkisim.course.chosen(start=lab.folder).course
    if course is not None:
        return [course.target]
    return [t for t in FLEET_TARGETS if nkisim.course.runs(lab.dialect, t)]


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


def as_graded(args: argparse.Namespace) -> bool:
    """Return whether cases are judged as the grader does it."""
    return getattr(args, "as_graded", False)


def closing(outcomes: Sequence[Outcome], args: argparse.Namespace) -> str:
    """Return the last sentence of a run: how many passed, and where that is recorded."""
    if as_graded(args):
        return f"{totals(outcomes)}, judged as graded; not recorded"
    return f"{totals(outcomes)}; recorded in {args.results}"


def seed_of(args: argparse.Namespace, lab: Lab) -> int:
    """Return the seed of a run: the flag's, else the lab's."""
    return lab.seed if args.seed is None else args.seed


def guarded(
    main: Any,
    argv: Sequence[str] | None = None,
    program: Sequence[str] = (),
    local: bool = False,
    own_json: bool = False,
) -> int:
    """Run a tester's main; turn what we know can go wrong into a sentence and exit code 2.

    With --host it runs on another machine: `program` with the same arguments (default: the script
    that was started). `local`: the program itself knows what --host means. With --json one object
    is printed (docs/json.md), and what people read goes to standard error; `own_json`: the program
    prints that itself.
    """
    replace_unencodable_output()
    arguments = list(sys.argv[1:] if argv is None else argv)
    away = not local and asks_for_host(arguments) and not {"-h", "--help"} & set(arguments)
    if away or own_json or "--json" not in arguments:
        return _guarded(main, argv, program, arguments if away else None)[0]
    answer.clear()
    with contextlib.redirect_stdout(sys.stderr):
        try:
            code, problem = _guarded(main, argv, program, None)
        except SystemExit as ended:  # argparse has said what is wrong with the arguments
            code, problem = int(ended.code or 0), "the arguments are wrong; see standard error"
    error = {**ERROR, "what": problem} if problem else None
    command = program[-1] if program and program[-1] != "simulate" else "tester"
    head = {"schema": f"labkit.{command}/1", "command": command, "nkisim": nkisim.__version__}
    document = {**head, "exit_code": code, "error": error, **answer}
    print(json.dumps(document, indent=1, default=str))
    return code


def _guarded(
    main: Any, argv: Sequence[str] | None, program: Sequence[str], away: list[str] | None
) -> tuple[int, str]:
    """Return (exit code, why it could not run); `away`: arguments for another machine."""
    console, text = Console(stderr=True), ""
    try:
        if away is not None:
            from .remote.front import elsewhere

            return elsewhere(program or sys.argv[:1], away), ""
        return int(main(argv)), ""
    except (SpecError, ResultsError) as error:
        text = str(error)
    except SyntaxError as error:
        text = f"{Path(error.filename or '?').name}:{error.lineno} is not Python: {error.msg}"
    except MemoryError as error:
        text = (
            "this machine has too little memory for the inputs or the reference: "
            f"{str(error) or 'none is left'}; try a smaller size"
        )
    except OSError as error:  # of a folder that is read-only, a disk that is full, ...
        if error.filename is None and error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise  # a write does not know the name of its file
        place = "a file" if error.filename is None else str(error.filename)
        text = f"{place}: {error.strerror or error}"
    except KeyboardInterrupt:
        console.print("stopped by you; what was finished before was recorded", highlight=False)
        return 2, "stopped by you"
    console.print(f"[red]could not run:[/] {escape(text)}", highlight=False, soft_wrap=True)
    return 2, text


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
    if as_graded(args):
        if backend != "sim" or args.in_process or profile:
            raise SpecError(
                "--as-graded simulates, in a process of its own: leave out --backend, --in-process "
                "and --profile"
            )
        # the judge stands above the command line: loaded when it is asked for, as commands are
        judge = import_module("labkit.grade.as_graded").outcomes
        evaluation = judge(lab, runs, seed=seed_of(args, lab), time_limit=args.timeout)
    else:
        evaluation = evaluate(
            lab,
            runs,
            backend=backend,
            seed=args.seed,
            in_process=args.in_process,
            profile=profile,
            measure=measure,
            time_limit=args.timeout,
        )
    try:
        with progress(console) as bar:
            task = bar.add_task(lab.label, total=len(runs))
            for outcome in evaluation:
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
        cases = answer.setdefault("cases", [])
        cases += [{"lab": lab.label, **o.to_dict()} for o in outcomes]
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
    if as_graded(args):
        return
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
    targets: Sequence[str] | None,
    args: argparse.Namespace,
    console: Console,
) -> int:
    """Run a fleet of some labs, print one table, return the exit code.

    `targets`: the generations; None: as flags, course and dialect say (`targets_of`).
    """
    everything: list[tuple[str, Outcome]] = []
    labs = [in_dialect_of(lab, args) for lab in labs]
    for lab in labs:
        runs = [
            (case, target)
            for case in lab.cases
            for target in (targets_of(lab, args.target) if targets is None else targets)
            if fleet in case.fleets and lab.runs(case, target)
        ]
        everything += [(lab.label, o) for o in run_cases(lab, runs, args, console)]
    outcomes = [o for _, o in everything]
    if not outcomes:
        raise SpecError(f"no case is in the fleet {fleet!r}")
    by_lab = [(lab, [o for n, o in everything if n == lab.label]) for lab in labs]
    begun = [o for o in outcomes if not o.unwritten]
    board = len(begun) < len(outcomes) and not getattr(args, "finished", True)
    if not board or exit_code(begun) == 1:
        rows = [(n, o) for n, o in everything if not (board and o.unwritten)]
        show_table(console, summary_table(rows))
    show_failures(console, begun if board else outcomes)
    show_printed(console, outcomes)
    show_slow(console, outcomes)
    show_check(console, outcomes, notes=args.level in ("teach", "strict"))
    if board:
        show_board(console, by_lab)
        console.print(
            "\nEach lab begins with the README.md in its folder; not started is no failure.",
            highlight=False,
            soft_wrap=True,
        )
    else:
        for lab, runs_of_lab in by_lab:
            show_steps(console, lab, runs_of_lab)
            if lab.rubric:
                show_score(console, lab, score(lab, runs_of_lab))
    note_latency(console, outcomes)
    console.print(closing(outcomes, args), highlight=False, soft_wrap=True)
    return exit_code(outcomes, finished=not board)


def kernel_tester(lab: Lab, kernels: Sequence[str]) -> Callable[..., int]:
    """Return the main of a lab's tester: one kernel or all, small cases or those of the contest.

    Its exit code is 0 if all passed, 1 if a case failed, 2 if it could not run.
    """

    def main(argv: Sequence[str] | None = None) -> int:
        parser = argparse.ArgumentParser(
            prog="tester.py",
            description="Check the kernels: small cases (the default), or with --speed those that "
            "ask for a time.",
        )
        parser.add_argument("--kernel", choices=kernels, help="only this one")
        speed = "the large cases, each with a threshold (the contest's)"
        parser.add_argument("--speed", action="store_true", help=speed)
        add_common_flags(parser, lab)
        add_bench_flags(parser)
        args = parser.parse_args(argv)
        fleet = "contest" if args.speed else "quick"
        cases = [c for c in lab.cases if fleet in c.fleets and args.kernel in (None, c.kernel)]
        return run_tester(lab, cases, args)

    return main


def run_tester(lab: Lab, cases: Sequence[Case], args: argparse.Namespace) -> int:
    """Run some cases of a lab on one target as its tester does; return the exit code."""
    console = terminal()
    lab = in_dialect_of(lab, args)
    if args.list:
        show_table(console, case_table(lab, args.target))
        return 0
    runs = [(case, args.target) for case in cases if lab.runs(case, args.target)]
    if not runs:
        raise SpecError(f"none of these cases is for {args.target}")
    profile = args.profile
    if profile and "{case}" not in profile and len(runs) > 1:
        profile += "_{case}"
    outcomes = run_cases(lab, runs, args, console, profile)
    rows = ((lab.label, o) for o in outcomes)
    show_table(console, summary_table(rows, with_bytes="bytes" in lab.contest.rank))
    show_failures(console, outcomes)
    show_printed(console, outcomes)
    show_slow(console, outcomes)
    show_check(console, outcomes, notes=args.level in ("teach", "strict"))
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
    console.print(closing(outcomes, args), highlight=False, soft_wrap=True)
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


def simulate_parser() -> argparse.ArgumentParser:
    """Return the parser of simulate."""
    names, _ = known_labs()
    parser = argparse.ArgumentParser(prog="labkit simulate", description=simulate.__doc__)
    parser.add_argument(
        "labs", nargs="*", metavar="LAB", help=f"labs to run (default: all of {', '.join(names)})"
    )
    parser.add_argument("--full", action="store_true", help="all cases, not only the quick ones")
    parser.add_argument(
        "--finished", action="store_true", help="a step that is not written yet is a failure"
    )
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
    add_json(parser)
    add_timeout(parser)
    add_host_flags(parser)
    return parser


def simulate(argv: Sequence[str] | None = None) -> int:
    """Run the labs' fleets in simulation: `python -m labkit simulate [LAB...] [--full]`."""
    _, load = known_labs()
    args = simulate_parser().parse_args(argv, argparse.Namespace(backend="sim", simulate=True))
    labs = load(args.labs)
    choose_course(args)
    if args.dialect is None:
        labs = [lab.speaking(dialect) for lab in labs for dialect in lab.dialects]
    elif not args.labs:
        labs = [lab for lab in labs if args.dialect in lab.dialects]
    return run_fleet(labs, "full" if args.full else "quick", None, args, terminal())
