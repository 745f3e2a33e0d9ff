"""Replace a file at once, on Windows as well, where readers keep it from that."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

WINDOWS = sys.platform == "win32"
PATIENCE_S, PAUSE_S = 2.0, 0.02


def replace(source: str | Path, target: str | Path) -> None:
    """Rename a file over another; on Windows wait a little while a program has one of them open.

    A scanner for viruses opens what was just written, and so does who reads results meanwhile.
    """
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return os.replace(source, target)
        except PermissionError:
            if not WINDOWS or time.monotonic() > end:
                raise
        time.sleep(PAUSE_S)
