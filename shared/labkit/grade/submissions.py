"""Take submissions in: folders, archives and git repositories, all of them hostile.

Of a submission only the lab's editable files are taken; the rest is the staff's own. Nothing is
unpacked where it wants to be: members are read one by one, up to limits, and written under names
that we choose. Links, devices and nested archives are not followed.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import os
import re
import stat
import subprocess
import tarfile
import tempfile
import tokenize
import unicodedata
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from ..spec import SpecError
from ..tables import read_table

LARGEST_FILE = 1 << 20  # bytes of a file that is taken
MOST_MEMBERS = 5000  # of an archive or folder that are looked at
MOST_BYTES = 50 << 20  # of an archive that are unpacked
LARGEST_HEAD, MOST_HEADS = 16 << 10, 1 << 20  # of what a tar says about a file, and about all
MOST_CLONED = 1 << 30  # of a repository
MOST_LISTED = 8 << 20  # of a list of its files, and of one of them
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
TABLE = "submissions.csv"
NOTHING = "nothing was handed in"  # under a name of the table


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
    """Return a file name for a student: theirs if it is harmless, else with a hash.

    A name that ends as those with a hash do gets one: it could be that of another student's files.
    """
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}", student) and not re.search(
        r"-[0-9a-f]{8}$", student
    ):
        return student
    short = re.sub(r"[^A-Za-z0-9]+", "-", student).strip("-")[:40]
    digest = hashlib.sha256(student.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{short or 'student'}-{digest[:8]}"


def _here(time: datetime) -> datetime:
    """Return a time in this machine's zone; in UTC for a year that the zone has no rule for."""
    try:
        return time.astimezone()
    except (ValueError, OverflowError):
        return time.replace(tzinfo=timezone.utc)


def parse_time(text: str) -> datetime:
    """Return a time with its zone; raise SpecError if it is not a time, or says no zone."""
    try:
        time = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError:
        raise SpecError(f"{text!r} is not a time such as 2026-05-01T23:59:00-07:00") from None
    if time.tzinfo is None:
        utc, local = time.replace(tzinfo=timezone.utc), _here(time)
        raise SpecError(
            f"{text!r} says no zone, and hours of lateness depend on it. In UTC it is "
            f"{utc.isoformat()}; in this machine's zone ({local.tzname()}) it is "
            f"{local.isoformat()}, which is {local.astimezone(timezone.utc).isoformat()}. "
            "Write the one that is meant"
        )
    return time


# -- what a submission holds -----------------------------------------------------------------------

Entry = tuple[str, Callable[[], bytes]]  # name, what reads it


def _pick(entries: Iterator[Entry], lab: str, wanted: Sequence[str]) -> dict[str, bytes]:
    """Return the wanted files: of the folder labs/LAB if it is there, else the shallowest."""
    best: dict[str, tuple[tuple[int, int, str], Callable[[], bytes]]] = {}
    for count, (name, read) in enumerate(entries):
        if count >= MOST_MEMBERS:
            raise Bad(
                f"the submission has more than {MOST_MEMBERS} files; hand in what "
                "nox -s submit packs"
            )
        path = PurePosixPath(name.replace("\\", "/"))
        if (
            path.name not in wanted
            or ".." in path.parts
            or path.is_absolute()
            or "__MACOSX" in path.parts
        ):
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
            fd = os.open(
                path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
            )
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
                return file.read(LARGEST_FILE + 1)  # a bomb is not unpacked to its end

        return get

    for info in archive.infolist():
        mode = info.external_attr >> 16
        if not info.is_dir() and not stat.S_ISLNK(mode):
            yield info.filename, read(info)


class Bounded(io.RawIOBase):
    """Read a file up to a limit: the headers of a tar can claim any size, and tarfile keeps them in
    memory and takes time that grows with their square.

    `listing`: no file's content is read yet.
    """

    def __init__(self, file: Any):
        self._file, self._left, self._heads = file, MOST_BYTES, MOST_HEADS
        self.listing = True

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
        if self.listing and size > tarfile.BLOCKSIZE:
            self._heads -= size
            if size > LARGEST_HEAD or self._heads < 0:
                raise Bad(
                    f"the archive says more than {LARGEST_HEAD >> 10} KiB about one of its "
                    f"files, or {MOST_HEADS >> 10} KiB about all"
                )
        self._left -= size
        return bytes(self._file.read(size))


def _unpacked(path: Path) -> Any:
    """Open a tar, whether it is compressed or not."""
    file = open(path, "rb")
    packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    return gzip.GzipFile(fileobj=file) if packed else file


def _of_tar(archive: tarfile.TarFile, file: Bounded) -> Iterator[Entry]:
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
    file.listing = False


@dataclass(frozen=True)
class Sources:
    """Where submissions may come from.

    `hosts`: HOST or HOST/OWNER that staff have named, over https and ssh. Without any, https from
    `HOSTS`: ssh speaks with the staff's key, which opens more than a student's repositories.
    `local`: folders and repositories of this machine, wherever they are.
    """

    hosts: tuple[str, ...] = ()
    local: bool = False

    def check(self, url: str) -> None:
        """Raise Bad for an address that is not to be asked."""
        scheme, host, path = _parts(url)
        if scheme == "file" and self.local:
            return
        named = [h.rstrip("/").lower() for h in self.hosts]
        at = f"{host}/{path}".lower()
        if scheme in ("https", "ssh") and any(
            at.startswith(h + "/") for h in (named or (HOSTS if scheme == "https" else ()))
        ):
            return
        raise Bad(
            f"{url[:100]} is not an address that is graded: "
            + (
                f"https and ssh of {', '.join(named)}"
                if named
                else f"https of {', '.join(HOSTS)} (--host for others, and for ssh)"
            )
        )


#: hosts whose public repositories are read without being named
HOSTS = ("github.com", "gitlab.com", "bitbucket.org", "codeberg.org")
_SHORT = re.compile(r"[\w.-]+@([\w.-]+):(?!//)(.+)")  # git@github.com:owner/name.git


def _parts(url: str) -> tuple[str, str, str]:
    """Return (scheme, host, path) of an address; "" for what it does not have."""
    if url.startswith("-") or not re.fullmatch(r"[\w@:/.~+-]+", url):
        return "", "", ""
    short = _SHORT.fullmatch(url)
    if short:
        return "ssh", short[1].lower(), short[2].lstrip("/")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "", "", ""
    if ".." in parts.path.split("/") or parts.password is not None or port not in (None, 22, 443):
        return "", "", ""
    return parts.scheme.lower(), host.lower(), parts.path.lstrip("/")


def is_address(source: str) -> bool:
    """Return whether a source is the address of a repository, and not a file of the folder."""
    return "://" in source or _SHORT.fullmatch(source) is not None or source.endswith(".git")


def _inside(root: Path, source: str, local: bool) -> Path:
    """Return the path of a source in the folder of submissions; raise Bad if it lies elsewhere."""
    path = root / source
    if local:
        return path
    if (
        Path(source).is_absolute()
        or ".." in Path(source).parts
        or not path.resolve().is_relative_to(root.resolve())
    ):
        raise Bad(f"{source[:100]!r} is not in the folder of submissions")
    return path


def _of_git(
    url: str,
    commit: str,
    before: datetime | None,
    lab: str,
    wanted: Sequence[str],
    scratch: Path,
    allowed: str,
) -> tuple[dict[str, bytes], str]:
    """Return the wanted files of a commit, read as blobs: nothing is checked out or run."""
    # what opens the staff's own repositories stays here: passwords that HOME/.netrc or an editor's
    # helper knows (ssh finds its keys without HOME)
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.endswith("_ASKPASS") and not name.startswith("GIT_CONFIG")
    }
    env |= {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_NOSYSTEM": "1",
        "HOME": str(scratch),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ALLOW_PROTOCOL": allowed,
    }

    def git(*args: str, most: int = MOST_LISTED) -> bytes:
        import resource

        def limit() -> None:  # a few trees that name each other list without end
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

        with tempfile.TemporaryFile() as out:
            done = subprocess.run(
                ["git", "-c", "core.hooksPath=/dev/null", "-c", "safe.directory=*", *args],
                env=env,
                stdout=out,
                stderr=subprocess.PIPE,
                timeout=300,
                preexec_fn=limit,
            )
            if done.returncode < 0:
                raise Bad(f"git: {args[-1]} has more than {most >> 20} MiB to say")
            if done.returncode:
                raise Bad("git: " + done.stderr.decode("utf-8", "replace").strip()[-300:])
            out.seek(0)
            return out.read()

    repository = scratch / "repository.git"
    git(
        "-c",
        "transfer.unpackLimit=1",
        "clone",
        "-q",
        "--bare",
        "--no-tags",
        "--",
        url,
        str(repository),
        most=MOST_CLONED,
    )  # one file: the limit is that of all
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
    """Return the rows of submissions.csv by student; {} without that file.

    Raises SpecError for a malformed time: that is an error of the staff, not of a student.
    """
    path = folder / TABLE
    if not path.is_file():
        return {}
    rows = {
        row["student"]: row
        for row in read_table(path, "student", ("student", "source", "commit", "submitted_at"))
    }
    wrong = []
    for student, row in rows.items():
        if row.get("submitted_at"):
            try:
                parse_time(row["submitted_at"])
            except SpecError as error:
                wrong.append(f"{path}, {student}: {error}")
    if wrong:
        more = f"\nSo it is in {len(wrong) - 1} more rows" if len(wrong) > 1 else ""
        raise SpecError(wrong[0] + more)
    return rows


def _shown(name: str) -> str:
    """Return a name of a file as text that can be written and that looks like what it is, with
    letters in one piece: a student's is the same in a table and on any file system."""
    text = unicodedata.normalize("NFC", os.fsencode(name).decode("utf-8", "replace"))
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def find(folder: Path) -> dict[str, dict[str, str]]:
    """Return student -> {source, commit, submitted_at} of a folder of submissions.

    A student is a folder, an archive, or a row of submissions.csv whose `source` is one of those
    or the address of a git repository.
    """
    if not folder.is_dir():
        raise SpecError(f"there is no folder {folder}")
    rows = _table(folder)
    with_source = {student for student, row in rows.items() if row.get("source")}
    for path in sorted(folder.iterdir()):
        suffix = next((s for s in ARCHIVES if path.name.endswith(s)), "")
        if path.name.startswith(".") or not (path.is_dir() or suffix) or path.is_symlink():
            continue
        student = _shown(path.name[: len(path.name) - len(suffix)])
        row = rows.setdefault(student, {"student": student})
        if student in with_source:
            continue
        if row.get("source"):
            raise SpecError(
                f"{student} is there twice: {_shown(row['source'])} and "
                f"{_shown(path.name)}; which counts? Take one away, or say so in "
                f"{TABLE} (columns student, source)"
            )
        row["source"] = path.name  # in `folder`, as in the table
    if not rows:
        raise SpecError(
            f"{folder} has no submissions: neither folders nor archives "
            f"({', '.join(ARCHIVES)}), nor {TABLE}"
        )
    return rows


def take(
    row: dict[str, str],
    root: Path,
    lab: str,
    editable: Sequence[str],
    deadline: datetime | None,
    scratch: Path,
    sources: Sources | None = None,
) -> Submission:
    """Return one submission; what is wrong with it is its `problem`, never an exception."""
    sources = sources or Sources()
    student = row["student"]
    submission = Submission(student, safe_id(student))
    try:
        if row.get("submitted_at"):
            submission.submitted = parse_time(row["submitted_at"])
        source = row.get("source", "")
        if not source:
            raise Bad(NOTHING)
        if is_address(source):
            here = "://" not in source and not _SHORT.fullmatch(source)
            sources.check(root.resolve().joinpath(source).as_uri() if here else source)
            submission.files, commit = _of_git(
                str(root / source) if here else source,
                row.get("commit", ""),
                deadline,
                lab,
                editable,
                scratch,
                "https:ssh" + ":file" * sources.local,
            )
            submission.notes.append(f"commit {commit}")
            return _whole(submission, editable)
        path = _inside(root, source, sources.local)
        if path.is_symlink() or not path.exists():
            raise Bad(NOTHING)
        elif path.is_dir():
            submission.files = _pick(_of_folder(path), lab, editable)
        elif path.name.endswith(".zip"):
            with zipfile.ZipFile(path) as archive:
                submission.files = _pick(_of_zip(archive), lab, editable)
        else:
            with _unpacked(path) as file:
                bounded = Bounded(file)
                with tarfile.open(fileobj=bounded, mode="r:") as tar:
                    submission.files = _pick(_of_tar(tar, bounded), lab, editable)
        return _whole(submission, editable)
    except (Bad, SpecError) as error:
        submission.files = {}  # an address, or what a host says of it, may hold escape codes
        submission.problem = "".join(c if c.isprintable() else " " for c in str(error))
    except Exception as error:  # of the libraries that read formats, whatever those raise
        submission.files = {}
        submission.problem = f"the submission cannot be read ({type(error).__name__})"
    return submission


def _whole(found: Submission, editable: Sequence[str]) -> Submission:
    """Return a submission that has what is graded; raise Bad if it does not."""
    missing = [name for name in editable[:1] if name not in found.files]
    if missing:
        raise Bad(f"{missing[0]} is missing from the submission")
    for name, data in found.files.items():
        if b"\0" in data:
            raise Bad(f"{name} is no text")
        found.files[name] = as_utf8(name, data)
    return found


def as_utf8(name: str, data: bytes) -> bytes:
    """Return a file of Python as UTF-8, whatever encoding its first lines name.

    Otherwise a comment for those who read the file could be code for Python, which takes what is
    named there: with "unicode_escape" a comment's \\n begins a line. Encodings in which that can be
    are refused.
    """
    plain = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")  # as Python finds its lines
    try:
        codec = codecs.lookup(tokenize.detect_encoding(io.BytesIO(plain).readline)[0]).name
    except (SyntaxError, LookupError):
        return data  # Python does not read it either
    if codec in ("utf-8", "utf-8-sig", "ascii"):
        return data
    if not re.fullmatch(r"iso8859-\d+|cp125\d", codec):
        raise Bad(f"{name} says that it is written in {codec}; save it as UTF-8")
    try:
        lines = plain.decode(codec).split("\n")
    except UnicodeDecodeError:
        return data
    lines[:2] = [re.sub(r"coding([:=][ \t]*)[-\w.]+", r"coding\1utf-8", line) for line in lines[:2]]
    return "\n".join(lines).encode()
