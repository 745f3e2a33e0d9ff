"""What is shown of an uncaught exception: the user's frames, and all of a rule's slots.

`python script.py` and notebooks would show the simulator's frames between the user's, and of a
broken rule its first sentence alone.
"""

from __future__ import annotations

import sys
from types import TracebackType

from . import NkiError
from .frames import format_exception, trim


def install_hook() -> None:
    """Show uncaught exceptions of this program without our frames, unless it has its own way.

    Called when a kernel fails: programs in which none does keep Python's own way.
    """
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = show


def show(kind: type[BaseException], error: BaseException, tb: TracebackType | None) -> None:
    """Print an uncaught exception: a `sys.excepthook`."""
    error.__traceback__ = tb
    trim(error)
    # some rules travel inside the exception type that the SDK raises for them
    rule = getattr(error, "nki_error", error)
    if isinstance(rule, NkiError):
        print("\n".join(format_exception(rule, error.__traceback__)), file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, error.__traceback__)
