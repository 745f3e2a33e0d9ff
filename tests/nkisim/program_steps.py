"""What the steps of a random program are, and what NumPy says that each of them does."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

P, F, R = 64, 48, 96  # partitions and columns of the tile, rows of the tensor in HBM
GROUP = 16  # partitions that share the offsets of .indirect
FILL = 3.0  # what a tile holds where rows are skipped
WIDE = 128  # partitions of indices that have several columns
#: what dims a row of F elements is cut into before it is transposed, by the form of the step
CUTS = {
    "2-d": (F,),
    "vector_select": (F,),
    "3-d": (6, 8),
    "4-d": (1, 6, 8),
    "4-d, 1 inside": (6, 1, 8),
}
AXES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}


class Step(NamedTuple):
    """One step: `kind` names what it does, `form` how it is written; `at` are its indices."""

    kind: str
    form: str = ""
    at: tuple[int, ...] = ()  # rows, columns, or the numbers of a register
    number: int = 0
    skip: bool = False  # rows out of range are left out
    body: tuple[Step, ...] = ()  # of a loop


class Program(NamedTuple):
    """A program: steps on one core, or on two (each core's own input)."""

    dialect: str
    steps: tuple[Step, ...]
    cores: int = 1
    release: str = ""  # of nki, if its compiler is to take loops over nl.dynamic_range

    @property
    def form(self) -> tuple:
        """Return what makes it another form than other programs."""

        def of(s: Step) -> tuple:
            return s.kind, s.form, s.skip, tuple(of(b) for b in s.body)

        return self.dialect, self.release, self.cores, tuple(of(s) for s in self.steps)


class Undefined(Exception):
    """What NumPy has no value for: the simulator has to refuse it or to find it."""


# -- what NumPy says -------------------------------------------------------------------------------


def _numbers(at: tuple[int, ...], skip: bool, rows: int) -> np.ndarray:
    index = np.array(at)
    if not skip and ((index < 0) | (index >= rows)).any():
        raise Undefined
    return index


def _rows(t: np.ndarray, x: np.ndarray, s: Step, i: int) -> None:
    """Rows by an index each: gathered and added, scattered, or added where they go."""
    index = _numbers(s.at, s.skip, R)
    inside = (index >= 0) & (index < R)
    if s.kind == "gather":
        got = np.full((P, F), FILL)
        got[inside] = x[index[inside]]
        t += got
    else:
        _once(index[inside], t[inside])
        scratch = x.copy()
        if s.kind == "scatter":
            scratch[index[inside]] = t[inside]
        else:
            if len(set(index[inside].tolist())) < inside.sum():
                raise Undefined  # dma_compute takes unique indices, equal values or not
            scratch[index[inside]] += t[inside]
        _all_of(t, scratch)


def _turned(t: np.ndarray, x: np.ndarray, s: Step, i: int) -> None:
    """Rows by an index each, gathered and transposed: the first `number` of the indices count.

    The API reference: `indices.T.flatten()[:src.shape[0]]`, and axes by rank.
    """
    index, cut = _numbers(s.at[: s.number], s.skip, R), CUTS[s.form]
    rows = np.full((s.number, *cut), FILL)
    inside = (index >= 0) & (index < R)
    rows[inside] = x[index[inside]].reshape(-1, *cut)
    turned = rows.transpose(AXES[rows.ndim]).reshape(cut[-1], -1)
    for c in range(0, turned.shape[1], F):
        part = turned[:, c : c + F]
        t[: len(part), : part.shape[1]] += part


def _all_of(t: np.ndarray, scratch: np.ndarray) -> None:
    """Add all rows of a tensor of HBM to a tile."""
    t += scratch[R - P :]
    t[: R - P] += scratch[: R - P]


def _once(index: np.ndarray, values: np.ndarray) -> None:
    """Raise where different values go to one place."""
    for k in set(index.tolist()):
        rows = values[index == k]
        if (rows != rows[0]).any():
            raise Undefined


def _one_row(t: np.ndarray, x: np.ndarray, s: Step, i: int) -> None:
    n = _computed(s, i)
    if not 0 <= n < R:
        raise Undefined
    if s.kind == "row in":
        t[0] += x[n]
    else:
        scratch = x.copy()
        scratch[n] = t[0]
        _all_of(t, scratch)


def _computed(s: Step, i: int) -> int:
    """Return the number that the registers of a step hold: the first, and i times the second."""
    first, factor = (*s.at, 0)[:2]
    return first + factor * i


def _columns(t: np.ndarray, x: np.ndarray, s: Step, i: int) -> None:
    width, n = F // 2, _computed(s, i)
    if not 0 <= n <= F - width:
        raise Undefined
    if s.kind == "columns in":
        t[:, :width] = t[:, n : n + width].copy()
    else:
        t[:, n : n + width] = x[:P, :width]


def _indirect(t: np.ndarray, x: np.ndarray, s: Step, i: int) -> None:
    """Columns by offsets, for each group of partitions; `at` are those of all groups in turn."""
    offsets = _numbers(s.at, False, F).reshape(P // GROUP, -1)
    for g, columns in enumerate(offsets):
        rows = slice(g * GROUP, (g + 1) * GROUP)
        if s.kind == "columns gathered":
            t[rows, : len(columns)] = t[rows][:, columns]
        else:
            values = x[rows, : len(columns)]
            _once(columns, values.T)
            part = t[rows]
            part[:, columns] = values


def _loop(t: np.ndarray, x: np.ndarray, s: Step, i: int) -> None:
    low, high, step = s.at
    if s.number and low < high:
        raise Undefined  # the body writes the loop's variable
    for k in range(low, high, step):
        for b in s.body:
            MEANS[b.kind](t, x, b, k)


def _scalar(t: np.ndarray, x: np.ndarray, s: Step, i: int) -> None:
    t += s.number


def _count(t: np.ndarray, x: np.ndarray, s: Step, i: int) -> None:
    """A number that registers or scalars compute, in 32 bits, stored and added to one element."""
    n = _computed(s, i) if s.form == "move" else _computed(s, i) * s.number + 1
    t[0, 0] += (n + 2**31) % 2**32 - 2**31


def _random(t: np.ndarray, x: np.ndarray, s: Step, i: int) -> None:
    """Two draws of one seed are equal, their difference is 0; of two it is not known (NaN)."""
    if len(set(s.at)) > 1:
        t[...] = np.nan


def _interval(t: np.ndarray, x: np.ndarray, s: Step, i: int) -> None:
    """One is added where a draw lies in the interval that it was drawn from: everywhere."""
    t += 1.0 if s.at[0] == s.number else 0.0


def _drop(t: np.ndarray, x: np.ndarray, s: Step, i: int) -> None:
    if s.number:  # dropped with the probability 0 or 1
        t[...] = 0


MEANS: dict[str, Callable[[np.ndarray, np.ndarray, Step, int], None]] = {
    "gather": _rows,
    "gather turned": _turned,
    "scatter": _rows,
    "scatter add": _rows,
    "row in": _one_row,
    "row out": _one_row,
    "columns in": _columns,
    "columns out": _columns,
    "columns gathered": _indirect,
    "columns scattered": _indirect,
    "loop": _loop,
    "scalar": _scalar,
    "count": _count,
    "random": _random,
    "interval": _interval,
    "dropout": _drop,
}


def expected(program: Program, x: np.ndarray) -> np.ndarray:
    """Return what the cores store; raise Undefined where a step has no defined result."""
    tiles = [x[c, :P].astype(np.float64) for c in range(program.cores)]
    for s in program.steps:
        if s.kind == "exchange":
            if s.number:  # each core sends to itself: nothing comes from the other
                raise Undefined
            tiles = [a + b for a, b in zip(tiles, tiles[::-1])]
        elif s.kind == "meet":
            if s.number:  # no barrier: which comes first is open
                raise Undefined
            tiles = [np.maximum(a, b) for a, b in zip(tiles, tiles[::-1])]
        else:
            for c, t in enumerate(tiles):
                MEANS[s.kind](t, x[c].astype(np.float64), s, 0)
    return np.stack(tiles).astype(np.float32)
