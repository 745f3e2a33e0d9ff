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
from collections.abc import Callable, Mapping, Sequence
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

#: A rule's id as people write it: NKI-P01, nki_p1, P01.
_ID = re.compile(r"(?:NKI)?[-_\s]*([A-Z])[-_\s]*([0-9]{1,2})")
_ABOUT = 8                              # rules that are shown about a word
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
    if name != "run":           # a script's streams are its own affair
        print_what_can_be()
    try:
        code = _load(COMMANDS[name][0])(rest)
        if name != "run" and sys.stdout is not None:
            sys.stdout.flush()
        return code
    except BrokenPipeError:  # `... | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return 2
    except KeyboardInterrupt:
        return 130


def print_what_can_be() -> None:
    """Let standard output show as `?` what its encoding lacks: messages quote lines and paths.

    In a pipe or a file that is Windows' 8-bit encoding, and one arrow in a comment would be a
    UnicodeEncodeError.
    """
    if getattr(sys.stdout, "errors", "") == "strict" and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")


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
    parser.add_argument("id", nargs="*",
                        help="as printed with the error, or the SDK's name of it; any other word: "
                             "the rules that are about it; without it: the list")
    parser.add_argument("--write", metavar="FILE", nargs="?", const="CHECKS.md",
                        help="write the pages of all rules to a file (CHECKS.md)")
    options = parser.parse_args(argv)
    rules = all_rules()
    if options.write:
        Path(options.write).write_text(pages(), encoding="utf-8")
        print(f"wrote {options.write}")
        return 0
    ids = [id for word in options.id for id in rules_meant(word, rules)]
    if not ids and not options.id:
        _list(sorted(rules), rules)
        return 0
    unknown = [word for word in options.id if not rules_meant(word, rules)]
    if unknown:
        print(f"nkisim explain: there is no rule {unknown[0]!r}{_near(unknown[0], rules)}\n"
              "python -m nkisim explain lists them all.", file=sys.stderr)
        return 2
    for number, id in enumerate(ids):
        print(("\n\n" if number else "")
              + f"{id}: {rules[id].title}\n\n{with_figures(rules[id].text.strip())}")
        for example in examples.of_rule(id):
            print(f"\n{example.introduction.replace('`', '')}\n")
            print(textwrap.indent(example.shown(), "    "))
    return 0


def _list(ids: Sequence[str], rules: Mapping[str, Any]) -> None:
    width = max((len(id) for id in ids), default=0)
    for id in ids:
        print(f"{id:<{width}}  {rules[id].title}")


def rules_meant(word: str, rules: Mapping[str, Any]) -> list[str]:
    """Return the ids that a word stands for: an id, however it is spelt, or the SDK's name."""
    spelt = _ID.fullmatch(word.strip().upper())
    if spelt:
        id = f"NKI-{spelt[1]}{int(spelt[2]):02}"
        return [id] if id in rules else []
    name = word.strip().lower().replace("-", "_")
    return sorted(id for id, rule in rules.items() if name and rule.name == name)


def _near(word: str, rules: Mapping[str, Any]) -> str:
    """Return what may have been meant: one rule, those of the letter, or those about a word."""
    word = word.strip()
    spelt = _ID.fullmatch(word.upper())
    there = sorted(id for id in rules if spelt and id[4] == spelt[1])
    if spelt and there and spelt[1] in SUBJECTS:
        return f"; {SUBJECTS[spelt[1]]}: {there[0]} to {there[-1]}"
    if spelt:
        return ""
    if re.match(r"NKI|[A-Z][0-9OI]+$", word.upper()):
        return did_you_mean(word.upper(), list(rules))
    if word.lower().startswith("err"):
        return did_you_mean(word.lower(), [r.name for r in rules.values() if r.name])
    about = [id for id in sorted(rules) if word and word.lower() in rules[id].title.lower()]
    about += [id for id in sorted(rules) if word and id not in about
              and re.search(rf"\b{re.escape(word.lower())}", rules[id].text.lower())]
    lines = [f"  {id}  {rules[id].title}" for id in about[:_ABOUT]]
    more = len(about) - len(lines)
    return "; about that:\n" + "\n".join(lines) + (f"\n  and {more} more" if more else "") \
        if lines else ""


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
