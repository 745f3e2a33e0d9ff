"""What users made before modules moved still works: their scripts, kernels, results, profiles.

`tests/before` was written with commit 9b7d24c, the last one before the rooms; do not change it.
A class description of that commit is read in infra/tests/test_spec.py.
"""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

from grading import run as grade
from grading import small_lab
from labkit.history import results

BEFORE = Path(__file__).parent / "before"
ROOT = Path(__file__).parents[1]


def python(*arguments: str, cwd: Path) -> str:
    """Run Python in a folder; return what it prints."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "shared")}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_script(tmp_path):
    said = python("-m", "nkisim", "run", str(BEFORE / "script.py"), "--flag", cwd=tmp_path)
    assert "as before ['--flag']" in said
    assert (tmp_path / "profile.html").stat().st_size > 50_000


def test_a_saved_profile_is_shown(tmp_path):
    file = str(BEFORE / "profile.json")
    said = python("-m", "nkisim", "view", file, "--summary", "--no-open", cwd=tmp_path)
    assert "predicted" in said and "scale" in said


def test_a_submission_gets_its_points(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_LABS", str(small_lab(tmp_path)))
    assert grade(BEFORE / "students", tmp_path / "out", "--sandbox", "none") == 0
    with open(tmp_path / "out" / "grades.csv", newline="") as file:
        assert [(r["student"], r["points"]) for r in csv.DictReader(file)] == [("alice", "10")]


def test_results_are_kept_and_added_to(tmp_path):
    file = tmp_path / "results.json"
    file.write_text((BEFORE / "results.json").read_text())
    tester = str(ROOT / "labs" / "vecadd" / "tester.py")
    python(tester, "--kernel", "naive", "-n", "128", "--results", str(file), cwd=tmp_path)
    document = json.loads(file.read_text())
    assert document["schema"] == results.SCHEMA
    assert [r["cases"][0]["case"] for r in document["runs"]] == ["transpose_128x128", "naive_128"]
    (before,) = json.loads((BEFORE / "results.json").read_text())["runs"]
    assert document["runs"][0] == before
