"""What came home: results are merged into ours, each run once; other files go to their place."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from ..history.results import SCHEMA, append_runs
from .ssh import RemoteError
from .tree import Tree


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, read in pieces."""
    h = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            h.update(piece)
    return h.hexdigest()


def safe(name: str) -> PurePosixPath:
    """Return a path that the other side named; raise RemoteError if it leads out of the tree."""
    path = PurePosixPath(name)
    if (
        path.is_absolute()
        or ".." in path.parts
        or "\\" in name
        or ":" in name
        or path.parts[:1] == (".git",)
        or not path.parts
    ):
        raise RemoteError(
            f"the other machine names the file {name!r}, which leads out of your "
            "working tree; nothing was written"
        )
    return path


def results_of(path: Path) -> list[dict[str, Any]] | None:
    """Return the runs of a results file; None if it is no such file."""
    if path.suffix != ".json":
        return None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return document["runs"] if document["schema"] == SCHEMA else None
    except (ValueError, TypeError, KeyError, OSError):
        return None


def place(
    tree: Tree,
    files: list[dict[str, Any]],
    staged: Callable[[dict[str, Any]], Path],
    results: Path,
    remote: dict[str, Any],
) -> tuple[int, list[str]]:
    """Put fetched files where they belong; return how many runs are new, and the other files.

    `staged`: where a file lies now. A file that git tracks here is never replaced: it goes to
    results/remote/. Doing it twice changes nothing.
    """
    new, placed = 0, []
    for file in files:
        path = safe(file["path"])
        source = staged(file)
        named = source.with_name(f"{source.name}{path.suffix}")
        if source.exists():
            source.replace(named)
        elif not named.exists():
            continue  # an earlier call, which was cut, has placed it
        runs = results_of(named)
        if runs is not None:
            # a program that was killed there finishes nothing more: what it wrote is all there is
            final = [
                {**{k: v for k, v in run.items() if k != "unfinished"}, "remote": remote}
                for run in runs
            ]
            new += len(append_runs(results, final)[0])
            named.unlink()
            continue
        target = (
            tree.root / path
            if str(path) not in tree.files
            else tree.root / "results" / "remote" / remote["run"] / path
        )
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(str(named), str(target))
        placed.append(target.relative_to(tree.root).as_posix())
    return new, placed
