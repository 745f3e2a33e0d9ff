"""Where untrusted kernels run: bubblewrap, or an unprivileged user inside a container.

- `bubblewrap`: a file tree of Python and NumPy, read-only, and the submission; own process ids; no
  network; no privileges, and no way to make user namespaces. For any user on Linux.
- `user`: another user of this machine, for root in a container that is itself the sandbox (an
  autograder's, a CI job's). World-readable files can be read.
- `none`: this user, this machine. For kernels that you trust.

In all of them the process has limits (memory, no new processes or threads, no files) and a filter
of system calls that it sets itself (confine.py) before the first line of the student's runs, and
can only tighten afterwards.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from ..spec import SpecError

KINDS = ("auto", "bubblewrap", "user", "none")
NOBODY = 65534
LOG_BYTES = 64 << 10  # of what a submission prints that are kept
#: what the student's process may use; the memory is address space, Python and NumPy take 1 GiB
LIMITS = {"AS": 2 << 30, "NPROC": 0, "FSIZE": 0, "CORE": 0, "NOFILE": 64, "CPU": 600}
_PROGRAM = tuple(Path(__file__).with_name(name) for name in ("sandbox_worker.py", "confine.py"))
#: of `user`: numbers that no account has; each judge takes one, so that none reaches another's
USERS = range(61184, 65000)


def choose(kind: str) -> str:
    """Return the sandbox to use; raise SpecError if none is good enough."""
    if os.name != "posix":
        raise SpecError("grading runs on Linux, and with --sandbox none on macOS; not on Windows")
    if kind in ("none", "user"):
        if kind == "user" and os.geteuid() != 0:
            raise SpecError("--sandbox user needs root, to become another user")
        return kind
    why = probe()
    if not why:
        return "bubblewrap"
    raise SpecError(
        f"there is no sandbox here: {why}.\nStrangers' code is not run without one. Install "
        "bubblewrap (Linux; apt install bubblewrap), or grade in a virtual machine; inside a "
        "container that is a sandbox itself give --sandbox user; for kernels that you trust, "
        "--sandbox none"
    )


def keep_from(sandbox: str, folder: Path) -> None:
    """Raise SpecError if what runs in a sandbox could read a lab's folder: its hidden cases."""
    folder = folder.resolve()
    if sandbox == "user" and all(path.stat().st_mode & 0o001 for path in (folder, *folder.parents)):
        raise SpecError(
            f"every user of this machine can read {folder}, and so can what --sandbox user "
            f"runs: chmod -R go-rwx {folder}"
        )


def probe() -> str:
    """Return why bubblewrap cannot be used here; "" if it can. It is tried, not looked for."""
    if not sys.platform.startswith("linux"):
        return f"bubblewrap is for Linux, and this is {sys.platform}"
    if shutil.which("bwrap") is None:
        return "bubblewrap (bwrap) is not installed"
    try:
        done = subprocess.run(
            [
                *_bubblewrap(None),
                python_inside()[0],
                "-I",
                "-S",
                "-c",
                "import socket; print('inside')",
            ],
            text=True,
            timeout=60,
            capture_output=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"bubblewrap does not run: {error}"
    if done.returncode or done.stdout.strip() != "inside":
        return "bubblewrap does not run: " + (done.stderr.strip().splitlines() or ["?"])[-1]
    return ""


def python_inside() -> tuple[str, str]:
    """Return (path of Python inside of bubblewrap, folder out here that it comes from)."""
    prefix = Path(sys.base_prefix).resolve()
    exe = Path(os.path.realpath(sys.executable))
    try:
        return f"/python/{exe.relative_to(prefix)}", str(prefix)
    except ValueError:
        return f"/python/bin/{exe.name}", str(prefix)


def _packages() -> list[tuple[str, str]]:
    """Return (folder, name) of the packages that kernels may import, NumPy and ml_dtypes."""
    import ml_dtypes
    import numpy

    packages = []
    for module in (numpy, ml_dtypes):
        folder = Path(str(module.__file__)).resolve().parent
        packages.append((str(folder), folder.name))
        libraries = folder.with_name(f"{folder.name}.libs")
        if libraries.is_dir():
            packages.append((str(libraries), libraries.name))
    return packages


def filters() -> bool:
    """Return whether the kernel here filters system calls for who asks for it."""
    done = subprocess.run([sys.executable, "-S", str(_PROGRAM[1])], text=True, capture_output=True)
    return done.stdout.strip() == "True"


def _stage(submission: Path, user: int | None) -> Path:
    """Copy a submission, and the program that runs it, to where only that program can read."""
    folder = Path(tempfile.mkdtemp(prefix="labkit-student-"))
    for source, target in (
        *((path, folder / "grader") for path in _PROGRAM),
        *((path, folder / "submission") for path in sorted(submission.glob("*.py"))),
    ):
        target.mkdir(exist_ok=True)
        shutil.copyfile(source, target / source.name)
        os.chmod(target / source.name, 0o444)
        os.chmod(target, 0o755)
    if user is not None:  # it owns the way in, and nothing that it could change
        os.chmod(folder, 0o500)
        os.chown(folder, user, user)
    return folder


def _owner(sandbox: str) -> int | None:
    """Return the number of the user that a submission runs as, None for the caller's own."""
    if sandbox == "none" or os.geteuid() != 0:
        return None
    return NOBODY if sandbox == "bubblewrap" else USERS[os.getpid() % len(USERS)]


def _bubblewrap(submission: Path | None) -> list[str]:
    """Return the command that begins a sandboxed one; `submission` as `_stage` made it."""
    base = [
        "bwrap",
        "--die-with-parent",
        "--new-session",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
        "--hostname",
        "grader",
        "--ro-bind",
        "/usr",
        "/usr",
    ]
    for name in ("lib", "lib64", "bin", "sbin"):
        path = Path("/") / name
        if path.is_symlink():
            base += ["--symlink", os.readlink(path), f"/{name}"]
        elif path.is_dir():
            base += ["--ro-bind", f"/{name}", f"/{name}"]
    if Path("/etc/ld.so.cache").exists():
        base += ["--ro-bind", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    base += ["--ro-bind", python_inside()[1], "/python"]
    base += ["--perms", "0755", "--dir", "/grader"]  # parents are made for the caller only
    for folder, name in _packages():
        base += ["--ro-bind", folder, f"/grader/{name}"]
    if submission is not None:
        for program in _PROGRAM:
            base += [
                "--ro-bind",
                str(submission / "grader" / program.name),
                f"/grader/{program.name}",
            ]
        base += ["--ro-bind", str(submission / "submission"), "/submission"]
    base += [
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--size",
        "1048576",
        "--tmpfs",
        "/tmp",
        "--remount-ro",
        "/tmp",
        "--remount-ro",
        "/dev",
        "--remount-ro",
        "/",
        "--clearenv",
        "--setenv",
        "PYTHONPATH",
        "/grader",
        "--setenv",  # a Python built with --enable-shared knows its library by the path out here
        "LD_LIBRARY_PATH",
        "/python/lib",
        "--setenv",
        "OPENBLAS_NUM_THREADS",
        "1",
        "--setenv",
        "OMP_NUM_THREADS",
        "1",
        "--setenv",
        "HOME",
        "/tmp",
        "--chdir",
        "/",
    ]
    if os.geteuid() != 0:
        return [*base, "--unshare-user", "--disable-userns", "--"]
    # root's limits do not hold: become nobody, and only then enter a namespace of users
    return [
        *base,
        "--",
        "setpriv",
        "--reuid",
        str(NOBODY),
        "--regid",
        str(NOBODY),
        "--clear-groups",
        "--no-new-privs",
        "bwrap",
        "--unshare-user",
        "--disable-userns",
        "--die-with-parent",
        "--ro-bind",
        "/",
        "/",
        "--dev-bind",
        "/dev",
        "/dev",
        "--proc",
        "/proc",
        "--",
    ]


class Student:
    """The process of one submission; `read` and `write` are the judge's ends of its pipes."""

    def __init__(self, submission: Path, sandbox: str, limits: dict[str, int] | None = None):
        user = _owner(sandbox)
        self.folder = _stage(submission, user)
        child_read, self.write = os.pipe()
        self.read, child_write = os.pipe()
        numbers = [str(child_read), str(child_write), json.dumps({**LIMITS, **(limits or {})})]
        options: dict[str, Any] = {}
        env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        if sandbox == "bubblewrap":
            command = [
                *_bubblewrap(self.folder),
                python_inside()[0],
                "-u",
                "-B",
                "-s",
                "-S",
                "/grader/sandbox_worker.py",
                "/submission",
                *numbers,
            ]
        else:
            env["PYTHONPATH"] = os.pathsep.join(
                {str(Path(folder).parent) for folder, _ in _packages()}
            )
            command = [
                sys.executable,
                "-u",
                "-B",
                "-s",
                "-S",
                str(self.folder / "grader" / "sandbox_worker.py"),
                str(self.folder / "submission"),
                *numbers,
            ]
            if sandbox == "user":
                options = {"user": user, "group": user, "extra_groups": []}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            pass_fds=(child_read, child_write),
            start_new_session=True,
            cwd="/",
            **options,
        )
        os.close(child_read)
        os.close(child_write)
        self._log = bytearray()
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()

    def _drain(self) -> None:
        assert self.process.stdout is not None
        while data := self.process.stdout.read1(1 << 16):  # type: ignore[attr-defined]
            self._log += data[: max(0, LOG_BYTES - len(self._log))]

    @property
    def printed(self) -> str:
        """Return the beginning of what it printed."""
        return bytes(self._log).decode("utf-8", "replace")

    def stop(self) -> None:
        """End the process and all that it may have started."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        self.process.kill()
        self.process.wait()
        self._reader.join(timeout=5)
        for fd in (self.read, self.write):
            os.close(fd)
        shutil.rmtree(self.folder, ignore_errors=True)
