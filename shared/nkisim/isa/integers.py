"""What instructions would write on integers if nothing were rounded to float32 (NKI-D10).

Each function returns an array, or one for each result with None for what is not looked at. All is
in double precision, which has every integer of 32 bits and every sum of a row of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..chip import ops, semantics
from ..machine.instruction import Instr
from ..machine.interface import Machine
from ..machine.overflow import exact
from .accumulators import LOAD_REDUCE, REDUCE, RESET_REDUCE, START
from .dve import in_order, lanes_of
from .table import SCALAR, VECTOR

Results = tuple[np.ndarray | None, ...]

#: functions of the Scalar Engine that make integers of integers
_WHOLE = frozenset(("copy", "relu", "abs", "square", "sign"))


def _second(ins: Instr) -> np.ndarray:
    return in_order(ins, 1).astype(np.float64)


def _operand(ins: Instr, k: int, rank: int) -> Any:
    """Return operand `k` of those that may be numbers; None if it is not given."""
    number, at = ins.scalars[k]
    if at < 0:
        return number
    value = exact(ins.srcs[at])
    return value.reshape((value.shape[0],) + (1,) * (rank - 1))


def tensor_tensor_scan(m: Machine, ins: Instr) -> np.ndarray:
    """Return r[i] = (data0[i] op0 r[i-1]) op1 data1[i]."""
    return semantics.tensor_tensor_scan(
        exact(ins.srcs[0]), _second(ins), _operand(ins, 0, 2), *ins.params, dtype=np.float64
    )


def tensor_scalar_cumulative(m: Machine, ins: Instr) -> np.ndarray:
    """Return r[i] = (src[i] op0 imm0) op1 r[i-1]."""
    op0, op1, cmd = ins.params
    state = {2: _held(m, VECTOR, ins), 4: _operand(ins, 1, 2)}.get(cmd)
    return semantics.tensor_scalar_cumulative(
        exact(ins.srcs[0]), op0, _operand(ins, 0, 2), op1, state, dtype=np.float64
    )[0]


def tensor_scalar_reduce(m: Machine, ins: Instr) -> Results:
    """Return data op0 operand0, and its reduction."""
    op0, reduce_op, reverse, cmd, negate = ins.params
    data = exact(ins.srcs[0])
    operand = _operand(ins, 0, data.ndim)
    value = np.asarray(op0.fn(operand, data) if reverse else op0.fn(data, operand))
    cmd = cmd if m.dialect.sums_in_registers else RESET_REDUCE
    total = _register(m, VECTOR, ins, value, reduce_op, cmd, _operand(ins, 1, 2))
    return value, -total if negate and total is not None else total


def activation(m: Machine, ins: Instr) -> Results | None:
    """Return op(data * scale + bias) of an `op` that makes integers of integers, and its sum."""
    fn, op, cmd = ins.params
    if fn.name not in _WHOLE:
        return None
    data = exact(ins.srcs[0])
    bias, scale = _operand(ins, 0, data.ndim), _operand(ins, 1, data.ndim)
    value = np.asarray(fn.fn(data * scale + (0.0 if bias is None else bias)))
    return value, None if op is None else _register(m, SCALAR, ins, value, op, cmd)


def select_reduce(m: Machine, ins: Instr) -> Results:
    """Return `on_true` where the predicate is not zero, else `on_false`, and the maximum."""
    reverse, cmd = ins.params
    on_true = _second(ins)
    chosen = (ins.srcs[0].np != 0) != reverse
    value = np.where(chosen, on_true, _operand(ins, 0, on_true.ndim))
    return value, _register(m, VECTOR, ins, value, ops.resolve_alu("maximum"), cmd)


def tensor_partition_reduce(m: Machine, ins: Instr) -> np.ndarray | None:
    """Return the sum across partitions, or their average."""
    op, divisor = ins.params
    if op.name != "add":
        return None
    return exact(ins.srcs[0]).sum(axis=0, keepdims=True) / divisor


# -- the accumulator registers ---------------------------------------------------------------------


def _held(m: Machine, engine: str, ins: Instr) -> np.ndarray | None:
    regs = m.core.registers.accumulators.get(engine)
    return None if regs is None else regs[lanes_of(ins.srcs[0])].astype(np.float64)


def _register(
    m: Machine, engine: str, ins: Instr, value: np.ndarray, op: Any, cmd: int, load: Any = None
) -> np.ndarray | None:
    """Return what a reduce_cmd leaves in the registers, (P, 1); None if it adds nothing."""
    if op.ufunc is None or cmd not in (REDUCE, RESET_REDUCE, LOAD_REDUCE):
        return None
    start = {REDUCE: _held(m, engine, ins), LOAD_REDUCE: load}.get(cmd)
    rows = value.reshape(value.shape[0], -1)
    first = np.broadcast_to(START[op.name] if start is None else start, (rows.shape[0], 1))
    return op.ufunc.reduce(np.concatenate((first, rows), axis=1), axis=1, keepdims=True)
