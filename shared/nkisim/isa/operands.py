"""What rows declare about their operands, and how a call's arguments are held against it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..chip import dtypes, ops
from ..chip.memory import HBM, PSUM, SBUF, merge_dims
from ..errors import fail
from ..indexing.geometry import moved
from ..indexing.indirect import Indirect
from ..machine import operand_errors, suggestions
from ..machine.interface import Machine
from ..machine.tensor import Tensor

READ, WRITE, UPDATE = "read", "write", "update"  # update: keeps what it does not write
# a tile; one of (P, 1); what DMA moves; a tile on chip subscripted by an element of another one
TILE, VECTOR, ACCESS, OFFSET = "tile", "vector", "access", "offset"
NKI_ONLY = "today"

#: What to do with a row where a number for each partition is taken.
_A_ROW = (
    "; a row comes into all of its partitions by nisa.dma_copy(dst=t, src=row.broadcast(0, 128)), "
    "with row in HBM"
)
#: Classes of dtypes that rows name: what is in them, and how to say so.
DTYPES: dict[str, tuple[Callable[[np.dtype], bool], str]] = {
    "any": (lambda dt: True, "any dtype"),
    "float": (
        dtypes.is_float,
        "a float dtype: float32, tfloat32, bfloat16, float16, float8_e4m3, float8_e5m2",
    ),
    "float16 or wider": (
        lambda dt: dtypes.is_float(dt) and dt.itemsize > 1,
        "float32, bfloat16 or float16",
    ),
    "all but tfloat32": (
        lambda dt: dt != dtypes.TFLOAT32 and dt not in dtypes.PACKED,
        "any dtype of one number but tfloat32",
    ),
    "float32": (lambda dt: dt == dtypes.FLOAT32, "float32"),
    "integer": (dtypes.is_int, "an integer dtype"),
    "packed": (
        lambda dt: dt in dtypes.PACKED,
        "float8_e4m3fn_x4, float8_e5m2_x4 or float4_e2m1fn_x4",
    ),
    "packed fp8": (
        lambda dt: dt in dtypes.PACKED and dt.itemsize == 4,
        "float8_e4m3fn_x4 or float8_e5m2_x4",
    ),
    "16-bit float": (lambda dt: dt in (dtypes.BFLOAT16, dtypes.FLOAT16), "bfloat16 or float16"),
    "bfloat16": (lambda dt: dt == dtypes.BFLOAT16, "bfloat16"),
    "int32": (lambda dt: dt == dtypes.INT32, "int32"),
    "uint16": (lambda dt: dt == dtypes.UINT16, "uint16"),
    "uint32": (lambda dt: dt == dtypes.UINT32, "uint32"),
    "uint16 or uint32": (lambda dt: dt.kind == "u" and dt.itemsize in (2, 4), "uint16 or uint32"),
    "32-bit": (
        lambda dt: dt.itemsize == 4 and dt not in dtypes.PACKED,
        "float32, tfloat32, int32 or uint32",
    ),
    "unsigned": (lambda dt: dt.kind == "u", "uint8, uint16 or uint32"),
    "small integer": (
        lambda dt: dtypes.is_int(dt) and dt.itemsize <= 2,
        "int8, uint8, int16 or uint16",
    ),
    "float or narrow": (
        lambda dt: dtypes.is_float(dt) or dt.itemsize <= 2,
        "a float dtype, or an integer of 8 or 16 bits",
    ),
    "float32 or int32": (lambda dt: dt in (dtypes.FLOAT32, dtypes.INT32), "float32 or int32"),
}


@dataclass(frozen=True)
class Operand:
    """One operand, as the documentation describes it.

    `name` of the parameter; `role`: READ, WRITE or UPDATE; `takes`: TILE, VECTOR (P, 1), ACCESS
    (a tensor or a run-time indexed access of one, for DMA) or OFFSET (on chip, with a run-time
    offset); `memories` it may lie in; `dtypes`: the class of DTYPES that it has to be
    in, `documented`: the one that AWS names; `numbers`: a number will do as well, NKI_ONLY: in
    the package nki, with a warning;
    `nki_dtypes`: the class in the package nki, where it is another one; `optional`: None will do;
    `like`: the operand that it has as many partitions as (a TILE as many elements, too);
    `elements`: least and most per partition, a number or a field of hw; `rule`, `dtype_rule`: what
    another object and another dtype break; `lanes`: a mask cuts its partitions only; `copied`: the
    compiler copies it out of PSUM.
    """

    name: str
    role: str = READ
    takes: str = TILE
    memories: tuple[str, ...] = (SBUF, PSUM)
    dtypes: str = "any"
    documented: str = "any"
    numbers: bool | str = False
    optional: bool = False
    nki_dtypes: str = ""
    like: str = ""
    elements: tuple[int, int | str] | None = None
    rule: str = "NKI-S09"
    dtype_rule: str = "NKI-D05"
    lanes: bool = False
    copied: bool = False

    def __str__(self) -> str:
        """Return what it is, in a few words, for `nkisim coverage`."""
        form = {TILE: "tile", VECTOR: "(P, 1)", ACCESS: "access", OFFSET: "tile at an offset"}
        words = [form[self.takes]] + (["or number"] if self.numbers is True else [])
        words += [f"like {self.like}"] if self.like and self.takes is TILE else []
        if self.elements is not None:
            low, high = self.elements
            words.append(f"of {low}" if low == high else f"of {low} to {high}")
        words += (
            ["in " + " or ".join(k.upper() for k in self.memories)]
            if set(self.memories) != {SBUF, PSUM}
            else []
        )
        words += [self.dtypes] if self.dtypes != "any" else []
        words += ["optional"] if self.optional else []
        role = "" if self.role is READ else f" ({'written' if self.role is WRITE else 'updated'})"
        return f"{self.name}{role}: {' '.join(words)}"

    @cached_property
    def anywhere(self) -> bool:
        """Return whether any tile on chip will do."""
        return (
            self.takes is TILE
            and self.dtypes == self.documented == "any"
            and self.elements is None
            and set(self.memories) >= {SBUF, PSUM}
        )

    def resolve(
        self, m: Machine, value: Any, api: str, like: Any = None, idle: bool = False
    ) -> Any:
        """Return the operand that an argument is: a tile, a number or None; or raise.

        `idle`: a mask leaves nothing of the instruction, so nothing is copied for it.
        """
        if value is None and self.optional:
            return None
        if self.numbers and is_scalar(value) and (self.numbers is True or m.dialect.nki_operands):
            return value
        if self.takes is ACCESS:
            return self._access(m, value, api, idle)
        if self.takes is OFFSET:
            return self._offset(value, api)
        if self.takes is VECTOR and is_scalar(value):
            raise fail(
                self.rule,
                f"{api}: {self.name} is a number",
                given=f"{self.name}={value}",
                limit=f"a tile (P, 1) of {DTYPES[self.dtypes][1]}"
                + (", or None" if self.optional else ""),
                hint="make one: nl.full((128, 1), value, dtype=nl.float32)",
            )
        t = m.tile(value, self.name, PSUM in self.memories or self.copied)
        if self.anywhere and like is None:
            return t
        return self._checked(m, t, api, like, idle)

    def _checked(self, m: Machine, t: Tensor, api: str, like: Any, idle: bool) -> Tensor:
        if self.copied and t.memory is PSUM and not idle:  # AWS's flash attention does this
            m.find(
                "NKI-M09",
                "note",
                f"{api}: operand {self.name} lies in PSUM, and the engine "
                "reads SBUF: a copy is inserted. Writing it yourself, t = "
                "nl.copy(psum_tile), lets you choose where and when",
                m.here(),
            )
            t = m.op("copy", t).settle()
        accepts, words = DTYPES[
            self.nki_dtypes if self.nki_dtypes and m.dialect.nki_operands else self.dtypes
        ]
        if not accepts(t.dtype):
            raise fail(
                self.dtype_rule,
                f"operand {self.name} of {api} is not of a dtype that it takes",
                given=dtypes.name(t.dtype),
                limit=words,
                hint="cast it: nl.load(x, dtype=...), nl.copy(x, dtype=...)",
                nki_hint="cast it: nisa.tensor_copy into a tile of such a dtype",
            )
        note_dtype(m, f"operand {self.name} of {api}", t.dtype, self.documented)
        partitions = t.shape[0] if like is None else like.shape[0]
        if self.takes is VECTOR:
            if m.dialect.long_vectors and self.role is READ and t.size == t.shape[0] > partitions:
                m.find(
                    self.rule,
                    "note",
                    f"{api}: {self.name} has {t.shape[0]} partitions, of "
                    f"which the first {partitions} are read: those of the tile. AWS's kernel "
                    "library does this",
                    m.here(),
                )
                return t[:partitions]
            if t.shape[0] != partitions or t.size != partitions:
                raise fail(
                    self.rule,
                    f"{api}: {self.name} is not a vector of one element a partition",
                    given=f"shape {t.shape}",
                    limit=("a number, or " if self.numbers else "")
                    + f"a tile of shape ({partitions}, 1)",
                    hint=suggestions.per_partition(t, like) if like is not None else "",
                    nki_hint="for a tile of the same shape use nisa.tensor_tensor"
                    + _A_ROW * (t.shape[0] == 1 != partitions),
                )
        elif t.shape[0] != partitions:
            raise fail(
                "NKI-S04",
                f"{api}: the operands have different numbers of partitions",
                given=f"{self.like} {like.shape}, {self.name} {t.shape}",
                limit="nisa instructions never broadcast the partition dim",
                hint="repeat the smaller one with nl.broadcast_to(x, shape=(128, n)), or "
                "use the nl functions (nl.add ...), which do it for you"
                if 1 in (like.shape[0], t.shape[0])
                else suggestions.same_rows(self.like, like, self.name, t),
                nki_hint="copy one row into all partitions: nisa.dma_copy(dst=t, src="
                "row.broadcast(0, 128)), with row in HBM; on chip nothing repeats "
                "partitions but a product with ones"
                if 1 in (like.shape[0], t.shape[0])
                else suggestions.same_rows(self.like, like, self.name, t),
            )
        self.check_elements(m, t, api)
        return t

    def check_elements(self, m: Machine, t: Tensor, api: str) -> None:
        """Raise if a tile has too few or too many elements per partition."""
        if self.elements is None:
            return
        low, high = self.elements
        most = getattr(m.hw, high) if isinstance(high, str) else high
        if not low <= per_partition(t) <= most:
            raise fail(
                "NKI-P08",
                f"{api}: {self.name} has a wrong number of elements per partition",
                given=f"{per_partition(t)} (shape {t.shape})",
                limit=str(low) if low == most else f"{low} .. {most}",
                hint=f"a tile of {low}: {self.name} is what nisa.max8 gives, all of it"
                if low == most > 1
                else "",
            )

    def _access(self, m: Machine, value: Any, api: str, idle: bool) -> Any:
        """Return what DMA moves: a tensor, or an access with run-time indices."""
        if not isinstance(value, (Tensor, Indirect)):
            if self.memories == (HBM,):
                operand_errors.not_of_nki(value, self.name)
                raise fail(
                    "NKI-M02",
                    f"operand {self.name} of {api} is not an HBM tensor",
                    given=type(value).__name__,
                    hint="kernel arguments and nl.ndarray(..., buffer=nl.shared_hbm) are in HBM",
                )
            m.tile(value, self.name)
        if self.copied and value.memory is PSUM and isinstance(value, Tensor) and not idle:
            m.find(
                "NKI-M09",
                "note",
                f"{api}: {self.name} lies in PSUM, which DMA reads in SDK "
                "2.27 and later only: before, and here, it is copied to SBUF first",
                m.here(),
            )
            value = m.op("copy", m.tile(value, self.name)).settle()
        if value.memory not in self.memories and not (idle and self.copied):
            hint = (
                "copy between PSUM and SBUF with nisa.tensor_copy"
                if value.memory is PSUM and api != "nl.store"
                else suggestions.stored_on_chip()
                if api == "nl.store"
                else "assign or nisa.tensor_copy between tiles on chip; nisa.dma_copy moves "
                "between any two of HBM and SBUF"
            )
            raise fail(
                "NKI-M01",
                f"operand {self.name} of {api} lies in {value.memory.upper()}",
                given=f"{value!r}",
                hint=hint,
                limit=f"{api}: {self.name} lies in "
                + " or ".join(k.upper() for k in self.memories),
            )
        if value.memory is not HBM and isinstance(value, Tensor):
            m.tile(value, self.name)
        return value

    def _offset(self, value: Any, api: str) -> Indirect:
        """Return an operand on chip that a run-time offset subscripts."""
        if isinstance(value, Indirect) and value.memory is not HBM and value.rows.size == 1:
            return value
        raise fail(
            "NKI-I11",
            f"operand {self.name} of {api} has no run-time offset",
            given=f"{value!r}"[:90] if isinstance(value, Tensor) else type(value).__name__,
            limit="a tile in SBUF or PSUM, subscripted in a free dim by one element of an "
            "SBUF tile of integers",
            hint="t[i_p, offsets[0, k] + i_f], or nisa.tensor_copy if nothing depends on data",
        )


def Tile(name: str, role: str = READ, **traits: Any) -> Operand:
    """Declare a tile on chip, by default in SBUF or PSUM and of any dtype."""
    return Operand(name, role, TILE, **traits)


def Vector(name: str, role: str = READ, **traits: Any) -> Operand:
    """Declare a tile of one element a partition: (P, 1)."""
    return Operand(name, role, VECTOR, lanes=True, **traits)


def Moved(name: str, role: str = READ, *memories: str, **traits: Any) -> Operand:
    """Declare an operand of a DMA: a tensor in one of `memories`, indexed at run time or not."""
    return Operand(name, role, ACCESS, memories or (HBM,), **traits)


def RuntimeOffset(name: str, role: str = READ) -> Operand:
    """Declare a tile on chip that is subscripted by an element of an SBUF tile."""
    return Operand(name, role, OFFSET)


# -- shapes --------------------------------------------------------------------------------------


def per_partition(t: Tensor) -> int:
    """Return the number of elements per partition."""
    return t.size // t.shape[0]


def align(t: Tensor, rank: int) -> Tensor:
    """Return a tile with dims of size 1 inserted after the partition dim."""
    have = len(t.shape)
    if have >= rank:
        return t
    pad = rank - have
    item = t.dtype.itemsize
    return t.like(
        t.offset,
        (t.shape[0], *(1,) * pad, *t.shape[1:]),
        (t.strides[0], *(item,) * pad, *t.strides[1:]),
        0,
        moved(t.oob, t.shape, 1, pad),
    )


def repeat(t: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a tile whose free dims of size 1 repeat to `shape`, by a stride of 0."""
    if t.shape == shape:
        return t
    return t.like(
        t.offset,
        shape,
        tuple(0 if a != b else s for a, b, s in zip(t.shape, shape, t.strides)),
        0,
        moved(t.oob, t.shape, 0, 0),
    )


def regroup(t: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a tile seen with other free dims, or as it is if no access pattern can do that."""
    strides = merge_dims(t.shape[1:], t.strides[1:], shape[1:])
    if strides is None or t.oob is not None:
        return t
    return t.like(t.offset, shape, (t.strides[0], *strides), 0, None)


def same_elements(
    a: Tensor, b: Tensor, names: tuple[str, str], api: str, fixed: frozenset[str] = frozenset()
) -> tuple[Tensor, Tensor]:
    """Return two tiles of as many partitions, brought to one shape; those in `fixed` stay.

    Documented (nisa.tensor_tensor): the same number of elements per partition, taken in order,
    whatever their grouping; the shape is that of the first. In practice dims of size 1 on the
    free axes repeat as well, missing ones being inserted after the partition dim. A grouping that
    no access pattern can express stays, and is brought into order when the instruction runs.
    """
    if a.shape == b.shape:
        return a, b
    if a.size == b.size:
        return a, regroup(b, a.shape)
    rank = max(len(a.shape), len(b.shape))
    a, b = align(a, rank), align(b, rank)
    shape = tuple(x if y == 1 else y for x, y in zip(a.shape, b.shape))
    if (
        any(x not in (n, 1) or y not in (n, 1) for x, y, n in zip(a.shape, b.shape, shape))
        or names[0] in fixed
        and a.shape != shape
    ):
        raise fail(
            "NKI-S02",
            f"{api}: the operands have different shapes",
            given=f"{names[0]} {a.shape}, {names[1]} {b.shape}",
            limit="as many elements per partition, or free dims of size 1 that repeat",
            hint=suggestions.same_columns(names, (a, b)),
        )
    return repeat(a, shape), repeat(b, shape)


def note_dtype(m: Machine, what: str, dtype: Any, documented: str) -> None:
    """Note a dtype that the documentation of an instruction does not name."""
    accepts, words = DTYPES[documented]
    if not accepts(dtype):
        m.find(
            "NKI-D07", "note", f"{what} is {dtypes.name(dtype)}; documented is {words}", m.here()
        )


# -- dtypes, operators, engines ------------------------------------------------------------------


def is_scalar(value: Any) -> bool:
    """Return whether an operand is a number, of Python or of NumPy."""
    return isinstance(value, (int, float, np.generic))


def result_dtype(dtype: Any, *operands: Any) -> np.dtype:
    """Return the dtype of a result: as asked, else promoted from the operands."""
    if dtype is not None:
        asked = dtypes.normalize(dtype)
        return dtypes.UINT8 if asked == dtypes.BOOL else asked
    out = None
    for operand in operands:
        dt = operand.dtype if isinstance(operand, Tensor) else dtypes.of_scalar(operand)
        out = dt if out is None else dtypes.promote(out, dt)
    assert out is not None
    return out


def arithmetic(op: Any, api: str) -> ops.AluOp:
    """Return an operator of an instruction that has no bitvec ones, or raise."""
    alu = ops.resolve_alu(op)
    if alu.kind == "bitvec":
        raise fail(
            "NKI-E05",
            f"{api} does not work on raw bits",
            given=f"nl.{alu.name}",
            limit="arithmetic and comparison operators",
            hint="nisa.tensor_scalar and nisa.tensor_tensor have the bitvec operators",
        )
    return alu


def check_bitvec(op: ops.AluOp, operands: tuple, api: str, dtype: Any = None) -> None:
    """Raise if a bitvec operator meets a float, or is to make one."""
    if op.kind != "bitvec":
        return
    if dtype is not None and dtypes.is_float(result_dtype(dtype)):
        raise fail(
            "NKI-D06",
            f"{api}: nl.{op.name} works on raw bits",
            given=f"dtype={dtypes.name(result_dtype(dtype))}",
            limit="integer operands and result",
            hint="leave dtype out, and cast with nl.copy(x, dtype=...)",
            nki_hint="a dst of an integer dtype, and nisa.tensor_copy to cast",
        )
    for operand in operands:
        bad = (
            dtypes.is_float(operand.dtype)
            if isinstance(operand, Tensor)
            else isinstance(operand, float)
        )
        if bad:
            raise fail(
                "NKI-D06",
                f"{api}: nl.{op.name} works on raw bits",
                given="a float operand",
                limit="integer operands and result",
                hint="cast to an integer dtype, or .view() the bits as uint32",
            )


_CODES = {1: "tensor", 2: "scalar", 3: "gpsimd", 5: "vector", 6: "sync"}  # nisa.engine


def engine_code(engine: Any, api: str) -> int:
    """Return the number of an `engine=` argument; 0 for nisa.unknown_engine, or none given."""
    if engine is None:
        return 0
    if not isinstance(engine, (int, np.integer)):
        raise fail(
            "NKI-E01",
            f"{api}: engine is no member of nisa.engine",
            given=f"engine={engine!r}"[:60],
            limit=", ".join(f"nisa.{name}_engine" for name in _CODES.values() if name != "sync"),
            hint="leave engine= out",
        )
    return int(engine)


def engine_name(engine: Any, allowed: tuple[str, ...], api: str, psum: bool) -> str:
    """Return the engine that an `engine=` argument asks for; "" for nisa.unknown_engine."""
    code = engine_code(engine, api)
    if code == 0:
        return ""
    name = _CODES.get(code, str(code))
    if name not in allowed:
        raise fail(
            "NKI-E01",
            f"{api} does not run on the {name} engine",
            limit="engines: " + ", ".join(allowed),
            hint="leave engine= out",
        )
    if name == "gpsimd" and psum:
        raise fail(
            "NKI-E02",
            f"{api} on GpSimd touches PSUM",
            limit="GpSimd reads and writes SBUF only",
            hint="use the vector or scalar engine",
        )
    return name
