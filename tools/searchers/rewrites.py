"""Edits of a kernel's text that the remedies of advice ask for: what a language model would write.

`rewrites(source, cause, lines)` yields (what it is, new text). Each is a guess that the evaluation
has to judge; nothing here knows a kernel. The text is that of a kernel of `import nki`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

#: (first line, first column, last line, end column, what belongs there); lines from 1
Edit = tuple[int, int, int, int, str]


@dataclass
class Text:
    """A source, its tree, and the lines that advice names."""

    source: str
    lines: Sequence[int]

    def __post_init__(self) -> None:
        self.tree = ast.parse(self.source)
        self.parent = {c: p for p in ast.walk(self.tree) for c in ast.iter_child_nodes(p)}

    def statements(self, name: str) -> Iterator[tuple[ast.Expr, dict[str, ast.expr]]]:
        """Yield the statements that call an instruction on the lines, and its arguments by name."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Expr) and _calls(node, name):
                if any(node.lineno <= n <= (node.end_lineno or 0) for n in self.lines):
                    yield node, _arguments(node)

    def block(self, node: ast.stmt) -> list[ast.stmt]:
        """Return the statements that one stands among."""
        for _, field in ast.iter_fields(self.parent[node]):  # a body, or what follows an else
            if isinstance(field, list) and node in field:
                return field
        raise ValueError(f"line {node.lineno} stands among no statements")

    def loop(self, node: ast.AST) -> ast.For | None:
        """Return the innermost loop around a node."""
        while node in self.parent:
            node = self.parent[node]
            if isinstance(node, ast.For):
                return node
        return None

    def function(self, node: ast.AST) -> ast.AST:
        """Return the function that a node is in, else the file."""
        while node in self.parent and not isinstance(node, ast.FunctionDef):
            node = self.parent[node]
        return node

    def tile(self, node: ast.expr) -> ast.Assign | None:
        """Return the statement that allocates the tile of `name` or `name[...]`."""
        base = node.value if isinstance(node, ast.Subscript) else node
        if not isinstance(base, ast.Name):
            return None
        mine = [
            n
            for n in ast.walk(self.function(node))
            if isinstance(n, ast.Assign)
            and ast.unparse(n.targets[0]) == base.id
            and isinstance(n.value, ast.Call)
            and any(k.arg == "dtype" for k in n.value.keywords)
        ]
        return mine[0] if len(mine) == 1 else None

    def tile_before(self, load: ast.Expr) -> ast.Assign | None:
        """Return the statement before a load, in its block, that allocates its tile."""
        name = ast.unparse(_arguments(load)["dst"])
        before = [n for n in self.block(load) if isinstance(n, ast.Assign)]
        mine = [n for n in before if n.lineno < load.lineno and ast.unparse(n.targets[0]) == name]
        return mine[-1] if mine else None

    def edited(self, edits: list[Edit]) -> str:
        """Return the text with edits, which do not overlap."""
        rows = self.source.splitlines(keepends=True)
        for first, start, last, end, text in sorted(edits, reverse=True):
            head = rows[first - 1].encode()[:start].decode()
            tail = rows[last - 1].encode()[end:].decode() if last <= len(rows) else ""
            rows[first - 1 : last] = [head + text + tail]
        return "".join(rows)


def _calls(node: ast.Expr, name: str) -> bool:
    call = node.value
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == name
    )


def _arguments(node: ast.Expr) -> dict[str, ast.expr]:
    assert isinstance(node.value, ast.Call)
    return {k.arg: k.value for k in node.value.keywords if k.arg}


def _place(node: ast.expr | ast.stmt) -> tuple[int, int, int, int]:
    return node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0


def _whole(node: ast.stmt, text: str = "") -> Edit:
    """Return an edit of the lines of a statement."""
    return node.lineno, 0, (node.end_lineno or 0) + 1, 0, text


# -- one function for each remedy ----------------------------------------------------------------


def descriptors_before(text: Text) -> Iterator[tuple[str, list[Edit]]]:
    """Have descriptors made before the kernel starts: on the lines, and in all of the function."""
    around = [text.function(node) for node, _ in text.statements("dma_copy")]
    whole = [range(f.lineno, (f.end_lineno or 0) + 1) for f in around if hasattr(f, "lineno")]
    for lines, where in ((text.lines, ""), ([n for r in whole for n in r], " everywhere")):
        edits = set()
        for node, given in Text(text.source, lines).statements("dma_copy"):
            if "dge_mode" not in given:
                last, end = node.end_lineno or 0, (node.end_col_offset or 0) - 1
                edits.add((last, end, last, end, ", dge_mode=nisa.dge_mode.none"))
        if edits:
            yield f"dge_mode=nisa.dge_mode.none{where}", list(edits)


def short_operands(text: Text) -> Iterator[tuple[str, list[Edit]]]:
    """Make the tiles that a product reads bfloat16; what fills them converts."""
    edits = {}
    for _, given in text.statements("nc_matmul"):
        for name in ("stationary", "moving"):
            tile = text.tile(given[name]) if name in given else None
            if tile is not None:
                assert isinstance(tile.value, ast.Call)
                dtype = next(k.value for k in tile.value.keywords if k.arg == "dtype")
                edits[_place(dtype)] = "nl.bfloat16"
    if edits:
        yield "operands of bfloat16", [(*place, new) for place, new in edits.items()]


def one_pass_sum(text: Text) -> Iterator[tuple[str, list[Edit]]]:
    """Let the activation that writes a tile sum it as well."""
    for node, given in text.statements("tensor_reduce"):
        for other in text.block(node):
            if not (isinstance(other, ast.Expr) and _calls(other, "activation")):
                continue
            made = {k: ast.unparse(v) for k, v in _arguments(other).items()}
            if made["dst"] == ast.unparse(given["data"]) and "reduce_op" not in made:
                made |= {
                    "reduce_op": "nl.add",
                    "reduce_res": ast.unparse(given["dst"]),
                    "reduce_cmd": "nisa.reduce_cmd.reset_reduce",
                }
                call = ", ".join(f"{k}={v}" for k, v in made.items())
                line = f"{' ' * node.col_offset}nisa.activation({call})\n"
                yield "function and sum in one", [_whole(other), _whole(node, line)]


def square_on_scalar(text: Text) -> Iterator[tuple[str, list[Edit]]]:
    """Let the Scalar Engine square a tile."""
    edits = []
    for node, given in text.statements("tensor_tensor"):
        made = {k: ast.unparse(v) for k, v in given.items()}
        if made["data1"] == made["data2"] and made["op"] == "nl.multiply":
            call = f"nisa.activation(dst={made['dst']}, op=nl.square, data={made['data1']})\n"
            edits.append(_whole(node, " " * node.col_offset + call))
    if edits:
        yield "squares on the Scalar Engine", edits


def kept_tiles(text: Text) -> Iterator[tuple[str, list[Edit]]]:
    """Keep tiles that a loop loads, for the same loop after it that loads them again."""
    for node, given in text.statements("dma_copy"):
        loop, tile = text.loop(node), text.tile_before(node)
        if loop is None or tile is None or loop not in getattr(text.parent[loop], "body", ()):
            continue
        for first in text.block(loop):
            if first is loop:
                break
            if isinstance(first, ast.For) and _heads(first) == _heads(loop):
                for load in first.body:
                    if isinstance(load, ast.Expr) and _calls(load, "dma_copy"):
                        same = ast.unparse(_arguments(load)["src"]) == ast.unparse(given["src"])
                        if same and _turn(loop):
                            yield "tiles kept in SBUF", _kept(first, load, loop, node, tile)


def _heads(loop: ast.For) -> str:
    return f"{ast.unparse(loop.target)} in {ast.unparse(loop.iter)}"


def _turn(loop: ast.For) -> str:
    """Return the number of a loop's turn, from 0, as an expression; "" if that is not known."""
    args = loop.iter.args if isinstance(loop.iter, ast.Call) else []
    name = ast.unparse(loop.target)
    if len(args) == 1:
        return name
    if len(args) == 3 and ast.unparse(args[0]) == "0":
        return f"{name} // {ast.unparse(args[2])}"
    return ""


def _kept(
    first: ast.For, load: ast.Expr, loop: ast.For, again: ast.Expr, tile: ast.Assign
) -> list[Edit]:
    """Return the edits: a list filled by the first loop, and read by the second one."""
    name = f"kept_{first.lineno}"
    inner, after = " " * load.col_offset, (load.end_lineno or 0) + 1
    taken = f"{inner}{ast.unparse(tile.targets[0])} = {name}[{_turn(loop)}]\n"
    kept = f"{inner}{name}.append({ast.unparse(_arguments(load)['dst'])})\n"
    return [
        (first.lineno, 0, first.lineno, 0, f"{' ' * first.col_offset}{name} = []\n"),
        (after, 0, after, 0, kept),
        _whole(tile),
        _whole(again, taken),
    ]


def hoisted_load(text: Text) -> Iterator[tuple[str, list[Edit]]]:
    """Load a tile before the loop around it, if the place that it loads is always the same."""
    for node, given in text.statements("dma_copy"):
        loop, tile = text.loop(node), text.tile_before(node)
        if loop is None or tile is None:
            continue
        changes = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
        if changes & {n.id for n in ast.walk(given["src"]) if isinstance(n, ast.Name)}:
            continue
        here = " " * loop.col_offset
        moved = "".join(f"{here}{ast.unparse(n)}\n" for n in (tile, node))
        at = (loop.lineno, 0, loop.lineno, 0, moved)
        yield "load before the loop", [at, _whole(tile), _whole(node)]


#: cause -> what does as its remedy says
REWRITES: dict[str, tuple[Callable[[Text], Iterator[tuple[str, list[Edit]]]], ...]] = {
    "descriptors": (descriptors_before,),
    "fp32-passes": (short_operands,),
    "separate-sums": (one_pass_sum,),
    "vector-squares": (square_on_scalar,),
    "repeated-loads": (hoisted_load, kept_tiles),
}


def rewrites(source: str, cause: str, lines: Sequence[int]) -> Iterator[tuple[str, str]]:
    """Yield (what it is, text) of the edits that the remedy of a cause asks for at some lines."""
    for rewrite in REWRITES.get(cause, ()):
        text = Text(source, lines)
        for what, edits in rewrite(text):
            yield what, text.edited(edits)
