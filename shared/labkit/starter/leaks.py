"""Prove that no solution is in an export: line by line, and by the shape of its statements.

A secret line is one of a solution, of at least 16 characters without spaces, that the staff does
not give away elsewhere in what students are meant to have. A fingerprint is a statement of a
solution with its names replaced by their order of appearance: renaming hides no leak. Wheels and
archives in the export are opened, and every object in the git history of the export is read.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import io
import re
import subprocess
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

SIGNIFICANT = 16  # characters from which a line says something
WORDS, PROSE = 5, 8  # names and numbers of a line of code, words of one of prose
#: lines of one solution in a file of the simulator's wheel that are no coincidence: that code is
#: written apart from the labs, and calls the same functions
TOGETHER = 3
#: AST nodes of a statement; two statements of that size with the same shape are no coincidence
LARGE = 28
_CODE_BLOCK = re.compile(r"^```(?:python|py)?\n(.*?)^```", re.M | re.S)


@dataclass(frozen=True)
class Leak:
    """A place in the export that has a part of a solution."""

    place: str
    what: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


@dataclass
class Secrets:
    """What must not be published: lines, and fingerprints of statements, with where they are."""

    lines: dict[str, str]
    shapes: dict[str, str]


def squeeze(line: str) -> str:
    """Return a line without spaces and comment sign, for comparing."""
    return "".join(line.split()).lstrip("#")


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        short = squeeze(line)
        if len(short) >= SIGNIFICANT:
            yield short


def _says_something(line: str) -> bool:
    """Return whether a line of a solution is too long to be a coincidence."""
    words = len(re.findall(r"[A-Za-z_]\w*|\d+", line))
    prose = line.lstrip().startswith(("#", '"', "'"))
    return words >= (PROSE if prose else WORDS)


class _Rename(ast.NodeTransformer):
    """Replace names and numbers by their order of appearance; drop docstrings' texts."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def _new(self, name: str) -> str:
        return self.names.setdefault(name, f"n{len(self.names)}")

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._new(node.id), ast.Load())

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(self._new(node.arg))


@functools.cache  # what is given with one lab is given with each
def fingerprints(code: str) -> Mapping[str, int]:
    """Return hash and line of each large statement of a piece of code; {} if it is not Python."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    line_by_hash = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and sum(1 for _ in ast.walk(node)) >= LARGE:
            copy = ast.parse(ast.unparse(node))
            if isinstance(copy.body[0], (ast.FunctionDef, ast.ClassDef)):
                copy.body[0].name = "f"
            text = ast.dump(_Rename().visit(copy))
            line_by_hash[hashlib.sha256(text.encode()).hexdigest()] = node.lineno
    return line_by_hash


def _dedent(lines: Iterable[str]) -> str:
    """Return the lines of a region as code that parses by itself."""
    import textwrap

    body = textwrap.indent(textwrap.dedent("\n".join(lines)), "    ")
    return f"def _f():\n{body}\n"


def secrets_of(regions: Iterable[tuple[str, tuple[str, ...]]], given: Iterable[str]) -> Secrets:
    """Return what the solutions (place, lines) have that `given`, texts for students, has not."""
    known_lines: set[str] = set()
    known_shapes: set[str] = set()
    for text in given:
        known_lines.update(_lines(text))
        known_shapes.update(fingerprints(text))
    lines: dict[str, str] = {}
    shapes: dict[str, str] = {}
    for place, body in regions:
        for line in _lines("\n".join(filter(_says_something, body))):
            if line not in known_lines and not line.startswith(("import", "from")):
                lines.setdefault(line, place)
        code = _dedent(body)
        whole = set(fingerprints(code).items())
        for shape, at in whole:
            if at > 1 and shape not in known_shapes:  # line 1 is our own wrapper
                shapes.setdefault(shape, place)
    return Secrets(lines, shapes)


def _members(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield a file, or what is in it if it is an archive."""
    if name.endswith((".whl", ".zip")):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for entry in archive.namelist():
                if not entry.endswith("/"):
                    yield from _members(f"{name}!{entry}", archive.read(entry))
    elif name.endswith((".tar.gz", ".tgz", ".tar")):
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in archive.getmembers():
                file = archive.extractfile(member)
                if file is not None:
                    yield from _members(f"{name}!{member.name}", file.read())
    else:
        yield name, data


def files_of(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of all files of an export, and of all objects of its git history."""
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if path.is_file() and relative.parts[0] != ".git":
            yield from _members(relative.as_posix(), path.read_bytes())
    if (folder / ".git").exists():
        yield from history_of(folder)


def history_of(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield every object of a repository that git has, reachable or not."""

    def git(*args: str) -> bytes:
        return subprocess.run(
            ["git", "-C", str(folder), *args], check=True, capture_output=True
        ).stdout

    listing = git("cat-file", "--batch-check", "--batch-all-objects").decode()
    names = {}
    for line in git("rev-list", "--objects", "--all").decode().splitlines():
        id, _, name = line.partition(" ")
        names[id] = name
    for line in listing.splitlines():
        id, kind, _ = line.split()
        if kind in ("blob", "commit", "tag"):
            yield from _members(
                f"git {kind} {id[:12]} {names.get(id, '')}".strip(), git("cat-file", kind, id)
            )


def find_leaks(folder: Path, secrets: Secrets) -> list[Leak]:
    """Return every place of an export that has a secret line or shape."""
    leaks = []
    for name, data in files_of(folder):
        if b"\0" in data[:4096] and not name.endswith((".py", ".md", ".pyc")):
            continue
        text = data.decode("utf-8", "replace")
        if name.endswith((".ipynb", ".json")):  # lines of code are strings there
            text += "\n" + text.replace("\\n", "\n").replace('"', "\n")
        leaked = [line for line in dict.fromkeys(_lines(text)) if line in secrets.lines]
        places = [secrets.lines[line] for line in leaked]
        least = TOGETHER if ".whl!" in name else 1
        leaks += [
            Leak(name, f"the line {line!r} of {place}")
            for line, place in zip(leaked, places)
            if places.count(place) >= least
        ]
        codes = [text] if ".py" in name or name.startswith("git") else []
        codes += _CODE_BLOCK.findall(text) if not codes else []
        for code in codes:
            leaks += [
                Leak(f"{name}:{at}", f"a statement of the shape of one of {secrets.shapes[shape]}")
                for shape, at in fingerprints(code).items()
                if shape in secrets.shapes
            ]
        if name.endswith(".pyc"):
            leaks.append(Leak(name, "compiled Python, which cannot be reviewed"))
    return leaks
