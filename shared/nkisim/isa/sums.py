"""How instructions add: the order, the dtype, and how that is known (docs/numerics.md)."""

from __future__ import annotations

from typing import NamedTuple


class Sums(NamedTuple):
    """The order and the dtype of the sums (and products) of a row, here, and how both are known.

    `known`: "ran on chip", "documented", or "assumed": then nothing is published, and results of
    the chip may differ in the last bits.
    """

    order: str
    known: str
    dtype: str = "float32"


_ONE_BY_ONE = "one element after the other, the last free dim fastest"

IN_ORDER = Sums(_ONE_BY_ONE, "ran on chip")
RECURRENCE = Sums(f"{_ONE_BY_ONE}: each result is the one before and an element", "documented")
REGISTERS = Sums(
    "the register, then one element after the other, the last free dim fastest", "assumed"
)
PARTITIONS = Sums("one partition after the other", "assumed")
STATISTICS = Sums("sums in pairs, of the even and of the odd elements", "assumed")
TRIPLES = Sums("sums in pairs, over the triples", "assumed")
PRODUCT = Sums(
    "the K products of a matmul in an order of the host's BLAS, then the sum in PSUM", "assumed"
)
SOURCES = Sums("the sources as they are listed", "assumed")
READ_MODIFY_WRITE = Sums(
    "what is there, then the value; rows that occur twice in their order", "assumed"
)

__all__ = [
    "IN_ORDER",
    "PARTITIONS",
    "PRODUCT",
    "READ_MODIFY_WRITE",
    "RECURRENCE",
    "REGISTERS",
    "SOURCES",
    "STATISTICS",
    "Sums",
    "TRIPLES",
]
