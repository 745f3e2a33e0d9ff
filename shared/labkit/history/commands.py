"""`labkit history`: latencies over time, in the terminal."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from ..show import add_json, answer, terminal
from .points import SECOND, points, series
from .queue import runs_of, send, waiting
from .server import HistoryError, configured

RESULTS = Path("results") / "results.json"
BARS = "▁▂▃▄▅▆▇█"
PLAIN = "_.,-=+*#"  # for a file in an 8-bit encoding
WIDTH = 24
KEYS = ("kind", "lab", "case", "target", "student")  # of a series


def sparkline(values: Sequence[float], bars: str = BARS) -> str:
    """Return the last values as bars, the largest a full one; a flat line is low."""
    shown = list(values[-WIDTH:])
    low, high = min(shown), max(shown)
    span = high - low or 1.0
    return "".join(bars[round((v - low) / span * (len(bars) - 1))] for v in shown)


def history_parser() -> argparse.ArgumentParser:
    """Return the parser of history."""
    parser = argparse.ArgumentParser(prog="labkit history", description=history.__doc__)
    parser.add_argument("labs", nargs="*", metavar="LAB", help="only these labs")
    parser.add_argument("--case", help="only cases whose name contains this")
    parser.add_argument("--target", help="only this generation")
    parser.add_argument("--student", help="only this student")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    parser.add_argument("--here", action="store_true", help="from results/, server or not")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page as well")
    add_json(parser)
    return parser


def history(argv: Sequence[str] | None = None) -> int:
    """Show latencies over time, from the server if one is configured, else from results/."""
    args = history_parser().parse_args(argv)
    console, server = terminal(), None if args.here else configured()
    source, measured = f"{args.results}", []
    if server is not None:
        try:
            send(args.results, server)
            measured, source = server.read(), server.url
        except HistoryError as error:
            console.print(
                f"[yellow]{escape(str(error))}[/]; showing {args.results} instead; "
                f"{len(waiting(args.results, server))} of its runs wait to be sent",
                soft_wrap=True,
            )
    if not measured:
        measured = [p for run in runs_of(args.results) for p in points(run)]
    rows = {
        key: values
        for key, values in series(measured).items()
        if (not args.labs or key[1] in args.labs)
        and (args.case or "") in key[2]
        and args.target in (None, key[3])
        and args.student in (None, key[4])
    }
    if not rows:
        console.print(
            f"no right run with a latency in {source}; nox -s benchmark makes some", highlight=False
        )
        return 2
    table = Table(
        title=f"Latency over time, from {source}", title_justify="left", box=None, pad_edge=False
    )
    for name in KEYS:
        table.add_column(name, overflow="fold")
    for name in ("runs", "first us", "last us", "best us"):
        table.add_column(name, justify="right")
    table.add_column("p50 over time")
    table.add_column("last run (UTC)")
    bars = BARS if console.encoding.startswith("utf") else PLAIN
    for key, values in rows.items():
        us = [v for _, v in values]
        when = datetime.fromtimestamp(values[-1][0] // SECOND, timezone.utc)
        table.add_row(
            *key,
            str(len(us)),
            f"{us[0]:,.1f}",
            f"{us[-1]:,.1f}",
            f"{min(us):,.1f}",
            sparkline(us, bars),
            f"{when:%Y-%m-%d %H:%M}",
        )
    console.print(table)
    answer["series"] = [
        {**dict(zip(KEYS, key)), "us": [v for _, v in values]} for key, values in rows.items()
    ]
    if any(key[0] == "predicted" for key in rows):
        console.print(
            "Latencies of the kind predicted are nkisim's, not measured.", highlight=False
        )
    if args.html:
        from .page import write_page

        write_page(args.html, rows, source)
        console.print(f"written: {args.html}", highlight=False, soft_wrap=True)
    return 0
