"""The accumulator registers of the Vector and the Scalar Engine: one float32 a partition."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..chip import semantics
from ..machine.instruction import Instr
from ..machine.interface import Machine
from .dve import lanes_of
from .operands import is_scalar

IDLE, RESET, REDUCE, RESET_REDUCE, LOAD_REDUCE = range(5)  # nisa.reduce_cmd
UNUSED, BEGINS, GOES_ON = range(3)  # how an instruction uses the registers
START = {
    "add": 0.0,
    "multiply": 1.0,
    "maximum": -np.inf,
    "minimum": np.inf,
    "abs_max": 0.0,
    "abs_min": np.inf,
}


def use(cmd: int, reads: bool) -> int:
    """Return how an instruction uses the registers: not, from a start of its own, or going on.

    What goes on adds to, or reads out, what the instructions before it have left there.
    """
    if cmd == REDUCE or cmd == IDLE and reads:
        return GOES_ON
    return UNUSED if cmd == IDLE else BEGINS


def drive(
    m: Machine, engine: str, ins: Instr, value: np.ndarray, op: Any, cmd: int, load: Any = 0.0
) -> np.ndarray:
    """Do a reduce_cmd with the registers of an engine; return what they hold, (P, 1)."""
    regs = m.core.registers.accumulators.get(engine)
    if regs is None:
        regs = m.core.registers.accumulators[engine] = np.zeros((m.hw.pmax, 1), dtype=np.float32)
    lanes = lanes_of(ins.srcs[0])
    if cmd in (RESET, RESET_REDUCE):
        regs[lanes] = START[op.name]
    if cmd == LOAD_REDUCE:
        regs[lanes] = np.float32(load) if is_scalar(load) else load
    if cmd in (REDUCE, RESET_REDUCE, LOAD_REDUCE):
        rows = value.reshape(value.shape[0], -1)
        regs[lanes] = (semantics.accumulate if op.reducible else _folded)(op, rows, regs[lanes])
    return regs[lanes]


def _folded(op: Any, rows: np.ndarray, state: np.ndarray) -> np.ndarray:
    """Reduce by abs_max or abs_min: the last one of the greatest or smallest magnitude."""
    values = np.concatenate((state, rows), axis=1)[:, ::-1]
    sizes = np.abs(values)
    at = (sizes.argmax if op.name == "abs_max" else sizes.argmin)(axis=1)
    return np.take_along_axis(values, at[:, None], axis=1)
