"""`nkisim profile SCRIPT`: the time of each kernel that a script calls."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

KERNELS = """
import nki
import nki.isa as nisa
import nki.language as nl

@nki.jit
def double(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=x, src=a)
    nisa.tensor_tensor(dst=x, data1=x, data2=x, op=nl.add)
    nisa.dma_copy(dst=out, src=x)
    return out
"""
SCRIPT = """
import sys
import numpy as np
import lib
for n in (64, 64, 512):
    assert (lib.double(np.ones((128, n), np.float32)) == 2).all()
print(sys.argv[1:])
"""


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a file of kernels and a script that calls one of them three times."""
    (tmp_path / "lib.py").write_text(KERNELS)
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path


def shell(folder, *argv: str):
    """Run nkisim in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "nkisim", *argv],
        text=True,
        capture_output=True,
        cwd=folder,
        env=_environment(),
    )


def _environment():
    gone = ("NKI_COURSE", "NKISIM_TARGETS", "NEURON_PLATFORM_TARGET_OVERRIDE")
    env = {k: v for k, v in os.environ.items() if k not in gone}
    return {**env, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_each_kernel_of_a_script_is_a_row_and_the_last_is_shown(folder):
    done = shell(folder, "profile", "--html", "last.html", "script.py", "x")
    assert done.returncode == 0, done.stderr
    said, row, *rows = done.stdout.splitlines()
    assert said == "['x']" and row.split() == ["row", "calls", "us", "each", "kernel"]
    assert rows[0].split()[:2] == ["1", "2"] and "a=128x64:float32" in rows[0]
    assert rows[1].split()[:2] == ["2", "1"] and "a=128x512:float32" in rows[1]
    assert rows[2].startswith("all") and "128x512 float32" in "".join(rows[4:7])
    assert "wrote last.html" in done.stderr and (folder / "last.html").stat().st_size > 10_000


def test_json_has_all_rows_and_the_one_that_is_asked_for(folder):
    done = shell(folder, "profile", "--row", "1", "--json", "script.py")
    answer = json.loads(done.stdout)
    assert answer["exit_code"] == 0
    assert [c["calls"] for c in answer["calls"]] == [2, 1]
    assert answer["profile"]["latency_us"] == answer["calls"][0]["latency_us"]
    alone = shell(folder, "profile", "lib.py:double", "--arg", "128x64:float32", "--json")
    assert json.loads(alone.stdout)["profile"]["latency_us"] == answer["calls"][0]["latency_us"]


@pytest.mark.parametrize(
    "argv, sentence",
    [
        (["lib.py"], "Profile one of its kernels, as in lib.py:double --arg"),
        (["--row", "3", "script.py"], "--row 3: the table has rows 1 to 2"),
        (["--row", "1", "lib.py:double"], "--row goes with a script"),
        (["--no-compute", "script.py"], "goes with FILE:KERNEL"),
        (["--set", "N=1", "script.py"], "go with FILE:KERNEL"),
    ],
)
def test_what_cannot_be_profiled_is_a_sentence(folder, argv, sentence):
    done = shell(folder, "profile", *argv)
    assert done.returncode == 2 and sentence in done.stderr


def test_a_script_that_fails_shows_what_ran_before(folder):
    (folder / "script.py").write_text(SCRIPT + "raise ValueError('later')\n")
    done = shell(folder, "profile", "--json", "script.py")
    answer = json.loads(done.stdout)
    assert done.returncode == answer["exit_code"] == 1 and len(answer["calls"]) == 2
    assert "later" in answer["error"]["what"]


@pytest.mark.parametrize("command", ["tune", "migrate"])
def test_commands_for_one_kernel_name_those_that_the_script_imports(folder, command):
    (folder / "calls.py").write_text("import lib\n")
    done = shell(folder, command, "calls.py")
    assert done.returncode == 2 and "as in lib.py:double" in done.stderr


# -- --watch ---------------------------------------------------------------------------------------


class Watched:
    """A command with --watch in a process of its own, and the lines that it prints."""

    def __init__(self, folder, *argv: str):
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-m", "nkisim", *argv],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=_environment(),
            start_new_session=True,
        )
        self.lines: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        self.lines.extend(iter(self.process.stdout.readline, ""))

    def wait_for(self, word: str, times: int = 1) -> None:
        """Wait until a word was printed so often."""
        for _ in range(1200):
            if sum(word in line for line in self.lines) >= times:
                return
            time.sleep(0.05)
        raise AssertionError(f"{word} did not come: {self.lines}")

    def control_c(self) -> int:
        """Press Ctrl-C, as a terminal does for all processes; return the exit code."""
        os.killpg(self.process.pid, signal.SIGINT)
        code = self.process.wait(60)
        self.reader.join(10)
        return code


posix = pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C of another process")


@pytest.mark.sample(1)
@posix
@pytest.mark.parametrize("command", ["run", "check", "profile"])
def test_watch_runs_again_when_a_file_beside_the_kernel_changes(folder, command):
    watched = Watched(folder, command, "--watch", "script.py", "x")
    try:
        watched.wait_for("exit code 0; waiting for a change")
        (folder / "lib.py").write_text(KERNELS + "raise ValueError('changed')\n")
        watched.wait_for("exit code 1; waiting for a change")
    finally:
        code = watched.control_c()
    assert code == 1  # of the last run
    said = "".join(watched.lines)
    assert said.count("['x']") == 1 and "ValueError: changed" in said


@posix
@pytest.mark.sample(1)
@pytest.mark.parametrize("command", [("evaluate",), ("tune", "--set", "W=1,2", "--best", "0")])
def test_commands_of_one_kernel_watch_its_folder(folder, command):
    file = folder / "lib.py"
    file.write_text(KERNELS.replace("@nki.jit", "W = 1\n@nki.jit"))
    watched = Watched(folder, *command, "--watch", "lib.py:double", "--arg", "128x512:float32")
    try:
        watched.wait_for("exit code 0; waiting for a change")
        file.write_text("raise ValueError('changed')\n")
        watched.wait_for("waiting for a change", times=2)
    finally:
        code = watched.control_c()
    assert code in (1, 2) and "ValueError: changed" in "".join(watched.lines)


@posix
def test_control_c_in_the_middle_of_a_watched_run_is_130(folder):
    (folder / "script.py").write_text("import time\nprint('begun')\ntime.sleep(60)\n")
    watched = Watched(folder, "run", "--watch", "script.py")
    try:
        watched.wait_for("begun")
    finally:
        code = watched.control_c()
    assert code == 130
