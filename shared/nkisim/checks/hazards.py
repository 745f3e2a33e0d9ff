"""Hazards of loops: what hardware may reorder and therefore silently get wrong.

Iterations of `nl.affine_range`, and the instances of a grid, are independent by promise. This
pass over the trace finds the promises that a kernel breaks: two iterations that write the same
bytes, and an iteration that reads what another one wrote.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..chip.memory import HBM
from ..errors import NkiError, fail
from ..trace.trace import Operands, Trace
from .execution import Execution
from .iteration_conflicts import (
    INDEPENDENT,
    Conflict,
    Nodes,
    carried_tiles,
    conflicts,
    shared_bytes,
)

#: what runs in a loop of a kind whose iterations nothing orders; cores are instances of a grid
_ONE = {
    "affine_range": "iteration of nl.affine_range",
    "grid": "instance of the grid",
    "cores": "core",
}
_STEP = "step by as much as is stored: out[i * size:(i + 1) * size]"
#: what to do about a value that another one wrote
_INSTEAD = {
    "affine_range": "Use nl.sequential_range, += for a sum that is read after the loop, or a tile "
    "for each iteration",
    "grid": "Instances cannot wait for each other: do both parts in one, or in two kernels",
    "cores": "Let them wait for each other in between: nisa.core_barrier(tensor, (0, 1)) with this "
    "tensor (a barrier orders no other one), or give each core rows of its own",
}


def may_meet(trace: Trace, in_order: bool) -> bool:
    """Return whether run-time indices choose what iterations write that nothing orders.

    Whether those meet no pass over the trace can tell; a shuffled run can.
    """
    free = {"grid"} if in_order else set(INDEPENDENT)
    return not free.isdisjoint(trace.loop_kind) and any(k.scatters for k in trace.op_specs)


class _Meeting(NamedTuple):
    """Two iterations, or instances of the grid, that access the same bytes."""

    kind: str  # of the loop; "cores" of a grid whose instances run at once
    storage: int
    line: int  # of the later access
    write_line: int  # of the write before it
    is_read: bool  # the later access reads
    is_sum: bool  # the write adds to what is there
    whole: bool  # both access the same region
    share: str  # in words how much of the later access the write touches, "" for all of it
    who: str  # in words the first two that meet
    used: bool  # of two writes: iterations of the loop read the storage


def check_loops(m: Execution, record: Trace | None = None) -> NkiError | None:
    """Look for broken promises of affine loops; add findings, return the error of the first
    bytes in HBM that two iterations write (unless statements keep their order).

    `record`: instead of the machine's.
    """
    trace = m.trace if record is None else record
    if not any(kind in trace.loop_kind for kind in INDEPENDENT):
        return None
    stores = trace.storages.table()
    homes = np.where(stores.readonly, -1, stores.node)
    for st in m.arenas.values():
        homes[st.id] = -1  # there the kernel says what may share bytes
    accesses, nodes = trace.operands(), Nodes(trace)
    _, lines, node = trace.instructions()
    meetings = list(_meetings(m, trace, accesses, nodes, homes))
    carried = {(met.storage, met.line) for met in meetings if met.is_read}
    error: NkiError | None = None
    for met in meetings:
        if met.is_read:
            text = f"{_what_is_read(met)} (here {met.who})"
            _carried(m, met.kind, text, met.line, met.write_line)
        elif (met.storage, met.line) not in carried:  # t[...] = f(t): that it is read says it all
            error = error or _same_bytes_written(m, trace, met)
    for access, loop in carried_tiles(accesses, lines, node, homes, nodes):
        _carried(
            m,
            _kind(m, trace, loop),
            "reads a tile that another one has made; on the chip, where they overlap "
            "and run in any order, it may not be there yet. Use nl.sequential_range, or make "
            "the tile before the loop",
            int(lines[accesses.instr[access]]),
            int(stores.line[accesses.storage[access]]),
        )
    return error


def _meetings(
    m: Execution, trace: Trace, accesses: Operands, nodes: Nodes, homes: np.ndarray
) -> Iterator[_Meeting]:
    """Yield, in program order, one meeting of each pair of source lines and storage."""
    _, lines, node = trace.instructions()
    specs = trace.operand_specs()
    for met in conflicts(trace, accesses, lines, node, homes, nodes):
        if _onto_itself(trace, accesses, met.access):
            continue
        both = accesses.instr[[met.access, met.write]]
        line, write_line = lines[both].tolist()
        storage = int(accesses.storage[met.access])
        write = specs[accesses.operand_spec[met.write]][0]
        is_read = not accesses.write[met.access]
        reads = np.flatnonzero((accesses.storage == storage) & ~accesses.write)
        yield _Meeting(
            _kind(m, trace, met.loop),
            storage,
            line,
            write_line,
            is_read=is_read,
            is_sum=write.accumulate or write.inplace,
            whole=met.same,
            share=_share(trace, accesses, met),
            who=nodes.first_two(met, node[both], trace),
            used=not is_read and bool(nodes.inside(node[accesses.instr[reads]], met.loop).any()),
        )


def _kind(m: Execution, trace: Trace, loop: int) -> str:
    """Return the kind of a loop; the instances of a grid that run at once are cores."""
    kind = trace.loop_kind[loop]
    return "cores" if m.cores and kind == "grid" else kind


def _onto_itself(trace: Trace, accesses: Operands, access: int) -> bool:
    """Return whether a transfer reads a place to write the same there, to wait for it (a fence)."""
    if accesses.write[access]:
        return False
    operand_specs, of_instr = trace.operand_specs(), accesses.instr == accesses.instr[access]
    spec, _, pattern = operand_specs[accesses.operand_spec[access]]
    return spec.engine == "dma" and any(
        accesses.storage[w] == accesses.storage[access]
        and accesses.offset[w] == accesses.offset[access]
        and operand_specs[accesses.operand_spec[w]][2] == pattern
        for w in np.flatnonzero(of_instr & accesses.write)
    )


def _share(trace: Trace, accesses: Operands, met: Conflict) -> str:
    """Return in words how much of an access another iteration wrote, if not all of it."""
    if met.same:
        return ""
    own, others = shared_bytes(trace, accesses, (met.access, met.write))
    size = trace.operand_specs()[accesses.operand_spec[met.access]][2].elements
    return f" ({round(np.isin(own, others).mean() * size):,} of {size:,} elements)"


def _what_is_read(met: _Meeting) -> str:
    """Return in words what an iteration reads of another one, and what to do about it."""
    if met.kind == "affine_range" and met.is_sum:
        return (
            f"reads a sum that others add to as well{met.share}; what is in it by then is "
            "undefined on the chip, where they overlap. For the sum of one iteration create the "
            "accumulator inside the loop; for a running sum use nl.sequential_range"
        )
    return (
        f"reads what another one wrote{met.share}; on the chip, where they overlap and run in any "
        f"order, it may not be there yet. {_INSTEAD[met.kind]}"
    )


def _carried(m: Execution, kind: str, text: str, line: int, other: int) -> None:
    """Report a value that is carried from iteration to iteration."""
    one = f"{'a' if kind == 'cores' else 'an'} {_ONE[kind]}"
    m.findings.find("NKI-L02", _severity(m, kind), f"{one} {text}", line, other)


def _severity(m: Execution, kind: str) -> str:
    """Return how bad it is that iterations meet; in order, they may.

    skip_middle_end_transformations lets affine_range run as sequential_range does.
    """
    return "note" if m.skip_middle_end and kind == "affine_range" else "warning"


def _same_bytes_written(m: Execution, trace: Trace, met: _Meeting) -> NkiError | None:
    """Report two iterations that write the same bytes: an error in HBM, a warning on chip."""
    in_hbm = trace.storages[met.storage].memory is HBM
    place = "HBM elements" if in_hbm else "tile" if met.whole else "elements of a tile"
    text = f"more than one {_ONE[met.kind]} writes the same {place}{met.share} (here {met.who})"
    rule, severity = "NKI-L05", _severity(m, met.kind)
    if met.kind != "affine_range" and not m.asked_id:
        severity = "note"
        text = (
            "every instance of the grid does the same work and writes the same HBM elements: the "
            "kernel does not use nl.program_id. The result is right, and takes as many times "
            "longer as there are instances"
        )
    elif in_hbm and m.cores and met.storage not in m.cores.replaced:
        rule, severity = "NKI-L04", "note"
        text += ", and the same values: one of them would do"
    elif in_hbm and m.cores and met.line == met.write_line and any(m.cores.met):
        rule, severity = "NKI-L04", "note"
        text += (
            ", in one line: right if both write the same values, as cores do that both do all of "
            "the work"
        )
    elif in_hbm and severity != "note":
        given, hint = _why_they_meet(met)
        return fail(
            "NKI-L04",
            text,
            where=m.trace.where(met.line),
            given=given,
            limit="iterations are independent; only += -= *= /= may meet in one place",
            hint=hint,
        )
    elif met.used:
        text += (
            "; they may overlap, so each needs its own: create the tile inside the loop, or use "
            "nl.sequential_range"
        )
    else:
        text += (
            ", and none reads it: what all but the last one computed is lost, and which is the "
            "last is undefined. "
        )
        text += (
            f"{_STEP[0].upper()}{_STEP[1:]}" if in_hbm and met.share else "Was a sum meant? += adds"
        )
    m.findings.find(rule, severity, text, met.line, met.write_line)
    return None


def _why_they_meet(met: _Meeting) -> tuple[str, str]:
    """Return what two iterations that write the same of HBM have in common, and what to write."""
    if met.share:
        return f"two destinations overlap{met.share}", _STEP
    if met.kind == "affine_range":
        return (
            "the destination does not depend on the loop variable",
            "index the destination with the loop variable, or use nl.sequential_range; a sum is "
            "made on chip and stored once, behind the loop",
        )
    hint = _INSTEAD["cores"]
    if met.kind == "grid":
        hint = "index the destination with nl.program_id(axis)"
    return "the destination does not depend on nl.program_id", hint
