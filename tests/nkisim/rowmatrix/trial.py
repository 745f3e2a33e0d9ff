"""The operands of one call of one instruction."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import neuronxcc.nki.language as nl
import numpy as np

from nkisim.isa.operands import READ, VECTOR, WRITE, Operand
from nkisim.isa.table import ROWS
from oracle.common import BITVEC, Expected, is_float

from . import masks
from .data import fill, prefill
from .spec import TILE, Sample, Spec, members


@dataclass
class Trial:
    """One call of an instruction: a sample of a spec, with its grid, mask and dtypes.

    `arrays` are its tiles by name (what a written one holds beforehand), `places` the memories
    they lie in ("" is the result's), `params` the other arguments, `domain` the grid of the mask
    and `selected` the mask as an array.
    """

    spec: Spec
    sample: Sample
    grid: tuple[int, ...]
    mask: masks.Case
    dtype: np.dtype
    turn: int  # rotates what is not multiplied out
    arrays: dict[str, np.ndarray] = field(default_factory=dict, init=False)
    places: dict[str, str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.row = ROWS[self.spec.row]
        self.operands = self.spec.operands
        self.public = self.spec.public or self.row.public
        self.domain = self.spec.domain(self.grid)
        self.selected = self.mask.array(self.domain)
        self.rng = np.random.default_rng(
            zlib.crc32(
                repr(
                    (self.spec.row, self.grid, self.mask.name, self.dtype.name, self.turn)
                ).encode()
            )
        )
        self.params = {
            k: v(self.grid) if callable(v) else v
            for k, v in self.sample.args.items()
            if v is not TILE
        }
        self._give_dtype()
        for operand in self.operands:
            if self._is_tile(operand):
                self._make(operand)
        self._place()
        # dst[...] = op(...), or at times the tile that op returns: it has a dtype and a shape
        self.assigned = self.mask.name != "none" or self.turn % 3 > 0

    # -- operands --------------------------------------------------------------------------------
    def _is_tile(self, operand: Operand) -> bool:
        if operand.optional or operand.numbers is True:
            return self.sample.args.get(operand.name) is TILE
        return True

    def _give_dtype(self) -> None:
        """Choose the dtype that the call asks for, or that of an explicit destination."""
        choice = self.spec.casts[self.turn % len(self.spec.casts)]
        self.asked = (
            self.dtype
            if choice == "case"
            else None
            if choice is None
            else np.dtype(getattr(nl, choice))
        )
        bitvec = any(v in BITVEC for v in self.sample.args.values() if isinstance(v, str))
        if bitvec and self.asked is not None and is_float(self.asked):
            self.asked = self.dtype  # bits go to integers
        if self.spec.result and self.asked is not None:
            self.params["dtype"] = self.asked

    def _dtype_of(self, operand: Operand) -> np.dtype:
        if operand.name in self.sample.dtypes:
            return self.sample.dtypes[operand.name]
        if self.spec.no_cast and operand.name == "dst":
            return self.dtype
        if operand.name in self.spec.takes:
            return self._turned(self.spec.takes[operand.name])
        kinds = members(operand.dtypes)
        if operand.takes is VECTOR:
            return kinds[0]
        if operand.role != READ and not self.spec.result and self.asked is not None:
            return self.asked
        return self.dtype if self.dtype in kinds else self._turned(kinds)

    def _turned(self, kinds: tuple) -> np.dtype:
        return kinds[self.turn % len(kinds)]

    def _make(self, operand: Operand) -> None:
        name, shape = operand.name, self.grid
        if name in self.spec.shapes:
            shape = self.spec.shapes[name](self.grid)
        elif operand.takes is VECTOR:
            shape = (self.grid[0], 1)
        dtype = self._dtype_of(operand)
        how = self.sample.fill.get(name, "bits" if name == "predicate" else "plain")
        if operand.role == WRITE:
            self.arrays[name] = prefill(shape, dtype)
        elif isinstance(how, str) and how == "among":
            self.arrays[name] = self._among(shape)
        elif isinstance(how, str) and how == "rows":
            self.arrays[name] = (
                self.rng.permutation(self.grid[0])[: shape[0]].reshape(shape).astype(dtype)
            )
        else:
            self.arrays[name] = fill(self.rng, shape, dtype, how)

    def _among(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return 8 of the selected elements of `data`, for each partition."""
        data = self.arrays["data"]
        out = np.empty(shape, data.dtype)
        for p in range(shape[0]):
            chosen = data[p].reshape(-1)[self.selected[p].reshape(-1)]
            out[p] = self.rng.permutation(chosen if chosen.size else data[p].reshape(-1))[:8]
        return out

    def _place(self) -> None:
        """Put each operand in a memory: as usual, or one of them (and the result) elsewhere."""
        where = {o.name: o.memories for o in self.operands if o.name in self.arrays}
        if self.spec.result:
            where[""] = self.spec.result
        if self.row.engines == ("gpsimd",):  # it cannot touch PSUM, whatever is declared
            where = {
                name: tuple(m for m in possible if m != "psum") for name, possible in where.items()
            }
        choices = [{n: m[0] for n, m in where.items()}]
        for name, memories in where.items():
            for other in memories[1:]:
                if other != "psum" or self.sample.psum:
                    choices.append({**choices[0], name: other})
        for choice in list(choices[1:]):  # and a written one as well
            for name in ("", "dst"):
                if "psum" in where.get(name, ()) and self.sample.psum and choice[name] != "psum":
                    choices.append({**choice, name: "psum"})
        self.places = choices[self.turn % len(choices)]

    # -- expectation ------------------------------------------------------------------------------
    def expected(self) -> dict[str, Expected]:
        """Return what the oracle says of each written operand."""
        args = {**self.params, **self.arrays}
        for name, value in args.items():
            if isinstance(value, (masks.Affine, masks.Compare)):
                args[name] = value.array(self.domain)
        return self.spec.oracle(**args, mask=self.selected)

    def __str__(self) -> str:
        """Return the call, as a reader would write it down."""
        args = []
        for o in self.operands:
            if o.name in self.arrays:
                a = self.arrays[o.name]
                args.append(f"{o.name}=<{a.dtype.name}{list(a.shape)} in {self.places[o.name]}>")
        args += [f"{k}={v}" for k, v in self.params.items()]
        text = f"{self.public}({', '.join(args)}"
        text += f", mask={self.mask.name})" if self.mask.name != "none" else ")"
        return (
            ("dst[...] = " if self.assigned and self.spec.result else "")
            + text
            + (f" with the result in {self.places['']}" if "" in self.places else "")
        )
