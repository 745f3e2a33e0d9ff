"""The table of instructions as plain values, for tools that generate from it."""

from __future__ import annotations

import inspect
from typing import Any

from .chip import dtypes
from .chip.hw import CORES
from .isa.operands import DTYPES, Operand
from .isa.table import ROWS, Row
from .language.beta1 import isa as beta1_isa  # noqa: F401 (fills the table)
from .language.nki import isa, language

#: In this order an operand's dtype is chosen from those that it takes.
_DTYPES = ("float32", "bfloat16", "uint32", "int32", "uint16", "uint8", "float8_e4m3fn_x4")


def declared() -> list[dict[str, Any]]:
    """Return a dict for each instruction, by name: see `nkisim.rows`."""
    return [_row(row) for _, row in sorted(ROWS.items())]


def _row(row: Row) -> dict[str, Any]:
    nki = row.nki.partition("(")[0]
    parameters = {"beta1": row.signature} if row.public else {}
    if nki:
        module, _, name = nki.partition(".")
        parameters["nki"] = inspect.signature(getattr({"nisa": isa, "nl": language}[module], name))
    return {
        "name": row.name,
        "beta1": row.public,
        "nki": nki,
        "parameters": {
            dialect: {p.name: p.default is p.empty for p in s.parameters.values()}
            for dialect, s in parameters.items()
        },
        "operands": [_operand(o) for o in row.documented],
        "engines": list(row.engines),
        "writes": list(row.writes),
        "targets": [c.name for c in CORES if not row.needs or getattr(c, row.needs)],
    }


def _operand(o: Operand) -> dict[str, Any]:
    taken = (
        n
        for n in _DTYPES
        for dt in [dtypes.normalize(n)]
        if DTYPES[o.dtypes][0](dt) and DTYPES[o.documented][0](dt)
    )
    low, high = o.elements or (0, "")
    return {
        "name": o.name,
        "role": o.role,
        "form": o.takes,
        "dtype": next(taken, ""),
        "numbers": o.numbers is True,
        "optional": o.optional,
        "width": low if low == high else None,
    }
