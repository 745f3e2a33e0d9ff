"""The policy of a class's grades: the deadline, and what a late day costs.

It is kept in OUT/policy.json. A later command that does not repeat it means the same; one that says
something else, and by which a grade changes, has to say so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from ..spec import SpecError
from .plan import LatePolicy
from .submissions import is_address, parse_time, safe_id

NONE = "none"  # --deadline none: there is none
SHOWN = 20  # names that a message lists


def deadline(text: str) -> datetime | str:
    """Return what --deadline says: a time with its zone, or NONE."""
    return NONE if text.strip().lower() == NONE else parse_time(text)


def stored(out: Path) -> LatePolicy | None:
    """Return the policy of a folder of grades, None if it has none yet."""
    path = out / "policy.json"
    if not path.is_file():
        return None
    try:
        policy = json.loads(path.read_text(encoding="utf-8"))
        return LatePolicy(
            parse_time(policy["deadline"]) if policy["deadline"] else None,
            float(policy["late_per_day"]),
            int(policy["late_days"]),
        )
    except (OSError, ValueError, LookupError, TypeError):
        raise SpecError(
            f"{path} cannot be read, and grades depend on it: restore it, or delete "
            "it and give --deadline again"
        ) from None


def settle(
    out: Path,
    asked: datetime | str | None,
    per_day: float | None,
    days: int | None,
    rows: Mapping[str, Mapping[str, str]],
    change: bool,
) -> tuple[LatePolicy, str]:
    """Return the policy that counts, and a sentence about it; keep it in `out`.

    `asked`, `per_day`, `days`: what the command says, None where it says nothing. `rows`: the
    submissions. Raises SpecError if grades that were given would change, unless `change` says
    that they should.
    """
    before = stored(out)
    base = before or LatePolicy()
    late = LatePolicy(
        base.deadline if asked is None else None if isinstance(asked, str) else asked,
        base.per_day if per_day is None else per_day,
        base.days if days is None else days,
    )
    changed = _changed(out, base, late, rows) if late != base else []
    if changed and not change:
        more = f" and {len(changed) - SHOWN} more" if len(changed) > SHOWN else ""
        raise SpecError(
            f"{out} was graded with {describe(base)}; this command says {describe(late)}. "
            f"{len(changed)} grade{'s' * (len(changed) > 1)} would change: "
            f"{', '.join(changed[:SHOWN])}{more}.\nIf that is meant, add --change-deadline; if "
            "not, leave --deadline, --late-per-day and --late-days out: what is stored counts"
        )
    out.mkdir(parents=True, exist_ok=True)
    part = out / "policy.json.part"
    part.write_text(
        json.dumps(
            {
                "deadline": late.deadline.isoformat() if late.deadline else None,
                "late_per_day": late.per_day,
                "late_days": late.days,
            },
            indent=1,
        )
        + "\n",
        encoding="utf-8",
    )
    os.replace(part, out / "policy.json")
    if changed:
        return late, f"{describe(late)}, no longer {describe(base)}; changed: {', '.join(changed)}"
    return late, describe(late) + (", as before" if before is not None and asked is None else "")


def describe(late: LatePolicy) -> str:
    """Return a policy in words."""
    if late.deadline is None:
        return "no deadline"
    return (
        f"the deadline {late.deadline.isoformat()} ({100 * late.per_day:g} % a late day, "
        f"{late.days} days)"
    )


def _changed(
    out: Path, old: LatePolicy, new: LatePolicy, rows: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """Return whose grade another policy changes, and how."""
    submissions: dict[str, Any] = {}
    if (out / "submissions.json").is_file():
        submissions = json.loads((out / "submissions.json").read_text(encoding="utf-8"))
    changes = []
    for id, entry in sorted(submissions.items()):
        path = out / "verdicts" / f"{id}.json"
        row = next((r for s, r in rows.items() if safe_id(s) == id), {})
        at = row.get("submitted_at") or entry["submitted_at"]
        if not path.is_file():
            continue
        points = json.loads(path.read_text(encoding="utf-8"))["points"]
        submitted = parse_time(at) if at else None
        before, after = (points * late.share(submitted)[0] for late in (old, new))
        if round(before, 2) != round(after, 2):
            changes.append(f"{entry['student']} {before:.4g} -> {after:.4g}")
        elif (
            is_address(row.get("source", ""))
            and not row.get("commit")
            and old.deadline != new.deadline
        ):
            changes.append(f"{entry['student']} (another commit may count)")
    return changes
