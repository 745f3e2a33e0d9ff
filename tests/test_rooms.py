"""Rooms of the three packages: what import-linter (pyproject.toml) does not see of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

HOMES = {"nkisim": ROOT / "shared", "labkit": ROOT / "shared", "classroom": ROOT / "infra"}


def modules(package: str) -> dict[str, Path]:
    """Return the modules of a package by dotted name below it; "" is the package itself."""
    home = HOMES[package] / package
    return {
        ".".join(p for p in path.relative_to(home).with_suffix("").parts if p != "__init__"): path
        for path in home.rglob("*.py")
    }


def imported(package: str, name: str, path: Path, known: dict[str, Path]) -> set[str]:
    """Return what a file imports of its package, in functions too; types do not count."""
    here = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    of_types = {
        inner
        for node in tree.body
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    out = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or node in of_types:
            continue
        module = node.module or ""
        if node.level:
            full = ".".join([*here[: len(here) - node.level + 1], *([module] if module else [])])
        elif module.split(".")[0] == package:
            full = module.removeprefix(package).lstrip(".")
        else:
            continue
        for alias in node.names:
            below = f"{full}.{alias.name}".lstrip(".")
            out.add(below if below in known else full)
    return {m for m in out if m in known and m}


PACKAGES = tuple(HOMES)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_room_says_what_it_is_for(package):
    folders = {path for m, path in modules(package).items() if path.name == "__init__.py"}
    assert [str(p) for p in folders if not ast.get_docstring(ast.parse(p.read_text("utf-8")))] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_imports_itself_through_others(package):
    known = modules(package)
    needs = {name: imported(package, name, path, known) for name, path in known.items()}

    def circle(name: str, path: tuple[str, ...]) -> tuple[str, ...]:
        if name in path:
            return (*path[path.index(name) :], name)
        for other in needs[name]:
            if other not in done and (found := circle(other, (*path, name))):
                return found
        done.add(name)
        return ()

    done: set[str] = set()
    assert [found for name in needs if (found := circle(name, ()))] == []


#: rooms that read or write source text, or are a dialect's front end: a name is what they ask for
OF_A_DIALECT = {"language", "lint", "migrate", "cli"}


def compared(room: str) -> Iterator[tuple[str, ast.expr]]:
    """Yield (place, side) of the comparisons in a room of nkisim."""
    home = HOMES["nkisim"] / "nkisim"
    for path in sorted((home / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            sides += [node.subject] if isinstance(node, ast.Match) else []
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("with"):
                sides.append(node.func.value)  # x.startswith("spill_")
            yield from ((f"{path.relative_to(home)}:{side.lineno}", side) for side in sides)


def rooms() -> list[str]:
    """Return the folders of nkisim that hold code."""
    return sorted({m.split(".")[0] for m, path in modules("nkisim").items() if "." in m})


@pytest.mark.parametrize("room", sorted(set(rooms()) - OF_A_DIALECT))
def test_what_differs_between_dialects_is_a_trait(room):
    """`m.dialect.names_dst`, never `m.dialect.name == "nki"`."""
    asked = [
        place
        for place, side in compared(room)
        if any(
            isinstance(node, ast.Constant)
            and node.value in ("beta1", "nki")
            or isinstance(node, ast.Name)
            and node.id in ("BETA1", "NKI", "DIALECT")
            or ast.unparse(node).endswith((".dialect", ".dialect.name"))
            for node in ast.walk(side)
            if isinstance(node, ast.expr)
        )
    ]
    assert asked == []


@pytest.mark.parametrize("room", sorted(set(rooms()) - {"isa", "language"}))
def test_nothing_asks_which_instruction_it_is(room):
    """What an instruction is to the rest is a field of its row: `row.fills`, not its name."""
    asked = [
        place for place, side in compared(room) if ast.unparse(side).endswith((".row", ".row.name"))
    ]
    assert asked == []
