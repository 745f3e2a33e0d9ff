"""Products that are added to one result, and what storages say of those that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from ..machine.tensor import Tensor

#: Storage.queued: what waits there is a result, an operand, or what an instruction that waits uses;
#: products on their way write there, or read there
IS_RESULT, IS_OPERAND, IS_HELD, IS_DUE, IS_READ = 1, 2, 4, 8, 16
NOT_YET, ON_ITS_WAY = IS_RESULT | IS_DUE, IS_DUE | IS_READ


class Group:
    """The products that are added to one result, or that overwrite it if the first one `opens` it.

    `operands` are the stationary and the moving ones as arrays; `places` say, in the same order,
    what they are: storage, offset, shape, strides, dtype and version of the bytes.
    """

    __slots__ = ("dst", "opens", "rows", "operands", "places", "storages")

    def __init__(self, dst: Tensor, opens: bool = False):
        self.dst, self.opens, self.rows = dst, opens, 0
        self.operands: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        self.places: tuple[list[tuple], list[tuple]] = ([], [])
        self.storages: tuple[set[Any], set[Any]] = (set(), set())
