"""What a command answers: text for people, or one JSON object for programs, and the exit code.

The object, which `--json` prints to standard output whatever happens (docs/json.md):

    {"schema": "nkisim.check/1", "command": "check", "nkisim": "0.2.0", "exit_code": 1,
     "error": null or {...}, ... the command's own fields}

0: all well, 1: something failed, 2: it could not run.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from nkisim.cli.document import Parser, document, json_first, print_json, sentence
from nkisim.cli.settings import restored
from nkisim.cli.time_limit import OutOfTime, limited
from nkisim.cli.words import CannotRun
from nkisim.errors import NkiError
from nkisim.errors.frames import is_ours, known_as, trim

#: rules that say that the command was wrong, not the kernel
WRONG_CALL = (
    *("NKI-T01", "NKI-T02", "NKI-T03", "NKI-G00", "NKI-K16"),
    *("NKI-K09", "NKI-K10", "NKI-D01", "NKI-D02", "NKI-K03", "NKI-K04"),
)


def error_of(error: BaseException) -> dict[str, Any]:
    """Return an exception as a dict: a broken rule, a wrong call, or Python's own error."""
    rule = getattr(error, "nki_error", error)
    if isinstance(rule, NkiError):
        return {"kind": "rule", **rule.to_dict()}
    if isinstance(error, OutOfTime):
        return {**sentence(str(error), "time"), "where": error.place, "hint": error.hint}
    if isinstance(error, CannotRun):
        cause = error.__cause__
        return error_of(cause) if cause is not None else sentence(str(error))
    out = sentence(f"{type(error).__name__}: {error}", "python")
    if isinstance(error, SyntaxError):
        out["what"], out["given"] = f"SyntaxError: {error.msg}", (error.text or "").strip()
        out["where"] = {
            "file": error.filename or "",
            "line": error.lineno or 0,
            "function": "",
            "source": out["given"],
        }
        return out
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not is_ours(frame.filename):
            out["given"] = frame.line or ""
            out["where"] = {
                "file": known_as(frame.filename),
                "line": frame.lineno or 0,
                "function": frame.name,
                "source": frame.line or "",
                "text": frame.line or "",
            }
            break
    return out


def exit_code(end: SystemExit) -> int:
    """Return the exit code of a script that ended itself; print the text that it ended with."""
    if isinstance(end.code, str):
        print(end.code, file=sys.stderr)
        return 1
    return int(end.code or 0)


def arrays(outputs: Any) -> list[Any]:
    """Return what a kernel returned as a list of arrays."""
    if outputs is None:
        return []
    return list(outputs) if isinstance(outputs, tuple | list) else [outputs]


def code_of(error: BaseException) -> int:
    """Return the exit code of an exception: 1 if the kernel is to blame, 2 if nothing could run."""
    rule = getattr(error, "nki_error", error)
    if isinstance(rule, NkiError):
        return 2 if rule.id in WRONG_CALL else 1
    if isinstance(error, KeyboardInterrupt):
        return 130
    return 2 if isinstance(error, CannotRun | SyntaxError) else 1


def say(command: str, error: BaseException) -> None:
    """Print an exception to standard error as people read it."""
    rule = getattr(error, "nki_error", error)
    if isinstance(rule, NkiError):
        print(rule.render(), file=sys.stderr)
        if rule.id == "NKI-K04":
            print(
                "Give its arguments in order with --arg SHAPE:DTYPE, or by name with --kwarg.",
                file=sys.stderr,
            )
    elif isinstance(error, CannotRun | OutOfTime):
        hint = f"\n  try: {error.hint}" if isinstance(error, OutOfTime) else ""
        print(f"nkisim {command}: {error}{hint}", file=sys.stderr)
    else:
        trim(error)
        sys.excepthook(type(error), error, error.__traceback__)


def give(
    command: str,
    body: Callable[[], tuple[int, dict[str, Any]]],
    *,
    as_json: bool,
    seconds: float | None = None,
    kernels_only: bool = False,
) -> int:
    """Run a command's body, print its answer, return its exit code.

    `body` prints what people read, and returns (exit code, the command's own fields); with
    `as_json` what it prints goes to standard error. It may raise NkiError (exit code 1, or 2 for a
    wrong call), CannotRun (2) or what a kernel raises (1). `seconds`: its time limit, None or 0 for
    none; `kernels_only`: of each kernel that it runs.
    """
    error: dict[str, Any] | None = None
    fields: dict[str, Any] = {}
    try:
        with restored(), _aside(as_json), limited(seconds, kernels_only):
            code, fields = body()
    except BrokenPipeError:  # `... | head` has seen enough: main ends quietly
        raise
    except (Exception, KeyboardInterrupt) as problem:
        code, error = code_of(problem), error_of(problem)
        say(command, problem)
    if as_json:
        own = fields.pop("error", None)
        print_json(document(command, code, error or own, **fields))
    return code


@contextlib.contextmanager
def _aside(on: bool) -> Iterator[None]:
    """Send what is printed to standard error, for what is printed by a kernel is no JSON."""
    if not on:
        yield
        return
    with contextlib.redirect_stdout(sys.stderr):
        yield


__all__ = [
    "WRONG_CALL",
    "Parser",
    "arrays",
    "code_of",
    "document",
    "error_of",
    "exit_code",
    "give",
    "json_first",
    "print_json",
    "say",
    "sentence",
]
