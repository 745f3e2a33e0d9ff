"""One call of one instruction: its operands, the kernel that makes it, and the comparison."""
from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

import nkisim
from nkisim.errors import NkiError
from nkisim.isa.operands import READ, VECTOR, WRITE, Operand
from nkisim.isa.table import ROWS
from nkisim.launch import launch
from oracle.common import BITVEC, E4M3, E5M2, Expected, is_float

from . import masks
from .data import TAKES_OP, fill, prefill
from .spec import TILE, Sample, Spec, members

ENUMS = {"engine": nisa.engine, "reduce_cmd": nisa.reduce_cmd, "dge_mode": nisa.dge_mode,
         "oob_mode": nisa.oob_mode, "mode": nisa.oob_mode}
BUFFERS = {"sbuf": nl.sbuf, "psum": nl.psum, "hbm": nl.shared_hbm}


@dataclass
class Trial:
    """A sample of a spec with its grid, mask, dtypes, and where its operands lie."""

    spec: Spec
    sample: Sample
    grid: tuple[int, ...]
    mask: masks.Case
    dtype: np.dtype
    turn: int                               # rotates what is not multiplied out
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)
    assigned: bool = True                   # dst[...] = op(...), else the tile that op returns

    def __post_init__(self) -> None:
        self.row = ROWS[self.spec.row]
        self.operands = self.spec.operands
        self.domain = self.spec.domain(self.grid)
        self.selected = self.mask.array(self.domain)
        self.rng = np.random.default_rng(zlib.crc32(repr((
            self.spec.row, self.grid, self.mask.name, self.dtype.name, self.turn)).encode()))
        self.params = {k: v(self.grid) if callable(v) else v
                       for k, v in self.sample.args.items() if v is not TILE}
        self._give_dtype()
        for operand in self.operands:
            if self._is_tile(operand):
                self._make(operand)
        self._place()
        self.assigned = self.mask.name != "none" or self.turn % 3 > 0

    # -- operands --------------------------------------------------------------------------------
    def _is_tile(self, operand: Operand) -> bool:
        if operand.optional or operand.numbers:
            return self.sample.args.get(operand.name) is TILE
        return True

    def _give_dtype(self) -> None:
        """Choose the dtype that the call asks for, or that of an explicit destination."""
        choice = self.spec.casts[self.turn % len(self.spec.casts)]
        self.asked = self.dtype if choice == "case" else None if choice is None \
            else np.dtype(_dtype(choice))
        bitvec = any(v in BITVEC for v in self.sample.args.values() if isinstance(v, str))
        if bitvec and self.asked is not None and is_float(self.asked):
            self.asked = self.dtype             # bits go to integers
        if self.spec.result and self.asked is not None:
            self.params["dtype"] = self.asked

    def _dtype_of(self, operand: Operand) -> np.dtype:
        if operand.name in self.sample.dtypes:
            return self.sample.dtypes[operand.name]
        if self.spec.dst_like and operand.name == "dst":
            return self.dtype
        if operand.name in self.spec.takes:
            return self._turned(self.spec.takes[operand.name])
        kinds = members(operand.dtypes)
        if operand.form is VECTOR:
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
        elif operand.form is VECTOR:
            shape = (self.grid[0], 1)
        dtype = self._dtype_of(operand)
        how = self.sample.fill.get(name, "bits" if name == "predicate" else "plain")
        if operand.role == WRITE:
            self.arrays[name] = prefill(shape, dtype)
        elif isinstance(how, str) and how == "among":
            self.arrays[name] = self._among(shape)
        elif isinstance(how, str) and how == "rows":
            self.arrays[name] = self.rng.permutation(self.grid[0])[:shape[0]].reshape(
                shape).astype(dtype)
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
        if self.row.engines == ("gpsimd",):     # it cannot touch PSUM, whatever is declared
            where = {name: tuple(m for m in every if m != "psum") for name, every in where.items()}
        choices = [{n: m[0] for n, m in where.items()}]
        for name, memories in where.items():
            for other in memories[1:]:
                if other != "psum" or self.sample.psum:
                    choices.append({**choices[0], name: other})
        for choice in list(choices[1:]):            # and a written one as well
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

    def kernel(self, expected: dict[str, Expected]) -> tuple[Any, list, dict]:
        """Return a kernel that makes the call, the arrays that it takes, and what is there before
        in each operand that it writes."""
        before = {n: self.arrays.get(n, prefill(e.value.shape, e.value.dtype))
                  for n, e in expected.items()}
        given = {**{n: a for n, a in self.arrays.items() if n not in before}, **before}
        return _kernel(self, list(given), expected), list(given.values()), before

    def __str__(self) -> str:
        """Return the call, as a reader would write it down."""
        args = []
        for o in self.operands:
            if o.name in self.arrays:
                a = self.arrays[o.name]
                args.append(f"{o.name}=<{a.dtype.name}{list(a.shape)} in {self.places[o.name]}>")
        args += [f"{k}={v}" for k, v in self.params.items()]
        text = f"{self.spec.public or self.row.public}({', '.join(args)}"
        text += f", mask={self.mask.name})" if self.mask.name != "none" else ")"
        return ("dst[...] = " if self.assigned and self.spec.result else "") + text + (
            f" with the result in {self.places['']}" if "" in self.places else "")


def _dtype(name: str) -> Any:
    return getattr(nl, name)


def _public(trial: Trial) -> Any:
    module, name = (trial.spec.public or trial.row.public).split(".")
    return getattr({"nisa": nisa, "nl": nl}[module], name)


def _bring(x: Any, memory: str, count: Counter, keep: bool = False) -> Any:
    """Return a kernel's argument in a memory; `keep`: as it may be when it is only read."""
    if memory == "hbm" and not keep:
        return x
    t = nl.load(x)
    count["load"] += 1
    if memory == "sbuf" and not keep:
        return t
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=BUFFERS[memory])
    if memory == "hbm":
        nl.store(out, t)
        count["store"] += 1
    else:
        out[...] = nisa.tensor_copy(t)
        count["tensor_copy"] += 1
    return out


def _out(tile: Any, memory: str, count: Counter) -> Any:
    """Return an HBM tensor with what a tensor holds."""
    if memory == "hbm":
        return tile
    if memory == "psum":
        tile = nisa.tensor_copy(tile)
        count["tensor_copy"] += 1
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    count["store"] += 1
    return out


def _kernel(trial: Trial, names: list[str], expected: dict[str, Expected]) -> Any:
    """Return the kernel of a trial: it brings, calls, and stores what the call wrote."""
    function = _public(trial)

    def kernel(*given):
        count = kernel.count = Counter()
        tiles = {n: _bring(x, trial.places[n], count, n in expected)
                 for n, x in zip(names, given)}
        kw = {k: _argument(trial, k, v) for k, v in trial.params.items()}
        kw.update((n, t) for n, t in tiles.items() if n)
        if trial.spec.call is not None:
            kw = trial.spec.call(nl, kw)
        result = _issue(trial, function, kw, tiles.get(""))
        if "" in tiles and not trial.assigned:
            tiles[""] = result
        count[trial.spec.row] += bool(trial.selected.any())
        return tuple(_out(tiles[n], trial.places[n], count) for n in expected)
    return kernel


def _argument(trial: Trial, name: str, value: Any) -> Any:
    """Return a parameter as a kernel passes it."""
    if isinstance(value, (masks.Affine, masks.Compare)):
        return value.index(masks.axes(nl, trial.domain, trial.turn % 2 == 1))
    if name in TAKES_OP and isinstance(value, str):
        return getattr(nl, value)
    if name in ENUMS:
        return getattr(ENUMS[name], value)
    return value


def _issue(trial: Trial, function: Any, kw: dict, dst: Any) -> Any:
    """Make the call; a mask of a loop variable in the loop."""
    if trial.mask.always is None:
        mask = trial.mask.index(nl, trial.domain, trial.turn % 2 == 1)
        return _assign(trial, function, kw if mask is None else {**kw, "mask": mask}, dst)
    for i in nl.affine_range(2):
        _assign(trial, function, {**kw, "mask": i < int(trial.mask.always)}, dst)
    return None


def _assign(trial: Trial, function: Any, kw: dict, dst: Any) -> Any:
    if dst is None or not trial.assigned:
        return function(**kw)
    dst[...] = function(**kw)
    return dst


# -- comparison ----------------------------------------------------------------------------------

def check(trial: Trial) -> str:
    """Run a trial; return what is wrong with it, or nothing."""
    expected = trial.expected()
    kernel, arrays, before = trial.kernel(expected)
    try:
        run = nkisim.run(kernel, *arrays, target=trial.spec.target)
    except Exception as exc:
        if isinstance(exc, NkiError) and exc.id != "NKI-X01" and not any(
                e.known is None or (e.known & e.written).any() for e in expected.values()):
            return ""                           # what is not documented may be refused
        return f"{type(exc).__name__}: {str(exc)[:400]}"
    return "\n".join(_differences(trial, kernel, run, arrays, expected, before))


def _differences(trial: Trial, kernel: Any, run: Any, arrays: list, expected: dict, before: dict
                 ) -> Iterator[str]:
    for (name, want), got in zip(expected.items(), run.outputs):
        yield from _values(name or "the result", got, want, before[name], trial.assigned)
    if run.instructions != +kernel.count:
        yield f"instructions {dict(run.instructions)}, expected {dict(+kernel.count)}"
    yield from out_of_reach(run.trace)
    timing = launch(kernel, tuple(arrays), {}, target=trial.spec.target, compute=False)
    if record(timing.trace) != record(run.trace):
        yield "the timing-only run has another record"


def out_of_reach(trace: Any) -> Iterator[str]:
    """Say where an engine touches a memory that it cannot reach (2.0, Placement)."""
    for kind in trace.kinds:
        memories = {p.kind for p in kind.operands}
        if kind.engine == "gpsimd" and "psum" in memories:
            yield f"{kind.row.name} runs on GpSimd, which cannot touch PSUM"
        if kind.engine == "tensor" and "psum" in {p.kind for p in kind.operands[kind.outputs:]}:
            yield f"{kind.row.name} runs on the Tensor Engine, which reads SBUF only"


def record(trace: Any) -> list:
    """Return a trace's instructions with their operands, to be compared."""
    return [(kind.row.name, kind.engine, kind.operands, kind.outputs, kind.accumulate, kind.inplace,
             kind.form, ops) for kind, _, _, ops in trace]


def _values(name: str, got: np.ndarray, want: Expected, before: np.ndarray, prefilled: bool
            ) -> Iterator[str]:
    if got.dtype != want.value.dtype or got.shape != want.value.shape:
        yield (f"{name} is {got.dtype.name}{list(got.shape)}, expected "
               f"{want.value.dtype.name}{list(want.value.shape)}")
        return
    known = np.ones(got.shape, bool) if want.known is None else want.known
    if got.dtype in (E4M3, E5M2):               # overflow of 8-bit floats is not documented
        known = known & np.isfinite(want.value.astype(np.float32))
    x, y = got.astype(np.float64), want.value.astype(np.float64)
    margin = np.zeros(y.shape)
    if want.rtol:
        margin = np.abs(y) * max(want.rtol, _epsilon(got.dtype)) + 1e-6 if is_float(got.dtype) \
            else np.ones(y.shape)
    with np.errstate(invalid="ignore"):
        same = (np.abs(x - y) <= margin) | (x == y) | (np.isnan(x) & np.isnan(y))
    wrong = want.written & known & ~same
    if wrong.any():
        yield _told(f"{name}: wrong values", wrong, got, want.value)
    touched = ~want.written & known & (got != before)
    if prefilled and touched.any():
        yield _told(f"{name}: changed although not written", touched, got, before)


def _epsilon(dtype: np.dtype) -> float:
    return float(ml_dtypes.finfo(dtype).eps)


def _told(what: str, bad: np.ndarray, got: np.ndarray, want: np.ndarray) -> str:
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    return (f"{what} at {int(bad.sum())} of {bad.size} elements, first {at}: {got[at]} instead of "
            f"{want[at]}")
