"""Diagrams of the second part of conv2d."""

from __future__ import annotations

from .drawing import Drawing

SIZE, LENGTH, CELL = 3, 4, 12


def taps() -> Drawing:
    """Draw what each tap of a 3 x 3 filter adds, for an image of 4 x 4 with a border of one."""
    d = Drawing(
        "What each tap adds",
        "A filter of 3 x 3, an image of 4 x 4 and a border of one: the tap in the middle meets all "
        "16 outputs, taps at the sides 12 and taps at the corners 9. The others would meet zeros.",
        660,
        236,
    )
    d.text(
        16,
        24,
        "outputs that a tap meets (coloured), by row i and column j of the filter",
        "ink small",
    )
    for i in range(SIZE):
        for j in range(SIZE):
            left, top = 20 + j * 100.0, 40 + i * 62.0
            middle = i == j == SIZE // 2
            for r in range(LENGTH):
                for c in range(LENGTH):
                    meets = all(0 <= at + tap - 1 < LENGTH for at, tap in ((r, i), (c, j)))
                    look = ("hot" if middle else "tensor") if meets else "cell"
                    d.rect(left + c * CELL, top + r * CELL, CELL, CELL, look)
            d.text(left + LENGTH * CELL + 6, top + 28, f"({i}, {j})", "ink small")
    for y, text, look in (
        (70.0, "the middle tap: all 16, so it comes first", "hot"),
        (106.0, "the others: added to a part of the bank", "tensor"),
        (142.0, "zeros: no product is needed", "cell"),
    ):
        d.rect(322, y - 11, CELL, CELL, look)
        d.text(342, y, text, "ink small")
    d.text(322, 190, "16 + 4 x 12 + 4 x 9 = 100 of 144 columns", "ink small bold")
    return d
