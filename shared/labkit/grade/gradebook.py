"""Who stands in the gradebook: the class, and neither its staff nor names that are mistyped."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..spec import SpecError
from ..tables import read_table
from .submissions import NOTHING

STAFF = "staff"


@dataclass(frozen=True)
class Gradebook:
    """The class's roster (None: not given), and whose submissions are the staff's."""

    roster: frozenset[str] | None
    staff: frozenset[str]

    @classmethod
    def of(cls, out: Path, roster: Path | None, staff: Sequence[str] | None) -> Gradebook:
        """Return what the command says, else what an earlier one has left in `out`; keep it."""
        path = out / "class.json"
        settings: dict[str, Any] = {}
        if path.is_file():
            try:
                settings = json.loads(path.read_text(encoding="utf-8"))
            except ValueError:
                raise SpecError(
                    f"{path} cannot be read: delete it and give --roster again"
                ) from None
        names = (
            settings.get("roster")
            if roster is None
            else sorted(row["student"] for row in read_table(roster, "student"))
        )
        others = settings.get("staff", [STAFF]) if staff is None else sorted(staff)
        part = path.with_name(path.name + ".part")
        part.write_text(
            json.dumps({"roster": names, "staff": others}, indent=1) + "\n", encoding="utf-8"
        )
        os.replace(part, path)
        os.chmod(path, 0o600)
        return cls(None if names is None else frozenset(names), frozenset(others))

    def apart(self, student: str, known: Mapping[str, Any]) -> str:
        """Return why a student of submissions.json is in no gradebook; "" for one of the class."""
        if student in self.staff:
            return "staff"
        if self.roster is None:
            return (
                "nothing was handed in under this name: mistyped? With --roster the class is known"
                if known["problem"] == NOTHING
                else ""
            )
        return "" if student in self.roster else "not in the roster"
