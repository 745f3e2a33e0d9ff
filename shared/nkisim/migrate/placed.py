"""What the old dialect does by an allocator or by broadcasting, as lists of tiles and as views."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .index import NOT_REACHED, Person

if TYPE_CHECKING:
    from .rewrite import Function

_REPEATED = (
    "a row is repeated over partitions: load it from HBM as x.broadcast(0, 128), or "
    "multiply by ones on the Tensor Engine"
)


def tiles_in_a_list(f: Function, call: ast.Call, given: dict[str, ast.expr], hint: str) -> str:
    """Emit the tiles that `ncc.sbuf.mod_alloc` places, one by one with an address; return the name
    of their list. `given`: the arguments of nl.ndarray."""
    buffer = given["buffer"]
    assert isinstance(buffer, ast.Call)
    allocator = f.source.dotted(buffer.func)
    how = {k.arg: k.value for k in buffer.keywords}
    shape = given["shape"]
    made = f.seen.of(call).tiles()
    if (
        not allocator.endswith((".sbuf.mod_alloc", ".psum.mod_alloc"))
        or "base_addr" not in how
        or set(how) - {"base_addr", "num_free_tiles"}
        or not made
        or made[0].blocks != 1
        or (dims := _elements(f, shape)) is None
        or len(dims) < 3
    ):
        raise Person(
            "a tile is placed by an allocator: give address=(partition, byte) to each "
            "tile of a list"
        )
    count, *tile = dims
    slots = how.get("num_free_tiles")
    most = (
        f.expr(slots.elts[0])
        if isinstance(slots, (ast.Tuple, ast.List)) and len(slots.elts) == 1
        else "1"
        if slots is None
        else None
    )
    if most is None:
        raise Person("an allocator with several dims of tiles: give address=(partition, byte)")
    memory = "psum" if ".psum." in allocator else "sbuf"
    dtype = f.expr(given["dtype"])
    f.needs_sizes = True
    name, slot = f.fresh(hint or "placed"), f.fresh("slot")
    row = " * ".join(f"({n})" if not n.isidentifier() and not n.isdigit() else n for n in tile[1:])
    base = f.expr(how["base_addr"])
    f.before += [
        f"{name} = []",
        f"for {slot} in range({count}):\n"
        f"    {name}.append({f.nl}.ndarray(({', '.join(tile)}), dtype={dtype}, "
        f"buffer={f.nl}.{memory}, address=(0, {base} + {slot} % {most} * {row} "
        f"* size_in_bytes({dtype}))))",
    ]
    return name


def _elements(f: Function, shape: ast.expr) -> list[str] | None:
    """Return the dims of a shape as texts, nl.par_dim left out; None if it is no tuple."""
    if isinstance(shape, ast.Name):
        shape = _value_of(f, shape) or shape
    if not isinstance(shape, (ast.Tuple, ast.List)):
        return None
    return [
        f.expr(e.args[0])
        if isinstance(e, ast.Call) and f.source.dotted(e.func).endswith(".par_dim")
        else f.expr(e)
        for e in shape.elts
    ]


def _value_of(f: Function, name: ast.Name) -> ast.expr | None:
    """Return what a name was last bound to before a line, if an assignment of one name does it."""
    bound = None
    for node in ast.walk(f.node):
        if (
            isinstance(node, ast.Assign)
            and node.lineno <= name.lineno
            and len(node.targets) == 1
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == name.id
        ):
            bound = node.value
    return bound


def is_list_of_tiles(f: Function, owner: ast.expr) -> bool:
    """Return whether a name is bound to tiles that an allocator places, which are a list now."""
    value = _value_of(f, owner) if isinstance(owner, ast.Name) else None
    return (
        isinstance(value, ast.Call)
        and f.source.dotted(value.func).startswith("nki.language.")
        and any(k.arg == "buffer" and isinstance(k.value, ast.Call) for k in value.keywords)
    )


# -- broadcasting ---------------------------------------------------------------------------------


def row_in_all_partitions(f: Function, source: ast.expr, rows: str) -> str:
    """Return the load of one row of HBM into all partitions, for a tile that holds that row."""
    load = _value_of(f, source) if isinstance(source, ast.Name) else source
    if (
        isinstance(load, ast.Call)
        and f.source.dotted(load.func).endswith(".load")
        and len(load.args) == 1
        and not [k for k in load.keywords if k.arg != "dtype"]
    ):
        dtype = next((f", dtype={f.expr(k.value)}" for k in load.keywords), "")
        return f"{f.nl}.load({f.expr(load.args[0])}.broadcast(0, {rows}){dtype})"
    raise Person(_REPEATED)


def method(f: Function, call: ast.Call) -> str:
    """Return the new form of tile.broadcast_to(shape): a view, or a load of a row."""
    assert isinstance(call.func, ast.Attribute)
    source = call.func.value
    old_tiles, new_tiles = f.seen.of(source).tiles(), f.seen.of(call).tiles()
    if not old_tiles or not new_tiles:
        raise Person(NOT_REACHED)
    shape = call.args[0] if call.args else call.keywords[0].value
    a, b = old_tiles[0].shape, new_tiles[0].shape
    texts = (
        [f.expr(e) for e in shape.elts]
        if isinstance(shape, (ast.Tuple, ast.List)) and len(shape.elts) == len(b)
        else [str(n) for n in b]
    )
    if len(a) != len(b):
        raise Person("broadcast_to with more dims: expand_dim, then broadcast")
    text = f.expr(source)
    if a[0] != b[0]:
        text = row_in_all_partitions(f, source, texts[0])
    for d in range(1, len(a)):
        if a[d] != b[d]:
            text += f".broadcast({d}, {texts[d]})"
    return text
