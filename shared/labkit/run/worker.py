"""The parent's end of a child process: send a job, wait for its reply, notice a crash."""

from __future__ import annotations

import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from nkisim import workers

from ..inputs import dtype_of
from . import child
from .backends import PROVIDER


class Worker:
    """Runs jobs in a child process, one after the other; a new child only after a crash.

    The child is a fresh interpreter, in which the SDK may be. `in_process` runs jobs here instead:
    for a debugger, never for grading.
    """

    def __init__(self, backend: str, in_process: bool = False):
        self.in_process = in_process
        self._folder = tempfile.TemporaryDirectory(prefix="labkit-")
        self.workdir = Path(self._folder.name)
        self._workers = workers.Workers(
            child.begin, (str(self.workdir),), jobs=1, method="spawn", script=False,
            seconds=lambda job: job["seconds"], plain=True,
            environment={"NKI_BACKEND": PROVIDER[backend], "NKI_BANNER": "0", "PYTHONUTF8": "1"},
        )  # fmt: skip
        self._thread = ThreadPoolExecutor(1)
        self._log_read = 0
        self._next = 0

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exc: object) -> None:
        self._workers.close()
        self._thread.shutdown()
        self._folder.cleanup()

    def submit(self, job: dict[str, Any], seconds: float) -> Future[dict[str, Any]]:
        """Start a job, which may take so long; return what will be its reply.

        Outputs of a reply are arrays, and what was printed is its "printed".
        """
        job = {**job, "id": self._next, "seconds": seconds}
        self._next += 1
        if not self.in_process:
            return self._thread.submit(self._ask, job)
        done: Future[dict[str, Any]] = Future()
        done.set_result(self._arrays(child.do(job, self.workdir)))
        return done

    def _ask(self, job: dict[str, Any]) -> dict[str, Any]:
        reply = self._workers.ask(job)
        if isinstance(reply, workers.Lost):
            text = f"the kernel ended without an answer: {reply.text}"
            if reply.why == "time":
                text = (
                    f"the kernel ran for more than {job['seconds']:.0f} s, the limit of this case, "
                    "and was stopped: does a loop never end? --timeout SECONDS allows more"
                )
            reply = _crash(text)
        reply["printed"] = self._printed()
        return self._arrays(reply)

    def _arrays(self, reply: dict[str, Any]) -> dict[str, Any]:
        for name in ("outputs", "shuffled"):
            if not isinstance(reply.get(name), list):
                continue
            try:
                arrays = [_load(array, self.workdir) for array in reply[name]]
            except (OSError, ValueError, KeyError, TypeError):
                return _crash("the output could not be read back")
            reply[name] = tuple(arrays) if reply.get("several") else arrays[0]
        return reply

    def _printed(self) -> str:
        try:
            with open(self.workdir / child.LOG, "rb") as log:
                log.seek(self._log_read)
                text = log.read()
        except FileNotFoundError:  # the process did not come so far
            return ""
        self._log_read += len(text)
        return text.decode("utf-8", "replace").strip()


def _crash(text: str) -> dict[str, Any]:
    return {"error": {"kind": "crash", "text": text}}


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
