"""nkisim compare and the GitHub Action: what a pull request changed, before and after."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nkisim.cli.compare import command

ROOT = Path(__file__).resolve().parents[3]
KERNELS = Path(__file__).parents[1] / "kernels_to_evaluate.py"
LIST = [
    {
        "kernel": "kernels.py:double",
        "args": ["128x1024:float32"],
        "reference": "reference.py:double_of",
        "target": "trn2",
    },
    {"kernel": "other.py:triple", "args": ["128x128:float32"], "target": "trn2"},
]


@pytest.fixture
def change(tmp_path, monkeypatch):
    """Return the folder of a change, beside the folder `base`."""
    text = KERNELS.read_text("utf-8")
    for name in ("base", "now"):
        folder = tmp_path / name
        folder.mkdir()
        for file in ("kernels.py", "reference.py", "other.py"):
            (folder / file).write_text(text, "utf-8")
        (folder / "kernels.json").write_text(json.dumps(LIST), "utf-8")
    monkeypatch.chdir(tmp_path / "now")
    return tmp_path / "now"


def test_only_what_has_changed_is_in_the_table_with_both_times(change, capsys):
    faster = KERNELS.read_text("utf-8").replace("COLUMNS = 128", "COLUMNS = 512")
    (change / "kernels.py").write_text(faster, "utf-8")
    code = command(["kernels.json", "--base", "../base", "--jobs", "1", "--json", "all.json"])
    out = capsys.readouterr().out
    assert code == 0 and "not measured" in out and "other.py" not in out
    row = next(line for line in out.splitlines() if "kernels.py:double" in line)
    before, after = (float(x) for x in re.findall(r"\| ([\d.]+) ", row)[:2])
    assert after < before and f"{after / before - 1:+.0%}"[:2] in row
    assert json.loads(Path("all.json").read_text("utf-8"))[0]["before"]["right"] is True


def test_a_kernel_that_became_wrong_fails_and_is_annotated_at_its_line(change, capsys):
    wrong = KERNELS.read_text("utf-8").replace(
        "x.shape[1] // COLUMNS)", "x.shape[1] // COLUMNS - 1)"
    )
    (change / "kernels.py").write_text(wrong, "utf-8")
    flags = ["--github", "--sarif", "out.sarif", "--markdown", "table.md", "--jobs", "1"]
    code = command(["kernels.json", "--base", "../base", *flags])
    out = capsys.readouterr().out
    assert code == 1 and "wrong (was right)" in out
    line = next(n for n, t in enumerate(wrong.splitlines(), 1) if "out = nl.ndarray" in t)
    assert re.search(f"::error file=kernels.py,line={line}.*NKI-O04", out) and "fix: " in out
    log = json.loads(Path("out.sarif").read_text("utf-8"))
    assert log["version"] == "2.1.0" and log["runs"][0]["results"][0]["ruleId"] == "NKI-O04"
    assert Path("table.md").read_text("utf-8") in out


def test_nothing_changed_is_said(change, capsys):
    assert command(["kernels.json", "--base", "../base", "--jobs", "1"]) == 0
    assert "No kernel of the list has changed" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["{", "{}", "[3]", None])
def test_a_list_that_is_none_is_a_sentence_and_2(change, capsys, text):
    Path("kernels.json").unlink()
    if text is not None:
        Path("kernels.json").write_text(text)
    assert command(["kernels.json"]) == 2
    assert "nkisim compare: " in capsys.readouterr().err


@pytest.mark.full
@pytest.mark.skipif(shutil.which("bash") is None or shutil.which("git") is None, reason="no shell")
def test_the_command_of_the_action_runs_on_an_exported_starter(tmp_path):
    """The script of the action itself, on a repository of students, with a commit before."""
    yaml = pytest.importorskip("yaml")
    action = yaml.safe_load((ROOT / ".github/actions/evaluate/action.yml").read_text("utf-8"))
    script = next(s["run"] for s in action["runs"]["steps"] if s.get("id") == "compare")
    home, origin = tmp_path / "starter", tmp_path / "origin"
    subprocess.run(
        [sys.executable, "-m", "labkit", "starter", "--out", str(home)], check=True, cwd=ROOT,
        capture_output=True, timeout=300,
    )  # fmt: skip
    kernels = next(home.rglob("vecadd/kernels_nki.py"), None) or next(
        home.rglob("vecadd/kernels.py")
    )
    where = kernels.relative_to(home).as_posix()
    listed = [
        {
            "kernel": f"{where}:vector_add_naive",
            "args": ["128:float32", "128:float32"],
            "reference": f"{Path(where).parent.as_posix()}/reference.py:add",
        }
    ]
    (home / "kernels.json").write_text(json.dumps(listed), "utf-8")

    def git(*args, cwd=home):
        done = subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *args], cwd=cwd, check=True,
            text=True, capture_output=True,
        )  # fmt: skip
        return done.stdout.strip()

    if not (home / ".git").exists():
        git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "before", "--allow-empty")
    before = git("rev-parse", "HEAD")
    git("clone", "-q", "--bare", str(home), str(origin), cwd=tmp_path)
    git("remote", "add", "origin", str(origin))
    kernels.write_text(kernels.read_text("utf-8") + "\n# changed\n", "utf-8")
    temp = tmp_path / "runner"
    temp.mkdir()
    env = {
        **os.environ, "KERNELS": "kernels.json", "BASE": before, "RUNNER_TEMP": str(temp),
        "GITHUB_OUTPUT": str(temp / "output"), "GITHUB_STEP_SUMMARY": str(temp / "summary"),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "-e", "-c", script], cwd=home, env=env, text=True, capture_output=True, timeout=300
    )
    assert done.returncode in (0, 1), done.stderr
    summary = (temp / "summary").read_text("utf-8")
    assert f"`{where}:vector_add_naive`" in summary and "not measured" in summary
    assert json.loads((temp / "nkisim" / "findings.sarif").read_text("utf-8"))["runs"]
