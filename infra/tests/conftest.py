"""Shared parts of the tests: a fake cloud, and classes written to a temporary folder."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import signal
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import yaml

INFRA = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(INFRA), str(INFRA / "tests")]

from cryptography.hazmat.primitives import serialization as ser  # noqa: E402
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: E402

from labcloud.client import LabCloud  # noqa: E402

# A shell's background jobs ignore Ctrl-C, and so would the programs that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# no limits of real time: workers share the cores with each other and with booted hosts
hypothesis.settings.register_profile("infra", deadline=None)
hypothesis.settings.load_profile("infra")

# files that take minutes, the longest first
LONG = (
    *("hosts", "playbooks", "copies", "every_call", "ledger", "hosts_keys", "docs", "remote_host"),
    *("cloud", "teardown", "ends", "my_ssh", "shared", "links_day", "rates", "kill", "faults"),
    *("printed_policy", "days", "secondcloud", "transcripts", "ansible_parts"),
)
LONGEST = {f"test_{name}": place for place, name in enumerate(LONG)}


def pytest_configure(config: pytest.Config) -> None:
    """Let all be at one time, and find the programs of this environment, without colors."""
    os.environ["CLASSROOM_NOW"] = START + "+00:00"
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    os.environ["ANSIBLE_NOCOLOR"] = "1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files, so that workers end at about the same time."""
    items.sort(key=lambda item: LONGEST.get(item.path.stem, len(LONGEST)))


def public_key(number: int) -> str:
    """Return a valid ed25519 public key; the same number gives the same key."""
    key = Ed25519PrivateKey.from_private_bytes(number.to_bytes(32, "big")).public_key()
    return key.public_bytes(ser.Encoding.OpenSSH, ser.PublicFormat.OpenSSH).decode()


class ClassFolder:
    """Hold a class.yml and a roster that a test can change."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "staff.pub").write_text(public_key(1) + " staff@laptop\n")
        self.data: dict[str, Any] = {
            "name": "lab",
            "contact": "staff@example.edu",
            "regions": ["us-east-2", "us-west-2"],
            "instance_type": "trn1.2xlarge",
            "sdk": "2.26.1",
            "ssh_cidrs": ["203.0.113.0/24"],
            "staff_key": "staff.pub",
            "budget": {"per_student_usd": 50, "class_usd": 100},
            "stop_nightly": "23:30",
            "time_zone": "America/New_York",
            "teardown": "2027-01-15",
            "lab": {"repository": "https://github.com/example/labs.git", "commit": "0" * 40},
        }
        self.students: list[str] = []
        self.sections: dict[str, str] = {}
        self.keys: dict[str, str] = {}  # student -> public key other than the usual one; "": none

    def write(self, students: int | list[str] | None = None, **changes: Any) -> Path:
        """Write both files; `students` is a number or the ids; changes are keys of class.yml."""
        if students is not None:
            self.students = (
                [f"s{i:03d}" for i in range(students)]
                if isinstance(students, int)
                else list(students)
            )
            self.data["budget"] = {
                "per_student_usd": 50,
                "class_usd": 50 * max(1, len(self.students)),
            }
        self.data.update(changes)
        self.data = {k: v for k, v in self.data.items() if v is not None}
        usual = {
            s: public_key(1000 + int.from_bytes(s.encode()[-4:], "big")) for s in self.students
        }
        rows = [f"{s},{s}@example.edu,{self.keys.get(s, usual[s])}" for s in self.students]
        head = "student,email,public_key"
        if self.sections:
            head += ",section"
            rows = [f"{r},{self.sections.get(s, '')}" for r, s in zip(rows, self.students)]
        (self.path / "roster.csv").write_text("\n".join([head, *rows]) + "\n")
        (self.path / "class.yml").write_text(yaml.safe_dump(self.data, sort_keys=False))
        return self.path / "class.yml"

    def staff(self, *rows: str) -> None:
        """Write staff.csv: email, role, section, public_key."""
        text = "\n".join(["email,role,section,public_key", *rows])
        (self.path / "staff.csv").write_text(text + "\n")

    @property
    def file(self) -> Path:
        """Return the path of class.yml."""
        return self.path / "class.yml"


@pytest.fixture()
def folder(tmp_path: Path) -> ClassFolder:
    """Return a class of two in a temporary folder, written."""
    made = ClassFolder(tmp_path)
    made.write(["alice", "bob"])
    return made


Classroom = Callable[..., dict[str, Any]]
START = "2026-11-21T12:00:00"
#: students of a class that tests bring up whole: a small one always, large ones with --full
CLASSES = [12, *(pytest.param(n, marks=pytest.mark.full) for n in (100, 300))]


def to_the_real_time(cloud: LabCloud, folder: ClassFolder) -> None:
    """Start the fake cloud over at the time of the day, for a class that ends in eight weeks: the
    clocks of real hosts know no other."""
    now = dt.datetime.now(dt.timezone.utc)
    cloud.post("reset", at=now.strftime("%Y-%m-%dT%H:%M:%S"))
    folder.data["teardown"] = (now + dt.timedelta(weeks=8)).date().isoformat()


@pytest.fixture(scope="session")
def server() -> Iterator[LabCloud]:
    """Run one fake cloud for all tests; each starts it over."""
    with LabCloud(START) as lab:
        yield lab


def talk_to(server: LabCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty a fake cloud, and let boto3 in this process talk to it and wait in its time."""
    from botocore.retries.standard import ExponentialBackoff

    from classroom.aws import rate_limit

    def sleep(seconds: float) -> None:
        server.post("until", at=server.post("now")["at"] + seconds)

    monkeypatch.setattr(rate_limit, "sleep", sleep)
    monkeypatch.setattr(rate_limit, "clock", lambda: server.post("now")["at"])

    server.post("reset", at=START)
    for key, value in server.environ.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("CLASSROOM_NOW", START + "+00:00")
    monkeypatch.setenv("CLASSROOM_ATTEMPTS", "2")

    def delay(self: ExponentialBackoff, context: Any) -> float:
        sleep(min(2.0 ** (context.attempt_number - 1), 20) / 2)
        return 0.0

    monkeypatch.setattr(ExponentialBackoff, "delay_amount", delay)


@pytest.fixture()
def cloud(server: LabCloud, monkeypatch: pytest.MonkeyPatch) -> LabCloud:
    """Return an empty fake cloud; boto3 in this process talks to it, and waits in its time."""
    talk_to(server, monkeypatch)
    return server


@contextmanager
def at_odds(cloud: LabCloud, seed: int) -> Iterator[dt.timedelta]:
    """Let listings of machines be late, by less than the 90 seconds that provision waits for them;
    yield how far this computer's clock is off, by less than what is refused."""
    chance = random.Random(seed)
    late = chance.uniform(0, 85)
    former = cloud.post("set", machines_late_seconds=late)
    if former["machines_late_seconds"]:
        cloud.post("set", **former)  # the test has its own
    try:
        yield dt.timedelta(seconds=chance.uniform(-50, 50))
    finally:
        cloud.post("set", **former)


def commands_at(
    cloud: LabCloud, monkeypatch: pytest.MonkeyPatch, seed: int | None = None
) -> Classroom:
    """Return a function that runs a command at a fake cloud's time; with a seed, each provision
    while clock and listings are at odds.

    Machines of the fake hold no work, so it is given up unless a test says otherwise.
    """
    from classroom.aws.cloud import Cloud
    from classroom.cli import commands

    def shared() -> Cloud:
        if not hasattr(cloud, "cached"):
            cloud.cached = Cloud()  # type: ignore[attr-defined]
        vars(cloud.cached).pop("_account", None)  # each command asks who it is, and what time
        return cloud.cached  # type: ignore[attr-defined]

    def call(command: str, file: Path, fresh: bool = False, **options: Any) -> dict[str, Any]:
        now = dt.datetime.fromisoformat(cloud.post("now")["now"])
        if command in ("teardown", "provision"):
            options.setdefault("discard_work", options.get("name") or "lab")
        monkeypatch.setattr(
            commands, "Cloud", Cloud if fresh else shared
        )  # making clients takes longer than the calls
        odds = seed is not None and command == "provision"
        try:
            with at_odds(cloud, seed or 0) if odds else nullcontext(dt.timedelta()) as off:
                monkeypatch.setenv("CLASSROOM_NOW", (now + off).isoformat())
                return commands.run(command, str(file), **options)
        finally:
            cloud.settle()

    return call


@pytest.fixture()
def classroom(
    cloud: LabCloud, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Classroom:
    """Return a function that runs a command in the fake cloud."""
    full = request.config.getoption("--full")
    return commands_at(cloud, monkeypatch, zlib.crc32(request.node.name.encode()) if full else None)


class Lab:
    """Hold a class of two that is written and not brought up, and its fake cloud; a call runs a
    command on it."""

    def __init__(self, folder: ClassFolder, cloud: LabCloud, classroom: Classroom) -> None:
        self.folder, self.cloud, self.classroom = folder, cloud, classroom
        self.write, self.post, self.fault = folder.write, cloud.post, cloud.fault
        self.log, self.writes, self.settle = cloud.log, cloud.writes, cloud.settle
        self.leftovers, self.running, self.machines = cloud.leftovers, cloud.running, cloud.machines
        self.ids, self.kinds, self.busy = cloud.ids, cloud.kinds, cloud.busy

    def __call__(self, command: str, file: Path | None = None, **options: Any) -> dict[str, Any]:
        """Run a command, on this class unless another file is named."""
        return self.classroom(command, file or self.folder.file, **options)


@pytest.fixture()
def lab(folder: ClassFolder, cloud: LabCloud, classroom: Classroom) -> Lab:
    """Return a class of two in the fake cloud."""
    return Lab(folder, cloud, classroom)


@pytest.fixture()
def made(lab: Lab) -> Iterator[Any]:
    """Return a class of two, alice and bob, with links, whose machines are stopped."""
    from link_class import Class

    lab.write(["alice", "bob"], my="lambda")
    made = Class(lab.folder, lab.cloud, lab)
    lab("stop")
    with made.server:
        yield made


def bounded(cloud: LabCloud, rules: dict[str, Any] | None = None, **more: Any) -> None:
    """Give the caller a policy, by default the printed one, in an account whose owner has made the
    boundary."""
    import boto3

    from classroom.guards import policies

    text = json.dumps(policies.boundary())
    boto3.client("iam").create_policy(PolicyName=policies.BOUNDARY, PolicyDocument=text)
    callers = {"AKIAFAKE": {"policies": [rules or policies.policy()]}}
    cloud.post("set", callers=callers, **more)
