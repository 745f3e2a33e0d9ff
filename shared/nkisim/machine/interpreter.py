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

from ..checks.finding import Findings
from ..chip import dtypes
from ..chip.hw import NeuronCore
from ..chip.memory import FULLY, HBM, NEVER, PARTLY, PSUM, SBUF, Storage, contiguous_strides
from ..dialect import Dialect
from ..errors import NkiError, fail, not_understood
from ..lazy import deferred_instructions
from ..lazy.float32_copies import refresh_shadow
from ..lazy.groups import NOT_YET
from ..lazy.products import Products
from ..trace.trace import Trace
from . import (
    arena,
    assignment,
    bodies,
    limits,
    masked_writes,
    operand_errors,
    suggestions,
    unwritten,
)
from .block import BlockTensor
from .context import current
from .instruction import PLAIN, Instr
from .loop import Loop
from .overflow import Overflow, tile_integers
from .state import Core, Launch, Loops, Memory, Settings
from .tensor import Tensor, same_bytes
from .tile_values import TileValues
from .transfers import Transfers
from .undefined import Undefined

_bare = object.__new__


class Interpreter:
    """One NeuronCore executing one kernel launch."""

    def __init__(
        self,
        hw: NeuronCore,
        language: Any,
        dialect: Dialect,
        kernel: Any,
        settings: Settings,
    ):
        self.hw = hw
        self.language = language  # what operators and assignments lower to
        self.dialect = dialect  # in which the kernel is written
        self.settings, self.compute = settings, settings.compute
        self.trace = Trace()
        self.watch: TileValues | None = None  # looks at what instructions write
        self.findings = Findings(self.trace)
        self.launch = Launch(kernel)
        self.memory = Memory(self.trace.storages)
        self.loops = Loops()
        self.core = Core()
        self.pending: tuple[Instr, Tensor] | None = None
        self.products = Products()
        self.transfers = Transfers(self) if settings.shuffle is not None else None
        self.undefined = Undefined(self)
        self.overflow = Overflow(self)

    # -- places ------------------------------------------------------------------
    def here(self) -> int:
        """Return the line id of the user's current line."""
        return self.trace.line(sys._getframe(1))

    def find(self, id: str, severity: str, text: str, where: int = -1, other: int = -1) -> None:
        """Add a finding, once per rule and pair of lines."""
        self.findings.find(id, severity, text, where, other)

    # -- storage -----------------------------------------------------------------
    def new_storage(
        self,
        memory: str,
        nparts: int,
        row_bytes: int,
        *,
        grain: int = 1,
        where: int = -1,
        arena: bool = False,
        readonly: bool = False,
        shared: bool = False,
    ) -> Storage:
        """Create the bytes of a tensor; `shared` by the instances of a grid."""
        body, node = self.core.body, self.core.node
        if arena or shared:
            body, node = None, 0
        if body is not None:
            recycled = bodies.recycled(self, body, memory, nparts, row_bytes)
            if recycled is not None:
                return recycled
        id = self.memory.storages.add(
            memory, nparts, row_bytes, where, node, arena, readonly, self.core.body is not None
        )
        made = Storage(id, memory, nparts, row_bytes, grain, where, node, arena, readonly)
        if body is not None:
            body.made[body.at - 1 :] = [made]
        return made

    def result_tile(
        self, shape: tuple[int, ...], dtype: np.dtype, memory: str, where: int
    ) -> tuple[Storage, tuple[int, ...]]:
        """Create the storage of an instruction's result; return it and the tile's strides."""
        item = dtype.itemsize
        cached = self.memory.tiles.get((shape, item, memory))
        if cached is None:
            limits.check_tile(self.hw, memory, shape, dtype)
            cached = self.memory.tiles[shape, item, memory] = contiguous_strides(shape, item)
        strides, nparts, row = cached, shape[0], cached[0]
        if self.memory.direct:
            self.find(
                "NKI-A06",
                "warning",
                "a temporary tile is allocated by the compiler in a "
                "kernel that allocates directly; the SDK wants every on-chip tensor to be "
                "placed by the kernel. Assign the result to an allocated tensor with "
                "t[...] = ...",
                where,
            )
        st = self.new_storage(memory, nparts, row, grain=item, where=where)
        return st, strides

    def place_tile(self, t: BlockTensor, idx: tuple[int, ...]) -> Tensor:
        """Return the physical tile of block `idx` of a directly allocated tensor."""
        return arena.place_tile(self, t, idx)

    # -- operands ----------------------------------------------------------------
    def tile(self, value: Any, name: str, psum: bool = True) -> Tensor:
        """Return the operand `value` if it is a tile on chip that a compute engine can read."""
        if value.__class__ is not Tensor:
            operand_errors.not_a_tile(value, name)
        if value.memory is HBM or (value.memory is PSUM and not psum):
            where = "HBM" if value.memory is HBM else "PSUM"
            raise fail(
                "NKI-M01",
                f"operand {name} lies in {where}",
                given=f"{name}: {value!r}",
                limit="compute engines read SBUF" + (" and PSUM" if psum else ""),
                hint=suggestions.in_hbm(name, value)
                if value.memory is HBM
                else suggestions.in_psum(name, value),
            )
        if value.nblock:
            raise fail(
                "NKI-P03",
                f"operand {name} still has block dimensions",
                given=f"shape {value.shape} with {value.nblock} block dim(s) in front",
                limit="a tile starts with its partition dim",
                hint="index the block dims first: t[i] or t[i, :, :]",
            )
        if len(value.shape) > operand_errors.MAX_DIMS:
            operand_errors.rank(self, value, name)
        if value.oob is not None:
            return value
        if value.m is not self:
            operand_errors.of_another_launch(value)
        st = value.storage
        if st is not None and st.node > 0 and not self.loops.open[self.trace.node_loop[st.node]]:
            operand_errors.out_of_scope(self, value, name)
        return value

    def check_bounds(self, t: Tensor) -> None:
        """Raise if the access pattern leaves its tensor."""
        masked_writes.check_bounds(t, None)

    # -- issue, bind, commit -------------------------------------------------------
    def issue(self, ins: Instr) -> Tensor | None:
        """Take a planned instruction: commit it, or leave its result pending."""
        dst = ins.dst
        if dst is not None:
            self.commit(ins, dst)
            return dst
        t = _bare(Tensor)  # as Tensor.__init__ does, sooner
        t.storage = None  # type: ignore[assignment]
        t.m, t.offset, t.shape, t.strides = self, 0, ins.shape, ()
        t.dtype, t.nblock, t.memory, t.pending = ins.dtype, 0, ins.memory, ins
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
            st, t.strides = self.result_tile(ins.shape, ins.dtype, ins.memory, ins.line)
            t.storage = st
            self.commit(ins, t)
        except NkiError as exc:  # we may be called from a later line than the instruction
            raise exc.at(self.trace.where(ins.line))  # noqa: B904 (the same exception)
        except OverflowError as exc:
            raise not_understood(
                ins.row.public or ins.row.name, exc, where=self.trace.where(ins.line)
            ) from None
        except IndexError as exc:  # of a run-time index: it carries the rule along
            if isinstance(rule := getattr(exc, "nki_error", None), NkiError):
                rule.at(self.trace.where(ins.line))
            raise

    def bind(self, ins: Instr, t: Tensor, dst: Tensor) -> None:
        """Let the pending instruction write `dst`; its result tensor becomes that region."""
        self.pending = None
        t.pending = None
        self.commit(ins, dst)
        t.storage, t.offset, t.shape, t.strides = dst.storage, dst.offset, dst.shape, dst.strides
        t.dtype, t.memory, t.owner = dst.dtype, dst.memory, dst.owner
        st = dst.storage
        if st.aliases is None:  # type: ignore[union-attr]
            st.aliases = [weakref.ref(t)]  # type: ignore[union-attr]
        else:
            st.aliases.append(weakref.ref(t))  # type: ignore[union-attr]

    def catch_up(self) -> None:
        """Compute what has been put off: values are asked for."""
        self.products.run()
        if self.transfers is not None:
            self.transfers.finish()

    def _unshare(self, st: Storage) -> None:
        """Before `st` changes, give results that were bound to it and still live a copy."""
        alive = [t for ref in st.aliases if (t := ref()) is not None]
        st.aliases = None
        if st.queued or self.transfers is not None:
            self.catch_up()
        self.memory.unseen.add(st.id)
        for t in alive:
            if t.storage is not st:
                continue
            old = Tensor(self, st, t.offset, t.shape, t.strides, t.dtype, 0, t.memory)
            new, t.strides = self.result_tile(t.shape, t.dtype, t.memory, st.where)
            t.storage, t.offset, t._np = new, 0, None
            if self.compute:
                new.fresh()
                t.np[...] = old.np
            new.init = FULLY

    def commit(self, ins: Instr, dst: Tensor) -> None:
        """Check, record and execute an instruction that writes `dst`."""
        if ins.box is not None:
            if any(lo >= hi for lo, hi in ins.box):
                self.loops.left_out += 1
                self.memory.masked_out.add(dst.owner)
                if dst.memory is not HBM and dst.storage.init == NEVER:
                    dst.storage.init = PARTLY  # its mask says so: no forgotten write
                return  # nothing is selected
            dst = dst.narrow(ins.box)
        outs = (dst, *ins.also) if ins.also else (dst,)
        if self.loops.nest is not None:
            self.loops.nest.issue(ins, dst)
        waits = self._before_reads(ins, outs)
        if ins.row.check is not None:
            ins.row.check(self, ins, dst)
        for t in outs:
            st = t.storage
            if st.readonly:
                operand_errors.immutable(t)
            if st.queued and not waits:
                self.products.before_write(t, ins.accumulate)
            if st.aliases is not None:  # what others still want of the bytes
                for ref in st.aliases:
                    if ref() is not None:
                        self._unshare(st)
                        break
                st.aliases = None
            st.lazy_zero = False
        if not self.compute:
            unwritten.refuse(self, ins.srcs)
        self.trace.record(ins, outs, ins.line, self.core.node)
        if waits:
            deferred_instructions.hold(self, ins, dst)
        elif self.compute:
            origins = self._check_reads(ins, dst)
            if (
                self.transfers is not None
                and ins.engine == "dma"
                and self.watch is None
                and not ins.skips
            ):  # what it writes is not known before it has run
                self.transfers.hold(ins, outs)
            elif self.launch.cores is not None:
                self.launch.cores.execute(ins, outs)
            else:
                self.execute(ins, dst)
            self._note_writes(ins, outs)
            if origins is not None:
                self.undefined.spoil(outs, origins)
            if self.watch is not None:
                self.watch.note(self, dst)
        else:  # what is held is still in use, and that is recorded
            unwritten.note(outs)
            ins.srcs, ins.dst = (), None
            if ins.also:
                ins.also = ()

    def effect(self, ins: Instr) -> None:
        """Check, record and execute an instruction that writes no tensor: it sets a state."""
        if self.loops.nest is not None:
            self.loops.nest.give_up()
        self._before_reads(ins, ())
        self.trace.record(ins, (), ins.line, self.core.node)
        if self.compute:
            for s in ins.srcs:
                if s.storage.arena:
                    arena.check_owner(self, s, ins.line)
            self.undefined.refuse(ins.srcs)
            ins.row.run(self, ins, None)
        else:
            unwritten.refuse(self, ins.srcs)
            ins.srcs = ()

    def _before_reads(self, ins: Instr, outs: tuple[Tensor, ...]) -> bool:
        """Refuse accesses that leave their tensors; compute what has been put off and is read.

        Returns whether the instruction waits for that instead.
        """
        waits = False
        if self.transfers is not None:
            self.transfers.before(ins, outs)
        for t in outs:
            if t.m is not self:
                operand_errors.of_another_launch(t)
            if t.oob is not None:
                masked_writes.check_bounds(t, ins.mask)
            if t.offset >= t.storage.row_bytes and t.memory is not HBM and ins.row.on_partitions:
                operand_errors.start_partition(t)
        for t in ins.srcs:
            if t.m is not self:
                operand_errors.of_another_launch(t)
            if t.oob is not None:
                masked_writes.check_bounds(t, ins.over)
            st = t.storage
            if t.offset >= st.row_bytes and t.memory is not HBM and ins.row.on_partitions:
                operand_errors.start_partition(t)
            if st.lazy_zero:
                self._zero_for_real(st)
            if st.queued & NOT_YET and not waits:
                waits = deferred_instructions.may_wait(self, ins, outs)
                if not waits:
                    self.products.run()
        return waits

    def _check_reads(self, ins: Instr, dst: Tensor) -> list[np.ndarray] | None:
        """Look for reads of what has another owner by now, and of what was never written.

        Returns which elements of the results are undefined (see Undefined), None if none is.
        """
        merges, init = ins.row.merges, dst.storage.init
        unsure = (
            (merges or ins.inplace)
            and init != FULLY
            or ins.accumulate
            and init == PARTLY
            or merges
            and any(t.storage.init != FULLY for t in ins.also)
        )
        for s in ins.srcs:
            st = s.storage
            if st.init != FULLY:
                unsure = True
            if st.arena and arena.check_owner(self, s, ins.line):
                unsure = True
        origins = (
            self.undefined.results(ins, (dst, *ins.also))
            if unsure and self.settings.checks
            else None
        )
        if ins.accumulate:
            self.undefined.before_sum(dst, ins)
        return origins

    def execute(self, ins: Instr, dst: Tensor) -> None:
        """Run the row's semantics on the bytes."""
        st = dst.storage
        covers = (
            st.init != FULLY
            and ins.mask is None
            and not ins.also
            and 0 not in dst.strides
            and not ins.scatters
            and not ins.skips
            and not ins.row.merges
        )
        whole = covers and st.init == NEVER and dst.size * dst.dtype.itemsize == st.nbytes
        if whole and not ins.accumulate:
            st.fresh()
        elif (
            covers
            and not ins.accumulate
            and self.transfers is None
            and st not in [s.storage for s in ins.srcs]
        ):
            dst.to_write()
        try:
            self.run(ins, dst)
        except BaseException:
            dst._np = None  # not written, maybe: it is not looked at as it is
            raise
        if whole:
            st.init = FULLY
            if ins.row.loop_vectorizable and _moves_bytes(ins, dst):
                st.loaded = ins.srcs[0], ins.srcs[0].storage.version, st.version + 1

    def run(self, ins: Instr, dst: Tensor) -> None:
        """Compute an instruction's result."""
        row, exact, outs = ins.row, None, (dst, *ins.also)
        if (
            row.exact is not None
            and self.settings.checks
            and any(dtypes.is_int(t.dtype) for t in outs)
            and ins.mask is None
            and tile_integers(ins)
        ):
            exact = row.exact(self, ins)
        if ins.mask is None or row.masks_itself:
            row.run(self, ins, dst)
        else:
            masked_writes.run(self, ins, dst)
        if exact is not None:
            self.overflow.integers(ins, outs, exact if isinstance(exact, tuple) else (exact,))
        if self.overflow.raised:
            self.overflow.check_results(ins, dst)

    def _note_writes(self, ins: Instr, outs: tuple[Tensor, ...]) -> None:
        """Note which bytes have been written, and by whom."""
        for k, t in enumerate(outs):
            st = t.storage
            st.version += 1
            if st.init != FULLY and not ins.scatters:  # that marks what it hits
                where = None if k else ins.mask if ins.wrote is None else ins.wrote
                st.mark(t.offset, t.shape, t.strides, t.dtype.itemsize, where)
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
        here = self.pending, self.core.node
        self.pending, self.core.node = None, st.node
        self.op("fill", t, 0.0)
        self.pending, self.core.node = here

    assign = assignment.assign  # dst[...] = value
    accumulate = assignment.accumulate  # dst += value

    # -- lowering ----------------------------------------------------------------------
    def op(self, name: str, *args: Any, **kw: Any) -> Any:
        """Call an operation of the nl language by name (operators and assignments)."""
        if current.get() is not self:
            operand_errors.of_another_launch(next(t for t in args if isinstance(t, Tensor)))
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
        self.core.node = len(tr.node_loop) - 1


def _moves_bytes(ins: Instr, dst: Tensor) -> bool:
    """Return whether a copy moves bytes to SBUF as they are, row by row."""
    return (
        ins.variant is PLAIN
        and len(ins.srcs) == 1
        and dst.memory is SBUF
        and same_bytes(ins.srcs[0], dst)
    )
