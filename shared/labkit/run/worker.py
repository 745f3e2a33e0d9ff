"""The parent's end of a child process: send a job, wait for its reply, notice a crash."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from ..inputs import dtype_of
from . import child
from .backends import PROVIDER


class Worker:
    """Runs jobs in a child process, one after the other; a new child only after a crash.

    `in_process` runs them here instead: for a debugger, never for grading.
    """

    def __init__(self, backend: str, in_process: bool = False):
        self.backend, self.in_process = backend, in_process
        self._folder = tempfile.TemporaryDirectory(prefix="labkit-")
        self.workdir = Path(self._folder.name)
        self._process: subprocess.Popen[bytes] | None = None
        self._log_read = 0
        self._next = 0

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop()
        self._folder.cleanup()

    def send(self, job: dict[str, Any]) -> dict[str, Any]:
        """Start a job; return it with its id, for `receive`."""
        job = {**job, "id": self._next}
        self._next += 1
        if not self.in_process:
            if self._process is None or self._process.poll() is not None:
                self._start()
            assert self._process is not None and self._process.stdin is not None
            try:
                self._process.stdin.write((json.dumps(job) + "\n").encode())
                self._process.stdin.flush()
            except OSError:
                pass  # it died at birth: receive() says so
        return job

    def receive(self, job: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Return the reply to a job, outputs as arrays, what was printed under "printed"."""
        if self.in_process:
            reply = child.do(job, self.workdir)
        else:
            reply = self._await(job, timeout_s)
            reply["printed"] = self._printed()
        for name in ("outputs", "shuffled"):
            if not isinstance(reply.get(name), list):
                continue
            try:
                arrays = [_load(array, self.workdir) for array in reply[name]]
            except (OSError, ValueError, KeyError, TypeError):
                return {"error": {"kind": "crash", "text": "the output could not be read back"}}
            reply[name] = tuple(arrays) if reply.get("several") else arrays[0]
        return reply

    def _await(self, job: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        path = self.workdir / f"reply-{job['id']}.json"
        assert self._process is not None
        end, pause = time.monotonic() + timeout_s, 0.001
        while True:
            ended = self._process.poll()  # asked first: it may answer and end in between
            try:
                text = path.read_text(encoding="utf-8")
                path.unlink()
                return json.loads(text)
            except FileNotFoundError:
                pass
            except PermissionError:  # on Windows, while who renamed it still has it open
                ended = None
            if ended is not None:
                return {
                    "error": {
                        "kind": "crash",
                        "text": "the process that ran the kernel ended "
                        f"without an answer ({_how(ended)})",
                    }
                }
            if time.monotonic() > end:
                self._stop()
                return {
                    "error": {
                        "kind": "crash",
                        "text": f"the kernel ran for more than "
                        f"{timeout_s:.0f} s, the limit of this case, and was stopped: "
                        "does a loop never end? --timeout SECONDS allows more",
                    }
                }
            time.sleep(pause)
            pause = min(0.02, pause * 1.5)

    def _start(self) -> None:
        env = dict(os.environ, NKI_BACKEND=PROVIDER[self.backend], NKI_BANNER="0", PYTHONUTF8="1")
        here = str(Path(__file__).resolve().parents[2])
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (here, env.get("PYTHONPATH"))))
        with open(self.workdir / "log.txt", "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "labkit.run.child", str(self.workdir)],
                env=env,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _stop(self) -> None:
        if self._process is not None:
            if self._process.stdin:
                try:
                    self._process.stdin.close()
                except OSError:
                    pass
            try:
                self._process.wait(timeout=1)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _printed(self) -> str:
        with open(self.workdir / "log.txt", "rb") as log:
            log.seek(self._log_read)
            text = log.read()
        self._log_read += len(text)
        return text.decode("utf-8", "replace").strip()


#: how Windows ends a process that crashes: NTSTATUS as an exit code
NTSTATUS = {
    0xC0000005: "access violation",
    0xC00000FD: "stack overflow",
    0xC0000017: "no memory was left; try a smaller size",
    0xC000013A: "Ctrl-C",
}


def _how(ended: int) -> str:
    """Return how a process ended, in words."""
    if ended >= 0xC0000000:
        return f"0x{ended:X}" + (f": {NTSTATUS[ended]}" if ended in NTSTATUS else "")
    if ended >= 0:
        return f"exit code {ended}"
    try:
        name = signal.Signals(-ended).name
    except ValueError:
        name = f"signal {-ended}"
    return name + (
        ": killed, most often because no memory was left; try a smaller size"
        if name == "SIGKILL"
        else ""
    )


def _load(output: dict[str, str], workdir: Path) -> Any:
    """Return an output; a stand-in of the same type name if it was no array."""
    if output["kind"] != "array":
        return None if output["kind"] == "nothing" else NotAnArray(output["kind"])
    path = workdir / Path(output["file"]).name
    array = np.load(path, allow_pickle=False)
    path.unlink()
    dtype = dtype_of(output["dtype"])
    return array if array.dtype == dtype else array.view(dtype)


class NotAnArray:
    """Stands for an output that is no array, such as a number."""

    def __init__(self, name: str):
        self.name = name
