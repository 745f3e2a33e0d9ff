"""Numbers made of finite ones that cannot be right: infinities, NaN, and integers that float32 or
their own dtype cannot hold.

NumPy looks at the flags of the floating-point unit after each operation. So nothing is looked for
until one is raised; the instruction that raised it is then looked at, and the first of each kind is
kept. Whether that is a mistake depends on where it goes: infinities of a mask end in exp. It is
told where a NaN or an infinity reaches an output.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..chip import dtypes
from ..chip.memory import FULLY
from .instruction import Instr
from .tensor import Tensor

if TYPE_CHECKING:
    from .interface import Machine

_ERRORS = ("overflow", "divide by zero", "invalid value")
#: from here on float32 does not have every integer
_EXACT = 1 << 24


@dataclass(frozen=True)
class First:
    """The first instruction that made an infinity or a NaN in one of three ways."""

    line: int
    text: str
    error: str
    small: bool  # a dtype of fewer bits that is too small for it
    narrow: bool  # the same, of a sum or a product


class Overflow:
    """What a launch knows of such numbers."""

    def __init__(self, m: Machine):
        self.m = m
        self.raised: set[str] = set()
        self.firsts: dict[str, First] = {}
        self.reached = ""  # what is in an output: "NaN" or "infinity"

    def errstate(self) -> np.errstate:
        """Return the context in which instructions are executed."""
        if not (self.m.compute and self.m.settings.checks):
            return np.errstate(all="ignore")
        return np.errstate(
            under="ignore", over="call", divide="call", invalid="call", call=self._raise
        )

    def _raise(self, error: str, flags: int) -> None:
        if error not in self.firsts:
            self.raised.add(error)

    # -- infinities and NaN --------------------------------------------------------------
    def check_results(self, ins: Instr, dst: Tensor) -> None:
        """Look at the results of an instruction that has raised a flag."""
        raised, self.raised = self.raised, set()
        if ins.mask is not None or any(s.storage.init != FULLY for s in ins.srcs):
            return  # made of what nothing has written, it may be
        for t in (dst, *ins.also):
            if t.oob is not None or dtypes.is_int(t.dtype) or t.dtype in dtypes.PACKED:
                continue
            values = np.asarray(t.np, np.float32)
            nan, inf = np.isnan(values), np.isinf(values)
            for error in _ERRORS:
                bad = nan if error == "invalid value" else inf
                if (
                    error in raised
                    and error not in self.firsts
                    and bad.any()
                    and not self._inherited(ins, t, error)
                ):
                    self.firsts[error] = self._first(ins, t, error, values, bad)

    def _inherited(self, ins: Instr, dst: Tensor, error: str) -> bool:
        """Return whether a source has a NaN already, or has an infinity where NaN is made of it."""
        return error == "invalid value" and any(
            s.storage is not dst.storage
            and s.oob is None
            and not dtypes.is_int(s.dtype)
            and s.dtype not in dtypes.PACKED
            and np.isnan(np.asarray(s.np, np.float32)).any()
            for s in ins.srcs
        )

    def _first(
        self, ins: Instr, t: Tensor, error: str, values: np.ndarray, bad: np.ndarray
    ) -> First:
        value = "NaN" if error == "invalid value" else "infinity"
        largest = [
            float(np.abs(np.asarray(s.np, np.float32)).max())
            for s in ins.srcs
            if s.storage is not t.storage
            and s.oob is None
            and s.size
            and s.dtype not in dtypes.PACKED
        ]
        most = max(largest, default=np.inf)
        of = f", of values up to {most:.4g}" if np.isfinite(most) else ""
        # a mask's most negative number in a dtype of 16 bits is an infinity on purpose
        small = t.dtype.itemsize < 4 and error == "overflow" and bool((values[bad] > 0).any())
        return First(
            ins.line,
            f"{ins.row.api} makes the first {value} here, in {int(bad.sum()):,} "
            f"of {bad.size:,} elements of {dtypes.name(t.dtype)}{of} ({error})",
            error,
            small,
            small and not hasattr(ins.variant, "function"),
        )

    def check_output(self, t: Tensor) -> None:
        """Note whether a NaN or an infinity has reached an output."""
        if (
            not self.firsts
            or dtypes.is_int(t.dtype)
            or t.dtype in dtypes.PACKED
            or t.storage.init != FULLY
        ):  # NaN is what nothing has written, too
            return
        values = np.asarray(t.np, np.float32)
        if np.isnan(values).any():
            self.reached = "NaN"
        elif np.isinf(values).any():
            self.reached = self.reached or "infinity"

    def report(self, inputs: Iterable[np.ndarray]) -> None:
        """Add a finding for the first NaN or infinity that was made of finite numbers."""
        if not self.firsts or not all(_finite(a) for a in inputs):
            return
        first = next(iter(self.firsts.values()))
        if self.reached:
            # an infinity of float32 is what a reference in float32 has there as well
            severity = "warning" if self.reached == "NaN" or first.small else "note"
            self.m.find(
                "NKI-U07", severity, f"{first.text}; {self.reached} reaches an output", first.line
            )
            return
        for first in self.firsts.values():
            if first.narrow:
                self.m.find("NKI-U07", "warning", f"{first.text}: float32 can hold it", first.line)

    # -- integers ------------------------------------------------------------------------
    def integers(
        self, ins: Instr, outs: tuple[Tensor, ...], exact: tuple[np.ndarray | None, ...]
    ) -> None:
        """Say that results are not the integers that they would be without rounding to float32.

        exact: what each would be, in double precision; None: it is not looked at.
        """
        for t, values in zip(outs, exact):
            if values is not None and dtypes.is_int(t.dtype):
                self._integer(ins, t, values)

    def _integer(self, ins: Instr, dst: Tensor, exact: np.ndarray) -> None:
        written = dst.np.astype(np.float64)
        wrong = np.abs(written - exact.reshape(written.shape)) > 0.5  # not a fraction, rounded
        if not wrong.any():
            return
        at = np.argwhere(wrong)[0]
        value, there = exact.reshape(written.shape)[tuple(at)], written[tuple(at)]
        limits = np.iinfo(dst.dtype)
        outside = not limits.min <= value <= limits.max
        if not outside and abs(value) < _EXACT and not self._large(ins):
            return  # a fraction that lies between two
        why = (
            f"outside of {limits.min} .. {limits.max} of {dtypes.name(dst.dtype)}, it saturates"
            if outside
            else "computed in float32, which has not every integer beyond 2**24"
        )
        self.m.find(
            "NKI-D10",
            "warning",
            f"{ins.row.api} writes {there:.0f} for {value:.0f}, in "
            f"{int(wrong.sum()):,} of {wrong.size:,} elements: {why}",
            ins.line,
        )

    @staticmethod
    def _large(ins: Instr) -> bool:
        return any(s.size and np.abs(s.np.astype(np.float64)).max() > _EXACT for s in ins.srcs)

    def copied(self, ins: Instr, source: np.ndarray, dst: Tensor) -> None:
        """Say that a copy of integers as another dtype does not keep them."""
        if dst.np.shape != source.shape:
            return
        wrong = dst.np.astype(np.float64) != source.astype(np.float64)
        if wrong.any():
            at = tuple(np.argwhere(wrong)[0])
            severity = "warning" if source.dtype.kind == "i" else "note"  # random bits are uint32
            self.m.find(
                "NKI-D10",
                severity,
                f"{ins.row.api} writes "
                f"{float(dst.np[at]):.0f} for the integer {int(source[at])}, in "
                f"{int(wrong.sum()):,} of {wrong.size:,} elements: "
                f"{dtypes.name(dst.dtype)} does not have it",
                ins.line,
            )


def _finite(a: np.ndarray) -> bool:
    return (
        a.dtype.kind in "iub"
        or a.dtype in dtypes.PACKED
        or bool(np.isfinite(np.asarray(a, np.float32)).all())
    )


def tile_integers(ins: Instr) -> bool:
    """Return whether all tiles that an instruction reads hold integers."""
    return bool(ins.srcs) and all(dtypes.is_int(s.dtype) for s in ins.srcs)


def exact(values: Any) -> Any:
    """Return integers in double precision, which has all of 32 bits and their sums."""
    return values.np.astype(np.float64) if isinstance(values, Tensor) else values


__all__ = ["First", "Overflow", "exact", "tile_integers"]
