"""CI runs what users run, and says what it did not run."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SPEC = importlib.util.spec_from_file_location("skipped", ROOT / ".ci" / "skipped.py")
skipped = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(skipped)

RESULTS = """<testsuites><testsuite>
<testcase name="a"/><testcase name="b"><failure message="x"/></testcase>
<testcase name="c"><skipped message="no  browser"/></testcase>
<testcase name="d"><skipped message="no browser"/></testcase>
</testsuite></testsuites>"""


def test_the_end_says_what_was_not_run(tmp_path):
    (tmp_path / "tests.xml").write_text(RESULTS)
    (tmp_path / "infra.xml").write_text("<testsuites><testcase name='e'/></testsuites>")
    (tmp_path / "sessions").write_text("lint 60\ntests 90\n")
    (tmp_path / "not-installed").write_text("chromium: no root, or no apt-get\n")
    said = skipped.table(tmp_path)
    assert "tests          2  no browser" in said
    assert "not here       -  chromium: no root, or no apt-get" in said
    assert "tests          1.5" in said
    assert said[-1] == "2 passed, 1 failed, 2 skipped"


def test_a_run_that_left_nothing_out_says_so(tmp_path):
    (tmp_path / "tests.xml").write_text("<testsuites><testcase name='e'/></testsuites>")
    assert "nothing: all was run" in skipped.table(tmp_path)


def test_ci_runs_the_commands_of_the_readme_and_every_session_of_tests():
    run = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    sessions = re.findall(r"^ *session (\w+)(?: --no-install)?$", run, re.MULTILINE)
    assert '"$door" -m nox "${@:2}" -s "$1"' in run and "door=python3" in run
    installed = re.search(r"nox --install-only -s (.*)$", run, re.MULTILINE)[1].split()
    without = re.findall(r"^ *session (\w+) --no-install$", run, re.MULTILINE)
    assert sorted(installed) == sorted(without)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"python3 -m nox -s (\w+)$", readme, re.MULTILINE)
    assert commands == ["simulate", "tests"] and set(commands) <= set(sessions)
    assert set(sessions) == {"lint", "simulate", "tests", "pythons", "infra"}


def test_a_checkout_in_a_folder_named_full_runs_its_tests(tmp_path):
    """Names of folders are keywords of the tests in them, and all were skipped."""
    home = tmp_path / "full"
    home.mkdir()
    shutil.copyfile(ROOT / "tests" / "conftest.py", home / "conftest.py")
    (home / "test_one.py").write_text(
        "import pytest\ndef test_a(): pass\n@pytest.mark.full\ndef test_b(): pass\n", "utf-8"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=home, text=True,
        capture_output=True,
    )  # fmt: skip
    assert "1 passed, 1 skipped" in done.stdout, done.stdout
