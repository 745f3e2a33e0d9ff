"""Forms of calls that AWS's simulator runs and its compiler refuses: the rows, and what finds them.

Sources: the release notes of NKI 0.3 to 0.6 (known issues), the API reference, the table of
operators of the shared page, the open front end of NKI 0.1 and 0.2 (leanprover/KLR), and what teams
have written down of their builds.
"""

from __future__ import annotations

from typing import Any

from ...chip import ops
from ...chip.memory import PSUM, SBUF
from ...indexing.indirect import Patterned
from ...isa.operands import is_scalar
from ...machine import source_text
from ...machine.interface import Machine
from ...machine.tensor import Tensor
from .names import NAMES
from .verdict import BUILT, DOCUMENTED, ONCE, READ, UNSURE, Verdict, before, never

_OPERATORS = ("op", "op0", "op1", "reduce_op", "cmp_op", "comp_op0", "comp_op1")
#: operands that have as many elements, by instruction
_PAIRS: dict[str, tuple[tuple[str, str], ...]] = {
    "tensor_tensor": (("data1", "data2"),),
    "scalar_tensor_tensor": (("data", "operand1"),),
    "tensor_tensor_scan": (("data0", "data1"),),
    "tensor_copy": (("dst", "src"),),
    "dma_copy": (("dst", "src"),),
    "tensor_copy_predicated": (("dst", "src"), ("dst", "predicate")),
    "select_reduce": (("dst", "on_true"), ("dst", "predicate")),
}
#: instructions whose operators take two tiles
_OF_TWO = {"tensor_tensor": ("op",), "tensor_tensor_scan": ("op0", "op1")}
_REDUCTIONS = ("nl.sum", "nl.max", "nl.min", "nl.prod", "nl.mean")


def _named(op: Any) -> str:
    """Return the name of an operator in nl, "" for None and for what is no operator."""
    return getattr(op, "name", "") or ops.name_of(op)


def _operator(given: dict[str, Any], names: tuple[str, ...]) -> str | None:
    """Return how an instruction is given one of the operators, or None."""
    for key in _OPERATORS:
        if key in given and given[key] is not None and _named(given[key]) in names:
            return f"{key}=nl.{_named(given[key])}"
    return None


def _divided(m: Machine, given: dict[str, Any]) -> str | None:
    how = _operator(given, ("divide",))
    return f"an instruction is given {how}" if how else None


def _remainder(m: Machine, given: dict[str, Any]) -> str | None:
    how = _operator(given, ("mod", "fmod"))
    return f"an instruction is given {how}" if how else None


def _negated(m: Machine, given: dict[str, Any]) -> str | None:
    how = _operator(given, ("logical_not",))
    return f"an instruction is given {how}" if how else None


def _otherwise_named(m: Machine, given: dict[str, Any]) -> str | None:
    """Return an operator that is a function of NumPy, or one of nl that reduces by itself."""
    for key in _OPERATORS:
        if name := _renamed(given.get(key)):
            return f"{key}={name} has another name among the operators: nl.{_named(given[key])}"
    return None


def _renamed(op: Any) -> str:
    """Return how an operator is written that is not in the table, "" for one that is."""
    name, named = getattr(op, "__name__", ""), _named(op) if callable(op) else ""
    numpy = named and not hasattr(op, "nki_op")
    if numpy or f"nl.{name}" in _REDUCTIONS and named in ops.ALU:
        return f"{'np' if numpy else 'nl'}.{name}"
    return ""


def _called(name: str) -> Any:
    def test(m: Machine, given: dict[str, Any]) -> str | None:
        return f"{name} is called"

    return test


def _number_power(m: Machine, given: dict[str, Any]) -> str | None:
    if is_scalar(given["x"]) or is_scalar(given["y"]):
        return f"nl.power is given the number {given['y' if is_scalar(given['y']) else 'x']}"
    return None


def _tiles(x: Any, y: Any) -> bool:
    return x.__class__ is Tensor and y.__class__ is Tensor


def _repeats(a: Tensor, b: Tensor) -> bool:
    """Return whether two shapes differ in dims of size 1 alone; other shapes no dialect takes."""
    return a.size != b.size and all(
        n == k or 1 in (n, k) for n, k in zip(a.shape[::-1], b.shape[::-1])
    )


def _unlike(m: Machine, given: dict[str, Any]) -> str | None:
    """Return what differs in size, of two tiles of a function or an instruction."""
    x, y = given["x"], given["y"]
    if _tiles(x, y) and _repeats(x, y):
        return f"x {x.shape} and y {y.shape} have different numbers of elements"
    return None


def _unequal(name: str) -> Any:
    def test(m: Machine, given: dict[str, Any]) -> str | None:
        for one, other in _PAIRS[name]:
            a: Any = given.get(one)
            b: Any = given.get(other)
            if (
                _tiles(a, b)
                and _repeats(a, b)
                and (a.shape[0] == b.shape[0] or b.shape[0] == 1 and name == "dma_copy")
            ):
                return f"{one} {a.shape} and {other} {b.shape} have different numbers of elements"
        return None

    return test


def _column(given: dict[str, Any]) -> str:
    """Return tensor_scalar for tensor_tensor of a tile and a column, with the user's names."""
    a, b = given["data1"], given["data2"]
    turned = a.shape[1:] == (1,)
    column = b if not turned else a
    if column.shape[1:] != (1,):
        return ""
    texts = source_text.arguments("tensor_tensor", ("dst", "data1", "data2", "op"))
    one, other = texts.get("data1", "tile"), texts.get("data2", "column")
    tile, with_ = (other, one) if turned else (one, other)
    op = f"nl.{_named(given['op'])}"
    swap = ", reverse0=True" if turned and op in ("nl.subtract", "nl.divide") else ""
    free = (b if turned else a).shape[1]
    return (
        f"nisa.tensor_scalar(dst={texts.get('dst', 'dst')}, data={tile}, op0={op}, "
        f"operand0={with_}{swap}), or {with_}.broadcast(1, {free}) in its place"
    )


def _by_its_name(given: dict[str, Any]) -> str:
    """Return an operator as a function of nl, by the name of the table."""
    return next(f"{key}=nl.{_named(given[key])}" for key in _OPERATORS if _renamed(given.get(key)))


def _untransposed(m: Machine, given: dict[str, Any]) -> str | None:
    return None if given["transpose_x"] else "nl.matmul is called without transpose_x=True"


def _across(m: Machine, given: dict[str, Any]) -> str | None:
    x = given["x"]
    return f"nl.copy of {x!r} into SBUF" if x.__class__ is Tensor and x.memory is PSUM else None


def _one_dim(m: Machine, given: dict[str, Any]) -> str | None:
    x, axis = given["x"], given["axis"]
    if given.get("keepdims") or x.__class__ is not Tensor:
        return None
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    rank = len(x.shape)
    if (
        all(type(a) is int and -rank <= a < rank and a % rank for a in axes)
        and rank - len(set(axes)) < 2
    ):
        return f"a reduction of {x.shape} over axis {axis} without keepdims=True has one dim"
    return None


def _one_operand(name: str) -> Any:
    def test(m: Machine, given: dict[str, Any]) -> str | None:
        for key in _OF_TWO[name]:
            op = _named(given.get(key))
            if op in ops.ACTIVATIONS or op in ops.ALU and ops.ALU[op].unary:
                return f"nisa.{name} of two tiles is given {key}=nl.{op}, of one"
        return None

    return test


def _newer_operator(m: Machine, given: dict[str, Any]) -> str | None:
    how = _operator(given, tuple(ops.ALU_V4))
    return f"{how} on {m.hw.name}" if how else None


def _bases(m: Machine, given: dict[str, Any]) -> str | None:
    starts = {
        key: x.offset // x.storage.row_bytes
        for key, x in given.items()
        if key in ("data1", "data2", "data", "operand1", "data0")
        and x.__class__ is Tensor
        and x.memory is SBUF
        and x.storage is not None
    }
    if len(set(starts.values())) < 2:
        return None
    return "tiles in SBUF begin at different partitions: " + ", ".join(
        f"{key} at {at}" for key, at in starts.items()
    )


def _summed_squares(m: Machine, given: dict[str, Any]) -> str | None:
    if _named(given.get("op")) == "square" and given.get("reduce_res") is not None:
        return "squares are added up in one activation"
    return None


def _turned(m: Machine, given: dict[str, Any]) -> str | None:
    return "nisa.tensor_scalar_reduce is given reverse0=True" if given.get("reverse0") else None


def _not_unique(m: Machine, given: dict[str, Any]) -> str | None:
    moved = any(isinstance(x, Patterned) for x in (given["dst"], *given["srcs"]))
    if moved and given.get("unique_indices") is False:
        return "rows that indices choose are added to, with unique_indices=False"
    return None


def _bits(m: Machine, given: dict[str, Any]) -> str | None:
    how = _operator(given, tuple(n for n, op in ops.ALU.items() if op.kind == "bitvec"))
    return f"nisa.scalar_tensor_tensor is given {how}" if how else None


def _magnitude(m: Machine, given: dict[str, Any]) -> str | None:
    how = _operator(given, _MAGNITUDES)
    return f"{how} on {m.hw.name}" if how else None


_MAGNITUDES = ("abs_max", "abs_min")
#: leanprover/KLR at 7ccd18c, KLR/Trace/FromNKI.lean: the operators that the front end takes
_KLR = "KLR, AluOp"
_NO_DIVISION = (
    "No engine divides. AWS's simulator divides; the table of operators has none, and "
    "release notes since 0.3 say that division is not supported."
)

ROWS: tuple[Verdict, ...] = (
    Verdict(
        "NKI-R16",
        "release notes 0.3 and 0.4: known issues",
        "error",
        "No engine divides",
        _called("nl.divide"),
        frozenset(("nl.divide",)),
        _NO_DIVISION,
        "nl.multiply(x, nl.reciprocal(y)), or nisa.reciprocal and nisa.tensor_tensor with "
        "op=nl.multiply; for a number multiply by 1 / number",
        "nl.divide(x, y)",
        since="0.3",
    ),
    Verdict(
        "NKI-R16",
        f"API reference 0.3 to 0.6: supported operators; release notes 0.3; {_KLR}",
        "error",
        "No engine divides",
        _divided,
        frozenset(),
        _NO_DIVISION,
        "nisa.reciprocal(dst, data) and op=nl.multiply; for a number "
        "op0=nl.multiply, operand0=1 / number",
        "op=nl.divide of an instruction",
        known=(DOCUMENTED, READ),
    ),
    Verdict(
        "NKI-R17",
        "release notes 0.3 and 0.4: known issues",
        "error",
        "No engine has remainders",
        _called("nl.mod"),
        frozenset(("nl.mod",)),
        "Remainders work in AWS's simulator and fail when a kernel is compiled.",
        "integers: nl.bitwise_and with 2**k - 1, for a power of 2; else x - y * floor(x / y) "
        "of multiply, reciprocal and a cast to an integer",
        "nl.mod(x, y)",
        since="0.3",
    ),
    Verdict(
        "NKI-R17",
        "release notes 0.3 and 0.4: known issues",
        "error",
        "No engine has remainders",
        _called("nl.fmod"),
        frozenset(("nl.fmod",)),
        "Remainders work in AWS's simulator and fail when a kernel is compiled.",
        "integers: nl.bitwise_and with 2**k - 1, for a power of 2",
        "nl.fmod(x, y)",
        since="0.3",
    ),
    Verdict(
        "NKI-R17",
        f"API reference 0.3 to 0.6: supported operators; release notes 0.3; {_KLR}",
        "error",
        "No engine has remainders",
        _remainder,
        frozenset(),
        "Remainders work in AWS's simulator and fail when a kernel is compiled.",
        "integers: op=nl.bitwise_and with 2**k - 1, for a power of 2",
        "op=nl.mod, op=nl.fmod of an instruction",
        known=(DOCUMENTED, READ),
    ),
    Verdict(
        "NKI-R34",
        f"API reference 0.6: supported operators; {_KLR}",
        "error",
        "logical_not is no operator of instructions",
        _negated,
        frozenset(),
        "The table of operators does not list it, and the open front end of 0.1 and 0.2 says "
        "that it is not supported. nl.logical_not, a function, is there.",
        "op0=nl.equal, operand0=0.0",
        "op0=nl.logical_not of an instruction",
        known=(DOCUMENTED, READ),
    ),
    Verdict(
        "NKI-R35",
        "API reference 0.2 to 0.6: supported operators",
        "note",
        "Operators are functions of nl by the names of the table",
        _otherwise_named,
        frozenset(),
        "The table of operators has functions of nl alone, as nl.maximum and nl.add; not those "
        "of NumPy, which kernels of neuronxcc.nki take, nor nl.max and nl.sum, which reduce a "
        "tile. Whether a release takes them all the same is not documented.",
        "op=nl.add, op=nl.maximum, op=nl.minimum",
        "op=np.add, op=nl.max of an instruction",
        verdict=UNSURE,
        cure=_by_its_name,
        known=(DOCUMENTED,),
    ),
    Verdict(
        "NKI-R18",
        "release notes 0.3 and 0.4: known issues",
        "error",
        "nl.power takes two tiles",
        _number_power,
        frozenset(("nl.power",)),
        "Both operands of nl.power are tiles; a number as the exponent or the base is not "
        "supported.",
        "nisa.tensor_scalar(dst, data, op0=nl.power, operand0=number); for "
        "squares nl.square(x), for roots nl.sqrt(x)",
        "nl.power(tile, 2.0)",
        since="0.3",
    ),
    Verdict(
        "NKI-R11",
        "release notes 0.3 and 0.4: known issues; \"'dst' free total elements 64 != "
        "'rhs' free total elements 1\"",
        "error",
        "Instructions of two tiles do not broadcast",
        _unlike,
        frozenset(f"nl.{name}" for name in ops.elementwise(NAMES["nl"])[1]),
        "Functions of two tiles take tiles of the same shape: no dim of size 1 repeats, "
        "neither a column nor a row.",
        "nisa.tensor_scalar(dst, data, op0=nl.add, operand0=column), or the view "
        "column.broadcast(1, n); a row is copied into all "
        "partitions: nisa.dma_copy(dst=t, src=x[0:1].broadcast(0, 128))",
        "nl.add(t, t[:, 0:1])",
        known=(DOCUMENTED, BUILT),
        since="0.3",
    ),
    *(
        Verdict(
            "NKI-R11",
            "API reference 0.3 to 0.6; \"'dst' free total elements 64 != 'rhs' free "
            'total elements 1"',
            severity,
            "Instructions of two tiles do not broadcast",
            _unequal(name),
            frozenset((name,)),
            "The two tiles have the same number of elements per partition. An operand of one "
            "element per partition is one of nisa.tensor_scalar, which is faster as well; others "
            "repeat by a view.",
            "repeat the source by a view: row.broadcast(0, 128) of a row in HBM, column.broadcast"
            "(1, n)"
            if "copy" in name
            else "nisa.tensor_scalar(dst, data, op0=nl.add, operand0=column), or "
            "column.broadcast(1, n) in its place",
            form,
            known=known,
            since="0.3",
            cure=_column if name == "tensor_tensor" else None,
        )
        for name, form, severity, known in (
            (
                "tensor_tensor",
                "nisa.tensor_tensor(dst, t, column, op=nl.add)",
                "error",
                (DOCUMENTED, BUILT),
            ),
            (
                "scalar_tensor_tensor",
                "nisa.scalar_tensor_tensor(..., operand1=column)",
                "error",
                (DOCUMENTED,),
            ),
            (
                "tensor_tensor_scan",
                "nisa.tensor_tensor_scan(dst, t, column, ...)",
                "error",
                (DOCUMENTED,),
            ),
            ("tensor_copy", "nisa.tensor_copy(t, column)", "error", (DOCUMENTED,)),
            (
                "tensor_copy_predicated",
                "nisa.tensor_copy_predicated(t, column, p)",
                "error",
                (DOCUMENTED,),
            ),
            ("select_reduce", "nisa.select_reduce(t, p, column, ...)", "error", (DOCUMENTED,)),
            ("dma_copy", "nisa.dma_copy(t, column)", "error", (DOCUMENTED,)),
        )
    ),
    Verdict(
        "NKI-R19",
        "release notes 0.3 and 0.4: known issues",
        "error",
        "nl.matmul takes x transposed",
        _untransposed,
        frozenset(("nl.matmul",)),
        "The transpose that nl.matmul is to insert does not compile: x has the contracted dim "
        "as its partitions, and transpose_x=True says so.",
        "nl.matmul(x, y, transpose_x=True) with x (K, M); nisa.nc_transpose makes it of (M, K)",
        "nl.matmul(x, y)",
        since="0.3",
    ),
    Verdict(
        "NKI-R20",
        "release notes 0.3 and 0.4: known issues",
        "error",
        "nl.copy stays in a memory before 0.6",
        _across,
        frozenset(("nl.copy",)),
        "Before 0.6 nl.copy runs on the Scalar Engine and does not copy from PSUM to SBUF. "
        "Since 0.6 it is nisa.tensor_copy into a new tile in SBUF.",
        "nisa.tensor_copy(sbuf_tile, psum_tile)",
        "nl.copy(psum_tile)",
        since="0.3",
        until="0.5",
    ),
    Verdict(
        "NKI-R21",
        '"SBUF and PSUM tensors must have at least 2 dimensions"',
        "error",
        "A tile has two dims, what a reduction makes as well",
        _one_dim,
        frozenset(_REDUCTIONS),
        "Without keepdims=True a reduction over all free dims makes a tile of one dim, and "
        "there is none on chip.",
        "keepdims=True",
        "nl.sum(t, axis=1)",
        known=(DOCUMENTED, BUILT),
        since="0.3",
    ),
    *(
        Verdict(
            "NKI-R22",
            '"Expected binary operator"; API reference 0.6',
            "error",
            "Instructions of two tiles take operators of two",
            _one_operand(name),
            frozenset((name,)),
            "nl.square, nl.abs, nl.rsqrt and their like have one operand: they are operators of "
            "nisa.tensor_scalar or functions of nisa.activation.",
            "nisa.activation(dst, op=nl.exp, data=t) with the operator you mean; for squares "
            "nisa.tensor_tensor(dst, t, t, op=nl.multiply)",
            f"nisa.{name}(..., op=nl.square)",
            known=(DOCUMENTED, BUILT),
            since="0.3",
        )
        for name in _OF_TWO
    ),
    *(
        Verdict(
            "NKI-R23",
            "release notes of SDK 2.29.0, taken out of later ones",
            "warning",
            "nl.softmax and nl.rms_norm in 0.3",
            _called(f"nl.{name}"),
            frozenset((f"nl.{name}",)),
            "The first release notes of 0.3 say that they fail on the chip, since they broadcast "
            "inside; those of later SDKs do not.",
            "the instructions: nisa.tensor_reduce, "
            "nisa.activation_reduce, nisa.reciprocal, nisa.tensor_scalar",
            f"nl.{name}(...)",
            since="0.3",
            until="0.3",
        )
        for name in ("softmax", "rms_norm")
    ),
    Verdict(
        "NKI-R24",
        "release notes 0.4: trn3; the table of operators names no generation",
        "note",
        "nl.square and nl.relu as operators before trn3",
        _newer_operator,
        frozenset(("tensor_scalar", "tensor_scalar_reduce")),
        "The table of operators lists both without a generation, the release notes of 0.4 for "
        "trn3. What becomes of them on earlier generations is in no public record.",
        "nisa.activation(dst, op=nl.square, data=t)",
        "nisa.tensor_scalar(dst, t, op0=nl.square, operand0=None)",
        verdict=UNSURE,
        since="0.4",
        targets=before("trn3"),
    ),
    Verdict(
        "NKI-R30",
        "API reference 0.3 to 0.6",
        "error",
        "tensor_scalar_reduce has its operands in one order",
        _turned,
        frozenset(("tensor_scalar_reduce",)),
        "reverse0=True of nisa.tensor_scalar_reduce is not supported yet.",
        "for 2 - t: op0=nl.multiply, operand0=-1.0 and the sum of the numbers, or "
        "nisa.tensor_scalar with reverse0=True and nisa.tensor_reduce",
        "nisa.tensor_scalar_reduce(..., reverse0=True)",
        since="0.3",
    ),
    Verdict(
        "NKI-R31",
        "API reference 0.3 to 0.6",
        "error",
        "Indices of rows that are added to are unique",
        _not_unique,
        frozenset(("dma_compute",)),
        "nisa.dma_compute adds to rows that indices choose with unique_indices=True alone.",
        "add up equal indices first; unique_indices=True promises that there are none",
        "nisa.dma_compute(dst.ap(..., vector_offset=i), ..., unique_indices=False)",
        since="0.3",
    ),
    Verdict(
        "NKI-R32",
        "API reference 0.3 to 0.6",
        "error",
        "scalar_tensor_tensor does not work on raw bits",
        _bits,
        frozenset(("scalar_tensor_tensor",)),
        "Both operators of nisa.scalar_tensor_tensor are arithmetic ones.",
        "nisa.tensor_scalar and nisa.tensor_tensor, one after the other",
        "nisa.scalar_tensor_tensor(..., op0=nl.bitwise_and, ...)",
        since="0.3",
    ),
    *(
        Verdict(
            "NKI-R33",
            "release notes 0.4",
            "error",
            "abs_max and abs_min are trn3's",
            test,
            calls,
            "nl.abs_max and nl.abs_min came with NKI 0.4, for trn3 alone.",
            "the greater of nl.maximum(x, y) and nl.negative(nl.minimum(x, y)) is the greatest "
            "magnitude",
            form,
            since="0.4",
            targets=before("trn3"),
        )
        for test, calls, form in (
            (
                _magnitude,
                frozenset(("tensor_scalar", "tensor_scalar_reduce", "tensor_tensor")),
                "op0=nl.abs_max of an instruction",
            ),
            (_called("nl.abs_max"), frozenset(("nl.abs_max",)), "nl.abs_max(x, y)"),
            (_called("nl.abs_min"), frozenset(("nl.abs_min",)), "nl.abs_min(x, y)"),
        )
    ),
    Verdict(
        "NKI-R25",
        "NCC_IBIR297",
        "warning",
        "Two operands in SBUF begin at one partition",
        _bases,
        frozenset(("tensor_tensor", "scalar_tensor_tensor", "tensor_tensor_scan")),
        "An engine reads each partition's elements of both tiles in one lane. Tiles that begin "
        "at different partitions have been refused, as two teams say, or copied first.",
        "nisa.tensor_copy one of the two to the partitions of the other",
        "nisa.tensor_tensor(u, t[0:32], t[32:64], op=nl.add)",
        verdict=UNSURE,
        known=(BUILT,),
    ),
    Verdict(
        "NKI-R26",
        "NCC_IXCG864",
        "note",
        "Squares that an activation adds up",
        _summed_squares,
        frozenset(("activation_reduce", "activation")),
        "One team has met this code for op=nl.square with a sum, in one version of the tools; "
        "AWS's kernel library has the form.",
        "nisa.tensor_tensor(dst, t, t, op=nl.multiply) and nisa.tensor_reduce",
        "nisa.activation_reduce(dst, op=nl.square, data=t, reduce_op=nl.add, ...)",
        verdict=UNSURE,
        known=(ONCE,),
    ),
)

#: found when a kernel has ended (kernel.py)
MIXED = Verdict(
    "NKI-R27",
    "NCC_EGCA111",
    "note",
    "Tiles at addresses beside automatic ones",
    never,
    frozenset(),
    "One team has met this code where tiles with address= and tiles without share SBUF "
    "until nothing fits: the compiler then does not spill.",
    "address= for all tiles of SBUF, or for none",
    "nl.ndarray(..., address=(0, 0)) and nl.ndarray(...)",
    verdict=UNSURE,
    known=(ONCE,),
    since="0.3",
)

#: found where a view is made (tensor.py)
OFFSET = Verdict(
    "NKI-R28",
    "NCC_INLA001",
    "note",
    "Run-time offsets in copies on chip",
    never,
    frozenset(),
    "One team has met this code for scalar_offset= in nisa.tensor_copy from SBUF to SBUF; the API "
    "reference has the form.",
    "nisa.dma_copy(dst, src.ap(..., scalar_offset=...))",
    "nisa.tensor_copy(dst, t.ap(pattern, scalar_offset=r))",
    verdict=UNSURE,
    known=(ONCE,),
)
