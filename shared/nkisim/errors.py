"""Errors as a textbook: every rule of the chip that a kernel can break, said in five slots.

what happened - the limit - what you gave - where in your kernel - what to try.
Rules live in `RULES`; `python -m nkisim explain ID` prints a rule's page.
"""
from __future__ import annotations

import linecache
import os
import sys
from dataclasses import dataclass

_HERE = os.path.dirname(os.path.abspath(__file__))


@dataclass(frozen=True)
class Where:
    """A place in the user's code."""

    file: str
    line: int
    function: str = ""

    @property
    def text(self) -> str:
        """Return the source line, stripped; empty if the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}"
        return f"{place} in {self.function}" if self.function else place


def is_ours(filename: str) -> bool:
    """Tell whether a source file belongs to the simulator rather than to the user."""
    return filename.startswith(_HERE) or filename.startswith("<frozen")


def find_where(depth: int = 1) -> Where | None:
    """Return the innermost frame outside the simulator, or None."""
    frame = sys._getframe(depth)
    while frame is not None:
        if not is_ours(frame.f_code.co_filename):
            return Where(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return None


class NkiError(ValueError):
    """A rule of NKI or of the chip that a kernel broke.

    Attributes: `id` (stable, e.g. "NKI-P01"), `name` (the SDK's name of the condition, e.g.
    "err_num_partition_exceed_arch_limit", or ""), `what`, `limit`, `given`, `where` (`Where` or
    None), `hint`.
    """

    def __init__(self, id: str, what: str, *, name: str = "", limit: str = "", given: str = "",
                 where: Where | None = None, hint: str = ""):
        self.id, self.name, self.what = id, name, what
        self.limit, self.given, self.hint = limit, given, hint
        self.where = where
        super().__init__(what)

    def render(self) -> str:
        """Return the five slots as text, one a line; empty slots are left out."""
        raise NotImplementedError
