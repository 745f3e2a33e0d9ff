"""A stand-in for ssh in tests: runs the command on the folder that stands for a machine's disk.

LAB_DISKS holds a folder for each machine, by id. A machine that the fake cloud does not show as
running does not answer. Faults are taken from LAB_DISKS/faults, a word a line: `refused` does not
connect, `cut` ends in the middle of the answer, `garbled` changes a byte of it.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

DISKS = Path(os.environ["LAB_DISKS"])


def fault() -> str:
    """Take the next fault, if there is one."""
    path = DISKS / "faults"
    if not path.exists():
        return ""
    with path.open("r+") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        words = stream.read().split()
        stream.seek(0)
        stream.truncate()
        stream.write("\n".join(words[1:]))
    return words[0] if words else ""


def state(instance: str) -> str:
    """Ask the fake cloud for a machine's state."""
    region = (DISKS / instance / "region").read_text()
    body = json.dumps({"instance": instance, "region": region}).encode()
    request = urllib.request.Request(os.environ["AWS_ENDPOINT_URL"] + "/lab/state", body)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["state"]


def main() -> int:
    """Run one command."""
    alias = next(a for a in sys.argv if a.startswith("HostKeyAlias="))
    instance, command, what = alias.split("=")[1], sys.argv[-1], fault()
    if what == "refused" or state(instance) != "running":
        print("ssh: connect to host: Connection refused", file=sys.stderr)
        return 255
    local = command.replace("sudo ", "").replace("/home/", f"{DISKS / instance}/home/")
    done = subprocess.run(["sh", "-c", local], capture_output=True)
    data = done.stdout
    if what == "cut":
        data = data[: len(data) // 2]
    if what == "garbled" and data:
        data = data[:-9] + bytes([data[-9] ^ 255]) + data[-8:] if len(data) > 9 else b"?"
    sys.stdout.buffer.write(data)
    sys.stderr.buffer.write(done.stderr)
    return 255 if what == "cut" else done.returncode


if __name__ == "__main__":
    sys.exit(main())
