"""--watch: run a command again whenever a file beside the kernel changes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

_POLL_S = 0.3


def rerun(command: str, argv: Sequence[str], file: str) -> int:
    """Run `nkisim COMMAND argv` in a process of its own each time a file changes, until Ctrl-C.

    Watched are the Python files in the folder of `file`. Returns the exit code of the last run, 130
    if Ctrl-C stopped that run.
    """
    words = [word for word in argv if word != "--watch"]
    run = [sys.executable, "-m", "nkisim", command, *words]
    folder = Path(os.path.abspath(file)).parent
    if not folder.is_dir():
        print(f"nkisim {command}: there is no folder {folder} to watch", file=sys.stderr)
        return 2
    code = 130
    try:
        while True:
            before = _state(folder)
            code = 130  # until this run has ended
            code = subprocess.run(run).returncode
            print(f"-- exit code {code}; waiting for a change in {folder} --", file=sys.stderr)
            while _state(folder) == before:
                time.sleep(_POLL_S)
    except KeyboardInterrupt:
        return code


def _state(folder: Path) -> dict[str, tuple[int, int]]:
    """Return (time of change, size) of each Python file of a folder."""
    out = {}
    for path in folder.glob("*.py"):
        try:
            stat = path.stat()
        except OSError:  # an editor replaces it
            continue
        out[path.name] = (stat.st_mtime_ns, stat.st_size)
    return out
