"""Sums in PSUM that go on after they were read.

A group of matmuls adds up in PSUM from its first product, which overwrites, to its last; then the
sum is copied out. An accumulator that is read and then added to without a new beginning holds the
products of everything so far: most often it was created outside of the loop that it belongs into.
"""

from __future__ import annotations

import numpy as np

from .execution import Execution


def check_sums(m: Execution) -> None:
    """Add a finding for each pair of lines that read a sum of matmuls and then add to it."""
    trace = m.trace
    forms = trace.forms()
    adds = np.array([k.accumulate and n < k.outputs for k, n, _ in forms], bool)
    if not adds.any():
        return
    every, stores = trace.operands(), trace.storages.table()
    open_ = np.zeros(len(stores.psum), bool)  # storages that matmuls add to
    open_[every.storage[adds[every.form]]] = True
    placed = stores.psum & ~stores.arena  # where the kernel places tiles, they share
    mine = np.flatnonzero(open_[every.storage] & placed[every.storage])
    # an instruction reads before it writes
    order = np.lexsort(
        (every.instr[mine] * 2 + every.write[mine], every.lowest[mine], every.storage[mine])
    )
    mine = mine[order]
    place = np.stack([every.storage[mine], every.lowest[mine]])
    same = np.append(False, (place[:, 1:] == place[:, :-1]).all(axis=0)) if len(mine) else mine
    adding, reading = adds[every.form[mine]], ~every.write[mine]
    lines = trace.instructions().line
    # read, after an addition and before another one
    at = np.flatnonzero(reading[1:-1] & same[1:-1] & same[2:] & adding[2:]) + 1
    for i in at.tolist():
        first = i
        while same[first] and reading[first]:
            first -= 1
        if adding[first]:
            line, other = (int(lines[every.instr[mine[k]]]) for k in (i + 1, i))
            if m.findings.found("NKI-L02", other, line):
                continue  # in an affine_range that is not all
            m.findings.find(
                "NKI-L10",
                "warning",
                "matmuls add to a sum in PSUM that was read already: it "
                "holds the products of before as well. For a sum of its own, create the "
                "accumulator (nl.zeros) in the loop whose sum it is",
                line,
                other,
            )
