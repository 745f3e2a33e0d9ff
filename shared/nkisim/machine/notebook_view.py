"""What a notebook shows of a tile: what it is, a few numbers, and a picture of its values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..chip import dtypes
from ..chip.memory import HBM
from .tile_values import BAD, summarize

if TYPE_CHECKING:
    from .tensor import Tensor

CELL = 9  # pixels of a cell of the picture


def html(t: Tensor) -> str:
    """Return a tile as an element of a notebook; without a picture if no values were computed."""
    rows = (
        ""
        if t.memory is HBM or len(t.shape) < 2 or t.nblock
        else f", {t.shape[0]} partitions of {t.size // max(1, t.shape[0]) * t.itemsize} bytes"
    )
    head = f"<p><b>{t.memory}</b> {dtypes.name(t.dtype)} [{', '.join(map(str, t.shape))}]{rows}</p>"
    if not t.m.compute or not t.size or t.nblock:
        return f"{head}<p>Its values were not computed.</p>"
    row = summarize(t.np)[0]
    facts = "".join(
        f"<tr><th>{name}</th><td>{row[name]:g}</td></tr>"
        for name in ("min", "max", "mean", "zero", "nan", "inf")
    )
    high, wide = int(row["rows"]), int(row["columns"])
    cells = "".join(
        f'<rect x="{c * CELL}" y="{r * CELL}" width="{CELL}" height="{CELL}" '
        + (
            'fill="#c23f35"/>'
            if row["picture"][r, c] == BAD
            else f'fill="#3b76c4" fill-opacity="{0.05 + row["picture"][r, c] / 267:.2f}"/>'
        )
        for r in range(high)
        for c in range(wide)
    )
    return (
        f'{head}<div style="display:flex;gap:1.5em;align-items:flex-start"><table>{facts}'
        f'</table><svg role="img" aria-label="picture of the tile: partitions downwards, '
        f'dark is high" width="{wide * CELL}" height="{high * CELL}">{cells}</svg></div>'
    )
