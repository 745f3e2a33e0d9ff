"""What runs without values still know of memory that nothing has written.

That a tile is read before anything is in it (NKI-U01), and that a part of an output is never stored
(NKI-O04), is a matter of places, which the record has; no number is needed. What depends on a part
of a tile that nothing has written (NKI-U02) only a run with values can follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..chip.memory import HBM, NEVER, PARTLY
from ..trace.written import written
from .undefined import never_written

if TYPE_CHECKING:
    from .interface import Machine
    from .tensor import Tensor

#: elements of an output whose places are looked at; a larger one would take seconds
MOST = 1 << 28


def refuse(m: Machine, srcs: Sequence[Tensor]) -> None:
    """Raise NKI-U01 for a source that nothing has written, before its instruction is recorded."""
    if not m.settings.checks or m.launch.cores is not None:
        return
    for s in srcs:
        st = s.storage
        if st.init != NEVER or st.arena or st.lazy_zero or s.oob is not None:
            continue
        if not written(m.trace, s):
            raise never_written(m, s)
        st.init = PARTLY


def note(outs: Sequence[Tensor]) -> None:
    """Note that something has been written to the results of an instruction."""
    for t in outs:
        if t.storage.init == NEVER and t.memory is not HBM:
            t.storage.init = PARTLY


def never_stored(m: Machine, t: Tensor) -> np.ndarray | None:
    """Return which elements of an output no recorded instruction writes, None if all are written
    or the record does not say (run-time addresses, an output too large to look at)."""
    trace, st, item = m.trace, t.storage, t.dtype.itemsize
    if t.size > MOST or st.id in m.memory.unseen:
        return None
    operand_specs, accesses = trace.operand_specs(), trace.operands()
    at = np.flatnonzero(accesses.write & (accesses.storage == st.id))
    specs, offsets = accesses.operand_spec[at], accesses.offset[at]
    patterns = [operand_specs[k] for k in np.unique(specs).tolist()]
    if any(spec.scatters for spec, _, _ in patterns) or not len(at):
        return None
    if any(p.dtype.itemsize % item or any(s % item for s in p.strides) for _, _, p in patterns):
        return None  # written as another dtype
    whole = np.zeros(st.nbytes // item, bool)
    for k, offset in np.unique(np.stack([specs, offsets], 1), axis=0).tolist():
        p = operand_specs[k][2]
        wide = p.dtype.itemsize // item
        np.ndarray(
            (*p.shape, wide), bool, whole, offset // item, (*(s // item for s in p.strides), 1)
        )[...] = True
    here = np.ndarray(t.shape, bool, whole, t.offset // item, tuple(s // item for s in t.strides))
    return None if here.all() else ~here
