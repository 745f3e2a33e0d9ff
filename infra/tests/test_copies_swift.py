"""The data's way of the copies against a real S3-compatible server: OpenStack Swift.

Real there: the protocol, signatures, versions, copies inside of the server, checksums of bodies.
Not there: IAM, encryption by default, lifecycles, tags of buckets; test_copies.py has those from
the fake cloud.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from classroom import copies
from conftest import INFRA

pytest.importorskip("swift", reason="pip install swift: a real S3-compatible server")
PROGRAM = INFRA / "roles/work_copies/files/trainium-work-copy"
BUCKET, REGION = copies.bucket_name("lab", "1"), "us-east-2"
NAMES = ("account", "container", "object", "proxy")
FILTERS = {
    "catch_errors": "",
    "cache": "use = egg:swift#memcache\nmemcache_servers = 127.0.0.1:1",  # none: it goes without
    "s3api": f"location = {REGION}",
    "tempauth": "user_test_tester = testing .admin",
    "slo": "",
    "versioned_writes": "allow_object_versioning = true",
    "symlink": "",
}


def free_ports(n: int) -> list[int]:
    """Return ports of this machine that nobody listens at."""
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def configure(root: Path, ports: dict[str, int]) -> None:
    """Write the settings and the rings of a server of one disk."""
    folder, tool = root / "conf", Path(sys.executable).with_name("swift-ring-builder")
    folder.mkdir(parents=True)
    (root / "srv/d1").mkdir(parents=True)
    (folder / "swift.conf").write_text(
        "[swift-hash]\nswift_hash_path_suffix = s\nswift_hash_path_prefix = p\n"
        "[storage-policy:0]\nname = one\ndefault = yes\n"
    )
    for name in NAMES:
        parts = [
            f"[DEFAULT]\nbind_ip = 127.0.0.1\nbind_port = {ports[name]}\nworkers = 0\n"
            f"user = root\nswift_dir = {folder}\ndevices = {root}/srv\nmount_check = false\n"
        ]
        if name == "proxy":
            parts.append(f"[pipeline:main]\npipeline = {' '.join(FILTERS)} proxy-server\n")
            for f, more in FILTERS.items():
                egg = "" if more.startswith("use =") else f"use = egg:swift#{f}"
                parts.append(f"[filter:{f}]\n{egg}\n{more}\n")
            parts.append("[app:proxy-server]\nuse = egg:swift#proxy\naccount_autocreate = true\n")
        else:
            parts.append(
                f"[pipeline:main]\npipeline = {name}-server\n"
                f"[app:{name}-server]\nuse = egg:swift#{name}\n"
            )
            ring = str(folder / f"{name}.builder")
            for words in (
                ["create", "4", "1", "0"],
                ["add", f"r1z1-127.0.0.1:{ports[name]}/d1", "1"],
                ["rebalance"],
            ):
                subprocess.run([str(tool), ring, *words], capture_output=True, timeout=60)
        (folder / f"{name}.conf").write_text("\n".join(parts))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run Swift; return the address of its S3 API."""
    root = tmp_path_factory.mktemp("swift")
    ports = dict(zip(NAMES, free_ports(4)))
    configure(root, ports)
    running = []
    for name in NAMES:
        program = Path(sys.executable).with_name(f"swift-{name}-server")
        running.append(
            subprocess.Popen(
                [str(program), str(root / f"conf/{name}.conf")],
                stdout=(root / f"{name}.log").open("w"),
                stderr=subprocess.STDOUT,
            )
        )
    end = time.monotonic() + 120
    try:
        for name, port in ports.items():
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    said = (root / f"{name}.log").read_text()[-800:]
                    assert time.monotonic() < end, f"swift-{name} does not answer: {said}"
                    time.sleep(0.2)
        yield f"http://127.0.0.1:{ports['proxy']}"
    finally:
        for process in running:
            process.kill()
            process.wait()


@pytest.fixture()
def environ(server: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the environment in which S3 is Swift, and make it ours."""
    new = {
        "AWS_ENDPOINT_URL": server,
        "AWS_ACCESS_KEY_ID": "test:tester",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for key, value in new.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it keeps the keys of tests before
    return {**os.environ, **new}


class Account:
    """Hands out clients, as classroom.cloud.Cloud does."""

    account = "1"

    @staticmethod
    def client(service: str, region: str) -> Any:
        """Return a client."""
        return boto3.client(service, region_name=region)


def test_versions_come_back_whole_and_the_bucket_is_emptied(
    environ: dict[str, str], tmp_path: Path
) -> None:
    s3 = boto3.client("s3")
    s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
    s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
    place = copies.Folder(Account(), "lab", REGION)  # type: ignore[arg-type]
    prefix, home = "machines/AROA1:i-0123", tmp_path / "home"
    entry = {"students": ["alice"], "machine": "alice", "prefix": prefix}
    s3.put_object(Bucket=BUCKET, Key="owners/i-0123.json", Body=json.dumps(entry).encode())
    settings = {
        "bucket": BUCKET,
        "prefix": prefix,
        "region": REGION,
        "user": "root",
        "student": "alice",
        "home": str(home),
        "state": str(tmp_path / "state.json"),
    }
    (tmp_path / "work.json").write_text(json.dumps(settings))
    environ |= {
        "TRAINIUM_WORK_SETTINGS": str(tmp_path / "work.json"),
        "TRAINIUM_WORK_LOCK": str(tmp_path / "lock"),
    }

    def machine(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, str(PROGRAM), *words],
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    (home / "labs").mkdir(parents=True)
    was: list[bytes] = []
    for _ in range(3):
        was.append(os.urandom(200_000))
        (home / "labs/kernels.py").write_bytes(was[-1])
        machine()
        time.sleep(1.1)  # S3 counts versions by the second
    machine("--last")
    owners = place.owners()
    found = place.versions("alice", owners)
    assert owners == {"i-0123": entry} and len(found) == 3
    shas = [place.fetch(c, tmp_path / f"{k}.tar.gz") for k, c in enumerate(found)]
    assert place.json(f"{prefix}/stopped.json")["sha256"] == shas[0]
    assert len(set(shas)) == 3 and found[0].at > found[2].at
    assert found[0].at - dt.datetime.now(dt.timezone.utc) < dt.timedelta(minutes=1)
    place.hand_over(found[2], prefix, "restored-first")
    assert "restored into" in machine() and "restored" not in machine()
    assert (home / "restored-first/labs/kernels.py").read_bytes() == was[0]
    assert (home / "labs/kernels.py").read_bytes() == was[2]
    digest = hashlib.sha256((tmp_path / "2.tar.gz").read_bytes()).hexdigest()
    assert digest == shas[2]
    copies.empty(Account(), REGION, BUCKET)  # type: ignore[arg-type]
    with pytest.raises(ClientError):
        s3.head_bucket(Bucket=BUCKET)
