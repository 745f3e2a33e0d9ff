"""Flags that mean the same in every command, and what they set.

`--course`, `--target`, `--release` and `--level` say what a kernel is held against; `--json`,
`--timeout` and `--watch` how the command goes. What one of them says goes before the variables of
the environment, which go before pyproject.toml (docs/environment.md).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager

from nkisim import course
from nkisim.checks import strictness
from nkisim.chip import hw
from nkisim.cli.time_limit import DEFAULT_S
from nkisim.lint import level
from nkisim.lint.constructs import VERSIONS

#: variables that a command may set, and that are as before when it ends
VARIABLES = (
    course.VARIABLE,
    course.TARGETS_VARIABLE,
    hw.TARGET_VARIABLE,
    level.VERSION_VARIABLE,
    level.LEVEL_VARIABLE,
    strictness.VARIABLE,
)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say what a kernel is held against."""
    group = parser.add_argument_group("what is simulated")
    group.add_argument(
        "--course",
        metavar="NAME",
        help=f"{', '.join(course.COURSES)}: generation, dialect and release together; none: what "
        "AWS does not run, as well (default: NKI_COURSE, else [tool.nkisim] in pyproject.toml, "
        "else by the kernel's dialect: neuronxcc.nki trn1, import nki trn2)",
    )
    group.add_argument(
        "--target",
        metavar="NAME",
        help=f"the generation alone: {', '.join(hw.TARGETS)} (default: the course's)",
    )
    group.add_argument(
        "--release",
        "--language-version",
        choices=VERSIONS,
        metavar="V",
        help=f"the release of NKI, {VERSIONS[0]} to {VERSIONS[-1]} (default: "
        f"{level.VERSION_VARIABLE}, else the newest)",
    )
    group.add_argument(
        "--level",
        choices=strictness.LEVELS,
        help="how findings are taken. teach (the default): said, and errors fail; strict: warnings "
        "fail as well; off: none are looked for",
    )
    # names of before
    group.add_argument("--checks", dest="level", choices=strictness.LEVELS, help=argparse.SUPPRESS)
    group.add_argument("--language", choices=level.LEVELS, help=argparse.SUPPRESS)


def add_timeout(parser: argparse.ArgumentParser) -> None:
    """Add --timeout."""
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=DEFAULT_S,
        metavar="SECONDS",
        help=f"stop after this time, and name the line (default: {DEFAULT_S:g}; 0: no limit)",
    )


def add_watch(parser: argparse.ArgumentParser) -> None:
    """Add --watch."""
    parser.add_argument(
        "--watch",
        action="store_true",
        help="run again whenever a Python file in the folder of the kernel changes (Ctrl-C ends)",
    )


def seconds(text: str) -> float:
    """Parse a time limit."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"{text} is not a time; it must be 0 or more")
    return value


def settle(options: argparse.Namespace, file: str | None = None) -> str | None:
    """Do what the flags of `add_settings` say; return the target that is asked for, or None.

    `file`: the file that holds the kernel; the pyproject.toml nearest to it decides the course.
    Raises: NkiError for a course or target that there is not.
    """
    folder = os.path.dirname(os.path.abspath(file)) if file else None
    course.select(getattr(options, "course", None), folder)
    if getattr(options, "release", None):
        os.environ[level.VERSION_VARIABLE] = options.release
    if getattr(options, "level", None):
        os.environ[strictness.VARIABLE] = options.level
    if getattr(options, "language", None):
        os.environ[level.LEVEL_VARIABLE] = options.language
    target = hw.get(options.target).name if options.target is not None else None
    course.flag_target = target or ""
    return target


@contextmanager
def restored() -> Iterator[None]:
    """Leave the environment as it was: a command's settings are its own."""
    before = {name: os.environ.get(name) for name in VARIABLES}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
