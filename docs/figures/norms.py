"""Diagrams of the norms lab."""

from __future__ import annotations

from .drawing import Drawing


def online() -> Drawing:
    """Draw the online softmax: pieces of a row, and what is known after each."""
    d = Drawing(
        "The online softmax",
        "A long row in four pieces. After each piece the largest value so far and the sum of the "
        "exponentials so far are known; where the largest value grows, the sum so far shrinks "
        "by exp(old - new) before the piece's own sum is added.",
        640,
        262,
    )
    left, wide = 92.0, 132.0
    values = ((3, 3, "the piece's own sum"), (7, 7, "old x exp(-4) + own"),
              (5, 7, "old + own"), (9, 9, "old x exp(-2) + own"))  # fmt: skip
    d.text(left - 12, 52, "row", "ink bold", "end")
    d.text(left - 12, 114, "largest", "ink bold", "end")
    d.text(left - 12, 172, "sum", "ink bold", "end")
    for k, (here, so_far, total) in enumerate(values):
        x = left + wide * k
        d.rect(x, 30, wide - 6, 36, "dma", round=3)
        d.text(x + wide / 2 - 3, 52, f"piece {k + 1}, largest {here}", "ink small", "middle")
        d.line((x + wide / 2 - 3, 68), (x + wide / 2 - 3, 90), arrow=True)
        grown = k > 0 and so_far != values[k - 1][1]
        d.rect(x, 94, wide - 6, 32, "hot" if grown else "faint", round=3)
        d.text(x + wide / 2 - 3, 114, f"{so_far}", "ink", "middle")
        d.line((x + wide / 2 - 3, 128), (x + wide / 2 - 3, 148), arrow=True)
        d.rect(x, 152, wide - 6, 32, "hot" if grown else "faint", round=3)
        d.text(x + wide / 2 - 3, 172, total, "ink small", "middle")
        if k:
            d.line((x - 6, 168), (x, 168), arrow=True)
    d.text(left, 212, "first pass: each piece is loaded, and may be forgotten", "dim small")
    d.text(left, 232, "second pass: exp(x - 9) / sum of each piece, which is stored", "dim small")
    d.text(left, 252, "red: the largest value has grown, and the sum so far shrinks", "dim small")
    return d
