"""Subscripts by index expressions become slices, and masks that cut a box become shorter slices.

`x[t * 128 + i_p, i_f]` with i_p = nl.arange(128)[:, None] is x[t * 128:t * 128 + 128, 0:512]. The
grid that the index expressions span has axes; each axis has to lie along one dim of the tensor, in
the same order. What does not is for a person: a transpose, a diagonal, two indices in one dim.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from .observe import Affine, Observer

NOT_REACHED = "the line was not reached by the run"


class Person(Exception):
    """This cannot be rewritten mechanically; the text says why."""


@dataclass
class Box:
    """What a mask leaves of the axes of a grid: axis -> the number of elements, as source."""

    sizes: dict[int, str] = field(default_factory=dict)

    def size(self, axis: int, whole: str) -> str:
        return self.sizes.get(axis, whole)


@dataclass(frozen=True)
class Term:
    """One dim's subscript: source of its start, and the axis, step and size that it runs along."""

    start: str
    axis: int = -1  # -1: a number
    step: int = 1
    size: str = ""
    inner: int = -1  # the axis of a second index, which runs through each step
    inner_size: str = ""


class Indices:
    """Reads subscripts and masks of one function with what the run has shown."""

    def __init__(self, seen: Observer, function: ast.AST):
        self.seen, self.node = seen, function
        self.sizes: dict[str, str] = {}  # name of an index -> source of its size
        self.view = ""  # what follows the last subscript that was rewritten
        self.made_of: dict[str, ast.AST] = {}  # name of a sum of indices -> that sum
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                self._remember(node.targets[0], node.value)

    def _remember(self, target: ast.AST, value: ast.AST) -> None:
        """Keep how long the index expressions are that have names, as the source says it."""
        if isinstance(value, ast.Subscript):
            base = value.value
            name = base.attr if isinstance(base, ast.Attribute) else ""
            if name == "mgrid" and isinstance(target, ast.Tuple):
                parts = value.slice.elts if isinstance(value.slice, ast.Tuple) else [value.slice]
                for one, part in zip(target.elts, parts):
                    if (
                        isinstance(one, ast.Name)
                        and isinstance(part, ast.Slice)
                        and part.upper is not None
                        and _is_zero(part.lower)
                    ):
                        self.sizes[one.id] = ast.unparse(part.upper)
                return
            if name == "mgrid" and isinstance(target, ast.Name):
                parts = value.slice.elts if isinstance(value.slice, ast.Tuple) else [value.slice]
                for letter, part in zip("pxyzw", parts):
                    if (
                        isinstance(part, ast.Slice)
                        and part.upper is not None
                        and _is_zero(part.lower)
                    ):
                        self.sizes[f"{target.id}.{letter}"] = ast.unparse(part.upper)
                return
            value = base
        if isinstance(target, ast.Name) and isinstance(value, ast.BinOp) and self.is_index(value):
            self.made_of[target.id] = value
        if (
            isinstance(target, ast.Name)
            and isinstance(value, ast.Call)
            and getattr(value.func, "attr", "") == "arange"
            and len(value.args) == 1
        ):
            self.sizes[target.id] = ast.unparse(value.args[0])

    def is_index(self, node: ast.AST) -> bool:
        """Return whether a subscript's element is an index expression."""
        return bool(self.seen.of(node).affines())

    # -- one dim -----------------------------------------------------------------------------------

    def term(self, node: ast.AST) -> Term:
        """Read the subscript of one dim; raise Person if it runs along several axes."""
        if not self.is_index(node):
            return Term(ast.unparse(node))
        numbers: list[str] = []
        moving: list[tuple[ast.AST, int]] = []
        for part, sign in self._summands(node, 1):
            if self.is_index(part):
                moving.append((part, sign))
            else:
                text = ast.unparse(part)
                numbers.append(f"- {text}" if sign < 0 else f"+ {text}")
        if len(moving) == 2 and all(sign > 0 for _, sign in moving):
            return self._split(numbers, [part for part, _ in moving])
        if len(moving) != 1 or moving[0][1] < 0:
            raise Person("one dim is indexed by several index expressions, or backwards")
        index = self._one(moving[0][0])
        axes = [e for e, c in enumerate(index.coeffs) if c and index.shape[e] > 1]
        if len(axes) > 1:
            raise Person("one dim is indexed by an expression that runs along several axes")
        axis = axes[0] if axes else next((e for e, c in enumerate(index.coeffs) if c), -1)
        if index.const:
            numbers.append(f"+ {index.const}")
        start = " ".join(numbers).removeprefix("+ ") or "0"
        if axis < 0:
            return Term(start, -1)
        if index.coeffs[axis] < 0:
            raise Person("one dim is indexed backwards")
        return Term(start, axis, index.coeffs[axis], self._size(moving[0][0], index, axis))

    def _split(self, numbers: list[str], parts: list[ast.AST]) -> Term:
        """Read `2 * i + j`, where j runs through 0 and 1: a dim that is two in another shape."""
        terms = []
        for part in parts:
            seen = self.seen.of(part).affines()
            axes = {e for index in seen for e, c in enumerate(index.coeffs) if c}
            if not seen:
                raise Person(NOT_REACHED)
            if len(axes) != 1 or any(index.const for index in seen):
                raise Person("one dim is indexed by expressions that run along several axes")
            axis = axes.pop()
            terms.append(
                (
                    sorted({i.coeffs[axis] for i in seen}, reverse=True),
                    axis,
                    sorted({i.shape[axis] for i in seen}, reverse=True),
                    self._size(part, seen[0], axis),
                )
            )
        # the step may differ from call to call (a parameter), as long as it is the inner size
        (step, axis, _, size), (one, inner, count, inner_size) = sorted(terms, reverse=True)
        if one != [1] or step != count:
            raise Person(
                "one dim is indexed by two index expressions that overlap or leave gaps: "
                "x.ap(pattern=...)"
            )
        start = " ".join(numbers).removeprefix("+ ") or "0"
        return Term(start, axis, 1, size, inner, inner_size)

    def _summands(self, node: ast.AST, sign: int) -> list[tuple[ast.AST, int]]:
        if isinstance(node, ast.Name) and node.id in self.made_of:
            node = self.made_of[node.id]
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            other = sign if isinstance(node.op, ast.Add) else -sign
            return self._summands(node.left, sign) + self._summands(node.right, other)
        return [(node, sign)]

    def _one(self, node: ast.AST) -> Affine:
        affines = self.seen.of(node).affines()
        if not affines:
            raise Person(NOT_REACHED)
        forms = {(a.coeffs, a.const) for a in affines}
        if len(forms) > 1:
            raise Person("an index expression changes its step from run to run of the line")
        return affines[0]

    def _size(self, node: ast.AST, index: Affine, axis: int) -> str:
        names = [
            text
            for n in ast.walk(node)
            if isinstance(n, (ast.Name, ast.Attribute)) and (text := ast.unparse(n)) in self.sizes
        ]
        if len(names) == 1:
            return self.sizes[names[0]]
        shapes = {a.shape for a in self.seen.of(node).affines()}
        if len(shapes) > 1:
            raise Person("an index expression changes its size from run to run of the line")
        return str(index.shape[axis])

    # -- a subscript -------------------------------------------------------------------------------

    def rewritten(self, keys: list[ast.expr], box: Box, on_chip: bool) -> tuple[str, int]:
        """Return (the subscript as slices, dims of size 1 that are wanting at its end).

        Raises Person if the axes do not lie along the dims in order.
        """
        terms = [
            None if isinstance(k, (ast.Slice, ast.Starred)) or _is_ellipsis(k) else self.term(k)
            for k in keys
        ]
        rank = max((len(a.shape) for k in keys for a in self.seen.of(k).affines()), default=0)
        self.view = ""
        along = [e for t in terms if t is not None for e in (t.axis, t.inner) if e >= 0]
        if len(set(along)) != len(along):
            raise Person("two dims are indexed by one axis: a diagonal")
        if along != sorted(along) or any(t is not None and t.inner >= 0 for t in terms):
            return self._viewed(keys, terms, rank, box, on_chip), 0
        wanting = [e for e in range(rank) if e not in along]
        sizes = self._grid(keys, rank)
        if any(sizes[e] > 1 for e in wanting):
            raise Person(
                "an axis of the index expressions lies along no dim: elements are read "
                "several times"
            )
        parts = []
        for key, term in zip(keys, terms):
            if term is None:
                parts.append(ast.unparse(key))
            elif term.axis < 0:
                before = [e for e in wanting if not along or e < max(along) or not on_chip]
                if before and not (on_chip and not parts):
                    wanting.remove(before[0])
                    parts.append(_slice(term.start, "1", 1))
                else:
                    parts.append(term.start)
            else:
                parts.append(_slice(term.start, box.size(term.axis, term.size), term.step))
        return ", ".join(parts), len(wanting)

    def _viewed(
        self, keys: list[ast.expr], terms: list[Term | None], rank: int, box: Box, on_chip: bool
    ) -> str:
        """Return slices, and put into `view` how the dims are cut in two and reordered."""
        if (
            any(t is None or t.axis < 0 for t in terms)
            or box.sizes
            and any(t is not None and t.inner >= 0 for t in terms)
        ):
            raise Person("a view of more dims, or a transpose, with other subscripts or a mask")
        parts, order, cuts, dim = [], [], [], 0
        for term in terms:
            assert term is not None
            if term.inner < 0:
                parts.append(_slice(term.start, box.size(term.axis, term.size), term.step))
                order.append(term.axis)
            else:
                whole = _folded(f"{_factor(term.size)} * {_factor(term.inner_size)}")
                parts.append(_slice(term.start, whole, 1))
                cuts.append(f".reshape_dim({dim}, ({term.size}, {term.inner_size}))")
                order += [term.axis, term.inner]
                dim += 1
            dim += 1
        if len(order) != rank or on_chip and order[0] != 0:
            raise Person("the partitions of a tile are indexed by another axis than the first")
        places = tuple(order.index(e) for e in range(rank))
        self.view = "".join(cuts) + (
            f".permute({places})" if list(places) != sorted(places) else ""
        )
        return ", ".join(parts)

    def _grid(self, keys: list[ast.expr], rank: int) -> list[int]:
        sizes = [1] * rank
        for key in keys:
            for index in self.seen.of(key).affines():
                padded = (1,) * (rank - len(index.shape)) + index.shape
                sizes = [max(a, b) for a, b in zip(sizes, padded)]
        return sizes

    # -- masks -------------------------------------------------------------------------------------

    def _named(self, mask: ast.AST) -> ast.AST:
        """Return what a name was last bound to before the line where it is a mask."""
        bound = mask
        if isinstance(mask, ast.Name):
            for node in ast.walk(self.node):
                if (
                    isinstance(node, ast.Assign)
                    and node.lineno < mask.lineno
                    and len(node.targets) == 1
                    and isinstance(node.targets[0], ast.Name)
                    and node.targets[0].id == mask.id
                ):
                    bound = node.value
        return bound

    def box(self, mask: ast.AST) -> Box:
        """Read a mask that cuts the ends off axes; raise Person for any other."""
        box = Box()
        for part in _conjuncts(self._named(mask)):
            if not isinstance(part, ast.Compare) or len(part.ops) != 1:
                raise Person("the mask is no box: only upper bounds of index expressions are")
            low, op, high = part.left, part.ops[0], part.comparators[0]
            if isinstance(op, (ast.Gt, ast.GtE)):
                low, high = high, low
                op = ast.Lt() if isinstance(op, ast.Gt) else ast.LtE()
            if (
                not isinstance(op, (ast.Lt, ast.LtE))
                or self.is_index(high)
                or not self.is_index(low)
            ):
                raise Person("the mask is no box: only upper bounds of index expressions are")
            term = self.term(low)
            if term.axis < 0:
                continue
            if term.step != 1:
                raise Person("the mask bounds an index expression with a step")
            bound = ast.unparse(high) + (" + 1" if isinstance(op, ast.LtE) else "")
            room = (
                bound
                if term.start == "0"
                else f"{bound} - ({term.start})"
                if not term.start.isidentifier()
                else f"{bound} - {term.start}"
            )
            if term.axis in box.sizes:
                raise Person("the mask bounds one axis twice")
            box.sizes[term.axis] = f"min({term.size}, {room})"
        return box


def _slice(start: str, size: str, step: int) -> str:
    if step == 1:
        end = size if start == "0" else f"{start} + {size}"
        return f"{start}:{_folded(end)}"
    span = _folded(f"{step} * {_factor(size)}")
    end = span if start == "0" else f"{start} + {span}"
    return f"{start}:{_folded(f'{end} - {step - 1}')}:{step}"


def _factor(text: str) -> str:
    return text if text.replace("_", "").replace(".", "").isalnum() else f"({text})"


def _folded(text: str) -> str:
    """Return a sum of numbers as a number."""
    try:
        tree = ast.parse(text, mode="eval")
        if all(
            isinstance(n, (ast.Expression, ast.BinOp, ast.Constant, ast.operator))
            for n in ast.walk(tree)
        ):
            return str(eval(compile(tree, "", "eval"), {"__builtins__": {}}))
    except SyntaxError:
        pass
    return text


def _conjuncts(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
        return _conjuncts(node.left) + _conjuncts(node.right)
    return [node]


def _is_zero(node: ast.AST | None) -> bool:
    return node is None or isinstance(node, ast.Constant) and node.value == 0


def _is_ellipsis(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis
