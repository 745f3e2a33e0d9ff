"""What a class leaves on the staff's computer: not for its other users, and not for git."""

from __future__ import annotations

import stat
import subprocess
from collections.abc import Callable
from typing import Any

from conftest import ClassFolder
from labcloud.client import LabCloud

Classroom = Callable[..., dict[str, Any]]


def test_a_class_folder_can_be_committed_without_links_and_rosters(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    """Also one that is in no repository of ours; class.lock.yml is meant to be committed."""
    (folder.path / "class.yml").rename(folder.path / "kept.yml")
    answers = folder.path / "answers.yml"
    answers.write_text((folder.path / "kept.yml").read_text())
    classroom("init", folder.file, answers=str(answers))
    classroom("provision", folder.file)
    out = folder.path / "out"
    assert any(out.rglob("alice.md"))
    assert not stat.S_IMODE(out.stat().st_mode) & 0o007

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(folder.path), *words], check=True, text=True, capture_output=True
        )
        return done.stdout

    git("init", "-q")
    git("add", "-A")
    listed = git("ls-files").split()
    assert "class.yml" in listed and "class.lock.yml" in listed
    assert not [f for f in listed if f.startswith(("out/", "roster", "staff.csv"))], listed
    (folder.path / ".gitignore").unlink()
    git("add", "-A")
    assert not [f for f in git("ls-files").split() if f.startswith("out/")]
