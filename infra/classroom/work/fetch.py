"""Fetch the students' work over SSH: streamed, checked, and continued where it stopped."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ..aws import rate_limit
from ..aws.cloud import IDS_PER_FILTER, Cloud, doing, each
from ..aws.problems import ClassroomError
from ..fleet import hostkeys
from ..fleet.inventory import Machine, machine
from .archives import Archive, Shelf, names

MARGIN = 100 << 20  # bytes of the disk that stay free
BOOT_TRIES = 20  # of SSH, five seconds apart, to a machine that was just started


class NotFetched(Exception):
    """One student's work could not be fetched; the text says why."""


@dataclass
class Fetched:
    """Hold what became of a save: who is safe, who is not and why."""

    saved: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    started: list[Machine] = field(default_factory=list)


def ssh(m: Machine, folder: Path) -> list[str]:
    """Return the command that logs in to a machine, as far as the address."""
    program = shlex.split(os.environ.get("CLASSROOM_SSH", "ssh"))
    key = os.environ.get("CLASSROOM_SSH_KEY") or os.environ.get("ANSIBLE_PRIVATE_KEY_FILE")
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": "10",
        "ServerAliveInterval": "15",
        **hostkeys.options(folder, m.id, m.proxy),
        "LogLevel": "ERROR",
    }
    words = [*program, *(["-i", key] if key else [])]
    for name, value in options.items():
        words += ["-o", f"{name}={value}"]
    return [*words, f"ubuntu@{m.ip}"]


def _home(m: Machine, student: str) -> str:
    return f"/home/{student}" if m.seats else "/home/ubuntu"


def _where(m: Machine, student: str) -> tuple[str, str]:
    """Return a shell's words: go to where the work is, or fail; and the folders there.

    The nodes of a cluster share one /home, which is packed whole where its disk is: also the work
    of students who have left the roster.
    """
    if m.clustered:
        return "cd /home/ && ! stat -f -c %T . | grep -q nfs", "*/labs"
    return f"cd {shlex.quote(_home(m, student))} 2>/dev/null", "labs"


def _last(text: bytes) -> str:
    lines = text.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:160] if lines else "no answer"


def _size(m: Machine, student: str, folder: Path) -> int:
    """Return how many bytes a student's folder holds, before packing."""
    go, labs = _where(m, student)
    ask = (
        f"sudo sh -c '{go} && ls -d {labs} >/dev/null 2>&1 || {{ echo 0; exit; }};"
        f" du -csk --exclude=.venv {labs} | tail -n 1'"
    )
    done = subprocess.run([*ssh(m, folder), ask], capture_output=True, timeout=300)
    number = re.match(rb"\d+", done.stdout)
    if done.returncode or number is None:
        raise NotFetched(_last(done.stderr))
    return int(number[0]) * 1024


def _stream(m: Machine, student: str, folder: Path, path: Path) -> str:
    """Write the packed folder to `path` as it comes, and return its checksum; a student without a
    folder gives an empty archive."""
    go, labs = _where(m, student)
    pack = "tar --exclude=.venv --exclude=__pycache__ -czf - "
    ask = (
        f"sudo sh -c '{go} && ls -d {labs} >/dev/null 2>&1 && exec {pack} {labs};"
        f" exec {pack} --files-from /dev/null'"
    )
    digest = hashlib.sha256()
    with path.open("wb") as out:
        run = subprocess.Popen(
            [*ssh(m, folder), ask], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert run.stdout is not None and run.stderr is not None
        while piece := run.stdout.read(1 << 20):
            digest.update(piece)
            out.write(piece)
        printed = run.stderr.read()
    if run.wait() not in (0, 1):  # tar says 1 when a file changed while it was read
        raise NotFetched(_last(printed))
    return digest.hexdigest()


def _read_through(path: Path) -> None:
    """Read an archive to its end, where gzip compares its checksum; tarfile alone stops earlier."""
    with gzip.open(path) as packed:
        while packed.read(1 << 20):
            pass
    with tarfile.open(path) as archive:
        archive.getmembers()


def fetch(m: Machine, student: str, folder: Path, at: str) -> Archive:
    """Fetch one student's work of a machine and list it; raise NotFetched. An archive that was
    there stays until the new one is whole."""
    shelf = Shelf(folder / "work")
    shelf.folder.mkdir(parents=True, exist_ok=True)
    needed, free = _size(m, student, folder), shutil.disk_usage(shelf.folder).free
    if needed + MARGIN > free:
        raise NotFetched(
            f"{needed / 2**20:,.0f} MiB do not fit on this computer's disk ({free / 2**20:,.0f}"
            f" MiB free in {shelf.folder})"
        )
    part = shelf.folder / f".{student}-{m.id}.part"
    try:
        checksum = _stream(m, student, folder, part)
        _read_through(part)
        return shelf.keep(part, m.id, student, checksum, at)
    except (OSError, tarfile.TarError, EOFError, zlib.error) as error:
        raise NotFetched(str(error)) from error
    finally:
        part.unlink(missing_ok=True)


def _current(cloud: Cloud, region: str, machines: Collection[Machine]) -> list[Machine]:
    """Read machines again, with their addresses and states."""
    ids = sorted(m.id for m in machines)
    out = []
    for i in range(0, len(ids), IDS_PER_FILTER):
        with doing("list the machines", region):
            reservations = cloud.pages(
                "ec2",
                region,
                "describe_instances",
                "Reservations",
                Filters=[{"Name": "instance-id", "Values": ids[i : i + IDS_PER_FILTER]}],
            )
        out += [machine(instance, region) for r in reservations for instance in r["Instances"]]
    return out


def _awaken(
    cloud: Cloud, region: str, machines: list[Machine], done: Fetched, minutes: float = 5
) -> list[Machine]:
    """Start stopped machines, wait for stopping and pending ones; return those that run."""
    end, here = rate_limit.clock() + minutes * 60, machines
    asked: set[str] = set()
    while True:
        here = _current(cloud, region, here)
        stopped = [m for m in here if m.state == "stopped" and m.id not in asked]
        asked |= {m.id for m in stopped}
        chunks = [stopped[i : i + 50] for i in range(0, len(stopped), 50)]
        for chunk, _, error in each(
            lambda c: cloud.ec2(region).start_instances(InstanceIds=[m.id for m in c]), chunks
        ):
            if error is None:
                done.started += chunk
            else:
                done.failed.update({m.name: f"could not be started: {error}" for m in chunk})
        waiting = [
            m
            for m in here
            if m.name not in done.failed and m.state in ("stopped", "stopping", "pending")
        ]
        if not waiting or rate_limit.clock() > end:
            break
        rate_limit.sleep(5)
    for m in here:
        if m.state != "running":
            done.failed.setdefault(m.name, f"it is {m.state}")
        elif not m.ip:
            done.failed.setdefault(m.name, "it has no public address")
    return [m for m in here if m.name not in done.failed]


def save(
    cloud: Cloud,
    folder: Path,
    machines: Iterable[Machine],
    *,
    wanted: Callable[[Machine, str], bool] = lambda *_: True,
    say: Callable[[str], None] = lambda _: None,
    copied: Callable[[Machine], Archive | None] = lambda _: None,
) -> Fetched:
    """Fetch the work of every student on some machines, in whatever state they are; what is safe
    already is not fetched again. `copied` fetches what a stopped machine has copied to the class's
    bucket as its last word, so that it need not be started."""
    done, shelf = Fetched(), Shelf(folder / "work")
    folder.mkdir(parents=True, exist_ok=True)
    todo = [m for m in machines if m.id]
    needed = []
    for m in todo:
        people = [s for s in m.students if wanted(m, s)]
        if any(shelf.problem(m, s, cloud.now()) for s in people) and (copy := copied(m)):
            say(f"{copy.student}: {copy.size / 1024:,.0f} KiB fetched from the class's bucket")
        missing = [s for s in people if shelf.problem(m, s, cloud.now())]
        done.saved += [s for s in people if s not in missing]
        if missing:
            needed.append(m)
    ready: list[Machine] = []
    for region in sorted({m.region for m in needed}):
        ready += _awaken(cloud, region, [m for m in needed if m.region == region], done)
    fresh = {m.id for m in done.started}

    def one(job: tuple[Machine, str]) -> None:
        m, student = job
        for k in range(BOOT_TRIES if m.id in fresh else 1):
            try:
                archive = fetch(m, student, folder, cloud.now().isoformat())
                break
            except (NotFetched, subprocess.TimeoutExpired):
                if k == (BOOT_TRIES if m.id in fresh else 1) - 1:
                    raise
                rate_limit.sleep(5)
        say(f"{student}: {archive.size / 1024:,.0f} KiB saved as {archive.file}")

    jobs = [
        (m, s)
        for m in ready
        for s in m.students
        if wanted(m, s) and shelf.problem(m, s, cloud.now())
    ]
    for (_, student), _, error in each(one, jobs):
        if error is None:
            done.saved.append(student)
        else:
            done.failed[student] = str(error)
    return done


def stop_started(cloud: Cloud, done: Fetched) -> None:
    """Stop the machines that were started only to fetch from."""
    for region in sorted({m.region for m in done.started}):
        ids = [m.id for m in done.started if m.region == region]
        with doing("stop machines again", region):
            for i in range(0, len(ids), 100):
                cloud.ec2(region).stop_instances(InstanceIds=ids[i : i + 100])


def failures(done: Fetched) -> list[str]:
    """Return a line for each student or machine whose work could not be fetched."""
    return [f"{who}: the work could not be fetched: {why}" for who, why in done.failed.items()]


def discarded(options: dict[str, object]) -> frozenset[str]:
    """Return the names whose work is given up."""
    value = options.get("discard_work") or ""
    if not isinstance(value, (str, list, tuple)):
        raise ClassroomError("--discard-work takes names.", "Write the class's or a student's.")
    return names(value)
