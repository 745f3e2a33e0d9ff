"""Find labs by folder and load their files by path (labs are not imported as packages)."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from .dialect import KERNELS
from .spec import FILES, Lab, SpecError


def load_module(path: Path, name: str | None = None) -> ModuleType:
    """Import a file by its path; raise SpecError if it is missing, whatever it raises otherwise.

    The module is entered in sys.modules under `name` (default: unique to the path), because
    tools that look at a kernel's source find it there. It is compiled from its source: Python takes
    its own bytecode for the file's if both have the same second and size, as after a quick edit.
    """
    path = path.resolve()
    if not path.is_file():
        raise SpecError(f"there is no file {path.name} in {path.parent}")
    name = name or f"lab_{path.parent.name}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def load_lab(folder: Path) -> Lab:
    """Return the `LAB` of a lab folder's spec.py, in the dialect that it has kernels in."""
    missing = [name for name in FILES if not (folder / name).is_file()]
    if not any((folder / name).is_file() for name in KERNELS.values()):
        missing.append(" or ".join(KERNELS.values()))
    if missing:
        raise SpecError(f"the lab folder {folder.name} lacks {', '.join(missing)}")
    lab = getattr(load_module(folder / "spec.py"), "LAB", None)
    if not isinstance(lab, Lab):
        raise SpecError(f"{folder.name}/spec.py must define LAB, a labkit.Lab")
    # a students' repository has the kernels of its course's dialect only
    return lab if lab.kernels.is_file() else lab.speaking(lab.dialects[0])


def labs_root(start: Path | None = None) -> Path:
    """Return the `labs` folder: of the repository around `start`, or the one labkit lies in.

    The environment variable LABKIT_LABS names another one.
    """
    if os.environ.get("LABKIT_LABS"):
        return Path(os.environ["LABKIT_LABS"])
    here = (start or Path.cwd()).resolve()
    for folder in (
        *(p / "labs" for p in (here, *here.parents)),
        Path(__file__).resolve().parents[2] / "labs",
    ):
        if folder.is_dir():
            return folder
    raise SpecError("there is no folder `labs` here or above; run this inside the repository")


def discover(root: Path) -> list[str]:
    """Return the names of the labs in a folder: the folders in it that have a spec.py."""
    return sorted(p.parent.name for p in root.glob("*/spec.py"))
