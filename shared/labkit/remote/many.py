"""Several hosts at once: the same run on each, one table."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from . import hosts
from .client import Job, Report, Run
from .ssh import Host, RemoteError
from .tree import Tree

AT_ONCE = 16


def on_all(found: list[Host], job: Job, tree: Tree, err: Console) -> int:
    """Run a job on all hosts; return 0 if it passed on all, 1 if it failed on one, else 2."""
    rows: dict[str, dict[str, Any]] = {h.name: {"now": "waits", "last": ""} for h in found}
    guard = threading.Lock()

    def work(host: Host) -> Report:
        row = rows[host.name]

        def say(text: str) -> None:
            row["last"] = text

        def out(piece: bytes) -> None:
            lines = [line for line in piece.decode(errors="replace").splitlines() if line.strip()]
            row["last"] = lines[-1].strip() if lines else row["last"]

        try:
            run = Run(host, tree, say, out)
            row["now"] = "sends"
            begun = run.begin(job)
            row["now"] = "runs"
            ended = run.follow(begun["id"])
            row["now"] = "fetches"
            with guard:  # one results file, and names of profiles that are the same on all
                report = run.collect(ended, job.results)
        except RemoteError as error:
            report = Report(host.name, 2, str(error))
        row["now"] = {0: "passed", 1: "failed"}.get(report.code, "could not run")
        row["last"] = report.text or report.cost
        return report

    def table() -> Table:
        t = Table(box=None, pad_edge=False)
        for name in ("host", "state", "last line"):
            t.add_column(name, overflow="ellipsis", no_wrap=name != "last line")
        for name, row in rows.items():
            t.add_row(name, row["now"], row["last"])
        return t

    for host in found:
        hosts.remember(tree, host)
    tree.origin()
    with (
        Live(
            get_renderable=table, console=err, refresh_per_second=4, transient=not err.is_terminal
        ) as live,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        try:
            reports = list(pool.map(work, found))
        except KeyboardInterrupt:
            live.stop()
            err.print("You have left the runs; they go on. The same command picks them up.")
            sys.stderr.flush()
            os._exit(2)  # threads wait for the network; a kill at any point loses nothing
    if not err.is_terminal:
        err.print(table())
    codes = {r.code for r in reports}
    return 1 if 1 in codes else max(codes)
