"""Instructions and functions of the old dialect as those of the new one: one call at a time."""

from __future__ import annotations

import ast
import inspect
from typing import TYPE_CHECKING, Any

from ..language.beta1 import isa as old_isa
from ..language.beta1 import language as old_nl
from ..language.nki import isa as new_isa
from ..language.nki import language as new_nl
from .index import NOT_REACHED, Box, Person
from .observe import Tile

if TYPE_CHECKING:
    from .rewrite import Function

#: instruction -> the parameter whose shape the result has
SHAPED_LIKE = {
    "tensor_tensor": "data1",
    "tensor_tensor_scan": "data0",
    "tensor_copy": "src",
    "affine_select": "on_true_tile",
    "range_select": "on_true_tile",
}
#: operators that the new dialect spells in its own names only
OPS = {
    "add": "add",
    "sum": "add",
    "subtract": "subtract",
    "multiply": "multiply",
    "prod": "multiply",
    "max": "maximum",
    "amax": "maximum",
    "maximum": "maximum",
    "min": "minimum",
    "amin": "minimum",
    "minimum": "minimum",
    "exp": "exp",
    "tanh": "tanh",
    "sqrt": "sqrt",
    "square": "square",
    "copy": "copy",
    "log": "log",
    "abs": "abs",
    "power": "power",
    "divide": "divide",
}
ACTIVATIONS = frozenset("exp log sqrt rsqrt relu gelu silu sigmoid tanh square".split())
BINARY = frozenset("add subtract multiply maximum minimum".split())


def arguments(signature: inspect.Signature, call: ast.Call) -> dict[str, ast.expr]:
    """Return a call's arguments by name; raise Person if they cannot be told."""
    if any(isinstance(a, ast.Starred) for a in call.args) or any(
        k.arg is None for k in call.keywords
    ):
        raise Person("arguments are passed with * or **")
    names = [p.name for p in signature.parameters.values()]
    if len(call.args) > len(names):
        raise Person("more arguments than the function takes")
    given = dict(zip(names, call.args))
    given.update({str(k.arg): k.value for k in call.keywords})
    return given


def signature_of(home: Any, name: str) -> inspect.Signature:
    """Return the signature of a function of a facade; raise Person if it has none."""
    try:
        return inspect.signature(getattr(home, name))
    except (AttributeError, TypeError, ValueError):
        raise Person(f"{name} is not modelled, so its arguments are not known") from None


def old(name: str) -> dict[str, inspect.Signature]:
    """Return the signature of a name of the old dialect, "nki.isa.f" or "nki.language.f"."""
    home = old_isa if name.startswith("nki.isa.") else old_nl
    return {name: signature_of(home, name.rpartition(".")[2])}


def in_new(name: str) -> bool:
    """Return whether the new dialect has a name, "nki.language.f"."""
    home = new_isa if name.startswith("nki.isa.") else new_nl
    try:
        getattr(home, name.rpartition(".")[2])
    except AttributeError:
        return False
    return True


class Calls:
    """Rewrites the calls of one function; statements that have to come before go to `f.before`."""

    def __init__(self, f: Function):
        self.f = f

    # -- tiles -------------------------------------------------------------------------------------

    def shape(self, result: list[Tile], like: dict[str, ast.expr], formula: str = "") -> str:
        """Return the source of a new tile's shape: an operand's, or what the run has shown."""
        shapes = list(dict.fromkeys(t.shape for t in result))
        for node in like.values():
            seen = self.f.seen.of(node)
            if (
                isinstance(node, ast.Name)
                and seen.is_tile
                and not any(t.blocks for t in seen.tiles())
                and list(dict.fromkeys(t.shape for t in seen.tiles())) == shapes
            ):
                return f"{node.id}.shape"
        if formula:
            return formula
        if len(shapes) != 1:
            raise Person("a new tile has other shapes in other iterations, and no operand has them")
        return f"({', '.join(map(str, shapes[0]))}{',' if len(shapes[0]) == 1 else ''})"

    def dtype(self, result: list[Tile], given: ast.expr | None, like: dict[str, ast.expr]) -> str:
        """Return the source of a new tile's dtype."""
        if given is not None and not (isinstance(given, ast.Constant) and given.value is None):
            return self.f.expr(given)
        dtypes = list(dict.fromkeys(t.dtype for t in result))
        for node in like.values():
            tiles = self.f.seen.of(node).tiles()
            whole = node.value if isinstance(node, ast.Subscript) else node
            if (
                isinstance(whole, ast.Name)
                and tiles
                and list(dict.fromkeys(t.dtype for t in tiles)) == dtypes
            ):
                return f"{whole.id}.dtype"  # of a part it is the same
        if len(dtypes) != 1:
            raise Person("a new tile has other dtypes in other iterations")
        return f"{self.f.nl}.{dtypes[0]}"

    def make(self, name: str, shape: str, dtype: str, buffer: str) -> str:
        """Emit the making of a tile; return its name."""
        nl = self.f.nl
        self.f.before.append(f"{name} = {nl}.ndarray({shape}, dtype={dtype}, buffer={nl}.{buffer})")
        return name

    # -- instructions ------------------------------------------------------------------------------

    def instruction(self, call: ast.Call, dotted: str, into: str = "", hint: str = "") -> str:
        """Emit an instruction with its destination; return what holds the result.

        `into`: source of a destination that is there; else a tile is made, named after `hint`.
        """
        name = dotted.rpartition(".")[2]
        if not in_new(dotted):
            raise Person(f"nisa.{name} is not in the new dialect")
        given = arguments(old(dotted)[dotted], call)
        special = getattr(self, f"_{name}", None)
        if special is not None:
            return special(given, call, into, hint)
        return self._emit(name, given, call, into, hint)

    def _operand(self, node: ast.expr, box: Box | None) -> str:
        """Return an operand; a whole tile is cut to what a mask leaves."""
        text = self.f.expr(node, box)
        tiles = self.f.seen.of(node).tiles()
        if box is None or not box.sizes or not tiles or not isinstance(node, ast.Name):
            return text
        return f"{text}[{self._cut(box, len(tiles[0].shape), tiles[0])}]"

    @staticmethod
    def _cut(box: Box, rank: int, tile: Tile) -> str:
        return ", ".join(
            f"0:{box.size(e, str(tile.shape[e]))}" if e in box.sizes and tile.shape[e] > 1 else ":"
            for e in range(rank)
        )

    def _emit(
        self,
        name: str,
        given: dict[str, ast.expr],
        call: ast.Call,
        into: str,
        hint: str,
        formula: str = "",
        buffer: str = "",
        named: dict[str, str] | None = None,
    ) -> str:
        """Emit an instruction; `formula`: the shape of its result, `named`: operands by name."""
        mask, dtype = given.pop("mask", None), given.pop("dtype", None)
        box = self.f.index.box(mask) if mask is not None and not _is_none(mask) else None
        result = self.f.seen.of(call).tiles()
        params = signature_of(new_isa, name).parameters
        tiles = {k: v for k, v in given.items() if self.f.seen.of(v).is_tile and k != "dst"}
        first = SHAPED_LIKE.get(name, "data")
        like = {first: tiles[first]} if first in tiles else tiles
        texts = {
            k: self.f.op(v)
            if k.startswith(("op", "reduce_op", "comp_op"))
            else (named or {}).get(k) or self._operand(v, box)
            for k, v in given.items()
        }
        unknown = [k for k in texts if k not in params]
        if unknown:
            raise Person(f"nisa.{name} has no {unknown[0]}= in the new dialect")
        if "dst" in texts:
            dst = texts.pop("dst")
        elif into:
            dst = into
        else:
            if not result:
                raise Person(NOT_REACHED)
            where = buffer or result[0].memory
            formula = formula or self._hoisted(result, like, texts)
            dst = self.f.fresh(hint or name)
            self.make(
                dst, self.shape(result, like, formula), self.dtype(result, dtype, like), where
            )
            if box is not None and box.sizes:
                inside = ", ".join(
                    [
                        f"dst={dst}[{self._cut(box, len(result[0].shape), result[0])}]",
                        *(f"{k}={v}" for k, v in texts.items()),
                    ]
                )
                self.f.before.append(f"{self.f.nisa}.{name}({inside})")
                return dst
        inside = ", ".join([f"dst={dst}", *(f"{k}={v}" for k, v in texts.items())])
        self.f.before.append(f"{self.f.nisa}.{name}({inside})")
        return dst

    def _hoisted(self, result: list[Tile], like: dict[str, ast.expr], texts: dict[str, str]) -> str:
        """Give an operand a name where the new tile gets its shape from it; return that shape."""
        shapes = list(dict.fromkeys(t.shape for t in result))
        for param, node in like.items():
            distinct = list(dict.fromkeys(t.shape for t in self.f.seen.of(node).tiles()))
            if (
                distinct == shapes
                and not isinstance(node, ast.Name)
                and (len(shapes) > 1 or isinstance(node, ast.Call))
                and not texts[param].isidentifier()
            ):
                texts[param] = self.f.named(texts[param])
            if distinct == shapes and texts[param].isidentifier():
                return f"{texts[param]}.shape"
        return ""

    def _dims(self, node: ast.expr, *dims: int) -> str:
        """Return "x.shape[0]" ... for a tile with a name, else ""."""
        if not isinstance(node, ast.Name):
            return ""
        return ", ".join(f"{node.id}.shape[{d}]" for d in dims)

    def _nc_transpose(
        self, given: dict[str, ast.expr], call: ast.Call, into: str, hint: str
    ) -> str:
        data = given["data"]
        for name in [n for n in given if n not in ("data", "engine", "mask")]:
            given.pop(name)  # dtype: it does not cast
        result = self.f.seen.of(call).tiles()
        if not result:
            raise Person(NOT_REACHED)
        dtypes = {t.dtype for t in self.f.seen.of(data).tiles()}
        if into and self.f.kind_of_target == "psum" and self.f.dtypes_of_target == dtypes:
            self.f.before.append(
                f"{self.f.nisa}.nc_transpose(dst={into}, data={self.f.expr(data)})"
            )
            return into
        swapped = self._dims(data, 1, 0) if len(result[0].shape) == 2 else ""
        text = self.f.expr(data)
        if len(dtypes) > 1 and not text.isidentifier():
            text = self.f.named(text)
        made = self.make(
            self.f.fresh("turned"),
            f"({swapped})" if swapped else self.shape(result, {}),
            f"{text}.dtype" if text.isidentifier() else f"{self.f.nl}.{self.f.dtype_of(data)}",
            "psum" if result[0].memory == "psum" or max(result[0].shape) > 32 else "sbuf",
        )
        self.f.before.append(f"{self.f.nisa}.nc_transpose(dst={made}, data={text})")
        if into:
            self.f.before.append(f"{self.f.nisa}.tensor_copy(dst={into}, src={made})")
            return into
        return made

    def matmul(self, stationary: str, moving: str, into: str, extra: str = "") -> None:
        """Emit a product into a PSUM tile."""
        self.f.before.append(
            f"{self.f.nisa}.nc_matmul(dst={into}, stationary={stationary}, moving={moving}{extra})"
        )

    def _nc_matmul(self, given: dict[str, ast.expr], call: ast.Call, into: str, hint: str) -> str:
        result = self.f.seen.of(call).tiles()
        rows, columns = (self._dims(given[k], 1) for k in ("stationary", "moving"))
        formula = (
            f"({rows}, {columns})"
            if rows and columns and result and len(result[0].shape) == 2
            else ""
        )
        if into:
            return self._emit("nc_matmul", given, call, into, hint)
        given.pop("dtype", None)
        named = {}
        if not formula and len({t.shape for t in result}) > 1:
            named = {
                k: text if (text := self.f.expr(given[k])).isidentifier() else self.f.named(text)
                for k in ("stationary", "moving")
            }
            free = [f"{named['moving']}.shape[{d}]" for d in range(1, len(result[0].shape))]
            formula = f"({named['stationary']}.shape[1], {', '.join(free)})"
        dst = self.f.fresh(hint or "product")
        self.make(dst, self.shape(result, {}, formula), f"{self.f.nl}.float32", "psum")
        return self._emit("nc_matmul", given, call, dst, hint, named=named)

    def _tensor_reduce(
        self, given: dict[str, ast.expr], call: ast.Call, into: str, hint: str
    ) -> str:
        data, axes = given["data"], _axes(given.get("axis"))
        tiles = self.f.seen.of(data).tiles()
        rank = len(tiles[0].shape) if tiles else 0
        gone = sorted(a % rank for a in axes) if rank else []
        inner = bool(gone) and gone != list(range(rank - len(gone), rank))
        if not axes or "keepdims" in given or not tiles or "mask" in given:
            if inner:
                raise Person("the reduced axes are not the last ones: permute a view first")
            return self._emit("tensor_reduce", given, call, into, hint)
        name = self.f.expr(data)
        if inner:  # since 0.3 only the last dims can be reduced
            order = tuple([d for d in range(rank) if d not in gone] + gone)
            name = self.f.named(f"{name}.permute({order})")
            gone = list(range(rank - len(gone), rank))
            new = gone[0] if len(gone) == 1 else tuple(gone)
            given["axis"] = ast.parse(str(new), mode="eval").body
        if into:
            return self._emit("tensor_reduce", given, call, into, hint, named={"data": name})
        if not name.isidentifier():
            name = self.f.named(name)
        kept = [f"{name}.shape[{d}]" for d in range(rank) if d not in gone]
        shape = f"({', '.join(kept if len(kept) > 1 else [*kept, '1'])})"
        return self._emit("tensor_reduce", given, call, into, hint, shape, named={"data": name})

    def _memset(self, given: dict[str, ast.expr], call: ast.Call, into: str, hint: str) -> str:
        value = self.f.expr(given["value"])
        if not into:
            into = self.make(
                self.f.fresh(hint or "filled"),
                self.f.shape_of(given["shape"]),
                self.f.expr(given["dtype"]),
                "sbuf",
            )
        self.f.before.append(f"{self.f.nisa}.memset(dst={into}, value={value})")
        return into

    def _iota(self, given: dict[str, ast.expr], call: ast.Call, into: str, hint: str) -> str:
        """Emit iota with the pattern of an index expression that runs along its axes."""
        affines = self.f.seen.of(given["expr"]).affines()
        if len(set(affines)) != 1:
            raise Person(
                "nisa.iota of an index expression that changes: give its pattern, offset "
                "and channel_multiplier"
            )
        index = affines[0]
        pattern = [[c, n] for c, n in zip(index.coeffs[1:], index.shape[1:])]
        if not into:
            into = self.make(
                self.f.fresh(hint or "iota"),
                self.shape(self.f.seen.of(call).tiles(), {}),
                self.f.expr(given["dtype"]),
                "sbuf",
            )
        self.f.before.append(
            f"{self.f.nisa}.iota(dst={into}, pattern={pattern}, offset={index.const}, "
            f"channel_multiplier={index.coeffs[0]})"
        )
        return into

    def _affine_select(
        self, given: dict[str, ast.expr], call: ast.Call, into: str, hint: str
    ) -> str:
        raise Person(
            "nisa.affine_select: write its predicate as pattern, offset, "
            "channel_multiplier and cmp_op against 0"
        )


def _axes(node: ast.expr | None) -> tuple[int, ...]:
    """Return the axes that an argument names; () if the source does not say them."""
    try:
        value = ast.literal_eval(node) if node is not None else ()
    except ValueError:
        return ()
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
