"""The commands of `python -m labkit`: one row each, loaded when it is called."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from .cli import guarded
from .spec import TARGETS

#: command -> module and function that do it
COMMANDS = {
    "simulate": "cli:simulate",
    "benchmark": "fleet.bench:benchmark",
    "profile": "fleet.bench:profile",
    "remote": "remote.commands:remote",
    "history": "history.commands:history",
    "neuron": "neuron.commands:neuron",
    "verify_sim": "neuron.verify:verify_sim",
    "starter": "starter.export:starter",
    "update": "starter.update:update",
    "gradescope": "grade.gradescope:gradescope",
    "autograde": "grade.gradescope:autograde",
    "leaderboard": "board.cli:leaderboard",
    "grade": "grade.run:grade",
    "submit": "submit.pack:submit",
}
#: those that have commands of their own, which run on this machine
GROUPS = ("remote", "history", "neuron")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = arguments[0] if arguments else ""
    if name not in COMMANDS:
        print(
            f"usage: python -m labkit {'|'.join(COMMANDS)} [LAB...] [--full] "
            f"[--target {'|'.join(TARGETS)}] [--seed N] [--results FILE]",
            file=sys.stderr,
        )
        return 0 if name in ("-h", "--help") else 2

    def command(rest: Sequence[str] | None) -> int:
        module, _, function = COMMANDS[name].partition(":")
        return int(getattr(import_module(f"labkit.{module}"), function)(rest))

    if name in GROUPS:
        return guarded(command, arguments[1:], local=True)
    return guarded(command, arguments[1:], ("-m", "labkit", name))
