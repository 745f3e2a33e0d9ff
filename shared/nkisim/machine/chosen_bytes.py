"""Which bytes of tensors in HBM a run has read and written where run-time indices point.

The record of a run says how much such a DMA moves, and not where: the indices are values. A row
that is chosen twice has to come from HBM once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Mask(NamedTuple):
    """What was touched of a storage: one bool for each `item` bytes."""

    item: int
    touched: np.ndarray


class ChosenBytes:
    """The bytes by storage (its id), read and written; only of runs that compute values."""

    def __init__(self) -> None:
        self._masks: dict[tuple[int, bool], Mask] = {}

    def mark(self, storage: int, nbytes: int, item: int, flat: np.ndarray, write: bool) -> None:
        """Note that elements were accessed.

        `nbytes`: of the storage; `item`: bytes of an element; `flat`: their places, in elements
        from the begin of the storage.
        """
        mask = self._masks.get((storage, write))
        if mask is None:
            mask = Mask(item, np.zeros(-(-nbytes // item), bool))
        elif mask.item != item:  # seen as two dtypes: by bytes from now on
            mask = Mask(1, np.repeat(mask.touched, mask.item)[:nbytes])
        self._masks[storage, write] = mask
        if mask.item == item:
            mask.touched[flat] = True
        else:
            first = np.unique(flat) * item
            for k in range(item):
                mask.touched[first + k] = True

    def of(self, storage: int, write: bool) -> Mask | None:
        """Return what was touched of a storage; None if nothing was."""
        return self._masks.get((storage, write))
