"""Why an instruction waited for what it waited for last: for data, for memory, or for its time."""

from __future__ import annotations

import numpy as np

from .schedule import Schedule

#: codes of the column "why"
NOTHING, DATA, BUFFER, ORDER, SPACE, LEAD = range(6)


def reasons(plan: Schedule) -> dict[str, np.ndarray]:
    """Return the columns "why" and "why_storage": what pairs (waited for, waits) have in common.

    DATA: the later reads a tile that the earlier one writes; BUFFER: it overwrites what the
    earlier one reads; ORDER: both write it; SPACE: no tile is common, so it needs the memory of
    one that the earlier one was the last to use; LEAD: nor that, the later is a load that is not
    triggered earlier (timing/prefetch.py). The storage is that tile's, -1 if there is none.
    """
    pred = np.asarray(plan.pred, np.int64)
    accesses = plan.trace.operands()
    count = np.bincount(accesses.instr, minlength=len(pred))
    first = np.cumsum(count) - count
    adds = np.array([k.accumulate for k in plan.trace.op_specs] or [False])[plan.deps.spec]
    waits = np.flatnonzero(pred >= 0)
    before = pred[waits]
    why = np.where(pred >= 0, SPACE, NOTHING).astype(np.uint8)
    lead = np.full(len(pred), -1)
    lead[plan.deps.leads[1]] = plan.deps.leads[0]
    why[(pred >= 0) & (lead == pred)] = LEAD
    storage = np.full(len(pred), -1, np.int32)
    for a in range(int(count[before].max(initial=0))):
        for b in range(int(count[waits].max(initial=0))):
            both = (a < count[before]) & (b < count[waits])
            i, waiting = waits[both], first[waits[both]] + b
            his = first[before[both]] + a
            same = accesses.storage[his] == accesses.storage[waiting]
            wrote, writes = accesses.write[his], accesses.write[waiting]
            code = np.where(
                wrote & (~writes | adds[i]),
                DATA,
                np.where(~wrote & writes, BUFFER, np.where(wrote, ORDER, SPACE)),
            )
            better = same & (code < why[i])
            why[i[better]] = code[better]
            storage[i[better]] = accesses.storage[waiting][better]
    return {"why": why, "why_storage": storage}
