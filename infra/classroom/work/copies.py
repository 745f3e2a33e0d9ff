"""Copies of the students' work in a bucket, which outlive disks, machines and zones.

`work_copies: s3` in class.yml asks for it. One bucket a class: versioned, encrypted, closed to the
public, emptied by itself some weeks after the class. Machines copy by themselves (role
`work_copies`). IAM can tell machines apart, not students: a session of the machines' role carries
`aws:userid` = role id:instance id (documented: IAM user guide, "IAM policy elements:
Variables"), so each machine writes and reads below `machines/<role id>:<instance id>/` only. Whose
machine that was stands in `owners/<instance id>.json`, which only staff can write.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import botocore.exceptions as be

from ..aws.cloud import Cloud, aware, code_of, doing, each
from ..aws.problems import ClassroomError
from ..fleet.inventory import Machine
from ..guards import roles
from ..spec import tags
from ..spec.run import Run
from .archives import Archive, Shelf, stopped_at

KEEP_VERSIONS_DAYS, KEEP_AFTER_DAYS = 30, 30
CHUNK = 1 << 20
MISSING = ("NoSuchKey", "404", "NoSuchBucket", "NoSuchVersion")


@dataclass(frozen=True)
class Copy:
    """Hold one version of a student's work: which machine's, where, when, and its checksum."""

    student: str
    instance: str
    key: str
    version: str
    at: dt.datetime
    size: int


def bucket_name(name: str, account: str) -> str:
    """Return the name of a class's bucket: names are the world's, so the account is in it."""
    return f"trainium-labs--{name}--{account}"


class Folder:
    """Hold a class's bucket."""

    def __init__(self, cloud: Cloud, name: str, region: str) -> None:
        self.s3, self.account = cloud.client("s3", region), cloud.account
        self.bucket, self.region = bucket_name(name, cloud.account), region
        self.own: dict[str, str] = {"Bucket": self.bucket, "ExpectedBucketOwner": self.account}

    def json(self, key: str) -> dict[str, Any]:
        """Return an object that holds JSON, or {}."""
        try:
            return json.loads(self.s3.get_object(**self.own, Key=key)["Body"].read())
        except be.ClientError as error:
            if code_of(error) in MISSING:
                return {}
            raise
        except ValueError:
            return {}

    def owners(self) -> dict[str, dict[str, Any]]:
        """Return instance id -> {"students", "prefix", ...} of every machine that ever copied."""
        keys = [
            o["Key"]
            for page in self.s3.get_paginator("list_objects_v2").paginate(
                **self.own, Prefix="owners/"
            )
            for o in page.get("Contents", [])
        ]
        answers = each(self.json, keys)
        for _, _, error in answers:
            if error:
                raise error
        return {k.split("/")[1].removesuffix(".json"): v for k, v, _ in answers if v}

    def versions(self, student: str, owners: dict[str, dict[str, Any]]) -> list[Copy]:
        """Return every copy of a student's work, the newest first."""
        out = []
        for iid, entry in owners.items():
            if student not in entry["students"]:
                continue
            key = f"{entry['prefix']}/{student}.tar.gz"
            for page in self.s3.get_paginator("list_object_versions").paginate(
                **self.own, Prefix=key
            ):
                for v in page.get("Versions", []):
                    if v["Key"] == key:
                        at = aware(v["LastModified"])
                        out.append(Copy(student, iid, key, v["VersionId"], at, v["Size"]))
        return sorted(out, key=lambda c: c.at, reverse=True)

    def fetch(self, copy: Copy, path: Path) -> str:
        """Write a copy to a file and return its checksum; raise if it is not what was packed."""
        answer = self.s3.get_object(**self.own, Key=copy.key, VersionId=copy.version)
        digest, part = hashlib.sha256(), path.with_name(f".{path.name}.part")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("wb") as out:
                for piece in answer["Body"].iter_chunks(CHUNK):
                    digest.update(piece)
                    out.write(piece)
            if digest.hexdigest() != answer["Metadata"].get("sha256"):
                raise ClassroomError(
                    f"The copy of {copy.student}'s work of {copy.at:%Y-%m-%d %H:%M} is damaged.",
                    "Take an older one: restore --as-of.",
                    exit_code=1,
                )
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        return digest.hexdigest()

    def hand_over(self, copy: Copy, prefix: str, name: str) -> None:
        """Put a copy where a machine brings it back from, inside of S3."""
        meta = self.s3.head_object(**self.own, Key=copy.key, VersionId=copy.version)["Metadata"]
        self.s3.copy_object(
            **self.own,
            Key=f"{prefix}/incoming/{copy.student}.tar.gz",
            CopySource={"Bucket": self.bucket, "Key": copy.key, "VersionId": copy.version},
            ExpectedSourceBucketOwner=self.account,
            Metadata={"sha256": meta.get("sha256", ""), "name": name},
            MetadataDirective="REPLACE",
        )


def folder(run: Run) -> Folder | None:
    """Return the class's bucket, or None where the class has none."""
    if run.spec.work_copies != "s3":
        return None
    return Folder(run.cloud, run.spec.name, run.spec.regions[0])


# ---- the bucket ----


def lifecycle(run: Run) -> dict[str, Any]:
    """Return when copies end: former versions after a month, all of it a month after the class."""
    end = run.spec.teardown_at + dt.timedelta(days=KEEP_AFTER_DAYS)
    midnight = dt.datetime.combine(end.date(), dt.time(), dt.timezone.utc)
    return {
        "Rules": [
            {
                "ID": "former versions",
                "Status": "Enabled",
                "Filter": {"Prefix": ""},
                "NoncurrentVersionExpiration": {"NoncurrentDays": KEEP_VERSIONS_DAYS},
                "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
            },
            {
                "ID": "after the class",
                "Status": "Enabled",
                "Filter": {"Prefix": ""},
                "Expiration": {"Date": midnight},
            },
        ]
    }


def bucket_policy(name: str) -> dict[str, Any]:
    """Return the bucket's own policy: it refuses requests without TLS."""
    arn = f"arn:aws:s3:::{name}"
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "tls",
                "Effect": "Deny",
                "Principal": "*",
                "Action": "s3:*",
                "Resource": [arn, f"{arn}/*"],
                "Condition": {"Bool": {"aws:SecureTransport": "false"}},
            }
        ],
    }


def ensure(run: Run) -> None:
    """Make the bucket as it should be, if the class asks for one. One whose settings differ is set
    again; what they should be is a tag of it."""
    place = folder(run)
    if place is None:
        return
    s3, owned = place.s3, place.own
    wanted = [lifecycle(run), bucket_policy(place.bucket)]
    digest = hashlib.sha256(json.dumps(wanted, default=str, sort_keys=True).encode()).hexdigest()
    label = {**tags.common(run.spec), tags.SETTINGS: digest[:32]}
    with doing(f"look at the bucket {place.bucket}", place.region):
        try:
            have = tags.as_dict(s3.get_bucket_tagging(**owned)["TagSet"])
            versioned = s3.get_bucket_versioning(**owned).get("Status") == "Enabled"
        except be.ClientError as error:
            if code_of(error) not in (*MISSING, "NoSuchTagSet"):
                raise
            have, versioned = {}, False
            if code_of(error) == "NoSuchBucket":
                have = {"": "missing"}
        if have.get(tags.CLASS, run.spec.name) != run.spec.name:
            raise ClassroomError(f"The bucket {place.bucket} is another class's.", "Rename one.")
    if have == label and versioned:
        return

    def make() -> None:
        if have.get("") == "missing":
            where: dict[str, Any] = {}
            if place.region != "us-east-1":
                where = {"CreateBucketConfiguration": {"LocationConstraint": place.region}}
            try:
                s3.create_bucket(Bucket=place.bucket, **where)
            except be.ClientError as error:
                if code_of(error) != "BucketAlreadyOwnedByYou":
                    raise
        # our tag first: a bucket without it would never be found
        labels = {k: v for k, v in label.items() if k != tags.SETTINGS}
        s3.put_bucket_tagging(**owned, Tagging={"TagSet": tags.as_list(labels)})
        s3.put_public_access_block(
            **owned,
            PublicAccessBlockConfiguration={
                "BlockPublicAcls": True,
                "IgnorePublicAcls": True,
                "BlockPublicPolicy": True,
                "RestrictPublicBuckets": True,
            },
        )
        s3.put_bucket_versioning(**owned, VersioningConfiguration={"Status": "Enabled"})
        rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
        s3.put_bucket_encryption(**owned, ServerSideEncryptionConfiguration={"Rules": [rule]})
        s3.put_bucket_policy(**owned, Policy=json.dumps(bucket_policy(place.bucket)))
        s3.put_bucket_lifecycle_configuration(**owned, LifecycleConfiguration=lifecycle(run))
        s3.put_bucket_tagging(**owned, Tagging={"TagSet": tags.as_list(label)})

    with doing(f"make the bucket {place.bucket}", place.region):
        run.do(f"{place.region}: set up the bucket {place.bucket}", make)


def enrol(run: Run, machines: list[Machine], fresh: Collection[str] = ()) -> dict[str, dt.datetime]:
    """Tell machines where they may write, and write down whose they are. A machine that is new
    (`fresh`: names) is given its student's last copy. Return student -> its time."""
    place, given = folder(run), {}
    if place is None or not machines or run.check:
        return {}
    with doing("enrol machines for copies", place.region):
        role = run.cloud.client("iam").get_role(RoleName=roles.machine_role(run))["Role"]
        owners = place.owners()

        def one(m: Machine) -> None:
            prefix = f"machines/{role['RoleId']}:{m.id}"
            entry = {"students": m.students, "machine": m.name, "prefix": prefix}
            if owners.get(m.id) != entry:
                place.s3.put_object(
                    **place.own, Key=f"owners/{m.id}.json", Body=json.dumps(entry).encode()
                )
            if m.tags.get(tags.COPIES) != f"s3://{place.bucket}/{prefix}":
                value = {tags.COPIES: f"s3://{place.bucket}/{prefix}"}
                run.cloud.ec2(m.region).create_tags(Resources=[m.id], Tags=tags.as_list(value))
                m.tags.update(value)
            if m.name in fresh:
                former = {i: o for i, o in owners.items() if i != m.id}
                for student in m.students:
                    versions = place.versions(student, former)
                    if versions:
                        place.hand_over(versions[0], prefix, f"restored-{versions[0].at:%Y-%m-%d}")
                        given[student] = versions[0].at

        for m, _, error in each(one, [m for m in machines if m.id]):
            if error:
                run.warn(f"{m.name} was not told where to copy its work: {error}")
    return given


# ---- what copies are for ----


def last_word(place: Folder, m: Machine, owners: dict[str, dict[str, Any]]) -> Archive | None:
    """Return what a stopped machine said when it went down, if that is all it ever did since: then
    its work is safe without starting it again."""
    entry, ended = owners.get(m.id), stopped_at(m)
    if m.state != "stopped" or ended is None or entry is None or len(m.students) != 1:
        return None
    stopped = place.json(f"{entry['prefix']}/stopped.json")
    if not stopped.get("sha256") or stopped.get("student") != m.students[0]:
        return None
    marker = place.s3.head_object(**place.own, Key=f"{entry['prefix']}/stopped.json")
    at = aware(marker["LastModified"])  # by S3's clock: the machine's own is the student's
    if at < ended:
        return None
    return Archive(m.id, m.students[0], "", 0, stopped["sha256"], at.isoformat())


def shelve(
    place: Folder, shelf: Shelf, m: Machine, owners: dict[str, dict[str, Any]]
) -> Archive | None:
    """Fetch the last word of a stopped machine into the shelf; None where there is none."""
    stopped = last_word(place, m, owners)
    if stopped is None:
        return None
    for copy in place.versions(stopped.student, {m.id: owners[m.id]}):
        part = shelf.folder / f".{stopped.student}-{m.id}.copy"
        if place.fetch(copy, part) == stopped.sha256:
            return shelf.keep(part, m.id, stopped.student, stopped.sha256, stopped.at)
        part.unlink(missing_ok=True)
        break  # something was copied after the last word: then it was none
    return None


def restore(run: Run, machines: list[Machine], as_of: str) -> dict[str, Any]:
    """Fetch each student's copy as of a moment to out/<class>/restored, and hand it to their
    machine."""
    place = folder(run)
    if place is None:
        raise ClassroomError(
            f"{run.spec.name} keeps no copies.", "Write `work_copies: s3` and run provision."
        )
    until = moment(run, as_of)
    with doing("read the copies", place.region):
        owners = place.owners()
    by_student = {s: m for m in machines for s in m.students}
    everyone = {s for o in owners.values() for s in o["students"]} | set(by_student)
    chosen = sorted(s for s in everyone if run.wants(s, getattr(by_student.get(s), "name", s)))
    rows, missing = [], []

    def one(student: str) -> Copy | None:
        found = next((c for c in place.versions(student, owners) if c.at <= until), None)
        if found is None or run.check:
            return found
        name = f"{student}-{found.at:%Y%m%dT%H%M%SZ}.tar.gz"
        place.fetch(found, run.spec.out / "restored" / name)
        m = by_student.get(student)
        if m is not None and m.id in owners:
            place.hand_over(found, owners[m.id]["prefix"], f"restored-{found.at:%Y-%m-%d-%H%M}")
        return found

    for student, found, error in each(one, chosen):
        if isinstance(error, ClassroomError):
            missing.append(f"{student}: {error}")
        elif error:
            with doing(f"restore {student}'s work", place.region):
                raise error
        elif found is None:
            missing.append(f"{student}: there is no copy from before {until:%Y-%m-%d %H:%M} UTC")
        else:
            m = by_student.get(student)
            where = f"{m.name}, within ten minutes of running" if m else "this computer only"
            rows.append([student, f"{found.at:%Y-%m-%d %H:%M}", f"{found.size / 1024:,.0f}", where])
    return {
        "tables": [
            {
                "title": "restored",
                "columns": ["student", "copy of (UTC)", "KiB", "onto"],
                "rows": rows,
                "right": [2],
            }
        ],
        "lines": missing,
        "restored": [r[0] for r in rows],
        "summary": f"{len(rows)} copies are in {run.spec.out / 'restored'}",
        "exit_code": 1 if missing else 0,
    }


def moment(run: Run, text: str) -> dt.datetime:
    """Return the end of a day or a minute that the staff wrote, in the class's time zone."""
    if not text:
        return run.cloud.now() + dt.timedelta(minutes=5)
    try:
        at = dt.datetime.fromisoformat(text)
    except ValueError:
        raise ClassroomError(
            f"--as-of {text!r} is no date.", "Write 2026-11-20 or 2026-11-20T18:00."
        ) from None
    if len(text) == 10:
        at += dt.timedelta(days=1)
    return at if at.tzinfo else at.replace(tzinfo=run.spec.teardown_at.tzinfo)


# ---- the end ----


def former(
    place: Folder, shelf: Shelf, living: Collection[str], discard: Collection[str]
) -> dict[str, str]:
    """Fetch the last copy of every machine that is gone already; return student -> why that failed.
    Nothing of a bucket is deleted before."""
    owners, failed = place.owners(), {}
    gone = {i: o for i, o in owners.items() if i not in living}
    for iid, entry in gone.items():
        for student in entry["students"]:
            if student in discard or entry["machine"] in discard:
                continue
            have = shelf.find(iid, student)
            newest = place.versions(student, {iid: entry})[:1]
            if not newest or (
                have
                and (shelf.folder / have.file).is_file()
                and (aware_iso(have.at) >= newest[0].at)
            ):
                continue
            part = shelf.folder / f".{student}-{iid}.copy"
            try:
                sha = place.fetch(newest[0], part)
                shelf.keep(part, iid, student, sha, newest[0].at.isoformat())
            except (ClassroomError, be.ClientError, OSError) as error:
                failed[student] = str(error)
    return failed


def aware_iso(text: str) -> dt.datetime:
    """Return the time of an archive."""
    return aware(dt.datetime.fromisoformat(text))


def empty(cloud: Cloud, region: str, bucket: str) -> None:
    """Delete every version in a bucket, and the bucket."""
    s3 = cloud.client("s3", region)
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        versions = [*page.get("Versions", []), *page.get("DeleteMarkers", [])]
        items = [{"Key": v["Key"], "VersionId": v["VersionId"]} for v in versions]
        for at in range(0, len(items), 1000):
            answer = s3.delete_objects(
                Bucket=bucket, Delete={"Objects": items[at : at + 1000], "Quiet": True}
            )
            for error in answer.get("Errors", []):
                raise ClassroomError(
                    f"{bucket}: {error['Key']} was not deleted: {error['Code']}.", "Run it again."
                )
    s3.delete_bucket(Bucket=bucket)


Fetch = Callable[[Machine], Archive | None]


def fetcher(place: Folder | None, shelf: Shelf) -> Fetch:
    """Return what fetches a stopped machine's last word, or nothing where there are no copies."""
    if place is None:
        return lambda _: None
    owners: dict[str, dict[str, Any]] = {}
    read = partial(shelve, place, shelf)

    def fetch(m: Machine) -> Archive | None:
        try:
            if not owners:
                owners.update(place.owners())
            return read(m, owners)
        except (be.ClientError, be.BotoCoreError, ClassroomError):
            return None  # then it is started and asked itself, as before

    return fetch
