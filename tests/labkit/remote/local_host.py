"""A throwaway host: a real sshd on a loopback port, with a home and keys of its own.

Real are sshd, ssh, sftp, keys, host keys and everything that runs over them. The account is the
one that runs the tests, with HOME set to a folder of the test's.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

#: What a tester does: hand over to --host, or run.
DRIVER = (
    "import sys; from labkit.cli import guarded; sys.exit(guarded(None, sys.argv[1:], ('job.py',)))"
)
SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin")
SFTP_SERVER = next(
    (
        p
        for p in (
            "/usr/lib/openssh/sftp-server",
            "/usr/libexec/sftp-server",
            "/usr/lib/ssh/sftp-server",
        )
        if Path(p).exists()
    ),
    "internal-sftp",
)


def why_not() -> str:
    """Return why there can be no such host here, "" if there can."""
    if sys.platform != "linux":
        return "the other machine is always Linux"
    missing = [
        name
        for name, path in (
            ("sshd", SSHD),
            ("ssh", shutil.which("ssh")),
            ("git", shutil.which("git")),
        )
        if not path
    ]
    return f"needs {', '.join(missing)} (apt-get install openssh-server git)" if missing else ""


def keygen(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class LocalHost:
    """One host; `config` is an SSH configuration that knows it as `name`."""

    def __init__(
        self, folder: Path, name: str = "chip", address: str = "127.0.0.1", account: str = ""
    ):
        self.folder, self.name, self.port = folder, name, free_port()
        self.address, self.account = address, account
        self.home = folder / f"home-{name}"
        self.home.mkdir(parents=True)
        self.key, self.host_key = keygen(folder / f"key-{name}"), keygen(folder / f"host-{name}")
        (folder / f"authorized-{name}").write_text(self.key.with_suffix(".pub").read_text())
        self.known = folder / f"known-{name}"
        self.trust()
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def trust(self) -> None:
        """Write the host's key where ssh looks for it."""
        kind, blob = self.host_key.with_suffix(".pub").read_text().split()[:2]
        self.known.write_text(f"[{self.address}]:{self.port} {kind} {blob}\n")

    @property
    def config(self) -> str:
        """Return this host's block of an SSH configuration."""
        import getpass

        return (
            f"Host {self.name}\n  HostName {self.address}\n  Port {self.port}\n"
            f"  User {getpass.getuser()}\n  IdentityFile {self.key}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self.known}\n  StrictHostKeyChecking yes\n"
            "  IdentityAgent none\n"
        )

    def start(self) -> None:
        """Start sshd and wait until it answers."""
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(parents=True, exist_ok=True)
        settings = self.folder / f"sshd-{self.name}"
        settings.write_text(
            f"ListenAddress {self.address}\nPort {self.port}\nHostKey {self.host_key}\n"
            f"AuthorizedKeysFile {self.folder}/authorized-{self.name}\nStrictModes no\n"
            f"UsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
            f"PermitRootLogin prohibit-password\nPidFile none\nMaxStartups 100\nMaxSessions 50\n"
            f"PrintMotd no\nSubsystem sftp {SFTP_SERVER}\nSetEnv HOME={self.home}\n"
        )
        log = open(self.folder / f"log-{self.name}", "ab")
        self.process = subprocess.Popen(
            [*self._with_account(), str(SSHD), "-D", "-e", "-f", str(settings)],
            stderr=log,
            start_new_session=True,
        )
        for _ in range(200):
            with socket.socket() as s:
                if s.connect_ex((self.address, self.port)) == 0:
                    return
            time.sleep(0.02)
        raise RuntimeError(Path(log.name).read_text())

    def _with_account(self) -> list[str]:
        """Return what lets sshd see an account that this machine has not (root only)."""
        if not self.account:
            return []
        lines = {
            "passwd": f"{self.account}:x:0:0::{self.home}:/bin/bash",
            "shadow": f"{self.account}:*:19000:0:99999:7:::",
        }
        mounts = []
        for name, line in lines.items():
            copy = self.folder / f"{name}-{self.name}"
            copy.write_text(f"{line}\n{Path('/etc', name).read_text()}")
            copy.chmod(0o600 if name == "shadow" else 0o644)
            mounts.append(f"mount --bind {copy} /etc/{name}")
        return ["unshare", "--mount", "sh", "-c", " && ".join([*mounts, 'exec "$@"']), "sh"]

    def connections(self) -> list[int]:
        """Return the processes that serve a connection."""
        assert self.process is not None
        out = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True).stdout
        tree = [tuple(map(int, line.split())) for line in out.splitlines()[1:]]
        return [pid for pid, parent in tree if parent == self.process.pid]

    def cut(self) -> None:
        """Kill every connection, as a lost network does, and leave what runs alone."""
        for pid in self.connections():
            out = subprocess.run(["ps", "-eo", "pid,ppid,comm"], capture_output=True, text=True)
            processes = [line.split(None, 2) for line in out.stdout.splitlines()[1:]]
            for p in [pid, *(int(a) for a, b, c in processes if int(b) == pid and "sshd" in c)]:
                try:
                    os.kill(p, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def stop(self) -> None:
        """End the server and its connections."""
        if self.process is None:
            return
        self.cut()
        self.process.kill()
        self.process.wait()
        self.process = None

    def left(self) -> list[str]:
        """Return the processes that runs on this host have left."""
        found = []
        for entry in os.listdir("/proc"):
            try:
                env = Path("/proc", entry, "environ").read_bytes().split(b"\0")
                command = Path("/proc", entry, "cmdline").read_bytes().replace(b"\0", b" ")
            except (OSError, ValueError):
                continue
            if f"HOME={self.home}".encode() in env and entry.isdigit():
                found.append(f"{entry} {command.decode(errors='replace')}")
        return [x for x in found if "sshd" not in x and "sftp-server" not in x]

    def kill_left(self) -> None:
        """Kill what runs have left; one may end with another before its turn."""
        for line in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(line.split()[0]), signal.SIGKILL)
