"""Sums in PSUM that go on after they were read, or that share a bank.

A group of matmuls adds up in PSUM from its first product, which overwrites, to its last; then the
sum is copied out. An accumulator that is read and then added to without a new beginning holds the
products of everything so far: most often it was created outside of the loop that it belongs into.

A bank has one open group at a time: the architecture guide counts up to eight in eight banks.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from ..trace.geometry import Geometry
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
    sums = np.flatnonzero(open_[accesses.storage] & placed[accesses.storage])
    # an instruction reads before it writes
    order = np.lexsort(
        (
            accesses.instr[sums] * 2 + accesses.write[sums],
            accesses.lowest[sums],
            accesses.storage[sums],
        )
    )
    sums = sums[order]
    place = np.stack([accesses.storage[sums], accesses.lowest[sums]])
    same = np.append(False, (place[:, 1:] == place[:, :-1]).all(axis=0)) if len(sums) else sums
    adding, reading = adds[accesses.operand_spec[sums]], ~accesses.write[sums]
    lines = trace.instructions().line
    # read, after an addition and before another one
    at = np.flatnonzero(reading[1:-1] & same[1:-1] & same[2:] & adding[2:]) + 1
    for i in at.tolist():
        first = i
        while same[first] and reading[first]:
            first -= 1
        if adding[first]:
            line, other = (int(lines[accesses.instr[sums[k]]]) for k in (i + 1, i))
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


@dataclass
class _Sum:
    """A sum in PSUM that nothing has read yet."""

    lowest: int  # byte in its storage
    spec: int  # index into Trace.operand_specs()
    first: int  # instruction of its first product, and of its last one
    last: int
    begun: bool  # by accumulate=False, and not by the compiler or with what is no product
    products: int = 1


def check_shared_banks(m: Execution) -> None:
    """Add a finding where two sums of several products are in one bank, and neither is read yet.

    On a trn2 (NKI 0.6) all but the last of such sums lost a product, where accumulate=False began
    each. Right are single products in one bank, sums that the compiler begins (accumulate=None) and
    sums onto a memset: kernels of AWS's library have them (output_projection_tkg, attention_bwd).
    Other partitions are other memory. In neuronxcc.nki the compiler begins all sums.
    """
    trace = m.trace
    if not m.dialect.names_dst:
        return
    operand_specs = trace.operand_specs()
    product = np.array([k.row.accumulates and n < k.outputs for k, n, _ in operand_specs], bool)
    adds = product & np.array([k.accumulate for k, _, _ in operand_specs], bool)
    if not adds.any():
        return
    accesses, stores = trace.operands(), trace.storages.table()
    lo = accesses.lowest % stores.row_bytes[accesses.storage]
    at = np.flatnonzero((product & ~adds)[accesses.operand_spec])
    places = np.unique(
        np.stack([accesses.storage[at], lo[at] // m.hw.psum_bank_bytes, lo[at]]), axis=1
    )
    in_one = (places[:2, 1:] == places[:2, :-1]).all(axis=0)  # sums that begin in one bank
    several = np.intersect1d(places[0, 1:][in_one], accesses.storage[adds[accesses.operand_spec]])
    shared = np.flatnonzero(np.isin(accesses.storage, several))
    # an instruction reads before it writes
    shared = shared[np.argsort(accesses.instr[shared] * 2 + accesses.write[shared], kind="stable")]
    geometry, line = Geometry(), trace.instructions().line
    pattern = [geometry.id(p) for _, _, p in operand_specs]
    unread: dict[int, dict[tuple[int, int], _Sum]] = defaultdict(dict)
    for i in shared.tolist():
        storage, lowest = int(accesses.storage[i]), int(accesses.lowest[i])
        spec, instr = int(accesses.operand_spec[i]), int(accesses.instr[i])
        sums, key = unread[storage], (lowest, pattern[spec])
        if key in sums and product[spec]:
            met = [key]
        else:
            met = [k for k in sums if geometry.overlap(k[1], key[1], lowest - k[0])]
        if not (adds[spec] and met):  # it reads the sums here, or replaces them
            for k in met:
                if sums[k].begun or accesses.write[i] and (k == key or not product[spec]):
                    del sums[k]
            if accesses.write[i]:
                sums[key] = _Sum(lowest, spec, instr, instr, bool(product[spec] and not adds[spec]))
            continue
        grown = sums[met[0]]
        grown.products, grown.last = grown.products + 1, instr
        if grown.products != 2 or not grown.begun:
            continue
        here = _boxes(m, grown, int(stores.row_bytes[storage]))
        for other in sums.values():
            if other is grown or other.products < 2 or not other.begun:
                continue
            there = _boxes(m, other, int(stores.row_bytes[storage]))
            if all(a.start < b.stop and b.start < a.stop for a, b in zip(here, there)):
                m.findings.find(
                    "NKI-M12",
                    "warning",
                    "two sums of several products are in one bank of PSUM, and neither is read "
                    "yet: accumulate=False begins the one open sum of a bank, so on the chip the "
                    "earlier one may lose a product",
                    int(line[grown.first]),
                    int(line[other.last]),
                )
                break


def _boxes(m: Execution, s: _Sum, row: int) -> tuple[range, range]:
    """Return the partitions and the banks of a sum; `row`: bytes of a partition of its storage."""
    p, bank = m.trace.operand_specs()[s.spec][2], m.hw.psum_bank_bytes
    partition, column = divmod(s.lowest, row)
    return (
        range(partition, partition + p.shape[0]),
        range(column // bank, (column + p.span(free=True) - 1) // bank + 1),
    )
