"""`labkit update SOURCE`: bring staff's fixes into a student's repository.

The manifest of the starter says which files are the student's. Those are never touched. A staff
file that the student has changed is kept next to the new one, as NAME.yours.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import tempfile
import urllib.request
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from ..show import add_json, answer
from ..spec import SpecError
from .export import MANIFEST, SCHEMA, unix

LARGEST = 200 << 20  # bytes of a download


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return starter.json of a folder; raise SpecError if it is not one."""
    try:
        document = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        good = document["schema"] == SCHEMA and document["schema_version"] == 1
        names = [*document["files"], *document["editable"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SpecError(
            f"{folder} is no starter repository: {MANIFEST} cannot be read ({error})"
        ) from None
    if not good:
        raise SpecError(f"{folder / MANIFEST} is of another version of labkit")
    for name in names:
        parts = PurePosixPath(name).parts
        if not parts or name.startswith("/") or ".." in parts or ":" in name or "\\" in name:
            raise SpecError(f"{folder / MANIFEST} names a file outside of the repository: {name!r}")
    return document


@contextmanager
def opened(source: str) -> Iterator[Path]:
    """Yield the folder of a starter: a folder itself, a .zip of one, or the https URL of a .zip."""
    if Path(source).is_dir():
        yield Path(source)
        return
    with tempfile.TemporaryDirectory(prefix="labkit-update-") as scratch:
        archive = Path(source)
        if source.startswith("https://"):
            archive = Path(scratch) / "update.zip"
            try:
                with urllib.request.urlopen(source, timeout=60) as answer, open(archive, "wb") as f:
                    data = answer.read(LARGEST + 1)
                    if len(data) > LARGEST:
                        raise SpecError(f"{source} is larger than {LARGEST >> 20} MiB")
                    f.write(data)
            except OSError as error:
                raise SpecError(f"{source} could not be fetched: {error}") from None
        elif source.startswith("http:"):
            raise SpecError("an update comes over https, not http")
        try:
            with zipfile.ZipFile(archive) as file:
                file.extractall(Path(scratch) / "new")  # it cuts .. and absolute names off
        except (OSError, zipfile.BadZipFile) as error:
            raise SpecError(
                f"{source} is neither a folder nor a .zip of a starter ({error})"
            ) from None
        manifests = sorted((Path(scratch) / "new").rglob(MANIFEST), key=lambda p: len(p.parts))
        if not manifests:
            raise SpecError(f"{source} has no {MANIFEST}: it is no starter repository")
        yield manifests[0].parent


def _hash(path: Path) -> str:
    return hashlib.sha256(unix(path.read_bytes())).hexdigest() if path.is_file() else ""


def apply(here: Path, new: Path) -> list[str]:
    """Replace the staff's files in `here` by those of `new`; return what was done, in sentences.

    A kill in the middle leaves old and new files, each of them whole; running it again finishes.
    """
    manifest, new_manifest = read_manifest(here), read_manifest(new)
    wrong = [n for n, digest in new_manifest["files"].items() if _hash(new / n) != digest]
    if wrong:
        raise SpecError(f"the update is damaged: {wrong[0]} is not what its {MANIFEST} says")
    untouched = set(manifest["editable"]) | set(new_manifest["editable"])
    changes = []
    for name, digest in new_manifest["files"].items():
        path, old = here / name, _hash(here / name)
        if old == digest or (name in untouched and path.exists()):
            continue
        if old and old != manifest["files"].get(name):
            shutil.copyfile(path, f"{path}.yours")
            changes.append(f"{name} was changed by you: your file is now {name}.yours")
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        shutil.copyfile(new / name, part)
        os.replace(part, path)
        changes.append(f"{name} is {'updated' if old else 'new'}")
    for name, digest in manifest["files"].items():
        if (
            name not in new_manifest["files"]
            and name not in untouched
            and _hash(here / name) == digest
        ):
            (here / name).unlink()
            changes.append(f"{name} is gone")
    part = here / f"{MANIFEST}.part"
    shutil.copyfile(new / MANIFEST, part)
    os.replace(part, here / MANIFEST)
    return changes


def update_parser() -> argparse.ArgumentParser:
    """Return the parser of update."""
    parser = argparse.ArgumentParser(prog="labkit update", description=update.__doc__)
    parser.add_argument("source", help="a folder, a .zip or an https URL of a .zip")
    add_json(parser)
    return parser


def update(argv: Sequence[str] | None = None) -> int:
    """Bring fixes of the course staff into this repository; the files you edit stay as they are."""
    args = update_parser().parse_args(argv)
    here = Path.cwd()
    while not (here / MANIFEST).is_file():
        if here == here.parent:
            raise SpecError(f"there is no {MANIFEST} here or above: run this in your repository")
        here = here.parent
    with opened(args.source) as new:
        changes = apply(here, new)
    answer["changes"] = changes
    for line in changes:
        print(line)
    print("up to date; the files you edit were not touched" if changes else "nothing to update")
    return 0
