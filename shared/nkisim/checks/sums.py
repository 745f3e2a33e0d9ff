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
    operand_specs = trace.operand_specs()
    adds = np.array([k.accumulate and n < k.outputs for k, n, _ in operand_specs], bool)
    if not adds.any():
        return
    accesses, stores = trace.operands(), trace.storages.table()
    open_ = np.zeros(len(stores.psum), bool)  # storages that matmuls add to
    open_[accesses.storage[adds[accesses.operand_spec]]] = True
    placed = stores.psum & ~stores.arena  # where the kernel places tiles, they share
    mine = np.flatnonzero(open_[accesses.storage] & placed[accesses.storage])
    # an instruction reads before it writes
    order = np.lexsort(
        (
            accesses.instr[mine] * 2 + accesses.write[mine],
            accesses.lowest[mine],
            accesses.storage[mine],
        )
    )
    mine = mine[order]
    place = np.stack([accesses.storage[mine], accesses.lowest[mine]])
    same = np.append(False, (place[:, 1:] == place[:, :-1]).all(axis=0)) if len(mine) else mine
    adding, reading = adds[accesses.operand_spec[mine]], ~accesses.write[mine]
    lines = trace.instructions().line
    # read, after an addition and before another one
    at = np.flatnonzero(reading[1:-1] & same[1:-1] & same[2:] & adding[2:]) + 1
    for i in at.tolist():
        first = i
        while same[first] and reading[first]:
            first -= 1
        if adding[first]:
            line, other = (int(lines[accesses.instr[mine[k]]]) for k in (i + 1, i))
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
