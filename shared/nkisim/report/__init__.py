"""What a person looks at: the page, the Perfetto trace and the summary of a profile.

All of them are made of a `Report`, which `load` reads back from what `save_json` (or `save_html`)
wrote. Every one says first that its times are predicted.
"""

from __future__ import annotations

import json
import os
from typing import Any

from .columns import Report, ReportError, load
from .document import report_of
from .html import inline, save_html
from .measured import both, load_measured
from .perfetto import save_perfetto
from .summary import summary
from .table import save_table

__all__ = [
    "Report",
    "ReportError",
    "both",
    "inline",
    "load",
    "load_measured",
    "report_of",
    "save_html",
    "save_json",
    "save_perfetto",
    "save_table",
    "summary",
]


def save_json(prof: Any, path: str | os.PathLike[str]) -> None:
    """Write a profile for `load` and `python -m nkisim view`."""
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(as_json(prof) + "\n")


def as_json(prof: Any) -> str:
    """Return what `save_json` writes; its `head` holds metrics, findings and advice."""
    return json.dumps(report_of(prof).pack(), separators=(",", ":"), allow_nan=False)
