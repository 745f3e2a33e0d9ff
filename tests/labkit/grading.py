"""Helpers of the grading tests: a lab with little to run, and a class to grade."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from labkit.grade import sandbox
from labkit.grade.run import grade

ROOT = Path(__file__).parents[2]
SOLVED = (ROOT / "labs" / "vecadd" / "kernels.py").read_text("utf-8")
#: why there is no sandbox on this machine, "" if there is one
WHY = sandbox.probe()
needs_sandbox = pytest.mark.skipif(bool(WHY), reason=f"no sandbox: {WHY}")

PLAN = """
from labkit import RubricLine
from labkit.grade.plan import Plan


def plan(spec):
    hidden = (spec.transpose_case(128, 256),)
    return Plan(rubric=(RubricLine("shown", 4, ("transpose_128x128",)),
                        RubricLine("hidden", 6, ("transpose_128x256",))),
                hidden=hidden, timeout_s=6, total_s=15)
"""


def small_lab(folder: Path) -> Path:
    """Copy vecadd with a plan of two cases to `folder`/labs; return `folder`/labs."""
    lab = folder / "labs" / "vecadd"
    shutil.copytree(ROOT / "labs" / "vecadd", lab, ignore=shutil.ignore_patterns("__pycache__"))
    (lab / "hidden" / "plan.py").write_text(PLAN)
    return folder / "labs"


def hand_in(folder: Path, **files: str) -> Path:
    """Write students' kernels.py into folders of their own; return the folder."""
    for student, text in files.items():
        (folder / student).mkdir(parents=True, exist_ok=True)
        (folder / student / "kernels.py").write_text(text, "utf-8", "surrogateescape")
    return folder


def run(submissions: Path, out: Path, *more: str) -> int:
    """Grade vecadd."""
    return grade([str(submissions), "--lab", "vecadd", "--out", str(out), *more])


def files(folder: Path) -> dict[str, bytes]:
    """Return name -> bytes of what a run leaves for people."""
    return {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and "private" not in p.parts
    }


def same_secret(one: Path, other: Path) -> None:
    """Let a second run have the secret of the first."""
    (other / "private").mkdir(parents=True)
    (other / "private" / "secret").write_bytes((one / "private" / "secret").read_bytes())
