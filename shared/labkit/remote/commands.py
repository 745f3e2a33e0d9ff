"""`labkit remote list|attach|stop|clean`: runs on other machines that you have left."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..show import add_json, answer
from . import hosts
from .client import ENDS, Run, to_terminal
from .flags import add_host_flags
from .front import RESULTS, print_report
from .ssh import RemoteError
from .tree import Tree, read_tree


def remote_parser() -> argparse.ArgumentParser:
    """Return the parser of remote."""
    parser = argparse.ArgumentParser(prog="labkit remote", description=remote.__doc__)
    parser.add_argument("what", choices=("list", "attach", "stop", "clean"))
    parser.add_argument(
        "run",
        nargs="?",
        default="",
        help="a run's name, or how it begins (default: the one run that there is)",
    )
    parser.add_argument("--stop", action="store_true", help="clean: end what still runs, too")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    add_json(parser)
    add_host_flags(parser)
    return parser


def remote(argv: Sequence[str] | None = None) -> int:
    """Show, fetch, stop or remove runs on other machines."""
    args = remote_parser().parse_args(argv)
    tree, err = read_tree(Path.cwd()), Console(stderr=True, highlight=False)
    if args.host:
        chosen, _ = hosts.resolve(args.host, args, tree, err)
    else:
        chosen = hosts.remembered(tree)
    if not chosen:
        raise RemoteError("no host was used from here yet; --host NAME says where to look")

    def say(text: str) -> None:
        err.print(f"[dim]{escape(text)}[/]", soft_wrap=True)

    links, jobs, code = [], [], 0
    for host in chosen:
        run = Run(host, tree, say, to_terminal)
        try:
            state = run.state()
        except RemoteError as error:
            err.print(f"[red]{escape(str(error))}[/]", soft_wrap=True)
            code = 2
            continue
        links.append(run)
        jobs += [(run, job) for job in state["jobs"]]
    answer["runs"] = [
        {"host": run.host.name, "run": job["id"], "state": job["state"]} for run, job in jobs
    ]
    if args.what == "list":
        Console().print(listing(jobs, tree))
        return code
    if args.what == "clean":
        return max(code, clean(links, jobs, args, tree, err))
    matching = [
        (run, job)
        for run, job in jobs
        if job["id"].startswith(args.run) and (args.run or job["origin"] == tree.origin())
    ]
    if len(matching) != 1:
        raise RemoteError(
            f"{len(matching)} runs fit; name one of: "
            + (", ".join(j["id"] for _, j in jobs) or "there are none")
        )
    run, job = matching[0]
    if args.what == "stop":
        job = run.link.call("stop", job["id"])
        if job["state"] != "ended":
            raise RemoteError(f"{job['id']} does not end; try again")
    else:
        job = run.follow(job["id"])
    report = run.collect(job, args.results)
    print_report(report, err, args.results)
    return 0 if args.what == "stop" else report.code


def listing(there: list[tuple[Run, dict[str, Any]]], tree: Tree) -> Table:
    """Return the runs as a table."""
    table = Table(box=None, pad_edge=False)
    for name in ("host", "run", "state", "minutes", "command"):
        table.add_column(name, overflow="fold")
    for run, job in there:
        done = job["done"] or {}
        seconds = done.get("seconds", run.facts["time"] - (job["created"] or run.facts["time"]))
        state = job["state"] if not done else ENDS.get(done["why"], "ended, to be fetched")
        if job["origin"] != tree.origin():
            state += " (of another working tree)"
        table.add_row(
            run.host.name,
            job["id"],
            state,
            f"{seconds / 60:.1f}",
            " ".join((job["argv"] or [])[1:]),
        )
    if not there:
        table.add_row("-", "none", "", "", "")
    return table


def clean(
    links: list[Run],
    there: list[tuple[Run, dict[str, Any]]],
    args: argparse.Namespace,
    tree: Tree,
    err: Console,
) -> int:
    """Fetch what has ended, end what runs if that is wanted, and remove all of ours there."""
    code = 0
    for run, job in there:
        if job["state"] != "ended" and not args.stop:
            err.print(
                f"{job['id']} is {job['state']} on {escape(run.host.name)}; --stop ends it",
                soft_wrap=True,
            )
            continue
        if job["origin"] != tree.origin():
            err.print(
                f"{job['id']} belongs to another working tree: run clean there", soft_wrap=True
            )
            continue
        if job["state"] != "ended":
            job = run.link.call("stop", job["id"])
        print_report(run.collect(job, args.results), err, args.results)
    for run in links:
        try:
            run.link.call("clean")
            err.print(f"{escape(run.host.name)} is clean", soft_wrap=True)
        except RemoteError as error:
            err.print(escape(str(error)), soft_wrap=True)
            code = 1
        run.link.close()
    return code
