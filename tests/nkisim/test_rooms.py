"""The rooms of the simulator: a folder is a stage, and imports point one way."""
from __future__ import annotations

import ast
from pathlib import Path

HOME = Path(__file__).resolve().parents[2] / "shared" / "nkisim"

#: From the ground up. A module may import from its own room and from those before it.
ROOMS = ("errors", "chip", "trace", "checks", "lint", "machine", "isa", "timing", "advice",
         "report", "launch", "trust", "prediction", "tuning", "language", "migrate", "api", "doors")
#: Small modules of the root, and the room whose storey they are on.
STOREY = {"rules": "errors", "finder": "errors", "pytest_plugin": "checks",
          "collector": "errors", "uncaught": "errors", "banner": "launch", "handed": "launch",
          "declared": "api", "notebook": "doors",
          "__init__": "api",
          "__main__": "doors", "data": "doors"}


def modules() -> dict[str, Path]:
    """Return the simulator's modules by dotted name below nkisim; "" is the package itself."""
    found = {}
    for path in HOME.rglob("*.py"):
        parts = path.relative_to(HOME).with_suffix("").parts
        found[".".join(p for p in parts if p != "__init__")] = path
    return found


def imported(name: str, path: Path, known: dict[str, Path]) -> set[tuple[str, bool]]:
    """Return (module of ours, is it needed at import time) for each import in a file.

    Imports in functions and below `if TYPE_CHECKING` count: they are dependencies as well.
    """
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    at_once = {id(node) for node in tree.body}
    out = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom):
            continue
        if node.level:
            base = package[:len(package) - node.level + 1]
        elif node.module and node.module.split(".")[0] == "nkisim":
            base = []
        else:
            continue
        module = (node.module or "").removeprefix("nkisim").lstrip(".") \
            if not node.level else node.module or ""
        full = ".".join([*base, *([module] if module else [])])
        for alias in node.names:
            below = f"{full}.{alias.name}".lstrip(".")
            out.add((below if below in known else full, id(node) in at_once))
    return {(m, now) for m, now in out if m in known and m}


def room(module: str) -> int:
    top = module.split(".")[0] or "__init__"
    return ROOMS.index(STOREY.get(top, top))


def test_every_module_has_a_room():
    assert [m for m in modules() if (top := m.split(".")[0] or "__init__") not in ROOMS
            and top not in STOREY] == []


def test_imports_point_to_the_same_room_or_down():
    known = modules()
    upward = [f"{name} -> {other}" for name, path in known.items()
              for other, _ in imported(name, path, known) if room(other) > room(name)]
    assert upward == []


def test_no_module_needs_itself_to_be_imported():
    known = modules()
    needs = {name: {m for m, now in imported(name, path, known) if now}
             for name, path in known.items()}

    def circle(name: str, path: tuple[str, ...]) -> tuple[str, ...]:
        if name in path:
            return (*path[path.index(name):], name)
        for other in needs[name]:
            if other not in done and (found := circle(other, (*path, name))):
                return found
        done.add(name)
        return ()

    done: set[str] = set()
    assert [found for name in needs if (found := circle(name, ()))] == []
