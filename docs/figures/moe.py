"""Diagrams of the mixture-of-experts lab."""

from __future__ import annotations

from .drawing import Drawing

ROW = 20.0  # height of a row
TABLE = 9  # rows that are drawn of a table


def index() -> Drawing:
    """Draw a gather, a scatter with addition and the choice of one matrix, side by side."""
    d = Drawing(
        "Rows and matrices by index",
        "Left: a tile of numbers 6, 1 and 4 in SBUF names rows of a table in HBM; a copy brings "
        "them in this order. Middle: the same numbers say where rows are added. Right: one number "
        "names one of four matrices, and a copy brings all of it.",
        640,
        250,
    )
    numbers = (6, 1, 4)
    for x, title, call in (
        (16.0, "gather", "vector_select, dma_copy"),
        (236.0, "scatter with addition", "vector_select, dma_compute"),
    ):
        scatter = title != "gather"
        d.text(x, 18, title, "ink small bold")
        d.text(x, 34, call, "dim small")
        for r in range(TABLE):
            look = ("hot" if scatter else "dma") if r in numbers else "faint"
            d.rect(x, 46 + r * ROW, 60, ROW - 3, look, round=2)
            d.text(x + 30, 59 + r * ROW, f"{r}", "ink small", "middle")
        for p, number in enumerate(numbers):
            y = 86 + p * 34.0
            d.rect(x + 112, y, 24, ROW - 3, "gpsimd", round=2)
            d.text(x + 124, y + 13, f"{number}", "ink small", "middle")
            d.rect(x + 142, y, 52, ROW - 3, "dma" if scatter else "hot", round=2)
            ends = (x + 62, 54 + number * ROW), (x + 110, y + 8)
            d.line(*(reversed(ends) if scatter else ends), arrow=True)
        d.text(x + 124, 200, "index", "dim small", "middle")
        d.text(x + 168, 200, "rows", "dim small", "middle")
    d.text(456, 18, "one matrix of many", "ink small bold")
    d.text(456, 34, "select, dma_copy", "dim small")
    for e in range(4):
        d.rect(456, 46 + e * 46.0, 60, 40, "dma" if e == 2 else "faint", round=3)
        d.text(486, 70 + e * 46.0, f"{e}", "ink small", "middle")
    d.rect(578, 72, 24, ROW - 3, "gpsimd", round=2)
    d.text(590, 85, "2", "ink small", "middle")
    d.rect(560, 138, 60, 40, "hot", round=3)
    d.line((518, 158), (558, 158), arrow=True)
    d.line((590, 92), (540, 150), arrow=True)
    d.text(320, 246, "left: HBM; right: SBUF, a row in each partition", "dim small", "middle")
    return d
