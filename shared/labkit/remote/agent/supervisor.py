"""The process that holds a run: its turn, its program, its output, its end."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

from . import slurm
from .files import HOME, Refused, boot, lock, read, say, write
from .machine import device_lock, packages
from .runs import GRACE_S, MARK, end, find, kill_all


def supervise(job_id):
    """Run a job to its end: once, in its turn, within its time."""
    folder = find(job_id)
    held = None
    for _ in range(100):  # who asks for the state of a run holds the lock for a moment
        held = lock(folder / "lock")
        if held is not None:
            break
        time.sleep(0.02)
    if held is None or (folder / "began.json").exists() or (folder / "done.json").exists():
        return
    job = read(folder / "job.json")
    with open(folder / "log", "ab", buffering=0) as log:
        queue = turn(folder, job, log)
        if queue is None:
            return
        begun = time.monotonic()
        write(folder / "began.json", {"time": time.time(), "boot": boot()})
        why, code = "ended", 2
        try:
            why, code = compute(folder, job, log)
        except Refused as error:
            say(log, f"could not run: {error}")
        except OSError as error:
            say(log, f"could not run: {error.strerror or error}")
        end(folder, why, code, time.monotonic() - begun)


def turn(folder, job, log):
    """Wait until this user's other runs are done; return the lock, None when asked to stop."""
    warned = False
    while True:
        queue = lock(HOME / "queue.lock")
        if queue is not None:
            return queue
        if (folder / "stop").exists():
            end(folder, "stopped", None, 0.0)
            return None
        if not warned:
            say(log, "waiting: another run of yours computes on this machine")
            warned = True
        time.sleep(0.1)


def compute(folder, job, log):
    """Start the program and copy its output to the log; return (how it ended, exit code)."""
    env = {**os.environ, **job["env"], MARK: folder.name}
    env["PATH"] = os.pathsep.join(
        [str(Path(job["python"]).parent), "/opt/aws/neuron/bin", env.get("PATH", os.defpath)]
    )
    env["PYTHONPATH"] = str(folder / "tree" / "shared")
    holder = None
    queue = slurm.queued()
    if job.get("device") and not queue:
        holder, core = device_lock(job)
        env["NEURON_RT_VISIBLE_CORES"] = core
    extra = packages(job, env, log)
    if extra:
        env["PYTHONPATH"] += os.pathsep + extra
    argv = [job["python"] if a == "{python}" else a for a in job["argv"]]
    if queue:
        argv = slurm.command(job, argv)
    if job.get("tty"):
        ours, theirs = pty.openpty()
        rows, columns = job["tty"]
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    else:
        ours, theirs = os.pipe()
    child = subprocess.Popen(
        argv,
        cwd=str(folder / "tree" / job["cwd"]),
        env=env,
        stdout=theirs,
        stderr=theirs,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        close_fds=True,
    )
    os.close(theirs)
    deadline, why = time.monotonic() + job["limit_s"], "ended"
    kill_at = None
    while True:
        if select.select([ours], [], [], 0.1)[0]:
            try:
                piece = os.read(ours, 1 << 16)
            except OSError:  # the pty of a program that has ended
                piece = b""
            if not piece:
                break
            try:
                log.write(piece)
            except OSError:
                pass
        elif child.poll() is not None:
            break  # something it started holds the pipe open
        now = time.monotonic()
        if kill_at is None and (now > deadline or (folder / "stop").exists()):
            why = "time" if now > deadline else "stopped"
            kill_at = now + GRACE_S
            if queue:
                slurm.send_signal(folder.name, "INT")
            else:
                os.killpg(child.pid, signal.SIGINT)
        elif kill_at is not None and now > kill_at:
            if queue:
                slurm.send_signal(folder.name, "KILL")
            kill_all(folder.name)
            break
    kill_at = kill_at or time.monotonic() + GRACE_S
    try:
        child.wait(max(0.1, kill_at - time.monotonic()))
    except subprocess.TimeoutExpired:
        kill_all(folder.name)
        child.wait()
    del holder
    code = child.returncode
    return ("killed" if code < 0 and why == "ended" else why), code if code >= 0 else None
