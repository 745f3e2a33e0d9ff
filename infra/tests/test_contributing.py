"""The example "Add a role" of docs/extending.md: its diff applies, and does what it promises."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import INFRA

PAGE = (INFRA.parent / "docs/extending.md").read_text(encoding="utf-8")


@pytest.mark.full
def test_the_example_adds_a_role(tmp_path: Path) -> None:
    (text,) = re.findall(r"^## Add a role\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    copied = shutil.ignore_patterns("__pycache__", ".ansible", "out")
    shutil.copytree(INFRA, tmp_path / "infra", ignore=copied)
    (diff,) = re.findall(r"^```diff\n(.*?)^```", text, re.M | re.S)
    apart = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    done = subprocess.run(
        ["git", "apply", "-"], input=diff, text=True, cwd=tmp_path, capture_output=True, env=apart
    )
    assert done.returncode == 0, done.stderr
    (block,) = re.findall(r"^```console\n(.*?)^```", text, re.M | re.S)
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        command, *shown = part.rstrip("\n").split("\n")
        program, *args = shlex.split(command)
        assert program == "python"
        done = subprocess.run(
            [sys.executable, *args], cwd=tmp_path, text=True, capture_output=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert all(line in done.stdout for line in shown), done.stdout
