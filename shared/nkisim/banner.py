"""One line on the first kernel run, so that nobody takes a simulation for hardware."""
from __future__ import annotations

import os
import sys

from nkisim import __version__

_GENERATION = {"trn1": "NeuronCore-v2", "inf2": "NeuronCore-v2", "trn2": "NeuronCore-v3"}
_announced = False


def announce(target_name: str) -> None:
    """Print backend, version and generation to stderr, once per process; NKI_BANNER=0 silences."""
    global _announced
    if _announced or os.environ.get("NKI_BANNER") == "0" or sys.stderr is None:
        return
    _announced = True
    core = _GENERATION.get(target_name)
    model = f"{core} ({target_name})" if core else target_name
    print(f"nkisim {__version__}: simulating {model}; no hardware is used",
          file=sys.stderr, flush=True)
