"""What AWS's compiler refuses of instructions that a simulator runs: where it is asked and said.

A row (`verdict.py`; the rows of forms of calls are in `forms.py`) says how it is known. What the
compiler is known to refuse is an error; what one team has met is a note. NKI_LANGUAGE=teach makes
warnings of the errors and goes on, strict errors of all warnings, off leaves all of them out.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

from ... import course
from ...chip import dtypes, ops
from ...chip.memory import PSUM, SBUF, Buffer
from ...course import TARGETS_VARIABLE
from ...errors import fail
from ...errors.rules import RULES
from ...lint import level
from ...machine import operand_errors
from ...machine.interface import Machine
from ...machine.tensor import Tensor
from ...trace.trace import NODE
from . import forms
from .verdict import (
    ACCEPTED,
    BUILT,
    DOCUMENTED,
    ONCE,
    RAN,
    UNSURE,
    WRONG,
    Verdict,
    before,
    never,
    page,
)

#: which generations kernels run on: those that AWS supports, or all that are simulated
TARGETS = "supported", "all"
_ACTIVATION_MOST = 16384  # elements a partition of an activation that reduces


def _tiles(given: dict[str, Any], memory: Any) -> list[Tensor]:
    return [
        x
        for x in given.values()
        if x.__class__ is Tensor and x.memory is memory and x.storage is not None
    ]


def _needed(m: Machine, tiles: list[Tensor]) -> int:
    """Return the bytes of a partition that storages need at least, however they are laid.

    Those of few partitions can lie beside each other, in quadrants of their own; two of more than
    half of the partitions share one.
    """
    half, quadrants = m.hw.pmax // 2, m.hw.pmax // m.hw.quadrant
    wide = sum(t.storage.row_bytes for t in tiles if t.storage.nparts > half)
    area = sum(-(-t.storage.nparts // m.hw.quadrant) * t.storage.row_bytes for t in tiles)
    return max(wide, -(-area // quadrants))


def _too_much_together(m: Machine, given: dict[str, Any]) -> str | None:
    """Return whether the tiles of one instruction do not fit in SBUF at the same time."""
    stored = {t.storage.id: t for t in _tiles(given, SBUF) if not t.storage.arena}
    total = _needed(m, [*stored.values()])
    if total <= m.hw.sbuf_usable_bytes:
        return None
    return (
        f"the {len(stored)} tiles of one instruction take {total:,} bytes of a partition "
        f"together, of {m.hw.sbuf_usable_bytes:,}"
    )


def fit_apart(m: Machine, given: dict[str, Any]) -> bool:
    """Return whether tiles fit in SBUF together even if each has a storage of its own."""
    tiles = [t for t in _tiles(given, SBUF) if not t.storage.arena]
    return _needed(m, tiles) <= m.hw.sbuf_usable_bytes


def _half_psum_set(m: Machine, given: dict[str, Any]) -> str | None:
    dst = given.get("dst")
    if dst.__class__ is Tensor and dst.memory is PSUM and dst.dtype.itemsize < 4:
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


def _operand_not_float32(m: Machine, given: dict[str, Any]) -> str | None:
    for k in "01":
        tile, op = given.get(f"operand{k}"), given.get(f"op{k}")
        if (
            tile.__class__ is Tensor
            and tile.dtype != dtypes.FLOAT32
            and (dtypes.is_float(tile.dtype) or op and ops.resolve_alu(op).kind == "arith")
        ):
            return f"operand{k} is a tile of {dtypes.name(tile.dtype)}"
    return None


def _cast(m: Machine, given: dict[str, Any]) -> str | None:
    src = next(given[name] for name in ("data", "src", "src_buffer") if name in given)
    to, of = getattr(given["dst"], "dtype", None), getattr(src, "dtype", None)
    if to is None or of is None or to == of:
        return None
    return f"dst is of {dtypes.name(to)}, its source of {dtypes.name(of)}"


def _probability(m: Machine, given: dict[str, Any]) -> str | None:
    data, prob = given["data"], given["prob"]
    if data.__class__ is not Tensor or prob.__class__ is not Tensor:
        return None
    if prob.dtype == dtypes.FLOAT32 or dtypes.is_float(data.dtype) and dtypes.is_float(prob.dtype):
        return None
    return f"prob is a tile of {dtypes.name(prob.dtype)}, data of {dtypes.name(data.dtype)}"


def _rounded_float32(m: Machine, given: dict[str, Any]) -> str | None:
    for name in ("stationary", "moving"):
        if getattr(given[name], "dtype", None) == dtypes.TFLOAT32:
            return f"{name} is a tile of tfloat32"
    return None


def _narrow_product(m: Machine, given: dict[str, Any]) -> str | None:
    """Look at dst, or, of functions of nl, at the operands: dst has their dtype."""
    tile = next(given[name] for name in ("dst", "x") if name in given)
    dtype = getattr(tile, "dtype", dtypes.FLOAT32)
    if dtype == dtypes.FLOAT32:
        return None
    return f"dst is of {dtypes.name(dtype)} on {m.hw.name}"


def _ocp_float8(m: Machine, given: dict[str, Any]) -> str | None:
    if any(x.__class__ is Tensor and x.dtype == dtypes.FLOAT8_E4M3FN for x in given.values()):
        return f"float8_e4m3fn on {m.hw.name}"
    return None


def _two_float8(m: Machine, given: dict[str, Any]) -> str | None:
    mixed = {getattr(given.get(name), "dtype", None) for name in ("stationary", "moving")}
    if mixed == {dtypes.FLOAT8_E4M3, dtypes.FLOAT8_E4M3FN}:
        return "float8_e4m3 times float8_e4m3fn"
    return None


def _number_as_bound(m: Machine, given: dict[str, Any]) -> str | None:
    for name in ("bound0", "bound1"):
        if name in given and given[name].__class__ is not Tensor:
            return f"{name}={given[name]} is a number"
    return None


TABLE: tuple[Verdict, ...] = (
    Verdict(
        "NKI-R01",
        "NCC_IBIR229",
        "error",
        "The tiles of an instruction fit in SBUF together",
        _too_much_together,
        frozenset(),
        "Tiles that are not in use can wait in HBM (a spill), but those of one instruction are "
        'needed at the same time. The compiler ends in "State buffer allocation failed". '
        "Seen in builds of a blocked matmul, 8 bytes beyond the limit.",
        "work on a part of the tile, or make the tiles smaller",
        "an instruction of tiles that need more than a partition has",
        known=(BUILT,),
    ),
    Verdict(
        "NKI-R02",
        '"TensorScalarPtr arith immediate dtype must be fp32"; API reference',
        "error",
        "Operand tiles of tensor_scalar are float32",
        _operand_not_float32,
        frozenset(("tensor_scalar",)),
        "The operand of each partition is an immediate of the instruction, which is float32 "
        "whatever the dtype of data, for integers as well. Operators on bits keep integers. "
        "The documents say so, and four teams have met it.",
        "nisa.tensor_copy the operand into a float32 tile first",
        "nisa.tensor_scalar(dst, t, op0=nl.multiply, operand0=bfloat16_or_int32_tile)",
        known=(DOCUMENTED, BUILT),
    ),
    Verdict(
        "NKI-R02",
        "API reference 0.6: data, op0 and operand0 as those of tensor_scalar",
        "note",
        "Operand tiles of tensor_scalar are float32",
        _operand_not_float32,
        frozenset(("tensor_scalar_reduce",)),
        "",
        "nisa.tensor_copy the operand into a float32 tile first",
        "nisa.tensor_scalar_reduce(dst, t, op0=nl.multiply, operand0=bfloat16_tile, ...)",
    ),
    Verdict(
        "NKI-R36",
        "API reference 0.6",
        "warning",
        "What only moves elements does not cast them",
        _cast,
        frozenset(
            (
                "nc_transpose",
                "nc_transpose_dve",
                "dma_transpose",
                "gather_flattened",
                "local_gather",
            )
            + ("dropout",)
        ),
        "dst has the dtype of what is moved: of data, src or src_buffer. Earlier releases than 0.6 "
        "let other ones pass.",
        "make dst with the dtype of the source; nisa.tensor_copy casts afterwards",
        "nisa.nc_transpose(dst=float32_tile, data=bfloat16_tile)",
        since="0.6",
    ),
    Verdict(
        "NKI-R37",
        "API reference 0.6",
        "warning",
        "The dtype of a dropout's probabilities",
        _probability,
        frozenset(("dropout",)),
        "A tile of probabilities is of a float dtype, and of float32 where data is of integers.",
        "make prob with dtype=nl.float32",
        "nisa.dropout(dst, data, prob=int32_tile)",
    ),
    Verdict(
        "NKI-R40",
        "\"must be a float type, got '!nisa.float32r'\"",
        "warning",
        "tfloat32 as an operand of a product",
        _rounded_float32,
        frozenset(("nc_matmul",)),
        "The API reference lists tfloat32 for nisa.nc_matmul. A verifier of 0.6 has refused it, as "
        "one team says.",
        "float32 operands, or bfloat16 ones for speed",
        "nisa.nc_matmul of tiles of nl.tfloat32",
        verdict=UNSURE,
        known=(ONCE,),
        since="0.6",
    ),
    Verdict(
        "NKI-R38",
        '"nc_matmul dst dtype must be float32 on gen2"',
        "error",
        "On NeuronCore-v2 the Tensor Engine writes float32",
        _narrow_product,
        frozenset(("nc_matmul", "nc_transpose", "nl.matmul", "nl.transpose")),
        "On Trainium 1 and Inferentia 2 what the Tensor Engine writes is float32, transposes "
        "included: nl.matmul and nl.transpose of narrower tiles ask for a tile of their dtype.",
        "load the operands as float32, or run on trn2",
        "nl.matmul of bfloat16 tiles on trn1",
        known=(ONCE,),
        since="0.3",
        targets=before("trn2"),
    ),
    Verdict(
        "NKI-R03",
        "NCC_IBIR441",
        "note",
        "Tiles of 16 bits in PSUM are not set",
        _half_psum_set,
        frozenset(("memset",)),
        "PSUM in a narrow dtype is for what a transpose writes. One team has met this code for "
        "nisa.memset of such a tile.",
        "leave the memset out: a transpose writes all of its tile",
        "nisa.memset(bfloat16_tile_in_psum, 0.0)",
        known=(ONCE,),
    ),
    Verdict(
        "NKI-R04",
        "activation_reduce",
        "note",
        "How many elements an activation adds up",
        _long_sum,
        frozenset(("activation_reduce",)),
        "One team has met a limit of 16384 elements a partition.",
        "split the free dim, and add the parts",
        "nisa.activation_reduce of more than 16384 elements a partition",
        known=(ONCE,),
    ),
    Verdict(
        "NKI-R05",
        "NCC_INLA001",
        "note",
        "The dims that affine_select writes",
        _many_dims,
        frozenset(("affine_select",)),
        "One team has met this code for a destination of a partition dim and three free ones.",
        "reshape the free dims to one or two",
        "nisa.affine_select into four dims",
        known=(ONCE,),
    ),
    Verdict(
        "NKI-R08",
        "NCC_EVRF051",
        "warning",
        "float8_e4m3fn before trn3",
        _ocp_float8,
        frozenset(),
        "Trainium 1 and 2 have the older float8_e4m3, which ends at 240 and has infinities. "
        "What is float8_e4m3fn, up to 448, they take for that, bit by bit, without a word; "
        "some builds are refused. The simulator computes with the dtype that is written.",
        "nl.float8_e4m3 on trn1 and trn2, or target trn3",
        "a tile of nl.float8_e4m3fn",
        verdict=WRONG,
        known=(DOCUMENTED, BUILT),
        targets=before("trn3"),
    ),
    Verdict(
        "NKI-R09",
        "release notes 0.4; API reference 0.6",
        "error",
        "Products of two kinds of 8-bit floats",
        _two_float8,
        frozenset(("nc_matmul",)),
        "nisa.nc_matmul takes float8_e4m3fn on trn3, not together with float8_e4m3.",
        "load both operands in one of the two dtypes",
        "nisa.nc_matmul of float8_e4m3 and float8_e4m3fn",
        since="0.4",
    ),
    Verdict(
        "NKI-R14",
        "API reference 0.6",
        "note",
        "The bounds of range_select are tiles",
        _number_as_bound,
        frozenset(("range_select",)),
        "Documented are tiles of one float32 per partition. Published kernels that have run on "
        "a chip give a number: it is taken for that of all partitions.",
        "nisa.memset a tile (P, 1) of float32, and give that",
        "nisa.range_select(..., bound0=0.0)",
        verdict=ACCEPTED,
        known=(RAN,),
    ),
    *forms.ROWS,
)
OPEN = Verdict(
    "NKI-R06",
    "NCC_ISCH714",
    "warning",
    "A sum in PSUM is read when it is complete",
    never,
    frozenset(),
    "The Tensor Engine adds up in PSUM from the first product of a group to the last; what reads "
    "between two of them reads an open group, and what is added later holds the products of before "
    "as well: most often one tile is used for two results. One team has met this code.",
    "a PSUM tile for each result, or read after the last product",
    "a read of a sum between two of its products",
    known=(ONCE,),
)

OUTPUT = Verdict(
    "NKI-R07",
    "release notes 0.3",
    "error",
    "Outputs lie in shared_hbm",
    never,
    frozenset(),
    "Since 0.3 a tensor that a kernel returns is made with buffer=nl.shared_hbm. nl.hbm is "
    "nl.private_hbm, which belongs to one core and ends with the kernel: a build fails.",
    "out = nl.ndarray(shape, dtype=..., buffer=nl.shared_hbm)",
    "out = nl.ndarray(..., buffer=nl.hbm); return out",
    since="0.3",
)

SEED = Verdict(
    "NKI-R10",
    "release notes 0.3 and 0.4: known issues",
    "note",
    "Seeds before trn3",
    never,
    frozenset(),
    "Before trn3 nl.rand takes its bits of another engine than nl.random_seed seeds, so a seed may "
    "have no effect on the chip: the numbers may differ from run to run. Here they repeat.",
    "nisa.set_rng_seed and nisa.rng, both on the Vector Engine",
    "nl.random_seed(seed); nl.rand(...)",
    verdict=WRONG,
    since="0.3",
    targets=before("trn3"),
)

LOOP = Verdict(
    "NKI-R15",
    "API reference 0.6: nl.no_reorder",
    "note",
    "Loops of the chip stand outside of no_reorder",
    never,
    frozenset(),
    "nl.no_reorder keeps the order of instructions in a block; loops of Python may stand in it, "
    "nl.fori_loop and nl.while_loop not.",
    "with nl.no_reorder() in the body of the loop",
    "with nl.no_reorder(): nl.fori_loop(...)",
    since="0.6",
)

CHIP = Verdict(
    "NKI-R29",
    'FAQ of NKI: which chips; release notes 2.29 of NxD Inference: "not supported on Trn1/Inf2"',
    "warning",
    "import nki is for trn2 and later",
    never,
    frozenset(),
    "Since 0.3 the package nki has kernels for Trainium 2 and 3; Trainium 1 and Inferentia 2 stay "
    "with neuronxcc.nki, AWS says. Two authors ran kernels of float32 there (0.3 on trn1, 0.6 on "
    f"inf2). The course none (--course none, NKI_COURSE=none, {TARGETS_VARIABLE}=all) "
    "leaves the warning out, to compare generations.",
    "target trn2; neuronxcc.nki on trn1; --course none without this warning",
    "a kernel of import nki on trn1",
    since="0.3",
    targets=before("trn2"),
)

NAME = Verdict(
    "NKI-R39",
    '"duplicate op name"',
    "warning",
    "An instruction has a name of its own",
    never,
    frozenset(),
    "name= is what kernel.with_schedule and the compiler call one instruction by. A loop of Python "
    "issues an instruction for each iteration, and a helper for each call. One team has met this "
    "error. The body of nl.fori_loop is one set of instructions, whatever the count.",
    "the index of the loop in the name, or no name=",
    'for i in range(4): nisa.dma_copy(..., name="load")',
    known=(ONCE,),
    since="0.6",
)

#: all rows, those that another place than a call finds as well
VERDICTS = (*TABLE, OPEN, OUTPUT, SEED, LOOP, CHIP, NAME, forms.MIXED, forms.OFFSET)
for _id in dict.fromkeys(row.id for row in VERDICTS):
    RULES.setdefault(_id, page([row for row in VERDICTS if row.id == _id]))


def apply_verdicts(m: Machine, name: str, given: dict[str, Any], line: int | None = None) -> None:
    """Say what is on record of a call: raise for what the compiler is known to refuse.

    `name` of the instruction, or of the function of nl; `line`: where it is called, here if None.
    """
    _not_of_beta1(m, name, given)
    for row in _of(name, level.release(), m.hw.name):
        if problem := row.test(m, given):
            cure = row.cure(given) if row.cure else ""
            _say(m, row, problem, m.here() if line is None else line, cure)


@cache
def _of(name: str, release: str, target: str) -> tuple[Verdict, ...]:
    any_module = not name.startswith("nl.")
    return tuple(
        row
        for row in TABLE
        if row.holds(release, target) and (name in row.calls or any_module and not row.calls)
    )


#: storage -> where in a partition a sum begins -> has it been read since its last product?
Sums = dict[int, dict[int, bool]]


def read(operands: list[Any], sums: Sums) -> None:
    """Note which sums in PSUM an instruction reads."""
    for t in operands:
        if (
            t.__class__ is Tensor
            and t.memory is PSUM
            and t.storage is not None
            and t.storage.id in sums
        ):
            end = t.offset + sum((n - 1) * s for n, s in zip(t.shape[1:], t.strides[1:]))
            in_storage = sums[t.storage.id]
            in_storage.update((at, True) for at in in_storage if t.offset <= at <= end)


def begun(t: Tensor, sums: Sums) -> None:
    """Forget the sums that lay where a tile is made: its products begin others."""
    in_storage, row = sums.get(t.storage.id, {}), t.storage.row_bytes
    (part, first), size = divmod(t.offset, row), prod(t.shape[1:]) * t.itemsize
    for at in [*in_storage]:
        if 0 <= at // row - part < t.shape[0] and 0 <= at % row - first < size:
            del in_storage[at]


def added(m: Machine, dst: Tensor, onto: bool, sums: Sums, line: int) -> None:
    """Note a product in PSUM; say it if it is added to a sum that has been read since.

    A tile at the address of another one begins a sum of its own, whenever it was made.
    """
    in_storage = sums.setdefault(dst.storage.id, {})
    place = dst.storage.id, dst.offset
    same = m.memory.psum_owners.get(place) == dst.owner
    m.memory.psum_owners[place] = dst.owner
    if onto and same and in_storage.get(dst.offset):
        _say(m, OPEN, "products are added to a sum in PSUM that was read already", line)
    in_storage[dst.offset] = False


def output(m: Machine, line: int) -> None:
    """Say that an output is not where outputs lie since 0.3; `line`: where it is made."""
    if OUTPUT.holds(level.release(), m.hw.name):
        _say(m, OUTPUT, "an output lies in private_hbm", line)


def seeded(m: Machine, line: int) -> None:
    """Say that a seed may not reach nl.rand; `line`: where it is called."""
    if m.launch.seeded and SEED.holds(level.release(), m.hw.name):
        _say(m, SEED, "nl.rand after nl.random_seed may not repeat", line)


def looped(m: Machine, line: int) -> None:
    """Say that a loop of the device is in a block of nl.no_reorder; `line`: where it is called."""
    if m.loops.ordered:
        _say(m, LOOP, "a loop of the chip in nl.no_reorder", line)


def named(m: Machine, name: str, last: int) -> None:
    """Say that instruction `last` has the name of the one that is issued now, on the same core."""
    tr = m.trace
    node, top = tr.rows[tr.starts[last] + NODE], m.core.top
    while node > top:  # a node comes after its parent
        node = tr.node_parent[node]
    # a body of the device is issued here for each iteration, and on the chip once
    if node == top and m.core.body is None and NAME.holds(level.release(), m.hw.name):
        _say(m, NAME, f"another instruction has the name {name!r}", m.here())


def offset(m: Machine) -> None:
    """Say that a view of SBUF starts where a register or a tile says."""
    _say(m, forms.OFFSET, "a view of a tile in SBUF starts at a run-time offset", m.here())


def _not_of_beta1(m: Machine, api: str, given: dict[str, Any]) -> None:
    """Raise for a call of nki in a kernel of neuronxcc.nki, or with what is of neuronxcc.nki."""
    if m.dialect.name != "nki":
        raise operand_errors.mixed(f"{api} of nki is called in a kernel of neuronxcc.nki")
    for key, x in given.items():
        if (
            x.__class__ is Buffer
            or callable(x)
            and str(getattr(x, "__module__", "")).startswith("nkisim.language.beta1")
        ):
            raise operand_errors.mixed(f"{api} of nki: {key} is of neuronxcc.nki")


def chip(m: Machine) -> None:
    """Say that a kernel ran on a generation that AWS does not support in its release.

    NKISIM_TARGETS=all and the course none leave it out.
    """
    if (
        CHIP.holds(level.release(), m.hw.name)
        and level.setting(TARGETS_VARIABLE, TARGETS, "supported", "NKI-G00") != "all"
        and not course.chosen().insists
    ):
        _say(m, CHIP, f"a kernel of import nki on {m.hw.name}", -1)


def mixed(m: Machine) -> None:
    """Say that tiles at addresses of the kernel's and tiles of the compiler's share SBUF."""
    if any(memory is SBUF for memory, _ in m.memory.arenas):
        storages = (m.memory.storages[i] for i in range(len(m.memory.storages)))
        own = next((st.where for st in storages if st.memory is SBUF and not st.arena), None)
        if own is not None:
            _say(m, forms.MIXED, "tiles with address= and tiles without lie in SBUF", own)


def _say(m: Machine, row: Verdict, what: str, line: int, cure: str = "") -> None:
    remedy = cure or row.remedy
    asked = level.requested()[0]
    if asked == "off":
        return
    graver = asked == "strict" and row.severity == "warning"
    if graver or row.severity == "error" and asked != "teach":
        raise fail(
            row.id,
            what,
            limit=f"{row.title}: {row.verdict}, {row.basis}",
            hint=remedy,
            where=m.trace.where(line),
        )
    severity = "warning" if row.severity == "error" else row.severity
    m.find(row.id, severity, f"{what}: {row.verdict}, {row.basis}. Try: {remedy}", line)
