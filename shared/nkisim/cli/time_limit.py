"""A time limit for what a user's program does in a command, with the line that it is at.

A thread counts. When the time is over it notes the user's line and interrupts the main thread, as
Ctrl-C does: that works on every system and needs nothing of the program. A program that catches
even that is ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

from nkisim.errors import Where, user_frame
from nkisim.simulation import launch

#: seconds that a command gives a kernel by default
DEFAULT_S = 120.0
_GRACE_S = 10.0  # that a program has to end once it is interrupted


class OutOfTime(Exception):
    """The time limit is over; the message names the line. `place`: it as JSON has it, or None."""

    def __init__(self, seconds: float, where: Where | None, loop: Where | None):
        self.place: dict[str, Any] | None = where.to_dict() if where else None
        self.hint = "end the loop, or give it more time: --timeout SECONDS (0: no limit)"
        at = f" It was at {where}: {where.text}" if where else ""
        if loop is not None and where is not None and loop.line != where.line:
            at += f"\n  in the loop of line {loop.line}: {loop.text}"
        super().__init__(f"stopped after {seconds:g} s.{at}")


@contextlib.contextmanager
def limited(seconds: float | None, kernels_only: bool = False) -> Iterator[None]:
    """Raise OutOfTime in the body once it has run for `seconds`; None or 0: no limit.

    `kernels_only`: once one kernel has; a script may take its time between them. For the main
    thread; in another one nothing is limited.
    """
    if not seconds or threading.current_thread() is not threading.main_thread():
        yield
        return
    watch = _Watch(seconds, kernels_only)
    watch.start()
    try:
        yield
    except KeyboardInterrupt:
        if watch.problem is None:
            raise
        raise watch.problem from None
    finally:
        watch.done.set()


class _Watch(threading.Thread):
    """The thread that counts."""

    def __init__(self, seconds: float, kernels_only: bool):
        super().__init__(name="nkisim-time-limit", daemon=True)
        self.seconds, self.kernels_only = seconds, kernels_only
        self.done = threading.Event()
        self.problem: OutOfTime | None = None

    def run(self) -> None:
        began = time.monotonic()
        while (left := self._began(began) + self.seconds - time.monotonic()) > 0:
            if self.done.wait(min(left, 60.0)):
                return
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        where, loop = _place(frame)
        del frame
        self.problem = OutOfTime(self.seconds, where, loop)
        _interrupt()
        if not self.done.wait(_GRACE_S):  # it catches interrupts, or is in a call that does not end
            with contextlib.suppress(OSError, ValueError):
                print(
                    f"nkisim: {self.problem}\n  try: {self.problem.hint}",
                    file=sys.stderr,
                    flush=True,
                )
            os._exit(1)

    def _began(self, body: float) -> float:
        """Return when what is limited began: the body, or the kernel that runs now."""
        if not self.kernels_only:
            return body
        return next(iter(launch.RUNNING), time.monotonic())


def _interrupt() -> None:
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, signal.SIGINT)  # wakes a call that waits, too
        return
    import _thread

    _thread.interrupt_main()


def _place(frame: FrameType | None) -> tuple[Where | None, Where | None]:
    """Return (the user's line, the innermost loop around it) of a running thread."""
    frame = user_frame(frame)
    if frame is None:
        return None, None
    code = frame.f_code
    where = Where(code.co_filename, frame.f_lineno, code.co_name)
    return where, _loop_around(where)


def _loop_around(where: Where) -> Where | None:
    """Return the head of the innermost `while` or `for` that holds a line."""
    import ast

    from ..lint import program

    source = program.read(where.file)
    if source is None:
        return None
    loops = [
        node
        for node in ast.walk(source.tree)
        if isinstance(node, ast.While | ast.For)
        and node.lineno <= where.line <= (node.end_lineno or node.lineno)
    ]
    if not loops:
        return None
    return Where(where.file, max(node.lineno for node in loops), where.function)
