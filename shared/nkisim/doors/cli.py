"""The command line: `python -m nkisim COMMAND`.

A command is a function that takes the remaining arguments and returns an exit code
(0 all well, 1 failed, 2 could not run). Only the module of the command in use is imported.
"""
from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from nkisim import __version__
from nkisim.doors import examples

#: the letter of an id -> what such rules are about
SUBJECTS = {"P": "Partitions", "S": "Shapes", "I": "Indexing", "D": "Data types", "M": "Memories",
            "E": "Engines", "L": "Loops", "O": "Outputs", "U": "Memory that nothing has written",
            "A": "Direct allocation", "K": "Kernels, calls and settings", "G": "The language",
            "N": "The package nki", "R": "What compilers refuse", "C": "Records",
            "T": "Targets", "X": "Calls that are not understood"}

#: Command -> (module of this room:function, one line of help). A new command is a new row.
COMMANDS = {
    "run": ("script:command", "run a script with neuronxcc.nki served by the import rule"),
    "check": ("check:command", "run a script and report all that is wrong with its kernels"),
    "profile": ("profile_cli:command", "predict a kernel's time, and show where it goes"),
    "tune": ("tune_cli:command", "predict a kernel with many values, and run the fastest"),
    "view": ("view:command", "open a saved profile in the browser"),
    "doctor": ("doctor:command", "say what would serve neuronxcc.nki here, and why"),
    "lint": ("lint_cli:command", "say what a compiler of NKI refuses in the source of kernels"),
    "migrate": ("migrate_cli:command", "rewrite kernels of neuronxcc.nki for import nki"),
    "explain": ("cli:explain", "print the page of an error id, such as NKI-P01"),
    "calibrate": ("calibrate:command", "compare the latency model with published "
                  "measurements"),
    "coverage": ("coverage:command", "list what is modelled of the names of NKI"),
    "enable": ("enable:enable_command", "let every program of this venv use the simulator"),
    "disable": ("enable:disable_command", "undo enable"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_usage(), file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version"):
        print(f"nkisim {__version__}")
        return 0
    name, rest = arguments[0], arguments[1:]
    if name not in COMMANDS:
        print(f"nkisim: there is no command {name!r}{did_you_mean(name, COMMANDS)}\n\n{_usage()}",
              file=sys.stderr)
        return 2
    try:
        code = _load(COMMANDS[name][0])(rest)
        if name != "run" and sys.stdout is not None:  # a script's streams are its own affair
            sys.stdout.flush()
        return code
    except BrokenPipeError:  # `... | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return 2
    except KeyboardInterrupt:
        return 130


def _load(target: str) -> Callable[[list[str]], int]:
    module, _, function = target.partition(":")
    return getattr(import_module(f"nkisim.doors.{module}"), function)


def _usage() -> str:
    lines = ["usage: python -m nkisim COMMAND ...", ""]
    lines += [f"  {name:<9} {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join([*lines, "", "python -m nkisim COMMAND --help says more about one of them."])


def did_you_mean(word: str, known: Sequence[str] | dict) -> str:
    """Return "; did you mean 'x'?" for the closest known word, or ""."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def with_figures(text: str) -> str:
    """Replace each `{field}` of a rule's text by what the field of hw is on each target."""
    from nkisim.chip import hw

    def figures(found: re.Match) -> str:
        values: dict[str, list[str]] = {}
        for core in hw.CORES:
            value = getattr(core, found[1])
            shown = hw.size(value) if found[1].endswith("_bytes") else str(value)
            values.setdefault(shown, []).append(core.name)
        if len(values) == 1:
            return next(iter(values))
        return ", ".join(f"{shown} on {' and '.join(names)}" for shown, names in values.items())
    return re.sub(r"\{(\w+)\}", figures, text)


def explain(argv: list[str]) -> int:
    """Print the page of one rule, or the list of all rules."""
    parser = argparse.ArgumentParser(prog="python -m nkisim explain", description=explain.__doc__)
    parser.add_argument("id", nargs="?", help="as printed with the error; without it: the list")
    parser.add_argument("--write", metavar="FILE", nargs="?", const="CHECKS.md",
                        help="write the pages of all rules to a file (CHECKS.md)")
    options = parser.parse_args(argv)
    wanted = options.id
    rules = all_rules()
    if options.write:
        Path(options.write).write_text(pages(), encoding="utf-8")
        print(f"wrote {options.write}")
        return 0
    if wanted is None:
        width = max((len(id) for id in rules), default=0)
        for id in sorted(rules):
            print(f"{id:<{width}}  {rules[id].title}")
        return 0
    id = wanted.strip().upper()
    if id not in rules:
        print(f"nkisim explain: there is no rule {wanted!r}{did_you_mean(id, rules)}\n"
              "python -m nkisim explain lists them all.", file=sys.stderr)
        return 2
    print(f"{id}: {rules[id].title}\n\n{with_figures(rules[id].text.strip())}")
    for example in examples.of_rule(id):
        print(f"\n{example.introduction.replace('`', '')}\n")
        print(textwrap.indent(example.shown(), "    "))
    return 0


def all_rules() -> dict[str, Any]:
    """Return the rules of all tables: some rows of other tables are rules as well."""
    import nkisim.language.nki.refusals
    import nkisim.lint.constructs  # noqa: F401
    from nkisim.errors import RULES
    return RULES


def pages() -> str:
    """Return CHECKS.md: the pages of all rules, by what they are about."""
    rules = all_rules()
    lines = ["# What the simulator checks", "",
             "Each error and finding has an id; `python -m nkisim explain ID` prints its page, and",
             "`python -m nkisim check script.py` reports on all kernels of a script. Written by",
             "`python -m nkisim explain --write`; a test keeps it up to date.", ""]
    for letter, subject in SUBJECTS.items():
        ids = sorted(id for id in rules if id[4] == letter)
        if not ids:
            continue
        lines += [f"## {subject}", ""]
        for id in ids:
            text, _, hint = with_figures(rules[id].text.strip()).partition("\nTry: ")
            name = f" (`{rules[id].name}` in the SDK)" if rules[id].name else ""
            lines += [f"### {id}: {rules[id].title}", "", text + name, ""]
            lines += [f"Try: {hint}", ""] if hint else []
            lines = [line.replace("](", "]\\(") for line in lines]         # code, no link
            for example in examples.of_rule(id):
                lines += [example.introduction, "", "```diff", example.shown(), "```", ""]
    return "\n".join(lines)
