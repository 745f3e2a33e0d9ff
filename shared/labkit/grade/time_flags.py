"""Times that cannot be, and times that the staff should look at.

A latency model forgets something: a kernel that is faster than the chip can be has found it. So a
time below the floor of its case fails; one near it, or faster than staff's by more than the model
is off by, is listed with its profile. The floor is physics: bytes, operations, a launch.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nkisim

from ..evaluate import FAILED, PASSED, Outcome
from ..inputs import dtype_of
from ..spec import Case

NEAR = 1.03  # of the floor: what is faster is looked at
UNKNOWN = 100.0  # %: the model's error where nothing is known about kernels of this kind
MOST = 4  # pages of a submission


def least_bytes(case: Case, outputs: Any) -> tuple[int, int]:
    """Return the bytes that have to come from HBM for a case, and those that have to go there."""
    came = sum(math.prod(t.shape) * dtype_of(t.dtype).itemsize for t in case.inputs) * case.reads
    arrays = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    return int(came), int(case.writes * sum(array.nbytes for array in arrays))


def floor_us(case: Case, target: str, outputs: Any) -> float:
    """Return the least time that any kernel can take for a case, in microseconds."""
    return nkisim.least_us(
        target,
        *least_bytes(case, outputs),
        flops=case.flops,
        dtype=case.inputs[0].dtype,
        moved=case.accumulate <= 1,
    )


def refuse(outcome: Outcome, least: float) -> None:
    """Fail a case whose predicted time is below its floor."""
    us = outcome.latency["p50"] if outcome.latency else 0.0
    if outcome.status != PASSED or not us or us >= least * (1 - 1e-9):
        return
    outcome.status = FAILED
    outcome.text = (
        f"the predicted time, {us:,.2f} us, is below {least:,.2f} us, the least in "
        f"which any kernel can do this on {outcome.target} (its bytes, its operations "
        "and the launch): it is not the time of this work, so it counts for nothing. "
        "If the kernel is honest, tell the staff: then the model is wrong"
    )


def review_reason(outcome: Outcome, least: float, staff_us: Mapping[str, float]) -> str:
    """Return why the staff should look at a case: its time is too good; "" if it is not."""
    us = outcome.latency["p50"] if outcome.latency else 0.0
    if not us or outcome.status != PASSED and us >= least:
        return ""
    name = f"{outcome.case.name} on {outcome.target}: {us:,.2f} us"
    if us < least:
        return f"{name} is below the floor, {least:,.2f} us"
    if us < NEAR * least:
        return f"{name} is within {100 * (NEAR - 1):.0f} % of the floor, {least:,.2f} us"
    staff = staff_us.get(f"{outcome.case.name}|{outcome.target}", 0.0)
    error_pct = outcome.stats.get("model_error_pct")
    off = UNKNOWN if error_pct is None else error_pct
    if us * (1 + off / 100) < staff:
        return (
            f"{name} is faster than staff's, {staff:,.2f} us, by more than the model's error, "
            + (f"{off:.0f} %" if error_pct is not None else "which is unknown")
        )
    return ""


def too_few_bytes(outcome: Outcome) -> str:
    """Return why the staff should look at the bytes of a case: fewer than it has; "" if not."""
    stats = outcome.stats
    moved = stats["hbm_read_bytes"] + stats["hbm_write_bytes"]
    if moved >= stats["least_bytes"]:
        return ""
    return (
        f"{outcome.case.name} on {outcome.target}: {moved:,} bytes of HBM, and its inputs and "
        f"outputs have {stats['least_bytes']:,}"
    )


class ReviewNotes:
    """What the staff should look at in a submission: `found`, and the `pages` of profiles by name.

    `staff_us`: the times of staff's own kernels, by "CASE|TARGET".
    """

    def __init__(self, staff_us: Mapping[str, float]):
        self.staff_us = staff_us
        self.found: list[dict[str, Any]] = []
        self.pages: dict[str, str] = {}

    def at(self, outcome: Outcome, reply: Mapping[str, Any], hidden: bool) -> None:
        """Judge the time of a case that has run; fail it if it cannot be."""
        if outcome.status != PASSED or not outcome.latency or "outputs" not in reply:
            return
        least = floor_us(outcome.case, outcome.target, reply["outputs"])
        outcome.stats["least_bytes"] = sum(least_bytes(outcome.case, reply["outputs"]))
        refuse(outcome, least)
        why = review_reason(outcome, least, self.staff_us) or too_few_bytes(outcome)
        if not why:
            return
        page = ""
        if len(self.pages) < MOST:
            page = f"{outcome.case.name}-{outcome.target}.html"
            self.pages[page] = page_of(reply["profile"])
        self.found.append(
            {
                "case": outcome.case.name,
                "target": outcome.target,
                "hidden": hidden,
                "what": why,
                "page": page,
            }
        )


def page_of(profile: Any) -> str:
    """Return the page of a profile."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        profile.save_html(path)
        return path.read_text(encoding="utf-8")
