"""What people call a tensor: the parameter that it came in, or the variable it was assigned to."""

from __future__ import annotations

import linecache
import re
from collections.abc import Mapping

from .trace import Trace

_ASSIGNED = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:\[.*?\])?\s*(?::[^=]+)?[-+*/|&]?=(?!=)")


def assigned_on(file: str, line: int) -> str:
    """Return the variable that a line of a source file assigns to, "?" if there is none."""
    match = _ASSIGNED.match(linecache.getline(file, line))
    return match[1] if match else "?"


def storage_names(trace: Trace, given: Mapping[int, str]) -> dict[int, str]:
    """Return the name of each storage whose name is known; `given`: those of arguments."""
    places = trace.lines
    by_line = [assigned_on(w.file, w.line) for w in places]
    out = {
        s: by_line[line]
        for s, line in enumerate(trace.storages.table().line.tolist())
        if line >= 0 and by_line[line] != "?"
    }
    return {**out, **given}
