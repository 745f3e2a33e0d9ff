"""The handle that an instruction returns, and the order that it may ask for."""

from __future__ import annotations

from typing import Any

from ...errors import NkiError, fail
from ...lint import level
from ...machine.context import machine
from ...machine.interface import Machine
from ...trace.trace import NODE, SPEC
from . import refusals
from .enums import dependency


class NkiInstruction:
    """The handle of an issued instruction, for scheduling; `number`: its place in the record."""

    __slots__ = ("name", "number")

    def __init__(self, number: int, name: Any = None):
        self.number, self.name = number, name

    @staticmethod
    def issued(m: Machine, name: Any = None) -> NkiInstruction:
        """Return the handle of the instruction that was issued last."""
        number = len(m.trace.starts) - 1
        if name is not None:
            numbers = m.trace.named.setdefault(name, [])
            if numbers:
                refusals.named(m, name, numbers[-1])
            numbers.append(number)
        return NkiInstruction(number, name)

    def depends_on(self, *producers: NkiInstruction, kind: Any = None) -> NkiInstruction:
        """Begin only when `producers` are done; with kind=nisa.dependency.schedule be issued later.

        Raises NKI-N11 for what is no instruction, and for one that a loop of the device separates.
        """
        m = machine("NkiInstruction.depends_on")
        if kind is None and level.release() >= "0.7":
            m.find(
                "NKI-N06",
                "note",
                "depends_on without kind= is deprecated since 0.7: write "
                "kind=nisa.dependency.runtime",
                m.here(),
            )
        elif kind is not None and level.release() < "0.7":
            raise edge_error(
                "depends_on: kind= came with NKI 0.7",
                f"kind={kind!r}",
                f"NKI {level.release()}: an edge waits when the kernel runs",
            )
        elif kind is not None and not isinstance(kind, dependency):
            raise edge_error(
                "depends_on: kind is no member of nisa.dependency",
                f"kind={kind!r}",
                "nisa.dependency.runtime, nisa.dependency.schedule",
            )
        for x in producers:
            if not isinstance(x, NkiInstruction):
                raise edge_error(
                    "depends_on takes instructions",
                    f"{type(x).__name__}",
                    "what a call of nisa returns",
                )
            issued = [m.trace.rows[m.trace.starts[i.number] + SPEC] for i in (self, x)]
            if kind is not dependency.schedule:
                _nested(m, self.number, x.number)
            elif len({m.trace.op_specs[k].engine for k in issued}) > 1:
                continue  # issued in order; engines go on beside each other
            edge(m, x.number, self.number)
        return self

    def __repr__(self) -> str:
        return f"NkiInstruction({self.number})"


def _nested(m: Machine, consumer: int, producer: int) -> None:
    """Raise unless an instruction is in the loop of the device of another one, or in one in it."""
    tr = m.trace
    node, outer = (tr.rows[tr.starts[i] + NODE] for i in (consumer, producer))
    while node != outer and node >= 0:
        node = tr.node_parent[node]
    if node != outer:
        raise edge_error(
            "an edge leads out of a loop of the device",
            "the producer runs in nl.fori_loop or nl.while_loop, the consumer not",
            "both in one body, or the producer before the loop: the wait is fixed "
            "when the kernel is compiled",
        )


def edge(m: Machine, producer: int, consumer: int) -> None:
    """Let an instruction wait for another one."""
    if producer < consumer:
        m.trace.edges.append((producer, consumer))
    else:
        m.find(
            "NKI-N11",
            "note",
            "an instruction is to wait for one that comes later in the "
            "program; the predicted schedule keeps the order of the program",
            m.here(),
        )


def edge_error(what: str, given: str, limit: str) -> NkiError:
    """Return the error for an edge that makes no sense."""
    return fail("NKI-N11", what, given=given[:90], limit=limit)
