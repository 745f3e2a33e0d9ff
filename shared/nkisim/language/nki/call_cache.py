"""Calls that look like one that was issued: they are issued again without another look.

Loops make the same call many times, with other tiles of the same forms. What the signature, the
enums, the adapters and the table of refusals say of a call depends on nothing else; so a call in
which nothing was found is remembered by how it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

from ...chip.memory import PSUM
from ...isa.table import Accepted, Row
from ...machine.interface import Machine
from ...machine.tensor import Tensor
from . import refusals
from .enums import OF_PARAMETER
from .tensor import NkiTensor

#: classes of arguments that mean the same in each call; functions are those of nl
_VALUES = frozenset((int, float, bool, str, type(None), FunctionType, *OF_PARAMETER.values()))


class Written(NamedTuple):
    """How an instruction was issued. `asked`: accumulate=, `onto`: it adds to what `dst` holds."""

    row: Row
    dst: Any
    asked: bool | None
    onto: bool


class Known(NamedTuple):
    """A call in which nothing was found, for calls that look like it.

    Places are among the tiles of a call, in the order in which it is written, and the `constants`
    behind them. `accepted`: what the row has planned; `dst`: the place of the destination, -1 if
    the row has it; `asked`, `onto`: see `Written`; `read`: places of what may be sums in PSUM.
    """

    accepted: Accepted
    dst: int
    asked: bool | None
    onto: bool
    read: tuple[int, ...]
    constants: tuple[Tensor, ...]
    name: Any

    def issue(self, m: Machine, tiles: list[Tensor], line: int, write: Callable[..., None]) -> None:
        """Plan the instruction with other tiles of the same forms, and `write` (call.py) it."""
        accepted, dst, asked, onto, read, constants, _ = self
        tiles += constants
        if read:
            refusals.read([tiles[i] for i in read], m.memory.psum_sums)
        ins = accepted.with_tiles(m, tiles)
        ins.line = line
        write(m, ins, tiles[dst], asked, onto)


def call_signature(
    signature: Any, args: tuple, kw: dict[str, Any]
) -> tuple[tuple | None, list[Tensor]]:
    """Return what a call looks like, and its tiles; see `Row.known`.

    None: something in it may mean something else in a call that looks like it. What it does not
    tell: where tiles lie in their storages, and what has been added up there.
    """
    key: list[Any] = [signature, *kw]
    tiles: list[Tensor] = []
    for x in (*args, *kw.values()) if kw else args:
        kind = x.__class__
        if kind is NkiTensor:
            x = x._t
            if x.__class__ is not Tensor or x.oob is not None:
                return None, tiles
            tiles.append(x)
            st = x.storage
            key += (x.shape, x.dtype, x.memory, 0 if st.arena else st.row_bytes)
        elif kind is float and not x:
            key.append(str(x))  # 0.0 and -0.0 are equal
        elif kind in _VALUES or kind is tuple and all(n.__class__ is int for n in x):
            key += (kind, x)  # so are 1 and 1.0
        else:
            return None, tiles
    return tuple(key), tiles


def remember(
    m: Machine,
    key: tuple,
    written: Written,
    tiles: dict[str, Tensor],
    given: dict[str, Any],
    name: Any,
) -> None:
    """Remember a call for others, if what its row was given are tiles of the call (`tiles`) and
    constants of the machine."""
    accepted = written.row.known(m, (), given)[2]
    names, places = list(tiles), []
    constants: list[Tensor] = []
    for n, x in given.items():
        if x.__class__ is not Tensor:
            continue
        if tiles.get(n) is x:
            places.append(names.index(n))
        elif any(x is c for c in m.core.constants.values()):
            places.append(len(names) + len(constants))
            constants.append(x)
        else:
            return
    dst = names.index("dst") if tiles.get("dst") is written.dst else -1
    if accepted is None or dst < 0 and accepted.dst < 0 or not refusals.fit_apart(m, tiles):
        return
    operands = [""] * (len(names) + len(constants))
    for place, operand in zip(places, accepted.names):
        operands[place] = operand
    m.core.accepted[key] = Known(
        Accepted.of(
            accepted.pattern,
            tuple(operands),
            tuple(places[i] for i in accepted.srcs),
            places[accepted.dst] if accepted.dst >= 0 else -1,
            tuple(places[i] for i in accepted.also),
        ),
        dst,
        written.asked,
        written.onto,
        tuple(i for i, n in enumerate(names) if n != "dst" and tiles[n].memory is PSUM),
        tuple(constants),
        name,
    )
