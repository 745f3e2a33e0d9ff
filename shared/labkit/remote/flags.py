"""The flags that say on which machine to run; `remote` does what they ask for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path


def asks_for_host(argv: Sequence[str]) -> bool:
    """Return whether arguments ask for another machine."""
    return any(a == "--host" or a.startswith("--host=") for a in argv)


def add_host_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say where to run."""
    group = parser.add_argument_group("on another machine")
    group.add_argument(
        "--host",
        metavar="NAME",
        help="run there over SSH: a name of your SSH configuration, several with "
        "commas, auto (your machine of the class), all (the whole class) or "
        "cluster (the class's queue)",
    )
    group.add_argument(
        "--keep",
        action="store_true",
        help="with --host auto: do not stop a machine that was started for this",
    )
    group.add_argument(
        "--run-limit",
        type=float,
        default=60.0,
        metavar="MINUTES",
        help="a run there that takes longer is ended (default: %(default)g)",
    )
    group.add_argument(
        "--class",
        dest="class_file",
        type=Path,
        metavar="FILE",
        help="the class.yml for auto and all (default: LABKIT_CLASS, class.yml)",
    )
    group.add_argument("--student", metavar="NAME", help="who you are in the class's roster")
