"""The scan of kernels in the dialect of `neuronxcc.nki` (beta 1), which traces loops once.

The SDK traces the body of `affine_range` and `sequential_range` once: the index is a symbol, and
so is a comparison of it. As the test of an `if` statement that is fine. In an expression
(`a if i > 0 else b`, `i < n and ...`) Python asks the symbol for its truth, and there is one answer
for all iterations. Here the index is an int, and such expressions run as Python says.
"""

from __future__ import annotations

import ast

from .scan import Scan

_LOOPS = ("affine_range", "sequential_range")
_BUILTINS = frozenset(("min", "max", "abs", "int", "float", "round", "range", "divmod", "bool"))


class Beta1Scan(Scan):
    """Goes through a function's body, with the names that depend on a loop index so far."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.symbols: set[str] = set()
        self.in_mask = False
        self.traced = 0  # loops that are traced once, around this place
        self.numbers: set[str] = set()  # names that hold a Python number from before the loop
        self.bound: set[str] = {
            a.arg for a in ast.walk(self.function.node) if isinstance(a, ast.arg)
        }
        self.ended: dict[str, int] = {}  # tiles whose scope has ended -> line of their loop
        self.left: dict[str, tuple[str, int]] = {}  # those of a Python block -> what, line

    def _symbolic(self, node: ast.AST) -> bool:
        """Return whether a value depends on a loop index by arithmetic and comparison alone."""
        if isinstance(node, ast.Name):
            return node.id in self.symbols
        if isinstance(node, ast.BinOp):
            return self._symbolic(node.left) or self._symbolic(node.right)
        if isinstance(node, ast.UnaryOp):
            return self._symbolic(node.operand)
        return isinstance(node, ast.Compare) and any(
            map(self._symbolic, (node.left, *node.comparators))
        )

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Leave out a function in the function: it has a code of its own."""

    # -- loops and scopes --------------------------------------------------------------------------

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        traced = self.loop_call(node) in _LOOPS
        if isinstance(node.target, ast.Name):
            (self.symbols.add if traced else self.symbols.discard)(node.target.id)
        self.forget(node.target)
        before = set(self.bound)
        self._bind_names(node.target)
        numbers = set(self.numbers)
        if not traced and not self.traced:
            self.numbers.clear()  # an int of an unrolled loop is an int
        self.traced += traced
        for part in node.body:
            self.visit(part)
        self.traced -= traced
        self.numbers = numbers
        if traced:
            for name in self.tiles - before:
                self.ended[name] = node.lineno
            self.bound = before
        else:
            self._leave("loop", node, before)
        for part in node.orelse:
            self.visit(part)

    def _leave(self, what: str, node: ast.For | ast.If, before: set[str]) -> None:
        """Note the tiles that a block has made: it ends here, and so may their names."""
        made = {
            n.id
            for part in (*node.body, *node.orelse)
            for n in ast.walk(part)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        for name in made & self.tiles - before:
            self.left[name] = what, node.lineno

    def _bind_names(self, target: ast.AST) -> None:
        self.bound |= {
            n.id
            for n in ast.walk(target)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and node.id in self.ended and node.id not in self.bound:
            self.say(
                node, "out_of_scope", f"{node.id}, made in the loop of line {self.ended[node.id]}"
            )
        elif isinstance(node.ctx, ast.Load) and node.id in self.left:
            kind, line = self.left.pop(node.id)  # once is enough
            self.say(node, "out_of_block", f"{node.id}, made in the {kind} of line {line}")

    def visit_Assign(self, node: ast.Assign) -> None:
        super().visit_Assign(node)
        for target in node.targets:
            self._bind_names(target)
            if isinstance(target, ast.Name):
                self._counts(node, target.id, node.value)
                symbolic = self._symbolic(node.value)
                (self.symbols.add if symbolic else self.symbols.discard)(target.id)
                self.ended.pop(target.id, None)
                if self.left.pop(target.id, None):
                    self.bound.discard(target.id)  # as if for the first time
                if not self.traced:
                    (self.numbers.add if _is_number(node.value) else self.numbers.discard)(
                        target.id
                    )

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.generic_visit(node)
        if isinstance(node.target, ast.Name):
            self._counts(node, node.target.id, ast.BinOp(node.target, node.op, node.value))

    def _counts(self, node: ast.AST, name: str, value: ast.AST) -> None:
        """Report `n = n + 1` in a traced loop, where n is a number from before it."""
        if (
            self.traced
            and name in self.numbers
            and not self._tiles_in(value)
            and any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(value))
        ):
            self.say(node, "counter", f"{name} is changed in the loop")

    def _tiles_in(self, value: ast.AST) -> bool:
        return any(isinstance(n, ast.Call) or self.is_tile(n) for n in ast.walk(value))

    def visit_While(self, node: ast.While) -> None:
        if (
            self.function.launched
            and not isinstance(node.test, ast.Call)
            and not isinstance(node.test, ast.Name)
        ):
            self.say(node, "old_while", "while")
        self._condition(node.test)
        self.generic_visit(node)

    # -- conditions --------------------------------------------------------------------------------

    def visit_If(self, node: ast.If) -> None:
        """Go past the test: as that of a statement, a comparison of indices is supported."""
        self._condition(node.test)
        before = set(self.bound)
        for part in (*node.body, *node.orelse):
            self.visit(part)
        self._leave("if", node, before)

    def _condition(self, test: ast.AST) -> None:
        parts = test.values if isinstance(test, ast.BoolOp) else [test]
        for part in parts:
            sides = [part]
            if isinstance(part, ast.Compare):
                if any(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in part.ops):
                    continue
                sides = [part.left, *part.comparators]
            if any(map(self.is_tile, sides)):
                self.say(part, "old_tile_condition", f"`{ast.unparse(part)}` in a condition")

    def visit_keyword(self, node: ast.keyword) -> None:
        before, self.in_mask = self.in_mask, node.arg == "mask"
        self.generic_visit(node)
        self.in_mask = before

    def visit_IfExp(self, node: ast.IfExp) -> None:
        if self._symbolic(node.test):
            self.say(
                node, "condition_on_index", "a conditional expression tests a loop index", "note"
            )
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Report `and` and `or`: in a mask it decides what is computed, elsewhere it may not."""
        if any(map(self._symbolic, node.values[:-1])):
            word = "and" if isinstance(node.op, ast.And) else "or"
            self.say(
                node,
                "condition_on_index",
                f"`{word}` asks for the truth of a comparison of a loop index (write "
                f"{'&' if word == 'and' else '|'}, each comparison in parentheses)",
                "warning" if self.in_mask else "note",
            )
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if (
            isinstance(node.func, ast.Name)
            and node.func.id in _BUILTINS
            and node.func.id not in self.source.functions
            and any(map(self._symbolic, node.args))
        ):
            self.say(node, "builtin_on_index", f"`{ast.unparse(node)}`")
        self.generic_visit(node)


def _is_number(node: ast.AST) -> bool:
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    return isinstance(node, ast.Constant) and type(node.value) in (int, float, bool)
