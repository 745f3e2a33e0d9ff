"""Inputs that a kernel does not read, or not all of: most often a loop that ends too early.

A note, since kernels have good reasons: a parameter that a caller always passes, a triangle of a
matrix; and only where nothing worse is found. Matrices that are multiplied although they have
different numbers of rows are a warning: some of one meet none of the other. Inputs whose rows a
run-time index chooses, and large ones, are not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import Where
from ..trace.trace import Trace
from .execution import Execution
from .finding import Finding
from .words import region

_MOST = 1 << 22  # elements of an input that is looked at


def unread_inputs(
    m: Execution, inputs: Sequence[tuple[str, Any]], where: Where | None
) -> list[Finding]:
    """Return a finding for each input tensor with elements that are never read.

    inputs: (name, HBM tensor) of the kernel at `where`.
    """
    tensors = {
        t.storage.id: (name, t)
        for name, t in inputs
        if t.size <= _MOST and t.storage.id not in m.indexed
    }
    if not tensors:
        return []
    every, operand_specs = m.trace.operands(), m.trace.operand_specs()
    mine = np.flatnonzero(np.isin(every.storage, list(tensors)))
    chosen = np.array([k.indirect or k.scatters for k, _, _ in operand_specs], bool)
    skipped = {
        int(s) for s in every.storage[mine[every.write[mine] | chosen[every.operand_spec[mine]]]]
    }
    accesses = np.unique(
        np.stack([every.storage[mine], every.operand_spec[mine], every.offset[mine]]), axis=1
    ).T.tolist()
    read = {s: np.zeros(t.size, bool) for s, (_, t) in tensors.items() if s not in skipped}
    for storage, which, offset in accesses:
        if storage not in read:
            continue
        pattern, item = operand_specs[which][2], tensors[storage][1].dtype.itemsize
        ends = [(n - 1) * s for n, s in zip(pattern.shape, pattern.strides)]
        reach = (
            offset + sum(min(0, e) for e in ends),
            offset + sum(max(0, e) for e in ends) + pattern.dtype.itemsize,
        )
        if (
            pattern.dtype.itemsize != item
            or any(s % item for s in (offset, *pattern.strides))
            or reach[0] < 0
            or reach[1] > read[storage].size * item
        ):
            del read[storage]  # as another dtype, or cut by a mask
            continue
        np.ndarray(
            pattern.shape,
            bool,
            read[storage],
            offset // item,
            tuple(s // item for s in pattern.strides),
        )[...] = True
    found = []
    for storage, seen in read.items():
        if seen.all():
            continue
        name, t = tensors[storage]
        missed = ~seen.reshape(t.shape)
        rows = _rows_read(missed)
        whole = [
            s
            for s, (_, x) in tensors.items()
            if s != storage
            and rows
            and x.ndim == 2
            and x.shape[0] == rows
            and s in read
            and read[s].all()
        ]
        other = next((s for s in whole if _multiplied(m.trace, s, storage)), None)
        if other is not None:
            found.append(
                Finding(
                    "NKI-O07",
                    "warning",
                    f"rows {rows} ... {t.shape[0] - 1} of input {name} of shape "
                    f"{t.shape} are never read: {tensors[other][0]}, which it is multiplied with, "
                    f"has {rows} rows, and a product sums over as many of both",
                    where,
                    hint="assert that the two have equally many rows; is one of them transposed?",
                )
            )
            continue
        text = (
            f"input {name} of shape {t.shape} is never read"
            if not seen.any()
            else (
                f"{int(missed.sum()):,} of {missed.size:,} elements of input {name} of shape "
                f"{t.shape} are never read: {region(missed)}"
            )
        )
        found.append(Finding("NKI-O07", "note", text, where))
    return found


def _rows_read(missed: np.ndarray) -> int:
    """Return how many rows of a matrix are read, if these are the first ones; else 0."""
    if missed.ndim != 2:
        return 0
    rows = int((~missed.any(axis=1)).sum())
    return rows if rows and not missed[:rows].any() and missed[rows:].all() else 0


def _multiplied(trace: Trace, one: int, other: int) -> bool:
    """Return whether tiles that were loaded from two inputs are multiplied with each other."""
    accesses, specs = trace.operands(), trace.instructions().spec
    products = np.array([k.row.accumulates for k in trace.op_specs], bool)[specs]
    used = []
    for storage in (one, other):
        loads = accesses.instr[(accesses.storage == storage) & ~accesses.write]
        tiles = np.unique(accesses.storage[accesses.write & np.isin(accesses.instr, loads)])
        used.append(
            accesses.instr[
                np.isin(accesses.storage, tiles) & ~accesses.write & products[accesses.instr]
            ]
        )
    return len(np.intersect1d(*used)) > 0
