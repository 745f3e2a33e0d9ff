"""The traffic of each tensor in HBM: how many bytes move, and how often the same are read again."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..chip.memory import HBM
from ..trace.trace import OpSpec, Pattern, Trace

#: elements of access patterns that are looked at one by one; beyond, patterns that differ are
#: taken not to overlap
MOST_ELEMENTS = 1 << 26


class Touched(NamedTuple):
    """What run-time indices have chosen of a tensor: one bool for each `item` bytes."""

    item: int
    touched: np.ndarray


#: (storage, written?) -> what indices have chosen of it; None: the values are not known
Chosen = Callable[[int, bool], Touched | None]


def _unknown(storage: int, write: bool) -> Touched | None:
    """Return what indices have chosen in a run without values."""
    return None


def by_index(spec: OpSpec, number: int) -> bool:
    """Return whether run-time indices choose what an operand of a DMA is; `number`: its place."""
    if number < spec.outputs:
        return spec.scatters
    return spec.indirect and number >= len(spec.operands) - spec.chosen


def tensors(
    trace: Trace,
    names: Mapping[int, str],
    arguments: Container[int],
    chosen: Chosen = _unknown,
) -> list[dict[str, Any]]:
    """Return a row for each tensor in HBM that DMAs use, ready for JSON, most bytes moved first.

    `names`: storage -> name; `arguments`: the storages that the kernel was given; `chosen`: what
    run-time indices have chosen. Of each tensor:

    - `name`, `argument` (bool), `where` (the line that allocates it), `dtype`, `bytes`
    - `read_bytes`, `written_bytes`: what DMAs move from it and to it
    - `distinct_read_bytes`, `distinct_written_bytes`: without what was moved before; None where
      run-time indices choose what is moved and the run had no values
    - `repeat`: how often each byte that is read is read, read_bytes / distinct_read_bytes; None if
      it is not read, or that is not known. 1.0 is the least.
    """
    specs, accesses = trace.operand_specs(), trace.operands()
    hbm = np.array([p.memory is HBM for _, _, p in specs] or [False])
    in_hbm = hbm[accesses.operand_spec]
    storage, lowest = accesses.storage[in_hbm], accesses.lowest[in_hbm]
    which, write = accesses.operand_spec[in_hbm], accesses.write[in_hbm]
    index = np.array([by_index(k, n) for k, n, _ in specs] or [False])
    adds = index & np.array([k.adds and n < k.outputs for k, n, _ in specs] or [False])
    nbytes = np.array([k.moved.nbytes if by_index(k, n) else p.nbytes for k, n, p in specs] or [0])
    table, left, rows = trace.storages.table(), MOST_ELEMENTS, []
    for s in np.unique(storage).tolist():
        here = storage == s
        size = int(table.row_bytes[s] * table.nparts[s])
        sides: dict[bool, tuple[int, int | None]] = {}
        for writes in (False, True):
            some = here & ((write == writes) | (adds[which] & (not writes)))
            moved = int(nbytes[which[some]].sum())
            plain = some & ~index[which]
            picked = chosen(s, writes) if (some & index[which]).any() else None
            keys = np.unique(np.stack([lowest[plain], which[plain]]), axis=1)
            patterns = [(int(at), specs[int(n)][2]) for at, n in keys.T]
            cost = sum(p.elements for _, p in patterns)
            if picked is None and (some & index[which]).any():
                sides[writes] = moved, None
            elif cost > left:
                sides[writes] = moved, min(size, sum(p.nbytes for _, p in patterns))
            else:
                left -= cost
                sides[writes] = moved, min(moved, distinct_bytes(patterns, size, picked))
        (read, new), (wrote, new_written) = sides[False], sides[True]
        where = trace.where(int(table.line[s]))
        rows.append(
            {
                "name": names.get(s, "?"),
                "argument": s in arguments,
                "where": str(where) if where else None,
                "dtype": specs[int(which[here][0])][2].dtype.name,
                "bytes": size,
                "read_bytes": read,
                "written_bytes": wrote,
                "distinct_read_bytes": new,
                "distinct_written_bytes": new_written,
                "repeat": read / new if new else None,
            }
        )
    return sorted(rows, key=lambda row: -(row["read_bytes"] + row["written_bytes"]))


def distinct_bytes(
    patterns: list[tuple[int, Pattern]], size: int, picked: Touched | None = None
) -> int:
    """Return how many bytes access patterns touch together; (lowest byte, pattern) of each.

    `size`: bytes of the storage; `picked`: what else is touched.
    """
    if len(patterns) == 1 and 0 not in patterns[0][1].strides and picked is None:
        return patterns[0][1].nbytes
    sizes = [p.dtype.itemsize for _, p in patterns] + ([picked.item] if picked else [])
    item = min(sizes, default=1)
    touched = np.zeros(-(-size // item), bool)
    if picked is not None:
        picked_bytes = np.repeat(picked.touched, picked.item // item)
        touched[: len(picked_bytes)] |= picked_bytes[: len(touched)]
    for lowest, p in patterns:
        unit = 1 if p.dtype.itemsize == item else p.dtype.itemsize // item
        dims = [(n, abs(s) // item) for n, s in zip(p.shape, p.strides) if n > 1 and s]
        if unit > 1:
            dims.append((unit, 1))
        view = np.lib.stride_tricks.as_strided(
            touched[lowest // item :], [n for n, _ in dims], [s for _, s in dims]
        )
        view[...] = True
    return int(touched.sum()) * item


def least_bytes(rows: list[dict[str, Any]]) -> tuple[int, int]:
    """Return the bytes that have to come and to go: every byte of arguments that is read, once, and
    every byte of results that is written, once.

    What the kernel writes and reads again need not have gone there. What run-time indices choose
    counts too, each byte once, and not where it is unknown: see `unknown_bytes`.
    """
    came = sum(r["distinct_read_bytes"] or 0 for r in rows if r["argument"])
    went = sum(
        r["distinct_written_bytes"] or 0 for r in rows if r["argument"] or not r["read_bytes"]
    )
    return came, went


def unknown_bytes(rows: list[dict[str, Any]]) -> int:
    """Return how many bytes run-time indices choose of arguments and results, where it is not known
    whether some are the same: what is moved, at most the whole tensor."""
    total = 0
    for r in rows:
        if r["argument"] and r["distinct_read_bytes"] is None:
            total += min(r["read_bytes"], r["bytes"])
        if (r["argument"] or not r["read_bytes"]) and r["distinct_written_bytes"] is None:
            total += min(r["written_bytes"], r["bytes"])
    return total
