"""`--host NAME` of every tester and session: the same command, on another machine."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from ..dialect import PACKAGE
from . import hosts
from .client import Job, Report, Run, to_terminal
from .flags import add_host_flags
from .ssh import Lost, RemoteError
from .tree import Tree, read_tree

RESULTS = Path("results") / "results.json"


def job_of(
    program: Sequence[str], rest: Sequence[str], args: argparse.Namespace, tree: Tree
) -> Job:
    """Return what is to run there: the program here, with the arguments that are not about us."""
    here = Path.cwd().resolve()
    root = tree.root.resolve()
    try:
        cwd = here.relative_to(root).as_posix()
    except ValueError:
        raise RemoteError("run this inside of your repository") from None
    first, argv = program[0], list(program)
    if first != "-m":
        script = Path(first).resolve()
        if not script.is_relative_to(root):
            raise RemoteError(f"{script.name} is not in this repository, so it cannot be sent")
        depth = len(here.relative_to(root).parts)
        argv[0] = "/".join([*[".."] * depth, script.relative_to(root).as_posix()])
    backend = "sim" if "--simulate" in rest or program[-1] == "simulate" else ""
    flags = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    flags.add_argument("--backend")
    flags.add_argument("--dialect")
    seen, _ = flags.parse_known_args([*rest])
    extra = []
    if not backend:
        backend = seen.backend or "hw"
        # verify_sim takes all backends by itself
        extra = [] if seen.backend or program[-1] == "verify_sim" else ["--backend", "hw"]
    dialect = PACKAGE.get(seen.dialect or "", "")
    return Job((*argv, *rest, *extra), cwd, args.results, backend, dialect, args.run_limit * 60)


def elsewhere(program: Sequence[str], argv: Sequence[str]) -> int:
    """Run a program with its arguments on the hosts that they name; return its exit code."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_host_flags(parser)
    parser.add_argument("--results", type=Path, default=RESULTS)
    args, rest = parser.parse_known_args(argv)
    tree = read_tree(Path.cwd())
    job = job_of(program, rest, args, tree)
    err = Console(stderr=True, highlight=False)
    named, after = hosts.resolve(args.host, args, tree, err)
    left = False
    try:
        if len(named) > 1:
            from .many import on_all

            return on_all(named, job, tree, err)
        return one(named[0], job, tree, err)
    except (Left, Lost) as error:
        left = True
        err.print(escape(str(error)), soft_wrap=True)
        return 2
    finally:
        after(left)


class Left(Exception):
    """You have left a run that goes on; the text says how to come back."""


def one(host: hosts.Host, job: Job, tree: Tree, err: Console) -> int:
    """Run a job on one host with its output shown; return its exit code."""

    def say(text: str) -> None:
        err.print(f"[dim]{escape(text)}[/]", soft_wrap=True)

    run = Run(host, tree, say, to_terminal)
    hosts.remember(tree, host)
    begun = ""
    try:
        job_there = run.begin(job, Console())
        begun = job_there["id"]
        report = run.collect(run.follow(begun), job.results)
    except KeyboardInterrupt:
        if not begun:
            raise
        raise Left(
            f"\nYou have left the run {begun}; it goes on on {host.name}. The same command "
            f"picks it up; so does  python -m labkit remote attach {begun} --host "
            f"{host.name}  and  stop  instead of attach ends it."
        ) from None
    print_report(report, err, job.results)
    for page in pages(report.files, tree.root):
        err.print(escape(page), soft_wrap=True)
    return report.code


def pages(files: Sequence[str], root: Path) -> list[str]:
    """Put measured profiles that came home above the predicted ones; return what to tell.

    NAME.measured.json is shown with NAME.html, the predicted page of the same case and target.
    """
    shown = []
    for name in files:
        if not name.endswith(".measured.json"):
            continue
        base = root / name.removesuffix(".measured.json")
        predicted, out = (
            base.with_name(f"{base.name}.html"),
            base.with_name(f"{base.name}.both.html"),
        )
        if not predicted.exists():
            shown.append(
                f"{name}: run  nox -s profile  here as well, then  python -m nkisim view "
                f"{base.name}.html --measured {base.name}.measured.json"
            )
            continue
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "nkisim",
                "view",
                str(predicted),
                "--measured",
                str(root / name),
                "--html",
                str(out),
                "--no-open",
            ],
            capture_output=True,
            text=True,
        )
        shown.append(
            f"measured above predicted: {out.relative_to(root).as_posix()}"
            if done.returncode == 0
            else (done.stderr.strip() or f"{name} is no profile")
        )
    return shown


def print_report(report: Report, err: Console, results: Path) -> None:
    """Say what came home and what it has cost."""
    if report.text:
        err.print(f"[red]{escape(report.text)}[/]", soft_wrap=True)
    parts = [f"{report.runs} runs into {results}"] if report.runs else ["no results"]
    if report.files:
        shown = ", ".join(report.files[:4]) + (" ..." if len(report.files) > 4 else "")
        parts.append(f"{len(report.files)} files: {shown}")
    err.print(escape(f"from {report.host}: {'; '.join(parts)}"), soft_wrap=True)
    err.print(escape(report.cost), soft_wrap=True)
    sys.stderr.flush()
