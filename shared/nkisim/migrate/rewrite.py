"""A function of the old dialect, statement by statement; what is not touched keeps its text."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ..lint.program import Source
from . import placed
from .calls import OPS, Calls
from .index import NOT_REACHED, Box, Indices, Person
from .language import Language
from .observe import Observer
from .products import products_added

_RANGES = ("affine_range", "sequential_range", "static_range")
_NP_DTYPES = frozenset("""float32 float16 int8 int16 int32 uint8 uint16 uint32 bool_""".split())


@dataclass(frozen=True)
class Edit:
    """Replace the lines `first` to `last` of the file (from 1) by others."""

    first: int
    last: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Decision:
    """What a person has to decide: a line of the old file, and why."""

    line: int
    text: str
    why: str


class Function:
    """Rewrites one function. `nl`, `nisa`: what the file calls the two modules."""

    def __init__(
        self,
        node: ast.FunctionDef,
        source: Source,
        seen: Observer,
        nl: str,
        nisa: str,
        lines: list[str],
    ):
        self.node, self.source, self.seen, self.lines = node, source, seen, lines
        self.nl, self.nisa = nl, nisa
        self.index = Indices(seen, node)
        self.calls = Calls(self)
        self.language = Language(self, self.calls)
        self.before: list[str] = []
        self.edits: list[Edit] = []
        self.decisions: list[Decision] = []
        self.psum_names: set[str] = set()
        self.shapes: set[str] = set()  # names of shapes whose block dims have moved
        self.kind_of_target = ""  # where the target of a statement lies
        self.dtypes_of_target: set[str] = set()
        self.needs_sizes = False  # the file needs a function for the bytes of a dtype
        self._box = Box()
        self._taken = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} | {
            a.arg for a in ast.walk(node) if isinstance(a, ast.arg)
        }
        self._target = ""
        #: a product with a name that the next line adds to a sum: the addition -> the product
        self._added = products_added(node, source)

    # -- names -------------------------------------------------------------------------------------

    def fresh(self, hint: str) -> str:
        """Return a name for a new tile: the hint if it is the statement's own target."""
        if hint and hint == self._target:
            return hint
        name, n = hint or "tile", 1
        while name in self._taken:
            n += 1
            name = f"{hint or 'tile'}_{n}"
        self._taken.add(name)
        return name

    def named(self, text: str) -> str:
        """Give an operand a name, a view of a view in two steps; return the name."""
        name = self.fresh("loaded" if ".load(" in text else "part")
        part, rest, view = text.partition("].reshape_dim(")
        if rest and len(text) > 70:
            self.before += [f"{name} = {part}]", f"{name} = {name}.reshape_dim({view}"]
        else:
            self.before.append(f"{name} = {text}")
        return name

    def is_psum(self, text: str) -> bool:
        return text in self.psum_names

    def dtype_of(self, node: ast.AST) -> str:
        dtypes = {t.dtype for t in self.seen.of(node).tiles()}
        if len(dtypes) != 1:
            raise Person("the line was not reached by the run, or has tiles of several dtypes")
        return next(iter(dtypes))

    # -- expressions -------------------------------------------------------------------------------

    def expr(self, node: ast.AST, box: Box | None = None) -> str:
        """Return the source of an expression in the new dialect; what must come before it is put
        into `before`."""
        if box is not None:
            outer, self._box = self._box, box
            try:
                return ast.unparse(self._new(node))
            finally:
                self._box = outer
        return ast.unparse(self._new(node))

    def _new(self, node: ast.AST) -> ast.AST:
        """Return a rewritten copy of an expression."""
        if isinstance(node, ast.Call):
            dotted = self.source.dotted(node.func)
            if (
                isinstance(node.func, ast.Attribute)
                and node.func.attr == "broadcast_to"
                and self.seen.of(node.func.value).is_tile
            ):
                return _parsed(placed.method(self, node))
            if dotted.startswith("nki.isa.") and not self.seen.of(node).values:
                raise Person(NOT_REACHED)
            if (
                dotted.startswith("nki.isa.")
                and dotted.count(".") == 2
                and self.seen.of(node).is_tile
            ):
                return _parsed(self.calls.instruction(node, dotted))
            if dotted.startswith("nki.language.") and dotted.count(".") == 2:
                return _parsed(self.language.call(node, dotted))
            if dotted == "nki.language.constants.sizeinbytes":
                self.needs_sizes = True
                return _parsed(f"size_in_bytes({self.expr(node.args[0])})")
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            return self._subscript(node)
        if isinstance(node, (ast.BinOp, ast.Compare)) and self.seen.of(node).is_tile:
            return _parsed(self.language.operator(node))
        if isinstance(node, ast.Compare) and any(
            isinstance(op, (ast.Is, ast.IsNot))
            and not (isinstance(side, ast.Constant) and side.value is None)
            for op, side in zip(node.ops, node.comparators)
        ):
            equal = _Children(self._new).visit(node)  # since 0.3 `is` is refused
            assert isinstance(equal, ast.Compare)
            equal.ops = [
                {ast.Is: ast.Eq(), ast.IsNot: ast.NotEq()}.get(type(op), op) for op in equal.ops
            ]
            return equal
        if isinstance(node, ast.UnaryOp) and self.seen.of(node).is_tile:
            raise Person(f"`{ast.unparse(node)}`: an operator on a tile")
        if isinstance(node, ast.Attribute):
            dotted = self.source.dotted(node)
            if dotted == "nki.language.hbm":
                return _parsed(f"{self.nl}.shared_hbm")
            if dotted.startswith("numpy.") and dotted[6:] in _NP_DTYPES:
                return _parsed(f"{self.nl}.{dotted[6:]}")
        return _Children(self._new).visit(node)

    def plain_call(self, call: ast.Call, dtype: str = "") -> str:
        """Return a call with its arguments rewritten; `dtype`: one to add."""
        new = _Children(self._new).visit(call)
        text = ast.unparse(new)
        return f"{text[:-1]}, dtype={dtype})" if dtype else text

    def op(self, node: ast.AST) -> str:
        """Return an operator: NumPy's functions become those of nl."""
        dotted = self.source.dotted(node)
        name = dotted.rpartition(".")[2]
        if dotted.startswith("numpy.") and name in OPS:
            return f"{self.nl}.{OPS[name]}"
        if dotted.startswith("nki.language.") and name in ("max", "min", "sum", "prod"):
            return f"{self.nl}.{OPS[name]}"
        return self.expr(node)

    def shape_of(self, node: ast.AST, blocks: int = 0) -> str:
        """Return a shape without nl.par_dim, and with block dims behind the partition."""
        elements = list(node.elts) if isinstance(node, (ast.Tuple, ast.List)) else []
        marked = [
            n
            for n, e in enumerate(elements)
            if isinstance(e, ast.Call) and self.source.dotted(e.func).endswith(".par_dim")
        ]
        if not elements:
            if blocks and not (isinstance(node, ast.Name) and node.id in self.shapes):
                raise Person("a shape with block dims that is no tuple")
            return self.expr(node)
        texts = [
            self.expr(e.args[0]) if n in marked and isinstance(e, ast.Call) else self.expr(e)
            for n, e in enumerate(elements)
        ]
        if marked and marked[0]:
            texts.insert(0, texts.pop(marked[0]))
        return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"

    def _subscript(self, node: ast.Subscript) -> ast.AST:
        owner = self.seen.of(node.value)
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            return self._of_shape(node)
        if not owner.tiles():
            return _Children(self._new).visit(node)
        return _parsed(self.subscript_of(node))

    def _of_shape(self, node: ast.Subscript) -> ast.AST:
        assert isinstance(node.value, ast.Attribute)
        blocks = {t.blocks for t in self.seen.of(node.value.value).tiles()}
        if blocks <= {0}:
            return _Children(self._new).visit(node)
        k = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if len(blocks) > 1 or not isinstance(k, int):
            raise Person("the shape of a tensor with block dims")
        count = blocks.pop()
        k = k + 1 if k < count else 0 if k == count else k
        return ast.Subscript(node.value, ast.Constant(k), ast.Load())

    def subscript_of(self, node: ast.Subscript) -> str:
        """Return an access to a tensor, with slices for index expressions, blocks as free dims."""
        tiles = self.seen.of(node.value).tiles()
        keys = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        base = ast.unparse(self._new(node.value))
        blocks = tiles[0].blocks if tiles else 0
        on_chip = bool(tiles) and tiles[0].memory != "hbm"
        if any(self.seen.of(k).is_tile for k in keys):
            raise Person(
                "rows are chosen by a tile: x.ap(vector_offset=...) or x.vector_select(0, indices)"
            )
        if blocks == 1 and placed.is_list_of_tiles(self, node.value):
            head = f"{base}[{self.expr(keys[0])}]"
            if len(keys) == 1:
                return head
            keys, blocks, base = keys[1:], 0, head
        if any(self.index.is_index(k) for k in keys):
            if blocks:
                inside, wanting = self.index.rewritten(keys[blocks:], self._box, on_chip)
                if self.index.view:
                    raise Person("a block of a tensor is read as a view of more dims")
                parts = [
                    inside.split(", ")[0],
                    *map(self.expr, keys[:blocks]),
                    *inside.split(", ")[1:],
                ]
                return f"{base}[{', '.join(parts)}]"
            inside, wanting = self.index.rewritten(keys, self._box, on_chip)
            rank = len(tiles[0].shape) if tiles else 0
            return (
                f"{base}[{inside}]"
                + self.index.view
                + (f".expand_dim({rank})" if wanting and not on_chip else "")
            )
        texts = [ast.unparse(_Children(self._new).visit(k)) for k in keys]
        if blocks:
            inner = [*texts[blocks:]] or [":"]
            texts = [inner[0], *texts[:blocks], *inner[1:]] if texts != ["..."] else texts
        return f"{base}[{', '.join(texts)}]"

    # -- statements --------------------------------------------------------------------------------

    def rewrite(self) -> None:
        """Go through the function and fill `edits` and `decisions`."""
        for part in self.node.body:
            self._statement(part)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.For):
            self._for(node)
        elif isinstance(node, (ast.If, ast.While)):
            self._header(node, node.test)
        elif isinstance(node, (ast.With, ast.FunctionDef, ast.Try, ast.ClassDef)):
            if isinstance(node, ast.FunctionDef) and self._is_kernel_code(node):
                self._decide(node, "a function in a function, with instructions in it")
        elif isinstance(
            node, (ast.Assign, ast.AugAssign, ast.Expr, ast.Return, ast.Assert, ast.AnnAssign)
        ):
            self._simple(node)
            return
        for field in ("body", "orelse", "finalbody"):
            if not isinstance(node, ast.FunctionDef):
                for part in getattr(node, field, ()):
                    self._statement(part)

    def _is_kernel_code(self, node: ast.AST) -> bool:
        return any(
            isinstance(n, ast.Call)
            and self.source.dotted(n.func).startswith(("nki.isa.", "nki.language."))
            for n in ast.walk(node)
        )

    def _for(self, node: ast.For) -> None:
        if isinstance(node.iter, ast.Call):
            name = self.source.dotted(node.iter.func)
            if name.startswith("nki.language.") and name.rpartition(".")[2] in _RANGES:
                self._header(node, node.iter, "range")
                return
        self._header(node, node.iter)

    def _header(self, node: ast.stmt, part: ast.expr, function: str = "") -> None:
        """Rewrite the expression in the head of a statement; `function`: what it calls now."""
        self.before = []
        try:
            if function:
                assert isinstance(part, ast.Call)
                new = f"{function}({', '.join(map(self.expr, part.args))})"
            else:
                new = self.expr(part)
            if self.before:
                raise Person("an instruction in the head of a statement")
        except Person as why:
            self.before = []
            self._decide(node, str(why))
            return
        if new != ast.unparse(part):
            self._replace_in(part, new)

    def _simple(self, node: ast.stmt) -> None:
        self.before, self._target = [], ""
        try:
            new = self._lines(node)
        except Person as why:
            self._decide(node, str(why))
            return
        lines = [*self.before, *new]
        if len(lines) == 1 and ast.dump(ast.parse(lines[0]).body[0]) == ast.dump(
            ast.parse(ast.unparse(node)).body[0]
        ):
            return
        self._edit(node, lines)

    def _lines(self, node: ast.stmt) -> list[str]:
        """Return what a simple statement becomes, after `before`."""
        if any(node is product for product, _ in self._added.values()):
            return []  # the addition makes it
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            return self._assign(node.targets[0], node.value)
        if isinstance(node, ast.AugAssign):
            return self._augmented(node)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            dotted = self.source.dotted(node.value.func)
            if dotted.startswith("nki.isa."):
                self.calls.instruction(node.value, dotted)
                return []
            return [self.expr(node.value)]
        if isinstance(node, ast.Return) and node.value is not None:
            return [f"return {self.expr(node.value)}"]
        return [ast.unparse(_Children(self._new).visit(node))]

    def _assign(self, target: ast.expr, value: ast.expr) -> list[str]:
        if self._is_of_indices(value):
            return []  # slices say it where it was used
        if (
            isinstance(target, ast.Name)
            and isinstance(value, ast.Tuple)
            and any(
                isinstance(e, ast.Call) and self.source.dotted(e.func).endswith(".par_dim")
                for e in value.elts
            )
        ):
            self.shapes.add(target.id)
            return [f"{target.id} = {self.shape_of(value)}"]
        if isinstance(target, ast.Name):
            return self._assign_name(target.id, value)
        if isinstance(target, ast.Subscript) and self.seen.of(target.value).is_tile:
            self._assign_part(target, value)
            return []
        return [f"{ast.unparse(target)} = {self.expr(value)}"]

    def _assign_name(self, name: str, value: ast.expr) -> list[str]:
        uses = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)}
        if (
            isinstance(value, ast.ListComp)
            and len(value.generators) == 1
            and name not in uses
            and isinstance(value.generators[0].target, ast.Name)
        ):
            one = value.generators[0]
            test = [f"    if {' and '.join(map(self.expr, one.ifs))}:"] if one.ifs else []
            return [
                f"{name} = []",
                f"for {ast.unparse(one.target)} in {self.expr(one.iter)}:",
                *test,
                f"    {'    ' * len(test)}{name}.append({self.expr(value.elt)})",
            ]
        self._target = "" if name in uses else name
        if isinstance(value, ast.Call):
            dotted = self.source.dotted(value.func)
            hint = name if self._target else f"{name}_new"
            text = ""
            if (
                dotted.startswith("nki.isa.")
                and dotted.count(".") == 2
                and self.seen.of(value).is_tile
            ):
                text = self.calls.instruction(value, dotted, hint=hint)
            elif dotted.startswith("nki.language.") and dotted.count(".") == 2:
                text = self.language.call(value, dotted, hint=hint)
            if text:
                if text in self.psum_names:
                    self.psum_names.add(name)
                return [] if text == name else [f"{name} = {text}"]
        return [f"{name} = {self.expr(value)}"]

    def _assign_part(self, target: ast.Subscript, value: ast.expr) -> None:
        """Rewrite `tile[...] = value`: an instruction writes there."""
        whole = isinstance(target.slice, ast.Constant) and target.slice.value is Ellipsis
        owners = self.seen.of(target.value).tiles()
        owner = owners[0]
        into = ast.unparse(target.value) if whole else self.subscript_of(target)
        self.kind_of_target = owner.memory
        self.dtypes_of_target = {t.dtype for t in owners}
        nisa = self.nisa
        if isinstance(value, ast.Call):
            dotted = self.source.dotted(value.func)
            if dotted.startswith("nki.isa.") and self.seen.of(value).is_tile:
                self.calls.instruction(value, dotted, into)
                return
            if (
                dotted.startswith("nki.language.")
                and self.seen.of(value).is_tile
                and owner.memory != "hbm"
            ):
                self.language.call(value, dotted, into)
                return
        if isinstance(value, ast.BinOp) and self.seen.of(value).is_tile and owner.memory != "hbm":
            self.language.operator(value, into)
            return
        if not self.seen.of(value).is_tile:
            self.before.append(f"{nisa}.memset(dst={into}, value={self.expr(value)})")
        elif owner.memory == "hbm":
            self.before.append(f"{self.nl}.store({into}, {self.expr(value)})")
        elif self.seen.of(value).tiles()[0].memory == "hbm":
            self.before.append(f"{nisa}.dma_copy(dst={into}, src={self.expr(value)})")
        else:
            self.before.append(f"{nisa}.tensor_copy(dst={into}, src={self.expr(value)})")

    def _augmented(self, node: ast.AugAssign) -> list[str]:
        owner = node.target.value if isinstance(node.target, ast.Subscript) else node.target
        tiles = self.seen.of(owner).tiles() or self._known_tiles(owner)
        if not tiles:
            return [f"{ast.unparse(node.target)} {_sign(node.op)}= {self.expr(node.value)}"]
        whole = isinstance(node.target, ast.Name)
        into = ast.unparse(node.target) if whole else self._target_of(node.target)
        self.kind_of_target = tiles[0].memory
        if node in self._added:
            node = ast.copy_location(
                ast.AugAssign(node.target, node.op, self._added[node][1]), node
            )
        if (
            isinstance(node.value, ast.Call)
            and tiles[0].memory == "psum"
            and isinstance(node.op, ast.Add)
        ):
            dotted = self.source.dotted(node.value.func)
            if dotted == "nki.isa.nc_matmul":
                self.calls.instruction(node.value, dotted, into)
                return []
            if dotted == "nki.language.matmul":
                self.language.call(node.value, dotted, into)
                return []
        names = {ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply"}
        if type(node.op) not in names:
            raise Person(f"`{ast.unparse(node)}`: an operator on a tile")
        value, name = self.expr(node.value), names[type(node.op)]
        if self.seen.of(node.value).is_tile:
            self.before.append(
                f"{self.nisa}.tensor_tensor(dst={into}, data1={into}, "
                f"data2={value}, op={self.nl}.{name})"
            )
        else:
            self.before.append(
                f"{self.nisa}.tensor_scalar(dst={into}, data={into}, "
                f"op0={self.nl}.{name}, operand0={value})"
            )
        return []

    def _target_of(self, target: ast.expr) -> str:
        assert isinstance(target, ast.Subscript)
        if isinstance(target.slice, ast.Constant) and target.slice.value is Ellipsis:
            return ast.unparse(target.value)
        return self.subscript_of(target)

    def _known_tiles(self, owner: ast.expr) -> list:
        """Return what the value was that a name was last bound to (its target is not observed)."""
        if not isinstance(owner, ast.Name):
            return []
        tiles: list = []
        for node in ast.walk(self.node):
            if (
                isinstance(node, ast.Assign)
                and node.lineno < owner.lineno
                and any(isinstance(t, ast.Name) and t.id == owner.id for t in node.targets)
            ):
                tiles = self.seen.of(node.value).tiles()
        return tiles

    def _is_of_indices(self, value: ast.expr) -> bool:
        """Return whether an assignment makes index expressions, which slices take the place of."""
        if self.seen.of(value).affines() or self.seen.of(value).is_mask:
            return True
        base = value.value if isinstance(value, ast.Subscript) else value
        return self.source.dotted(base).endswith("language.mgrid")

    # -- edits -------------------------------------------------------------------------------------

    def _edit(self, node: ast.stmt, lines: list[str]) -> None:
        indent = self.lines[node.lineno - 1][: node.col_offset]
        assert node.end_lineno is not None
        self.edits.append(
            Edit(
                node.lineno,
                node.end_lineno,
                tuple(indent + line for text in lines for line in text.split("\n")),
            )
        )

    def _replace_in(self, node: ast.expr, new: str) -> None:
        """Replace an expression that lies on one line."""
        line = self.lines[node.lineno - 1]
        if node.end_lineno != node.lineno:
            raise_at = Decision(node.lineno, line.strip(), "an expression over several lines")
            self.decisions.append(raise_at)
            return
        raw = line.encode()
        self.lines[node.lineno - 1] = (
            raw[: node.col_offset] + new.encode() + raw[node.end_col_offset :]
        ).decode()

    def _decide(self, node: ast.AST, why: str) -> None:
        line = node.lineno  # type: ignore[attr-defined]
        self.decisions.append(Decision(line, self.lines[line - 1].strip(), why))


class _Children(ast.NodeTransformer):
    """Applies a function to the children of a node, and returns a copy of it."""

    def __init__(self, function) -> None:  # type: ignore[no-untyped-def]
        self.function = function

    def visit(self, node: ast.AST) -> ast.AST:
        fields = dict(ast.iter_fields(node))
        for name, value in fields.items():
            if isinstance(value, list):
                fields[name] = [self.function(v) if isinstance(v, ast.AST) else v for v in value]
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                fields[name] = self.function(value)
        return ast.copy_location(type(node)(**fields), node)


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _sign(op: ast.operator) -> str:
    return {
        ast.Add: "+",
        ast.Sub: "-",
        ast.Mult: "*",
        ast.Div: "/",
        ast.FloorDiv: "//",
        ast.Mod: "%",
        ast.Pow: "**",
        ast.BitAnd: "&",
        ast.BitOr: "|",
        ast.BitXor: "^",
        ast.LShift: "<<",
        ast.RShift: ">>",
        ast.MatMult: "@",
    }[type(op)]
