"""The lines of a source, as Python counts them."""

from __future__ import annotations

import io
import linecache


def lines_of(text: str) -> list[str]:
    """Return the lines of a source with their ends, as Python's parser counts them.

    str.splitlines also ends a line at a form feed and at the separators of Unicode.
    """
    return io.StringIO(text, newline="").readlines()


def register_source(file: str, text: str) -> None:
    """Let tracebacks, errors and whatever reads the source of a kernel find `text` as `file`."""
    linecache.cache[file] = len(text), None, lines_of(text), file
