"""The commands in the labs' READMEs run and print what the page says (see CONTRIBUTING.md)."""
from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def steps():
    """Yield (page, command, lines of output, exit code) for every `$` line of a console block."""
    for page in (ROOT / "README.md", *sorted(ROOT.glob("labs/*/README.md"))):
        for block in re.findall(r"^```console\n(.*?)^```", page.read_text("utf-8"), re.M | re.S):
            for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
                command, *shown = part.rstrip("\n").split("\n")
                code = 0
                if shown and (end := re.fullmatch(r"\(exit code (\d+)\)", shown[-1])):
                    code, shown = int(end.group(1)), shown[:-1]
                yield pytest.param(page, command, shown, code, id=f"{page.parent.name}: {command}")


@pytest.mark.parametrize("page, command, shown, code", list(steps()))
def test_command(page: Path, command: str, shown: list[str], code: int, tmp_path):
    program, script, *args = shlex.split(command)
    assert program == "python", "commands in console blocks begin with python"
    if script == "tester.py":  # keep the results of a test run out of the repository
        args += ["--results", str(tmp_path / "results.json")]
    done = subprocess.run([sys.executable, script, *args], cwd=page.parent, text=True,
                          capture_output=True, encoding="utf-8", timeout=300)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == code, said
    for line in shown:
        assert " ".join(line.split()) in said
