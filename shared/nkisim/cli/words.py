"""What all commands say: that they cannot run, and what may have been meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CannotRun(Exception):
    """There is nothing to run; the message is a sentence for the user, the exit code is 2."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the closest known word, or "" if none is near."""
    close = near(word, known)
    return f"; did you mean {close!r}?" if close else ""


def near(word: str, known: Iterable[str]) -> str:
    """Return the known word that may have been meant, "" if none is near.

    Near are words that start with each other, or that two of three letters of both make up in
    their order: "stroe" and "store", not "nothing" and "annotations".
    """
    words = list(known)
    close = difflib.get_close_matches(word.lower(), [w.lower() for w in words], n=1, cutoff=0.67)
    if not close and len(word) >= 3:
        close = [w.lower() for w in words if w.lower().startswith(word.lower())][:1]
    return next((w for w in words if close and w.lower() == close[0]), "")
