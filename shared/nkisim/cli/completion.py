"""`nkisim completion bash|zsh|fish`: the script that lets a shell complete commands and flags.

It is made from the parsers of the commands, and needs nothing when it runs.
"""

from __future__ import annotations

import argparse

from nkisim import completion, course
from nkisim.chip import hw
from nkisim.cli import document
from nkisim.cli.main import CALIBRATION, COMMANDS

#: flags whose words are known without choices of argparse
_WORDS = {"--course": (*course.COURSES, course.NONE), "--target": hw.TARGETS}


def parser() -> document.Parser:
    """Return the parser of the command."""
    parser = document.Parser(
        "completion",
        description=__doc__.split(":", 1)[1],
        epilog=completion.setup("nkisim"),
    )
    parser.add_argument("shell", choices=completion.SHELLS)
    return parser


def command(argv: list[str]) -> int:
    """Print the script of a shell."""
    print(script(parser().parse_args(argv).shell))
    return 0


def script(shell: str) -> str:
    """Return the completion script of "bash", "zsh" or "fish"."""
    return program().script(shell)


def program() -> completion.Program:
    """Return nkisim, as it is completed."""
    made = ((name, _parser_of(name)) for name in COMMANDS)
    return completion.Program(
        "nkisim",
        {name: text for name, (_, text) in COMMANDS.items()},
        {name: parser for name, parser in made if parser is not None},
        _WORDS,
    )


def _parser_of(name: str) -> argparse.ArgumentParser | None:
    """Return the parser of a command, None for one that this installation does not have."""
    try:
        return completion.parser_of("nkisim", COMMANDS[name][0])
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(CALIBRATION):
            raise
        return None
