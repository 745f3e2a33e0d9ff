"""Whose code a frame is (user, simulator, library), and tracebacks without the simulator."""

from __future__ import annotations

import os
import re
import runpy
import sys
import sysconfig
import traceback
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import NkiError

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
#: the scripts that pip installs for the commands: bin/nkisim, Scripts/nkisim.exe/__main__.py
_LAUNCHER = re.compile(r"[/\\](?:nkisim|labkit)(?:\.exe)?(?:[/\\]__main__\.py)?$")


def known_as(file: str) -> str:
    """Return how the user knows a source file: a notebook's cell has no file to open."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    name = shell.compile.format_code_name(file) if shell is not None else None
    return " ".join(name) if name else file


def is_ours(filename: str) -> bool:
    """Return whether a source file belongs to the simulator rather than to the user."""
    return filename.startswith((HERE, "<frozen")) or _LAUNCHER.search(filename) is not None


def format_exception(rule: NkiError, tb: TracebackType | None) -> list[str]:
    """Return the lines for a broken rule: how the user's code came there, then its five slots."""
    frames = users_frames(tb)
    lines = []
    if frames is not None:
        text = "".join(traceback.format_tb(frames))
        for file in {frame.filename for frame in traceback.extract_tb(frames)}:
            text = text.replace(f'File "{file}"', f'File "{known_as(file)}"')
        lines = ["Traceback (most recent call last):", *text.splitlines()]
    return [*lines, *rule.render().splitlines()]


def trim(error: BaseException) -> None:
    """Drop the frames of the simulator from an exception and from those it came from."""
    todo: list[BaseException | None] = [error]
    seen: set[int] = set()
    while todo:
        one = todo.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = users_frames(one.__traceback__)
        todo += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]


def users_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Keep the user's frames, and those of libraries that the user, not the simulator, called."""
    kept: list[TracebackType] = []
    in_simulator = True  # a traceback may begin in a door or a notebook
    while traceback is not None:
        filename = traceback.tb_frame.f_code.co_filename
        if is_ours(filename) or filename == runpy.__file__:
            in_simulator = True
        elif traceback.tb_frame.f_code.co_name == "run_cell_magic" and _is_library(filename):
            in_simulator, kept = True, []  # what is above it is a cell that begins with %%nki
        elif not (in_simulator and _is_library(filename)):
            in_simulator = False
            kept.append(traceback)
        traceback = traceback.tb_next
    rebuilt = None
    for part in reversed(kept):
        rebuilt = TracebackType(rebuilt, part.tb_frame, part.tb_lasti, part.tb_lineno)
    return rebuilt


def _is_library(filename: str) -> bool:
    paths = sysconfig.get_paths()
    folders = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    parts = ("site-packages", "dist-packages")  # of users, and of the Python below a venv
    return filename.startswith(tuple(os.path.join(folder, "") for folder in folders)) or any(
        part in filename.split(os.sep) for part in parts
    )
