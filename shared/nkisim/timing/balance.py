"""Which of DVE and ACT runs what names no engine.

AWS's compiler shares such instructions out one by one: profiles of batched products show copies of
one kind on both engines, and the engines as busy as each other where the rest of their work is not.
"""
from __future__ import annotations

import copy
from array import array
from dataclasses import replace

import numpy as np

from ..chip.hw import NeuronCore
from ..chip.memory import PSUM
from ..isa.table import ANY, SCALAR, VECTOR
from ..trace.trace import KIND, Trace
from . import cost

_SIDES = (VECTOR, SCALAR)
_EQUAL = 1e-9                   # microseconds that make no difference


def share_out(trace: Trace, hw: NeuronCore, balance: bool = True) -> Trace:
    """Return the trace with an engine for every instruction that leaves it open.

    In program order, each goes to the engine that has less to do up to and with it; out of PSUM to
    the Scalar Engine when it makes no difference. Without `balance`: to the first that it names.
    """
    kinds, left_open = list(trace.kinds), [k.engine == ANY for k in trace.kinds]
    if not any(left_open):
        return trace
    ids = trace.kind_ids()
    on_scalar = np.arange(len(kinds))                   # the same kind on the Scalar Engine
    for k, kind in enumerate(trace.kinds):
        if left_open[k]:
            kinds[k] = replace(kind, engine=VECTOR if balance else kind.row.engines[0])
            on_scalar[k] = len(kinds)
            kinds.append(replace(kind, engine=SCALAR))
    out = copy.copy(trace)
    out.kinds = kinds
    if balance:
        mine = np.flatnonzero(np.array(left_open)[ids])
        gone = mine[_choose(trace, hw, ids, mine)]
        rows = np.array(trace.rows, np.int64)
        rows[np.array(trace.starts, np.int64)[gone] + KIND] = on_scalar[ids[gone]]
        out.rows = array("q")
        out.rows.frombytes(rows.tobytes())
    return out


def _choose(trace: Trace, hw: NeuronCore, ids: np.ndarray, mine: np.ndarray) -> np.ndarray:
    """Tell which of the instructions in `mine` go to the Scalar Engine."""
    takes = np.array([[cost.work(k, hw, e).interval_us if k.engine in (ANY, e) else 0.0
                       for e in _SIDES] for k in trace.kinds])
    fixed = np.where(np.array([k.engine == ANY for k in trace.kinds])[ids], 0.0,
                     (takes[:, 0] - takes[:, 1])[ids])
    ahead = np.cumsum(fixed)[mine].tolist()             # how much more DVE must do ...
    drains = np.array([any(p.kind is PSUM for p in k.operands) for k in trace.kinds])[ids[mine]]
    vector, scalar = takes[ids[mine]].T.tolist()
    chosen, more = [], 0.0                              # ... and was given
    for must, v, s, psum in zip(ahead, vector, scalar, drains.tolist()):
        gap = must + more + v - s
        to_scalar = gap > _EQUAL or psum and gap > -_EQUAL
        more += -s if to_scalar else v
        chosen.append(to_scalar)
    return np.array(chosen, bool)
