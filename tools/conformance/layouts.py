"""Find the cases of a suite in a checkout. A case is what a child process runs: see child.py."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .courses import CASES
from .suites import Part, Suite


@dataclass(frozen=True)
class Job:
    """What one child process runs: a file of tests, a script, or the kernels of a file.

    `checkout` and `file` are absolute; `name` is unique in the checkout.
    """

    suite: str
    checkout: Path
    commit: str
    name: str
    how: str
    file: Path
    target: str
    seconds: int
    path: tuple[str, ...] = ()
    detail: dict[str, Any] = field(default_factory=dict)


def commit_of(checkout: Path) -> str:
    """Return the checkout's commit, 7 digits; "" if it is not a git checkout of its own."""
    done = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "--show-toplevel", "HEAD"],
        capture_output=True,
        text=True,
    )
    top, _, commit = done.stdout.strip().partition("\n")
    return commit[:7] if done.returncode == 0 and Path(top) == checkout.resolve() else ""


def checkouts(suite: Suite, sources: Path) -> list[Path]:
    """Return the checkouts of a suite that are in the folder of sources."""
    if suite.checkouts:
        named = [sources / name.replace("/", "+") for name in suite.checkouts]
        return [path for path in named if path.is_dir()]
    return sorted(
        path for path in sources.iterdir() if all((path / mark).is_file() for mark in suite.marks)
    )


def jobs(suite: Suite, checkout: Path, full: bool) -> Iterator[Job]:
    """Yield the jobs of a suite in one checkout, in the order of its files."""
    commit = commit_of(checkout)
    for part in suite.parts:
        if part.slow and not full:
            continue
        path = tuple(str(checkout.parent / p) if "+" in p else str(checkout / p) for p in part.path)
        files = {f for pattern in part.files for f in checkout.glob(pattern) if f.is_file()}
        for file in sorted(files):
            place = file.relative_to(checkout).as_posix()
            found = _job(part, file, full)
            if found is not None:
                how, detail = found
                detail = {**detail, **({"env": dict(part.env)} if part.env else {})}
                name = " ".join((place, *part.options))
                yield Job(
                    suite.name,
                    checkout,
                    commit,
                    name,
                    how,
                    file,
                    suite.target,
                    part.seconds,
                    path,
                    detail,
                )


def _job(part: Part, file: Path, full: bool) -> tuple[str, dict[str, Any]] | None:
    """Return how a file is run and with what, or None if it holds no case."""
    if part.how == "tests":
        return "tests", {
            "options": list(part.options),
            "each": part.each,
            "sampled": bool(part.sample),
            "sample": 0 if full else part.sample,
        }
    if part.how == "scripts":
        return ("script", {}) if "__main__" in _text(file) else None
    if part.how == "harness":
        name = file.stem.removesuffix("_ref")
        there = [
            p
            for ending in ("_test.py", ".py")
            if (p := file.parents[2] / part.partner / f"{name}{ending}").is_file()
        ]
        return ("harness", {"program": str(there[0])}) if there else None
    if part.how == "numpy pairs":
        reference = _reference(part, file) if "kernel" in kernels_in(file) else None
        detail = {"reference": str(reference), "values": part.values}
        return ("pair", detail) if reference else None
    defined = kernels_in(file)
    names = [c.name for c in CASES[part.how] if c.kernel in defined and (full or not c.slow)]
    return ("calls", {"course": part.how, "cases": names}) if names else None


def kernels_in(file: Path) -> set[str]:
    """Return the names of the functions that a file defines, even if it is not Python (yet)."""
    return set(re.findall(r"^def +(\w+)", _text(file), re.MULTILINE))


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


def _reference(part: Part, file: Path) -> Path | None:
    """Return the NumPy reference of a kernel of NKIBench: NAME_SIZES_numpy_N.py.

    A kernel lies beside its reference (kernels/NAME_SIZES_0.py) or in a folder of its problem's
    name (NAME/runs/...).
    """
    if part.partner:
        problem = file.parent.parent.name
        folder = file.parents[3].parent / part.partner / "NKIBench" / "reference"
        pattern = f"{problem}_[A-Z]*_numpy_*.py"
    else:
        folder = file.parent.parent / "reference"
        pattern = f"{file.stem.rpartition('_')[0]}_numpy_*.py"
    return next(iter(sorted(folder.glob(pattern))), None)
