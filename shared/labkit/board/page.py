"""The leaderboard as a page for any browser, offline, and as a table in the terminal."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from ..dialect import PACKAGE
from ..grade.report import environment
from .rank import Table, blocks, sparkline

PAGES = Path(__file__).with_name("pages")


def render(
    tables: Sequence[Table],
    public: str,
    verified: int,
    refused: Sequence[tuple[str, str]],
    live: dict[str, int] | None = None,
) -> str:
    """Return the page: the same bytes for the same entries."""
    from jinja2 import ChoiceLoader, FileSystemLoader

    pages = environment()
    pages.loader = ChoiceLoader([pages.loader, FileSystemLoader(PAGES)])
    pages.filters["package"] = PACKAGE.get
    pages.filters["of"] = _of
    pages.filters["spark"] = lambda standing: sparkline(standing.history)
    script = (PAGES / "sort.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return pages.get_template("board.html").render(
        tables=tables,
        public=public,
        verified=verified,
        refused=refused,
        live=live,
        script=script,
        script_hash=digest,
    )


def _of(dialect: str) -> str:
    """Return what a title says of the dialect."""
    return f" ({PACKAGE[dialect]})" if dialect else ""


def show(console: Console, tables: Sequence[Table], refused: Sequence[tuple[str, Any]]) -> None:
    """Print the tables and what was refused."""
    for t in tables:
        table = RichTable(
            title=f"{t.lab}{_of(t.dialect)} on {t.target}, {t.kind} ({t.backend}, {t.version})",
            title_justify="left",
            box=None,
        )
        columns = ["rank", "who", "times as fast", "mean us", "entries", "history"]
        for name in columns + ["dialect"] * (not t.dialect):
            table.add_column(
                name, justify="left" if name in ("who", "history", "dialect") else "right"
            )
        for s in t.standings:
            table.add_row(
                str(s.rank),
                escape(s.name),
                f"{s.speed:.3f}",
                f"{s.mean_us:,.2f}",
                str(s.entries),
                blocks(s.history),
                *[PACKAGE[s.best.dialect]] * (not t.dialect),
            )
        console.print(table)
        for line in t.left_out:
            console.print(f"  not ranked: {escape(line)}", highlight=False)
        if t.kind == "predicted":
            console.print("  Predicted by a model, not measured on a chip.", highlight=False)
    for name, why in refused:
        console.print(f"[red]refused[/] {escape(name)}: {escape(str(why))}", highlight=False)
