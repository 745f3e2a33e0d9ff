"""The command line: `nkisim COMMAND`, or `python -m nkisim COMMAND`.

A command is a function that takes the remaining arguments and returns an exit code
(0 all well, 1 failed, 2 could not run). Only the module of the command in use is imported.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from nkisim import __version__
from nkisim.cli import document, examples, known_errors
from nkisim.cli.words import CannotRun, did_you_mean

#: the letter of an id -> what such rules are about
SUBJECTS = {
    "P": "Partitions",
    "S": "Shapes",
    "I": "Indexing",
    "D": "Data types",
    "M": "Memories",
    "E": "Engines",
    "L": "Loops",
    "O": "Outputs",
    "U": "Memory that nothing has written",
    "A": "Direct allocation",
    "K": "Kernels, calls and settings",
    "G": "The language",
    "N": "The package nki",
    "R": "What compilers refuse",
    "C": "Records",
    "T": "Targets",
    "X": "Calls that are not understood",
}

#: A rule's id as people write it: NKI-P01, nki_p1, P01.
_ID = re.compile(r"(?:NKI)?[-_\s]*([A-Z])[-_\s]*([0-9]{1,2})")
#: the SDK's names of conditions that a rule has beside its own
_ALSO = {
    "err_dynamic_control_flow_not_supported": "NKI-I08",
    "err_control_flow_condition_depending_on_arange": "NKI-I08",
    "err_leading_dimension_of_tensor_must_be_partition": "NKI-P03",
    "err_indirect_indices_sbuf": "NKI-I11",
    "err_tensor_index_not_supported": "NKI-I03",
    "err_copy_dynamic_indirect_indices_not_natively_supported": "NKI-I11",
    "err_instruction_unsupported_op": "NKI-E11",
    "err_par_reduce_unsupported_op": "NKI-E06",
    "err_unexpected_type_of_operand": "NKI-M02",
    "err_operand_cannot_be_none": "NKI-M02",
    "err_supported_operand_dtype": "NKI-D02",
    "err_unsupported_dtype_value": "NKI-D02",
    "err_param_shape_mismatch": "NKI-S02",
    "err_param_shape_incompatible_with_numpy": "NKI-S02",
    "err_param_shape_incompatible_with_matmul": "NKI-S02",
    "err_tile_shape_mismatch": "NKI-S05",
    "err_min_arch_support_for_inst": "NKI-E03",
    "err_exact_arch_support_for_inst": "NKI-E03",
    "err_atomic_rmw_add_only": "NKI-E04",
    "err_mask_not_equal_not_supported": "NKI-I07",
    "err_logic_or_not_supported": "NKI-I14",
    "err_program_id_axis_out_of_bounds": "NKI-K06",
    "err_while_loop_requires_unconditional_entry": "NKI-L09",
    "err_multi_cores_spmd_not_supported": "NKI-K06",
    "err_tensor_int32_add_multiply_supported_engine": "NKI-E13",
    "err_bitvec_operand_must_be_integer": "NKI-D06",
    "err_reduce_bitvec_op_invalid_dtype": "NKI-D06",
}
_ABOUT = 8  # rules that are shown about a word
#: a package that the wheel leaves out
CALIBRATION = "nkisim.calibration"
#: Command -> (module of nkisim:function, one line of help). A new command is a new row, and its
#: module hands out its parser (`completion.parser_of`).
COMMANDS = {
    "run": ("cli.script:command", "run a script with neuronxcc.nki served by the import rule"),
    "check": ("cli.check:command", "run a script and report all that is wrong with its kernels"),
    "profile": ("cli.profile:command", "predict a kernel's time, and show where it goes"),
    "tune": ("cli.tune:command", "predict a kernel with many values, and run the fastest"),
    "evaluate": ("cli.evaluate:command", "say whether a kernel is right, how fast, and how sure"),
    "serve": ("cli.serve:command", "evaluate kernels for a program: lines of JSON"),
    "compare": ("cli.compare:command", "evaluate kernels before and after a change, for CI"),
    "mcp": ("agents.mcp:command", "serve evaluate and more as tools of a language model"),
    "view": ("cli.view:command", "open a saved profile in the browser"),
    "doctor": (
        "cli.doctor:command",
        "say what serves neuronxcc.nki here; --log FILE: what a log says",
    ),
    "lint": ("cli.lint:command", "say what a compiler of NKI refuses in the source of kernels"),
    "migrate": ("cli.migrate:command", "rewrite kernels of neuronxcc.nki for import nki"),
    "explain": (
        "cli.main:explain",
        "print the page of an error: NKI-P01, NCC_EVRF051, or its words",
    ),
    "calibrate": (
        "cli.main:calibrate",
        "compare the latency model with published measurements",
    ),
    "coverage": ("cli.coverage:command", "list what is modelled of the names of NKI"),
    "completion": (
        "cli.completion:command",
        "print the script by which bash, zsh or fish completes this",
    ),
    "enable": ("cli.enable:enable_command", "let every program of this venv use the simulator"),
    "disable": ("cli.enable:disable_command", "undo enable"),
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
        print(
            f"nkisim: there is no command {name!r}{did_you_mean(name, COMMANDS)}\n\n{_usage()}",
            file=sys.stderr,
        )
        return 2
    if name != "run":  # a script's streams are its own affair
        replace_unencodable_output()
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


def replace_unencodable_output() -> None:
    """Let standard output show as `?` what its encoding lacks: messages quote lines and paths.

    In a pipe or a file that is Windows' 8-bit encoding, and one arrow in a comment would be a
    UnicodeEncodeError.
    """
    if getattr(sys.stdout, "errors", "") == "strict" and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")


def _load(target: str) -> Callable[[list[str]], int]:
    module, _, function = target.partition(":")
    return getattr(import_module(f"nkisim.{module}"), function)


def _usage() -> str:
    lines = ["usage: nkisim COMMAND ...", ""]
    lines += [f"  {name:<10} {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(
        [
            *lines,
            "",
            "nkisim COMMAND --help says more about one of them.",
            "nkisim and python -m nkisim are the same program.",
        ]
    )


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


def explain_parser() -> document.Parser:
    """Return the parser of explain."""
    parser = document.Parser("explain", description=explain.__doc__)
    parser.add_argument(
        "id",
        nargs="*",
        help="as printed with the error, the SDK's name of it, a code of the "
        "compiler or the runtime (NCC_EVRF051, NRT_EXEC_OOB), or a line of a log; a function "
        "of NKI (nc_matmul): its call and what it does; any other word: the rules about it; "
        "without it: the list of rules",
    )
    parser.add_argument("--all", action="store_true", help="the pages of all rules, as Markdown")
    document.add_json(parser)
    return parser


def explain(argv: list[str]) -> int:
    """Print the page of a rule or of an error of AWS's programs, or the list of all rules."""
    from nkisim.cli import answer

    options = explain_parser().parse_args(argv)
    return answer.give("explain", lambda: _explained(options), as_json=options.json)


def _explained(options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    rules = all_rules()
    if options.all or not options.id:
        if options.all:
            print(pages(), end="")
        else:
            _list(sorted(rules), rules)
        return 0, {"rules": [{"id": id, "title": rules[id].title} for id in sorted(rules)]}
    named = [page for word in options.id for page in _pages_of(word, rules)]
    unknown = [word for word in options.id if not _pages_of(word, rules)]
    if unknown:
        named = _pages_in(" ".join(options.id), rules)  # a line of a log, without its quotes
    if not named:
        from nkisim.cli import reference

        meant = did_you_mean(unknown[0].rpartition(".")[2], reference.names())
        raise CannotRun(
            f"there is no rule or function {unknown[0]!r}{meant}{_near(unknown[0], rules)}\n"
            "nkisim explain lists all rules."
        )
    names = list(dict.fromkeys(named))
    print("\n\n\n".join(names))
    return 0, {"pages": names}


def calibrate_parser() -> argparse.ArgumentParser:
    """Return the parser of calibrate; ModuleNotFoundError in an installation without it."""
    from nkisim.calibration.calibrate import parser

    return parser()


def calibrate(argv: Sequence[str]) -> int:
    """Compare the model with measurements, where the repository is: the wheel leaves that out."""
    try:
        from nkisim.calibration.calibrate import command
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(CALIBRATION):
            raise
        print(
            "nkisim calibrate: not in this installation. It is a tool for those who maintain the "
            "model:\nclone the repository and install it with  python -m pip install -e .",
            file=sys.stderr,
        )
        return 2
    return command(list(argv))


def pages_of(text: str) -> list[str]:
    """Return the pages of the rules and errors that a text names, [] if there are none."""
    rules = all_rules()
    pages = [page for word in text.split() for page in _pages_of(word, rules)]
    return list(dict.fromkeys(pages or _pages_in(text, rules)))


def _pages_of(word: str, rules: Mapping[str, Any]) -> list[str]:
    """Return the pages that one argument names: an id, the SDK's name, a code, a message."""
    ids = rules_meant(word, rules)
    if ids:
        return [_page_of(id, rules) for id in ids]
    from nkisim.cli import reference  # needs NumPy, which doctor may find missing

    if function := reference.page(word):
        about = _near(word.rpartition(".")[2], rules).removeprefix("; about that:\n")
        return [function + (f"\n\nRules about it:\n{about}" if "NKI-" in about else "")]
    return _pages_in(word, rules) if not _ID.fullmatch(word.strip().upper()) else []


def _pages_in(text: str, rules: Mapping[str, Any]) -> list[str]:
    """Return the pages of the errors that a text holds."""
    meant = known_errors.meant(text)
    if meant:
        return [known_errors.page_text(page, rules) for page in meant[:_ABOUT]]
    ids = [
        id for word in re.findall(r"NKI-[A-Z]\d\d|err_\w+", text) for id in rules_meant(word, rules)
    ]
    return [_page_of(id, rules) for id in dict.fromkeys(ids)]


def _page_of(id: str, rules: Mapping[str, Any]) -> str:
    lines = [f"{id}: {rules[id].title}\n\n{with_figures(rules[id].text.strip())}"]
    for example in examples.of_rule(id):
        lines += [
            f"\n{example.introduction.replace('`', '')}\n",
            textwrap.indent(example.diff(), "    "),
        ]
    return "\n".join(lines)


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
    return sorted(
        id for id, rule in rules.items() if name and rule.name == name or id == _ALSO.get(name)
    )


def _near(word: str, rules: Mapping[str, Any]) -> str:
    """Return what may have been meant: one rule, those of the letter, or those about a word."""
    word = word.strip()
    spelt = _ID.fullmatch(word.upper())
    ids = sorted(id for id in rules if spelt and id[4] == spelt[1])
    if spelt and ids and spelt[1] in SUBJECTS:
        return f"; {SUBJECTS[spelt[1]]}: {ids[0]} to {ids[-1]}"
    if spelt:
        return ""
    if re.match(r"NKI|[A-Z][0-9OI]+$", word.upper()):
        return did_you_mean(word.upper(), list(rules))
    if word.lower().startswith("err"):
        return did_you_mean(word.lower(), [r.name for r in rules.values() if r.name])
    about = [id for id in sorted(rules) if word and word.lower() in rules[id].title.lower()]
    about += [
        id
        for id in sorted(rules)
        if word
        and id not in about
        and re.search(rf"\b{re.escape(word.lower())}", rules[id].text.lower())
    ]
    lines = [f"  {id}  {rules[id].title}" for id in about[:_ABOUT]]
    more = len(about) - len(lines)
    return (
        "; about that:\n" + "\n".join(lines) + (f"\n  and {more} more" if more else "")
        if lines
        else ""
    )


def all_rules() -> dict[str, Any]:
    """Return the rules of all tables: some rows of other tables are rules as well."""
    import nkisim.language.nki.refusals
    import nkisim.lint.constructs  # noqa: F401
    from nkisim.errors.rules import RULES

    return RULES


def pages() -> str:
    """Return the pages of all rules as one, by what they are about."""
    rules = all_rules()
    lines = [
        "# What the simulator checks",
        "",
        "Each error and finding has an id; `python -m nkisim explain ID` prints its page, and",
        "`python -m nkisim check script.py` reports on all kernels of a script. Printed by",
        "`python -m nkisim explain --all`.",
        "",
    ]
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
            lines = [line.replace("](", "]\\(") for line in lines]  # code, no link
            for example in examples.of_rule(id):
                lines += [example.introduction, "", "```diff", example.diff(), "```", ""]
    return "\n".join(lines)
