"""The commands in the labs' READMEs run and print what the page says (see CONTRIBUTING.md)."""
from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


def commands(text: str) -> Iterator[tuple[str, list[str], int]]:
    """Yield (command, lines of output, exit code) for every `$` line of a console block."""
    for block in re.findall(r"^```console\n(.*?)^```", text, re.M | re.S):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, *shown = part.rstrip("\n").split("\n")
            code = 0
            if shown and (end := re.fullmatch(r"\(exit code (\d+)\)", shown[-1])):
                code, shown = int(end.group(1)), shown[:-1]
            yield command, shown, code


def run(command: str, shown: list[str], code: int, folder: Path, **env: str) -> None:
    """Run a command of a page in a folder, and hold it to what the page shows."""
    program, *args = shlex.split(command)
    assert program == "python", "commands in console blocks begin with python"
    done = subprocess.run([sys.executable, *args], cwd=folder, text=True, capture_output=True,
                          encoding="utf-8", timeout=300, env={**os.environ, **env})
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == code, said
    for line in shown:
        assert " ".join(line.split()) in said, said


def steps() -> Iterator[Any]:
    """Yield the commands of the pages that users read."""
    for page in (ROOT / "README.md", *sorted(ROOT.glob("labs/*/README.md")),
                 *sorted(ROOT.glob("docs/*.md"))):
        for command, shown, code in commands(page.read_text("utf-8")):
            yield pytest.param(page, command, shown, code, id=f"{page.parent.name}: {command}")


@pytest.fixture(scope="module")
def copy_of(tmp_path_factory):
    """Return a function that copies a page's folder once, for commands that build on each other."""
    copies: dict[Path, Path] = {}

    def copy(folder: Path) -> Path:
        if folder not in copies:
            copies[folder] = tmp_path_factory.mktemp("docs") / folder.name
            shutil.copytree(folder, copies[folder], ignore=shutil.ignore_patterns("__pycache__"))
        return copies[folder]
    return copy


@pytest.mark.parametrize("page, command, shown, code", list(steps()))
def test_command(page: Path, command: str, shown: list[str], code: int, copy_of):
    run(command, shown, code, ROOT if page.parent.name == "docs" else copy_of(page.parent))
