"""Variants: what the cost of an instruction depends on besides its operands, part by part."""

from __future__ import annotations

from typing import NamedTuple

from ..machine.instruction import PLAIN, Access, Plain


class Ops(NamedTuple):
    """ALU operators of elementwise instructions, scans and reductions, in order.

    `registers`: how it uses the accumulator registers, as `accumulators.use` says.
    """

    first: str
    second: str = ""
    registers: int = 0


class NothingSelected(NamedTuple):
    """A selection that selects no element: all that it writes is `fill`."""

    fill: float


class ColumnsSelected(NamedTuple):
    """A selection that selects something in columns `first` to `last` (not included) alone; the
    others are `fill`."""

    fill: float
    first: int
    last: int


class Reduction(NamedTuple):
    """A reduction over free axes."""

    op: str
    axes: tuple[int, ...]


class Fill(NamedTuple):
    """A constant."""

    zero: bool


class Activation(NamedTuple):
    """A function of the Scalar Engine; `registers` as in Ops."""

    function: str
    registers: int = 0


class Matmul(NamedTuple):
    """A product on the Tensor Engine."""

    stationary_onezero: bool = False
    moving_onezero: bool = False
    transposes: bool = False
    tiled: bool = False  # on a part of the array
    double_row: bool = False  # fp8, two rows of the contraction a cycle


class Gather(NamedTuple):
    """nisa.local_gather."""

    per_index: int
    valid: int


__all__ = ["PLAIN", "Access", "Activation", "Fill", "Gather", "Matmul", "Ops", "Plain", "Reduction"]
