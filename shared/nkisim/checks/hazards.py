"""Hazards of loops: what hardware may reorder and therefore silently get wrong.

Iterations of `nl.affine_range`, and the instances of a grid, are independent by promise. This
pass over the trace finds the promises that a kernel breaks: two iterations that write the same
bytes, and an iteration that reads what another one wrote.
"""

from __future__ import annotations

import numpy as np

from ..chip.memory import HBM
from ..errors import NkiError, fail
from ..trace.trace import Operands, Trace
from .execution import Execution
from .iteration_conflicts import Conflict, Nodes, carried_tiles, conflicts, shared_bytes

_INDEPENDENT = {"affine_range": "iteration of nl.affine_range", "grid": "instance of the grid"}
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
    free = {"grid"} if in_order else set(_INDEPENDENT)
    return not free.isdisjoint(trace.loop_kind) and any(k.scatters for k in trace.op_specs)


def check_loops(m: Execution, record: Trace | None = None) -> NkiError | None:
    """Look for broken promises of affine loops; add findings, return the error of the first
    bytes in HBM that two iterations write (unless statements keep their order).

    `record`: instead of the machine's.
    """
    trace = m.trace if record is None else record
    if not any(kind in trace.loop_kind for kind in _INDEPENDENT):
        return None
    stores = trace.storages.table()
    homes = np.where(stores.readonly, -1, stores.node)
    for st in m.arenas.values():
        homes[st.id] = -1  # there the kernel says what may share bytes
    accesses, nodes = trace.operands(), Nodes(trace)
    _, lines, node = trace.instructions()
    error: NkiError | None = None
    met_at = [
        (met, int(lines[accesses.instr[met.access]]), int(lines[accesses.instr[met.write]]))
        for met in conflicts(trace, accesses, lines, node, homes, nodes)
        if not _onto_itself(trace, accesses, met.access)
    ]
    carried = {
        (int(accesses.storage[met.access]), line)
        for met, line, _ in met_at
        if not accesses.write[met.access]
    }
    for met, line, other in met_at:
        storage = int(accesses.storage[met.access])
        if not accesses.write[met.access]:
            kind = "cores" if m.cores else trace.loop_kind[met.loop]
            _carried(
                m,
                met.loop,
                _what_is_read(trace, accesses, met, kind),
                line,
                other,
                nodes.first_two(met, node[accesses.instr[[met.access, met.write]]], trace),
            )
        elif (storage, line) not in carried:  # t[...] = f(t): that it is read says it all
            reads = np.flatnonzero((accesses.storage == storage) & ~accesses.write)
            used = nodes.inside(node[accesses.instr[reads]], met.loop).any()
            who = nodes.first_two(met, node[accesses.instr[[met.access, met.write]]], trace)
            error = error or _same_bytes_written(
                m, trace, accesses, met, line, other, bool(used), who
            )
    for access, loop in carried_tiles(accesses, lines, node, homes, nodes):
        _carried(
            m,
            loop,
            "reads a tile that another one has made; on the chip, where they overlap "
            "and run in any order, it may not be there yet. Use nl.sequential_range, or make "
            "the tile before the loop",
            int(lines[accesses.instr[access]]),
            int(stores.line[accesses.storage[access]]),
        )
    return error


def _onto_itself(trace: Trace, accesses: Operands, access: int) -> bool:
    """Return whether a transfer reads a place to write the same there, to wait for it (a fence)."""
    if accesses.write[access]:
        return False
    operand_specs, mine = trace.operand_specs(), accesses.instr == accesses.instr[access]
    spec, _, pattern = operand_specs[accesses.operand_spec[access]]
    return spec.engine == "dma" and any(
        accesses.storage[w] == accesses.storage[access]
        and accesses.offset[w] == accesses.offset[access]
        and operand_specs[accesses.operand_spec[w]][2] == pattern
        for w in np.flatnonzero(mine & accesses.write)
    )


def _what_is_read(trace: Trace, accesses: Operands, met: Conflict, kind: str) -> str:
    """Return in words what an iteration reads of another one, and what to do about it."""
    write = trace.operand_specs()[accesses.operand_spec[met.write]][0]
    some = _how_much(trace, accesses, met)
    if kind == "affine_range" and (write.accumulate or write.inplace):
        return (
            f"reads a sum that others add to as well{some}; what is in it by then is undefined "
            "on the chip, where they overlap. For the sum of one iteration create the "
            "accumulator inside the loop; for a running sum use nl.sequential_range"
        )
    return (
        f"reads what another one wrote{some}; on the chip, where they overlap and run in any "
        f"order, it may not be there yet. {_INSTEAD[kind]}"
    )


def _carried(m: Execution, loop: int, text: str, line: int, other: int, who: str = "") -> None:
    """Report a value that is carried from iteration to iteration; `who`: the first that meet."""
    m.findings.find(
        "NKI-L02",
        _severity(m, loop),
        f"{_one(m, loop)} {text}{who and f' (here {who})'}",
        line,
        other,
    )


def _one(m: Execution, loop: int) -> str:
    kind = m.trace.loop_kind[loop]
    return "a core" if m.cores and kind == "grid" else f"an {_INDEPENDENT[kind]}"


def _severity(m: Execution, loop: int) -> str:
    """Return how bad it is that iterations meet; in order, they may.

    skip_middle_end_transformations lets affine_range run as sequential_range does.
    """
    in_order = m.skip_middle_end and m.trace.loop_kind[loop] == "affine_range"
    return "note" if in_order else "warning"


def _how_much(trace: Trace, accesses: Operands, met: Conflict) -> str:
    """Return in words how much of an access another iteration wrote, if not all of it."""
    if met.same:
        return ""
    mine, others = shared_bytes(trace, accesses, (met.access, met.write))
    size = trace.operand_specs()[accesses.operand_spec[met.access]][2].elements
    return f" ({round(np.isin(mine, others).mean() * size):,} of {size:,} elements)"


def _same_bytes_written(
    m: Execution,
    trace: Trace,
    accesses: Operands,
    met: Conflict,
    line: int,
    other: int,
    used: bool,
    who: str,
) -> NkiError | None:
    """Report two iterations that write the same bytes: an error in HBM, a warning on chip.

    `used`: iterations of that loop read them as well. `who`: the first that meet.
    """
    kind = trace.loop_kind[met.loop]
    hbm = trace.storages[int(accesses.storage[met.access])].memory is HBM
    some = _how_much(trace, accesses, met)
    one = "core" if m.cores and kind == "grid" else _INDEPENDENT[kind]
    text = (
        f"more than one {one} writes the same "
        + ("HBM elements" if hbm else "tile" if met.same else "elements of a tile")
        + some
        + f" (here {who})"
    )
    severity = _severity(m, met.loop)
    if kind == "grid" and not m.asked_id:
        text = (
            "every instance of the grid does the same work and writes the same HBM elements: the "
            "kernel does not use nl.program_id. The result is right, and takes as many times "
            "longer as there are instances"
        )
        m.findings.find("NKI-L05", "note", text, line, other)
    elif hbm and m.cores and int(accesses.storage[met.access]) not in m.cores.replaced:
        text += ", and the same values: one of them would do"
        m.findings.find("NKI-L04", "note", text, line, other)
    elif hbm and m.cores and line == other and any(m.cores.met):
        text += (
            ", in one line: right if both write the same values, as cores do that both do all of "
            "the work"
        )
        m.findings.find("NKI-L04", "note", text, line, other)
    elif hbm and severity != "note":
        given, hint = _why_they_meet(m, kind, some)
        return fail(
            "NKI-L04",
            text,
            where=m.trace.where(line),
            given=given,
            limit="iterations are independent; only += -= *= /= may meet in one place",
            hint=hint,
        )
    elif used:
        text += (
            "; they may overlap, so each needs its own: create the tile inside the loop, or use "
            "nl.sequential_range"
        )
        m.findings.find("NKI-L05", severity, text, line, other)
    else:
        text += (
            ", and none reads it: what all but the last one computed is lost, and which is the "
            "last is undefined. "
        )
        text += f"{_STEP[0].upper()}{_STEP[1:]}" if hbm and some else "Was a sum meant? += adds"
        m.findings.find("NKI-L05", severity, text, line, other)
    return None


def _why_they_meet(m: Execution, kind: str, some: str) -> tuple[str, str]:
    """Return what two iterations that write the same of HBM have in common, and what to write."""
    if some:
        return f"two destinations overlap{some}", _STEP
    if kind == "affine_range":
        return (
            "the destination does not depend on the loop variable",
            "index the destination with the loop variable, or use nl.sequential_range; a sum is "
            "made on chip and stored once, behind the loop",
        )
    hint = _INSTEAD["cores"] if m.cores else "index the destination with nl.program_id(axis)"
    return "the destination does not depend on nl.program_id", hint
