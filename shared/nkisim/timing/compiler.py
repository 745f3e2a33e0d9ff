"""What AWS's compiler is free to do with a kernel, as options with names.

`nkisim.profile(..., compiler=("reorder", "engines", "rename"))`: the ones that are on. With
`compiler=()` everything runs strictly as written. The first three are on by default, since
published kernels run up to four times faster than without them; the others change the
instructions themselves, which the compiler does for some kernels and not for others.

What a kernel cannot do without is no option: tiles that do not fit are spilled (spill.py).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ..chip.hw import NeuronCore
from ..chip.memory import HBM, SBUF
from ..dialect import Dialect
from ..errors import fail
from ..machine.instruction import Access
from ..trace.footprint import Accesses, accesses
from ..trace.rewrite import Draft
from ..trace.trace import OpSpec, Trace
from .cost import too_small, transfer
from .dual_result_activation import split_dual_results
from .invariant import hoist_arithmetic, keep_broadcasts
from .moves import Moves, most_held
from .slices import sink_fills
from .transposes import on_tensor_engine
from .vectorize import vectorize

#: name -> meaning
OPTIONS = {
    "reorder": "each compute engine takes the first instruction that is ready among a window "
    "of its next ones, not strictly the next one",
    "engines": "copies without engine= go to the Vector or the Scalar Engine, whichever has less "
    "to do; else to the first engine that the instruction names",
    "rename": "a tile that is overwritten as a whole gets other memory, so that nothing waits for "
    "the readers of its old contents",
    "pe-transposes": "a transposing load of 4-byte data out of HBM is a plain load and transposes "
    "on the Tensor Engine",
    "hoist": "a load that was done before, of an input, into a tile that does not change, is not "
    "done again while SBUF has room for it",
    "keep-loads": "a load that was done before, of an input, into all of a tensor that does not "
    "change, is not done again while all that is kept takes a quarter of SBUF",
    "hoist-arithmetic": "arithmetic of a loop whose operands do not change in it is done once, "
    "while SBUF has room for it",
    "keep-broadcasts": "rows that are broadcast over partitions are read out of PSUM, if a bank "
    "holds them",
    "vectorize": "instructions of a loop over affine_range that differ only by an offset are one",
    "phases": "with vectorize: so are those of a loop around others, statement by statement",
    "nests": "where nests of loops follow each other in a loop, each engine ends one before it "
    "begins the next",
    "split-sums": "an activation with reduce_res= is two, and all that leads up to it is done "
    "for each of them",
    "merge-dma": "loads of one line that follow each other in an input, and stores that follow "
    "each other in an output, are done up to 16 at once",
    "spread-dma": "where hardware makes descriptors, triggers go to all units that do; else to one",
    "late-loads": "a load is triggered as long before its first use as the compiler takes it to "
    "need, not as soon as there is memory for it",
    "step-loads": "with late-loads: a load is not put off into the work on what its line loaded "
    "before, but triggered where that begins, if that is as long or begins one instruction earlier",
    "use-order": "loads are triggered in the order in which what they load is used",
    "software-elements": "where the hardware makes descriptors, GpSimd makes those of DMAs whose "
    "pieces are too small for it",
    "late-fills": "a fill of a tile in SBUF is done right before its engine adds to it what is in "
    "PSUM, not while that engine waits long before",
    "slice-spills": "where that saves a fifth of the bytes, what does not fit SBUF goes to HBM "
    "slice by slice as it is used, and room stays for what DMAs have in flight; else tiles go as a "
    "whole, and use all of SBUF",
}
#: what AWS's compiler does in any case, and what its middle end does besides
DEFAULT = ("reorder", "engines", "rename", "pe-transposes", "late-loads")
MIDDLE_END = (
    "hoist",
    "hoist-arithmetic",
    "keep-broadcasts",
    "vectorize",
    "spread-dma",
    "split-sums",
    "nests",
    "phases",
)
#: what it is not seen to do in measurements of a target, which were made with older compilers
NOT_YET = {"trn1": frozenset(("hoist", "split-sums", "nests", "phases"))}
#: options that change the trace
REWRITES = frozenset(
    (
        "pe-transposes",
        "split-sums",
        "hoist",
        "keep-loads",
        "hoist-arithmetic",
        "keep-broadcasts",
        "vectorize",
        "phases",
        "merge-dma",
        "software-elements",
    )
)


def options(
    wanted: Iterable[str] | str | None,
    middle_end: bool = False,
    target: str = "",
    dialect: Dialect | None = None,
) -> frozenset[str]:
    """Return the options as a set; raises NkiError for an unknown name.

    None means the default for a target and a dialect; `middle_end` tells whether
    the compiler's middle end works on the kernel (has_middle_end).
    """
    if wanted is None:
        more = (*(MIDDLE_END if middle_end else ()), *(dialect.compiler_options if dialect else ()))
        return frozenset(DEFAULT + more) - NOT_YET.get(target, frozenset())
    names = (
        tuple(n.strip() for n in wanted.split(",") if n.strip())
        if isinstance(wanted, str)
        else tuple(wanted)
    )
    for name in names:
        if name not in OPTIONS:
            raise fail(
                "NKI-K10",
                "there is no such compiler option",
                given=repr(name),
                limit=", ".join(OPTIONS) + "; () for strictly as written",
            )
    return frozenset(names)


def has_middle_end(dialect: Dialect, skipped: bool) -> bool:
    """Return whether the compiler's middle end works on a kernel of a dialect.

    Kernels of beta 1 go through it, if they don't have skip_middle_end_transformations; those of
    the package nki are taken as they are written (DMAs are those of the kernel, to the byte).
    """
    return dialect.middle_end and not skipped


def rewrite(trace: Trace, hw: NeuronCore, on: frozenset[str]) -> Trace:
    """Return the trace as the options that change instructions leave it."""
    if "pe-transposes" in on:
        trace = on_tensor_engine(trace, hw)
    if "hoist" in on:
        trace = hoist(trace, hw)
    elif "keep-loads" in on:
        trace = hoist(trace, hw, tensors=True)
    if "hoist-arithmetic" in on:
        trace = hoist_arithmetic(trace, hw)
    if "keep-broadcasts" in on:
        trace = keep_broadcasts(trace, hw)
    if "vectorize" in on:
        trace = vectorize(trace, hw, "phases" in on)
    if "split-sums" in on:
        trace = split_dual_results(trace, hw)
    if "late-fills" in on:
        trace = sink_fills(trace, hw, "rename" in on, sums=True)
    if "merge-dma" in on:
        trace = merge_dma(trace, hw)
    if "software-elements" in on:
        trace = software_elements(trace, hw)
    return trace


class _Dmas:
    """The DMAs of a trace that may be moved: plain loads of inputs, plain stores to outputs."""

    def __init__(self, trace: Trace, acc: Accesses):
        ev, vid, stores = acc.ev, acc.vid, acc.stores
        count = len(trace)
        self.line = trace.instructions().line
        plain = np.array([self._side(k) for k in trace.op_specs] or [0])[acc.specs]
        read = np.zeros(len(stores.hbm), bool)
        read[ev["storage"][~ev["write"]]] = True
        writes = np.bincount(vid, ev["write"], len(acc.versions.storage)).astype(int)
        last_write = np.full(len(writes), -1)
        np.maximum.at(last_write, vid[ev["write"]], ev["instr"][ev["write"]])
        # the tile of each of them, and the versions of instructions' other accesses
        self.version = np.full(count, -1)
        placed = acc.versions.bytes[vid] > 0
        plain_accesses = placed & (plain[ev["instr"]] != 0)
        self.version[ev["instr"][plain_accesses]] = vid[plain_accesses]
        whole = np.zeros(count, bool)
        whole[ev["instr"][plain_accesses]] = acc.whole[plain_accesses]
        other = np.zeros(count, np.int64)  # the storage in HBM: a load's source, ...
        accesses = trace.operands()
        hbm = accesses.number == np.where(plain == 1, 1, 0)[accesses.instr]
        other[accesses.instr[hbm]] = accesses.storage[hbm]  # ... a store's destination
        i = np.arange(count)
        tiled = self.version >= 0
        loads = tiled & (plain == 1) & whole & stores.readonly[np.where(plain == 1, other, 0)]
        loads &= writes[self.version] == 1  # what was loaded does not change
        outputs = stores.hbm & ~stores.readonly & ~read
        puts = tiled & (plain == 2) & outputs[np.where(plain == 2, other, 0)]
        puts &= last_write[self.version] < i  # it does not change after it was stored
        self.loads, self.stores = np.flatnonzero(loads).tolist(), np.flatnonzero(puts).tolist()

    @staticmethod
    def _side(spec: OpSpec) -> int:
        """Return 1 for a plain load of a tile, 2 for a plain store, 0 for anything else.

        What makes the descriptors is no part of what is moved.
        """
        variant = spec.variant
        if isinstance(variant, Access):
            variant = variant._replace(descriptors="") != Access()
        if spec.engine != "dma" or spec.row.transposes or len(spec.operands) != 2 or variant:
            return 0
        to, of = (p.memory for p in spec.operands)
        return {(SBUF, HBM): 1, (HBM, SBUF): 2}.get((to, of), 0)


def hoist(trace: Trace, hw: NeuronCore, tensors: bool = False) -> Trace:
    """Leave out loads that were done before; their readers use the tile of the first one.

    `tensors`: of loads that fill all of what the kernel allocated, not of parts of it, and no more
    than a share of SBUF.

    A tile stays until others need its room, the one that was used the longest ago first. So what
    a loop loads in every iteration is loaded once where all of it fits beside everything else, and
    every time where it does not: the least possible (Belady's rule) would be less.
    """
    acc = accesses(trace, hw)
    dmas, draft = _Dmas(trace, acc), Draft(trace)
    v = acc.versions
    if tensors:
        whole = v.hi - v.lo == acc.stores.row_bytes[v.storage]
        dmas.loads = [i for i in dmas.loads if whole[dmas.version[i]]]
    moves, lo, size = Moves(draft, acc), v.lo, v.bytes
    room = hw.sbuf_usable_bytes - most_held(acc, dmas.version[dmas.loads])
    if tensors:
        room = min(room, int(hw.sbuf_usable_bytes * hw.timing.compiler_kept_share))
    kept: dict[tuple, list[int]] = {}  # (spec, source) -> loads of one tile
    used, same = 0, []
    for i in dmas.loads:
        key = (int(acc.specs[i]), *draft.operand(i, 1))
        group = kept.pop(key, None)  # what is used goes to the end
        if group is None:
            group = []
            same.append(group)
            used += int(size[dmas.version[i]])
        kept[key] = group
        group.append(i)
        while used > room and len(kept) > 1:
            used -= int(size[dmas.version[kept.pop(next(iter(kept)))[0]]])
    if all(len(group) == 1 for group in same):
        return trace
    for first, *others in same:
        if others:
            home = int(dmas.version[first])
            storage = moves.storage(home)
            for i in (first, *others):
                version = int(dmas.version[i])
                moves.move(version, storage, int(lo[home] - lo[version]))
            for i in others:
                draft.drop(i)
    return draft.finish()


def merge_dma(trace: Trace, hw: NeuronCore) -> Trace:
    """Do loads, and stores, that follow each other in HBM at once."""
    acc = accesses(trace, hw)
    dmas, draft = _Dmas(trace, acc), Draft(trace)
    moves, most = Moves(draft, acc), hw.timing.compiler_merged_dmas
    for transfers, hbm in ((dmas.loads, 1), (dmas.stores, 0)):
        open_: dict[tuple, list[int]] = {}  # (line, spec, storage) -> the last run
        runs: list[list[int]] = []
        for i in transfers:
            spec = draft.spec_of(i)
            p = spec.operands[hbm]
            storage, offset = draft.operand(i, hbm)
            key = (int(dmas.line[i]), int(acc.specs[i]), storage)
            run = open_.get(key)
            wide = p.shape[-1] * p.dtype.itemsize
            if (
                run is not None
                and len(run) < most
                and p.strides[-1] == p.dtype.itemsize
                and offset == draft.operand(run[-1], hbm)[1] + wide
            ):
                run.append(i)
            else:
                open_[key] = [i]
                runs.append(open_[key])
        for run in runs:
            if len(run) > 1:
                for v in {int(dmas.version[i]) for i in run}:
                    moves.move(v, moves.storage(v))
                _merge(draft, run, at=run[0] if hbm == 1 else run[-1])
    return draft.finish()


def software_elements(trace: Trace, hw: NeuronCore) -> Trace:
    """Let GpSimd make the descriptors of DMAs whose pieces are too small for the hardware's."""
    specs = [
        replace(k, variant=(k.variant or Access())._replace(descriptors="gpsimd"))
        if k.engine == "dma"
        and not (k.indirect or k.row.transposes or k.row.spills)
        and (not k.variant or isinstance(k.variant, Access) and not k.variant.descriptors)
        and too_small(transfer(k, hw), hw)
        else k
        for k in trace.op_specs
    ]
    if specs == list(trace.op_specs):
        return trace
    out = copy.copy(trace)
    out.op_specs = specs
    return out


def _merge(draft: Draft, run: list[int], at: int) -> None:
    """Replace DMAs of one spec by one that has the operands of all."""
    spec = draft.spec_of(run[0])
    many = replace(spec, operands=tuple(p for p in spec.operands for _ in run), outputs=len(run))
    operands = [draft.operand(i, j) for j in (0, 1) for i in run]
    draft.put(at, at, many, operands)
    for i in run:
        draft.drop(i)
