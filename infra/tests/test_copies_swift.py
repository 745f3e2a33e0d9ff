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
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

import swift_server
from classroom.work import copies
from conftest import INFRA
from swift_server import REGION

pytest.importorskip("swift", reason="pip install swift: a real S3-compatible server")
PROGRAM = INFRA / "roles/work_copies/files/trainium-work-copy"
BUCKET = copies.bucket_name("lab", "1")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run Swift; return the address of its S3 API."""
    with swift_server.running(tmp_path_factory.mktemp("swift")) as address:
        yield address


@pytest.fixture()
def environ(server: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the environment in which S3 is Swift, and make it ours."""
    new = {
        "AWS_ENDPOINT_URL": server,
        **swift_server.KEYS,
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
    """Hands out clients, as classroom.aws.cloud.Cloud does."""

    account = "1"

    @staticmethod
    def client(service: str, region: str) -> Any:
        """Return a client."""
        return boto3.client(service, region_name=region)


@pytest.mark.full
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
