"""Start the fake cloud in a process of its own and steer it from a test."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIAFAKE",
    "AWS_SECRET_ACCESS_KEY": "fake",
    "AWS_SESSION_TOKEN": "",
}


class LabCloud:
    """Hold one running fake cloud; use as a context manager."""

    def __init__(self, at: str | None = None, account: str = "", ticks: bool = True) -> None:
        environ = {**os.environ, "PYTHONPATH": str(TESTS)}
        if account:
            environ["LABCLOUD_ACCOUNT"] = account
        if not ticks:  # time passes by `advance` and `until` alone
            environ["LABCLOUD_STILL"] = "1"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "labcloud", "0", *([at] if at else [])],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line.strip():
            raise RuntimeError(
                "the fake cloud did not start; run `python -m labcloud` in infra/tests to see why"
            )
        self.url = f"http://127.0.0.1:{int(line)}"
        self._opened = threading.local()

    def __enter__(self) -> LabCloud:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """End the server."""
        self.process.kill()
        self.process.wait()

    @property
    def environ(self) -> dict[str, str]:
        """Return the environment that makes boto3 and Ansible talk to this cloud."""
        return {
            **CREDENTIALS,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        }

    @property
    def in_its_time(self) -> dict[str, str]:
        """Return the environment of a command that is a process of its own: `environ`, and waits
        take no real time (virtual_time/sitecustomize.py)."""
        path = f"{TESTS / 'virtual_time'}{os.pathsep}{TESTS.parent}"
        return {**self.environ, "LABCLOUD_CLOCK": self.url, "PYTHONPATH": path}

    def refused(self, since: str) -> list[dict[str, Any]]:
        """Return the runs of schedules that a role was too weak for, from a moment on.

        Ask from the end of `provision` on: a schedule's very first run comes before IAM has told
        everybody of its role, or of the role's policy, and provision waits until the guards act.
        """
        fired = [e for e in self.post("events") if e["kind"] == "schedule" and e["t"] >= since]
        return [e for e in fired if e["did"].startswith("refused")]

    def post(self, what: str, **body: Any) -> Any:
        """Send one control request, by a connection that stays open for this thread."""
        connection = getattr(self._opened, "connection", None)
        if connection is None:
            address = self.url.removeprefix("http://")
            connection = self._opened.connection = http.client.HTTPConnection(address, timeout=300)
        connection.request("POST", f"/lab/{what}", json.dumps(body).encode())
        reply = json.load(connection.getresponse())
        if isinstance(reply, dict) and "lab_error" in reply:
            raise RuntimeError(reply["lab_error"])
        return reply

    def fault(
        self, op: str | None = None, code: str = "InternalError", status: int = 500, **more: Any
    ) -> None:
        """Queue a fault; see server.pick_fault."""
        self.post("fault", **({"op": op} if op else {}), code=code, status=status, **more)

    def log(self, since: int = 0) -> list[dict[str, Any]]:
        """Return the calls so far."""
        return self.post("log", since=since)

    def writes(self, since: int = 0) -> list[str]:
        """Return the operations since `since` that could have changed something."""
        return [
            c["op"]
            for c in self.log(since)
            if not c["op"].startswith(("Describe", "Get", "List", "Simulate", "DryRun:"))
            and c["status"] == 200
        ]

    def settle(self) -> None:
        """Let everybody see what was just made: a person's next command comes seconds later."""
        self.post("advance", seconds=6)

    def leftovers(self) -> list[dict[str, Any]]:
        """Return everything that exists, read from the fake's memory."""
        return self.post("leftovers")

    def machines(self) -> list[dict[str, Any]]:
        """Return the machines that exist, running or not."""
        return [r for r in self.leftovers() if r["kind"] == "instance"]

    def ids(self) -> dict[str, str]:
        """Return machine -> instance id."""
        return {m["tags"]["trainium-labs:machine"]: m["id"] for m in self.machines()}

    def kinds(self) -> set[str]:
        """Return the kinds of what exists."""
        return {r["kind"] for r in self.leftovers()}

    def busy(self) -> None:
        """Let all machines compute until the end of the year, so that no alarm stops them."""
        for machine in self.machines():
            times = {"start": "2026-11-21T00:00:00+00:00", "end": "2026-12-31T00:00:00+00:00"}
            self.post("busy", instance=machine["id"], **times)

    def running(self) -> list[str]:
        """Return the ids of running machines, from the events."""
        state: dict[str, str] = {}
        for e in self.post("events"):
            if e["kind"] in ("running", "stopped", "terminated"):
                state[e["instance"]] = e["kind"]
        return [i for i, s in state.items() if s == "running"]
