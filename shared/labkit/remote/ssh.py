"""OpenSSH as the transport: one connection that is shared, and its errors as sentences.

Names, users, keys and jump hosts are those of the user's SSH configuration. `LABKIT_SSH_CONFIG`
names another file than ~/.ssh/config, as `ssh -F` does.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..spec import SpecError

ALIVE_S, ALIVE_COUNT = 5, 3  # a lost network is noticed after their product
CONNECT_S = 10
PERSIST_S = 120

#: What OpenSSH says when a connection fails (parts of its messages), and what it means.
MEANINGS = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "{host} shows another host key than before. If the machine was made anew, remove "
        "the old key "
        "with  ssh-keygen -R {host}  and compare the new one with the staff's; if not, tell them.",
    ),
    (
        "Host key verification failed",
        "the host key of {host} is not known yet. Run  ssh {host}  once and compare the "
        "key that it "
        "shows.",
    ),
    (
        "Could not resolve hostname",
        "there is no host {host}: neither the SSH configuration nor the name service knows it. Put "
        "the block of your page into ~/.ssh/config, or check the spelling.",
    ),
    (
        "Permission denied",
        "{host} does not accept your key. Name the right one with IdentityFile in "
        "~/.ssh/config, and "
        "check the user name; the staff see which key the machine has.",
    ),
    (
        "UNPROTECTED PRIVATE KEY FILE",
        "your private key can be read by others, so ssh refuses it. Run  chmod 600  on the key.",
    ),
    (
        "Connection refused",
        "{host} answers, but not to SSH: it may still be starting. Try again in a minute.",
    ),
    (
        "timed out",
        "{host} does not answer. It may be stopped, or its address has changed; "
        "--host auto starts your machine of the class.",
    ),
    ("No route to host", "{host} cannot be reached from here. Is it started, and are you online?"),
    ("Network is unreachable", "you are offline: {host} cannot be reached."),
)


class RemoteError(SpecError):
    """The remote side could not do it; the text is a sentence with a remedy."""


class Lost(RemoteError):
    """The connection ended before the answer: what was asked may have been done."""


class Gone(RemoteError):
    """The run is no longer there: another call has brought it home."""


@dataclass
class Host:
    """A machine: the name for `ssh`, options that go before it, dollars an hour if known."""

    name: str
    options: tuple[str, ...] = ()
    hourly_usd: float | None = None
    price_note: str = ""
    extra: dict[str, Any] = field(default_factory=dict)


def _arguments(host: Host) -> list[str]:
    """Return the options of ssh and sftp for a host."""
    config = os.environ.get("LABKIT_SSH_CONFIG")
    out = ["-F", config] if config else []
    options: dict[str, Any] = {
        "ConnectTimeout": CONNECT_S,
        "ServerAliveInterval": ALIVE_S,
        "ServerAliveCountMax": ALIVE_COUNT,
    }
    if not sys.stdin.isatty():
        options["BatchMode"] = "yes"
    if os.name != "nt":  # OpenSSH for Windows cannot share a connection
        options.update(
            ControlMaster="auto", ControlPersist=PERSIST_S, ControlPath=f"{_sockets()}/%C"
        )
    for name, value in options.items():
        out += ["-o", f"{name}={value}"]
    return [*out, *host.options]


#: characters of the folder: of the 104 (macOS) or 108 of a socket's path, ssh takes 58 for its name
#: (%C and what it appends while it listens)
SOCKET_FOLDER = 104 - 1 - 58


@lru_cache(maxsize=1)
def _sockets() -> str:
    """Return a folder for the sockets of shared connections that only this user can enter."""
    name = f"labkit-ssh-{os.getuid()}"
    folder = Path(tempfile.gettempdir()) / name
    if len(str(folder)) > SOCKET_FOLDER:  # the temporary folders of macOS have long paths
        folder = Path("/tmp") / name
    folder.mkdir(mode=0o700, exist_ok=True)
    facts = folder.lstat()
    if facts.st_uid != os.getuid() or facts.st_mode & 0o077 or folder.is_symlink():
        raise RemoteError(f"{folder} is not yours alone; delete it and run again")
    return str(folder)


@lru_cache(maxsize=1)
def agent_archive() -> tuple[str, bytes]:
    """Return (name, bytes) of the zip file that runs on the other side."""
    folder, out = Path(__file__).parent / "agent", io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        files = {f"agent/{p.name}": p.read_bytes() for p in sorted(folder.glob("*.py"))}
        files["__main__.py"] = b"import sys\nfrom agent.commands import main\nmain(sys.argv[1:])\n"
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data)
    data = out.getvalue()
    return f"agent-{hashlib.sha256(data).hexdigest()[:16]}.pyz", data


class Connection:
    """Calls of the agent on a host."""

    def __init__(self, host: Host):
        self.host = host
        self._arguments = _arguments(host)

    def spawn(self, command: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start a command of the other side's shell."""
        try:
            return subprocess.Popen(["ssh", *self._arguments, self.host.name, command], **options)
        except FileNotFoundError:
            raise RemoteError(
                "there is no ssh here. Install OpenSSH: it is part of Linux, macOS "
                "and Windows 10 and newer."
            ) from None

    def agent(self, *words: str) -> str:
        """Return the shell command that calls the agent."""
        return f"exec python3 ~/.trainium-labs/{agent_archive()[0]} {' '.join(words)}"

    def call(self, *words: str, request: Any = None, data: bytes | None = None) -> dict[str, Any]:
        """Call the agent and return its answer; raise RemoteError or Lost with a sentence."""
        if request is not None:
            data = gzip.compress(json.dumps(request).encode())
        for attempt in (1, 2):
            code, out, err = self._run(self.agent(*words), data or b"")
            lines = [line for line in out.splitlines() if line.startswith(b"{")]
            if lines:
                answer = json.loads(lines[-1])
                if "error" in answer:
                    if answer["error"].startswith("there is no run"):
                        raise Gone(
                            f"{self.host.name}: {answer['error']}; if another call of yours "
                            "has fetched it, its results are here"
                        )
                    raise RemoteError(self._describe(answer))
                return answer
            if code == 255 or code < 0:
                raise self.failure(err)
            if attempt == 1 and b"can't open file" in err:
                self._install()
                continue
            if b"python3" in err and b"not found" in err:
                raise RemoteError(
                    f"{self.host.name} has no python3. Install it there: "
                    "sudo apt-get install python3"
                )
            last = (err.strip().splitlines() or [b"nothing"])[-1].decode(errors="replace")
            if b"No space left" in err:
                raise RemoteError(self._describe({"error": "no space left on device", "errno": 28}))
            if b"Traceback" not in err and not err.strip():
                raise Lost(
                    f"the connection to {self.host.name} ended before the answer came; run "
                    "the same command again, which goes on where this one was"
                )
            raise RemoteError(f"{self.host.name} could not do it ({words[0]}): {last}")
        raise AssertionError("not reached")

    def _describe(self, answer: dict[str, Any]) -> str:
        if answer.get("errno") in (28, 122):  # ENOSPC, EDQUOT: the same on Linux everywhere
            return (
                f"the disk of {self.host.name} is full. Make room there (old profiles?), or "
                f"run  python -m labkit remote clean --host {self.host.name}"
            )
        return f"{self.host.name}: {answer['error']}"

    def _run(self, command: str, data: bytes) -> tuple[int, bytes, bytes]:
        process = self.spawn(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            out, err = process.communicate(data)
        except BaseException:
            process.kill()
            process.wait()
            raise
        return process.returncode, out, err

    def _install(self) -> None:
        """Copy the agent to the other side; another version that is there stays."""
        name, data = agent_archive()
        at = f"~/.trainium-labs/{name}"
        code, _, err = self._run(
            f"umask 077; mkdir -p ~/.trainium-labs && cat > {at}.$$ && mv {at}.$$ {at}", data
        )
        if code == 255:
            raise self.failure(err)
        if code:
            if b"No space" in err:
                raise RemoteError(self._describe({"error": "", "errno": 28}))
            raise RemoteError(
                f"{self.host.name} did not take our program: {err.decode(errors='replace').strip()}"
            )

    def failure(self, err: bytes) -> RemoteError:
        """Return what a failed connection means, from what ssh said."""
        text = err.decode(errors="replace")
        for part, meaning in MEANINGS:
            if part in text:
                return RemoteError(meaning.format(host=self.host.name))
        last = (text.strip().splitlines() or ["it said nothing"])[-1]
        return Lost(
            f"the connection to {self.host.name} was lost ({last}). A run that was started "
            "goes on there; the same command picks it up."
        )

    def sftp(self, batch: str) -> subprocess.Popen[bytes]:
        """Start sftp with a batch of commands."""
        process = subprocess.Popen(
            ["sftp", "-q", *self._arguments, "-b", "-", self.host.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.write(batch.encode())
            process.stdin.close()
        return process

    def close(self) -> None:
        """End the shared connection."""
        if os.name != "nt":
            subprocess.run(
                ["ssh", *self._arguments, "-O", "exit", self.host.name], capture_output=True
            )


def quiet(words: Sequence[str]) -> str:
    """Return words as one argument of sftp's batch language."""
    return " ".join('"' + w.replace("\\", "\\\\").replace('"', '\\"') + '"' for w in words)
