"""Runs: what state one is in, what it has made, how it is started, and how it is ended."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from .files import JOBS, Refused, boot, digest, lock, read, write

MARK = "TRAINIUM_LABS_JOB"  # in the environment of all that a run starts
GRACE_S = 5.0  # between the interrupt, after which a run records, and the kill
CACHES = ("__pycache__", ".pytest_cache", ".git")


def state(folder):
    """Return "new", "waiting", "running" or "ended"; a run that died is closed here.

    A missing folder means that the run has ended and its results were fetched.
    """
    if (folder / "done.json").exists():
        return "ended"
    began = (folder / "began.json").exists()
    try:
        held = lock(folder / "lock", shared=not began)
    except FileNotFoundError:
        if folder.is_dir():
            raise
        return "ended"
    if held is None:
        return "running" if (folder / "began.json").exists() else "waiting"
    try:
        if not began:
            return "new"
        if not (folder / "done.json").exists():
            beginning = read(folder / "began.json") or {}
            why = "killed" if beginning.get("boot") == boot() else "restarted"
            end(folder, why, None, max(0.0, time.time() - beginning.get("time", time.time())))
        return "ended"
    finally:
        held.close()


def describe(folder):
    """Return a run as the other side lists it."""
    job = read(folder / "job.json") or {}
    return {
        "id": folder.name,
        "state": state(folder),
        "done": read(folder / "done.json"),
        **{k: job.get(k) for k in ("key", "origin", "argv", "created", "cwd", "results")},
    }


def runs():
    """Return the folders of all runs, the oldest first."""
    return sorted(p for p in JOBS.glob("*") if not p.name.startswith(".")) if JOBS.exists() else []


def find(job):
    """Return the folder of a run."""
    folder = JOBS / job
    if not re.fullmatch(r"[\w-]+", job) or not folder.is_dir():
        raise Refused(f"there is no run {job} on this machine (any more)")
    return folder


def outputs(folder):
    """Return what a run has made in its tree, as path, size and SHA-256; caches are left out."""
    tree, job = folder / "tree", read(folder / "job.json") or {}
    manifest, files = job.get("manifest", {}), []
    for path in sorted(tree.rglob("*")):
        name = path.relative_to(tree).as_posix()
        if (
            name in manifest
            or path.suffix in (".pyc", ".lock", ".tmp")
            or path.is_symlink()
            or set(Path(name).parts) & set(CACHES)
            or not path.is_file()
        ):
            continue
        files.append({"path": name, "size": path.stat().st_size, "sha256": digest(path)})
    return files


def end(folder, why, code, seconds):
    """Close a run: nothing of it goes on, and done.json says how it ended."""
    kill_all(folder.name)
    done = {"why": why, "code": code, "seconds": seconds, "files": outputs(folder)}
    try:
        write(folder / "done.json", done)
    except OSError:  # disk full: room for this was kept
        (folder / "reserve").unlink()
        write(folder / "done.json", done)


def processes(job):
    """Return the ids of all processes that a run has started, by the mark in their environment."""
    mark, pids = f"{MARK}={job}".encode(), []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                if mark in Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                    pids.append(int(entry))
            except OSError:
                pass
    return pids


def kill_all(job):
    """Kill what a run has started, until nothing of it is left."""
    for _ in range(50):
        left = processes(job)
        if not left:
            return
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        time.sleep(0.05)


def launch(folder):
    """Start a run's supervisor so that it outlives this login; twice does no harm."""
    if state(folder) != "new":
        return
    command = [sys.executable, os.path.abspath(sys.argv[0]), "run", folder.name]
    for how, prefix in keepers(folder.name):
        try:
            done = subprocess.run(
                [*prefix, *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=20,
            )
        except (OSError, subprocess.SubprocessError):
            continue
        if done.returncode == 0:
            write(folder / "keeper.json", how)
            return
    write(folder / "keeper.json", "a session of its own")
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            nothing = os.open(os.devnull, os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(nothing, fd)
            os.execv(command[0], command)
        os._exit(0)


def keepers(job):
    """Yield what may hold a run after the logout: systemd as root, by sudo, or the user's own."""
    if not os.path.isdir("/run/systemd/system") or not shutil.which("systemd-run"):
        return
    unit = [
        "--quiet",
        "--collect",
        "--unit=trainium-labs-" + job,
        "--property=KillMode=mixed",
        "--setenv=HOME=" + os.path.expanduser("~"),
        "--setenv=PATH=" + os.environ["PATH"],
    ]
    if os.getuid() == 0:
        yield "systemd", ["systemd-run", *unit]
    else:
        ids = [f"--uid={os.getuid()}", f"--gid={os.getgid()}"]
        yield "systemd", ["sudo", "-n", "systemd-run", *ids, *unit]
        os.environ.setdefault("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
        if os.path.exists("/var/lib/systemd/linger/" + getpass.getuser()):
            yield "systemd --user", ["systemd-run", "--user", *unit]
