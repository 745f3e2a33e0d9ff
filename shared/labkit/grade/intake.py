"""Take submissions in: folders, archives and git repositories, all of them hostile.

Of a submission only the lab's editable files are taken; the rest is the staff's own. Nothing is
unpacked where it wants to be: members are read one by one, up to limits, and written under names
that we choose. Links, devices and nested archives are not followed.
"""
from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import stat
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from typing import Any

from ..spec import SpecError
from ..tables import read_table

LARGEST_FILE = 1 << 20          # bytes of a file that is taken
MOST_MEMBERS = 5000             # of an archive or folder that are looked at
MOST_BYTES = 50 << 20           # of an archive that are unpacked
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
TABLE = "submissions.csv"


@dataclass
class Submission:
    """What was found of a student: texts by file name, or the reason why there are none."""

    student: str
    id: str
    files: dict[str, bytes] = field(default_factory=dict)
    submitted: datetime | None = None
    problem: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def sha256(self) -> str:
        """Return the hash of what is graded."""
        hasher = hashlib.sha256()
        for name, data in sorted(self.files.items()):
            hasher.update(f"{name}\0{len(data)}\0".encode() + data)
        hasher.update(self.problem.encode())
        return hasher.hexdigest()


class Bad(Exception):
    """A submission that cannot be taken; the text is for the student."""


def safe_id(student: str) -> str:
    """Return a file name for a student: theirs if it is harmless, else with a hash."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}", student):
        return student
    short = re.sub(r"[^A-Za-z0-9]+", "-", student).strip("-")[:40]
    digest = hashlib.sha256(student.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{short or 'student'}-{digest[:8]}"


def parse_time(text: str) -> datetime:
    """Return a time with its zone (UTC if none is said); raise SpecError if it is none."""
    try:
        time = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError:
        raise SpecError(f"{text!r} is not a time such as 2026-05-01T23:59:00-07:00") from None
    return time if time.tzinfo else time.replace(tzinfo=timezone.utc)


# -- what a submission holds -----------------------------------------------------------------------

Entry = tuple[str, Callable[[], bytes]]         # name, what reads it


def _pick(entries: Iterator[Entry], lab: str, wanted: Sequence[str]) -> dict[str, bytes]:
    """Return the wanted files: of the folder labs/LAB if it is there, else the shallowest."""
    best: dict[str, tuple[tuple[int, int, str], Callable[[], bytes]]] = {}
    for count, (name, read) in enumerate(entries):
        if count >= MOST_MEMBERS:
            raise Bad(f"the submission has more than {MOST_MEMBERS} files; hand in what "
                      "nox -s submit packs")
        path = PurePosixPath(name.replace("\\", "/"))
        if path.name not in wanted or ".." in path.parts or path.is_absolute() \
                or "__MACOSX" in path.parts:
            continue
        rank = (0 if path.parent.name == lab else 1, len(path.parts), name)
        if path.name not in best or rank < best[path.name][0]:
            best[path.name] = rank, read
    files = {}
    for name, (_, read) in sorted(best.items()):
        data = read()
        if len(data) > LARGEST_FILE:
            raise Bad(f"{name} is larger than {LARGEST_FILE >> 20} MiB")
        files[name] = data
    return files


def _of_folder(folder: Path) -> Iterator[Entry]:
    def read(path: str) -> Callable[[], bytes]:
        def get() -> bytes:
            fd = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)
                         | getattr(os, "O_NONBLOCK", 0))
            with os.fdopen(fd, "rb") as file:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise Bad(f"{os.path.basename(path)} is no plain file")
                return file.read(LARGEST_FILE + 1)
        return get
    for parent, folders, names in os.walk(folder, followlinks=False):
        folders[:] = sorted(f for f in folders if not f.startswith((".git", ".nox", ".venv")))
        for name in sorted(names):
            path = os.path.join(parent, name)
            if stat.S_ISREG(os.lstat(path).st_mode):
                yield os.path.relpath(path, folder).replace(os.sep, "/"), read(path)


def _of_zip(archive: zipfile.ZipFile) -> Iterator[Entry]:
    def read(info: zipfile.ZipInfo) -> Callable[[], bytes]:
        def get() -> bytes:
            with archive.open(info) as file:
                return file.read(LARGEST_FILE + 1)      # a bomb is not unpacked to its end
        return get
    for info in archive.infolist():
        mode = info.external_attr >> 16
        if not info.is_dir() and not stat.S_ISLNK(mode):
            yield info.filename, read(info)


class Bounded(io.RawIOBase):
    """A file of which so much is read and no more: the parts of a tar that name things can be as
    large as they say, and tarfile holds them whole."""

    def __init__(self, file: Any):
        self._file, self._left = file, MOST_BYTES

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > self._left:
            raise Bad(f"the archive unpacks to more than {MOST_BYTES >> 20} MiB")
        self._left -= size
        return bytes(self._file.read(size))


def _unpacked(path: Path) -> Any:
    """Open a tar, whether it is compressed or not."""
    file = open(path, "rb")
    packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    return gzip.GzipFile(fileobj=file) if packed else file


def _of_tar(archive: tarfile.TarFile) -> Iterator[Entry]:
    def read(member: tarfile.TarInfo) -> Callable[[], bytes]:
        def get() -> bytes:
            file = archive.extractfile(member)
            return file.read(LARGEST_FILE + 1) if file is not None else b""
        return get
    total = 0
    for member in archive:
        total += member.size
        if total > MOST_BYTES:
            raise Bad(f"the archive unpacks to more than {MOST_BYTES >> 20} MiB")
        if member.isreg():
            yield member.name, read(member)


def _of_git(url: str, commit: str, before: datetime | None, lab: str, wanted: Sequence[str],
            scratch: Path) -> tuple[dict[str, bytes], str]:
    """Return the wanted files of a commit, read as blobs: nothing is checked out or run."""
    env = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1",
           "GIT_CONFIG_GLOBAL": os.devnull, "GIT_ALLOW_PROTOCOL": "https:ssh:file"}

    def git(*args: str) -> bytes:
        done = subprocess.run(["git", "-c", "core.hooksPath=/dev/null", "-c",
                               "safe.directory=*", *args], env=env, capture_output=True,
                              timeout=300)
        if done.returncode:
            raise Bad("git: " + done.stderr.decode("utf-8", "replace").strip()[-300:])
        return done.stdout
    if url.startswith("-") or commit.startswith("-"):
        raise Bad("a git address cannot begin with '-'")
    repository = scratch / "repository.git"
    git("clone", "-q", "--bare", "--no-tags", "--", url, str(repository))
    here = ("--git-dir", str(repository))
    if commit and not re.fullmatch(r"[0-9a-f]{7,64}", commit):
        raise Bad(f"{commit!r} is no commit id")
    if not commit:
        limit = [f"--before={before.isoformat()}"] if before else []
        commit = git(*here, "rev-list", "-1", *limit, "HEAD").decode().strip()
        if not commit:
            raise Bad("there is no commit before the deadline")
    entries = []
    for line in git(*here, "ls-tree", "-r", "-z", commit).decode("utf-8", "replace").split("\0"):
        meta, _, name = line.partition("\t")
        parts = meta.split()
        if len(parts) == 3 and parts[1] == "blob" and parts[0].startswith("100"):
            entries.append((name, _blob(git, here, parts[2])))
    return _pick(iter(entries), lab, wanted), commit


def _blob(git: Callable[..., bytes], here: tuple[str, str], id: str) -> Callable[[], bytes]:
    def get() -> bytes:
        if int(git(*here, "cat-file", "-s", id)) > LARGEST_FILE:
            raise Bad(f"a file is larger than {LARGEST_FILE >> 20} MiB")
        return git(*here, "cat-file", "blob", id)
    return get


# -- all of a class --------------------------------------------------------------------------------

def _table(folder: Path) -> dict[str, dict[str, str]]:
    """Return the rows of submissions.csv by student; {} if there is none.

    A time that is none is an error of the staff's, and no student's problem: it is raised.
    """
    path = folder / TABLE
    if not path.is_file():
        return {}
    rows = {row["student"]: row for row in read_table(path, "student", (
        "student", "source", "commit", "submitted_at"))}
    for student, row in rows.items():
        if row.get("submitted_at"):
            try:
                parse_time(row["submitted_at"])
            except SpecError as error:
                raise SpecError(f"{path}, {student}: {error}") from None
    return rows


def _shown(name: str) -> str:
    """Return a name of a file as text that can be written and that looks like what it is."""
    text = os.fsencode(name).decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def find(folder: Path) -> dict[str, dict[str, str]]:
    """Return student -> {source, commit, submitted_at} of a folder of submissions.

    A student is a folder, an archive, or a row of submissions.csv whose `source` is one of those
    or the address of a git repository.
    """
    if not folder.is_dir():
        raise SpecError(f"there is no folder {folder}")
    rows = _table(folder)
    said = {student for student, row in rows.items() if row.get("source")}
    for path in sorted(folder.iterdir()):
        suffix = next((s for s in ARCHIVES if path.name.endswith(s)), "")
        if path.name.startswith(".") or not (path.is_dir() or suffix) or path.is_symlink():
            continue
        student = _shown(path.name[:len(path.name) - len(suffix)])
        row = rows.setdefault(student, {"student": student})
        if student in said:
            continue
        if row.get("source"):
            raise SpecError(f"{student} is there twice: {_shown(row['source'])} and "
                            f"{_shown(path.name)}; which counts? Take one away, or say so in "
                            f"{TABLE} (columns student, source)")
        row["source"] = path.name         # in `folder`, as in the table
    if not rows:
        raise SpecError(f"{folder} has no submissions: neither folders nor archives "
                        f"({', '.join(ARCHIVES)}), nor {TABLE}")
    return rows


def take(row: dict[str, str], root: Path, lab: str, editable: Sequence[str],
         deadline: datetime | None, scratch: Path) -> Submission:
    """Return one submission; what is wrong with it is its `problem`, never an exception."""
    student = row["student"]
    found = Submission(student, safe_id(student))
    try:
        if row.get("submitted_at"):
            found.submitted = parse_time(row["submitted_at"])
        source = row.get("source", "")
        if not source:
            raise Bad("nothing was handed in")
        path = root / source
        if "://" in source or source.endswith(".git"):
            url = source if "://" in source else str(path)
            found.files, commit = _of_git(url, row.get("commit", ""), deadline, lab, editable,
                                          scratch)
            found.notes.append(f"commit {commit}")
        elif path.is_symlink() or not path.exists():
            raise Bad("nothing was handed in")
        elif path.is_dir():
            found.files = _pick(_of_folder(path), lab, editable)
        elif path.name.endswith(".zip"):
            with zipfile.ZipFile(path) as archive:
                found.files = _pick(_of_zip(archive), lab, editable)
        else:
            with _unpacked(path) as file, tarfile.open(
                    fileobj=Bounded(file), mode="r:") as tar:
                found.files = _pick(_of_tar(tar), lab, editable)
        missing = [name for name in editable[:1] if name not in found.files]
        if missing:
            raise Bad(f"{missing[0]} is not in what was handed in")
        for name, data in found.files.items():
            if b"\0" in data:
                raise Bad(f"{name} is no text")
    except (Bad, SpecError) as error:
        found.files, found.problem = {}, str(error)
    except Exception as error:      # of the libraries that read formats, whatever those raise
        found.files = {}
        found.problem = f"what was handed in cannot be read ({type(error).__name__})"
    return found
