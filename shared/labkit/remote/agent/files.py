"""Files and locks of `~/.trainium-labs`, on which everything else stands."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from pathlib import Path

HOME = Path(os.path.expanduser("~")) / ".trainium-labs"
JOBS, OBJECTS = HOME / "jobs", HOME / "objects"


class Refused(Exception):
    """What was asked cannot be done; the text is a sentence for the user."""


def read(path):
    """Return the JSON of a file, None if it is not there (or not whole: the disk was full)."""
    try:
        return json.loads(Path(path).read_text())
    except (OSError, ValueError):
        return None


def write(path, value):
    """Write JSON so that a reader sees the old file or the new one."""
    path = Path(path)
    part = path.with_name(path.name + ".part")
    with open(part, "w") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def lock(path, wait=False, shared=False):
    """Return an open file with a lock, None if another process has it."""
    file = open(path, "a+")
    try:
        fcntl.flock(
            file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
        )
    except OSError:
        file.close()
        return None
    return file


def boot():
    """Return what changes with each start of the machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def digest(path):
    """Return the SHA-256 of a file."""
    h = hashlib.sha256()
    with open(path, "rb") as file:
        for piece in iter(lambda: file.read(1 << 20), b""):
            h.update(piece)
    return h.hexdigest()


def say(log, text):
    """Write a line into the output of a run; a full disk loses the line and not the run."""
    try:
        log.write((text + "\r\n").encode())
    except OSError:
        pass
