"""The commands in the pages run and print what the page says (see CONTRIBUTING.md).

A shown line must occur in the output. `...` in it stands for anything, and `~85` for a number
within a fifth of 85: what the latency model predicts may move a little without the page being
wrong.
A Python block with a title is a file that the commands of the page use.
"""
from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def commands(text: str) -> Iterator[tuple[str, list[str], int]]:
    """Yield (command, lines of output, exit code) for every `$` line of a console block."""
    for block in re.findall(r"^ *```console\n(.*?)^ *```", text, re.M | re.S):
        for part in re.split(r"^ *\$ ", block.replace("\\\n", " "), flags=re.M)[1:]:
            command, *shown = part.rstrip("\n").split("\n")
            code = 0
            if shown and (end := re.fullmatch(r"\(exit code (\d+)\)", shown[-1])):
                code, shown = int(end.group(1)), shown[:-1]
            yield command, shown, code


#: How far a number after "~" may be off, as a part of it.
ABOUT = 0.2
_SPECIAL = re.compile(r"(\.\.\.|~[\d,.]*\d(?:e-?\d+)?)")


def occurs(line: str, said: str) -> bool:
    """Tell whether a shown line is part of an output; both have single spaces."""
    pattern, numbers = "", []
    for part in _SPECIAL.split(line):
        if part == "...":
            pattern += ".*?"
        elif part.startswith("~"):
            numbers.append(float(part[1:].replace(",", "")))
            pattern += r"(\d[\d,.]*(?:e-?\d+)?)"
        else:
            pattern += re.escape(part)
    for found in re.finditer(pattern, said):
        got = [float(text.rstrip(".,").replace(",", "")) for text in found.groups()]
        if all(abs(a - b) <= ABOUT * abs(b) for a, b in zip(got, numbers)):
            return True
    return False


def files(text: str) -> dict[str, str]:
    """Return the files that a page shows: its Python blocks with a title."""
    return dict(re.findall(r'^```python title="([\w.]+)"\n(.*?)^```', text, re.M | re.S))


def run(command: str, shown: list[str], code: int, folder: Path, **env: str) -> None:
    """Run a command of a page in a folder, and hold it to what the page shows."""
    program, *args = shlex.split(command)
    assert program == "python", "commands in console blocks begin with python"
    done = subprocess.run([sys.executable, *args], cwd=folder, text=True, capture_output=True,
                          encoding="utf-8", timeout=300, env={**os.environ, **env})
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == code, said
    for line in shown:
        assert occurs(" ".join(line.split()), said), f"{line!r} is not in: {said}"


#: Infra's tests replay it, with a fake cloud.
OF_INFRA = ROOT / "docs" / "class-days.md"
#: The pages whose `console` blocks are run here.
PAGES = tuple(page for page in (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")),
                                *sorted(ROOT.glob("labs/*/README.md")),
                                *sorted(ROOT.glob("labs/*/solutions/answers.md")))
              if page != OF_INFRA and "```console" in page.read_text("utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_the_commands_of_a_page(page: Path, tmp_path: Path):
    """Run them in order, in one copy: they build on each other."""
    # answer keys lie below the lab whose commands they run, pages of docs below the repository
    home = page.parents[page.parent.name == "solutions" or page.parent == ROOT / "docs"]
    part = "labs" if home == ROOT else ""       # what such a page speaks of
    folder = tmp_path / home.name
    shutil.copytree(home / part, folder / part,
                    ignore=shutil.ignore_patterns("__pycache__", "results"))
    text = page.read_text("utf-8")
    for name, code in files(text).items():
        (folder / name).write_text(code, "utf-8")
    for command, shown, code in commands(text):
        run(command, shown, code, folder)


@pytest.mark.parametrize("line, said, expected", [
    ("takes ~85 us", "it takes 84.7 us.", True), ("takes ~85 us", "it takes 60 us", False),
    ("~5,200 us", "5,161.4 us", True), ("total ~3.1e-05", "total 2.84e-05", True),
    ("a ... c", "a b c", True), ("a ... c", "a b", False), ("a.c", "abc", False)])
def test_shown_lines_are_held_against_the_output(line: str, said: str, expected: bool):
    assert occurs(line, said) is expected
