"""Runs of results.json as points of a time series, and as rows of a table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from ..spec import hbm_bytes

MEASUREMENT = "latency"
TAGS = ("kind", "student", "lab", "kernel", "case", "target", "backend", "commit", "sdk", "host")
SECOND = 10**9


def id_of(run: dict[str, Any]) -> str:
    """Return the id of a run; one that was recorded before runs had ids has that of its content."""
    return run.get("id") or hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()


def time_of(run: dict[str, Any]) -> int:
    """Return the time of a run in ns since 1970.

    Runs are recorded to the second. The id adds a fraction, always the same, so that two runs of
    one second are two points.
    """
    seconds = int(datetime.fromisoformat(run["time"].replace("Z", "+00:00")).timestamp())
    return seconds * SECOND + int(hashlib.sha256(id_of(run).encode()).hexdigest()[:12], 16) % SECOND


def points(run: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a point for each case of a run that has a latency, as influxdb-client takes them."""
    try:
        at = time_of(run)
    except (KeyError, TypeError, ValueError, AttributeError):
        return
    for case in run.get("cases") or ():
        latency = case.get("latency_us") or {}
        fields = {k: float(v) for k, v in latency.items() if isinstance(v, (int, float))}
        if not fields:
            continue
        tags = {
            "kind": case.get("latency_kind"),
            "student": run.get("student") or "unnamed",
            "lab": run.get("lab"),
            "kernel": case.get("kernel"),
            "case": case.get("case"),
            "target": case.get("target") or run.get("target"),
            "backend": run.get("backend"),
            "commit": (run.get("git_commit") or "none")[:12],
            "sdk": run.get("sdk") or f"nkisim {run.get('nkisim')}",
            "host": (run.get("remote") or {}).get("host") or "here",
        }
        if (moved := hbm_bytes(case.get("stats") or {})) is not None:
            fields["hbm_bytes"] = float(moved)
        fields["right"] = 1.0 if case.get("status") == "passed" else 0.0
        yield {
            "measurement": MEASUREMENT,
            "tags": {k: str(v) for k, v in tags.items() if v},
            "fields": fields,
            "time": at,
        }


def series(found: Iterable[dict[str, Any]]) -> dict[tuple[str, ...], list[tuple[int, float]]]:
    """Return (time, p50 us) in order, by kind, lab, case, target and student; right runs only."""
    out: dict[tuple[str, ...], list[tuple[int, float]]] = {}
    for point in found:
        if point["fields"].get("right") and "p50" in point["fields"]:
            tags = point["tags"]
            key = tuple(tags.get(k, "") for k in ("kind", "lab", "case", "target", "student"))
            out.setdefault(key, []).append((point["time"], point["fields"]["p50"]))
    return {key: sorted(values) for key, values in sorted(out.items())}
