"""What a class leaves on the staff's computer: not for its other users, and not for git."""

from __future__ import annotations

import stat
import subprocess

from conftest import Lab


def test_a_class_folder_can_be_committed_without_links_and_rosters(lab: Lab) -> None:
    """Also one that is in no repository of ours; class.lock.yml is meant to be committed."""
    (lab.folder.path / "class.yml").rename(lab.folder.path / "kept.yml")
    answers = lab.folder.path / "answers.yml"
    answers.write_text((lab.folder.path / "kept.yml").read_text())
    lab("init", answers=str(answers))
    lab("provision")
    out = lab.folder.path / "out"
    assert any(out.rglob("alice.md"))
    assert not stat.S_IMODE(out.stat().st_mode) & 0o007

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(lab.folder.path), *words], check=True, text=True, capture_output=True
        )
        return done.stdout

    git("init", "-q")
    git("add", "-A")
    listed = git("ls-files").split()
    assert "class.yml" in listed and "class.lock.yml" in listed
    assert not [f for f in listed if f.startswith(("out/", "roster", "staff.csv"))], listed
    (lab.folder.path / ".gitignore").unlink()
    git("add", "-A")
    assert not [f for f in git("ls-files").split() if f.startswith("out/")]
