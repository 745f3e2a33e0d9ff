"""Which of DVE and ACT runs what names no engine.

AWS's compiler shares such instructions out one by one, as a scheduler does that gives each to the
engine that is free. Counts of instructions in profiles say so: where products are slow copies
alternate, where one engine is behind with other work the other one has them.
"""

from __future__ import annotations

import copy
from array import array
from dataclasses import replace

import numpy as np

from ..chip.hw import NeuronCore
from ..isa.table import ANY, SCALAR, TENSOR, VECTOR
from ..trace.trace import SPEC, Trace
from . import cost


def share_out(trace: Trace, hw: NeuronCore, balance: bool = True) -> Trace:
    """Return the trace with an engine for every instruction that leaves it open.

    In program order, each goes to the engine that is idle first, if an instruction begins when its
    engine has done the one before and the Tensor Engine, at its best, all before it in the program.
    Without `balance`: to the first that it names.
    """
    specs, left_open = list(trace.op_specs), [k.engine == ANY for k in trace.op_specs]
    if not any(left_open):
        return trace
    ids = trace.spec_ids()
    on_scalar = np.arange(len(specs))  # the same spec on the Scalar Engine
    for k, spec in enumerate(trace.op_specs):
        if left_open[k]:
            specs[k] = replace(spec, engine=VECTOR if balance else spec.row.engines[0])
            on_scalar[k] = len(specs)
            specs.append(replace(spec, engine=SCALAR))
    out = copy.copy(trace)
    out.op_specs = specs
    if balance:
        open_ones = np.flatnonzero(np.array(left_open)[ids])
        gone = open_ones[_choose(trace, hw, ids)]
        rows = np.array(trace.rows, np.int64)
        rows[np.array(trace.starts, np.int64)[gone] + SPEC] = on_scalar[ids[gone]]
        out.rows = array("q")
        out.rows.frombytes(rows.tobytes())
    return out


def _choose(trace: Trace, hw: NeuronCore, ids: np.ndarray) -> np.ndarray:
    """Tell, of the instructions that leave their engine open, which go to the Scalar Engine."""
    takes = np.array(
        [
            [
                cost.work(k, hw, e).interval_us if k.engine in (ANY, e) else 0.0
                for e in (VECTOR, SCALAR)
            ]
            for k in trace.op_specs
        ]
    )
    pe = np.array(
        [
            cost.work(k, hw, TENSOR).interval_us if k.engine == TENSOR else 0.0
            for k in trace.op_specs
        ]
    )
    movable = np.flatnonzero(takes[ids].any(axis=1))  # what is for one of both
    pace = np.cumsum(pe[ids])[movable].tolist()
    either = np.array([k.engine == ANY for k in trace.op_specs])[ids[movable]].tolist()
    chosen = []
    vector = scalar = 0.0  # when they have done what they have
    for at, choose, (on_vector, on_scalar) in zip(pace, either, takes[ids[movable]].tolist()):
        to_scalar = not on_vector or choose and scalar <= vector
        if to_scalar:
            scalar = (scalar if scalar > at else at) + on_scalar
        else:
            vector = (vector if vector > at else at) + on_vector
        if choose:
            chosen.append(to_scalar)
    return np.array(chosen, bool)
