"""Errors as a textbook: every rule of the chip that a kernel can break, said in five slots.

what happened - the limit - what you gave - where in your kernel - what to try.
The rules themselves are in `rules.py`; `python -m nkisim explain ID` prints a rule's page.
"""
from __future__ import annotations

import linecache
import os
import sys
from dataclasses import dataclass
from types import CodeType, FrameType, TracebackType

from .rules import RULES

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_ours: dict[CodeType, bool] = {}        # code object -> is it the simulator's own?


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
        return f"{place}, in {self.function}" if self.function else place


def is_ours(filename: str) -> bool:
    """Tell whether a source file belongs to the simulator rather than to the user."""
    return filename.startswith(_HERE) or filename.startswith("<frozen")


def user_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame at or above `frame` that is the user's, or None."""
    while frame is not None:
        code = frame.f_code
        ours = _ours.get(code)
        if ours is None:
            ours = _ours[code] = is_ours(code.co_filename)
        if not ours:
            return frame
        frame = frame.f_back
    return None


def find_where() -> Where | None:
    """Return the place in the user's code that is being executed, or None."""
    frame = user_frame(sys._getframe(1))
    if frame is None:
        return None
    return Where(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


class NkiError(ValueError):
    """A rule of NKI or of the chip that a kernel broke.

    Attributes: `id` (stable, e.g. "NKI-P01"), `name` (the SDK's name of the condition, e.g.
    "err_num_partition_exceed_arch_limit", or ""), `what`, `limit`, `given`, `where` (`Where` or
    None), `hint`. `str()` is the first sentence; `render()` is all five slots.
    """

    def __init__(self, id: str, what: str, *, name: str = "", limit: str = "", given: str = "",
                 where: Where | None = None, hint: str = ""):
        rule = RULES.get(id)
        self.id, self.what = id, what
        self.name = name or (rule.name if rule else "")
        self.limit, self.given = limit, given
        self.hint = hint or (rule.hint if rule else "")
        self.where = where
        super().__init__(what)

    def __str__(self) -> str:
        parts = [f"[{self.id}] {self.what}"]
        if self.given:
            parts.append(f"given: {self.given}")
        if self.limit:
            parts.append(f"limit: {self.limit}")
        return "; ".join(parts)

    def render(self) -> str:
        """Return the five slots as text, one a line; empty slots are left out."""
        head = f"{self.id} {self.what}"
        if self.name:
            head += f"  ({self.name})"
        lines = [head]
        for label, text in (("limit", self.limit), ("you gave", self.given)):
            if text:
                lines.append(f"  {label + ':':<10}{text}")
        if self.where is not None:
            lines.append(f"  {'where:':<10}{self.where}")
            if self.where.text:
                lines.append(f"  {'':<10}  > {self.where.text}")
        if self.hint:
            lines.append(f"  {'try:':<10}{self.hint}")
        lines.append(f"  {'more:':<10}python -m nkisim explain {self.id}")
        return "\n".join(lines)


def fail(id: str, what: str, *, limit: str = "", given: str = "", hint: str = "",
         where: Where | None = None) -> NkiError:
    """Return the error for rule `id` at the user's current line; the caller raises it."""
    return NkiError(id, what, limit=limit, given=given, hint=hint, where=where or find_where())


def out_of_bound_at_run_time(index: int, size: int) -> IndexError:
    """Return the IndexError of an indirect access beyond the tensor.

    The SDK's own simulator raises a plain IndexError with the flattened element address, and
    scripts match on both, so the five slots travel in the attribute `nki_error`.
    """
    text = f"index {index} is out of bounds for axis 0 with size {size}"
    exc = IndexError(text)
    exc.nki_error = fail(               # type: ignore[attr-defined]
        "NKI-I02", "an indirect access goes beyond the tensor",
        given=f"flattened element address {index}", limit=f"{size} elements",
        hint="clip the indices, or pass oob_mode=nisa.oob_mode.skip to drop such rows")
    return exc


def trim(exc: BaseException) -> BaseException:
    """Cut the simulator's own frames out of an exception's traceback, and return it."""
    kept: TracebackType | None = None
    frames = []
    tb = exc.__traceback__
    while tb is not None:
        if not is_ours(tb.tb_frame.f_code.co_filename):
            frames.append(tb)
        tb = tb.tb_next
    for tb in reversed(frames):
        kept = TracebackType(kept, tb.tb_frame, tb.tb_lasti, tb.tb_lineno)
    return exc.with_traceback(kept)
