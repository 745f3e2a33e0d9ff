"""What two cores of kernel[2] do to the same bytes of HBM without waiting for each other.

nisa.core_barrier orders what the cores do with the tensor that it names, and nothing else: other
tensors are moved by DMAs that its engine does not hold up. An exchange (nisa.sendrecv) is taken to
order everything. So a tensor in HBM is another one after each wait that orders it, and two cores
that meet in one of them have a race.
"""

from __future__ import annotations

import numpy as np

from ..chip.memory import HBM
from ..trace.rewrite import Draft
from ..trace.trace import Trace, operand_at


def between_waits(trace: Trace, nodes: list[int]) -> Trace:
    """Return the record of cores with other tensors in HBM after each wait that orders them.

    `nodes`: the node of each core in the record.
    """
    specs = trace.spec_ids()
    meets = np.array([k.row.is_collective for k in trace.op_specs] or [False])[specs]
    if not meets.any():
        return trace
    barrier = meets & np.array([k.engine != "dma" for k in trace.op_specs])[specs]
    accesses, draft = trace.operands(), Draft(trace)
    epoch = np.zeros(len(accesses.instr), np.int64)
    for core in nodes:
        own = trace.below(core)
        owner = own[accesses.instr]
        epoch[owner] += np.cumsum(meets & ~barrier & own)[accesses.instr[owner]]
        named = owner & barrier[accesses.instr] & accesses.write
        for storage in np.unique(accesses.storage[named]).tolist():
            at = accesses.instr[named & (accesses.storage == storage)]
            uses = owner & (accesses.storage == storage)
            epoch[uses] += np.searchsorted(at, accesses.instr[uses])
    later = np.flatnonzero((epoch > 0) & trace.storages.table().hbm[accesses.storage])
    pairs, which = np.unique(
        np.stack([accesses.storage[later], epoch[later]]), axis=1, return_inverse=True
    )
    new = np.array([draft.storage(s, HBM) for s in pairs[0].tolist()], np.int64)
    if len(later):
        draft.rows[operand_at(draft.starts[accesses.instr[later]], accesses.number[later])] = new[
            which.reshape(-1)
        ]
    draft.dropped |= barrier
    return draft.finish()
