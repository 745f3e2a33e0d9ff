"""Which mechanism decides the time of a kernel: its kind, by which errors are told apart.

A model that was fitted to one kind says nothing about another one. So errors are listed by kind,
bands of the special kinds come from kernels of that kind alone, and `calibrate` also shows what
the model would say if it had never seen the kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..chip.hw import NeuronCore
from ..isa.dma import HARDWARE
from ..timing.cost import ELEMENT, Transfer, issue_us, too_small
from ..timing.schedule import Schedule
from ..timing.whatif import body_us
from ..trace.trace import OpSpec

TWO_CORES, RUN_TIME, SPILL, ELEMENTS = "two cores", "run-time address", "spill", "element-wise"
MODE = "DMA mode"
TINY, TENSOR, VECTOR, OTHER = "tiny", "PE-bound", "vector-bound", "other"
#: kinds that say nothing about each other, nor about kernels without such a mechanism: why
SPECIAL = {
    TWO_CORES: "hardly any measured kernel runs on several cores at once",
    RUN_TIME: "hardly any measured kernel gathers or scatters rows, whose descriptors GpSimd makes",
    MODE: "hardly any measured kernel asks for descriptors by hardware (dge_mode.hwdge)",
    SPILL: "what a compiler spills of such a kernel, and when, was hardly measured",
    ELEMENTS: "hardly any measured kernel moves its data element by element",
}
KINDS = (*SPECIAL, TINY, TENSOR, VECTOR, OTHER)
TINY_US = 50.0  # a body shorter than this is fixed costs for the most part
SEEN = 0.05  # of the DMAs: what is less is no matter
WEIGHTY = 0.25  # of the body or of the bytes: what decides


def kind_of(plan: Schedule, hw: NeuronCore, dge: bool, bound: str, cores: int = 1) -> str:
    """Return the kind of a kernel, one of KINDS; the first that holds."""
    if cores > 1:
        return TWO_CORES
    if gathers(plan, hw) >= SEEN:
        return RUN_TIME
    if modes(plan) >= SEEN:
        return MODE
    if spills(plan) >= WEIGHTY:
        return SPILL
    if share(plan, hw, dge, elements) >= WEIGHTY:
        return ELEMENTS
    if body_us(plan) < TINY_US:
        return TINY
    return {"tensor": TENSOR, "vector": VECTOR}.get(bound, OTHER)


def elements(x: Transfer) -> bool:
    """Return whether a DMA moves several elements a row, each by itself."""
    return x.descriptors > x.rows and x.nbytes <= ELEMENT * x.descriptors


def gathers(plan: Schedule, hw: NeuronCore) -> float:
    """Return which share of the DMAs have rows that data choose."""
    return _of_dmas(
        plan, lambda x, spec: x.maker == "gpsimd" and (spec.indirect or not too_small(x, hw))
    )


def modes(plan: Schedule) -> float:
    """Return which share of the DMAs have descriptors that the kernel lets the hardware make.

    Those of the host (dge_mode.none) are as those of the many kernels measured with static ones.
    """
    return _of_dmas(plan, lambda x, spec: getattr(spec.variant, "descriptors", "") in HARDWARE)


def _dmas(plan: Schedule) -> list[tuple[int, Transfer, OpSpec]]:
    """Return the DMAs of a schedule by their form: how often, what they move, and what they are."""
    count = np.bincount(plan.deps.spec, minlength=len(plan.transfers)).tolist()
    forms = zip(count, plan.transfers, plan.trace.op_specs)
    return [(n, x, spec) for n, x, spec in forms if x is not None]


def _of_dmas(plan: Schedule, is_it: Callable[[Transfer, OpSpec], bool]) -> float:
    dmas = _dmas(plan)
    matching = sum(n for n, x, spec in dmas if is_it(x, spec))
    return matching / (sum(n for n, _, _ in dmas) or 1)


def spills(plan: Schedule) -> float:
    """Return which share of the bytes that DMAs move are spills and their loads."""
    moved = [(n * x.nbytes, spec.row.spills) for n, x, spec in _dmas(plan)]
    return sum(nbytes for nbytes, spilled in moved if spilled) / (sum(n for n, _ in moved) or 1)


def share(plan: Schedule, hw: NeuronCore, dge: bool, is_it: Callable[[Transfer], bool]) -> float:
    """Return how much of the body such DMAs take, of their queue or of the DMA engines."""
    body = body_us(plan)
    count = np.bincount(plan.deps.spec, minlength=len(plan.transfers)).tolist()
    issued = served = 0.0
    for x, n in zip(plan.transfers, count):
        if x is not None and is_it(x):
            issued += n * issue_us(x, hw, dge)
            served += n * x.us * x.engines / hw.dma_engines
    return max(issued, served) / body if body > 0 else 0.0


def never_seen(kind: str, hw: NeuronCore) -> NeuronCore:
    """Return a core with the constants that would stand if a kind had never been measured.

    What the kind alone shows goes back to what holds without it: run-time addresses cost what the
    hardware's descriptors do, an element what the shortest descriptor does. Other kinds have no
    constants of their own, or ones that many kinds share.
    """
    t = hw.timing
    values: dict[str, Any] | None = {
        RUN_TIME: {"swdge_issue_us": t.dge_issue_us, "swdge_row_us": t.dge_row_us},
        ELEMENTS: {"dma_element_ns": t.dma_descriptor_floor_ns},
    }.get(kind)
    return hw if values is None else replace(hw, timing=replace(t, **values))
