"""How strictly findings are taken: NKISIM_CHECKS is teach (the default), strict or off."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..errors import NkiError, fail
from .finding import Finding, worst_first

VARIABLE = "NKISIM_CHECKS"
LEVELS = TEACH, STRICT, OFF = "teach", "strict", "off"


def setting(variable: str, allowed: Sequence[str], default: str, rule: str) -> str:
    """Return the value of a variable of the environment; raise `rule` for another one."""
    given = os.environ.get(variable, "")
    value = given.strip().lower() or default
    if value not in allowed:
        raise fail(
            rule,
            f"{variable} has no such value",
            given=f"{variable}={given}",
            limit=", ".join(allowed),
            hint=f"one of {', '.join(allowed)}",
        ).nowhere()
    return value


def requested() -> str:
    """Return the level that the environment asks for."""
    return setting(VARIABLE, LEVELS, TEACH, "NKI-K16")


def as_error(findings: Sequence[Finding]) -> NkiError | None:
    """Return the error that the worst finding is at the level strict; None if all are notes."""
    bad = [f for f in worst_first(findings) if f.severity != "note"]
    if not bad:
        return None
    first, more = bad[0], len(bad) - 1
    where = first.where or first.other
    other = f"; see also {first.other}" if first.other and first.other != where else ""
    return fail(
        first.id,
        first.text
        + other
        + (f"; and {more} more findings" if more > 1 else "; and one more finding" if more else ""),
        where=where,
        hint=first.hint,
        limit=f"no warning passes ({VARIABLE}=strict)",
    )
