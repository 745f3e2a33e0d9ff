"""Operands of products as matrices for BLAS: as they lie in memory, or copied below each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..chip.memory import HBM, Storage, merge_dims, room

if TYPE_CHECKING:
    from .groups import Group


def beside(groups: list[Group], columns: list[int]) -> tuple[np.ndarray, bool]:
    """Return the stationary operands of groups as one matrix: those of a group below each other,
    the groups beside each other, with so many columns each; and whether that is a copy of them."""
    if len(groups) == 1:
        whole, copied = as_one(groups[0], 0, columns[0])
        if whole is not None:
            return whole, copied
    rows = sum(part.size for part in groups[0].operands[0]) // columns[0]
    stack, right = matrix(rows, sum(columns)), 0
    for group, width in zip(groups, columns):
        left, right = right, right + width
        _fill(stack[:, left:right], group.operands[0])
    return stack, True


def as_one(group: Group, which: int, columns: int) -> tuple[np.ndarray | None, bool]:
    """Return the operands of a group as they lie in memory, as one matrix of so many columns, None
    if they are none; and whether it is a copy of them."""
    parts = group.operands[which]
    a = parts[0] if len(parts) == 1 else in_a_row(parts)
    if a is None:
        return None, False
    shape = a.size // columns, columns
    if len(parts) == 1:
        whole = a.reshape(shape)
        return whole, not np.may_share_memory(whole, a)
    strides = merge_dims(a.shape, a.strides, shape)
    return None if strides is None else as_strided(a, shape, strides), False


def side_by_side(left: np.ndarray, right: np.ndarray, most: int) -> np.ndarray | None:
    """Return two matrices as one of `most` columns at most, if each row of the first goes on in
    memory as the row of the second; else None."""
    if left.ndim != 2 or len(left) != len(right) or left.strides != right.strides:
        return None
    columns, end = left.shape[1] + right.shape[1], _address(left) + left.shape[1] * left.strides[1]
    if columns > most or _address(right) != end or _owner(left) is not _owner(right):
        return None
    return as_strided(left, (len(left), columns), left.strides)


def _fill(to: np.ndarray, parts: list[np.ndarray]) -> None:
    """Copy arrays into a matrix, below each other."""
    end = 0
    for part in parts:
        top, end = end, end + part.size // to.shape[1]
        to[top:end].reshape(part.shape)[...] = part


def stacked(parts: list[np.ndarray], columns: int) -> np.ndarray:
    """Return copies of arrays below each other, as a matrix."""
    out = matrix(sum(part.size for part in parts) // columns, columns)
    _fill(out, parts)
    return out


def keep_apart(st: Storage, used: tuple[int, int], groups: Iterable[Group]) -> None:
    """Let the operands of groups that lie in a memory on chip be over a copy of its bytes, of
    those which they have `used`, of each partition."""
    groups = [g for g in groups if st in g.storages[0] or st in g.storages[1]]
    if not groups or st.memory is HBM:  # its size is not known
        return
    for flat in st.buffers():
        begin, copy = _address(flat), None
        for arrays in (g.operands[which] for g in groups for which in (0, 1)):
            for k, a in enumerate(arrays):
                at = _address(a) - begin
                if 0 <= at < flat.nbytes:
                    if copy is None:
                        copy = _copied(st, flat, *used)
                    arrays[k] = np.ndarray(a.shape, a.dtype, copy, at, a.strides)
    for g in groups:
        for storages in g.storages:
            storages.discard(st)


def _copied(st: Storage, flat: np.ndarray, first: int, end: int) -> np.ndarray:
    """Return a copy of the elements of a storage that has only some bytes of each partition."""
    wider = flat.nbytes // st.nbytes  # float32 copies of smaller elements are
    copy = room(flat.nbytes)
    columns = np.s_[:, first * wider : end * wider]
    copy.reshape(st.nparts, -1)[columns] = flat.view(np.uint8).reshape(st.nparts, -1)[columns]
    return copy


def in_a_row(parts: list[np.ndarray]) -> np.ndarray | None:
    """Return arrays that lie in one memory at the same distance as one with a dim in front, or
    None."""
    one, base, begin = parts[0], parts[0].base, _address(parts[0])
    step = _address(parts[1]) - begin
    if base is None or one.strides[-1] != one.itemsize:
        return None
    for k, a in enumerate(parts):
        if (
            a.base is not base
            or _address(a) != begin + k * step
            or a.shape != one.shape
            or a.strides != one.strides
        ):
            return None
    return as_strided(one, (len(parts), *one.shape), (step, *one.strides))


def _address(a: np.ndarray) -> int:
    return a.__array_interface__["data"][0]


def _owner(a: Any) -> Any:
    """Return whose memory an array is a view of."""
    while (base := getattr(a, "base", None)) is not None:
        a = base
    return a


def matrix(rows: int, columns: int) -> np.ndarray:
    """Return a float32 matrix that holds anything."""
    return room(4 * rows * columns).view(np.float32).reshape(rows, columns)


__all__ = ["beside", "matrix"]
