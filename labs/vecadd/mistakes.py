"""What goes wrong with additions and transposes: the tester names what agrees with an output."""
from __future__ import annotations

from labkit import Mistake
from labkit.mistakes import TRANSPOSES

MISTAKES = {
    "add": (
        Mistake("only the first vector is stored: the second is never added",
                lambda right, a, b: right(a, 0 * b)),
        Mistake("only the second vector is stored: the first is never added",
                lambda right, a, b: right(0 * a, b)),
        Mistake("the vectors are multiplied, not added", lambda right, a, b: a * b),
        Mistake("the second vector is subtracted, not added", lambda right, a, b: right(a, -b)),
        Mistake("the first vector is subtracted, not added", lambda right, a, b: right(-a, b)),
    ),
    "transpose": TRANSPOSES,
}
