"""Python's garbage collector, paused while a kernel is recorded.

It would decide what is recorded: whether a result that a kernel holds in a cycle is still in use
would depend on when the last collection was.

There is one collector for a process, so other threads' cycles wait as well; their memory comes
back with the first collection afterwards.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_inside = 0  # how many are in `paused()`, in all threads
_enabled = False  # what the first one found


@contextmanager
def paused() -> Iterator[None]:
    """Pause automatic collections; the last one to leave puts them back as the first one found."""
    global _inside, _enabled
    with _lock:
        _inside += 1
        if _inside == 1:
            _enabled = gc.isenabled()
            gc.disable()
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside and _enabled:
                gc.enable()
