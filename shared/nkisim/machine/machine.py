"""The machine: issues instructions in program order and keeps what is known about memory.

An instruction is planned (operands checked, result shape known) by its row of the table, stays
`pending` until its result is assigned, accumulated or used, and is then committed: recorded in
the trace, executed in NumPy unless the run is timing-only, and its bytes marked as written.
"""
from __future__ import annotations

import sys
import weakref
from typing import Any

import numpy as np

from ..checks.finding import Finding
from ..chip import dtypes
from ..chip.hw import NeuronCore
from ..chip.memory import FULLY, HBM, NEVER, PARTLY, PSUM, Storage, contiguous_strides
from ..errors import NkiError, fail
from ..trace.trace import Trace
from . import arena, assignment, bodies, late, limits, masked, refuse, waiting
from .block import BlockTensor
from .instruction import Instr
from .loop import Loop, shuffle_seed
from .nest import Nest, enabled
from .nestonce import Once
from .products import NOT_YET, Products
from .replay import Replays
from .shadow import refresh_shadow
from .tensor import Tensor
from .transfers import Transfers
from .undefined import Undefined
from .values import TileValues

_bare = object.__new__


class Machine:
    """One NeuronCore executing one kernel launch."""

    def __init__(self, hw: NeuronCore, language: Any, *, compute: bool = True,
                 in_order: bool = False, replays: bool = False):
        self.hw = hw
        self.language = language        # what operators and assignments lower to
        self.kernel: Any = None         # that is launched
        self.ordered = 0                # nl.no_reorder blocks that this place is in
        self.dialect = "beta1"          # in which the kernel is written
        self.older = False              # calls of the package nki are those of 0.1 and 0.2
        self.traced = False             # kernels are traced with Python: nothing asks for a value
        self.scalars = False            # and there are scalars: loops count in them
        self.compute = compute
        self.replays = Replays(replays and not compute)
        self.skip_middle_end = in_order     # affine_range keeps the order of statements
        self.checks = True              # False: findings are of no interest
        self.shuffle = shuffle_seed() if compute else None     # of iterations of affine_range
        self.transfers = Transfers(self) if self.shuffle is not None else None
        self.trace = Trace()
        self.watch: TileValues | None = None        # looks at what instructions write
        self.pending: tuple[Instr, Tensor] | None = None
        self.products = Products()
        self.undefined = Undefined(self)
        self.storages = self.trace.storages
        self.findings: list[Finding] = []
        self._found: set[tuple] = set()
        self.told = 0                   # how often something was found, or found again
        self._tiles: dict[tuple, tuple[int, ...]] = {}      # checked tile shapes -> strides
        self.layouts: dict[tuple, tuple] = {}               # checked nl.ndarray calls -> layout
        self.views: dict[tuple, tuple] = {}                 # resolved subscripts -> view
        self.accepted: dict[tuple, Any] = {}              # forms of calls -> what was planned
        self.node = 0                   # loop iteration being executed
        self.top = 0                    # the node of the kernel's top level
        self.nest: Nest | Once | None = None    # the one whose body runs for all iterations
        self.nests = enabled()
        self.misfits: dict[Any, int] = {}       # how often one did not fit, by plan
        self.again: dict[Any, Any] = {}         # nests that have run, by plan (nestagain.py)
        self.loop_open: list[bool] = []
        self.tile_loops: set[tuple] = set()     # `for` statements that change no Python number
        self.body: bodies.Body | None = None        # of the innermost loop of the device
        self.depth = 0                  # nesting of kernels
        self.arenas: dict[tuple, Storage] = {}      # (kind, core) -> what the kernel places
        self.masked_out: set[Any] = set()   # logical tiles of which a mask left all writes out
        self.indexed: set[int] = set()      # storages of which indices at run time choose
        self.direct = False             # the kernel allocates directly
        self.placed = 0                 # tensors that it has placed
        self.sites: dict[tuple, Any] = {}           # allocations in loops: place in the program
        self.sites_seen: dict[tuple, int] = {}      # -> placement, and how often in an iteration
        self.program_id: tuple[int, ...] = ()
        self.grid: tuple[int, ...] = ()
        self.cores: Any = None          # the cores that run the kernel together, if several do
        self.constants: dict[tuple, Tensor] = {}    # tiles (P, 1) of numbers that are operands
        self.psum_filled: set[int] = set()          # storages that no matmul wrote last
        self.psum_sums: dict[int, dict[int, bool]] = {}     # storage: place of a sum: was it read?
        self.asked_id = False           # the kernel has called nl.program_id
        self.shared: list[Tensor] = []  # shared_hbm tensors, in order of creation
        self.shared_at = 0
        self.rng, self.seeded = np.random.default_rng(0), False     # by nl.random_seed
        self.accumulators: dict[str, np.ndarray] = {}   # ACT and DVE reduction registers

    # -- places ------------------------------------------------------------------
    def here(self) -> int:
        """Return the line id of the user's current line."""
        return self.trace.line(sys._getframe(1))

    def find(self, id: str, severity: str, text: str, where: int = -1, other: int = -1) -> None:
        """Add a finding, once per rule and pair of lines."""
        self.told += 1
        key = (id, where, other)
        if key not in self._found:
            self._found.add(key)
            self.findings.append(Finding(id, severity, text, self.trace.where(where),
                                         self.trace.where(other)))

    def found(self, id: str, where: int, other: int = -1) -> bool:
        """Tell whether a finding has been added."""
        return (id, where, other) in self._found

    # -- storage -----------------------------------------------------------------
    def new_storage(self, kind: str, nparts: int, row_bytes: int, *, grain: int = 1,
                    where: int = -1, arena: bool = False, readonly: bool = False,
                    shared: bool = False) -> Storage:
        """Create the bytes of a tensor; `shared` by the instances of a grid."""
        body, node = self.body, self.node
        if arena or shared:
            body, node = None, 0
        if body is not None:
            known = bodies.again(self, body, kind, nparts, row_bytes)
            if known is not None:
                return known
        id = self.storages.add(kind, nparts, row_bytes, where, node, arena, readonly,
                               self.body is not None)
        made = Storage(id, kind, nparts, row_bytes, grain, where, node, arena, readonly)
        if body is not None:
            body.made[body.at - 1:] = [made]
        return made

    def result_tile(self, shape: tuple[int, ...], dtype: np.dtype, kind: str,
                    where: int) -> tuple[Storage, tuple[int, ...]]:
        """Create the storage of an instruction's result; return it and the tile's strides."""
        item = dtype.itemsize
        got = self._tiles.get((shape, item, kind))
        if got is None:
            limits.check_tile(self.hw, kind, shape, dtype)
            got = self._tiles[shape, item, kind] = contiguous_strides(shape, item)
        strides, nparts, row = got, shape[0], got[0]
        if self.direct:
            self.find("NKI-A06", "warning", "a temporary tile is allocated by the compiler in a "
                      "kernel that allocates directly; the SDK wants every on-chip tensor to be "
                      "placed by the kernel. Assign the result to an allocated tensor with "
                      "t[...] = ...", where)
        st = self.new_storage(kind, nparts, row, grain=item, where=where)
        return st, strides

    def place_tile(self, t: BlockTensor, idx: tuple[int, ...]) -> Tensor:
        """Return the physical tile of block `idx` of a directly allocated tensor."""
        return arena.place_tile(self, t, idx)

    # -- operands ----------------------------------------------------------------
    def tile(self, x: Any, name: str, psum: bool = True) -> Tensor:
        """Return operand `x` if it is a tile on chip that a compute engine can read."""
        if x.__class__ is not Tensor:
            refuse.not_a_tile(x, name)
        if x.kind is HBM or (x.kind is PSUM and not psum):
            where = "HBM" if x.kind is HBM else "PSUM"
            hint = ("load it first: tile = nl.load(x[...]), or nisa.dma_copy(dst=tile, src=x)"
                    if x.kind is HBM else "copy it to SBUF first: nisa.tensor_copy(x)")
            raise fail("NKI-M01", f"operand {name} lies in {where}",
                       given=f"{name}: {x!r}",
                       limit="compute engines read SBUF" + (" and PSUM" if psum else ""),
                       hint=hint)
        if x.nblock:
            raise fail("NKI-P03", f"operand {name} still has block dimensions",
                       given=f"shape {x.shape} with {x.nblock} block dim(s) in front",
                       limit="a tile starts with its partition dim",
                       hint="index the block dims first: t[i] or t[i, :, :]")
        if len(x.shape) > refuse.MAX_DIMS:
            refuse.rank(self, x, name)
        if x.oob is not None:
            return x
        st = x.storage
        if st is not None and st.node > 0 and not self.loop_open[self.trace.node_loop[st.node]]:
            refuse.out_of_scope(self, x, name)
        return x

    def check_bounds(self, t: Tensor) -> None:
        """Raise if the access pattern leaves its tensor."""
        masked.check_bounds(t, None)

    # -- issue, bind, commit -------------------------------------------------------
    def issue(self, ins: Instr) -> Tensor | None:
        """Take a planned instruction: commit it, or leave its result pending."""
        dst = ins.dst
        if dst is not None:
            self.commit(ins, dst)
            return dst
        t = _bare(Tensor)                       # as Tensor.__init__ does, sooner
        t.storage = None                        # type: ignore[assignment]
        t.m, t.offset, t.shape, t.strides = self, 0, ins.shape, ()
        t.dtype, t.nblock, t.kind, t.pending = ins.dtype, 0, ins.kind, ins
        t.oob = t.owner = t._np = None
        self.pending = (ins, t)
        return t

    def flush(self) -> None:
        """Commit the pending instruction into a tile of its own."""
        if self.pending is None:
            return
        ins, t = self.pending
        self.pending = None
        t.pending = None
        try:
            st, t.strides = self.result_tile(ins.shape, ins.dtype, ins.kind, ins.line)
            t.storage = st
            self.commit(ins, t)
        except NkiError as exc:         # we may be called from a later line than the instruction
            raise exc.at(self.trace.where(ins.line))    # noqa: B904 (the same exception)
        except IndexError as exc:       # of a run-time index: it carries the rule along
            if isinstance(rule := getattr(exc, "nki_error", None), NkiError):
                rule.at(self.trace.where(ins.line))
            raise

    def bind(self, ins: Instr, t: Tensor, dst: Tensor) -> None:
        """Let the pending instruction write `dst`; its result tensor becomes that region."""
        self.pending = None
        t.pending = None
        self.commit(ins, dst)
        t.storage, t.offset, t.shape, t.strides = dst.storage, dst.offset, dst.shape, dst.strides
        t.dtype, t.kind, t.owner = dst.dtype, dst.kind, dst.owner
        st = dst.storage
        if st.aliases is None:                              # type: ignore[union-attr]
            st.aliases = [weakref.ref(t)]                   # type: ignore[union-attr]
        else:
            st.aliases.append(weakref.ref(t))               # type: ignore[union-attr]

    def catch_up(self) -> None:
        """Compute what has been put off: somebody looks at values."""
        self.products.run()
        if self.transfers is not None:
            self.transfers.finish()

    def _unshare(self, st: Storage) -> None:
        """Before `st` changes, give results that were bound to it and still live a copy."""
        alive = [t for ref in st.aliases if (t := ref()) is not None]
        st.aliases = None
        if st.queued or self.transfers is not None:
            self.catch_up()
        for t in alive:
            if t.storage is not st:
                continue
            old = Tensor(self, st, t.offset, t.shape, t.strides, t.dtype, 0, t.kind)
            new, t.strides = self.result_tile(t.shape, t.dtype, t.kind, st.where)
            t.storage, t.offset, t._np = new, 0, None
            if self.compute:
                new.fresh()
                t.np[...] = old.np
            new.init = FULLY

    def commit(self, ins: Instr, dst: Tensor) -> None:
        """Check, record and execute an instruction that writes `dst`."""
        if ins.box is not None:
            if any(lo >= hi for lo, hi in ins.box):
                self.replays.left_out += 1
                self.masked_out.add(dst.owner)
                if dst.kind is not HBM and dst.storage.init == NEVER:
                    dst.storage.init = PARTLY       # its mask says so: no forgotten write
                return                              # nothing is selected
            dst = dst.narrow(ins.box)
        outs = (dst, *ins.also) if ins.also else (dst,)
        if self.nest is not None:
            self.nest.issue(ins, dst)
        waits = self._before_reads(ins, outs)
        if ins.row.check is not None:
            ins.row.check(self, ins, dst)
        for t in outs:
            st = t.storage
            if st.readonly:
                refuse.immutable(t)
            if st.queued and not waits:
                self.products.before_write(t, ins.accumulate)
            if st.aliases is not None:              # what others still want of the bytes
                for ref in st.aliases:
                    if ref() is not None:
                        self._unshare(st)
                        break
                st.aliases = None
            st.lazy_zero = False
        self.trace.record(ins, outs, ins.line, self.node)
        if waits:
            waiting.hold(self, ins, dst)
        elif self.compute:
            origins = self._check_reads(ins, dst)
            if self.transfers is not None and ins.engine == "dma" and self.watch is None:
                self.transfers.hold(ins, outs)
            elif self.cores is not None:
                self.cores.execute(ins, outs)
            else:
                self.execute(ins, dst)
            self._note_writes(ins, outs)
            if origins is not None:
                self.undefined.spoil(outs, origins)
            if self.watch is not None:
                self.watch.note(self, dst)
        else:                           # what is held is still in use, and that is recorded
            ins.srcs, ins.dst = (), None
            if ins.also:
                ins.also = ()

    def effect(self, ins: Instr) -> None:
        """Check, record and execute an instruction that writes no tensor: it sets a state."""
        if self.nest is not None:
            self.nest.give_up()
        self._before_reads(ins, ())
        self.trace.record(ins, (), ins.line, self.node)
        if self.compute:
            for s in ins.srcs:
                if s.storage.arena:
                    arena.check_owner(self, s, ins.line)
            self.undefined.refuse(ins.srcs)
            ins.row.run(self, ins, None)
        else:
            ins.srcs = ()

    def _before_reads(self, ins: Instr, outs: tuple[Tensor, ...]) -> bool:
        """Refuse accesses that leave their tensors; compute what has been put off and is read.

        Returns whether the instruction waits for that instead.
        """
        waits = False
        if self.transfers is not None:
            self.transfers.before(ins, outs)
        for t in outs:
            if t.oob is not None:
                masked.check_bounds(t, ins.mask)
            if t.offset >= t.storage.row_bytes and t.kind is not HBM and ins.row.on_partitions:
                refuse.start_partition(t)
        for t in ins.srcs:
            if t.oob is not None:
                masked.check_bounds(t, ins.over)
            st = t.storage
            if t.offset >= st.row_bytes and t.kind is not HBM and ins.row.on_partitions:
                refuse.start_partition(t)
            if st.lazy_zero:
                self._zero_for_real(st)
            if st.queued & NOT_YET and not waits:
                waits = waiting.may_wait(self, ins, outs)
                if not waits:
                    self.products.run()
        return waits

    def _check_reads(self, ins: Instr, dst: Tensor) -> list[np.ndarray] | None:
        """Look for reads of what somebody else owns by now, and of what nobody has written.

        Returns which elements of the results are undefined (see Undefined), None if none is.
        """
        merges, init = ins.row.merges, dst.storage.init
        unsure = (merges or ins.inplace) and init != FULLY or ins.accumulate and init == PARTLY \
            or merges and any(t.storage.init != FULLY for t in ins.also)
        for s in ins.srcs:
            st = s.storage
            if st.init != FULLY:
                unsure = True
            if st.arena and arena.check_owner(self, s, ins.line):
                unsure = True
        origins = self.undefined.results(ins, (dst, *ins.also)) if unsure and self.checks else None
        if ins.accumulate:
            self.undefined.before_sum(dst, ins)
        return origins

    def execute(self, ins: Instr, dst: Tensor) -> None:
        """Run the row's semantics on the bytes."""
        st = dst.storage
        covers = (st.init != FULLY and ins.mask is None and not ins.also and 0 not in dst.strides
                  and not ins.scatters and not ins.row.merges)
        whole = covers and st.init == NEVER and dst.size * dst.dtype.itemsize == st.nbytes
        moved = covers and ins.row.repeats and late.moves(ins, dst)
        if not (moved and self.transfers is None and late.put_off(dst, ins.srcs[0])):
            if whole and not ins.accumulate:
                st.fresh()
            elif covers and not ins.accumulate and self.transfers is None and st not in [
                    s.storage for s in ins.srcs]:
                dst.to_write()
            try:
                self.run(ins, dst)
            except BaseException:
                dst._np = None          # not written, maybe: nobody looks at it as it is
                raise
        if whole:
            st.init = FULLY
            if moved:
                st.loaded = ins.srcs[0], ins.srcs[0].storage.version, st.version + 1

    def run(self, ins: Instr, dst: Tensor) -> None:
        """Compute an instruction's result."""
        if ins.mask is None or ins.row.masks_itself:
            ins.row.run(self, ins, dst)
        else:
            masked.run(self, ins, dst)

    def _note_writes(self, ins: Instr, outs: tuple[Tensor, ...]) -> None:
        """Note which bytes have been written, and by whom."""
        for k, t in enumerate(outs):
            st = t.storage
            st.version += 1
            if st.init != FULLY and not ins.scatters:       # that marks what it hits
                st.mark(t.offset, t.shape, t.strides, t.dtype.itemsize, None if k else ins.mask)
            if st.shadow is not None:
                refresh_shadow(t)
            if st.arena:
                arena.note_write(t, ins.line)

    def _zero_for_real(self, st: Storage) -> None:
        """Issue the memset of zeros in PSUM that something else than a matmul reads: where they
        were made, for no iteration of a loop around the read has made them."""
        st.lazy_zero = False
        n = st.row_bytes // 4
        t = Tensor(self, st, 0, (st.nparts, n), (st.row_bytes, 4), dtypes.FLOAT32, 0, PSUM)
        here = self.pending, self.node
        self.pending, self.node = None, st.node
        self.op("fill", t, 0.0)
        self.pending, self.node = here

    assign = assignment.assign              # dst[...] = value
    accumulate = assignment.accumulate      # dst += value

    # -- lowering ----------------------------------------------------------------------
    def op(self, name: str, *args: Any, **kw: Any) -> Any:
        """Call an operation of the nl language by name (operators and assignments)."""
        return self.language.operator(self, name, *args, **kw)

    def broadcast(self, t: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return `t` repeated to `shape`."""
        return self.language.broadcast_to(self, t, shape)

    # -- loops --------------------------------------------------------------------------
    def loop(self, kind: str, values: range) -> Loop:
        """Return the iterations of `nl.affine_range` and `nl.sequential_range`."""
        return Loop(self, kind, values)

    def enter(self, loop: int, parent: int, i: int) -> None:
        """Begin iteration `i` of a loop that runs in the iteration `parent` of another."""
        tr = self.trace
        tr.node_parent.append(parent)
        tr.node_loop.append(loop)
        tr.node_iter.append(i)
        self.node = len(tr.node_loop) - 1
