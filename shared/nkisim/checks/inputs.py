"""Inputs that a kernel does not read, or not all of: most often a loop that ends too early.

A note, since kernels have good reasons: a parameter that a caller always passes, a triangle of a
matrix; and only where nothing worse is found. Matrices that are multiplied although they have
different numbers of rows are a warning: some of one meet none of the other. Inputs whose rows a
run-time index chooses, and large ones, are not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    named = {
        t.storage.id: (name, t)
        for name, t in inputs
        if t.size <= _MOST and t.storage.id not in m.indexed
    }
    if not named:
        return []
    read = _read_elements(m.trace, {storage: t for storage, (_, t) in named.items()})
    read_whole = [s for s, elements in read.items() if elements.all() and named[s][1].ndim == 2]
    findings = []
    for storage, elements in read.items():
        if elements.all():
            continue
        name, t = named[storage]
        missed = ~elements.reshape(t.shape)
        severity, hint = "note", ""
        text = f"input {name} of shape {t.shape}"
        rows = _rows_read(missed)
        factor = next(
            (
                named[s]
                for s in read_whole
                if rows and named[s][1].shape[0] == rows and _multiplied(m.trace, s, storage)
            ),
            None,
        )
        if factor is not None:
            severity = "warning"
            text = (
                f"rows {rows} ... {t.shape[0] - 1} of {text} are never read: {factor[0]}, which it "
                f"is multiplied with, has {rows} rows, and a product sums over as many of both"
            )
            hint = "assert that the two have equally many rows; is one of them transposed?"
        elif missed.all():
            text += " is never read"
        else:
            text = (
                f"{int(missed.sum()):,} of {missed.size:,} elements of {text} are never read: "
                f"{region(missed)}"
            )
        findings.append(Finding("NKI-O07", severity, text, where, hint=hint))
    return findings


def _read_elements(trace: Trace, tensors: Mapping[int, Any]) -> dict[int, np.ndarray]:
    """Return which elements of tensors, by their storages, are read.

    Left out: tensors that are written, or read by indices that are data, by another dtype or
    beyond their end (a mask cuts such an access).
    """
    operands, specs = trace.operands(), trace.operand_specs()
    accesses = np.flatnonzero(np.isin(operands.storage, list(tensors)))
    by_data = np.array([k.indirect or k.scatters for k, _, _ in specs], bool)
    unknown = accesses[operands.write[accesses] | by_data[operands.operand_spec[accesses]]]
    left_out = set(operands.storage[unknown].tolist())
    read = {s: np.zeros(t.size, bool) for s, t in tensors.items() if s not in left_out}
    different = np.unique(
        np.stack([a[accesses] for a in (operands.storage, operands.operand_spec, operands.offset)]),
        axis=1,
    )
    for storage, spec, offset in different.T.tolist():
        if storage in read:
            part = _part(read[storage], specs[spec][2], offset, tensors[storage].dtype.itemsize)
            if part is None:
                del read[storage]
            else:
                part[...] = True
    return read


def _part(elements: np.ndarray, pattern: Any, offset: int, item: int) -> np.ndarray | None:
    """Return the view of `elements`, `item` bytes each, that an access pattern reads at an offset.

    None if the pattern has elements of another size, or lies partly outside.
    """
    ends = [(n - 1) * s for n, s in zip(pattern.shape, pattern.strides)]
    low = offset + sum(min(0, end) for end in ends)
    high = offset + sum(max(0, end) for end in ends) + pattern.dtype.itemsize
    if (
        pattern.dtype.itemsize != item
        or any(s % item for s in (offset, *pattern.strides))
        or low < 0
        or high > elements.size * item
    ):
        return None
    strides = tuple(s // item for s in pattern.strides)
    return np.ndarray(pattern.shape, bool, elements, offset // item, strides)


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
