"""What the compiler refuses of instructions that a simulator runs: seen in builds, by their codes.

Most of these codes are in no document: teams met them when they compiled, and wrote them down. So
one source makes a note, more than one a warning; NKI_LANGUAGE=strict makes errors of warnings, off
leaves all of them out.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...chip import dtypes
from ...chip.memory import PSUM, SBUF
from ...errors import fail
from ...lint import level
from ...machine.machine import Machine
from ...machine.tensor import Tensor
from ...rules import RULES, Rule

_ACTIVATION_MOST = 16384        # elements a partition of an activation that reduces


@dataclass(frozen=True)
class Refusal:
    """A row: which instructions, what is refused (a sentence, or None), and who has met it."""

    id: str
    code: str
    severity: str
    title: str
    test: Callable[[Machine, dict[str, Any]], str | None]
    rows: frozenset[str]                # empty: all instructions
    text: str
    remedy: str


def _tiles(given: dict[str, Any], kind: Any) -> list[Tensor]:
    return [x for x in given.values() if x.__class__ is Tensor and x.kind is kind
            and x.storage is not None]


def _too_much_together(m: Machine, given: dict[str, Any]) -> str | None:
    """Tell whether the tiles of one instruction do not fit in SBUF at the same time."""
    stored = {t.storage.id: t.storage.row_bytes for t in _tiles(given, SBUF)
              if not t.storage.arena}
    total = sum(stored.values())
    if total <= m.hw.sbuf_usable_bytes:
        return None
    return (f"the {len(stored)} tiles of one instruction take {total:,} bytes of a partition "
            f"together, of {m.hw.sbuf_usable_bytes:,}")


def fit_apart(m: Machine, given: dict[str, Any]) -> bool:
    """Tell whether tiles fit in SBUF together even if each has a storage of its own."""
    return sum(t.storage.row_bytes for t in _tiles(given, SBUF)
               if not t.storage.arena) <= m.hw.sbuf_usable_bytes


def _half_psum_set(m: Machine, given: dict[str, Any]) -> str | None:
    dst = given.get("dst")
    if dst.__class__ is Tensor and dst.kind is PSUM and dst.dtype.itemsize < 4:
        return f"a tile of {dtypes.name(dst.dtype)} in PSUM is set"
    return None


def _long_sum(m: Machine, given: dict[str, Any]) -> str | None:
    data = given.get("data")
    if data.__class__ is Tensor and data.size // data.shape[0] > _ACTIVATION_MOST:
        return f"{data.size // data.shape[0]:,} elements a partition are added up in one activation"
    return None


def _many_dims(m: Machine, given: dict[str, Any]) -> str | None:
    dst = given.get("dst")
    if dst.__class__ is Tensor and len(dst.shape) >= 4:
        return f"the destination has {len(dst.shape)} dims"
    return None


def _half_operand(m: Machine, given: dict[str, Any]) -> str | None:
    for name in ("operand0", "operand1"):
        tile = given.get(name)
        if tile.__class__ is Tensor and dtypes.is_float(tile.dtype) \
                and tile.dtype != dtypes.FLOAT32:
            return f"{name} is a tile of {dtypes.name(tile.dtype)}"
    return None


def _ocp_float8(m: Machine, given: dict[str, Any]) -> str | None:
    if m.hw.generation < 4 and any(x.__class__ is Tensor and x.dtype == dtypes.FLOAT8_E4M3FN
                                   for x in given.values()):
        return f"float8_e4m3fn on {m.hw.name}"
    return None


def _two_float8(m: Machine, given: dict[str, Any]) -> str | None:
    mixed = {getattr(given.get(name), "dtype", None) for name in ("stationary", "moving")}
    if mixed == {dtypes.FLOAT8_E4M3, dtypes.FLOAT8_E4M3FN}:
        return "float8_e4m3 times float8_e4m3fn"
    return None


#: operands that have as many elements, of the rows of NKI-R11
_AS_MANY = (("data1", "data2"), ("data0", "data1"), ("data", "operand1"), ("dst", "src"),
            ("dst", "on_true"), ("dst", "predicate"))


def _unequal(m: Machine, given: dict[str, Any]) -> str | None:
    for one, other in _AS_MANY:
        a, b = given.get(one), given.get(other)
        if a.__class__ is Tensor and b.__class__ is Tensor and a.size != b.size \
                and (a.shape[0] == b.shape[0] or b.shape[0] == 1):
            return f"{one} {a.shape} and {other} {b.shape} have different numbers of elements"
    return None


def _number_as_bound(m: Machine, given: dict[str, Any]) -> str | None:
    for name in ("bound0", "bound1"):
        if name in given and given[name].__class__ is not Tensor:
            return f"{name}={given[name]} is a number"
    return None


TABLE: tuple[Refusal, ...] = (
    Refusal("NKI-R01", "NCC_IBIR229", "warning", "The tiles of an instruction fit in SBUF together",
            _too_much_together, frozenset(),
            "Tiles that are not in use can wait in HBM (a spill), but those of one instruction are "
            "needed at the same time. The compiler ends in \"State buffer allocation failed\". "
            "Seen in builds of a blocked matmul, 8 bytes beyond the limit.",
            "work on a part of the tile, or make the tiles smaller"),
    Refusal("NKI-R02", "TensorScalarPtr", "warning", "Operand tiles of tensor_scalar are float32",
            _half_operand, frozenset(("tensor_scalar",)),
            "The operand of each partition is an immediate of the instruction, which is float32: "
            "\"TensorScalarPtr arith immediate dtype must be fp32\". The documents say so, and two "
            "teams have met it.",
            "nisa.tensor_copy the operand into a float32 tile first"),
    Refusal("NKI-R03", "NCC_IBIR441", "note", "Tiles of 16 bits in PSUM are not set",
            _half_psum_set, frozenset(("memset",)),
            "PSUM in a narrow dtype is for what a transpose writes. One team has met this code for "
            "nisa.memset of such a tile.",
            "leave the memset out: a transpose writes all of its tile"),
    Refusal("NKI-R04", "activation_reduce", "note", "How many elements an activation adds up",
            _long_sum, frozenset(("activation_reduce",)),
            "One team has met a limit of 16384 elements a partition.",
            "split the free dim, and add the parts"),
    Refusal("NKI-R05", "NCC_INLA001", "note", "The dims that affine_select writes",
            _many_dims, frozenset(("affine_select",)),
            "One team has met this code for a destination of a partition dim and three free ones.",
            "reshape the free dims to one or two"),
    Refusal("NKI-R08", "NCC_EVRF051", "warning", "float8_e4m3fn before trn3",
            _ocp_float8, frozenset(),
            "Trainium 1 and 2 have the older float8_e4m3, which ends at 240 and has infinities. "
            "What is float8_e4m3fn, up to 448, they take for that, bit by bit, without a word; "
            "some builds are refused. The simulator computes with the dtype that is written.",
            "nl.float8_e4m3 on trn1 and trn2, or target trn3"),
    Refusal("NKI-R09", "API reference 0.6", "warning", "Products of two kinds of 8-bit floats",
            _two_float8, frozenset(("nc_matmul",)),
            "nisa.nc_matmul takes float8_e4m3fn on trn3, not together with float8_e4m3.",
            "load both operands in one of the two dtypes"),
    Refusal("NKI-R11", "API reference 0.6", "warning", "Instructions of two tiles do not broadcast",
            _unequal, frozenset(("tensor_tensor", "tensor_copy", "tensor_copy_predicated",
                                 "dma_copy", "scalar_tensor_tensor", "tensor_tensor_scan",
                                 "select_reduce", "tensor_scalar_cumulative")),
            "The two tiles have the same number of elements per partition. An operand of one "
            "element per partition is one of nisa.tensor_scalar, which is faster as well; others "
            "repeat by a view.",
            "nisa.tensor_scalar(dst, data, op0=nl.add, operand0=column), or "
            "column.broadcast(1, n) in its place"),
    Refusal("NKI-R14", "API reference 0.6", "warning", "The bounds of range_select are tiles",
            _number_as_bound, frozenset(("range_select",)),
            "Documented are tiles of one float32 per partition. Published kernels that have run on "
            "a chip give a number: it is taken for that of all partitions.",
            "nisa.memset a tile (P, 1) of float32, and give that"),
)
OPEN = Refusal(
    "NKI-R06", "NCC_ISCH714", "note", "A sum in PSUM is read when it is complete",
    lambda m, given: None, frozenset(),
    "The Tensor Engine adds up in PSUM from the first product of a group to the last; what reads "
    "between two of them reads an open group. One team has met this code.",
    "read after the last product, or begin a new sum (accumulate=False) and add the two")

OUTPUT = Refusal(
    "NKI-R07", "release notes 0.3", "warning", "Outputs lie in shared_hbm", lambda m, given: None,
    frozenset(),
    "Since 0.3 a tensor that a kernel returns is made with buffer=nl.shared_hbm. nl.hbm is "
    "nl.private_hbm, which belongs to one core and ends with the kernel.",
    "out = nl.ndarray(shape, dtype=..., buffer=nl.shared_hbm)")

SEED = Refusal(
    "NKI-R10", "API reference 0.6", "note", "Seeds before trn3", lambda m, given: None,
    frozenset(),
    "Before trn3 nl.rand takes its bits of another engine than nl.random_seed seeds, so a seed may "
    "have no effect on the chip: the numbers may differ from run to run. Here they repeat.",
    "nisa.set_rng_seed and nisa.rng, both on the Vector Engine")

LOOP = Refusal(
    "NKI-R15", "AWS's guidance for 0.6", "note", "Loops of the chip stand outside of no_reorder",
    lambda m, given: None, frozenset(),
    "nl.no_reorder keeps the order of instructions in a block; loops of Python may stand in it, "
    "nl.fori_loop and nl.while_loop not.",
    "with nl.no_reorder() in the body of the loop")

for _row in (*TABLE, OPEN, OUTPUT, SEED, LOOP):
    RULES.setdefault(_row.id, Rule(_row.id, _row.title, f"{_row.text} ({_row.code})\nTry: "
                                   f"{_row.remedy}.", hint=_row.remedy))


def look(m: Machine, name: str, given: dict[str, Any], line: int) -> None:
    """Add what the compiler would refuse of an instruction; raise if strictness asks for it."""
    for row in _of(name):
        if what := row.test(m, given):
            _say(m, row, what, line)


@cache
def _of(name: str) -> tuple[Refusal, ...]:
    return tuple(row for row in TABLE if not row.rows or name in row.rows)


#: storage -> where in a partition a sum begins -> has it been read since its last product?
Sums = dict[int, dict[int, bool]]


def read(operands: list[Any], sums: Sums) -> None:
    """Note which sums in PSUM an instruction reads."""
    for t in operands:
        if t.__class__ is Tensor and t.kind is PSUM and t.storage is not None \
                and t.storage.id in sums:
            end = t.offset + sum((n - 1) * s for n, s in zip(t.shape[1:], t.strides[1:]))
            known = sums[t.storage.id]
            known.update((at, True) for at in known if t.offset <= at <= end)


def added(m: Machine, dst: Tensor, onto: bool, sums: Sums, line: int) -> None:
    """Note a product in PSUM; say it if it is added to a sum that has been read since."""
    known = sums.setdefault(dst.storage.id, {})
    if onto and known.get(dst.offset):
        _say(m, OPEN, "a sum in PSUM is read between two of its products", line)
    known[dst.offset] = False


def output(m: Machine, line: int) -> None:
    """Say that an output is not where outputs lie since 0.3; `line`: where it is made."""
    if level.requested()[1] >= "0.3":
        _say(m, OUTPUT, "an output lies in private_hbm", line)


def seeded(m: Machine, line: int) -> None:
    """Say that a seed may not reach nl.rand; `line`: where it is called."""
    if m.seeded and m.hw.generation < 4:
        _say(m, SEED, "nl.rand after nl.random_seed may not repeat", line)


def looped(m: Machine, line: int) -> None:
    """Say that a loop of the device is in a block of nl.no_reorder; `line`: where it is called."""
    if m.ordered:
        _say(m, LOOP, "a loop of the chip in nl.no_reorder", line)


def _say(m: Machine, row: Refusal, what: str, line: int) -> None:
    asked, _ = level.requested()
    if asked == "off":
        return
    if asked == "strict" and row.severity == "warning":
        raise fail(row.id, what, name=row.code if row.code.startswith("err_") else "")
    said = ("another form is documented" if row.code.startswith("API")
            else "the compiler has refused that")
    m.find(row.id, row.severity, f"{what}: {said} ({row.code}). Try: {row.remedy}", line)
