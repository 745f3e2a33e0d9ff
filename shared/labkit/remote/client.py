"""One run on one host: begin it or pick it up, show its output, bring its files home.

The other side is the only one that keeps what runs there are, so a call that is killed at any point
loses nothing: the next one asks. A run is forgotten there after its results are written here, and
results are known by their ids, so none comes twice.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from . import cost, merge
from .ssh import Connection, Gone, Host, Lost, RemoteError, quiet
from .tree import Tree

RECONNECT_S = 120.0  # how long a lost connection is tried again
SKEW_S = 5.0  # a clock that is further off is mentioned
VENVS = "/opt/aws_neuronx_venv_*"
#: What labkit imports there: name, and what pip installs where it is missing.
NEEDS = {
    "numpy": "numpy>=1.26",
    "ml_dtypes": "ml_dtypes>=0.5",
    "rich": "rich>=13",
    "filelock": "filelock>=3.12",
}
PASSED_ON = (
    "NKI_PRECISE_FP",
    "NKISIM_CHECKS",
    "NKISIM_SHUFFLE",
    "NEURON_PLATFORM_TARGET_OVERRIDE",
    "NEURON_RT_VISIBLE_CORES",
    "TRAINIUM_LABS_LOCKS",
    "LABKIT_STUDENT",
    "COLUMNS",
    "NKI_BANNER",
    "SLURM_PARTITION",
    "SLURM_ACCOUNT",
)  # read by srun, on a cluster
ENDS = {
    "time": "the run was ended at its time limit; --run-limit MINUTES allows more",
    "stopped": "the run was stopped",
    "killed": "the run was killed on the other machine (out of memory?) before its end",
    "restarted": "the other machine was restarted or stopped while the run went on",
}


@dataclass(frozen=True)
class Job:
    """What to run: arguments of Python, where in the tree, on what, where results belong here."""

    argv: tuple[str, ...]
    cwd: str
    results: Path
    backend: str = "hw"
    dialect: str = ""  # "neuronxcc.nki", "nki"; "": what the machine speaks
    limit_s: float = 3600.0
    env: dict[str, str] = field(default_factory=dict)

    @property
    def device(self) -> bool:
        """Return whether it computes on a NeuronCore."""
        return self.backend == "hw"


@dataclass
class Report:
    """What became of a run."""

    host: str
    code: int
    text: str = ""
    runs: int = 0
    files: list[str] = field(default_factory=list)
    seconds: float = 0.0
    cost: str = ""


def patterns() -> list[str]:
    """Return where environments are looked for on the other side: LABKIT_REMOTE_VENVS, or AWS's."""
    return os.environ.get("LABKIT_REMOTE_VENVS", VENVS).split(":")  # its paths, not ours


def number(version: str | None) -> tuple[int, ...]:
    """Return the first two numbers of a version, () if it is not known."""
    parts = (version or "").split(".")[:2]
    return tuple(int(p) for p in parts) if all(p.isdigit() for p in parts) and version else ()


def choose_python(facts: dict[str, Any], job: Job, host: str) -> str:
    """Return the Python there that fits the job; raise RemoteError with the remedy otherwise."""
    venvs = facts["venvs"]
    if job.backend == "sim":
        return venvs[0]["python"] if venvs else "python3"
    if job.device and not facts["neuron"]:
        raise RemoteError(
            f"{host} has no Neuron device (/dev/neuron0): it is no Trainium or "
            "Inferentia machine, or its driver is not loaded. To run the simulator "
            "there, add --backend sim."
        )
    neuron = [v for v in venvs if v["neuronx-cc"] or v["nki"]]
    if not neuron:
        raise RemoteError(
            f"{host} has no Neuron environment ({', '.join(patterns())}). Use a "
            "Neuron machine image, or add --backend sim to run the simulator there."
        )
    # SDK 2.30 (neuronx-cc 2.25, NKI 0.4) refuses neuronxcc.nki inside kernels (release notes)
    older = [
        v
        for v in neuron
        if v["neuronx-cc"] and number(v["neuronx-cc"]) < (2, 25) and not number(v["nki"]) >= (0, 4)
    ]
    if not job.dialect:  # benchmark and verify_sim take the kernels that the SDK speaks
        return (older or neuron)[0]["python"]
    if job.dialect == "nki":
        fit = [v for v in neuron if v["nki"]]
        if not fit:
            raise RemoteError(
                f"the kernels import nki, and the SDK of {host} has none: it came "
                "with SDK 2.27. Run the neuronxcc.nki kernels, or take a newer "
                "image."
            )
    else:
        fit = older
        if not fit:
            raise RemoteError(
                f"the SDK of {host} is too new for these kernels: from 2.30 on it "
                "refuses neuronxcc.nki. Run them as nki (--dialect nki), or take an "
                "image with SDK 2.26 to 2.29."
            )
    return fit[0]["python"]


class Run:
    """The calls about one job on one host."""

    def __init__(
        self, host: Host, tree: Tree, say: Callable[[str], None], out: Callable[[bytes], None]
    ):
        self.host, self.tree, self.say, self.out = host, tree, say, out
        self.link = Connection(host)
        self.facts: dict[str, Any] = {}

    # ---- begin

    def begin(self, job: Job, console: Console | None = None) -> dict[str, Any]:
        """Send what is new, start the job or pick it up, and return it as the other side says."""
        key = hashlib.sha256(
            json.dumps([job.argv, job.cwd, job.env, sorted(self.tree.files.items())]).encode()
        ).hexdigest()[:32]
        state = self.state([sha for sha, _ in self.tree.files.values()])
        for old in state["jobs"]:
            if old["origin"] != self.tree.origin():
                continue
            same = old["key"] == key
            why = (old["done"] or {}).get("why")
            if same and (old["state"] != "ended" or why in ("ended", "time")):
                self.say(
                    f"picking up the run {old['id']} on {self.host.name}, "
                    + ("which has ended" if old["state"] == "ended" else "which goes on")
                )
                return old
            if old["state"] == "ended":
                report = self.collect(old, job.results)
                self.say(
                    f"the run {old['id']} ({' '.join(old['argv'][1:])}) has ended while you "
                    f"were away{': ' + ENDS[why] if why in ENDS else ''}; "
                    f"{report.runs} results of it are here now"
                )
            else:
                self.say(f"your run {old['id']} still goes on there; this one comes after it")
        python = choose_python(self.facts, job, self.host.name)
        if state["missing"]:
            self.link.call("put", data=self.tree.pack(state["missing"]))
        env = {
            **{k: os.environ[k] for k in PASSED_ON if k in os.environ},
            **job.env,
            "LABKIT_GIT_COMMIT": self.tree.commit,
            "LABKIT_HISTORY": "off",
            "LABKIT_HOST_NAME": self.host.name,
            "TERM": os.environ.get("TERM", "dumb"),
            "PYTHONUNBUFFERED": "1",
        }
        size = shutil.get_terminal_size()
        tty = [size.lines, size.columns] if console and console.is_terminal else None
        return self.link.call(
            "start",
            request={
                "id": f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:6]}",
                "key": key,
                "origin": self.tree.origin(),
                "cwd": job.cwd,
                "env": env,
                "tty": tty,
                "manifest": self.tree.files,
                "argv": ["{python}", *job.argv],
                "python": python,
                "limit_s": job.limit_s,
                "device": job.device,
                "needs": NEEDS,
            },
        )

    def state(self, objects: list[str] | None = None) -> dict[str, Any]:
        """Ask what is there."""
        before = time.time()
        answer = self.link.call("plan", request={"objects": objects or [], "venvs": patterns()})
        self.facts = answer["facts"]
        skew = self.facts["time"] - (before + time.time()) / 2
        if abs(skew) > SKEW_S + (time.time() - before) / 2:
            self.say(
                f"the clock of {self.host.name} is {abs(skew):.0f} s "
                f"{'ahead' if skew > 0 else 'behind'}; the times in its results are its own"
            )
        return answer

    # ---- watch

    def retry(self, what: Callable[[], bool]) -> None:
        """Do something over the network until it returns True; a lost connection is tried again."""
        begun, pause = time.monotonic(), 0.5
        while not what():
            if time.monotonic() - begun > RECONNECT_S:
                raise Lost(
                    f"{self.host.name} could not be reached for {RECONNECT_S:.0f} s. The "
                    "run goes on there; the same command picks it up."
                )
            self.say(f"the connection to {self.host.name} was lost; trying again")
            time.sleep(pause)
            pause = min(8.0, pause * 2)

    def follow(self, run: str) -> dict[str, Any]:
        """Show the output of a run to its end, through lost connections; return what it became."""
        seen, last = 0, dict[str, Any]()

        def stream() -> bool:
            nonlocal seen, last
            process = self.link.spawn(
                self.link.agent("follow", run, str(seen)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            assert process.stdout is not None and process.stderr is not None
            try:
                while piece := os.read(process.stdout.fileno(), 1 << 16):
                    seen += len(piece)
                    self.out(piece)
                err = process.stderr.read()
                if process.wait() == 0 or b"no run" in err:
                    headers = [line for line in err.splitlines() if line.startswith(b'{"id"')]
                    last = json.loads(headers[-1]) if headers else {}
                    return True
            finally:
                process.kill()
                process.wait()
            return False

        def show() -> bool:
            nonlocal last
            try:
                last = self.link.call("show", run)
            except Lost:
                return False
            return True

        while last.get("state") != "ended":
            self.retry(stream)
            if not last:
                self.retry(show)
        return last

    # ---- bring home

    def collect(self, run: dict[str, Any], results: Path) -> Report:
        """Fetch what a run has made, put it in its place, and let the other side forget it.

        Of two calls at once, one does it, and the other finds it done.
        """
        done = run["done"]
        if done is None:  # fetched and forgotten while this call waited for its end
            return Report(self.host.name, 2, "another call of yours has brought it home")
        incoming = self.tree.notes / "incoming"
        incoming.mkdir(parents=True, exist_ok=True)
        lock = FileLock(str(incoming / f"{run['id']}.lock"))
        lock.acquire()
        try:
            return self._collect(run, done, results)
        except Gone:
            return Report(
                self.host.name,
                2 if done["code"] is None else done["code"],
                "another call of yours has brought it home",
                seconds=done["seconds"],
                cost=cost.sentence(self.host, self.facts, done["seconds"], self.tree.root),
            )
        finally:
            lock.release()
            with contextlib.suppress(OSError):
                (incoming / f"{run['id']}.lock").unlink()

    def _collect(self, run: dict[str, Any], done: dict[str, Any], results: Path) -> Report:
        report = Report(
            self.host.name,
            2 if done["code"] is None else done["code"],
            ENDS.get(done["why"], ""),
            seconds=done["seconds"],
        )
        if done["why"] != "ended":
            report.code = 2
        folder = self.tree.notes / "incoming" / run["id"]
        folder.mkdir(parents=True, exist_ok=True)

        def staged(file: dict[str, Any]) -> Path:
            at = hashlib.sha256(file["path"].encode()).hexdigest()[:12]
            return folder / f"{file['sha256'][:32]}-{at}"

        files = [f for f in done["files"] if merge.safe(f["path"])]
        for file in files:
            data = run.get("small", {}).get(file["path"])
            if data is not None and not self._whole(file, staged(file)):
                staged(file).write_bytes(base64.b64decode(data))
        self.retry(lambda: self.fetch(run["id"], files, staged))
        remote = {
            "host": self.host.name,
            "run": run["id"],
            "machine": self.facts.get("machine"),
            "seconds": round(done["seconds"], 1),
        }
        report.runs, report.files = merge.place(self.tree, files, staged, results, remote)
        shutil.rmtree(folder, ignore_errors=True)
        self.link.call("forget", run["id"])
        report.cost = cost.sentence(self.host, self.facts, done["seconds"], self.tree.root)
        return report

    def fetch(
        self, run: str, files: list[dict[str, Any]], staged: Callable[[dict[str, Any]], Path]
    ) -> bool:
        """Copy files here by sftp, each from where it broke off; return whether all are whole."""
        left = [f for f in files if not self._whole(f, staged(f))]
        if not left:
            return True
        base = f"{self.facts['home']}/jobs/{run}/tree/"
        process = self.link.sftp(
            "".join(f"reget {quiet([base + f['path'], staged(f).as_posix()])}\n" for f in left)
        )
        total = sum(f["size"] for f in files)
        console = Console(stderr=True)
        with Progress(
            TextColumn("fetching"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal or total < 1 << 20,
        ) as bar:
            task = bar.add_task("", total=total)
            while process.poll() is None:
                bar.update(task, completed=sum(_size(staged(f)) for f in files))
                time.sleep(0.01 if total < 1 << 20 else 0.1)
        err = process.stderr.read() if process.stderr else b""
        if process.returncode and (b"not found" in err or b"No such file" in err):
            raise Gone(f"a file of the run {run} is no longer on {self.host.name}")
        if process.returncode and b"No space" in err:
            raise RemoteError(
                "the disk here is full; make room and run the same command again, "
                "which goes on where this one was"
            )
        return process.returncode == 0 and all(self._whole(f, staged(f)) for f in left)

    @staticmethod
    def _whole(file: dict[str, Any], path: Path) -> bool:
        """Return whether a fetched file is complete; what is as long and yet wrong is removed."""
        if path.with_name(path.name + Path(file["path"]).suffix).exists() and not path.exists():
            return True
        if _size(path) < file["size"] or not path.exists():
            return False
        if merge.digest(path) == file["sha256"]:
            return True
        path.unlink()
        return False


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def to_terminal(piece: bytes) -> None:
    """Write output of the other side to ours, as it is."""
    sys.stdout.flush()
    stream = getattr(sys.stdout, "buffer", None)
    if stream is None:
        sys.stdout.write(piece.decode(errors="replace"))
    else:
        stream.write(piece)
    sys.stdout.flush()
