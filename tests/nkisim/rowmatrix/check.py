"""The kernel of a trial, and what is wrong with what it does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

import nkisim
from nkisim.errors import NkiError
from nkisim.simulation.launch import launch
from oracle.common import E4M3, E5M2, Expected, is_float

from . import masks
from .data import TAKES_OP, prefill
from .trial import Trial

ENUMS = {
    "engine": nisa.engine,
    "reduce_cmd": nisa.reduce_cmd,
    "dge_mode": nisa.dge_mode,
    "oob_mode": nisa.oob_mode,
    "mode": nisa.oob_mode,
}
BUFFERS = {"sbuf": nl.sbuf, "psum": nl.psum, "hbm": nl.shared_hbm}


def _public(trial: Trial) -> Any:
    module, name = trial.public.split(".")
    return getattr({"nisa": nisa, "nl": nl}[module], name)


def _bring(x: Any, memory: str, count: Counter, writable: bool) -> Any:
    """Return a kernel's argument in a memory; `writable`: not the argument or the load itself."""
    if memory == "hbm" and not writable:
        return x
    t = nl.load(x)
    count["load"] += 1
    if memory == "sbuf" and not writable:
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


def kernel_of(trial: Trial, names: list[str], expected: dict[str, Expected]) -> Any:
    """Return the kernel of a trial: it brings, calls, and stores what the call wrote.

    `kernel.count` are the instructions that it should have issued, by name.
    """
    function = _public(trial)

    def kernel(*given):
        count = kernel.count = Counter()
        tiles = {n: _bring(x, trial.places[n], count, n in expected) for n, x in zip(names, given)}
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
    before = {
        n: trial.arrays.get(n, prefill(e.value.shape, e.value.dtype)) for n, e in expected.items()
    }
    given = {**{n: a for n, a in trial.arrays.items() if n not in before}, **before}
    kernel, arrays = kernel_of(trial, list(given), expected), list(given.values())
    try:
        run = nkisim.run(kernel, *arrays, target=trial.spec.target)
    except Exception as exc:
        if (
            isinstance(exc, NkiError)
            and exc.id != "NKI-X01"
            and not any(e.known is None or (e.known & e.written).any() for e in expected.values())
        ):
            return ""  # what is not documented may be refused
        return f"{type(exc).__name__}: {str(exc)[:400]}"
    return "\n".join(_differences(trial, kernel, run, arrays, expected, before))


def _differences(
    trial: Trial, kernel: Any, run: Any, arrays: list, expected: dict, before: dict
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
    for kind in trace.op_specs:
        memories = {p.memory for p in kind.operands}
        if kind.engine == "gpsimd" and "psum" in memories:
            yield f"{kind.row.name} runs on GpSimd, which cannot touch PSUM"
        if kind.engine == "tensor" and "psum" in {p.memory for p in kind.operands[kind.outputs :]}:
            yield f"{kind.row.name} runs on the Tensor Engine, which reads SBUF only"


def record(trace: Any) -> list:
    """Return a trace's instructions with their operands, to be compared."""
    return [
        (
            kind.row.name,
            kind.engine,
            kind.operands,
            kind.outputs,
            kind.accumulate,
            kind.inplace,
            kind.variant,
            ops,
        )
        for kind, _, _, ops in trace
    ]


def _values(
    name: str, got: np.ndarray, want: Expected, before: np.ndarray, prefilled: bool
) -> Iterator[str]:
    if got.dtype != want.value.dtype or got.shape != want.value.shape:
        yield (
            f"{name} is {got.dtype.name}{list(got.shape)}, expected "
            f"{want.value.dtype.name}{list(want.value.shape)}"
        )
        return
    known = np.ones(got.shape, bool) if want.known is None else want.known
    if got.dtype in (E4M3, E5M2):  # overflow of 8-bit floats is not documented
        known = known & np.isfinite(want.value.astype(np.float32))
    x, y = got.astype(np.float64), want.value.astype(np.float64)
    margin = np.zeros(y.shape)
    if want.rtol:
        margin = (
            np.abs(y) * max(want.rtol, _epsilon(got.dtype)) + 1e-6
            if is_float(got.dtype)
            else np.ones(y.shape)
        )
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
    return (
        f"{what} at {int(bad.sum())} of {bad.size} elements, first {at}: {got[at]} instead of "
        f"{want[at]}"
    )
