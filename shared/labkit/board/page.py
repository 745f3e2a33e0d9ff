"""The leaderboard as a page for any browser, offline, and as a table in the terminal."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from ..dialect import PACKAGE
from ..grade.report import environment
from ..grade.report import table as table_of
from .rank import Standing, Table, blocks, sparkline

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
    pages.filters["columns"] = columns
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


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def columns(t: Table) -> dict[str, Callable[[Standing], str]]:
    """Return the numbers of a table's lines: name of the column -> text; "-" if it is not known."""
    texts: dict[str, Callable[[Standing], str]] = {
        "score": lambda s: _ratio(s.score),
        "times as fast": lambda s: _ratio(s.speed),
        "times fewer bytes": lambda s: _ratio(s.fewer),
        "mean us": lambda s: f"{s.mean_us:,.2f}",
        "mean kB": lambda s: "-" if s.mean_bytes is None else f"{s.mean_bytes / 1e3:,.1f}",
        "bytes / least": lambda s: _ratio(s.over_least),
    }
    for name in () if t.on_bytes else ("score", "times fewer bytes", "bytes / least"):
        del texts[name]
    return texts


def csv_of(tables: Sequence[Table]) -> str:
    """Return all standings as CSV, a line each; a cell is empty where a number is not known."""
    rows: list[list[Any]] = [
        "lab dialect target kind backend version ranks_on rank who score times_as_fast mean_us "
        "times_fewer_bytes mean_bytes times_least_bytes entries".split()
    ]
    for t in tables:
        of = [t.lab, t.dialect, t.target, t.kind, t.backend, t.version, " ".join(t.ranks_on)]
        for s in t.standings:
            sizes = [s.fewer, s.mean_bytes and round(s.mean_bytes), s.over_least]
            cells = ["" if n is None else round(n, 4) for n in sizes]
            rows.append([*of, s.rank, s.name, s.score, s.speed, s.mean_us, *cells, s.entries])
    return table_of(rows)


def show(console: Console, tables: Sequence[Table], refused: Sequence[tuple[str, Any]]) -> None:
    """Print the tables and what was refused."""
    for t in tables:
        table = RichTable(
            title=f"{t.lab}{_of(t.dialect)} on {t.target}, {t.kind} ({t.backend}, {t.version})",
            title_justify="left",
            box=None,
        )
        numbers = columns(t)
        for name in ("rank", "who", *numbers, "entries", "history", *["dialect"] * (not t.dialect)):
            table.add_column(
                name, justify="left" if name in ("who", "history", "dialect") else "right"
            )
        for s in t.standings:
            table.add_row(
                str(s.rank),
                escape(s.name),
                *(text(s) for text in numbers.values()),
                str(s.entries),
                blocks(s.history),
                *[PACKAGE[s.best.dialect]] * (not t.dialect),
            )
        console.print(table)
        if t.standings:
            console.print(f"  {t.rule}", highlight=False)
        for line in t.left_out:
            console.print(f"  not ranked: {escape(line)}", highlight=False)
        if t.kind == "predicted":
            console.print("  Predicted by a model, not measured on a chip.", highlight=False)
    for name, why in refused:
        console.print(f"[red]refused[/] {escape(name)}: {escape(str(why))}", highlight=False)
