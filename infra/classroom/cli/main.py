"""The command line. The playbooks call the same functions through commands.py."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

from rich.console import Console
from rich.table import Table

from ..aws.problems import ClassroomError
from . import commands
from .options import COMMANDS, OPTIONS
from .recording import recording


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    p = argparse.ArgumentParser(
        prog="python -m classroom",
        description="Bring a class of Trainium machines up, guard it, take it down.",
    )
    sub = p.add_subparsers(required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        spelled = name.replace("_", "-")
        s = sub.add_parser(spelled, help=command.help, description=command.help)
        s.set_defaults(command=name)
        s.add_argument("class_file", nargs="?", default="class.yml")
        s.add_argument("--limit", default="", help="students, separated by commas")
        s.add_argument("--check", action="store_true", help="change nothing, say what would change")
        s.add_argument("--json", action="store_true", help="print the result as JSON")
        s.add_argument(
            "--record",
            default="",
            metavar="FILE",
            help="append what AWS answers to FILE, without ids and names",
        )
        if command.asks:
            s.add_argument("--yes", action="store_true", help="do not ask")
        for option in command.options:
            if option.text:
                s.add_argument(option.flag, default="", metavar=option.text, help=option.help)
            else:
                s.add_argument(option.flag, action="store_true", help=option.help)
    return p


def main(argv: list[str] | None = None) -> int:
    """Run one command; exit code 0 done, 1 not all of it, 2 could not run."""
    args, out, err = (
        parser().parse_args(argv),
        Console(highlight=False),
        Console(stderr=True, highlight=False),
    )
    say = (
        (lambda _: None)
        if args.json
        else (lambda text: err.print(f"  {text}", style="dim", markup=False))
    )
    try:
        if (
            args.command == "provision"
            and not args.yes
            and not args.check
            and not _yes(args, out, "Start spending?", "forecast")
        ):
            return 2
        if (
            args.command == "teardown"
            and not args.yes
            and not args.dry_run
            and not args.check
            and not _yes(args, out, "Delete all of it?", "teardown")
        ):
            return 2
        if (
            args.command == "reserve"
            and not (args.yes or args.check or args.cancel)
            and not _yes(args, out, "Bill from now on?", "reserve")
        ):
            return 2
        options = {k: v for k, v in vars(args).items() if k in OPTIONS}
        with _recorded(args, options):
            result = commands.run(
                args.command,
                args.class_file,
                limit=[s for s in args.limit.split(",") if s],
                check=args.check,
                say=say,
                **options,
            )
    except ClassroomError as error:
        err.print(str(error), style="red", markup=False)
        return error.exit_code
    except KeyboardInterrupt:
        err.print(
            "Interrupted. What exists is guarded; run the same command again to go on, or teardown"
            " to remove it."
        )
        return 1
    if args.json:
        print(json.dumps(result, indent=1, default=str))
    else:
        show(result, out)
    return int(result.get("exit_code", 0))


def _recorded(args: argparse.Namespace, options: dict) -> AbstractContextManager[None]:
    if not args.record:
        return nullcontext()
    path = commands.class_path(args.class_file)
    return recording(args.record, args.command, path, options)


def _yes(args: argparse.Namespace, out: Console, question: str, preview: str) -> bool:
    extra = (
        {"dry_run": True, "name": args.name, "regions": args.regions}
        if preview == "teardown"
        else {}
    )
    show(
        commands.run(
            preview,
            args.class_file,
            limit=[s for s in args.limit.split(",") if s],
            check=True,
            **extra,
        ),
        out,
    )
    if not sys.stdin.isatty():
        out.print("Add --yes to go on without being asked.")
        return False
    return out.input(f"{question} Type yes: ").strip() == "yes"


def show(result: dict, out: Console) -> None:
    """Print warnings, tables, lists and the closing line of a result."""
    for problem in result.get("problems", []):
        out.print(f"Warning: {problem}", style="yellow", markup=False)
    for table in result.get("tables", []):
        if not table["rows"] and table.get("title"):
            out.print(f"{table['title']}: nothing", markup=False)
            continue
        words = [max(map(len, c.split()), default=0) for c in table["columns"]]
        narrow = sum(words) + 3 * len(words) + 1 > out.width  # then the space around cells goes
        t = Table(title=table.get("title"), title_justify="left", padding=(0, 0 if narrow else 1))
        for k, column in enumerate(table["columns"]):
            # folded: what is cut off cannot be told from its neighbours, nor copied
            right = k in table.get("right", [])
            side: Literal["right", "left"] = "right" if right else "left"
            t.add_column(column, justify=side, overflow="fold", min_width=words[k])
        for row in table["rows"]:
            t.add_row(*map(str, row))
        out.print(t)
    for line in result.get("lines", []):
        out.print(line, markup=False, soft_wrap=True)  # policies are copied from here
    for line in result.get("changes", []):
        out.print(("would " if result.get("check") else "") + line, markup=False)
    for line in result.get("warnings", []):
        out.print(f"Note: {line}", style="yellow", markup=False)
    if result.get("summary"):
        out.print(result["summary"], style="bold", markup=False)
