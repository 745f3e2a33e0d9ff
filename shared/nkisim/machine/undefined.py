"""Undefined elements: what nothing has written, and what was computed from it.

To read such elements is legal: a tile that a mask has loaded in part is computed on as a whole,
and the store's mask drops the rest. It is a bug if they reach an output. So they are followed:
storages know which elements are undefined, and an instruction that reads some is tried out on
different garbage. Results that come out differently are undefined as well; a selection, a
reduction of other rows or a copy of another part gives the same each time. Nothing of this needs
to know what an instruction does, and it costs nothing while all that is read is defined.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from ..checks.finding import Findings
from ..checks.words import region
from ..chip import dtypes
from ..chip.memory import FULLY, NEVER
from ..errors import NkiError, fail
from . import arena, masked_writes, source_text
from .instruction import Access, Instr
from .state import Registers
from .tensor import Indirect, Tensor

if TYPE_CHECKING:
    from .interface import Machine

_MOST = 255  # reads that are told apart


@dataclass(frozen=True)
class Read:
    """The first instruction that read elements which nothing had written."""

    line: int
    made: int  # line of the tensor's allocation
    text: str


class Undefined:
    """What a launch knows of undefined elements; an element's origin is 1 + the index of a Read."""

    def __init__(self, m: Machine):
        self.m = m
        self.reads: list[Read] = []

    # -- following them --------------------------------------------------------------
    def before_sum(self, dst: Tensor, ins: Instr) -> None:
        """Make `dst` readable for an accumulation: zeros that were free, or never written."""
        st = dst.storage
        assert st is not None
        if st.arena and not arena.wrote(dst):
            dst.np[...] = 0  # a new tensor's first product overwrites what is there
            return
        if st.init == FULLY:
            return
        if st.init == NEVER:
            self._overwritten(dst, ins)
            if dst.size * dst.dtype.itemsize == st.nbytes:
                st.zeros_below()
            else:
                dst.np[...] = 0
            return
        if st.defined(dst.offset, dst.shape, dst.strides, dst.dtype.itemsize):
            return
        never = st.origins(dst.offset, dst.shape, dst.strides, dst.dtype.itemsize) == 0
        if never.any():
            self._overwritten(dst, ins)
            np.copyto(dst.np, np.zeros((), dst.np.dtype), where=never)

    def _overwritten(self, dst: Tensor, ins: Instr) -> None:
        """Say that a first product overwrites; in the package nki the kernel says what it means."""
        if self.m.dialect.zeros_before_sums:
            self.m.find(
                "NKI-U03",
                "warning",
                f"{ins.row.name} accumulates into {dst!r}, which was "
                "never set: the first product overwrites it. nl.zeros(..., buffer=nl.psum) "
                "says so and costs nothing",
                ins.line,
                dst.storage.where,
            )

    def results(self, ins: Instr, outs: tuple[Tensor, ...]) -> list[np.ndarray] | None:
        """Return the origin of each element of the results (-1: it is defined), None if all are.

        Called before the instruction runs. Raises NKI-U01 for a tensor that nothing has written.
        """
        bad = [(s, o) for s in ins.srcs if (o := self._origins(s)) is not None]
        dst = outs[0]
        kept: list[np.ndarray | None] = [None for _ in outs]  # what stays of the destinations
        adds = ins.variant.__class__ is Access and ins.variant.adds
        if (ins.row.merges or ins.accumulate or ins.scatters or adds) and (
            dst.storage.init != FULLY or ins.scatters
        ):
            first = kept[0] = _origins(dst)
            if ins.accumulate:  # the first product overwrites what its tile has not written
                first[(first == 0) | (dst.storage.arena and not arena.wrote(dst))] = -1
        if ins.row.merges:
            kept[1:] = [_origins(t) if t.storage.init != FULLY else None for t in outs[1:]]
        if not bad and all(k is None or (k < 0).all() for k in kept):
            return None
        origin = self._read(ins.line, ins.row.name, *bad[0]) if bad else 0
        if ins.scatters:
            assert kept[0] is not None
            return [
                _scattered(
                    ins,
                    bad,
                    kept[0],
                    origin,
                    self._read(ins.line, ins.row.name, dst, kept[0]) if adds else -1,
                )
            ]
        differs = _try(self.m, ins, outs, bad, kept)
        out: list[np.ndarray] = [np.where(d, np.int16(origin), np.int16(-1)) for d in differs]
        for i, k in enumerate(kept):
            if k is not None and not adds:  # what adds has read it
                out[i] = np.where((k >= 0) & (differs[i] | (ins.accumulate and not i)), k, out[i])
        return out

    def refuse(self, srcs: Sequence[Tensor]) -> None:
        """Raise NKI-U01 unless all that an instruction without a result reads was written."""
        for s in srcs:
            origins = self._origins(s)
            if origins is not None and (origins >= 0).any():
                raise fail(
                    "NKI-U01",
                    "a part of a tensor is read before anything has been written to it",
                    given=f"{s!r}: {region(origins >= 0)} was not "
                    f"written{self._made_at(s.storage.where)}",
                    limit="on the chip this reads whatever the last kernel left there",
                    hint="write all of it first",
                )

    def sent(self, src: Tensor) -> np.ndarray | None:
        """Return the origin of each element that a core sends to the other one (-1: it is defined),
        None if all are defined."""
        if not self.m.settings.checks or (origins := self._origins(src)) is None:
            return None
        read = np.int16(self._read(self.m.here(), "sendrecv", src, origins))
        return np.where(origins == 0, read, origins)

    def spoil(self, outs: tuple[Tensor, ...], origins: list[np.ndarray]) -> None:
        """Mark undefined elements of results, after the instruction has run."""
        for t, origin in zip(outs, origins):
            if (origin >= 0).any():
                t.storage.spoil(t.offset, t.shape, t.strides, t.dtype.itemsize, origin)

    def _origins(self, s: Tensor) -> np.ndarray | None:
        """Return the origins of a source's elements, None if all are defined."""
        st = s.storage
        if s.oob is not None:  # beyond an edge: a mask cuts it
            return None
        if st.arena and (left := arena.left_by_others(s)) is not None:
            return np.where(left, np.int16(0), _origins(s))
        if st.init == FULLY:
            return None
        if st.init == NEVER:
            raise never_written(self.m, s)
        if st.defined(s.offset, s.shape, s.strides, s.dtype.itemsize):
            return None
        return _origins(s)

    def _made_at(self, line: int) -> str:
        return made_at(self.m, line)

    def _read(self, line: int, name: str, s: Tensor, origin: np.ndarray) -> int:
        """Return the number of the read that the undefined elements of a source go back to."""
        if not (origin == 0).any():
            return int(origin[origin > 0].min(initial=_MOST))
        made = s.storage.where
        for i, read in enumerate(self.reads):
            if (read.line, read.made) == (line, made):
                return i + 1
        if len(self.reads) == _MOST:
            return _MOST
        self.reads.append(
            Read(
                line,
                made,
                f"{name} reads {s!r}: {region(origin == 0)} was never written",
            )
        )
        return len(self.reads)

    # -- where they end ----------------------------------------------------------------
    def check_output(self, t: Tensor, what: str) -> None:
        """Report the elements of an output that are undefined, by what they go back to.

        `what`: which output it is, in words.
        """
        if t.storage.init == FULLY or not self.m.settings.checks:
            return
        self._report(t, what, _origins(t))

    def never_stored(self, t: Tensor, what: str, bad: np.ndarray) -> None:
        """Report what no instruction writes of an output, where values are not known."""
        self._report(t, what, np.where(bad, np.int16(0), np.int16(-1)))

    def _report(self, t: Tensor, what: str, origins: np.ndarray) -> None:
        for origin in np.unique(origins[origins >= 0]).tolist():
            bad = origins == origin
            elements = (
                f"{int(bad.sum()):,} of {bad.size:,} elements of an output ({what}, "
                f"{dtypes.name(t.dtype)}{list(t.shape)})"
            )
            if origin == 0:
                chosen = self._is_scattered(t)  # the caller may know which rows to look at
                self.m.find(
                    "NKI-O04",
                    "note" if chosen else "error",
                    f"{elements} were never stored: {region(bad)}; they are "
                    + ("NaN here and " if self.m.compute else "")
                    + "garbage on the chip. "
                    + (
                        "No run-time index chose their rows"
                        if chosen
                        else "nl.program_id is 0, as the kernel is launched without a grid. Try: "
                        f"{self._launch()}, or a loop over the blocks"
                        if self.m.launch.asked_id and not self.m.launch.grid
                        else "Does the loop cover a size that is not a multiple of the tile, and "
                        "does each iteration store its own place: out[i * size:(i + 1) * size]?"
                    ),
                    t.storage.where,
                    self._last_store(t),
                )
                continue
            read = self.reads[origin - 1]
            self.m.find(
                "NKI-U02",
                "error",
                f"{elements} depend on memory that nothing has written, "
                f"which is garbage on the chip: {region(bad)}. {read.text}"
                f"{self._made_at(read.made)}",
                read.line,
                read.made,
            )

    def _launch(self) -> str:
        """Return how the kernel is launched so that nl.program_id is more than 0."""
        if self.m.dialect.names_dst:
            return "kernel[2](...) if each of two cores does a half"
        return "kernel[n](...) for n instances"

    def _last_store(self, t: Tensor) -> int:
        """Return the line of the last instruction that writes a tensor, -1 if none does."""
        trace = self.m.trace
        accesses = trace.operands()
        at = np.flatnonzero(accesses.write & (accesses.storage == t.storage.id))
        return trace.rows[trace.starts[int(accesses.instr[at[-1]])] + 1] if len(at) else -1

    def _is_scattered(self, t: Tensor) -> bool:
        """Return whether run-time indices decide where a tensor is written."""
        trace = self.m.trace
        scatters = np.array([k.scatters for k, _, _ in trace.operand_specs()], bool)
        accesses = trace.operands()
        return bool(
            (
                scatters[accesses.operand_spec]
                & accesses.write
                & (accesses.storage == t.storage.id)
            ).any()
        )


def made_at(m: Machine, line: int) -> str:
    """Return where a tensor was made, as the end of a sentence; "" if that is unknown."""
    made = m.trace.where(line)
    return f"; created at {made}" if made else ""


def _ignored_dst(m: Machine) -> str:
    """Return what to write where a call before had dst=, which beta 1 ignores; "" if none had."""
    for finding in m.findings:
        if finding.id == "NKI-K11" and " 'dst'" in finding.text:
            where = f" (line {finding.where.line})" if finding.where else ""
            return f"{finding.text}{where}"
    return ""


def never_written(m: Machine, s: Tensor) -> NkiError:
    """Return the error for a read of a tensor that nothing has written."""
    name = source_text.variable(lambda t: getattr(t, "storage", None) is s.storage)
    summed = (
        bool(source_text.calls("nisa.tensor_tensor"))
        and source_text.base(source_text.argument("dst")) == name
    )
    name = name or "t"
    return fail(
        "NKI-U01",
        "a tensor is read before anything has been written to it",
        given=f"{s!r}{made_at(m, s.storage.where)}",
        limit="nl.ndarray leaves memory as it was: on the chip this reads "
        "whatever the last kernel left there",
        hint=_ignored_dst(m) or "nl.load or assign into it first, or create it with nl.zeros",
        nki_hint=(
            "if it is the output, it is the dst: nisa.dma_copy(dst=out, src=tile). Else "
            if s.memory == "hbm"
            else ""
        )
        + (
            f"write it first: nisa.memset({name}, 0.0) before the loop, where a sum begins, or "
            f"nisa.dma_copy(dst={name}, src=x[...])"
            if summed
            else f"write it first: nisa.dma_copy(dst={name}, src=x[...]), another "
            f"instruction, or nisa.memset({name}, 0.0); or are dst and src exchanged?"
        ),
    )


def _origins(t: Tensor) -> np.ndarray:
    return t.storage.origins(t.offset, t.shape, t.strides, t.dtype.itemsize)


def _scattered(
    ins: Instr, bad: list[tuple[Tensor, np.ndarray]], kept: np.ndarray, origin: int, added: int
) -> np.ndarray:
    """Return the origins in the destination of a scatter, which were `kept`.

    `added`: the origin of what is added to undefined elements, -1 if it overwrites them.
    """
    at, src = _chosen(ins)
    if any(s is at.rows or src is not None and s is src.rows for s, _ in bad):
        return np.full(kept.shape, origin, np.int16)  # it may hit, or read, anything
    flat, valid = at.flat()
    valid = valid if ins.mask is None else valid & ins.mask
    value = np.zeros(flat.shape, bool)
    for s, o in bad:
        value = value | (
            _taken(s, o, src, flat.shape)
            if src is not None and s is src.base
            else np.broadcast_to((o >= 0).reshape(ins.grid), flat.shape)
        )
    base, item = at.base, at.dtype.itemsize
    whole = np.full(base.storage.nbytes // item, -1, np.int16)
    view = np.ndarray(
        base.shape,
        np.int16,
        whole,
        base.offset // item * 2,
        tuple(s // item * 2 for s in base.strides),
    )
    view[...] = kept
    hit = flat[valid]
    whole[hit] = np.where(value[valid], origin, np.where(whole[hit] >= 0, added, -1))
    return view.copy()


def _chosen(ins: Instr) -> tuple[Indirect, Indirect | None]:
    """Return where a scatter writes, and what it gathers from if it does."""
    params = ins.params
    if isinstance(params, Indirect):
        return params, None
    if isinstance(params, dict):
        return params["dst"], params.get("src")
    return params[1], next(
        (operand for operand in params[0] if isinstance(operand, Indirect)), None
    )


def _taken(base: Tensor, origin: np.ndarray, src: Indirect, shape: tuple[int, ...]) -> np.ndarray:
    """Return which elements that a gather takes from `base` are undefined."""
    item = base.dtype.itemsize
    whole = np.zeros(base.storage.nbytes // item, bool)
    np.ndarray(
        base.shape, bool, whole, base.offset // item, tuple(s // item for s in base.strides)
    )[...] = origin >= 0
    flat, valid = src.flat()
    return np.broadcast_to((whole[np.where(valid, flat, 0)] & valid).reshape(shape), shape)


# -- trying out ------------------------------------------------------------------------------------


def _garbage(dtype: np.dtype) -> list[Any]:
    """Return values that tell any operator's results apart: of each sign, zero, huge and NaN."""
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return [info.max, 0, info.min, 1]
    if dtype.kind == "V":  # packed: the same, byte by byte
        return [np.frombuffer(bytes([b]) * dtype.itemsize, dtype)[0] for b in b"\x7f\0\x7e\xfe"]
    top = float(ml_dtypes.finfo(dtype).max)
    return [np.nan, 0.0, top, -top]


def _try(
    m: Machine,
    ins: Instr,
    outs: tuple[Tensor, ...],
    bad: list[tuple[Tensor, np.ndarray]],
    kept: list[np.ndarray | None],
) -> list[np.ndarray]:
    """Return which elements of the results depend on the undefined elements of the sources."""
    saved = [(s, s.np.copy()) for s, _ in bad]
    tries = []
    try:
        for number in range(4):
            for s, origin in bad:
                s.np[origin >= 0] = _garbage(s.np.dtype)[number]
                s.storage.shadow, s.storage.version = None, s.storage.version + 1
            tries.append(_run_aside(m, ins, outs, kept, number))
    except (NkiError, IndexError, ValueError):  # garbage as an index, for one
        return [np.ones(t.shape, bool) for t in outs]
    finally:
        m.overflow.raised.clear()
        for s, old in saved:
            s.np[...] = old
            s.storage.shadow, s.storage.version = None, s.storage.version + 1
    differs = [np.zeros(t.shape, bool) for t in outs]
    for again in tries[1:]:
        for d, a, b in zip(differs, tries[0], again):
            d |= _apart(a, b)
    if ins.mask is not None:
        differs[0] &= np.broadcast_to(ins.mask, differs[0].shape)
    return differs


def _apart(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return which elements differ by more than rounding (bool); NaN is like NaN."""
    if a.dtype.kind in "iu":
        return a != b
    if a.dtype.kind == "V":
        return (a[..., None].view(np.uint8) != b[..., None].view(np.uint8)).any(axis=-1)
    x, y = a.astype(np.float64), b.astype(np.float64)
    return ~np.isclose(x, y, rtol=1e-3, atol=0, equal_nan=True)


def _run_aside(
    m: Machine, ins: Instr, outs: tuple[Tensor, ...], kept: list[np.ndarray | None], number: int
) -> list[np.ndarray]:
    """Run an instruction into scratch memory and return its results; nothing else notices.

    An accumulation is run as a plain write: what is added does not depend on what is there.
    """
    aside, trial = copy.copy(m), copy.copy(masked_writes.inside(m, ins))
    aside.findings = Findings(m.trace)
    registers = m.core.registers
    sums = {k: v.copy() for k, v in registers.accumulators.items()}
    aside.core = replace(
        m.core, registers=Registers(copy.deepcopy(registers.rng), sums, registers.sums)
    )
    scratch = [masked_writes.scratch(m, t) for t in outs]
    for t, out, k in zip(scratch, outs, kept):
        t.np[...] = (
            0
            if k is None or ins.accumulate
            else np.where(k >= 0, _garbage(out.np.dtype)[number], out.np)
        )
    trial.accumulate, trial.also = False, tuple(scratch[1:])
    ins.row.run(aside, trial, scratch[0])
    return [t.np for t in scratch]
