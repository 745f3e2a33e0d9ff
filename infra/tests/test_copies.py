"""Work that outlives disks: what machines copy, who may read it, and what comes back.

Machines' program is the real one, with the permissions that its machine's role has under the strict
fake; the bucket is moto's.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from classroom.aws.problems import BadClass, ClassroomError
from classroom.guards import policies
from classroom.spec import tags
from classroom.work import copies
from classroom.work.archives import WorkNotSaved
from conftest import INFRA, ClassFolder, Classroom, Lab, bounded
from labcloud.client import LabCloud

PROGRAM = INFRA / "roles/work_copies/files/trainium-work-copy"
BUCKET, REGION = "trainium-labs--lab--123456789012", "us-east-2"


class Machine:
    """Hold a student's machine: a home folder, and the program with the machine's permissions."""

    def __init__(self, cloud: LabCloud, folder: Path, student: str) -> None:
        self.cloud, self.student = cloud, student
        found = cloud.machines()
        (machine,) = [r for r in found if r["tags"][tags.OWNER] == student]
        self.id, self.region, self.place = (
            machine["id"],
            machine["region"],
            machine["tags"][tags.COPIES],
        )
        self.root = folder / self.id
        self.home = self.root / "home"
        self.home.mkdir(parents=True)
        bucket, _, self.prefix = self.place.removeprefix("s3://").partition("/")
        settings = {
            "bucket": bucket,
            "prefix": self.prefix,
            "region": REGION,
            "user": "root",
            "student": student,
            "home": str(self.home),
            "state": str(self.root / "state.json"),
        }
        (self.root / "work.json").write_text(json.dumps(settings))
        self.key = f"AKIA{self.id[2:]}"
        self.permit()

    def permit(self) -> None:
        """Give the program what the machine's role may do."""
        iam, role = boto3.client("iam"), "trainium-labs.lab.machine"
        document = iam.get_role_policy(RoleName=role, PolicyName="guard")["PolicyDocument"]
        userid = f"{iam.get_role(RoleName=role)['Role']['RoleId']}:{self.id}"
        self.cloud.post(
            "permit",
            key=self.key,
            policies=[document],
            keys={"aws:userid": userid},
            boundary=policies.boundary(),
        )

    def client(self, service: str) -> Any:
        """Return a client with the machine's permissions."""
        return boto3.client(
            service, REGION, aws_access_key_id=self.key, aws_secret_access_key="fake"
        )

    @property
    def environ(self) -> dict[str, str]:
        """Return the environment of the program."""
        return {
            **os.environ,
            **self.cloud.environ,
            "AWS_ACCESS_KEY_ID": self.key,
            "TRAINIUM_WORK_SETTINGS": str(self.root / "work.json"),
            "TRAINIUM_WORK_LOCK": str(self.root / "lock"),
        }

    def run(self, *words: str, code: int = 0) -> str:
        """Run the program."""
        done = subprocess.run(
            [sys.executable, str(PROGRAM), *words],
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    def write(self, **files: str) -> None:
        """Write files of the lab folder."""
        for name, text in files.items():
            path = self.home / "labs" / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def stop(self, last: bool = True) -> None:
        """Stop as AWS does: the request, then the machine's last word."""
        boto3.client("ec2", self.region).stop_instances(InstanceIds=[self.id])
        if last:
            self.run("--last")
        self.cloud.settle()


def tree(folder: Path) -> dict[str, str]:
    """Return name -> checksum of every file of a lab folder."""
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and ".venv" not in p.parts
    }


def content(archive: Path, into: Path) -> dict[str, str]:
    """Return the same of an archive."""
    with tarfile.open(archive) as t:
        t.extractall(into, filter="data")
    return tree(into / "labs")


@pytest.fixture()
def machines(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom, tmp_path: Path
) -> dict[str, Machine]:
    """Return the machines of alice and bob, with some work on them."""
    folder.write(["alice", "bob"], work_copies="s3")
    assert classroom("provision", folder.file)["exit_code"] == 0
    out = {s: Machine(cloud, tmp_path / "machines", s) for s in ("alice", "bob")}
    for m in out.values():
        m.write(kernels=f"{m.student} wrote this", deep__er="x" * 5000)
        (m.home / "labs/.venv").mkdir()
        (m.home / "labs/.venv/big").write_text("not copied")
    return out


def test_the_bucket_is_closed_versioned_encrypted_and_ends_by_itself(
    lab: Lab, machines: dict[str, Machine]
) -> None:
    s3 = boto3.client("s3", REGION)
    assert s3.get_bucket_versioning(Bucket=BUCKET)["Status"] == "Enabled"
    closed = s3.get_public_access_block(Bucket=BUCKET)["PublicAccessBlockConfiguration"]
    assert all(closed.values()) and len(closed) == 4
    (rule,) = s3.get_bucket_encryption(Bucket=BUCKET)["ServerSideEncryptionConfiguration"]["Rules"]
    assert rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    rules = s3.get_bucket_lifecycle_configuration(Bucket=BUCKET)["Rules"]
    assert rules[0]["NoncurrentVersionExpiration"]["NoncurrentDays"] == 30
    assert str(rules[1]["Expiration"]["Date"])[:10] == "2027-02-14"
    assert lab("provision")["changed"] is False
    s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Suspended"})
    assert lab("provision")["changed"] is True
    assert s3.get_bucket_versioning(Bucket=BUCKET)["Status"] == "Enabled"
    lab.write(teardown="2027-01-20")
    lab("extend")
    rules = s3.get_bucket_lifecycle_configuration(Bucket=BUCKET)["Rules"]
    assert str(rules[1]["Expiration"]["Date"])[:10] == "2027-02-19"


def test_a_machine_reaches_its_own_prefix_and_deletes_nothing(
    machines: dict[str, Machine],
) -> None:
    alice, bob = machines["alice"], machines["bob"]
    for m in machines.values():
        m.run()
    s3 = alice.client("s3")
    own, others = f"{alice.prefix}/alice.tar.gz", f"{bob.prefix}/bob.tar.gz"
    assert s3.get_object(Bucket=BUCKET, Key=own)["ServerSideEncryption"] == "AES256"
    for call, more in (
        (s3.get_object, {"Key": others}),
        (s3.put_object, {"Key": others, "Body": b"x"}),
        (s3.put_object, {"Key": f"owners/{bob.id}.json", "Body": b"{}"}),
        (s3.put_object, {"Key": f"{bob.prefix}/incoming/bob.tar.gz", "Body": b"x"}),
        (s3.get_object, {"Key": f"owners/{bob.id}.json"}),
        (
            s3.copy_object,
            {"Key": f"{alice.prefix}/stolen", "CopySource": {"Bucket": BUCKET, "Key": others}},
        ),
        (s3.delete_object, {"Key": own}),
        (s3.list_objects_v2, {}),
        (s3.list_object_versions, {}),
        (s3.put_bucket_versioning, {"VersioningConfiguration": {"Status": "Suspended"}}),
        (s3.delete_bucket, {}),
    ):
        with pytest.raises(ClientError, match="AccessDenied"):
            call(Bucket=BUCKET, **more)
    with pytest.raises(ClientError, match="UnauthorizedOperation"):
        alice.client("ec2").describe_instances()


def test_what_did_not_change_is_not_sent_again_and_former_versions_stay(
    machines: dict[str, Machine], cloud: LabCloud
) -> None:
    alice = machines["alice"]

    def sent() -> int:
        keys = [str(c["params"].get("Key")) for c in cloud.log() if c["op"] == "PutObject"]
        return sum(k.endswith("alice.tar.gz") for k in keys)

    for expected in (1, 1):
        alice.run()
        assert sent() == expected
    os.utime(alice.home / "labs/kernels")
    alice.run()
    for n, text in enumerate(("second", "third")):
        alice.write(kernels=text)
        alice.run()
        assert sent() >= n + 2
    place = copies.Folder(_cloud(), "lab", REGION)
    found = place.versions("alice", place.owners())
    assert len(found) >= 3 and found == sorted(found, key=lambda c: c.at, reverse=True)


def _cloud() -> Any:
    from classroom.aws.cloud import Cloud

    return Cloud()


def test_the_staff_restore_what_was_on_a_day_and_it_comes_beside_todays(
    lab: Lab, machines: dict[str, Machine], tmp_path: Path
) -> None:
    alice = machines["alice"]
    alice.run()
    was = tree(alice.home / "labs")
    lab.post("advance", seconds=2 * 24 * 3600)
    alice.write(kernels="a mistake")
    (alice.home / "labs/deep/er").unlink()
    alice.run()
    now = tree(alice.home / "labs")
    done = lab("restore", limit=["alice"], as_of="2026-11-21")
    assert done["restored"] == ["alice"] and done["exit_code"] == 0
    (fetched,) = (lab.folder.path / "out/lab/restored").iterdir()
    assert content(fetched, tmp_path / "a") == was
    assert "restored into" in alice.run() and "restored" not in alice.run(), "once"
    (beside,) = [p for p in alice.home.iterdir() if p.name.startswith("restored-2026-11-21")]
    assert tree(beside / "labs") == was and tree(alice.home / "labs") == now
    early = lab("restore", limit=["alice"], as_of="2026-11-20")
    assert early["exit_code"] == 1 and "no copy from before 2026-11-21" in early["lines"][0]
    with pytest.raises(ClassroomError, match="is no date"):
        lab("restore", as_of="yesterday")


def test_work_of_a_spot_machine_that_ended_comes_with_the_next(
    lab: Lab, machines: dict[str, Machine], tmp_path: Path
) -> None:
    alice = machines["alice"]
    alice.run()
    was = tree(alice.home / "labs")
    boto3.client("ec2", alice.region).terminate_instances(InstanceIds=[alice.id])
    lab.post("advance", seconds=300)
    assert "alice: the copy of 2026-11-" in str(lab("provision")["lines"])
    new = Machine(lab.cloud, tmp_path / "machines", "alice")
    assert new.id != alice.id
    new.run()
    assert tree(new.home / "labs") == was, "as ~/labs, for there is none"
    assert lab("provision")["changed"] is False


class Metadata(BaseHTTPRequestHandler):
    """Stands in for a spot machine's metadata service: the announcement is there when told."""

    taken = threading.Event()

    def do_PUT(self) -> None:
        self.reply(200, b"token")

    def do_GET(self) -> None:
        known = self.headers.get("X-aws-ec2-metadata-token") == "token"
        ok = known and self.taken.is_set() and self.path.endswith("/spot/instance-action")
        self.reply(200 if ok else 404, b'{"action": "terminate"}')

    def reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        return


def test_a_spot_machine_copies_when_aws_announces_that_it_takes_it(
    machines: dict[str, Machine],
) -> None:
    alice = machines["alice"]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environ = {
        **alice.environ,
        "TRAINIUM_WATCH_SECONDS": "0.1",
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
    }
    watch = subprocess.Popen([sys.executable, str(PROGRAM), "--watch"], env=environ)
    with pytest.raises(subprocess.TimeoutExpired):
        watch.wait(2)
    Metadata.taken.set()
    assert watch.wait(60) == 0
    server.shutdown()
    place = copies.Folder(_cloud(), "lab", REGION)
    assert len(place.versions("alice", place.owners())) == 1
    assert place.json(f"{alice.prefix}/stopped.json")["sha256"]


def full(cloud: LabCloud, m: Machine) -> None:
    """Let the zone of a machine be full, for starts and for launches."""
    raw = boto3.client("ec2", m.region).describe_instances(InstanceIds=[m.id])
    subnet = raw["Reservations"][0]["Instances"][0]["SubnetId"]
    code = {"code": "InsufficientInstanceCapacity", "status": 500}
    cloud.fault("StartInstances", times=9, **code)
    cloud.fault("RunInstances", times=9, match={"NetworkInterface.1.SubnetId": subnet}, **code)


def test_where_a_zone_is_full_the_work_moves_to_another(
    lab: Lab, machines: dict[str, Machine], tmp_path: Path
) -> None:
    alice, bob = machines["alice"], machines["bob"]
    alice.stop()
    was = tree(alice.home / "labs")
    bob.run()
    bob.stop(last=False)  # it crashed: no one knows what it did after its last copy
    full(lab.cloud, alice)
    answer = lab("start")
    assert answer["exit_code"] == 1 and "no free machine" in " ".join(answer["lines"])
    lab.post("clear")
    full(lab.cloud, alice)
    done = lab("start", elsewhere=True)
    lines = " ".join(done["lines"])
    assert "alice has a new machine in" in lines and "bob stays where it is" in lines
    ec2 = boto3.client("ec2", bob.region)
    assert (
        ec2.describe_instances(InstanceIds=[bob.id])["Reservations"][0]["Instances"][0]["State"][
            "Name"
        ]
        == "stopped"
    )
    lab.settle()
    new = Machine(lab.cloud, tmp_path / "machines", "alice")
    new.run()
    assert new.id != alice.id and tree(new.home / "labs") == was


def test_without_copies_no_one_is_moved(lab: Lab) -> None:
    lab("provision")
    lab("stop")
    lab.fault("StartInstances", code="InsufficientInstanceCapacity", status=500, times=9)
    with pytest.raises(ClassroomError, match="would come without the work"):
        lab("start", elsewhere=True)
    assert len(lab.machines()) == 2


def test_a_teardown_fetches_last_words_without_starting_and_what_former_machines_left(
    lab: Lab, machines: dict[str, Machine], tmp_path: Path
) -> None:
    alice, bob = machines["alice"], machines["bob"]
    alice.stop()
    bob.run()
    was = {m.student: tree(m.home / "labs") for m in machines.values()}
    boto3.client("ec2", bob.region).terminate_instances(InstanceIds=[bob.id])  # taken
    lab.post("advance", seconds=300)
    mark = len(lab.log())
    done = lab("teardown", discard_work="")
    assert done["exit_code"] == 0 and lab.leftovers() == []
    assert "StartInstances" not in [c["op"] for c in lab.log(mark)]
    work = lab.folder.path / "out/lab/work"
    for student, files in was.items():
        assert content(work / f"{student}.tar.gz", tmp_path / student) == files


def test_the_staff_may_keep_the_copies(lab: Lab, machines: dict[str, Machine]) -> None:
    machines["alice"].run()
    done = lab("teardown", keep_copies=True)
    assert done["exit_code"] == 0 and f"kept as you asked: bucket {BUCKET}" in done["summary"]
    assert [r["kind"] for r in lab.leftovers()] == ["bucket"]
    assert lab("teardown")["exit_code"] == 0
    assert lab.leftovers() == []


def test_a_damaged_copy_keeps_the_bucket_and_a_false_last_word_proves_nothing(
    lab: Lab, machines: dict[str, Machine]
) -> None:
    alice, bob = machines["alice"], machines["bob"]
    bob.run()
    s3 = boto3.client("s3", REGION)
    s3.put_object(
        Bucket=BUCKET,
        Key=f"{bob.prefix}/bob.tar.gz",
        Body=b"rubbish",
        Metadata={"sha256": "0" * 64},
    )
    boto3.client("ec2", bob.region).terminate_instances(InstanceIds=[bob.id])
    lab.post("advance", seconds=300)
    with pytest.raises(WorkNotSaved, match="bob"):
        lab("teardown", discard_work="alice")
    assert BUCKET in [r["id"] for r in lab.leftovers()]
    # alice's machine says that it has copied something that it has not
    alice.run()
    alice.stop(last=False)
    word = {"sha256": "1" * 64, "student": "alice", "at": "2030-01-01"}
    s3.put_object(Bucket=BUCKET, Key=f"{alice.prefix}/stopped.json", Body=json.dumps(word))
    place, found = copies.Folder(_cloud(), "lab", REGION), _machine(alice)
    from classroom.work.archives import Shelf

    assert (
        copies.shelve(place, Shelf(lab.folder.path / "out/lab/work"), found, place.owners()) is None
    )


def _machine(m: Machine) -> Any:
    from classroom.fleet import inventory

    raw = boto3.client("ec2", m.region).describe_instances(InstanceIds=[m.id])
    return inventory.machine(raw["Reservations"][0]["Instances"][0], m.region)


def test_a_last_word_from_before_the_last_start_is_none(
    lab: Lab, machines: dict[str, Machine]
) -> None:
    alice = machines["alice"]
    alice.stop()
    place = copies.Folder(_cloud(), "lab", REGION)
    assert copies.last_word(place, _machine(alice), place.owners())
    lab.post("advance", seconds=3600)
    lab("start", limit=["alice"])
    alice.write(kernels="written after it")
    alice.stop(last=False)
    assert copies.last_word(place, _machine(alice), place.owners()) is None


def test_a_link_in_the_folder_is_copied_as_a_link(machines: dict[str, Machine]) -> None:
    alice = machines["alice"]
    (alice.home / "labs/shadow").symlink_to("/etc/shadow")
    (alice.home / "labs/root").symlink_to("/root")
    alice.run()
    place = copies.Folder(_cloud(), "lab", REGION)
    (found,) = place.versions("alice", place.owners())
    path = alice.root / "fetched.tar.gz"
    place.fetch(found, path)
    with tarfile.open(path) as t:
        names = {m.name: m for m in t.getmembers()}
    assert names["labs/shadow"].issym() and names["labs/root"].issym()
    assert not any(n.startswith("labs/root/") for n in names)


def test_who_has_the_printed_policies_can_do_all_of_it(lab: Lab, tmp_path: Path) -> None:
    bounded(lab.cloud)
    lab.write(["alice"], work_copies="s3")
    assert lab("provision")["exit_code"] == 0
    alice = Machine(lab.cloud, tmp_path / "machines", "alice")
    alice.write(kernels="x")
    alice.run()
    assert lab("restore")["restored"] == ["alice"]
    lab.write(work_copies="")
    lab("provision")
    assert (
        boto3.client("iam").list_role_policies(RoleName="trainium-labs.lab.machine")["PolicyNames"]
        == []
    ), "machines hold no permission any more"
    lab("teardown")
    assert lab.leftovers() == []


def test_a_shared_class_keeps_no_copies(lab: Lab) -> None:
    lab.write(work_copies="s3", mode="shared")
    with pytest.raises(BadClass, match="read the others' copies"):
        lab("check")
