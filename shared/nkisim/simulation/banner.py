"""One line on the first kernel run, so that a simulation is not taken for hardware."""

from __future__ import annotations

import os
import sys

from nkisim import __version__
from nkisim.chip import hw

_announced = False


def announce(target_name: str, why: str) -> None:
    """Print version, generation and who chose it to stderr, once per process.

    NKI_BANNER=0 silences it.
    """
    global _announced
    if _announced or os.environ.get("NKI_BANNER") == "0" or sys.stderr is None:
        return
    core = hw.get(target_name)
    _announced = True
    print(
        f"nkisim {__version__}: simulating {core.title} ({core.name}: {why}); no hardware is used",
        file=sys.stderr,
        flush=True,
    )
