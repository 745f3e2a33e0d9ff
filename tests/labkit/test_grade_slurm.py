"""Grading in a Slurm queue: the results of a local run, whoever cancels a job meanwhile."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from importlib.util import find_spec

import pytest

import slurm_node
from grading import ROOT, files, hand_in, needs_sandbox, run, same_secret, small_lab
from labkit import SpecError
from mutants import submissions

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="grading is not for Windows"),
    pytest.mark.skipif(find_spec("dask_jobqueue") is None, reason="no dask_jobqueue"),
]


@pytest.fixture
def vecadd(tmp_path, monkeypatch):
    """Make vecadd with a small plan the lab that is graded."""
    monkeypatch.setenv("LABKIT_LABS", str(small_lab(tmp_path)))
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join((str(ROOT / "shared"), os.environ.get("PYTHONPATH", "")))
    )
    return tmp_path


@pytest.fixture
def queue(tmp_path, monkeypatch):
    """Start a Slurm, and let the commands of this process be for it."""
    if slurm_node.WHY:
        pytest.skip(f"no Slurm: {slurm_node.WHY}")
    with slurm_node.slurm(tmp_path / "slurm") as env:
        for name in ("SLURM_CONF", "PATH"):
            monkeypatch.setenv(name, env[name])
        import dask
        import dask_jobqueue  # noqa: F401  its defaults, which the end of `set` would remove

        # a setting of the site: this node is reached by the loopback interface
        with dask.config.set({"jobqueue.slurm.interface": "lo"}):
            yield


def jobs(*states):
    """Return the ids of Slurm's jobs."""
    return subprocess.run(
        ["squeue", "-h", "-o", "%i", *(f"-t{s}" for s in states)],
        text=True,
        check=True,
        capture_output=True,
    ).stdout.split()


@pytest.mark.full
@needs_sandbox
def test_a_queue_that_loses_a_job_gives_the_same(vecadd, queue):
    subs = hand_in(vecadd / "subs", **submissions("vecadd", 5))
    one, two = vecadd / "one", vecadd / "two"
    assert run(subs, one) == 0
    same_secret(one, two)
    cancelled, script = [], []

    def cancel():
        while not list((two / "verdicts").glob("*.json")):
            time.sleep(0.02)
        job = jobs("R")[0]
        script.append(
            subprocess.run(
                ["scontrol", "write", "batch_script", job, "-"],
                text=True,
                check=True,
                capture_output=True,
            ).stdout
        )
        subprocess.run(["scancel", job], check=True)
        cancelled.append(job)

    thread = threading.Thread(target=cancel)
    thread.start()
    assert run(subs, two, "--scheduler", "slurm:grading", "--jobs", "1") == 0
    thread.join()
    assert cancelled and files(one) == files(two)
    # no one else on the cluster may talk to the scheduler; nothing is left of the keys or the jobs
    assert "tls://" in script[0] and "--tls-key" in script[0]
    assert not list((two / "private").glob("keys-*"))
    for _ in range(100):
        if not jobs():
            break
        time.sleep(0.1)
    assert jobs() == []


@pytest.mark.full
@needs_sandbox
def test_slurms_own_words_when_it_takes_no_job(vecadd, queue):
    subs = hand_in(vecadd / "subs", **submissions("vecadd", 1))
    with pytest.raises(SpecError, match="(?s)invalid partition.*slurm:PARTITION"):
        run(subs, vecadd / "out", "--scheduler", "slurm:no-such")
    assert jobs() == []


@needs_sandbox
def test_where_there_is_no_slurm(vecadd, monkeypatch):
    subs = hand_in(vecadd / "subs", **submissions("vecadd", 1))
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(SpecError, match="no sbatch here.*login node"):
        run(subs, vecadd / "out", "--scheduler", "slurm", "--sandbox", "none")
