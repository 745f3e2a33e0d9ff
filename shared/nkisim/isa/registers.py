"""What is known of the accumulator registers of an engine: who has set them, and who reads them.

They hold whatever the last kernel left there until an instruction resets them. The Vector Engine
may change them in an instruction that does not use them (reduce_cmd.idle), and all its summing
instructions share them; the Scalar Engine leaves them alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..machine.instruction import Instr
from ..machine.interface import Machine
from ..machine.tensor import Tensor
from .accumulators import IDLE, LOAD_REDUCE, REDUCE, RESET, RESET_REDUCE
from .dve import lanes_of

_BEGINS = (RESET, RESET_REDUCE, LOAD_REDUCE)


@dataclass
class Sum:
    """One sum in the registers of some lanes, from its reset on."""

    line: int
    name: str  # of the instruction
    op: str  # that reduces
    asked: bool  # the kernel wants it, and not only what is written
    before: list[tuple[int, int]]  # where the sum before it was read out to
    dsts: list[tuple[int, int]] = field(default_factory=list)  # where it was
    idle: int = -1  # line of an instruction that may have changed it


def register_check(
    engine: str, command: Callable[[Instr], tuple[int, str]], keeps: bool = False
) -> Callable[[Machine, Instr, Tensor], None]:
    """Return the check of a row that drives the registers of `engine`.

    `command`: returns the reduce_cmd of an instruction and the operator that reduces; `keeps`:
    reduce_cmd.idle leaves them as they are.
    """

    def check(m: Machine, ins: Instr, dst: Tensor) -> None:
        cmd, op = command(ins)
        sums = m.core.registers.sums.get(engine)
        if sums is None:
            if cmd == IDLE and not ins.also:
                return
            sums = m.core.registers.sums[engine] = [None] * m.hw.pmax
        lanes = lanes_of(ins.srcs[0])
        if cmd in _BEGINS:
            _begin(m, ins, sums, lanes, cmd, op)
        elif cmd == REDUCE or ins.also:
            _go_on(m, ins, sums, lanes, cmd, op)
        elif not keeps:
            for one in _different(sums[lanes]):
                one.idle = ins.line

    return check


def _different(sums: list[Sum | None]) -> list[Sum]:
    return list({id(one): one for one in sums if one is not None}.values())


def _begin(m: Machine, ins: Instr, sums: list[Sum | None], lanes: slice, cmd: int, op: str) -> None:
    """Begin a sum; say that the one before is lost, if nothing has read it."""
    old = _different(sums[lanes])
    for one in old:
        if one.asked and not one.dsts:
            m.find(
                "NKI-U05",
                "warning",
                f"{ins.row.api} resets the accumulator registers while "
                "the sum in them has not been read out (reduce_res): it is lost",
                ins.line,
                one.line,
            )
    default = ins.row.signature.parameters.get("reduce_cmd")
    asked = (
        cmd != RESET
        and default is not None
        and default.default == IDLE
        and (not m.dialect.own_signatures or "reduce_cmd=0" in ins.row.nki)
    )
    new = Sum(ins.line, ins.row.api, op, asked, old[0].dsts if old else [], _places(ins))
    sums[lanes] = [new] * len(sums[lanes])


def _places(ins: Instr) -> list[tuple[int, int]]:
    return [(t.storage.id, t.offset) for t in ins.also]


def _go_on(m: Machine, ins: Instr, sums: list[Sum | None], lanes: slice, cmd: int, op: str) -> None:
    """Add to the registers, or read them; say what is wrong with that without a reset."""
    name, places = ins.row.api, _places(ins)
    reads_out = "reduce_res" in ins.row.signature.parameters  # else dst shows the sums
    does = "adds to" if cmd == REDUCE else "reads out"
    if any(one is None for one in sums[lanes]):
        m.find(
            "NKI-U05",
            "error",
            f"{name} {does} accumulator registers that nothing has reset: "
            "on the chip they hold what the last kernel left there",
            ins.line,
        )
        new = Sum(ins.line, name, op, False, [], places)
        sums[lanes] = [one or new for one in sums[lanes]]
        return
    for one in _different(sums[lanes]):
        if one.idle >= 0:
            m.find(
                "NKI-U05",
                "warning",
                f"{name} {does} accumulator registers after an "
                "instruction of the same engine with reduce_cmd.idle, which may have changed "
                "them",
                ins.line,
                one.idle,
            )
        elif cmd == REDUCE and (
            one.op != op or one.name != name and one.dsts and places and places[0] not in one.dsts
        ):
            m.find(
                "NKI-U05",
                "warning",
                f"{name} (nl.{op}) goes on with the sum that {one.name} "
                f"(nl.{one.op}) has begun: all of an engine share the same registers",
                ins.line,
                one.line,
            )
        elif (
            cmd == REDUCE
            and places
            and one.dsts
            and places[0] in one.before
            and places[0] not in one.dsts
            and one.before[0] != one.dsts[0]
        ):
            m.find(
                "NKI-U05",
                "warning",
                f"{name} goes on with another sum than the one that it "
                "read out to the same tile before: that one was reset in between, and all of an "
                "engine share the same registers",
                ins.line,
                one.line,
            )
        one.asked |= cmd == REDUCE and reads_out
        one.dsts += places


def ended(m: Machine) -> None:
    """Say which sums are still in the registers when the kernel ends."""
    for sums in m.core.registers.sums.values():
        for one in _different(sums):
            if one.asked and not one.dsts:
                m.find(
                    "NKI-U05",
                    "warning",
                    "the sum that begins here is left in the accumulator "
                    "registers: no reduce_res reads it out",
                    one.line,
                )


__all__ = ["register_check", "ended"]
