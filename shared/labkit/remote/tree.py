"""What of the working tree goes to the other machine: what git tracks, and what is new there."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .ssh import RemoteError


@dataclass(frozen=True)
class Tree:
    """A working tree: its root, files by name as (SHA-256, executable), and where we keep notes."""

    root: Path
    files: dict[str, tuple[str, bool]]
    commit: str
    notes: Path

    def origin(self) -> str:
        """Return the name of this working tree: results come home to where the run began."""
        path = self.notes / "origin"
        try:
            return path.read_text().strip()
        except FileNotFoundError:
            self.notes.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f"origin.{uuid.uuid4().hex}")
            part.write_text(uuid.uuid4().hex)
            try:
                part.rename(path) if not path.exists() else part.unlink()
            except FileExistsError:  # Windows: another call was first
                part.unlink()
            return path.read_text().strip()

    def pack(self, wanted: Iterable[str]) -> bytes:
        """Return a compressed tar file with the files of these hashes, each named by its own."""
        by_hash = {sha: name for name, (sha, _) in self.files.items()}
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz", compresslevel=3) as tar:
            for sha in wanted:
                data = (self.root / by_hash[sha]).read_bytes()
                if hashlib.sha256(data).hexdigest() != sha:
                    raise RemoteError(f"{by_hash[sha]} was changed while it was sent; run again")
                info = tarfile.TarInfo(sha)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        return out.getvalue()


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), *words],
        check=True,
        capture_output=True,
        text=True,
        encoding="utf-8",
    ).stdout


def read_tree(folder: Path) -> Tree:
    """Read the working tree around a folder; raise RemoteError where git does not keep one."""
    try:
        root = Path(_git(folder, "rev-parse", "--show-toplevel").strip())
        names = _git(root, "ls-files", "-co", "--exclude-standard", "-z").split("\0")
        notes = root / _git(root, "rev-parse", "--git-path", "trainium-labs").strip()
    except FileNotFoundError:
        raise RemoteError(
            "--host needs git, which knows what belongs to your work; install it"
        ) from None
    except subprocess.CalledProcessError:
        raise RemoteError(
            "this folder is not a git repository, so what to send is not known. "
            "Run  git init  at its top."
        ) from None
    try:
        commit = _git(root, "rev-parse", "HEAD").strip()
        if _git(root, "status", "--porcelain", "-uno").strip():
            commit += "+"
    except subprocess.CalledProcessError:
        commit = ""  # nothing was committed yet
    files = {}
    for name in sorted(filter(None, set(names))):
        path = root / name
        if path.is_file():  # a link counts as the file that it leads to
            files[name] = (
                hashlib.sha256(path.read_bytes()).hexdigest(),
                bool(path.stat().st_mode & 0o100),
            )
    return Tree(root, files, commit, notes)
