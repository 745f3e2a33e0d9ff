"""The scan of kernels in the dialect of `import nki`."""

from __future__ import annotations

import ast

from .constructs import CONSTRUCTS, REFUSED, TRACED
from .scan import ISA, LANGUAGE, Scan

_BUILTINS = frozenset(
    """
    sorted sum zip enumerate map filter any all reversed set frozenset hasattr getattr setattr iter
    next super object bytes bytearray complex chr ord
""".split()
)
#: builtins that ask Python about itself, or reach out of the kernel
_REFLECTION = frozenset(
    "repr ascii format vars dir id hash callable open eval exec input locals globals".split()
)
_NUMBERS = frozenset(("bool", "float", "int", "max", "min", "range"))  # want a number of Python
_MATH = frozenset("ceil floor gcd log2 log10 pow sqrt pi e inf nan".split())
_LISTS = frozenset(("count", "index", "remove"))
_ENUMS = frozenset(("engine", "dge_mode", "oob_mode", "reduce_cmd", "dma_engine"))
_CHANGES = frozenset(("append", "extend", "insert", "pop", "remove", "clear"))
#: bases and decorators of classes whose objects compare by value, or are one of a kind
_COMPARED = frozenset(("dataclass", "define", "frozen", "Enum", "IntEnum", "NamedTuple"))
_OLD_RANGES = ("affine_range", "sequential_range", "static_range")
_OPERATORS = {
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
}


_FUNCTIONS = {ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply"}


def _instruction(node: ast.BinOp) -> str:
    """Return what to write in place of an operator of tiles, "" if the row says it."""
    left, right = ast.unparse(node.left), ast.unparse(node.right)
    function = _FUNCTIONS.get(type(node.op), "")
    if isinstance(node.op, ast.Div):
        if isinstance(node.right, ast.Constant):
            return f"nisa.tensor_scalar(dst=, data={left}, op0=nl.multiply, operand0=1 / {right})"
        product = "" if left in ("1", "1.0") else ", and a product with it"
        return f"nisa.reciprocal(dst=, data={right}){product}"
    if not function:
        return ""
    if isinstance(node.right, ast.Constant):
        return f"nisa.tensor_scalar(dst=, data={left}, op0=nl.{function}, operand0={right})"
    if isinstance(node.left, ast.Constant):
        swap = ", reverse0=True" * (function == "subtract")
        return f"nisa.tensor_scalar(dst=, data={right}, op0=nl.{function}, operand0={left}{swap})"
    return (
        f"nisa.tensor_tensor(dst=, data1={left}, data2={right}, op=nl.{function}), "
        f"or nl.{function}({left}, {right})"
    )


class NkiScan(Scan):
    """Finds what the compiler of `nki` refuses."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.registers: set[str] = set()
        self.scalars: set[str] = set()  # of nisa.scalar_load
        self.lists: set[str] = set()
        self.objects: dict[str, str] = {}  # name -> the class of the file that it is one of
        self.inner: dict[str, ast.FunctionDef] = {}  # functions in this one
        self.dynamic = 0  # dynamic loops that this place is in

    def signature(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if isinstance(node, ast.AsyncFunctionDef):
            self.say(node, "async", "async def")
        if node.args.vararg:
            self.say(node, "varargs", f"*{node.args.vararg.arg}")
        if not self.function.launched:
            return
        if node.args.kwonlyargs:
            self.say(node, "keyword_only", f"the * before {node.args.kwonlyargs[0].arg}")
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if isinstance(default, ast.List):
                self.say(default, "list_argument", f"the default {ast.unparse(default)}")
        for decorator in node.decorator_list:
            for keyword in getattr(decorator, "keywords", ()):
                if keyword.arg == "platform_target":
                    self.say(decorator, "jit_target", "platform_target=")

    # -- statements --------------------------------------------------------------------------------

    def visit_Try(self, node: ast.Try) -> None:
        self.say(node, "try", "try")
        self.generic_visit(node)

    visit_TryStar = visit_Try  # type: ignore[assignment]

    def visit_Raise(self, node: ast.Raise) -> None:
        self.say(node, "raise", "raise")

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            call = item.context_expr
            name = self.source.dotted(call.func) if isinstance(call, ast.Call) else ""
            if name != LANGUAGE + "no_reorder" or item.optional_vars is not None:
                self.say(node, "with", f"with {ast.unparse(call)}")
        self.generic_visit(node)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        self.say(node, "import", "an import in a kernel")

    visit_Import = visit_ImportFrom = _import  # type: ignore[assignment]

    def _global(self, node: ast.Global | ast.Nonlocal) -> None:
        self.say(node, "global", f"{type(node).__name__.lower()} {', '.join(node.names)}")

    visit_Global = visit_Nonlocal = _global  # type: ignore[assignment]

    def visit_Delete(self, node: ast.Delete) -> None:
        self.say(node, "delete", "del")

    def visit_Match(self, node: ast.AST) -> None:
        self.say(node, "match", "match")
        self.generic_visit(node)

    def _stops(self, node: ast.AST) -> None:
        self.say(node, "async", type(node).__name__.lower())
        self.generic_visit(node)

    visit_Await = visit_AsyncFor = visit_AsyncWith = _stops  # type: ignore[assignment]

    def _yields(self, node: ast.Yield | ast.YieldFrom) -> None:
        self.say(node, "async" if self.function.launched else "generator", "yield")
        self.generic_visit(node)

    visit_Yield = visit_YieldFrom = _yields  # type: ignore[assignment]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.say(node, "nested_function", f"def {node.name} in a kernel")
        self.inner[node.name] = node

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        kind = self.loop_call(node)
        if kind in _OLD_RANGES:
            self.say(node, "old_range", f"nl.{kind}")
        if not isinstance(node.target, ast.Name):
            self.say(node, "loop_target", f"for {ast.unparse(node.target)} in ...")
        if node.orelse:
            self.say(node, "loop_else", "for ... else")
        self.forget(node.target)
        dynamic = kind == "dynamic_range"
        if dynamic:
            self.say(node, "dynamic_range", "nl.dynamic_range")
            if isinstance(node.target, ast.Name):
                self.registers.add(node.target.id)
        before, self.dynamic = self.dynamic, dynamic
        for part in (*node.body, *node.orelse):
            self.visit(part)
        self.dynamic = before

    def _exits(self, node: ast.AST) -> None:
        if self.dynamic:
            self.say(node, "dynamic_exit", type(node).__name__.lower())
        self.generic_visit(node)

    visit_Break = visit_Continue = visit_Return = _exits  # type: ignore[assignment]

    def visit_While(self, node: ast.While) -> None:
        if (
            isinstance(node.test, ast.Name)
            and node.test.id in self.registers
            and self.version < TRACED
        ):
            self.say(node, "register_condition", f"while {node.test.id}")
        if node.orelse:
            self.say(node, "loop_else", "while ... else")
        self._condition(node.test)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        self._condition(node.test)
        self.generic_visit(node)

    visit_IfExp = visit_If  # type: ignore[assignment]

    def _condition(self, test: ast.AST) -> None:
        for part in _decided_by(test):
            sides = (part.left, *part.comparators) if isinstance(part, ast.Compare) else (part,)
            if self.is_tile(part):
                self.say(part, "tile_condition", f"{ast.unparse(part)} in a condition")
            elif any(map(self._runtime, sides)) and not isinstance(test, ast.Constant):
                self._traced(part, f"{ast.unparse(part)} in a condition")

    def _runtime(self, node: ast.AST) -> bool:
        """Return whether a name surely stands for a register or a scalar."""
        return isinstance(node, ast.Name) and node.id in self.registers | self.scalars

    def _traced(self, node: ast.AST, what: str) -> None:
        """Say what tracing refuses: earlier compilers took it, or had nothing of the kind."""
        if CONSTRUCTS["register_condition"].verdict(self.version) == REFUSED:
            self.say(node, "register_condition", what)

    # -- expressions -------------------------------------------------------------------------------

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.say(node, "lambda", "lambda")

    def _comprehension(self, node: ast.AST) -> None:
        parts = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
        self.say(
            node,
            "tile_comprehension" if any(map(self.makes_tile, parts)) else "comprehension",
            {
                "ListComp": "a list comprehension",
                "SetComp": "a set comprehension",
                "DictComp": "a dict comprehension",
            }.get(type(node).__name__, "a generator"),
        )

    visit_ListComp = visit_SetComp = _comprehension  # type: ignore[assignment]
    visit_DictComp = visit_GeneratorExp = _comprehension  # type: ignore[assignment]

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.say(node, "walrus", ":=")
        self.generic_visit(node)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> None:
        if node.format_spec is not None:
            self.say(node, "format_spec", "a format specification in an f-string")

    def visit_Starred(self, node: ast.Starred) -> None:
        self.say(node, "starred", ast.unparse(node))

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = (node.left, *node.comparators)
        for op, left, right in zip(node.ops, sides, sides[1:]):
            if isinstance(op, (ast.Is, ast.IsNot)):
                if not any(isinstance(s, ast.Constant) and s.value is None for s in (left, right)):
                    self.say(node, "identity", f"`{ast.unparse(node)}`")
            elif isinstance(op, (ast.In, ast.NotIn)):
                pass
            elif any(
                isinstance(s, ast.Attribute) and s.attr == "shape" for s in (left, right)
            ) and any(isinstance(s, ast.List) for s in (left, right)):
                self.say(node, "shape_is_list", f"`{ast.unparse(node)}`")
            elif not any(
                isinstance(s, ast.Constant) and s.value is None for s in (left, right)
            ) and any(map(self.is_tile, (left, right))):
                self.say(node, "operator", f"`{ast.unparse(node)}`")
            elif isinstance(op, (ast.Eq, ast.NotEq)) and self._dtypes_apart(left, right):
                self.say(node, "dtype_of_numpy", f"`{ast.unparse(node)}`", "warning")
            elif isinstance(op, (ast.Eq, ast.NotEq)) and all(
                isinstance(s, ast.Name) and s.id in self.objects for s in (left, right)
            ):
                self.say(node, "class_equality", f"`{ast.unparse(node)}`")
        self.generic_visit(node)

    def _dtypes_apart(self, *sides: ast.expr) -> bool:
        """Return whether one side is the dtype of something, the other a type of NumPy."""
        return any(isinstance(s, ast.Attribute) and s.attr == "dtype" for s in sides) and any(
            self.source.dotted(s).rpartition(".")[::2] == ("numpy", getattr(s, "attr", ""))
            for s in sides
        )

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.MatMult):
            self.say(node, "matmul_operator", f"`{ast.unparse(node)}`")
        if self.is_tile(node.left) or self.is_tile(node.right):
            self.say(
                node,
                "operator",
                f"{_OPERATORS.get(type(node.op), 'an operator')} in `{ast.unparse(node)}`",
                remedy=_instruction(node),
            )
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if self.is_tile(node.target):
            self.say(node, "operator", f"`{ast.unparse(node)}`")
        self.generic_visit(node)

    def visit_Dict(self, node: ast.Dict) -> None:
        for key in node.keys:
            if isinstance(key, ast.Constant) and not isinstance(key.value, str):
                self.say(node, "string_keys", f"the key {key.value!r}")
                break
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if (
                isinstance(target, ast.Subscript)
                and isinstance(target.value, ast.Name)
                and target.value.id in self.tiles
            ):
                self.say(node, "assign_item", f"`{ast.unparse(target)} = ...`")
        super().visit_Assign(node)

    def bind(self, target: ast.AST, value: ast.AST) -> None:
        super().bind(target, value)
        if not isinstance(target, ast.Name):
            return
        name = self.source.dotted(value.func) if isinstance(value, ast.Call) else ""
        (self.registers.add if name == ISA + "register_alloc" else self.registers.discard)(
            target.id
        )
        (self.scalars.add if name == ISA + "scalar_load" else self.scalars.discard)(target.id)
        (self.lists.add if isinstance(value, ast.List) else self.lists.discard)(target.id)
        self.objects.pop(target.id, None)
        made = (
            value.func.id
            if isinstance(value, ast.Call) and isinstance(value.func, ast.Name)
            else ""
        )
        if made in self.source.classes and not _compares(self.source.classes[made]):
            self.objects[target.id] = made

    # -- calls -------------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> None:
        name = self.source.dotted(node.func)
        if isinstance(node.func, ast.Name):
            self._call_of_name(node, node.func.id)
        if name.startswith("numpy."):
            self.say(node, "numpy_call", f"{ast.unparse(node.func)}()")
            return  # what it is given is NumPy's affair as well
        if name.startswith("math.") and name.count(".") == 1 and name[5:] not in _MATH:
            self.say(node, "math_function", f"{name}()")
        if name.startswith(LANGUAGE) and name.endswith(".shared_constant"):
            return  # takes an array of the host
        if (
            isinstance(node.func, ast.Attribute)
            and node.func.attr in _LISTS
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id in self.lists
        ):
            self.say(node, "list_method", f"{ast.unparse(node.func)}()")
        if name.startswith((LANGUAGE, ISA)):
            self._arguments(node)
        if name in (LANGUAGE + "fori_loop", LANGUAGE + "while_loop"):
            self._body(node)
        for keyword in node.keywords:
            if keyword.arg is None:
                self.say(node, "starred", f"**{ast.unparse(keyword.value)}")
        self.generic_visit(node)

    def _call_of_name(self, node: ast.Call, name: str) -> None:
        local = name in self.source.functions or name in self.source.names
        if name in _BUILTINS and not local:
            self.say(node, "builtin", f"{name}()")
        if name in _REFLECTION and not local:
            self.say(node, "reflection", f"{name}()")
        if name in _NUMBERS and not local and any(map(self._runtime, node.args)):
            self._traced(node, f"{ast.unparse(node)}")
        made = self.source.classes.get(name)
        if made is not None:
            bases = {
                b.attr if isinstance(b, ast.Attribute) else getattr(b, "id", "") for b in made.bases
            }
            if not bases:
                self.say(node, "plain_class", f"class {name}")
            if bases & self.source.classes.keys():
                self.say(node, "subclass", f"class {name}")

    def _arguments(self, node: ast.Call) -> None:
        for keyword in node.keywords:
            value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
            if keyword.arg == "buffer" and isinstance(value, str):
                self.say(node, "string_buffer", f"buffer={value!r}")
            elif keyword.arg in _ENUMS and type(value) is int:
                self.say(node, "integer_enum", f"{keyword.arg}={value}")

    def _body(self, call: ast.Call) -> None:
        """Look at what the body of a loop of the chip changes in Python."""
        at = {LANGUAGE + "fori_loop": 2, LANGUAGE + "while_loop": 1}[self.source.dotted(call.func)]
        given = next(
            (k.value for k in call.keywords if k.arg == "body_fun"),
            call.args[at] if len(call.args) > at else None,
        )
        body = self.inner.get(given.id) if isinstance(given, ast.Name) else None
        if body is None:
            return
        own = {
            n.id for n in ast.walk(body) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        } | {a.arg for a in body.args.args}
        for node in ast.walk(body):
            if isinstance(node, (ast.Nonlocal, ast.Global)):
                self.say(
                    node,
                    "body_state",
                    f"{type(node).__name__.lower()} {', '.join(node.names)} in {body.name}",
                )
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in _CHANGES
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id in self.lists - own
            ):
                self.say(node, "body_state", f"{ast.unparse(node.func)}() in {body.name}")


def _compares(made: ast.ClassDef) -> bool:
    """Return whether objects of a class have an == of their own, as far as its text says."""
    names = {
        getattr(x, "attr", getattr(x, "id", ""))
        for x in (
            *made.bases,
            *(d.func if isinstance(d, ast.Call) else d for d in made.decorator_list),
        )
    }
    return bool(names & _COMPARED) or any(
        isinstance(f, ast.FunctionDef) and f.name == "__eq__" for f in made.body
    )


def _decided_by(test: ast.AST) -> list[ast.AST]:
    """Return the parts of a condition whose truth is asked for."""
    if isinstance(test, ast.BoolOp):
        return [p for value in test.values for p in _decided_by(value)]
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _decided_by(test.operand)
    return [test]
