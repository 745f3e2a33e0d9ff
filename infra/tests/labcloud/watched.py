"""Look at every running machine at every virtual minute: would AWS stop it by itself?

A switch (`set watching=True`), for it asks about each machine each minute. What it sees is in
`watched`: the minutes, how many machines ran in all of them, who had no guard, and for how long
machines waited for the guard that names them.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from . import automation, guards
from .world import WORLD, tags_of

ALWAYS = {"nightly", "teardown", "budget"}
EITHER = {"unarmed", "alarm"}  # before a machine is armed, and from then on
MINUTE = dt.timedelta(minutes=1)


def next_minute(after: dt.datetime) -> dt.datetime:
    """Return the first full minute after a moment."""
    return after.replace(second=0, microsecond=0) + MINUTE


def look(now: dt.datetime) -> None:
    """Judge every running machine, if someone wants to know and a minute is full."""
    if not WORLD.watching or now.second or now.microsecond:
        return
    seen = WORLD.watched
    seen["minutes"] = seen.get("minutes", 0) + 1
    waiting = seen.setdefault("waiting", {})
    for region in WORLD.regions:
        for m in automation.machines(region):
            if m.state not in ("pending", "running"):
                waiting.pop(m.id, None)
                continue
            seen["machine minutes"] = seen.get("machine minutes", 0) + 1
            found, tag = set(guards.covering(m)), tags_of(m).get("trainium-labs:guard", "")
            armed = tag == "armed"
            waiting[m.id] = 0 if armed else waiting.get(m.id, 0) + 1
            seen["longest wait"] = max(seen.get("longest wait", 0), waiting[m.id])
            if not ALWAYS <= found or not EITHER & found or (armed and "alarm" not in found):
                bad: dict[str, Any] = {"t": now.isoformat(), "instance": m.id, "tag": tag}
                seen.setdefault("unguarded", []).append({**bad, "guards": sorted(found)})


def report() -> dict[str, Any]:
    """Return what was seen."""
    return {"unguarded": [], **{k: v for k, v in WORLD.watched.items() if k != "waiting"}}
