"""What both scans of a kernel's source share: its names, and how a finding is made."""

from __future__ import annotations

import ast

from ..checks.finding import Finding
from ..errors import Where
from .constructs import ACCEPTED, CONSTRUCTS, NEWEST, SEVERITY
from .program import Function, Source

LANGUAGE, ISA = "nki.language.", "nki.isa."
#: functions of nl that return a tile (of those that kernels use much: a miss costs little)
MAKERS = frozenset(
    """
    ndarray zeros ones full zeros_like empty_like rand load load_transpose2d copy matmul transpose
    add subtract multiply divide maximum minimum power exp log sqrt rsqrt reciprocal relu gelu silu
    sigmoid tanh softmax square abs negative sum max min mean prod where broadcast_to
""".split()
)
#: functions of nisa that return something else than a tile, or nothing
_NO_TILES = frozenset(
    """
    get_nc_version get_nc_sub_version dma_copy register_alloc register_load register_move
    scalar_load scalar_store
    register_store core_barrier sendrecv
""".split()
)


class Scan(ast.NodeVisitor):
    """Goes through a function's body in the order of its lines.

    `tiles`: names that hold tiles here; flow is followed as far as assignments to names go.
    """

    def __init__(self, function: Function, version: str = NEWEST):
        self.function, self.version = function, version
        self.source: Source = function.source
        self.tiles: set[str] = set()
        self.findings: list[Finding] = []

    def run(self) -> list[Finding]:
        """Return what is to be said of the function."""
        self.signature(self.function.node)
        for part in self.function.node.body:
            self.visit(part)
        return self.findings

    def signature(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Look at the parameters and decorators."""

    def say(self, node: ast.AST, key: str, what: str, severity: str = "", remedy: str = "") -> None:
        """Add a finding about a construct, unless this version of NKI accepts it.

        `remedy`: what to write there, if that is more precise than the row's.
        """
        row = CONSTRUCTS[key]
        verdict = row.verdict(self.version)
        if verdict == ACCEPTED:
            return
        where = Where(self.source.file, getattr(node, "lineno", 0), self.function.node.name)
        finding = Finding(row.id, severity or SEVERITY[verdict], row.message(what, remedy), where)
        if finding not in self.findings:
            self.findings.append(finding)

    # -- names -------------------------------------------------------------------------------------

    def makes_tile(self, node: ast.AST) -> bool:
        """Return whether an expression is surely a tile: a result of an instruction, or a part."""
        if isinstance(node, ast.Call):
            name = self.source.dotted(node.func)
            if name.startswith(ISA):
                return name.count(".") == 2 and name[len(ISA) :] not in _NO_TILES
            return name.startswith(LANGUAGE) and name[len(LANGUAGE) :] in MAKERS
        return self.is_tile(node)

    def is_tile(self, node: ast.AST) -> bool:
        """Return whether a name or subscript stands for a tile."""
        if isinstance(node, ast.Subscript):
            node = node.value
        return isinstance(node, ast.Name) and node.id in self.tiles

    def forget(self, target: ast.AST) -> None:
        """Drop what was known of the names in an assignment's target."""
        for node in ast.walk(target):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.tiles.discard(node.id)

    def bind(self, target: ast.AST, value: ast.AST) -> None:
        """Follow an assignment `target = value`."""
        self.forget(target)
        if isinstance(target, ast.Name) and self.makes_tile(value):
            self.tiles.add(target.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            self.bind(target, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.generic_visit(node)
        if node.value is not None:
            self.bind(node.target, node.value)

    def loop_call(self, node: ast.For) -> str:
        """Return the function of nl that a loop is over, "affine_range" ...; "" if it is none."""
        if not isinstance(node.iter, ast.Call):
            return ""
        name = self.source.dotted(node.iter.func)
        return name[len(LANGUAGE) :] if name.startswith(LANGUAGE) else ""
