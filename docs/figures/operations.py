"""Diagrams of operations: a systolic array step by step, a convolution, max-pooling.

They are narrow, so that their text is readable on a phone; the numbers in them are computed.
"""

from __future__ import annotations

import numpy as np

from .drawing import Drawing

WIDE = 380  # units of a drawing; a phone shows about 350 pixels
#: What the array of the drawing multiplies: stationary [K, M] and moving [K, N].
STATIONARY = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
MOVING = np.array([[1, 0, 2], [2, 1, 0], [0, 3, 1]])
IMAGE = np.array(
    [[1, 2, 0, 1, 3], [0, 1, 4, 2, 1], [2, 3, 1, 0, 2], [1, 0, 2, 5, 1], [3, 1, 0, 2, 4]]
)
FILTER = np.array([[1, 2], [0, 3]])
CELL = 40


def systolic() -> Drawing:
    """Draw what the cells of a systolic array do in each cycle."""
    k_size, m_size = STATIONARY.shape
    n_size = MOVING.shape[1]
    steps = k_size + m_size + n_size - 2
    frame_wide, frame_high, top = 186, 196, 128
    d = Drawing(
        "A systolic array, cycle by cycle",
        f"Each of {k_size} x {m_size} cells holds one stationary value. Moving values enter on the "
        "left, a row a cycle later than the row above, and pass to the right; sums run down and "
        "leave at the bottom.",
        WIDE,
        top + frame_high * ((steps + 2) // 2) + 4,
        shown=560,
    )
    d.text(6, 18, "stationary [K, M]", "ink bold")
    grid(d, 6, 28, STATIONARY, "tensor")
    d.text(150, 18, "moving [K, N]", "ink bold")
    grid(d, 150, 28, MOVING, "dma")
    d.text(262, 18, "result [M, N]", "ink bold")
    grid(d, 262, 28, STATIONARY.T @ MOVING, "hot")
    d.text(6, 118, "Row k of both meets in row k of the cells; sums run down.", "ink small")
    for t in range(steps):
        d.begin_frame(t, steps)
        cycle(d, 2 + (t % 2) * (frame_wide + 6), top + (t // 2) * frame_high, t, frame_wide)
        d.end_frame()
    x, y = 2 + (steps % 2) * (frame_wide + 6), top + (steps // 2) * frame_high
    for line, words in enumerate(
        (
            "No cell reads memory:",
            "it has its own value,",
            "gets one from the left",
            "and a sum from above.",
            "A column of the result",
            "leaves in each cycle,",
            "once the first has",
            "come through.",
        )
    ):
        d.text(x + 12, y + 30 + 18 * line, words, "ink small")
    return d


def grid(d: Drawing, x: float, y: float, values: np.ndarray, fill: str, size: int = 24) -> None:
    """Draw a small matrix."""
    for r, row in enumerate(values):
        for c, value in enumerate(row):
            d.rect(x + size * c, y + size * r, size, size, fill)
            d.text(x + size * (c + 0.5), y + size * r + 17, f"{value}", "ink small", "middle")


def cycle(d: Drawing, x: float, y: float, t: int, wide: float) -> None:
    """Draw cycle t of the array: the moving value in each cell, and sums that leave."""
    k_size, m_size = STATIONARY.shape
    n_size = MOVING.shape[1]
    result = STATIONARY.T @ MOVING
    d.rect(x, y, wide - 2, 190, "panel", round=5)
    d.text(x + 8, y + 17, f"cycle {t + 1}", "ink bold")
    left, top = x + 50, y + 26
    for k in range(k_size):
        entering = t + 1 - k  # the value that comes in next
        if 0 <= entering < n_size:
            value = MOVING[k, entering]
            d.text(x + 14, top + CELL * k + 25, f"{value}", "ink small", "middle")
            d.line((x + 22, top + CELL * k + 20), (left - 4, top + CELL * k + 20), arrow=True)
        for m in range(m_size):
            n = t - k - m
            busy = 0 <= n < n_size
            cell_x, cell_y = left + CELL * m, top + CELL * k
            d.rect(cell_x, cell_y, CELL, CELL, "tensor" if busy else "cell")
            words = f"{STATIONARY[k, m]}\u00b7{MOVING[k, n]}" if busy else f"{STATIONARY[k, m]}"
            kind = "ink" if busy else "dim small"
            d.text(cell_x + CELL / 2, cell_y + 25, words, kind, "middle")
    for m in range(m_size):
        n = t - (k_size - 1) - m
        if 0 <= n < n_size:
            at = left + CELL * (m + 0.5)
            d.rect(at - 17, top + CELL * k_size + 14, 34, 22, "hot", round=4)
            d.line((at, top + CELL * k_size), (at, top + CELL * k_size + 13), arrow=True)
            d.text(at, top + CELL * k_size + 29, f"{result[m, n]}", "ink small", "middle")


def slide() -> Drawing:
    """Draw a convolution of one channel with numbers, and max-pooling after it."""
    size = len(FILTER)
    out = np.array(
        [
            [int((IMAGE[r : r + size, c : c + size] * FILTER).sum()) for c in range(4)]
            for r in range(4)
        ]
    )
    pooled = out.reshape(2, 2, 2, 2).max(axis=(1, 3))
    d = Drawing(
        "A convolution and a max-pool, in numbers",
        "A 2 x 2 filter slides over a 5 x 5 image. At each place the values under it are "
        "multiplied with it and added up: 4 x 4 results. A max-pool keeps the largest of each "
        "2 x 2 square.",
        WIDE,
        322,
        shown=520,
    )
    at_r, at_c = 1, 2
    d.text(8, 18, "image", "ink bold")
    for r in range(5):
        for c in range(5):
            inside = at_r <= r < at_r + size and at_c <= c < at_c + size
            cell(d, 8 + 26 * c, 28 + 26 * r, IMAGE[r, c], "dma" if inside else "cell")
    d.text(168, 18, "filter", "ink bold")
    for r in range(size):
        for c in range(size):
            cell(d, 168 + 26 * c, 54 + 26 * r, FILTER[r, c], "tensor")
    d.text(150, 84, "*", "ink bold")
    d.text(238, 84, "=", "ink bold")
    d.text(262, 18, "result", "ink bold")
    for r in range(4):
        for c in range(4):
            here = (r, c) == (at_r, at_c)
            cell(d, 262 + 26 * c, 28 + 26 * r, out[r, c], "hot" if here else "cell")
    window = IMAGE[at_r : at_r + size, at_c : at_c + size]
    sums = " + ".join(f"{w}\u00b7{x}" for w, x in zip(FILTER.ravel(), window.ravel()))
    d.text(8, 180, f"{sums} = {out[at_r, at_c]}", "ink")
    d.text(8, 200, "Then the filter slides on by one pixel.", "ink small")
    d.text(262, 226, "max-pool", "ink bold")
    for r in range(4):
        for c in range(4):
            fill = "vector" if (r // 2 + c // 2) % 2 else "scalar"
            cell(d, 100 + 22 * c, 222 + 22 * r, out[r, c], fill, 22)
    d.line((200, 266), (252, 266), arrow=True)
    for r in range(2):
        for c in range(2):
            fill = "vector" if (r + c) % 2 else "scalar"
            cell(d, 262 + 26 * c, 238 + 26 * r, pooled[r, c], fill)
    d.text(8, 250, "the largest of", "ink small")
    d.text(8, 266, "each square:", "ink small")
    d.text(8, 282, "a quarter of", "ink small")
    d.text(8, 298, "the values", "ink small")
    return d


def cell(d: Drawing, x: float, y: float, value: int, fill: str, size: int = 26) -> None:
    """Draw a pixel with its value."""
    d.rect(x, y, size, size, fill)
    d.text(x + size / 2, y + size / 2 + 4, f"{value}", "ink small", "middle")


def channels() -> Drawing:
    """Draw a convolution with several channels: shapes, and what one filter makes."""
    d = Drawing(
        "A convolution with channels",
        "An image has several channels. A filter has as many, and all of them are added up: one "
        "filter makes one channel of the output. There are as many filters as output channels.",
        WIDE,
        316,
        shown=520,
    )
    d.text(8, 18, "X [in, height, width]", "ink bold")
    planes(d, 8, 30, 3, 6, 15, "dma")
    d.text(190, 18, "W [out, in, size, size]", "ink bold")
    for f in range(3):
        planes(d, 196, 34 + 78 * f, 3, 3, 14, "tensor" if f == 1 else "faint", whole=True)
        d.line((262, 66 + 78 * f), (286, 66 + 78 * f), arrow=True)
        planes(d, 294, 34 + 78 * f, 1, 4, 15, "hot" if f == 1 else "faint", dot=f == 1)
    d.text(196, 110, "filter o", "ink small")
    d.text(294, 106, "channel o", "ink small")
    d.text(372, 282, "output [out, ...]", "ink bold", "end")
    for line, words in enumerate(
        (
            "Under the window all",
            "channels are multiplied",
            "and added to one pixel.",
            "Filter o makes channel o.",
            "Height of the output:",
            "height - size + 1",
        )
    ):
        d.text(8, 186 + 18 * line, words, "ink small")
    return d


def planes(
    d: Drawing,
    x: float,
    y: float,
    count: int,
    side: int,
    size: int,
    fill: str,
    whole: bool = False,
    dot: bool = False,
) -> None:
    """Draw channels behind each other; `whole`: all of the first is coloured, else a window."""
    for p in reversed(range(count)):
        px, py = x + 10 * p, y + 10 * (count - 1 - p)
        for r in range(side):
            for c in range(side):
                inside = whole or (1 <= r < 4 and 2 <= c < 5)
                if dot or (count == 1 and not whole):
                    inside = (r, c) == (1, 2)
                d.rect(px + size * c, py + size * r, size, size, fill if inside else "cell")


OPERATIONS = {"systolic": systolic, "slide": slide, "channels": channels}
