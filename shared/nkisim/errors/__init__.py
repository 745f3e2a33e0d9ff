"""Errors as a textbook: every rule of the chip that a kernel can break, said in five slots.

what happened - the limit - what you gave - where in your kernel - what to try.
The rules themselves are in `rules.py`; `python -m nkisim explain ID` prints a rule's page.
"""

from __future__ import annotations

import functools
import linecache
import os
import reprlib
import sys
from collections.abc import Callable
from contextvars import ContextVar
from types import FrameType, TracebackType
from typing import Any, NamedTuple

import numpy as np

from ..dialect import BETA1, Dialect
from .frames import HERE, format_exception, is_ours, known_as
from .rules import RULES

_NUMPY = os.path.dirname(os.path.abspath(np.__file__)) + os.sep
_PYTHON = os.path.dirname(os.__file__) + os.sep
#: what calls the kernels of labs: testers and the grader
_CALLERS = tuple(
    os.path.join(os.path.dirname(HERE[:-1]), "labkit", f, "") for f in ("run", "grade")
)
_NEW_PROCESS = os.path.join(_PYTHON, "multiprocessing", "process.py")
_ours: dict[str, bool] = {}  # source file -> is it none of the user's?


class Where(NamedTuple):
    """A place in the user's code. A tuple: one is made for each line that issues instructions."""

    file: str
    line: int
    function: str = ""

    @property
    def text(self) -> str:
        """Return the source line, stripped; empty if the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        place = f"{known_as(self.file)}:{self.line}"
        return f"{place}, in {self.function}" if self.function else place

    @property
    def short(self) -> str:
        """Return file and line, without the folder."""
        return f"{os.path.basename(known_as(self.file))}:{self.line}"

    def to_dict(self) -> dict[str, Any]:
        """Return the place for JSON: file, line, function, source (the line itself)."""
        return {
            "file": known_as(self.file),
            "line": self.line,
            "function": self.function,
            "source": self.text,
            "text": self.text,  # its name in the first records of nkisim.evaluate/1
        }


def _is_not_users(file: str) -> bool:
    """Return whether a frame is no one's to mend: the simulator's, a tester's, Python's own."""
    if is_ours(file) or file.startswith((_NUMPY, *_CALLERS)):  # NumPy asks us back
        return True
    # packages lie below Python's library where there is no virtual environment
    return file.startswith(_PYTHON) and "-packages" not in file


def user_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame at or above `frame` that is the user's, or None."""
    while frame is not None:
        name = frame.f_code.co_filename  # a code object would take long to hash
        ours = _ours.get(name)
        if ours is None:
            ours = _ours[name] = _is_not_users(name)
        if not ours:
            return frame
        if name == _NEW_PROCESS:  # what is above it began the process
            return None
        frame = frame.f_back
    return None


def find_where() -> Where | None:
    """Return the place in the user's code that is being executed, or None."""
    frame = user_frame(sys._getframe(1))
    if frame is None:
        return None
    return Where(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def defined_at(func: Any) -> Where | None:
    """Return the place of a function's `def`, which is below its decorators; None if unknown."""
    code = getattr(func, "__code__", None)
    if code is None:
        return None
    first = code.co_firstlineno
    for line in range(first, first + 20):
        if linecache.getline(code.co_filename, line).lstrip().startswith(("def ", "async def ")):
            return Where(code.co_filename, line, code.co_name)
    return Where(code.co_filename, first, code.co_name)


#: the dialect of the kernel that runs: what to try is written in it
DIALECT: ContextVar[Dialect] = ContextVar("nkisim_dialect", default=BETA1)


class NkiError(ValueError):
    """A rule of NKI or of the chip that a kernel broke.

    Attributes: `id` (stable, e.g. "NKI-P01"), `name` (the SDK's name of the condition, e.g.
    "err_num_partition_exceed_arch_limit", or ""), `what`, `limit` (default: the rule's title),
    `given` (the user's source line), `where` (the user's current line, None if there is none),
    `hint` (the rule's). `str()` is the first sentence; `render()` is all five slots.
    """

    def __init__(
        self,
        id: str,
        what: str,
        *,
        name: str = "",
        limit: str = "",
        given: str = "",
        where: Where | None = None,
        hint: str = "",
        nki_hint: str = "",
    ):
        rule = RULES.get(id)
        hint = nki_hint if nki_hint and DIALECT.get().names_dst else hint
        self.id, self.what = id, what
        self.name = name or (rule.name if rule else "")
        self.where = where = where or find_where()
        self.limit = limit or (rule.title if rule else "")
        self.given = given or (where.text if where else "")
        self._gave = given  # as the caller said, before the default
        self._final = False  # its place is not moved any more
        self.hint = (
            hint or (rule.nki_hint if DIALECT.get().names_dst else "") or rule.hint
            if rule
            else hint
        )
        super().__init__(what)
        # what prints an exception (from Python 3.11 on) prints its notes
        self.__notes__ = [f"  try: {self.hint}"] * bool(self.hint) + [
            f"  more: python -m nkisim explain {id}"
        ]

    def _render_traceback_(self) -> list[str]:
        """Return what IPython and notebooks show: they ask exceptions for this method."""
        return format_exception(self, self.__traceback__)

    def at(self, where: Where | None, final: bool = False) -> NkiError:
        """Move the error to another place in the user's code, and return it; not after `final`."""
        if where is not None and not self._final:
            self.where, self._final = where, final
            self.given = self._gave or where.text
        return self

    def nowhere(self) -> NkiError:
        """Say that no line of a kernel is to blame, as for a variable of the environment."""
        self.where = None
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the error for JSON: id, name, what, limit, given, where, hint.

        `where` is None or {"file", "line", "function", "source"}; texts that there are not are "".
        """
        return {
            "id": self.id,
            "name": self.name,
            "what": self.what,
            "limit": self.limit,
            "given": self.given,
            "where": self.where.to_dict() if self.where else None,
            "hint": self.hint,
        }

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
            if self.where.text and self.where.text != self.given:
                lines.append(f"  {'':<10}  > {self.where.text}")
        if self.hint:
            lines.append(f"  {'try:':<10}{self.hint}")
        lines.append(f"  {'more:':<10}python -m nkisim explain {self.id}")
        return "\n".join(lines)


def fail(
    id: str,
    what: str,
    *,
    name: str = "",
    limit: str = "",
    given: str = "",
    hint: str = "",
    nki_hint: str = "",
    where: Where | None = None,
) -> NkiError:
    """Return the error for rule `id` at the user's current line; the caller raises it.

    `today`: the hint for kernels of the package nki, if it is another one.
    """
    return NkiError(
        id, what, name=name, limit=limit, given=given, hint=hint, nki_hint=nki_hint, where=where
    )


#: how Python's errors begin that speak of the call, not of what went on inside
_OF_CALLS = (
    "missing a required",
    "too many positional",
    "multiple values for",
    "got an unexpected",
    "got some positional-only",
)


def _kind(value: Any) -> str:
    """Return an argument in a few words."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        kind = getattr(value, "memory", getattr(value, "buffer", "array"))
        return f"{np.dtype(value.dtype).name}{list(value.shape)} ({getattr(kind, 'name', kind)})"
    return f"{reprlib.repr(value)} ({type(value).__name__})"


def not_understood(
    api: str,
    exc: BaseException,
    more: str = "",
    *,
    limit: str = "",
    hint: str = "",
    where: Where | None = None,
    given: dict[str, Any] | None = None,
) -> NkiError:
    """Return the error for a call that the simulator could not make sense of, and so raised `exc`.

    `more` goes on with what the exception says. `given`: the arguments by name, which are said in
    its place where it speaks of the inside of the simulator.
    """
    if isinstance(exc, OverflowError):
        return fail(
            "NKI-D03",
            f"{api} was given a number that is too large",
            where=where,
            limit="32 bits for constants, 64 bits for sizes and addresses",
            hint="print the number; sizes and offsets come from shapes, so that one beyond "
            "all memory is a product too many",
        )
    if given is not None and not str(exc).startswith(_OF_CALLS):
        return fail(
            "NKI-X01",
            f"{api} was not given what it takes{more}",
            limit=limit,
            hint=hint,
            where=where,
            given=", ".join(f"{k}={_kind(v)}" for k, v in given.items()),
        )
    return fail(
        "NKI-X01",
        f"{api} was not given what it takes: {str(exc).strip() or type(exc).__name__}{more}",
        limit=limit,
        hint=hint,
        where=where,
    )


def out_of_bound_at_run_time(index: int, size: int, offset: int = -1, room: int = 0) -> IndexError:
    """Return the IndexError of an indirect access beyond the tensor.

    `offset`: the index that the kernel gave; `room`: how many there are, 0 if that is not known.

    The SDK's own simulator raises a plain IndexError with the flattened element address, and
    tests of AWS's documentation compare its whole text: what more there is to say stands in notes,
    and the five slots travel in the attribute `nki_error`.
    """
    exc = IndexError(f"index {index} is out of bounds for axis 0 with size {size}")
    if room:
        note = f"[NKI-I02] run-time offset {offset}, of 0 .. {room - 1}"
        exc.__notes__ = [note]  # type: ignore[attr-defined]
    exc.nki_error = fail(  # type: ignore[attr-defined]
        "NKI-I02",
        "an indirect access goes beyond the tensor",
        given=f"flattened element address {index}"
        + (f": run-time offset {offset}" if room else ""),
        limit=f"{size} elements"
        + (
            f", offsets 0 .. {room - 1} of the dim that it counts"
            if room
            else "; on chip a pattern stays inside of its tensor, in each partition"
            if 0 <= index < size
            else ""
        ),
        hint="clip the indices, or pass oob_mode=nisa.oob_mode.skip to drop such rows",
    )
    return exc


def complete(made: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function return AttributeErrors to whose text Python adds no suggestion of its own."""

    @functools.wraps(made)
    def finished(*args: Any, **kwargs: Any) -> Any:
        error = made(*args, **kwargs)
        if isinstance(error, AttributeError):
            error.obj = ()  # Python fills in what it needs for that only where nothing is set
        return error

    return finished


def trim(exc: BaseException) -> BaseException:
    """Cut the simulator's own frames out of an exception's traceback, and return it.

    What remains ends in the user's code: if nothing remains, in the line that is being executed.
    """
    frames = []
    tb = exc.__traceback__
    while tb is not None:
        if not is_ours(tb.tb_frame.f_code.co_filename):
            frames.append((tb.tb_frame, tb.tb_lasti, tb.tb_lineno))
        tb = tb.tb_next
    if not frames:
        frame = user_frame(sys._getframe(1))
        if frame is not None:
            frames.append((frame, frame.f_lasti, frame.f_lineno))
    kept: TracebackType | None = None
    for frame, lasti, lineno in reversed(frames):
        kept = TracebackType(kept, frame, lasti, lineno)
    return exc.with_traceback(kept)


def _spoken(name: str) -> str:
    """Return what a method stands for that Python calls by itself, other names as they are."""
    if not name.startswith("__"):
        return name
    return {
        "__call__": "a call",
        "__getitem__": "a subscript",
        "__setitem__": "an assignment",
        "__index__": "a bound or a subscript",
        "__bool__": "a condition",
    }.get(name, "an operator")


def in_user_code(exc: BaseException) -> BaseException:
    """Return `exc`, trimmed, or the NkiError that replaces it if the simulator itself raised it.

    An exception of the simulator that is no sentence means a call that it could not make sense
    of: the innermost call out of the user's code is named.
    """
    import numpy

    numpy_home = os.path.dirname(numpy.__file__) + os.sep
    caller, called = None, None  # the last frame of the user, what it called
    tb = exc.__traceback__
    while tb is not None:
        code = tb.tb_frame.f_code
        if not is_ours(code.co_filename):
            if called is None or not code.co_filename.startswith(numpy_home):
                caller, called = tb, None
        elif called is None:
            called = code
        tb = tb.tb_next
    attribute = (
        isinstance(exc, AttributeError) and called is not None and called.co_name == "__getattr__"
    )
    if (
        called is None
        or attribute
        or isinstance(exc, (NkiError, RecursionError, MemoryError))
        or hasattr(exc, "nki_error")
    ):
        return trim(exc)
    where = caller and Where(
        caller.tb_frame.f_code.co_filename, caller.tb_lineno, caller.tb_frame.f_code.co_name
    )
    new = not_understood(_spoken(called.co_name), exc, where=where or None)
    new.__cause__, new.__suppress_context__ = None, True
    new.__context__ = exc
    return trim(new.with_traceback(exc.__traceback__))
