"""What is in a tile after each instruction: a few numbers, a histogram and a small picture.

It is kept for the first instructions of a run, as many as make a file that a browser opens at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..lazy.groups import NOT_YET

if TYPE_CHECKING:
    from .interface import Machine
    from .tensor import Tensor

BINS = 24  # of a histogram, from the lowest to the highest finite value
ROWS, COLUMNS = 16, 32  # of a picture: partitions by the elements of one
BAD = 255  # in a picture: a cell that has a NaN or an infinity; 0 to 254: low to high
#: instructions, and elements of all of them together, that are looked at
INSTRUCTIONS, ELEMENTS = 2000, 1 << 25

SUMMARY = np.dtype(
    [
        ("instr", np.int32),
        ("min", np.float32),
        ("max", np.float32),
        ("mean", np.float32),
        ("nan", np.int32),
        ("inf", np.int32),
        ("zero", np.int32),
        ("count", np.int32),
        ("rows", np.uint8),
        ("columns", np.uint8),
        ("histogram", np.int32, (BINS,)),
        ("picture", np.uint8, (ROWS, COLUMNS)),
    ]
)


class TileValues:
    """Looks at what each instruction wrote; `rows` are of SUMMARY, in program order.

    `complete`: no instruction was left out, as it would be after the limits above.
    """

    def __init__(self, instructions: int = INSTRUCTIONS, elements: int = ELEMENTS):
        self._rows: list[np.ndarray] = []
        self._left, self._elements = instructions, elements
        self.complete = True

    @property
    def rows(self) -> np.ndarray:
        return np.concatenate(self._rows) if self._rows else np.zeros(0, SUMMARY)

    def followed(self, origin: np.ndarray | None) -> TileValues:
        """Return the values of a trace that a compiler has changed; `origin` as in `Trace`."""
        if origin is None:
            return self
        rows = self.rows
        kept = np.flatnonzero(origin >= 0)
        place = np.full(int(max(origin.max(initial=-1), rows["instr"].max(initial=-1))) + 1, -1)
        place[origin[kept]] = kept
        moved = rows.copy()
        moved["instr"] = place[rows["instr"]]
        moved = moved[moved["instr"] >= 0]
        out = TileValues(0)
        out._rows, out.complete = [moved[np.argsort(moved["instr"], kind="stable")]], self.complete
        return out

    def note(self, m: Machine, dst: Tensor) -> None:
        """Look at what the instruction that was recorded last has written to `dst`."""
        if not self._left or dst.size > self._elements:
            self.complete, m.watch = False, None
            return
        self._left -= 1
        self._elements -= dst.size
        if dst.storage.queued & NOT_YET:  # type: ignore[union-attr]
            m.products.run()
        self._rows.append(summarize(dst.np, len(m.trace) - 1))


def summarize(values: np.ndarray, instr: int = 0) -> np.ndarray:
    """Return one row of SUMMARY of a tile; its first dim are the partitions."""
    out = np.zeros(1, SUMMARY)
    row = out[0]
    tile = np.asarray(values).astype(np.float32).reshape(values.shape[0] if values.ndim else 1, -1)
    fine = np.isfinite(tile)
    finite = tile.ravel() if fine.all() else tile[fine]
    row["instr"], row["count"] = instr, tile.size
    row["nan"], row["zero"] = np.isnan(tile).sum(), (tile == 0).sum()
    row["inf"] = tile.size - len(finite) - row["nan"]
    low = high = 0.0
    if len(finite):
        low, high = float(finite.min()), float(finite.max())
        row["min"], row["max"], row["mean"] = low, high, finite.mean(dtype=np.float64)
        bins = (finite - low) * (BINS / (high - low) if high > low else 0.0)
        row["histogram"] = np.bincount(np.minimum(bins, BINS - 1).astype(np.intp), minlength=BINS)
    row["rows"], row["columns"] = min(ROWS, tile.shape[0]), min(COLUMNS, tile.shape[1])
    if tile.size:
        picture = _picture(np.where(fine, tile, np.nan), low, high)
        row["picture"][: picture.shape[0], : picture.shape[1]] = picture
    return out


def _picture(tile: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return the means of at most ROWS x COLUMNS parts of a tile, scaled to 0 ... 254."""
    for axis, most in ((0, ROWS), (1, COLUMNS)):
        n = tile.shape[axis]
        cuts = np.arange(min(n, most)) * n // min(n, most)
        size = np.diff(np.append(cuts, n))
        tile = np.add.reduceat(tile, cuts, axis, dtype=np.float64) / (
            size[:, None] if axis == 0 else size
        )
    span = high - low if high > low else 1.0
    return np.where(np.isnan(tile), BAD, np.rint((tile - low) / span * (BAD - 1))).astype(np.uint8)
