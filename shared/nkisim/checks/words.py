"""Words that findings share."""

from __future__ import annotations

import numpy as np


def region(bad: np.ndarray) -> str:
    """Return where elements lie, as a range per dimension: "[0:128, 256:512]"."""
    spans = [
        np.flatnonzero(bad.any(axis=tuple(e for e in range(bad.ndim) if e != d)))
        for d in range(bad.ndim)
    ]
    box = "[" + ", ".join(f"{s[0]}:{s[-1] + 1}" for s in spans) + "]"
    count, full = int(bad.sum()), int(np.prod([s[-1] + 1 - s[0] for s in spans]))
    return box if count == full else f"a part of {box} ({count:,} elements)"
