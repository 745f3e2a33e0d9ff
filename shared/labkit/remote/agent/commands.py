"""The commands that the other side calls over SSH; each answers with a line of JSON."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import select
import shutil
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from .files import HOME, JOBS, OBJECTS, Refused, digest, lock, read, write
from .machine import facts
from .runs import GRACE_S, describe, end, find, launch, runs, state
from .supervisor import supervise

SMALL = 256 * 1024  # bytes that are sent along with the end of a run
OLD_S = 30 * 86400  # files of trees that no run has used for so long are removed


def plan(request):
    """Return facts, runs, and which of a tree's files are missing here."""
    for folder in (JOBS, OBJECTS):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    HOME.chmod(0o700)
    now, missing = time.time(), []
    for sha in sorted(set(request.get("objects", ()))):
        path = thing(sha)
        try:
            os.utime(path)
        except OSError:
            missing.append(sha)
    with lock(HOME / "store.lock", wait=True):
        for path in OBJECTS.glob("*/*"):
            if now - path.stat().st_mtime > OLD_S:
                path.unlink()
        for left in [*JOBS.glob(".new-*"), *JOBS.glob(".gone-*")]:
            shutil.rmtree(str(left), ignore_errors=True)
    return {
        "facts": facts(request.get("venvs", ())),
        "missing": missing,
        "jobs": [job for job in map(describe, runs()) if job["key"]],
    }  # none just removed


def thing(sha):
    """Return where a file with this content is kept."""
    if not re.fullmatch("[0-9a-f]{64}", sha):
        raise Refused(f"that is not a SHA-256: {sha!r}")
    return OBJECTS / sha[:2] / sha[2:]


def put():
    """Take files from a tar stream on stdin, each named by its SHA-256, which is checked."""
    count = 0
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|gz") as tar:
        for member in tar:
            source, path = tar.extractfile(member), thing(member.name)
            if source is None:
                raise Refused("only files are taken")
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, part = tempfile.mkstemp(dir=str(path.parent), suffix=".part")
            try:
                with os.fdopen(handle, "wb") as file:
                    shutil.copyfileobj(source, file)
                if digest(part) != member.name:
                    raise Refused("a file was damaged on its way; run the same command again")
                os.replace(part, str(path))
            finally:
                if os.path.exists(part):
                    os.unlink(part)
            count += 1
    return {"put": count}


def start(job):
    """Make a run and start it; one with the same key that has not ended is taken up instead."""
    with lock(HOME / "store.lock", wait=True):
        for folder in runs():
            earlier = read(folder / "job.json") or {}
            if (earlier.get("key"), earlier.get("origin")) == (job["key"], job["origin"]) and state(
                folder
            ) != "ended":
                launch(folder)
                return describe(folder)
        new = JOBS / (".new-" + job["id"])
        shutil.rmtree(str(new), ignore_errors=True)
        for name, (sha, mode) in job["manifest"].items():
            path = new / "tree" / name
            if ".." in Path(name).parts or os.path.isabs(name):
                raise Refused(f"{name} leads out of the working tree")
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(thing(sha)), str(path))
            path.chmod(0o755 if mode else 0o644)
        (new / "tree" / job["cwd"]).mkdir(parents=True, exist_ok=True)
        (new / "reserve").write_bytes(b"\0" * (1 << 18))
        (new / "log").touch()
        write(new / "job.json", {**job, "created": time.time()})
        os.rename(str(new), str(JOBS / job["id"]))
    launch(JOBS / job["id"])
    return describe(JOBS / job["id"])


def follow(job, offset):
    """Copy a run's output from `offset` on to stdout, until it has ended or the reader is gone.

    Then the run, with its files if they are small, goes to stderr: that saves two calls.
    """
    folder = find(job)
    launch(folder)
    with open(folder / "log", "rb") as log:
        log.seek(offset)
        while True:
            ended = state(folder) == "ended"
            piece = log.read(1 << 16)
            if piece:
                sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
            elif ended:
                print(json.dumps({**describe(folder), "small": small(folder)}), file=sys.stderr)
                return
            elif select.select([sys.stdin], [], [], 0.05)[0] and not os.read(sys.stdin.fileno(), 1):
                return  # the other side is gone


def small(folder):
    """Return what a run has made, by path, if all of it is little."""
    files = (read(folder / "done.json") or {}).get("files", ())
    if sum(f["size"] for f in files) > SMALL:
        return {}
    return {
        f["path"]: base64.b64encode((folder / "tree" / f["path"]).read_bytes()).decode()
        for f in files
    }


def stop(job):
    """Ask a run to end; its supervisor interrupts it, so that it records what is finished."""
    folder = find(job)
    before = describe(folder)
    (folder / "stop").touch()
    for _ in range(int((GRACE_S + 10) / 0.1)):
        now = state(folder)
        if now == "new":  # never started
            end(folder, "stopped", None, 0.0)
        if now == "ended":
            break
        time.sleep(0.1)
    # who follows the run may have fetched and removed it meanwhile
    return describe(folder) if folder.is_dir() else {**before, "state": "ended"}


def show(job):
    """Return a run as it is now."""
    return describe(find(job))


def forget(job):
    """Remove a run whose results are safe on the other side."""
    folder = JOBS / job
    if re.fullmatch(r"[\w-]+", job) and folder.is_dir():
        if state(folder) not in ("ended", "new"):
            raise Refused(f"the run {job} has not ended")
        gone = JOBS / (".gone-" + job)
        os.rename(str(folder), str(gone))
        shutil.rmtree(str(gone), ignore_errors=True)
    return {"forgotten": job}


def clean():
    """Remove everything of ours; refuse while a run is there."""
    left = [describe(p) for p in runs()]
    if left:
        raise Refused("there are still runs here: " + ", ".join(r["id"] for r in left))
    shutil.rmtree(str(HOME), ignore_errors=True)
    return {"clean": True}


def main(argv):
    """Do one command; print its answer as a line of JSON."""
    os.umask(0o077)
    command, *rest = argv
    try:
        if command == "run":
            return supervise(rest[0])
        if command == "follow":
            return follow(rest[0], int(rest[1]))
        if command in ("plan", "start"):
            request = json.loads(gzip.decompress(sys.stdin.buffer.read()).decode())
            answer = plan(request) if command == "plan" else start(request)
        else:
            commands: dict = {
                "put": put,
                "stop": stop,
                "forget": forget,
                "clean": clean,
                "show": show,
            }
            answer = commands[command](*rest)
    except Refused as error:
        answer = {"error": str(error)}
    except OSError as error:
        text = error.strerror or str(error)
        answer = {
            "error": f"{text} ({error.filename})" if error.filename else text,
            "errno": error.errno,
        }
    print(json.dumps(answer))
    return None
