"""What a run has to say that the chip would keep to itself."""
from __future__ import annotations

from dataclasses import dataclass

from ..errors import Where


@dataclass(frozen=True)
class Finding:
    """Something that the chip would not tell: a hazard, an alias, a read of undefined data."""

    id: str
    severity: str                   # "error" | "warning" | "note"
    text: str
    where: Where | None = None
    other: Where | None = None      # the second place, for what needs two

    def __str__(self) -> str:
        lines = [f"{self.severity}: {self.id} {self.text}"]
        for label, place in (("at", self.where), ("and", self.other)):
            if place is not None:
                lines.append(f"  {label} {place}: {place.text}")
        return "\n".join(lines)
