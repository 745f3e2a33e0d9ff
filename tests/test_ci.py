"""CI runs what users run, and says what it did not run."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MANY, FEW = [f"test_many[{n}]" for n in range(9)], [f"test_few[{n}]" for n in range(5)]
SPEC = importlib.util.spec_from_file_location("skipped", ROOT / ".ci" / "skipped.py")
skipped = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(skipped)


def pytest_in(folder, *words, env=None):
    """Run pytest in a folder with the plugin of the lanes."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "lanes", *words],
        cwd=folder,
        env={**(env or os.environ), "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        text=True,
    )


def outcome(folder, *words):
    """Return (names of the tests that passed, how many were skipped, how many deselected)."""
    said = pytest_in(folder, "-v", *words).stdout
    counts = {name: int(n) for n, name in re.findall(r"(\d+) (skipped|deselected)", said)}
    passed = {*re.findall(r"::(\S+) PASSED", said)}
    return passed, counts.get("skipped", 0), counts.get("deselected", 0)


RESULTS = """<testsuites><testsuite>
<testcase classname="tests.test_x" name="a" time="2.6"/>
<testcase name="b"><failure message="x"/></testcase>
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
    assert said[said.index("seconds  the slowest tests") + 1] == "      3  tests: test_x::a"
    assert said[-1] == "2 passed, 1 failed, 2 skipped"


def test_a_run_that_left_nothing_out_says_so(tmp_path):
    (tmp_path / "tests.xml").write_text("<testsuites><testcase name='e'/></testsuites>")
    assert "nothing: all was run" in skipped.table(tmp_path)


def test_ci_runs_the_commands_of_the_readme_and_every_session_of_tests():
    run = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    sessions = {*re.findall(r"\bsession (\w+)(?: \"|;| >|$)", run, re.MULTILINE)}
    installed = re.findall(r"nox --install-only -s (.*)$", run, re.MULTILINE)
    # `pythons` makes environments of its own
    assert {*" ".join(installed).split(), "pythons"} == sessions
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"python3 -m nox -s (\w+)$", readme, re.MULTILINE)
    assert commands == ["simulate", "tests"] and set(commands) <= sessions
    assert sessions == {"lint", "quick", "simulate", "tests", "pythons", "infra"}


@pytest.mark.parametrize("word", ["--ful", "--full more", "tests"])
def test_ci_refuses_what_is_no_lane(word):
    done = subprocess.run(
        ["bash", ROOT / ".ci" / "run", *word.split()], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (2, "usage: .ci/run [--full]\n")


LANES = """
import pytest
@pytest.mark.parametrize("n", range(9))
@pytest.mark.sample(3)
def test_many(n): pass
@pytest.mark.full
def test_long(): pass
@pytest.mark.parametrize("n", range(5))
def test_few(n): pass
"""


@pytest.mark.parametrize(
    "words, passed, skipped, deselected",
    [
        ([], {"test_many[0]", "test_many[4]", "test_many[8]", *FEW}, 7, 0),
        (["--full"], {*MANY, "test_long", *FEW}, 0, 0),
        (["--quick", "2"], {"test_many[0]", "test_many[8]", "test_few[0]", "test_few[4]"}, 1, 10),
        (["test_lanes.py::test_many[5]"], {"test_many[5]"}, 0, 0),
        (["test_lanes.py::test_long"], {"test_long"}, 0, 0),
    ],
    ids=["merge", "full", "quick", "one case", "one test"],
)
def test_a_lane_runs_its_tests(tmp_path, words, passed, skipped, deselected):
    (tmp_path / "test_lanes.py").write_text(LANES, "utf-8")
    found = outcome(tmp_path, *words)
    assert found == (passed, skipped, deselected)


LIMITED = """
import pytest
@pytest.mark.timeout(900)
def test_it(request): print(request.node.get_closest_marker("timeout").args)
"""


@pytest.mark.parametrize("words, limit", [((), "(900,)"), (("--full",), "(1800,)")])
def test_the_full_lane_has_no_smaller_limit_for_a_test_than_its_own(tmp_path, words, limit):
    (tmp_path / "test_it.py").write_text(LIMITED, "utf-8")
    assert limit in pytest_in(tmp_path, "-s", *words).stdout


def test_a_checkout_in_a_folder_named_full_runs_its_tests(tmp_path):
    """Names of folders are keywords of the tests in them, and all were skipped."""
    home = tmp_path / "full"
    home.mkdir()
    (home / "test_lanes.py").write_text(LANES, "utf-8")
    assert "test_few[0]" in outcome(home)[0]


def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path):
    """Its server and its folder stay behind; the next run ends the one and removes the other."""
    (tmp_path / "test_left.py").write_text(
        "import os, signal, subprocess, sys\n"
        "def test_killed(tmp_path):\n"
        "    wait = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "    child = subprocess.Popen(wait, start_new_session=True, stdout=subprocess.DEVNULL,\n"
        "                             stderr=subprocess.DEVNULL)\n"
        "    print(child.pid, tmp_path, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n",
        "utf-8",
    )
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    killed = pytest_in(tmp_path, "-s", "test_left.py", env=env)
    pid, folder = re.search(r"(\d+) (/\S+)$", killed.stdout, re.MULTILINE).groups()
    assert killed.returncode == -9 and Path(f"/proc/{pid}").exists() and Path(folder).exists()
    (tmp_path / "test_lanes.py").write_text(LANES, "utf-8")
    pytest_in(tmp_path, "test_lanes.py", env=env)
    assert not Path(folder).exists()
    gone = Path(f"/proc/{pid}/stat")
    assert not gone.exists() or gone.read_text().rsplit(")")[-1].split()[0] == "Z"
