"""A class of mixed quality: staff's solutions, changed at random as students' are.

    python tests/labkit/mutants.py LAB COUNT FOLDER

writes COUNT submissions to FOLDER, the same ones every time.
"""

from __future__ import annotations

import ast
import random
import sys
from pathlib import Path

from labkit.starter.markers import split_file

ROOT = Path(__file__).parents[2]
_SWAPS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult}


class Mutate(ast.NodeTransformer):
    """Change one thing: a number, an operator, the order of two arguments, or drop a statement."""

    def __init__(self, rng: random.Random, at: int):
        self.rng, self.at, self.seen = rng, at, 0

    def _here(self) -> bool:
        self.seen += 1
        return self.seen == self.at

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if type(node.value) is int and self._here():
            return ast.copy_location(ast.Constant(node.value + self.rng.choice([-1, 1, 7])), node)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        swap = _SWAPS.get(type(node.op))
        if swap is not None and self._here():
            node.op = swap()
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if isinstance(node.value, ast.Call) and self._here():
            return ast.copy_location(ast.Pass(), node)
        return self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.slice, ast.Tuple) and len(node.slice.elts) == 2 and self._here():
            node.slice.elts.reverse()
        return node


def mutant(text: str, seed: int) -> str:
    """Return a file with one thing changed inside a function."""
    rng = random.Random(seed)
    tree = ast.parse(text)
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    for _ in range(20):
        chosen = rng.choice(functions)
        change = Mutate(rng, rng.randint(1, 40))
        chosen.body = [change.visit(node) for node in chosen.body]
        if change.seen >= change.at:
            break
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def submissions(lab: str, count: int) -> dict[str, str]:
    """Return student -> kernels.py: a fifth right, a fifth not started, the rest changed."""
    path = ROOT / "labs" / lab / "kernels.py"
    solved, stubbed = path.read_text("utf-8"), split_file(path)[0]
    found = {}
    for i in range(count):
        text = solved + f"# {i}\n" if i % 5 == 0 else stubbed if i % 5 == 1 else mutant(solved, i)
        found[f"student{i:03}"] = text
    return found


if __name__ == "__main__":
    for student, kernels in submissions(sys.argv[1], int(sys.argv[2])).items():
        folder = Path(sys.argv[3]) / student
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "kernels.py").write_text(kernels, "utf-8")
