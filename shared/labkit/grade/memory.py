"""How much memory judges may take together, and how many of them fit side by side."""

from __future__ import annotations

import os
from pathlib import Path

from ..spec import SpecError
from .sandbox import LIMITS

GIB = 1 << 30
SHARE = 0.8  # of the machine's memory: the rest is for everything else
LEAST = 2 * GIB  # of addresses: Python, NumPy and a small case
CGROUP = Path("/sys/fs/cgroup")


def machine() -> int:
    """Return the bytes of memory that this machine, or the container that it is, has."""
    try:
        most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 8 * GIB
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            most = min(most, int((CGROUP / name).read_text()))
        except (OSError, ValueError):  # "max", or no such file
            continue
    return most


def fit(jobs: int | None, per_judge: int, total: int) -> tuple[int, int]:
    """Return how many judges run at a time, and the bytes that each of them may take.

    `jobs`: as many as were asked for, None for as many as cores and memory allow. `per_judge`:
    what a judge of this plan needs; the student's process takes its own limit on top. `total`: of
    the machine. Raises SpecError if that many judges do not fit.
    """
    budget = int(SHARE * total)
    student = LIMITS["AS"]
    fits = max(1, budget // (per_judge + student))
    if jobs is None:
        return min(os.cpu_count() or 1, fits), min(per_judge, max(LEAST, budget - student))
    share = budget // jobs - student
    if jobs > 1 and share < LEAST:
        raise SpecError(
            f"--jobs {jobs} judges do not fit into {total / GIB:.3g} GB of memory: one may take "
            f"{per_judge / GIB:.3g} GB, and the submission's process {student / GIB:.3g} GB. "
            f"{fits} fit; leave --jobs out"
        )
    return jobs, min(per_judge, max(LEAST, share))
