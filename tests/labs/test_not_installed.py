"""Programs of the labs, where a package that they need is not installed: a sentence, and 2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WITHOUT = """
import runpy, sys


class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == {gone!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Gone())
sys.path.insert(0, {folder!r})
sys.argv = ["program", *{argv!r}]
runpy.run_path({program!r}, run_name="__main__")
"""


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    "program, argv",
    [
        ("vecadd/tester.py", ["--list"]),
        ("ffnn/tester.py", ["--list"]),
        ("conv2d/tester.py", ["--list"]),
        ("ffnn/reference.py", ["--help"]),
    ],
)
@pytest.mark.parametrize("gone", ["labkit", "rich", "numpy", "filelock"])
def test_a_sentence_where_a_package_is_missing(program, argv, gone):
    path = ROOT / "labs" / program
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            WITHOUT.format(gone=gone, folder=str(path.parent), argv=argv, program=str(path)),
        ],
        text=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "shared")},
    )
    if program.endswith("reference.py") and gone in ("rich", "filelock"):
        assert done.returncode == 0  # it needs neither
        return
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert f"{gone} is not installed" in done.stderr and "README.md" in done.stderr
