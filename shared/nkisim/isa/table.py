"""The one table: a row per instruction, and everything about the instruction is in its row.

A row is written with `@instruction(...)` over its plan, in this folder: what it is called, its
operands (role, what they take, memories, dtypes, how they fit together), what it writes, how
`mask=`, `dtype=` and `engine=` act, what it computes, costs and counts as arithmetic, and where
that is documented. `Row.issue` holds a call against all of this; the plan adds what is particular.
The facade, the coverage page, the cost model, the report and the row matrix test read the table.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ..chip import dtypes, ops
from ..chip.hw import CORES
from ..chip.memory import HBM, PSUM, SBUF
from ..errors import DIALECT, NkiError, fail, not_understood
from ..machine import assignment, keywords, limits
from ..machine.context import current, machine
from ..machine.tensor import Tensor
from .cheaper import Cheaper
from .formulas import no_flops
from .masks import EVERYTHING, PARTITIONS, apply
from .operands import READ, TILE, UPDATE, Operand, engine_name, result_dtype, same_elements

if TYPE_CHECKING:
    from ..machine.instruction import Instr
    from ..machine.interface import Machine
    from ..trace.trace import OpSpec
    from .formulas import Flops, Formula
    from .sums import Sums

# engines, by the names that profiles use
TENSOR, VECTOR, SCALAR, GPSIMD, SYNC, DMA = "tensor", "vector", "scalar", "gpsimd", "sync", "dma"
ANY = "any"  # engine=unknown where several can do it: the schedule balances the load


class Accepted(NamedTuple):
    """An instruction that was planned, and which of a call's tiles are its operands.

    `names`: of the operand that each tile is, "" if it is none, or lies in HBM; `on_chip`: (place,
    name) of the others. `take`: returns those that are read, of a call's tiles.
    """

    pattern: Instr
    names: tuple[str, ...]
    srcs: tuple[int, ...]
    dst: int  # -1: a result tile
    also: tuple[int, ...]
    on_chip: tuple[tuple[int, str], ...]
    take: Callable[[list[Tensor]], Any]

    @staticmethod
    def of(
        pattern: Instr,
        names: tuple[str, ...],
        srcs: tuple[int, ...],
        dst: int,
        also: tuple[int, ...],
    ) -> Accepted:
        """Return what is known by the places of tiles."""
        take = (
            tuple
            if srcs == tuple(range(len(names)))
            else itemgetter(*srcs)
            if len(srcs) > 1
            else itemgetter(slice(srcs[0], srcs[0] + 1) if srcs else slice(0))
        )
        return Accepted(
            pattern,
            names,
            srcs,
            dst,
            also,
            tuple([(i, name) for i, name in enumerate(names) if name]),
            take,
        )

    def with_tiles(self, m: Machine, tiles: list[Tensor]) -> Instr:
        """Return the instruction with other tiles of the same shapes and dtypes."""
        pattern, _, _, dst, also, on_chip, take = self  # faster than by name
        for i, name in on_chip:
            tile = tiles[i]
            st = tile.storage
            if (
                st is None
                or tile.nblock
                or tile.m is not m
                or st.node
                and not m.loops.open[m.trace.node_loop[st.node]]
            ):
                m.tile(tile, name)  # says what is wrong with it, if it is
        if m.compute:
            ins = pattern.pattern()
        else:  # nothing keeps it once it is recorded
            ins = pattern
            ins.accumulate = ins.opens = ins.inplace = False
        ins.srcs = tuple(take(tiles))
        if dst >= 0:
            ins.dst = tiles[dst]
        if also:
            ins.also = tuple([tiles[i] for i in also])
        return ins


@dataclass(frozen=True, eq=False)
class Row:
    """One instruction of the chip: what it is called, takes, computes and costs.

    A member says in its comment what it is; the defaults are those of an elementwise instruction.
    """

    # -- what it is
    name: str  # in records and profiles
    engines: tuple[str, ...]  # that can run it, the default first unless `default` says another
    #: (machine, instruction, dst): compute in NumPy, and write dst
    run: Callable[[Machine, Instr, Tensor], None]
    #: the arguments of a call -> an instruction; its signature is the public one
    plan: Callable[..., Instr]
    source: str  # the document that says all this
    public: str = ""  # "nisa.activation"; "" if only other functions lower to it
    #: name and parameters in `import nki`, where dst is one of them; "" if it is not there
    nki: str = ""
    operands: tuple[Operand, ...] = ()  # as documented
    #: the operators that an engine is documented to have, where it has not all
    engine_ops: dict[str, frozenset[str]] = field(default_factory=dict)
    default: str = ""  # the engine that runs it
    needs: str = ""  # the feature of the chip without which it does not exist

    # -- operands and result
    one_psum: tuple[str, str] | None = None  # two operands that may not both be in PSUM
    on_partitions: bool = True  # operands obey the rule of start partitions
    hidden: tuple[str, ...] = ()  # parameters for our own lowering
    #: the memories that it can write, the first by default; an operand dst is written where it
    #: lies; () for what sets a state of the machine
    writes: tuple[str, ...] = (SBUF, PSUM)
    promotes: tuple[str, ...] = ()  # operands that make the result's dtype, without `dtype=`
    accumulates: bool = False  # `psum += op(...)` is this one instruction

    # -- masks
    #: what a mask that is a box narrows: EVERYTHING, PARTITIONS, or NOTHING (elements are selected
    #: when they are written, since values depend on their position)
    mask_mode: str = EVERYTHING
    masks_itself: bool = False  # `run` honours the mask
    #: (instruction, box) -> narrowed sources, where they are no grid
    narrow: Callable[[Instr, list], tuple[Tensor, ...] | None] | None = None
    #: it can leave elements out of what it reduces; `over` of the instruction says which count
    skips: Callable[[Instr], bool] | None = None

    # -- what it computes
    check: Callable[[Machine, Instr, Tensor], None] | None = None  # look at dst once it is known
    #: the result on integers without rounding (integers.py), one for each of several; None if it
    #: does not round
    exact: Callable[[Machine, Instr], Any] | None = None
    sums: Sums | None = None  # in which order and dtype it adds
    loop_vectorizable: bool = False  # `run` treats all free dims alike: loops may be further ones
    #: it can be put off, since it sees and changes nothing but its operands
    deferrable: Callable[[Instr], bool] | None = None
    is_collective: bool = False  # it waits for the same call of the other core of kernel[2]

    # -- what it costs
    cost: Formula | None = None  # of the engine's cycles
    cheaper: tuple[Cheaper, ...] = ()  # what makes them fewer than those of float32 in SBUF
    flops: Callable[[OpSpec], Flops] = no_flops
    transposes: bool = False  # a DMA that moves element by element

    # -- what the compiler may do with it (timing)
    broadcasts_partitions: bool = False  # it repeats a row over all of them
    copies: bool = False  # a tile, on chip
    fills: bool = False  # a tile with a number
    loads: bool = False  # from HBM what can be loaded once more
    once_per_result: bool = False  # twice for two results
    wide_on_tensor_engine: bool = False  # data of 4 bytes go there, since DMAs transpose 2
    spills: bool = False  # the compiler has put it in

    function: Callable[..., Any] = field(init=False)

    def __repr__(self) -> str:
        return f"<{self.name}>"

    @property
    def api(self) -> str:
        """Return the name to use in messages: that of the kernel's dialect, if it has one."""
        newer = self.nki.partition("(")[0]
        if newer and newer != self.public and DIALECT.get().names_dst:
            return newer
        return self.public or newer or self.name

    @cached_property
    def fixed(self) -> frozenset[str]:
        """Return the names of the operands that are written: their shape is as it is."""
        return frozenset(o.name for o in self.operands if o.role is not READ)

    @cached_property
    def merges(self) -> bool:
        """Return whether the destination keeps bytes that the instruction does not write."""
        return any(o.role is UPDATE for o in self.operands)

    @property
    def doc(self) -> str:
        return self.plan.__doc__ or ""

    @property
    def documented(self) -> tuple[Operand, ...]:
        """Return the operands that kernels can give."""
        return tuple(o for o in self.operands if o.name not in self.hidden)

    @property
    def masking(self) -> str:
        """Return in a word what a mask does: cut operands, partitions only, or select results."""
        if "mask" not in self.signature.parameters:
            return "none"
        return {EVERYTHING: "cuts", PARTITIONS: "cuts partitions"}.get(self.mask_mode, "selects")

    @cached_property
    def signature(self) -> inspect.Signature:
        """Return the signature of the public function."""
        params = list(inspect.signature(self.plan).parameters.values())[1:]
        return inspect.Signature([p for p in params if p.name not in self.hidden])

    # -- a call ------------------------------------------------------------------------------
    @cached_property
    def _parameters(self) -> keywords.Parameters:
        """Return the parameters of the plan, hidden ones as well."""
        params = list(inspect.signature(self.plan).parameters.values())[1:]
        by_place = sum(p.kind is not p.KEYWORD_ONLY for p in params)
        return keywords.Parameters({p.name: p.default for p in params}, by_place)

    @cached_property
    def _slots(self) -> tuple[tuple[int, Operand, int], ...]:
        """Return (place among the arguments, operand, place of the one that it is like or -1)."""
        places = self._parameters.places
        return tuple((places[o.name], o, places[o.like] if o.like else -1) for o in self.operands)

    def bind(self, m: Machine, args: tuple, kw: dict[str, Any]) -> list[Any]:
        """Return the arguments of a call in the order of the parameters."""
        values = self._parameters.bind(args, kw)
        if values is None:
            keywords_of_row = {k: v for k, v in kw.items() if k in self._parameters.places}
            for name in kw:
                if name not in keywords_of_row:
                    self.unknown(m, name)
            values = self._parameters.bind(args, keywords_of_row)
            if values is None:
                self.signature.bind(*args, **keywords_of_row)  # raises Python's own sentence
                raise TypeError(f"{self.api} got a parameter that kernels do not have")
        return values

    def unknown(self, m: Machine, name: str) -> None:
        """Say that a keyword is not known: beta 1 takes and ignores it."""
        keywords.unknown(m, self.api, (name,), self.signature.parameters)

    def issue(self, m: Machine, args: tuple, kw: dict[str, Any]) -> Instr:
        """Hold a call against the row and return the planned instruction.

        A call that looks like one that was accepted (operands alike, same arguments) is
        not planned again: loops make the same instruction many times.
        """
        key, tiles, planned = self.known(m, args, kw)
        return self.planned(m, args, kw, key) if planned is None else planned.with_tiles(m, tiles)

    def planned(self, m: Machine, args: tuple, kw: dict[str, Any], key: tuple | None) -> Instr:
        """Hold a call that looks like no other against the row, and return the instruction; `key`:
        what it looks like."""
        reported, values = m.findings.total, self.bind(m, args, kw)
        at = self._parameters.places.get("mask", -1)
        mask = values[at] if at >= 0 else None
        if self.needs and not getattr(m.hw, self.needs):
            raise fail(
                "NKI-E03",
                f"{self.api} does not exist on {m.hw.name}",
                limit="it is on " + ", ".join(c.name for c in CORES if getattr(c, self.needs)),
                hint="simulate for a newer target, or use another instruction",
            )
        given = values.copy()
        for i, operand, like in self._slots:
            anchor: Any = None if like < 0 else values[like]
            value = values[i] = operand.resolve(m, values[i], self.api, anchor, mask is False)
            if (
                like >= 0
                and operand.takes is TILE
                and not operand.lanes
                and value.__class__ is Tensor
                and value.shape != anchor.shape
            ):
                values[like], values[i] = same_elements(
                    anchor, value, (operand.like, operand.name), self.api, self.fixed
                )
        tiles = [(o.name, values[i]) for i, o, _ in self._slots if hasattr(values[i], "memory")]
        engine = DMA not in self.engines
        for name, t in tiles if engine else ():
            limits.check_count(m.hw, f"{self.api}: operand {name}", t.memory, t.shape)
        by_place, names = self._parameters.by_place, self._parameters.names
        ins = self.plan(m, *values[:by_place], **dict(zip(names[by_place:], values[by_place:])))
        reusable = (
            ins.srcs is None or reported == m.findings.total
        )  # what a plan has said depends on the line
        self._complete(m, ins, values, self._parameters.places)
        if engine:
            limits.check_count(m.hw, f"{self.api}: the result", ins.memory, ins.shape)
        else:
            limits.check_transfer(m.hw, self.api, ins, [t.shape for _, t in tiles])
        if mask is not None:
            apply(self, ins, mask)
        elif key is not None and reusable and all(values[i] is given[i] for i, _, _ in self._slots):
            self._remember(m, key, ins, args, kw)
        return ins

    def known(
        self, m: Machine, args: tuple, kw: dict[str, Any]
    ) -> tuple[tuple | None, list[Tensor], Accepted | None]:
        """Return what a call looks like, all that its plan depends on, the tiles in it, and what
        was planned for one that looked like it.

        It goes by what is written, positional or named: a call that is written in another way is
        planned once more. None: not to be remembered.
        """
        key: list[Any] = [self, m.memory.direct, *kw] if kw else [self, m.memory.direct]
        tiles: list[Tensor] = []
        for argument in (*args, *kw.values()) if kw else args:
            cls = type(argument)
            if cls is Tensor:
                if argument.oob is not None:
                    return None, tiles, None
                tiles.append(argument)
                key += (argument.shape, argument.dtype, argument.memory)
                if not self.on_partitions:  # a DMA, which sees some operands reshaped
                    key.append(argument.strides)
            elif cls is float and not argument:
                key.append(str(argument))  # 0.0 and -0.0 are equal
            else:
                key += (cls, argument)  # so are 1 and 1.0, and of other dtypes
        look = tuple(key)
        try:
            return look, tiles, m.core.accepted.get(look)
        except TypeError:  # an argument that cannot be remembered
            return None, tiles, None

    def _remember(
        self, m: Machine, key: tuple, ins: Instr, args: tuple, kw: dict[str, Any]
    ) -> None:
        """Remember an instruction that was planned, for calls that look like this one."""
        places = self._parameters.places
        if not places.keys() >= kw.keys():  # what is not known is said at each line
            return
        given = (*range(len(args)), *(places[k] for k in kw))
        tiles = {
            i: argument
            for i, argument in zip(given, (*args, *kw.values()))
            if argument.__class__ is Tensor
        }
        slots, at = {i: operand for i, operand, _ in self._slots}, list(tiles)
        if not slots.keys() >= tiles.keys():
            return
        dst = next((i for i in at if slots[i].role is not READ and slots[i].name == "dst"), -1)
        srcs = [i for i in slots if slots[i].role is READ and i in tiles]
        if (
            ins.inplace
            or ins.dst is not tiles.get(dst)
            or len(ins.srcs) != len(srcs)
            or any(tiles[i] is not argument for i, argument in zip(srcs, ins.srcs))
        ):
            return  # the plan has made other operands of them
        ins.like = pattern = ins.pattern()
        pattern.like = pattern
        m.core.accepted[key] = Accepted.of(
            pattern,
            tuple("" if tiles[i].memory is HBM else slots[i].name for i in at),
            tuple(map(at.index, srcs)),
            at.index(dst) if dst >= 0 else -1,
            tuple(at.index(i) for i in slots if slots[i].role is not READ and i != dst and i in at),
        )

    def _complete(self, m: Machine, ins: Instr, values: list[Any], places: dict[str, int]) -> None:
        """Fill in what the plan has left to the declaration."""
        ins.row = self
        srcs: list[Tensor] = []
        also: list[Tensor] = []
        for i, operand, _ in self._slots:
            value = values[i]
            if operand.role is not READ:
                if operand.name == "dst":
                    ins.dst = value if ins.dst is None else ins.dst
                elif value is not None:
                    also.append(value)
            elif operand.numbers or operand.optional:
                is_tensor = value.__class__ is Tensor
                ins.scalars.append((None, len(srcs)) if is_tensor else (value, -1))
                if is_tensor:
                    srcs.append(value)
            else:
                srcs.append(value)
        if ins.srcs is None:
            ins.srcs = tuple(srcs)
        ins.also = tuple(also)
        if self.one_psum is not None:
            self._one_psum(*(values[places[n]] for n in self.one_psum))
        dst = ins.dst
        if ins.shape is None:
            ins.shape = dst.shape if dst is not None else ins.srcs[0].shape
        if dst is not None:
            ins.memory = dst.memory
        elif not self.writes:
            return self._engine(m, ins, values, places)
        elif ins.memory not in self.writes:
            ins.memory = self.writes[0]
        if ins.dtype is None:
            asked = values[places["dtype"]] if "dtype" in places else None
            if dst is None:
                ins.dtype = result_dtype(asked, *(values[places[n]] for n in self.promotes))
            else:
                ins.dtype = dst.dtype
                if asked is not None and result_dtype(asked) != dst.dtype:
                    m.find(
                        "NKI-K12",
                        "warning",
                        f"{self.api} is asked for dtype "
                        f"{dtypes.name(dtypes.normalize(asked))} and writes dst, which has "
                        f"{dtypes.name(dst.dtype)}: the dtype of dst holds",
                        m.here(),
                    )
        self._engine(m, ins, values, places)

    def _engine(self, m: Machine, ins: Instr, values: list[Any], places: dict[str, int]) -> None:
        """Fill in the engine that runs an instruction."""
        if "engine" in places:
            asked = engine_name(
                values[places["engine"]],
                self.engines,
                self.api,
                any(s.memory is PSUM for s in ins.srcs),
            )
            if asked in self.engine_ops and not self._can_do(m, asked, ins.variant):
                asked = ""  # elsewhere, so the time of that is not gained
            ins.engine = asked or ins.engine
        ins.engine = ins.engine or self.default or self.engines[0]

    def _can_do(self, m: Machine, engine: str, variant: Any) -> bool:
        """Return whether an engine that is asked for has the operators; note what it lacks."""
        problem, where = (
            f"is asked of the {engine} engine",
            f"It takes the time of the {self.default or self.engines[0]} engine",
        )
        if engine == SCALAR and not m.hw.act_arithmetic:
            m.find(
                "NKI-E13",
                "note",
                f"{self.api} {problem}, which is documented to do it on "
                f"NeuronCore-v3 and newer only, not on {m.hw.name}",
                m.here(),
            )
        supported = self.engine_ops[engine]
        lacks = [op for op in variant if op and op not in supported]
        for op in lacks:
            m.find(
                "NKI-E13",
                "note",
                f"{self.api} with nl.{op} {problem}, which is documented for "
                f"{', '.join(sorted(supported))} only. {where}",
                m.here(),
            )
        return not lacks

    def _one_psum(self, a: Any, b: Any) -> None:
        """Raise if both operands lie in PSUM: it has one read port for an instruction."""
        assert self.one_psum is not None
        if getattr(a, "memory", None) is PSUM and getattr(b, "memory", None) is PSUM:
            raise fail(
                "NKI-M07",
                f"{self.api} reads both operands from PSUM",
                given=f"{self.one_psum[0]} {a!r}, {self.one_psum[1]} {b!r}",
                limit="at most one of two tile operands in PSUM",
                hint="copy one to SBUF first: nl.copy(x)",
                nki_hint="copy one to SBUF first: nisa.tensor_copy(dst, x)",
            )

    def misuse(self, exc: Exception, args: tuple, kw: dict[str, Any]) -> NkiError:
        """Return the error for a call that the plan could not make sense of."""
        wrong = keywords.describe_unknown(kw, self.signature.parameters)
        return not_understood(
            self.api,
            exc,
            f"; it has no {', '.join(wrong)}" if wrong else "",
            limit=f"{self.api}{keywords.bare(self.signature)}",
            given={**dict(zip(self.signature.parameters, args)), **kw},
            hint=keywords.cure(self.api, str(exc), self.signature, args, kw),
        )


ROWS: dict[str, Row] = {}


def always(ins: Instr) -> bool:
    """Return True: an instruction can wait (Row.waits), whatever it is given."""
    return True


def instruction(
    name: str, *, engines: tuple[str, ...], run: Callable, source: str, **traits: Any
) -> Callable[[Callable], Any]:
    """Make a plan into a row of the table; return the function that issues the instruction.

    The plan `plan(m, *args)` has the public signature after the machine `m`; operands come to it
    resolved. It returns an `Instr` with what the row does not say.
    """

    def wrap(plan: Callable) -> Any:
        row = ROWS[name] = Row(name, engines, run, plan, source, **traits)

        def function(*args: Any, **kw: Any) -> Any:
            m = current.get()
            if m is None:
                m = machine(row.api)
            if m.pending is not None:
                m.flush()
            try:
                key, tiles, planned = row.known(m, args, kw)
                ins = (
                    row.planned(m, args, kw, key)
                    if planned is None
                    else planned.with_tiles(m, tiles)
                )
                ins.line = m.trace.line(sys._getframe(1))
                return m.issue(ins)
            except NkiError:
                raise
            except (
                TypeError,
                ValueError,
                KeyError,
                AttributeError,
                IndexError,
                OverflowError,
            ) as exc:
                if hasattr(exc, "nki_error"):
                    raise
                raise row.misuse(exc, args, kw) from None

        function.__name__ = function.__qualname__ = row.public.rpartition(".")[2] or name
        function.__doc__ = row.doc
        function.__signature__ = row.signature  # type: ignore[attr-defined]
        function.row = row  # type: ignore[attr-defined]
        object.__setattr__(row, "function", function)
        return function

    return wrap


def public(row: Row) -> Callable:
    """Return the function that kernels see: without the parameters of our own lowering."""
    casts = "dtype" in row.signature.parameters
    operators = {
        name: place for place, name in enumerate(row.signature.parameters) if name in ops.ARGUMENTS
    }
    if not row.hidden and not casts and not operators:
        return row.function

    def function(*args: Any, **kw: Any) -> Any:
        for name, place in operators.items():
            op = args[place] if place < len(args) else kw.get(name)
            if op.__class__ is str:
                ops.refuse_text(row.api, name, op)
        for name in row.hidden:
            if name in kw:
                row.unknown(machine(row.api), name)
                del kw[name]
        result = row.function(*args, **kw)
        if casts and kw.get("dtype") is not None:
            assignment.has_its_dtype(result)
        return result

    function.__dict__.update(row.function.__dict__)
    function.__name__ = function.__qualname__ = row.function.__name__
    function.__doc__ = row.doc
    return function
