"""Where the simulator does not do what the documentation says, with the reason.

Names are those of the tests: "row-mask-dtype-rank" in test_row_matrix.py, with `*` for any, and
the ids of test_row_arguments.py. A test that is named here must fail: one that passes has been
mended, and its name goes.
"""
from __future__ import annotations

import fnmatch

import pytest

MATRIX: dict[str, str] = {}

ARGUMENTS: dict[str, str] = {}


def marks_of(name: str) -> list:
    """Return the marks of a test: that it must fail, if it is a known disagreement."""
    for known in (MATRIX, ARGUMENTS):
        for reason, names in known.items():
            if any(fnmatch.fnmatch(name, pattern) for pattern in names.split()):
                return [pytest.mark.xfail(strict=True, reason=reason)]
    return []
