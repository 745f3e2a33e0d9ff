"""Send what has not been sent: results.json is the queue, results.sent what is done with."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from .points import id_of, points
from .server import HistoryError, Server, Unreachable, configured

BATCH = 500  # points a request


def runs_of(results: Path) -> list[dict[str, Any]]:
    """Return the runs of a results file; [] if it is missing or unreadable."""
    try:
        return list(json.loads(results.read_text(encoding="utf-8"))["runs"])
    except (OSError, ValueError, KeyError, TypeError):
        return []


def sent_ids(results: Path, server: Server) -> set[str]:
    """Return the ids of the runs that a server has."""
    try:
        lines = results.with_suffix(".sent").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    parts = (line.partition(" ") for line in lines)
    return {run for run, _, name in parts if name == server.name}


def waiting(results: Path, server: Server) -> list[dict[str, Any]]:
    """Return the runs that a server does not have yet, the oldest first."""
    done = sent_ids(results, server)
    return [run for run in runs_of(results) if id_of(run) not in done and not run.get("unfinished")]


def send(results: Path, server: Server, progress: Callable[[int], None] = lambda _: None) -> int:
    """Send what waits, some runs at a time; return how many points went.

    Raises Unreachable when no connection is made (what was sent before stays sent) and HistoryError
    when it refuses.
    """
    try:
        with FileLock(str(results.with_suffix(".sent")) + ".lock", timeout=10):
            return _send(results, server, progress)
    except Timeout:
        raise Unreachable("another run sends at the moment") from None


def _send(results: Path, server: Server, progress: Callable[[int], None]) -> int:
    count = 0
    batch: list[dict[str, Any]] = []
    ids: list[str] = []

    def flush() -> None:
        nonlocal count, batch, ids
        if batch:
            server.write(batch)
        if ids:
            with results.with_suffix(".sent").open("a", encoding="utf-8") as file:
                file.write("".join(f"{one} {server.name}\n" for one in ids))
                file.flush()
                os.fsync(file.fileno())
        count += len(batch)
        progress(count)
        batch, ids = [], []

    for run in waiting(results, server):
        batch += points(run)
        ids.append(id_of(run))
        if len(batch) >= BATCH:
            flush()
    flush()
    return count


def after_a_run(results: Path) -> list[str]:
    """Send after a run was recorded, if a server is configured; return what to tell the user."""
    server = configured()
    if server is None:
        return []
    try:
        send(results, server)
    except Unreachable as error:
        return [f"{error}; {len(waiting(results, server))} runs wait and are sent after the next"]
    except HistoryError as error:
        return [str(error)]
    return []
