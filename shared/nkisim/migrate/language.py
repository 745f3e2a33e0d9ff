"""Functions and operators of `nl` in the new dialect: loads, stores, sums, elementwise."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..chip.ops import ARITHMETIC, COMPARISONS
from . import forms, placed
from .calls import ACTIVATIONS, BINARY, Calls, _is_none, arguments, in_new, old
from .index import NOT_REACHED, Box, Person

if TYPE_CHECKING:
    from .rewrite import Function

OPERATORS = {op.node: op.name for op in (*ARITHMETIC, *COMPARISONS) if op.name != "mod"}
#: functions of nl that mean an index expression, a loop or a size: no tile is made
PLAIN = frozenset(
    """ds affine_range sequential_range static_range ndarray zeros ones full
    zeros_like program_id num_programs device_print par_dim""".split()
)
_GONE = {
    "program_id": "a grid: write it as loops in the kernel; kernel[2] is for two cores",
    "num_programs": "a grid: write it as loops in the kernel",
    "loop_reduce": "nl.loop_reduce: add up in a tile, or in PSUM",
    "all_reduce": "nl.all_reduce: a reduction over partitions, or nki.collectives",
    "gather_flattened": "nl.gather_flattened: nisa.nc_n_gather",
}


class Language:
    """Rewrites the calls of `nl` of one function."""

    def __init__(self, f: Function, calls: Calls):
        self.f, self.calls = f, calls
        self._within = Box()  # what a mask leaves of the tiles of a call

    def call(self, call: ast.Call, dotted: str, into: str = "", hint: str = "") -> str:
        """Return the source of a call of nl; with `into`, write it there and return that."""
        name = dotted.rpartition(".")[2]
        if name in _GONE:
            raise Person(_GONE[name])
        special = getattr(self, f"_{name}", None)
        if special is not None:
            return special(call, dotted, into, hint)
        if not in_new(dotted):
            raise Person(f"nl.{name} is not in the new dialect")
        if name in PLAIN:
            return self.f.plain_call(call)
        return self._computing(call, dotted, name, into, hint)

    # -- memory ------------------------------------------------------------------------------------

    def _ndarray(self, call: ast.Call, dotted: str, into: str, hint: str) -> str:
        name = dotted.rpartition(".")[2]
        given = arguments(old(dotted)[dotted], call)
        tiles = self.f.seen.of(call).tiles()
        buffer = self.f.source.dotted(given["buffer"]) if "buffer" in given else ""
        if "buffer" in given and isinstance(given["buffer"], ast.Call):
            return placed.tiles_in_a_list(self.f, call, given, hint)
        texts = {k: self.f.expr(v) for k, v in given.items() if k != "shape"}
        if buffer.endswith(".psum") and name == "zeros":
            name = "ndarray"  # the first product overwrites
        shape = self.f.shape_of(given["shape"], tiles[0].blocks if tiles else 0)
        if tiles and tiles[0].memory != "hbm" and shape.endswith(",)"):
            shape = f"{shape[:-2]}, 1)"  # on chip there are two dims
        return (
            f"{self.f.nl}.{name}("
            + ", ".join([shape, *(f"{k}={v}" for k, v in texts.items())])
            + ")"
        )

    _zeros = _ones = _full = _ndarray

    def _par_dim(self, call: ast.Call, dotted: str, into: str, hint: str) -> str:
        return self.f.expr(call.args[0])

    def _source(self, node: ast.expr, box: Box | None, dims: int) -> str:
        """Return an access to HBM with as many dims as the tile that it is moved to or from."""
        text = self.f.expr(node, box)
        tiles = self.f.seen.of(node).tiles()
        if tiles and len(tiles[0].shape) == 1 and dims == 2 and not text.endswith(")"):
            return f"{text}.expand_dim(1)"
        return text

    def _load(self, call: ast.Call, dotted: str, into: str, hint: str) -> str:
        given = arguments(old(dotted)[dotted], call)
        box = self._box(given)
        result = self.f.seen.of(call).tiles()
        if not result:
            raise Person(NOT_REACHED)
        source = self._source(given["src"], box, len(result[0].shape))
        if into:
            self.f.before.append(f"{self.f.nisa}.dma_copy(dst={into}, src={source})")
            return into
        if box.sizes:
            tile = self.calls.make(
                self.f.fresh(hint or "loaded"),
                self.calls.shape(result, {}),
                self.calls.dtype(result, given.get("dtype"), {"src": given["src"]}),
                "sbuf",
            )
            cut = self.calls._cut(box, len(result[0].shape), result[0])
            self.f.before.append(f"{self.f.nisa}.dma_copy(dst={tile}[{cut}], src={source})")
            return tile
        dtype = f", dtype={self.f.expr(given['dtype'])}" if "dtype" in given else ""
        return f"{self.f.nl}.load({source}{dtype})"

    def _store(self, call: ast.Call, dotted: str, into: str, hint: str) -> str:
        given = arguments(old(dotted)[dotted], call)
        box = self._box(given)
        tiles = self.f.seen.of(given["value"]).tiles()
        if not self.f.seen.of(given["value"]).values and not isinstance(
            given["value"], ast.Constant
        ):
            raise Person(NOT_REACHED)
        if not tiles:
            raise Person("a number is stored: make a tile of it with nisa.memset")
        value = self.f.expr(given["value"], box)
        if box.sizes and isinstance(given["value"], ast.Name):
            value = f"{value}[{self.calls._cut(box, len(tiles[0].shape), tiles[0])}]"
        if tiles[0].memory == "psum" or self.f.is_psum(value):
            value = self._drained(value, given["value"], tiles[0].shape)
        dst = self._source(given["dst"], box, len(tiles[0].shape))
        return f"{self.f.nl}.store({dst}, {value})"

    def _drained(self, value: str, node: ast.expr, shape: tuple[int, ...]) -> str:
        """Emit a copy of a PSUM tile to SBUF, which a transfer needs."""
        like = f"{value}.shape" if value.isidentifier() else f"({', '.join(map(str, shape))})"
        tile = self.calls.make(
            self.f.fresh("drained"), like, f"{self.f.nl}.{self.f.dtype_of(node)}", "sbuf"
        )
        self.f.before.append(f"{self.f.nisa}.tensor_copy(dst={tile}, src={value})")
        return tile

    def _box(self, given: dict[str, ast.expr]) -> Box:
        mask = given.pop("mask", None)
        return self.f.index.box(mask) if mask is not None and not _is_none(mask) else Box()

    def _broadcast_to(self, call: ast.Call, dotted: str, into: str, hint: str) -> str:
        given = arguments(old(dotted)[dotted], call)
        source = given.get("src", given.get("data", next(iter(given.values()))))
        old_tiles, new_tiles = self.f.seen.of(source).tiles(), self.f.seen.of(call).tiles()
        if not old_tiles or not new_tiles:
            raise Person(NOT_REACHED)
        if old_tiles[0].shape[0] == new_tiles[0].shape[0]:
            return self.f.plain_call(call)
        shape = given["shape"]
        rows = (
            self.f.expr(shape.elts[0])
            if isinstance(shape, ast.Tuple)
            else str(new_tiles[0].shape[0])
        )
        if old_tiles[0].shape[0] != 1:
            raise Person("partitions are repeated: load them so from HBM")
        return placed.row_in_all_partitions(self.f, source, rows)

    # -- products ----------------------------------------------------------------------------------

    def _matmul(self, call: ast.Call, dotted: str, into: str, hint: str) -> str:
        given = arguments(old(dotted)[dotted], call)
        box = self._box(given)
        x, y = given["x"], given["y"]
        turned = "transpose_x" in given and not (
            isinstance(given["transpose_x"], ast.Constant) and not given["transpose_x"].value
        )
        stationary, moving = self.f.expr(x, box), self.f.expr(y, box)
        nl, nisa = self.f.nl, self.f.nisa
        if not turned:
            shape = self.f.seen.of(x).tiles()
            if not shape:
                raise Person(NOT_REACHED)
            flipped = f"({shape[0].shape[1]}, {shape[0].shape[0]})"
            dtype = f"{nl}.{self.f.dtype_of(x)}"
            psum = self.calls.make(self.f.fresh("turned"), flipped, dtype, "psum")
            self.f.before.append(f"{nisa}.nc_transpose(dst={psum}, data={stationary})")
            turned_x = self.calls.make(self.f.fresh("stationary"), flipped, dtype, "sbuf")
            self.f.before.append(f"{nisa}.tensor_copy(dst={turned_x}, src={psum})")
            stationary = turned_x
        result = self.f.seen.of(call).tiles()
        if into and self.f.kind_of_target == "psum":
            self.calls.matmul(stationary, moving, into)
            return into
        made = self.calls.make(
            self.f.fresh(hint if not into else "product"),
            self.calls.shape(result, {}),
            f"{nl}.float32",
            "psum",
        )
        self.calls.matmul(stationary, moving, made)
        if into:
            self.f.before.append(f"{nisa}.tensor_copy(dst={into}, src={made})")
            return into
        self.f.psum_names.add(made)
        return made

    # -- elementwise and reductions ----------------------------------------------------------------

    def operator(self, node: ast.BinOp | ast.Compare, into: str = "") -> str:
        """Rewrite an operator between tiles."""
        if isinstance(node, ast.Compare):
            if len(node.ops) != 1:
                raise Person("a chained comparison of tiles")
            left, right = node.left, node.comparators[0]
            op: type[ast.AST] = type(node.ops[0])
        else:
            left, right, op = node.left, node.right, type(node.op)
        if op not in OPERATORS:
            raise Person(f"`{ast.unparse(node)}`: there is no instruction for this operator")
        return self._apply(OPERATORS[op], [left, right], {}, node, into)

    def _computing(self, call: ast.Call, dotted: str, name: str, into: str, hint: str) -> str:
        if name in ("mod", "fmod"):
            raise Person("no engine has remainders: nl.bitwise_and for powers of 2")
        given = arguments(old(dotted)[dotted], call)
        box = self._box(given)
        if box.sizes:
            return self._sliced(call, dotted, name, box, into, hint)
        tiles = [v for v in given.values() if self.f.seen.of(v).is_tile]
        rest = {k: v for k, v in given.items() if v not in tiles}
        if name in BINARY or name in OPERATORS.values():
            operands = list(given.values())[:2]
            return self._apply(
                name, operands, {k: v for k, v in rest.items() if v not in operands}, call, into
            )
        if into and name in ACTIVATIONS and len(tiles) == 1 and set(rest) <= {"dtype"}:
            self.f.before.append(
                f"{self.f.nisa}.activation(dst={into}, op={self.f.nl}.{name}, "
                f"data={self._text(tiles[0])})"
            )
            return into
        if into and name == "copy" and len(tiles) == 1:
            self.f.before.append(
                f"{self.f.nisa}.tensor_copy(dst={into}, src={self._text(tiles[0])})"
            )
            return into
        if self._within.sizes:
            raise Person(f"nl.{name} with a mask: compute on slices of the tiles")
        if name in forms.REDUCTIONS and tiles:
            call = forms.with_keepdims(call, given, len(self.f.seen.of(tiles[0]).tiles()[0].shape))
        text = self.f.plain_call(call, self._needed_dtype(call, tiles, rest))
        if into:
            self.f.before.append(f"{self.f.nisa}.tensor_copy(dst={into}, src={text})")
            return into
        return text

    def _sliced(
        self, call: ast.Call, dotted: str, name: str, box: Box, into: str, hint: str
    ) -> str:
        """Compute on the slices of the tiles that a mask leaves; return the tile written."""
        result = self.f.seen.of(call).tiles()
        if not result or self._within.sizes or name in ("where", "softmax", "transpose"):
            raise Person(f"nl.{name} with a mask: compute on slices of the tiles")
        tiles = {
            k: v
            for k, v in arguments(old(dotted)[dotted], call).items()
            if self.f.seen.of(v).is_tile
        }
        if any(
            len(self.f.seen.of(v).tiles()[0].shape) != len(result[0].shape) for v in tiles.values()
        ):
            raise Person(f"nl.{name} with a mask: compute on slices of the tiles")
        if not into:
            into = self.calls.make(
                self.f.fresh(hint or name),
                self.calls.shape(result, tiles),
                self.calls.dtype(result, None, tiles),
                "sbuf",
            )
        plain = ast.copy_location(
            ast.Call(call.func, call.args, [k for k in call.keywords if k.arg != "mask"]), call
        )
        self._within = box
        try:
            cut = self.calls._cut(box, len(result[0].shape), result[0])
            self._computing(plain, dotted, name, f"{into}[{cut}]", "")
        finally:
            self._within = Box()
        return into

    def _text(self, node: ast.expr) -> str:
        """Return an operand, or the slice of it that a mask leaves."""
        return self.calls._operand(node, self._within) if self._within.sizes else self.f.expr(node)

    def _needed_dtype(self, node: ast.AST, tiles: list[ast.expr], rest: dict[str, ast.expr]) -> str:
        """Return the dtype= that has to be said, as wrappers take that of the first tile."""
        result = {t.dtype for t in self.f.seen.of(node).tiles()}
        first = {t.dtype for t in self.f.seen.of(tiles[0]).tiles()} if tiles else set()
        if "dtype" in rest or result == first or len(result) != 1:
            return ""
        dtype = next(iter(result))
        return "" if dtype == "bool" else f"{self.f.nl}.{dtype}"

    def _apply(
        self,
        name: str,
        operands: list[ast.expr],
        rest: dict[str, ast.expr],
        node: ast.AST,
        into: str,
    ) -> str:
        """Rewrite a function of two operands; at least one is a tile."""
        tiles = [v for v in operands if self.f.seen.of(v).is_tile]
        if not tiles:
            raise Person(NOT_REACHED)
        shapes = [self.f.seen.of(v).tiles()[0].shape for v in tiles]
        rows = max(s[0] for s in shapes)
        texts = [
            placed.row_in_all_partitions(self.f, v, str(rows))
            if v in tiles and self.f.seen.of(v).tiles()[0].shape[0] == 1 < rows
            else self._text(v)
            for v in operands
        ]
        shapes = [(rows, *s[1:]) for s in shapes]
        nl = self.f.nl
        if into and name in BINARY and len(tiles) == 2 and len(set(shapes)) == 1:
            self.f.before.append(
                f"{self.f.nisa}.tensor_tensor(dst={into}, data1={texts[0]}, "
                f"data2={texts[1]}, op={nl}.{name})"
            )
            return into
        if into and name in BINARY and len(tiles) == 1:
            k = operands.index(tiles[0])
            reverse = ", reverse0=True" if k == 1 and name == "subtract" else ""
            self.f.before.append(
                f"{self.f.nisa}.tensor_scalar(dst={into}, data={texts[k]}, "
                f"op0={nl}.{name}, operand0={texts[1 - k]}{reverse})"
            )
            return into
        given = (
            self.f.expr(rest["dtype"]) if "dtype" in rest else self._needed_dtype(node, tiles, rest)
        )
        dtype = f", dtype={given}" if given else ""
        text = self._function(name, operands, texts, dtype)
        if into:
            self.f.before.append(f"{self.f.nisa}.tensor_copy(dst={into}, src={text})")
            return into
        return text

    def _function(self, name: str, operands: list[ast.expr], texts: list[str], dtype: str) -> str:
        """Return a function of two operands in a form that builds."""
        sizes = [t[0].shape if (t := self.f.seen.of(v).tiles()) else None for v in operands]
        rows = max(s[0] for s in sizes if s)
        shapes = [(rows, *s[1:]) if s else None for s in sizes]
        if name == "divide":
            return forms.quotient(self.f, texts, shapes, dtype)
        if name == "power" and shapes[0] and not shapes[1]:
            return forms.power(self.f, texts[0], operands[1], dtype)
        first, second = shapes
        if first and second:
            texts = [forms.spread(texts[0], first, second), forms.spread(texts[1], second, first)]
        return f"{self.f.nl}.{name}({', '.join(texts)}{dtype})"
