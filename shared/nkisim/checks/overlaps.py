"""Instructions that read some of the bytes they write, at another place in their order.

An engine reads, computes and writes as a stream, and a DMA moves parts at the same time: what is
read after it was written has the new value. In place is fine: each element is read where it is
written. Operands of one element per partition, and sources of more elements than the result, are
read before the first result is there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ..trace.geometry import Geometry
from ..trace.trace import OpSpec, Pattern, operand_at
from .execution import Execution


def check_overlaps(m: Execution) -> None:
    """Add a finding for each line that reads and writes the same bytes, but not in place."""
    trace, geometry = m.trace, Geometry()
    reported = {f.where for f in m.findings if f.id == "NKI-A05"}
    pairs = [
        (k, out, src)
        for k, spec in enumerate(trace.op_specs)
        if m.dialect.names_dst or _names_dst(spec)
        for out, src in _pairs(spec)
    ]
    if not pairs:
        return
    specs, line, _ = trace.instructions()
    rows, starts = np.array(trace.rows, np.int64), np.array(trace.starts, np.int64)
    by_spec = np.argsort(specs, kind="stable")
    begin = np.searchsorted(specs[by_spec], np.arange(len(trace.op_specs) + 1))
    for k, out, src in pairs:
        of_spec = by_spec[begin[k] : begin[k + 1]]
        at = starts[of_spec]
        to, of = operand_at(at, out), operand_at(at, src)
        of_spec = of_spec[same := rows[to] == rows[of]]
        if not len(of_spec):
            continue
        spec, apart = trace.op_specs[k], (rows[of + 1] - rows[to + 1])[same]
        p, q = spec.operands[out], spec.operands[src]
        for distance in np.unique(apart).tolist():
            if distance == 0 and _in_order(p) == _in_order(q):
                continue
            a, b = geometry.id(p), geometry.id(q)
            if geometry.overlap(a, b, distance + q.lowest() - p.lowest()):
                for at_line in np.unique(line[of_spec[apart == distance]]).tolist():
                    if trace.where(at_line) in reported:
                        continue
                    m.findings.find(
                        "NKI-U06",
                        "warning",
                        f"{spec.row.name} writes {_how(p)} and reads "
                        f"{_how(q)} of the same tensor, which begins {abs(distance):,} bytes "
                        f"{'later' if distance > 0 else 'earlier'} and overlaps it: an element "
                        "that is written before it is read has the new value on the chip. Write "
                        "another tile",
                        at_line,
                    )


def _names_dst(spec: OpSpec) -> bool:
    """Return whether a kernel names what the instruction writes: other results are values, which
    the compiler keeps apart from what they are assigned to."""
    return "dst" in spec.row.fixed and "dst" not in spec.row.hidden


def _pairs(spec: OpSpec) -> Iterator[tuple[int, int]]:
    """Yield (output, source) of those operands whose elements are taken in the same order."""
    for out in range(spec.outputs):
        for src in range(spec.outputs, len(spec.operands)):
            p, q = spec.operands[out], spec.operands[src]
            if p.memory == q.memory and p.elements == q.elements > math.prod(p.shape[:1]):
                yield out, src


def _in_order(p: Pattern) -> list[tuple[int, int]]:
    """Return the sizes and strides of a pattern, with dims that follow each other as one."""
    dims: list[tuple[int, int]] = [(1, p.dtype.itemsize)]
    for n, stride in zip(reversed(p.shape), reversed(p.strides)):
        size, inner = dims[-1]
        if n == 1:
            continue
        if size == 1:
            dims[-1] = n, stride
        elif stride == size * inner:
            dims[-1] = n * size, inner
        else:
            dims.append((n, stride))
    return [*dims, (0, p.dtype.itemsize)]


def _how(p: Pattern) -> str:
    return "x".join(map(str, p.shape)) + " elements"


__all__ = ["check_overlaps"]
