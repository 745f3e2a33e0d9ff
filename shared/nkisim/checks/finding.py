"""What a run has to say that the chip would keep to itself."""

from __future__ import annotations

import linecache
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Any

from ..errors import DIALECT, NkiError, Where
from ..errors.rules import RULES
from ..trace.trace import Trace

#: worst first
SEVERITIES = ("error", "warning", "note")


@dataclass(frozen=True)
class Finding:
    """Something that the chip would not tell: a hazard, an alias, a read of undefined data."""

    id: str
    severity: str  # "error" | "warning" | "note"
    text: str
    where: Where | None = None
    other: Where | None = None  # the second place, for what needs two
    hint: str = ""  # what to try, where it is not the rule's own

    @property
    def key(self) -> tuple[Any, ...]:
        """Return what makes it another one than others: its rule and places, not the shapes."""
        text = self.text if self.where is None else ""
        return self.id, self.severity, self.where, self.other, text

    @property
    def refused(self) -> bool:
        """Return whether AWS's compiler is known to refuse what the finding reports."""
        least = getattr(RULES.get(self.id), "refused", "")
        return least != "" and SEVERITIES.index(self.severity) <= SEVERITIES.index(least)

    def suggestion(self) -> str:
        """Return what to try: the finding's own hint, or that of its rule, or ""."""
        rule = RULES.get(self.id)
        return self.hint or (rule.hint if rule else "")

    def to_dict(self) -> dict[str, Any]:
        """Return the finding for JSON: id, severity, text, try, places (one or two)."""
        return {
            "id": self.id,
            "severity": self.severity,
            "text": self.text,
            "try": self.suggestion(),
            "places": [p.to_dict() for p in (self.where, self.other) if p is not None],
        }

    def __str__(self) -> str:
        lines = [f"{self.severity}: {self.id} {self.text}"]
        for label, place in (("at", self.where), ("and", self.other)):
            if place is not None and not (label == "and" and place == self.where):
                lines.append(f"  {label} {place}: {place.text}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: what it is, and the lines of the user's code."""
        color = {"error": "#c23f35", "warning": "#b55c00"}.get(self.severity, "#667084")
        places = "".join(
            _source(place) for place in dict.fromkeys((self.where, self.other)) if place is not None
        )
        hint = f"<p>Try: {escape(tip)}</p>" if (tip := self.suggestion()) else ""
        return (
            f'<div style="border-left:4px solid {color};padding-left:.8em;margin:.6em 0"><p><b>'
            f"{escape(self.severity)} {escape(self.id)}</b> {escape(self.text)}</p>{places}"
            f"{hint}<p>More: <code>python -m nkisim explain {escape(self.id)}</code></p></div>"
        )


class Findings(list[Finding]):
    """The findings of a launch, each rule and pair of lines of its record once.

    `total`: how often something was found, or found again.
    """

    def __init__(self, trace: Trace):
        super().__init__()
        self._trace, self.total = trace, 0
        self._found: set[tuple[str, int, int]] = set()

    def find(self, id: str, severity: str, text: str, where: int = -1, other: int = -1) -> None:
        """Add a finding unless its rule was broken at the same lines before."""
        self.total += 1
        key = (id, where, other)
        if key not in self._found:
            self._found.add(key)
            place = self._trace.where
            self.append(Finding(id, severity, text, place(where), place(other), _cure(id, text)))

    def found(self, id: str, where: int, other: int = -1) -> bool:
        """Return whether a finding has been added."""
        return (id, where, other) in self._found


def _cure(id: str, text: str) -> str:
    """Return what to try where it is not the rule's own: what the text says, or the dialect's."""
    parts = text.rpartition(" Try: ")
    if parts[1]:
        return parts[2]
    return RULES[id].nki_hint if DIALECT.get().names_dst and id in RULES else ""


def _source(place: Where, around: int = 2) -> str:
    """Return a place and the lines around it, as HTML; its line is marked."""
    text = linecache.getlines(place.file)
    first = max(1, place.line - around)
    lines = [
        f"{'&gt;' if n == place.line else ' '} {n:4d}  {escape(t.rstrip())}"
        for n, t in enumerate(text[first - 1 : place.line + around], first)
    ]
    return (
        f"<p>{escape(place.function or 'line')} at line {place.line}</p>"
        f"<pre style='font-family: monospace'>{chr(10).join(lines)}</pre>"
    )


def as_finding(error: NkiError) -> Finding:
    """Return a broken rule as a finding of severity error."""
    text = error.what + "".join(
        f"; {label} {part}"
        for label, part in (("limit:", error.limit), ("given:", error.given))
        if part
    )
    return Finding(error.id, "error", text, error.where, hint=error.hint)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return each finding once, by severity, then by id and place; a place with its first text."""
    seen: dict[tuple[Any, ...], Finding] = {}
    for f in findings:
        seen.setdefault(f.key, f)
    return sorted(
        seen.values(), key=lambda f: (SEVERITIES.index(f.severity), f.id, f.text, str(f.where))
    )
