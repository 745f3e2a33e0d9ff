"""Nothing that holds a student's work is ended unless an archive of it is here, whichever the
door."""

from __future__ import annotations

import random
import shutil
import sys
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import pytest

from classroom.aws.problems import ClassroomError
from classroom.work import archives
from conftest import ClassFolder, Classroom, Lab
from labcloud.client import LabCloud

HERE = Path(__file__).parent


class Disks:
    """Hold a folder for each machine of the fake cloud, with work on it."""

    def __init__(self, path: Path, cloud: LabCloud) -> None:
        self.path, self.cloud = path, cloud
        path.mkdir()

    def fill(self, seed: int = 0) -> None:
        """Write work onto every machine that has none yet."""
        for m in self.cloud.machines():
            disk = self.path / m["id"]
            if disk.exists():
                continue
            tags = m["tags"]
            seats = [v for k, v in tags.items() if k.startswith("trainium-labs:core-")]
            for home in seats or ["ubuntu"]:
                labs = disk / "home" / home / "labs"
                labs.mkdir(parents=True)
                text = random.Random(f"{m['id']}{seed}").randbytes(2000)
                (labs / "kernel.py").write_bytes(text)
            (disk / "region").write_text(m["region"])

    def faults(self, *words: str) -> None:
        """Let the next logins fail."""
        (self.path / "faults").write_text("\n".join(words))

    def ended(self) -> list[str]:
        """Return the machines that were ended, whose work must be safe."""
        events = self.cloud.post("events")
        ids = {e["instance"] for e in events if e["kind"] == "terminated"}
        return sorted(i for i in ids if (self.path / i).exists())

    def lost(self, out: Path, given_up: tuple[str, ...] = ()) -> list[str]:
        """Return whose work of ended machines no archive holds byte by byte."""
        shelf, bad = archives.Shelf(out / "work"), []
        for iid in self.ended():
            for home in (self.path / iid / "home").iterdir():
                copies = [
                    a
                    for a in shelf.all()
                    if a.instance == iid and home.name in ("ubuntu", a.student)
                ]
                want = (home / "labs/kernel.py").read_bytes()
                if not any(want == _kernel(shelf.folder / a.file) for a in copies):
                    bad.append(f"{iid} {home.name}")
        return [b for b in bad if b.split()[1] not in given_up]


def _kernel(path: Path) -> bytes:
    with tarfile.open(path) as archive:
        found = archive.extractfile("labs/kernel.py")
        return found.read() if found else b""


@pytest.fixture()
def disks(tmp_path: Path, cloud: LabCloud, monkeypatch: pytest.MonkeyPatch) -> Disks:
    """Return disks that a stand-in for ssh reads."""
    made = Disks(tmp_path / "disks", cloud)
    monkeypatch.setenv("LAB_DISKS", str(made.path))
    monkeypatch.setenv("CLASSROOM_SSH", f"{sys.executable} {HERE / 'fake_ssh.py'}")
    return made


def second_laptop(folder: ClassFolder, cloud: LabCloud, classroom: Classroom) -> None:
    """Lose everything that provision wrote."""
    shutil.rmtree(folder.path / "out")


def all_stopped(folder: ClassFolder, cloud: LabCloud, classroom: Classroom) -> None:
    """Stop the machines."""
    classroom("stop", folder.file)


def stopping(folder: ClassFolder, cloud: LabCloud, classroom: Classroom) -> None:
    """Let the machines be on their way to stopped."""
    cloud.post("set", turn_seconds={"pending": 4, "stopping": 45, "shutting-down": 4})
    boto3.client("ec2", "us-east-2").stop_instances(InstanceIds=list(cloud.ids().values()))


def broken_class_file(folder: ClassFolder, cloud: LabCloud, classroom: Classroom) -> None:
    """Make class.yml say nonsense."""
    folder.write(stop_nightly="late")


def throttled(folder: ClassFolder, cloud: LabCloud, classroom: Classroom) -> None:
    """Let the first listings of machines be refused."""
    cloud.fault("DescribeInstances", code="RequestLimitExceeded", status=503, times=3)


BEFORE = [None, second_laptop, all_stopped, stopping, broken_class_file, throttled]


@pytest.mark.sample(3)
@pytest.mark.parametrize("before", BEFORE, ids=lambda f: f.__name__ if f else "as it is")
def test_a_teardown_fetches_the_work_first_in_whatever_state_the_class_is(
    lab: Lab, disks: Disks, before: Any
) -> None:
    lab.write(["alice", "bob"])
    lab("provision")
    disks.fill()
    if before:
        before(lab.folder, lab.cloud, lab)
    for _ in range(2):
        done = lab("teardown", discard_work="")
        if done["exit_code"] == 0:
            break
    assert done["exit_code"] == 0 and lab.leftovers() == [], done
    assert len(disks.ended()) == 2 and disks.lost(lab.folder.path / "out/lab") == []


DOORS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "teardown": ("teardown", {}, ["alice", "bob"]),
    "teardown by name": ("teardown", {"name": "lab"}, ["alice", "bob"]),
    "teardown of one": ("teardown", {"limit": ["bob"]}, ["alice", "bob"]),
    "removed from the roster": ("provision", {}, ["alice"]),
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("fault", ["refused", "cut", "garbled"])
def test_no_door_ends_a_machine_whose_work_could_not_be_fetched(
    lab: Lab, disks: Disks, door: str, fault: str
) -> None:
    command, options, roster = DOORS[door]
    lab.write(["alice", "bob"])
    lab("provision")
    disks.fill()
    lab.write(roster, budget={"per_student_usd": 50, "class_usd": 100})
    before = lab.ids()
    disks.faults(*[fault] * 8)
    with pytest.raises(ClassroomError, match="is not saved") as caught:
        lab(command, discard_work="", **options)
    assert "--discard-work" in str(caught.value) and caught.value.exit_code == 1
    assert lab.ids() == before and sorted(lab.running()) == sorted(before.values())
    disks.faults()
    assert lab(command, discard_work="", **options).get("exit_code", 0) == 0
    assert before["bob"] in disks.ended() and disks.lost(lab.folder.path / "out/lab") == []


def test_an_archive_that_was_damaged_or_is_old_is_fetched_again(lab: Lab, disks: Disks) -> None:
    lab("provision")
    disks.fill()
    first = lab("save_work")
    assert sorted(first["saved"]) == ["alice", "bob"] and first["exit_code"] == 0
    work = lab.folder.path / "out/lab/work"
    old = {p.name: p.stat().st_mtime_ns for p in work.glob("*.tar.gz")}
    lab("save_work")
    assert {p.name: p.stat().st_mtime_ns for p in work.glob("*.tar.gz")} == old, "it is safe"
    (work / "bob.tar.gz").write_bytes(b"x" * (work / "bob.tar.gz").stat().st_size)
    lab("save_work")
    new = {p.name: p.stat().st_mtime_ns for p in work.glob("*.tar.gz")}
    assert new["alice.tar.gz"] == old["alice.tar.gz"] and new["bob.tar.gz"] != old["bob.tar.gz"]
    for disk in disks.path.iterdir():  # they worked on
        (disk / "home/ubuntu/labs/kernel.py").write_bytes(b"better")
    lab.post("advance", seconds=2 * 3600)
    done = lab("teardown", discard_work="")
    assert done["exit_code"] == 0 and disks.lost(lab.folder.path / "out/lab") == []


def test_archives_that_come_in_at_the_same_moment_are_all_listed(tmp_path: Path) -> None:
    together = threading.Barrier(16)

    def one(n: int) -> None:
        part = tmp_path / f".{n}.part"
        part.write_bytes(b"%d" % n)
        together.wait()  # two machines for each student: the names must differ as well
        shelf = archives.Shelf(tmp_path)  # as each fetch opens its own
        shelf.keep(part, f"i-{n}", f"student{n // 2}", archives.sha256(part), "2026-11-21")

    for _ in range(5):
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(one, range(16)))
        listed = archives.Shelf(tmp_path).all()
        assert sorted(a.instance for a in listed) == sorted(f"i-{n}" for n in range(16))
        for a in listed:
            assert (tmp_path / a.file).read_text() == a.instance[2:]
        archives.Shelf(tmp_path).manifest.unlink()


def test_a_disk_without_room_is_said_before_anything_is_fetched(
    lab: Lab, disks: Disks, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab("provision")
    disks.fill()
    usage = shutil.disk_usage(lab.folder.path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(ClassroomError, match="do not fit on this computer's disk"):
        lab("teardown", discard_work="")
    assert len(lab.running()) == 2 and not list((lab.folder.path / "out/lab/work").glob("*.gz"))


def test_work_is_given_up_by_name_only(lab: Lab, disks: Disks) -> None:
    lab.write(["alice", "bob"])
    lab("provision")
    disks.fill()
    disks.faults(*["refused"] * 30)
    with pytest.raises(ClassroomError, match="alice"):
        lab("teardown", discard_work="bob")
    assert len(lab.running()) == 2
    done = lab("teardown", discard_work="alice, bob")
    assert done["exit_code"] == 0 and lab.leftovers() == []


def test_saving_leaves_stopped_machines_stopped(lab: Lab, disks: Disks) -> None:
    lab("provision")
    disks.fill()
    lab("stop", limit=["bob"])
    assert sorted(lab("save_work")["saved"]) == ["alice", "bob"]
    assert lab.running() == [lab.ids()["alice"]]


def test_each_student_of_a_shared_machine_is_saved(lab: Lab, disks: Disks) -> None:
    lab.write(["alice", "bob", "carol"], mode="shared")
    lab("provision")
    disks.fill()
    done = lab("teardown", discard_work="")
    assert done["exit_code"] == 0 and disks.lost(lab.folder.path / "out/lab") == []
    names = {p.name for p in (lab.folder.path / "out/lab/work").glob("*.tar.gz")}
    assert names == {"alice.tar.gz", "bob.tar.gz", "carol.tar.gz"}


@pytest.mark.sample(2)
@pytest.mark.parametrize("number", range(50))
def test_fifty_faulted_teardowns_lose_nothing_and_leave_nothing(
    lab: Lab, disks: Disks, number: int
) -> None:
    dice = random.Random(number)
    lab.post("set", regions=["us-east-1", "us-east-2", "us-west-2"])
    lab.write(["alice", "bob", "carol"])
    lab("provision")
    disks.fill(number)
    if dice.random() < 0.3:
        all_stopped(lab.folder, lab.cloud, lab)
    for _ in range(6):
        words = ("", "refused", "cut", "garbled")
        disks.faults(*[w for w in dice.choices(words, k=4) if w])
        kind = dice.choice(({"status": 500}, {"after": True}, {"drop": True}))
        lab.fault(skip=dice.randrange(60), times=2, **kind)
        try:
            done = lab("teardown", discard_work="")
        except ClassroomError as error:
            assert str(error)
        else:
            if done["exit_code"] == 0:
                break
        assert disks.lost(lab.folder.path / "out/lab") == []
    lab.post("clear")
    disks.faults()
    done = lab("teardown", discard_work="")
    assert done["exit_code"] == 0 and lab.leftovers() == []
    assert len(disks.ended()) == 3 and disks.lost(lab.folder.path / "out/lab") == []
