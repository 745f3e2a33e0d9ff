"""Rooms of the three packages: a folder is a stage, and imports point one way."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

#: package -> its rooms from the ground up. A module may import from its own storey and from those
#: below it. Rooms on one storey share a line: they are parts of one thing.
STOREYS = {
    "nkisim": (
        "dialect errors course completion",
        "finder",
        "chip",
        "trace",
        "checks pytest_plugin",
        "lint",
        "indexing lazy loops machine",
        "isa",
        "timing",
        "advice",
        "report",
        "simulation",
        "tuning",
        "evaluation",
        "language",
        "migrate",
        "instruction_table",
        "api strictly __init__",
        "calibration",
        "cli agents notebook __main__ data",
    ),
    "labkit": (
        "files dialect tolerance",
        "spec",
        "load tables inputs",
        "run",
        "mistakes __init__",
        "evaluate",
        "show",
        "history",
        "remote",
        "cli",
        "progress fleet",
        "neuron",
        "starter",
        "grade",
        "board",
        "submit",
        "commands completion",
        "__main__",
    ),
    "classroom": (
        "aws",
        "spec",
        "money",
        "guards",
        "fleet",
        "work",
        "students",
        "machines",
        "teardown",
        "cli",
        "__main__ __init__",
    ),
}
HOMES = {"nkisim": ROOT / "shared", "labkit": ROOT / "shared", "classroom": ROOT / "infra"}


def modules(package: str) -> dict[str, Path]:
    """Return the modules of a package by dotted name below it; "" is the package itself."""
    home = HOMES[package] / package
    return {
        ".".join(p for p in path.relative_to(home).with_suffix("").parts if p != "__init__"): path
        for path in home.rglob("*.py")
    }


def imported(package: str, name: str, path: Path, known: dict[str, Path]) -> set[tuple[str, str]]:
    """Return (module of the package, when it is needed) for each import in a file.

    Imports in functions ("call") and below `if TYPE_CHECKING` ("types") count, as those that run
    at import time ("import") do: they are dependencies as well.
    """
    here = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    when = {id(node): "import" for node in tree.body}
    for node in tree.body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            when.update((id(inner), "types") for inner in ast.walk(node))
    out = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom):
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
            out.add((below if below in known else full, when.get(id(node), "call")))
    return {(m, when) for m, when in out if m in known and m}


def storey(package: str, module: str) -> int:
    """Return the number of the storey of a module, -1 if it has none."""
    top = module.split(".")[0] or "__init__"
    return next((n for n, rooms in enumerate(STOREYS[package]) if top in rooms.split()), -1)


PACKAGES = tuple(STOREYS)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_has_a_room(package):
    assert {top for m in modules(package) if storey(package, top := m.split(".")[0]) < 0} == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_room_says_what_it_is_for(package):
    folders = {path for m, path in modules(package).items() if path.name == "__init__.py"}
    assert [str(p) for p in folders if not ast.get_docstring(ast.parse(p.read_text("utf-8")))] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_to_the_same_storey_or_down(package):
    known = modules(package)
    upward = [
        f"{name} -> {other}"
        for name, path in known.items()
        for other, _ in imported(package, name, path, known)
        if storey(package, other) > storey(package, name)
    ]
    assert upward == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_imports_itself_through_others(package):
    known = modules(package)
    needs = {
        name: {m for m, when in imported(package, name, path, known) if when != "types"}
        for name, path in known.items()
    }

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


def test_only_a_launch_knows_the_interpreter():
    """Others are told what they ask of it, by machine.interface: it imports most of them."""
    known = modules("nkisim")
    importers = {
        name
        for name, path in known.items()
        if any(m == "machine.interpreter" for m, _ in imported("nkisim", name, path, known))
    }
    assert importers == {"simulation.launch"}


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
