"""`labkit completion bash|zsh|fish`: the script that lets a shell complete commands and flags."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import nkisim

from .commands import COMMANDS
from .spec import SpecError


def completion_parser() -> argparse.ArgumentParser:
    """Return the parser of completion."""
    parser = argparse.ArgumentParser(
        prog="labkit completion",
        description=completion.__doc__,
        epilog=nkisim.completion.setup("labkit"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=nkisim.completion.SHELLS)
    return parser


def completion(argv: Sequence[str] | None = None) -> int:
    """Print the script that completes labkit in a shell."""
    print(program().script(completion_parser().parse_args(argv).shell))
    return 0


def program() -> nkisim.completion.Program:
    """Return labkit, as it is completed."""
    made = ((name, _parser_of(name)) for name in COMMANDS)
    course = nkisim.course
    return nkisim.completion.Program(
        "labkit",
        {name: text for name, (_, text) in COMMANDS.items()},
        {name: parser for name, parser in made if parser is not None},
        {"--course": (*course.COURSES, course.NONE), "--target": nkisim.TARGETS},
    )


def _parser_of(name: str) -> argparse.ArgumentParser | None:
    """Return the parser of a command, None where it needs labs and there are none here."""
    try:
        return nkisim.completion.parser_of("labkit", COMMANDS[name][0])
    except SpecError:
        return None
