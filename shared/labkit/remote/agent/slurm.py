"""A machine where one logs in to a cluster: what computes goes into Slurm's queue."""

from __future__ import annotations

import math
import os
import shutil
import subprocess

#: Written by the class's playbooks on every node of a cluster.
NODE = "/etc/trainium-labs/devices.json"


def queued():
    """Return whether runs here go into a queue."""
    return os.path.exists(NODE) and shutil.which("srun") is not None


def command(job, argv):
    """Return a command that waits for its turn and then runs `argv` on a node, its output here.

    Variables that srun knows choose otherwise, SLURM_PARTITION=grading for example.
    """
    minutes = max(1, math.ceil(job["limit_s"] / 60))
    device = ["--gpus=1"] if job.get("device") else []
    return [
        "srun",
        "--job-name",
        name(job["id"]),
        "--ntasks=1",
        "--unbuffered",
        f"--time={minutes}",
        *device,
        *argv,
    ]


def name(run):
    """Return the name of a run's job."""
    return "labkit-" + run


def send_signal(run, signal):
    """Send a signal to a run's program, wherever it runs; KILL takes it out of the queue, too."""
    words = [] if signal == "KILL" else ["--signal=" + signal]
    subprocess.run(
        ["scancel", "--me", "--name", name(run), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
