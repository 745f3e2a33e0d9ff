"""The machine that is running a kernel in this thread of control, if one is."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

from ..errors import fail, find_where, trim

if TYPE_CHECKING:
    from .interface import Machine

current: ContextVar[Machine | None] = ContextVar("nkisim_machine", default=None)


class NeedsValues(Exception):
    """A run without values has come to a decision that depends on one: it must run with them."""


def machine(what: str) -> Machine:
    """Return the machine that is running a kernel, or raise if none is."""
    m = current.get()
    if m is None:
        raise trim(
            fail(
                "NKI-K01",
                f"{what} was called outside of a kernel",
                limit="nl and nisa calls make instructions, and only a kernel has those",
                hint=f"write @nki.jit in the line above def {where.function}(...)"
                if (where := find_where()) and where.function.isidentifier()
                else "",
            )
        )
    return m
