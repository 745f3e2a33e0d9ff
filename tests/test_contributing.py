"""The worked examples of docs/extending.md: each diff applies, and does what the page promises."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from .test_docs import EXTENDING, ROOT, commands, run

PAGE = EXTENDING.read_text(encoding="utf-8")
EXAMPLES = {
    title: text
    for title, text in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    if "```diff" in text
}


@pytest.fixture
def copy(tmp_path):
    """Return a copy of the repository, as far as the examples need it."""
    for name in ("shared", "labs", "tests", "docs"):
        shutil.copytree(
            ROOT / name,
            tmp_path / name,
            ignore=shutil.ignore_patterns("__pycache__", "results", "profiles"),
        )
    for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


#: The example that needs Ansible; infra's tests replay it.
ROLE = "Add a role"


def test_the_page_has_the_four_examples():
    assert list(EXAMPLES) == ["Add a lab", "Add a generation", "Add an instruction", ROLE]


@pytest.mark.sample(1)
@pytest.mark.parametrize("title", [title for title in EXAMPLES if title != ROLE])
def test_example(title: str, copy: Path):
    text = EXAMPLES[title]
    for diff in re.findall(r"^```diff\n(.*?)^```", text, re.M | re.S):
        done = subprocess.run(
            ["git", "apply", "-"],
            input=diff,
            text=True,
            cwd=copy,
            capture_output=True,
            encoding="utf-8",
            env={**os.environ, "GIT_CEILING_DIRECTORIES": str(copy.parent)},
        )
        assert done.returncode == 0, done.stderr
    for command, shown, code in commands(text):
        run(
            command,
            shown,
            code,
            copy,
            PYTHONPATH=str(copy / "shared"),
            NKI_BANNER="0",
            COLUMNS="120",
        )
