"""A kernel that never ends: its process ends with the tester, whatever ends that, or in time."""

from __future__ import annotations

import argparse
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from labkit import Case, Lab, Tensor
from labkit.cli import add_timeout
from labkit.evaluate import FAILED, evaluate
from labkit.run.child import job_of
from labkit.run.worker import Worker
from labkit.spec import COMPILED_LIMIT_S, TIME_LIMIT_S, time_limit

SHARED = str(Path(__file__).parents[2] / "shared")
FOREVER = """
import os, pathlib
here = pathlib.Path(__file__).parent
def k(a):
    (here / "pid.part").write_text(str(os.getpid()))
    (here / "pid.part").rename(here / "pid")
    while True:
        pass
"""
TESTER = """
import pathlib
from labkit import Case, Lab, Tensor
from labkit.evaluate import evaluate
case = Case("c", "k", "same", (Tensor((4, 4)),))
list(evaluate(Lab("x", "", pathlib.Path("."), (case,)), [(case, "trn1")]))
"""


def until(what, seconds=60.0):
    """Wait for something to be; the time is for busy machines."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
    return found


def is_gone(pid: int) -> bool:
    """Return whether a process has ended, whoever was to wait for it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.fixture
def lab(tmp_path):
    (tmp_path / "kernels.py").write_text(FOREVER)
    (tmp_path / "reference.py").write_text("def same(a):\n    return a\n")
    return tmp_path


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize("end", ["SIGTERM", "SIGHUP", "SIGKILL", "SIGINT"])
def test_no_kernel_outlives_its_tester(lab, end):
    heard = signal.SIG_DFL  # also where the tests run below nohup, or in the background
    if end != "SIGKILL":
        heard = signal.signal(getattr(signal, end), signal.SIG_DFL)
    tester = subprocess.Popen(
        [sys.executable, "-c", TESTER],
        cwd=lab,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": SHARED, "TMPDIR": str(lab)},  # what is killed leaves files
    )
    if end != "SIGKILL":
        signal.signal(getattr(signal, end), heard)
    try:
        until((lab / "pid").exists)
        pid = int((lab / "pid").read_text())
        assert not is_gone(pid)
        tester.send_signal(getattr(signal, end))
        tester.wait(timeout=60)
        until(lambda: is_gone(pid))
    finally:
        tester.kill()
        tester.wait()


def test_a_worker_that_has_done_its_work_ends_well(lab):
    (lab / "kernels.py").write_text("def k(a):\n    1 / 0\n")
    case = Case("c", "k", "same", (Tensor((4, 4)),))
    with Worker("sim") as worker:
        job = job_of(case, kernels=str(lab / "kernels.py"), backend="sim", target="trn1", seed=1)
        assert "ZeroDivisionError" in worker.submit(job, 60).result()["error"]["text"]
        (of_jobs,) = worker._workers._all
        of_jobs.pipe.send(None)  # what `close` sends, which then forgets the process
        of_jobs.process.join()
        assert of_jobs.process.exitcode == 0


@pytest.mark.full
def test_the_limit_is_said_and_can_be_set(lab):
    case = Case("c", "k", "same", (Tensor((4, 4)),))
    assert case.timeout_s == TIME_LIMIT_S == 60 < time_limit(1e11) < COMPILED_LIMIT_S
    (outcome,) = evaluate(Lab("x", "", lab, (case,)), [(case, "trn1")], time_limit=3)
    assert outcome.status == FAILED
    assert "more than 3 s, the limit of this case" in outcome.text
    assert "--timeout SECONDS" in outcome.text


@pytest.mark.parametrize(
    "words, limit",
    [([], None), (["--timeout", "2.5"], 2.5), (["--timeout", "0"], math.inf),
     (["--case-limit", "7"], 7.0)],
)  # fmt: skip
def test_testers_take_the_flag_of_all_commands_and_its_name_of_before(words, limit):
    parser = argparse.ArgumentParser()
    add_timeout(parser)
    assert parser.parse_args(words).timeout == limit
    assert "--case-limit" not in parser.format_help()
    for wrong in ("-1", "nan", "soon"):
        with pytest.raises(SystemExit):
            parser.parse_args(["--timeout", wrong])
