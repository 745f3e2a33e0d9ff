"""The commands of `python -m labkit`: one row each, loaded when it is called."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from importlib import import_module

from .cli import guarded
from .load import discover, labs_root
from .spec import SpecError

#: command -> module and function that do it, and what it is for
COMMANDS = {
    "simulate": ("cli:simulate", "run the labs without hardware"),
    "progress": ("progress:show_progress", "how far your kernels of a lab are (also: labkit LAB)"),
    "benchmark": ("fleet.bench:benchmark", "time the labs: measured on a chip, else predicted"),
    "profile": ("fleet.bench:profile", "pages and traces that show where the time goes"),
    "submit": ("submit.pack:submit", "pack what a lab asks for, and say what is missing"),
    "update": ("starter.update:update", "bring in fixes of the course staff"),
    "remote": ("remote.commands:remote", "look at other machines, run there, stop them"),
    "history": ("history.commands:history", "what was run, and how times changed"),
    "neuron": ("neuron.commands:neuron", "profiles of AWS's tools on a machine with a chip"),
    "verify_sim": ("neuron.verify:verify_sim", "simulator against SDK and chip"),
    "evaluate": ("grade.untrusted:evaluate", "nkisim evaluate, kernels of strangers in a sandbox"),
    "serve": ("grade.untrusted:serve", "nkisim serve, kernels of strangers in a sandbox"),
    "starter": ("starter.export:starter", "staff: export the students' repository"),
    "grade": ("grade.run:grade", "staff: grade a class in a sandbox"),
    "gradescope": ("grade.gradescope:gradescope", "staff: build the autograder for Gradescope"),
    "autograde": ("grade.gradescope:autograde", "Gradescope: grade one submission"),
    "completion": ("completion:completion", "what lets bash, zsh or fish complete all this"),
    "leaderboard": ("board.cli:leaderboard", "staff: sign verdicts, build or serve the contest"),
}
#: those that have commands of their own, which run on this machine
GROUPS = ("remote", "history", "neuron")
#: those that are nkisim's, whose options and JSON they have
NKISIMS = ("evaluate", "serve")


def _labs() -> list[str]:
    """Return the names of the labs here; none where there is no folder of them."""
    try:
        return discover(labs_root())
    except SpecError:
        return []


def usage() -> str:
    """Return the list of commands, a line each."""
    lines = ["usage: labkit COMMAND ...", ""]
    lines += [f"  {name:<12} {text}" for name, (_, text) in COMMANDS.items()]
    lines += ["", "labkit COMMAND --help says more about one of them."]
    return "\n".join([*lines, "labkit and python -m labkit are the same program."])


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = arguments[0] if arguments else ""
    if name not in COMMANDS and name in _labs():  # `labkit LAB`: how far its kernels are
        arguments.insert(0, name := "progress")
    if name not in COMMANDS:
        asked = name in ("-h", "--help", "help")
        close = difflib.get_close_matches(name, [*COMMANDS, *_labs()], n=1, cutoff=0.67)
        if name and not asked:
            hint = f"; did you mean {close[0]!r}?" if close else ""
            print(f"labkit: there is no command {name!r}{hint}\n", file=sys.stderr)
        print(usage(), file=sys.stdout if asked else sys.stderr)
        return 0 if asked else 2

    def command(rest: Sequence[str] | None) -> int:
        module, _, function = COMMANDS[name][0].partition(":")
        return int(getattr(import_module(f"labkit.{module}"), function)(rest))

    if name in NKISIMS:
        return guarded(command, arguments[1:], local=True, own_json=True)
    return guarded(command, arguments[1:], ("-m", "labkit", name), local=name in GROUPS)
