"""Calls: the signatures of this dialect, held strictly; rows of the table issued with a `dst`."""

from __future__ import annotations

import ast
import difflib
import inspect
import sys
from collections.abc import Callable
from enum import Enum
from functools import cache
from math import prod
from typing import Any

from ...chip import ops
from ...chip.memory import PSUM
from ...errors import NkiError, fail, not_understood
from ...indexing.indirect import Indirect
from ...isa.operands import regroup
from ...isa.pe import added_in_transpose_mode
from ...isa.table import Row
from ...lint import level
from ...loops.loopindex import Compared
from ...machine import keywords, operand_errors, suggestions
from ...machine.context import current, machine
from ...machine.instruction import Instr
from ...machine.interface import Machine
from ...machine.keywords import REQUIRED
from ...machine.tensor import Tensor
from .. import unknown_names
from . import call_cache, columns, compat, others, refusals
from .enums import OF_PARAMETER, dge_mode
from .grids import NkiBlockGrid, NkiTileGrid, instead
from .handles import NkiInstruction
from .tensor import Empty, NkiTensor, no_elements
from .versions import said_of

#: parameters that are functions of nl, and what the written operand is called
_FIRST = frozenset(("dst", "val_dst"))
_ENUMS = frozenset(OF_PARAMETER.values())
_GRIDS = frozenset((NkiTileGrid, NkiBlockGrid))
_MEANT = _ENUMS | _GRIDS | {NkiTensor}  # classes of arguments that rows take otherwise
#: public instructions by name, as `isa` makes them
INSTRUCTIONS: dict[str, Callable[..., Any]] = {}
_CODES = {"none": 0, "swdge": 1, "hwdge": 2, "unknown": 3}  # dge_mode, as the rows count


class _Default:
    """A default as people write it: nisa.engine.unknown, nl.maximum."""

    def __init__(self, value: Any):
        self.value = value

    def __repr__(self) -> str:
        x = self.value
        return f"{type(x).__name__}.{x.name}" if isinstance(x, Enum) else f"nl.{x}"


class Signature(keywords.Parameters):
    """The parameters of a public function, which a call is held to strictly."""

    def __init__(self, api: str, params: dict[str, Any]):
        super().__init__(params, len(params))
        self.api = api
        self.enums = {self.places[n]: e for n, e in OF_PARAMETER.items() if n in params}
        self.operators = tuple((i, n) for n, i in self.places.items() if n in ops.ARGUMENTS)

    @staticmethod
    def of_text(text: str) -> Signature:
        """Read "nisa.reciprocal(dst, data)"; every instruction takes a name as well."""
        api, _, rest = text.partition("(")
        args = ast.parse(f"def f({rest}: pass").body[0].args  # type: ignore[attr-defined]
        params: dict[str, Any] = {a.arg: REQUIRED for a in args.args}
        for a, d in zip(args.args[len(args.args) - len(args.defaults) :], args.defaults):
            params[a.arg] = ast.literal_eval(d)
        for name, enum in OF_PARAMETER.items():
            if params.get(name, REQUIRED) is not REQUIRED:
                params[name] = enum("none" if params[name] is None else params[name])
        return Signature(api, {**params, "name": None})

    def bind(self, args: tuple, kw: dict[str, Any]) -> list[Any]:
        """Return the arguments in the order of the parameters, or raise NKI-N01."""
        values = super().bind(args, kw)
        if values is None:
            raise self.does_not_fit(args, kw)
        given = len(args)
        for i, name in self.operators:
            if isinstance(values[i], str) and (i < given or name in kw):
                raise self.wrong(
                    f"{self.api}: {name} is a text",
                    f"the function itself, not called: {name}=nl.{values[i]}",
                )
        for i, enum in self.enums.items():
            if not isinstance(values[i], enum) and values[i] is not None:
                self.destination(values[0])
                values[i] = self.member(self.names[i], values[i], enum)
        return values

    def does_not_fit(self, args: tuple, kw: dict[str, Any]) -> NkiError:
        """Return the error for a call with too many arguments, too few, or unknown names."""
        given = len(args)
        if given > self.by_place:
            return self.wrong(
                f"{self.api} takes at most {len(self.names)} arguments"
                + (f", {self.by_place} of them by place" if self.by_place < len(self.names) else "")
                + f", got {given}"
            )
        for name in kw:
            if name not in self.places:
                return self.unknown(name)
            if self.places[name] < given:
                return self.wrong(
                    f"{self.api} got {name} twice: by its place and by its name",
                    keywords.tuple_meant(args),
                )
        self.destination(args[0] if args else kw.get(self.names[0]))
        left_out = next(
            n
            for n, default in zip(self.names[given:], self.defaults[given:])
            if default is REQUIRED and n not in kw
        )
        first = (
            f"the destination comes first: {self.api}(dst=..., "
            f"{''.join(self.names[1:2])}=..., ...)" * (self.names[0] == "dst" not in kw)
        )
        if self.places[left_out] and left_out in ops.ARGUMENTS:  # tiles before it are all given
            first = f"an operator is a function that is not called: {left_out}=nl.add"
        return self.wrong(
            f"{self.api} was not given {left_out}",
            first or keywords.left_out(self.api, left_out, args),
        )

    def destination(self, x: Any) -> None:
        """Raise NkiError if the first argument is no tensor: before 0.1, it was not dst."""
        if self.names[0] not in _FIRST or isinstance(x, (NkiTensor, Tensor, Indirect)) or x is None:
            return
        problem = (
            "an operator"
            if callable(x) and not isinstance(x, (str, Enum))
            else "a shape"
            if isinstance(x, (tuple, list))
            else type(x).__name__
        )
        raise self.wrong(
            f"{self.api}: its first argument is dst, and it was given {problem}",
            "since 0.1 a tile is made first, t = nl.ndarray(shape, dtype=..., "
            f"buffer=nl.sbuf), and comes first: {self.api}(dst=t, ...)",
        )

    def member(self, name: str, value: Any, enum: type[Enum]) -> Enum:
        """Return the member with a number or a name, as 0.1 and 0.2 took it, or raise NKI-N01."""
        member = next(
            (
                e
                for e in enum
                if type(value) is int and e.value == value or type(value) is str and e.name == value
            ),
            None,
        )
        if member is None:
            raise self.not_a_member(name, value, enum)
        m = current.get()
        verdict = level.in_run(
            "integer_enum", f"{name}={value!r}", f"{name}=nisa.{enum.__name__}.{member.name}"
        )
        if verdict is not None and m is not None:
            m.find(*verdict, m.trace.line(sys._getframe(1)))
        return member

    def wrong(self, what: str, hint: str = "") -> NkiError:
        if (m := current.get()) is not None and m.dialect.name != "nki":
            return operand_errors.mixed(f"{self.api} of nki is called in a kernel of neuronxcc.nki")
        return fail(
            "NKI-N01",
            what,
            limit=str(self),
            hint=hint or f"help({self.api}) says what each argument is",
        )

    def misuse(self, exc: Exception, args: tuple, kw: dict[str, Any]) -> NkiError:
        """Return the error for arguments that the instruction could not make sense of."""
        return not_understood(
            self.api,
            exc,
            limit=str(self),
            given={**dict(zip(self.names, args)), **kw},
            hint=f"help({self.api}) says what each argument is",
        )

    def unknown(self, name: str) -> NkiError:
        """Return the error for a keyword that the function does not have."""
        hint = said_of(self.api, name) or unknown_names.argument(self.api, name, self.names)
        near = difflib.get_close_matches(name, self.names, n=1)
        return self.wrong(
            f"{self.api} has no argument {name!r}",
            hint or "".join(f"Did you mean {n!r}?" for n in near) or others.who_has(self.api, name),
        )

    def not_a_member(self, name: str, value: Any, enum: type[Enum]) -> NkiError:
        near = difflib.get_close_matches(str(value), enum.__members__, n=1)
        return fail(
            "NKI-N01",
            f"{self.api}: {name} is no member of nisa.{enum.__name__}",
            given=f"{name}={value!r}"[:80],
            limit=", ".join(f"nisa.{enum.__name__}.{e.name}" for e in enum),
            hint=f"Did you mean {name}=nisa.{enum.__name__}.{near[0]}?"
            if near
            else "members have names; the numbers of nisa.dge_mode are others than in "
            "neuronxcc.nki",
        )

    def __str__(self) -> str:
        return self.api + str(self.signature)

    @property
    def signature(self) -> inspect.Signature:
        return inspect.Signature(
            [
                inspect.Parameter(
                    n,
                    inspect.Parameter.POSITIONAL_OR_KEYWORD
                    if i < self.by_place
                    else inspect.Parameter.KEYWORD_ONLY,
                    default=_Default(d)
                    if isinstance(d, Enum) or n.endswith("op") and isinstance(d, str)
                    else d,
                )
                for i, (n, d) in enumerate(zip(self.names, self.defaults))
            ]
        )


#: gets the machine and the arguments by name; changes them, and may name another row
Adapter = Callable[[Machine, dict[str, Any]], "Row | None"]


@cache
def _takes(row: Row) -> tuple[bool, bool]:
    """Return whether a row's plan has dst and dtype."""
    planned = inspect.signature(row.plan).parameters
    return "dst" in planned, "dtype" in planned


def instruction(own: Row, adapt: Adapter) -> Any:
    """Return the public function of a row: `dst` first, keywords strict."""
    signature = Signature.of_text(own.nki)
    names = signature.names[:-1]

    def function(*args: Any, **kw: Any) -> NkiInstruction:
        m = current.get() or machine(signature.api)
        if m.pending is not None:
            m.flush()
        try:
            key, tiles = call_cache.call_signature(signature, args, kw)
            accepted = m.core.accepted.get(key) if key is not None else None
            if accepted is not None:
                accepted.issue(m, tiles, m.trace.line(sys._getframe(1)), write)
                return NkiInstruction.issued(m, accepted.name)
            found_before = m.findings.total
            name, args, kw = compat.translated(m, own.name, args, kw)
            if name != own.name:
                return INSTRUCTIONS[name](*args, **kw)
            values = signature.bind(args, kw)
            given = dict(zip(names, map(argument, values)))
            if m.dialect.older:
                compat.meant(own.name, given)
            late = (
                columns.enter(m, own, given)
                if any(x.__class__ is columns.Columns for x in given.values())
                else None
            )
            written_to, before = given.get("dst"), (found_before, len(m.trace.starts) + 1)
            written = issue(m, adapt(m, given) or own, given)
            if late is not None:
                columns.leave(late, written_to)
            elif (
                written is not None
                and key is not None
                and (m.findings.total, len(m.trace.starts)) == before
            ):
                of = [n for n, x in (*zip(names, args), *kw.items()) if x.__class__ is NkiTensor]
                call_cache.remember(m, key, written, dict(zip(of, tiles)), given, values[-1])
        except (NkiError, AssertionError):
            raise
        except (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError) as exc:
            if hasattr(exc, "nki_error"):
                raise
            raise signature.misuse(exc, args, kw) from None
        return NkiInstruction.issued(m, values[-1])

    return _named(function, signature, own.doc, own)


def issue(m: Machine, row: Row, given: dict[str, Any]) -> call_cache.Written | None:
    """Plan an instruction and let it write `dst`, where its row does not say so itself.

    None: it writes nothing.
    """
    takes_dst, takes_dtype = _takes(row)
    dst: Any = given.get("dst")
    line = m.trace.line(sys._getframe(1))
    refusals.apply_verdicts(m, row.name, given, line)
    refusals.read([x for name, x in given.items() if name != "dst"], m.memory.psum_sums)
    if not row.writes:
        ins = row.issue(m, (), given)
        ins.line = line
        m.effect(ins)
        return None
    if not takes_dst:
        given.pop("dst", None)
        written(row.api, dst)
        if takes_dtype:
            given["dtype"] = dst.dtype
    elif dst is None and "dst" in given:
        written(row.api, dst)
    asked = given.pop("accumulate", None)
    if asked.__class__ is Compared:  # accumulate=k > 0
        asked = bool(asked) if m.loops.nest is None else m.loops.nest.answer(asked)
    ins, transposes = row.issue(m, (), given), given.get("is_transpose")
    if asked and transposes and m.hw.pe_transpose_bit_exact:
        raise added_in_transpose_mode(m, dst)
    ins.line, onto = line, row.accumulates and asked is not False and not transposes
    write(m, ins, dst, asked, onto)
    return call_cache.Written(row, dst, asked, onto)


def write(m: Machine, ins: Instr, dst: Tensor, asked: bool | None, onto: bool) -> None:
    """Let a planned instruction write its destination; see `alike.Written`."""
    if ins.dst is not None:
        if ins.dst.memory is PSUM:
            m.memory.psum_filled.add(ins.dst.storage.id)
        m.commit(ins, ins.dst)
        return
    row = ins.row
    dst = place(row, ins, dst)
    if row.accumulates:
        ins.accumulate, ins.opens = onto, asked is False
        refusals.added(m, dst, onto, m.memory.psum_sums, ins.line)
        _check_sum(m, ins, dst, asked)
    elif dst.memory is PSUM:
        m.memory.psum_filled.add(dst.storage.id)
    m.commit(ins, dst)


def _check_sum(m: Machine, ins: Instr, dst: Tensor, asked: bool | None) -> None:
    """Refuse a sum onto nothing; warn of one onto what no matmul has written."""
    st = dst.storage
    if not ins.accumulate:
        m.memory.psum_filled.discard(st.id)
        return
    if (
        asked
        and m.compute
        and not st.arena
        and not st.defined(dst.offset, dst.shape, dst.strides, 4)
        and (st.origins(dst.offset, dst.shape, dst.strides, 4) == 0).any()
    ):
        raise fail(
            "NKI-N08",
            "a matmul accumulates onto a result that nothing has written",
            given=f"accumulate=True, dst {dst!r}",
            limit="the first write of a group overwrites",
            hint="one tile for the whole sum, made before its loop; then leave accumulate out (the "
            "first write to a place overwrites, later ones add), or give accumulate=(k > 0)",
        )
    if st.id in m.memory.psum_filled and not m.hw.pe_adds_to_any:
        m.find(
            "NKI-N09",
            "warning" if asked else "note",
            "a matmul accumulates onto what another instruction has "
            f"written into PSUM. On {m.hw.name} that is undefined: leave out the memset, and "
            "accumulate= as well: the first write to a place overwrites",
            ins.line,
            st.where,
        )


def written(api: str, dst: Any) -> None:
    """Raise unless `dst` is a tile."""
    if dst.__class__ is not Tensor:
        raise fail(
            "NKI-M02",
            f"{api}: dst is not a tile",
            given=f"{type(dst).__name__}",
            limit="a tensor that nl.ndarray has made, or a view of it",
            hint=f"dst comes first: {api}(dst=t, ...), with t = {suggestions.TILE}",
        )


def place(row: Row, ins: Instr, dst: Tensor) -> Tensor:
    """Return `dst` as the instruction writes it, or raise."""
    if dst.memory not in row.writes or dst.memory is PSUM and ins.engine == "gpsimd":
        raise fail(
            "NKI-M01",
            f"{row.api} does not write {dst.memory.upper()}",
            given=f"dst {dst!r}",
            limit="dst lies in "
            + " or ".join(k.upper() for k in row.writes if k is not PSUM or ins.engine != "gpsimd"),
            hint=suggestions.wrong_memory(row.api, dst, ins.shape, row.writes, row.nki),
        )
    if dst.shape == ins.shape:
        return dst
    shape = ins.shape
    if prod(shape) != dst.size or shape[0] != dst.shape[0]:
        raise fail(
            "NKI-S01",
            f"{row.api}: dst has another shape than the result",
            given=f"dst {dst.shape}, result {shape}",
            limit="as many partitions and as many elements",
            hint=suggestions.result(row.api, dst, shape, row.nki),
        )
    return regroup(dst, shape)


def argument(x: Any) -> Any:
    """Return an argument as the rows take it: the machine's tensors, numbers for enums."""
    if x.__class__ is NkiTensor:
        if x._t.__class__ is Empty:
            raise no_elements(x._t)
        return x._t
    if x.__class__ in _ENUMS:
        return x.value
    if x.__class__ in _GRIDS:
        raise instead(x, "an instruction")
    return x


def public(plan: Callable, api: str = "", module: str = "nl") -> Any:
    """Make `plan(m, ...)` the function `nl.name`: tiles unwrapped, results wrapped."""
    name = api or plan.__name__
    params = list(inspect.signature(plan).parameters.values())[1:]
    signature = Signature(f"{module}.{name}", {p.name: p.default for p in params})
    signature.enums = {}

    def function(*args: Any, **kw: Any) -> Any:
        m = current.get() or machine(signature.api)
        if m.pending is not None:
            m.flush()
        values = [argument(x) if x.__class__ in _MEANT else x for x in signature.bind(args, kw)]
        refusals.apply_verdicts(m, signature.api, dict(zip(signature.names, values)))
        result = plan(m, *values)
        if result.__class__ is Tensor:
            return NkiTensor(result.settle())
        return result

    return _named(function, signature, plan.__doc__)


def strict(api: str, plain: Callable) -> Any:
    """Return a function that issues nothing (a range, a register) held to its signature as well."""
    params = inspect.signature(plain).parameters.values()
    signature = Signature(api, {p.name: p.default for p in params})
    signature.by_place = sum(p.kind is not p.KEYWORD_ONLY for p in params)
    signature.enums = {}

    def function(*args: Any, **kw: Any) -> Any:
        try:
            return plain(*args, **kw)
        except TypeError:
            m = current.get()
            _, _, named = compat.translated(m, plain.__name__, args, kw) if m else ("", args, kw)
            if named != kw:
                return plain(*args, **named)
            signature.bind(args, kw)  # raises if it is these arguments
            raise

    return _named(function, signature, plain.__doc__)


def _named(function: Any, signature: Signature, doc: str | None, row: Row | None = None) -> Any:
    name = signature.api.rpartition(".")[2]
    function.__code__ = function.__code__.replace(co_name=name)  # what errors call it
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    function.__signature__ = signature.signature
    if row is not None:
        function.row = row
    return function


def dge_code(given: dict[str, Any]) -> None:
    """Translate the number of a dge_mode into that of the rows."""
    given["dge_mode"] = _CODES[dge_mode(given["dge_mode"]).name]
