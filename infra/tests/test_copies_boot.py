"""Copies of the work on booted hosts: systemd's units against a real S3-compatible server.

Real: the role, systemd with its timers and its order at shutdown, Debian's boto3 with the names,
TLS and signatures of S3 (the host takes Swift for it, by /etc/hosts), credentials from a metadata
service, and hosts that go down. Stand-ins: the metadata service, Swift for S3; IAM is not there.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import ipaddress
import json
import os
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as ser
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import hosts
import swift_server
from classroom.work import copies
from conftest import INFRA
from swift_server import KEYS, REGION
from test_hosts import Setting, changed

pytest.importorskip("swift", reason="pip install swift: a real S3-compatible server")
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(bool(hosts.why_not()), reason=hosts.why_not()),
]
BUCKET, S3 = copies.bucket_name("lab", "1"), f"s3.{REGION}.amazonaws.com"
SERVER, FIRST, SECOND, SPOT = "127.0.78.1", "127.0.78.2", "127.0.78.3", "127.0.78.4"
UNITS = ("trainium-work", "trainium-work-tick", "trainium-work-spot")
DROP_IN = """[Service]
Environment=AWS_CA_BUNDLE=/etc/ssl/test-ca.pem
Environment=AWS_EC2_METADATA_SERVICE_ENDPOINT={metadata}
"""


class Metadata(BaseHTTPRequestHandler):
    """Stands in for the metadata service (IMDSv2): the role's keys; that the machine is taken."""

    taken = threading.Event()
    token = "a-token"

    def do_PUT(self) -> None:
        self.reply(200 if self.path == "/latest/api/token" else 404, self.token)

    def do_GET(self) -> None:
        place = self.path.removeprefix("/latest/meta-data/")
        until = dt.datetime.now(dt.timezone.utc) + dt.timedelta(hours=6)
        keys = {
            "Code": "Success",
            "Type": "AWS-HMAC",
            "Token": "session",
            "AccessKeyId": KEYS["AWS_ACCESS_KEY_ID"],
            "SecretAccessKey": KEYS["AWS_SECRET_ACCESS_KEY"],
            "LastUpdated": f"{until - dt.timedelta(hours=6):%Y-%m-%dT%H:%M:%SZ}",
            "Expiration": f"{until:%Y-%m-%dT%H:%M:%SZ}",
        }
        answers = {
            "iam/security-credentials/": "trainium-labs.lab.machine",
            "iam/security-credentials/trainium-labs.lab.machine": json.dumps(keys),
        }
        if self.taken.is_set():
            answers["spot/instance-action"] = '{"action": "terminate"}'
        known = self.headers.get("X-aws-ec2-metadata-token") == self.token
        self.reply(200 if known and place in answers else 404, answers.get(place, ""))

    def reply(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.send_header("X-aws-ec2-metadata-token-ttl-seconds", "21600")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        return


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for S3's names, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    now = dt.datetime.now(dt.timezone.utc)
    names = [
        x509.DNSName(S3),
        x509.DNSName(f"*.{S3}"),
        x509.IPAddress(ipaddress.ip_address(SERVER)),
    ]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "cert.pem", folder / "key.pem"
    files[0].write_bytes(made.public_bytes(ser.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(ser.Encoding.PEM, ser.PrivateFormat.PKCS8, ser.NoEncryption())
    )
    return files


class Account:
    """Hands out clients, as classroom.aws.cloud.Cloud does."""

    account = "1"

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def client(self, service: str, region: str) -> Any:
        """Return a client of Swift."""
        return boto3.client(
            service,
            region_name=region,
            endpoint_url=self.endpoint,
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
        )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Setting, copies.Folder]]:
    """Prepare the image, run Swift and the metadata service, make the bucket."""
    work = tmp_path_factory.mktemp("copies")
    cert, key = certificate(work)
    metadata = ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    threading.Thread(target=metadata.serve_forever, daemon=True).start()
    setting = Setting(work, hosts.Image(work))
    hosts.write(setting.root / "etc/ssl/test-ca.pem", cert.read_text())
    where = f"http://127.0.0.1:{metadata.server_port}"
    for unit in UNITS:
        drop_in = f"etc/systemd/system/{unit}.service.d/test.conf"
        hosts.write(setting.root / drop_in, DROP_IN.format(metadata=where))
    with swift_server.running(work / "swift", (SERVER, cert, key)) as endpoint:
        account = Account(endpoint)
        s3 = account.client("s3", REGION)
        s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
        yield setting, copies.Folder(account, "lab", REGION)  # type: ignore[arg-type]
        setting.close()
    metadata.shutdown()
    metadata.server_close()


class Machine:
    """Hold a booted host as configure leaves it, as far as its work goes."""

    def __init__(self, place: tuple[Setting, copies.Folder], ip: str, spot: bool = False) -> None:
        self.setting, self.folder, self.ip, self.spot = *place, ip, spot
        self.id = "i-" + hashlib.sha256(ip.encode()).hexdigest()[:17]
        self.prefix = f"machines/AROATEST:{self.id}"  # as enrol writes it
        entry = {"students": ["alice"], "machine": "alice", "prefix": self.prefix}
        self.folder.s3.put_object(
            Bucket=BUCKET, Key=f"owners/{self.id}.json", Body=json.dumps(entry).encode()
        )

    def boot(self) -> hosts.Host:
        """Boot it, and run the roles that have to do with its work."""
        self.setting.close()
        self.setting.boot({self.id: self.ip})
        host = self.setting.hosts[self.id]
        host.ssh(f"echo '{SERVER} {S3} {BUCKET}.{S3}' | sudo tee -a /etc/hosts > /dev/null")
        self.configure()
        return host

    def configure(self) -> dict[str, int]:
        """Run the roles; return how many tasks changed something."""
        roles = [
            {
                "role": "idle_guard",
                "idle_guard_stop_nightly": "23:30",
                "idle_guard_time_zone": "America/New_York",
            },
            {
                "role": "work_copies",
                "work_copies_place": f"s3://{BUCKET}/{self.prefix}",
                "work_copies_region": REGION,
                "work_copies_user": "ubuntu",
                "work_copies_student": "alice",
                "work_copies_spot": self.spot,
            },
        ]
        play = [{"hosts": "all", "become": True, "gather_facts": False, "roles": roles}]
        file = self.setting.work / f"{self.id}.yml"
        file.write_text(yaml.safe_dump(play))
        done = subprocess.run(
            ["ansible-playbook", "-i", f"{self.ip},", "-u", "ubuntu", str(file)],
            cwd=self.setting.work,  # not the settings of this repository: its inventory is a class
            env={
                **os.environ,
                "ANSIBLE_ROLES_PATH": str(INFRA / "roles"),
                "ANSIBLE_PRIVATE_KEY_FILE": str(self.setting.key),
                "ANSIBLE_HOST_KEY_CHECKING": "False",
            },
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return changed(done.stdout)

    def said(self) -> dict[str, Any]:
        """Return the machine's last word."""
        return self.folder.json(f"{self.prefix}/stopped.json")

    def kept(self) -> dict[str, str]:
        """Return name -> checksum of the files in the newest copy, after its own checksum."""
        newest = self.folder.versions("alice", self.folder.owners())[0]
        assert newest.instance == self.id
        path = self.setting.work / f"fetched-{newest.version}"
        path.unlink(missing_ok=True)
        assert self.folder.fetch(newest, path) == self.said().get("sha256", ANY)
        with tarfile.open(fileobj=io.BytesIO(path.read_bytes())) as archive:
            files = {m.name: archive.extractfile(m) for m in archive if m.isfile()}
            return {n: hashlib.sha256(f.read()).hexdigest() for n, f in files.items() if f}


class _Any:
    def __eq__(self, other: object) -> bool:
        return True


ANY = _Any()


def write(host: hosts.Host, name: str) -> str:
    """Write random bytes to a file of the labs; return the checksum of it."""
    host.ssh(f"mkdir -p ~/labs/$(dirname {name}); head -c 300000 /dev/urandom > ~/labs/{name}")
    return host.ssh(f"sha256sum < ~/labs/{name}").split()[0]


def test_a_tick_copies_and_a_shutdown_has_the_last_word_and_a_new_machine_gets_it(
    place: tuple[Setting, copies.Folder],
) -> None:
    machine = Machine(place, FIRST)
    host = machine.boot()
    assert machine.configure() == {FIRST: 0}, "the second time nothing changes"
    units = "trainium-work.service trainium-work-tick.timer"
    assert host.ssh(f"systemctl is-active {units}").split() == ["active"] * 2
    assert host.ssh(f"systemctl is-enabled {units}").split() == ["enabled"] * 2
    wanted = {"labs/vecadd/kernels.py": write(host, "vecadd/kernels.py")}
    host.ssh("sudo systemctl start trainium-work-tick.service")
    assert machine.kept() == wanted and machine.said() == {}
    host.ssh("sudo systemctl start trainium-work-tick.service")
    assert len(machine.folder.versions("alice", machine.folder.owners())) == 1, "nothing changed"
    # What is written in the last moment, by the nightly stop's own unit, is in the bucket.
    wanted["labs/vecadd/kernels.py"] = write(host, "vecadd/kernels.py")
    wanted["labs/new.py"] = write(host, "new.py")
    before = time.time()
    planned = host.ssh(  # from then on no one else logs in
        "sudo systemctl start trainium-night.service; cat /run/systemd/shutdown/scheduled;"
        " sudo systemctl poweroff",  # what it does at its time
        check=False,
    )
    assert "MODE=poweroff" in planned and "stops for the night in 5 minutes" in planned
    assert host.ended(120)
    assert machine.kept() == wanted
    said = machine.said()
    assert said["student"] == "alice"
    assert dt.datetime.fromisoformat(said["at"]).timestamp() > before - 1
    # Its zone is lost: another machine, whose first start brings the work back.
    new = Machine(place, SECOND)
    newest = new.folder.versions("alice", new.folder.owners())[0]
    new.folder.hand_over(newest, new.prefix, "restored-now")
    host = new.boot()
    names = " ".join(wanted)
    sums = dict(reversed(line.split()) for line in host.ssh(f"sha256sum {names}").splitlines())
    assert sums == wanted and host.ssh("stat -c %U labs/new.py") == "ubuntu"
    # Work done there while the network to S3 is away is not lost, and the machine still goes down.
    wanted["labs/later.py"] = write(host, "later.py")
    host.ssh("sudo systemctl start trainium-work-tick.service")
    host.ssh(f"sudo sed -i 's/{SERVER}/127.0.78.9/' /etc/hosts")
    write(host, "unsaved.py")
    host.ssh("sudo systemctl start --no-block trainium-work-tick.service")
    end, journal = time.monotonic() + 120, "sudo journalctl -u trainium-work-tick -o cat"
    while "the work was not copied" not in (log := host.ssh(journal)):
        assert time.monotonic() < end, log
        time.sleep(1)
    host.ssh("sudo systemctl poweroff", check=False)
    assert host.ended(300), "at the latest when systemd gives up"
    assert new.kept() == wanted and new.said() == {}, "no last word: the staff will ask the machine"


def test_a_spot_machine_copies_before_it_is_taken(place: tuple[Setting, copies.Folder]) -> None:
    machine = Machine(place, SPOT, spot=True)
    host = machine.boot()
    assert host.ssh("systemctl is-active trainium-work-spot.service") == "active"
    wanted = {"labs/kernels.py": write(host, "kernels.py")}
    assert machine.said() == {}
    Metadata.taken.set()
    end = time.monotonic() + 90
    while not machine.said() and time.monotonic() < end:
        time.sleep(0.5)
    host.kill()  # AWS waits for no one
    Metadata.taken.clear()
    assert machine.said()["student"] == "alice" and machine.kept() == wanted
