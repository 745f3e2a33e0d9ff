"""`t.indirect(index, num_elem)`: which instructions take such views, and what they make of them.

The reference says two things that exclude each other: `num_elem` is `index.size` if it is left out,
and offset i is `index[i % G, i // G]`, which names those of one group of G partitions only. Here
each group has its own, as in `nisa.local_gather`, and what is more than a group has is refused.
"""

from __future__ import annotations

from typing import Any

from ...chip.memory import HBM, PSUM
from ...errors import NkiError, fail
from ...isa import columns as rows
from ...isa.table import Row
from ...machine.interface import Machine
from ...machine.limits import integer
from ...machine.tensor import Tensor

#: operands that take the view (API reference of 0.6)
_TAKES = {
    "nc_matmul": ("stationary", "moving"),
    "activation": ("dst", "data"),
    "activate2": ("dst", "data"),
    "tensor_tensor": ("dst", "data1"),
    "tensor_scalar": ("dst", "data"),
    "tensor_reduce": ("dst", "data"),
    "tensor_scalar_reduce": ("dst", "data"),
    "tensor_copy": ("dst", "src"),
    "tensor_copy_predicated": ("dst", "predicate"),
    "exponential": ("dst", "src"),
}


def _group(m: Machine, row: str = "") -> int:
    """Return how many partitions share their offsets: those of a core of GpSimd, or a quadrant."""
    return m.hw.quadrant if row == "nc_matmul" else m.hw.pool_partitions


class Columns:
    """Columns of a tile on chip, chosen by offsets along its flattened free dims."""

    __slots__ = ("count", "data", "dtype", "index", "memory", "shape")

    def __init__(self, data: Tensor, index: Tensor, count: int):
        self.data, self.index, self.count = data, index, count
        self.shape, self.dtype, self.memory = (data.shape[0], count), data.dtype, data.memory


def of(t: Tensor, index: Any, num_elem: Any) -> Columns:
    """Return the view, or raise for what it cannot be."""
    if not t.m.hw.column_indices:
        raise fail(
            "NKI-E03",
            ".indirect() does not exist on " + t.m.hw.name,
            limit="NeuronCore-v4 (trn3) or newer",
            hint="gather with nisa.nc_n_gather or nisa.local_gather",
        )
    at = getattr(index, "_t", None)
    if (
        t.memory is HBM
        or not isinstance(at, Tensor)
        or at.memory is HBM
        or at.memory is PSUM
        or at.dtype.kind not in "iu"
        or at.shape[0] != t.shape[0]
    ):
        raise fail(
            "NKI-N02",
            ".indirect() takes a tile on chip, and a tile of offsets",
            given=f"{t!r}, index {at!r}"[:160],
            limit="integers (P, K) in SBUF, on as many partitions as the tile has",
        )
    size = at.size if num_elem is None else integer(num_elem, "num_elem")
    widest = min(at.shape[0], t.m.hw.quadrant)
    if size > at.size // at.shape[0] * widest:
        raise _too_many(at, size, widest)
    return Columns(t, at, size)


def _too_many(index: Tensor, size: int, group: int) -> NkiError:
    return fail(
        "NKI-N02",
        ".indirect() asks for more offsets than a group of partitions has",
        given=f"num_elem={size}, index {index.shape}",
        limit=f"{group * (index.size // index.shape[0])}: {group} partitions share theirs. "
        "The reference has index.size for the default, which is more than that",
        hint="give num_elem",
    )


def enter(m: Machine, row: Row, given: dict[str, Any]) -> Columns | None:
    """Put tiles in the place of views; return the one that the result is to be scattered to."""
    group = _group(m, row.name)
    late = None
    for name, x in given.items():
        if x.__class__ is not Columns:
            continue
        if name not in _TAKES.get(row.name, ()):
            raise fail(
                "NKI-N02",
                f"{row.api}: {name} is a view by .indirect()",
                limit=", ".join(_TAKES.get(row.name, ())) or "no operand of it takes that",
                hint="nisa.tensor_copy takes such a view: copy the columns into a tile",
            )
        part = x.data.shape[0]
        if part % group:
            raise fail(
                "NKI-P08",
                f"{row.api}: .indirect() of a part of a group of partitions",
                given=f"{part} partitions",
                limit=f"a multiple of {group}",
            )
        start = x.index.offset // x.index.storage.row_bytes
        if (
            start % m.hw.quadrant
            or name != "dst"
            and start != x.data.offset // x.data.storage.row_bytes
        ):
            raise fail(
                "NKI-P08",
                f"{row.api}: the offsets of .indirect() begin at a partition where they cannot",
                given=f"partition {start}",
                limit="0, 32, 64 or 96, the one at which the operand begins",
            )
        if x.count > group * (x.index.size // x.index.shape[0]):
            raise _too_many(x.index, x.count, group)
        if name == "dst":
            late = x
            st, strides = m.result_tile(x.shape, x.dtype, x.memory, m.here())
            given[name] = Tensor(m, st, 0, x.shape, strides, x.dtype, 0, x.memory)
        else:
            given[name] = rows.indirect_gather(x.data, x.index, x.count, group).settle()
    return late


def leave(to: Columns, value: Any) -> None:
    """Scatter what an instruction has written."""
    rows.indirect_scatter(to.data, value, to.index, _group(to.data.m))
