"""S3: which call a request is, and what IAM is asked about it.

Source: Amazon S3 API reference (method, path and query of each operation); Service Authorization
Reference, "Actions defined by Amazon S3". What the caller may not list it is not told the absence
of: GetObject of a missing key answers 403 without s3:ListBucket (API reference, GetObject).
"""

from __future__ import annotations

import re
import urllib.parse
from typing import Any

from moto.iam.access_control import PermissionResult
from moto.s3.models import FakeBucket, s3_backends

from .iam import Request
from .world import ACCOUNT

# query parameter -> (reading, writing) of a bucket
SETTINGS = {
    "tagging": ("GetBucketTagging", "PutBucketTagging"),
    "versioning": ("GetBucketVersioning", "PutBucketVersioning"),
    "location": ("GetBucketLocation", ""),
    "encryption": ("GetEncryptionConfiguration", "PutEncryptionConfiguration"),
    "lifecycle": ("GetLifecycleConfiguration", "PutLifecycleConfiguration"),
    "policy": ("GetBucketPolicy", "PutBucketPolicy"),
    "publicAccessBlock": ("GetBucketPublicAccessBlock", "PutBucketPublicAccessBlock"),
    "versions": ("ListBucketVersions", ""),
}


def identify(env: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return operation and parameters of a request to S3 with the bucket in its path."""
    path = urllib.parse.unquote(env["PATH_INFO"])
    bucket, _, key = path.lstrip("/").partition("/")
    query = dict(urllib.parse.parse_qsl(env.get("QUERY_STRING", ""), keep_blank_values=True))
    params: dict[str, Any] = {"Bucket": bucket, "Key": key, **query}
    method = env["REQUEST_METHOD"]
    if not bucket:
        return "ListAllMyBuckets", params
    if not key:
        for name, (read, write) in SETTINGS.items():
            if name in query:
                return (read if method == "GET" else write), params
        if "delete" in query:
            return "DeleteObjects", params
        return {
            "PUT": "CreateBucket",
            "DELETE": "DeleteBucket",
            "HEAD": "ListBucket",
        }.get(method, "ListBucket"), params
    source = env.get("HTTP_X_AMZ_COPY_SOURCE")
    if source:
        params["source"] = urllib.parse.unquote(source)
    version = "Version" if "versionId" in query else ""
    return {"PUT": "PutObject", "DELETE": f"DeleteObject{version}"}.get(
        method, f"GetObject{version}"
    ), params


def asked(op: str, params: dict[str, Any]) -> list[Request]:
    """Return every question that a call of S3 asks."""
    keys = {"s3:ResourceAccount": ACCOUNT}
    if op == "ListAllMyBuckets":
        return [Request("s3:ListAllMyBuckets", "*")]
    arn = f"arn:aws:s3:::{params['Bucket']}"
    if op == "DeleteObjects":
        return [
            Request(f"s3:{a}", f"{arn}/*", keys) for a in ("DeleteObject", "DeleteObjectVersion")
        ]
    if not params["Key"]:
        return [Request(f"s3:{op}", arn, keys)]
    out = [Request(f"s3:{op}", f"{arn}/{params['Key']}", keys)]
    if source := params.get("source"):
        place, _, version = source.lstrip("/").partition("?versionId=")
        out.append(
            Request(
                "s3:GetObjectVersion" if version else "s3:GetObject", f"arn:aws:s3:::{place}", keys
            )
        )
    return out


def buckets() -> list[tuple[str, str, dict[str, str]]]:
    """Return name, region and tags of every bucket."""
    backend = s3_backends[ACCOUNT]["aws"]
    return [
        (b.name, b.region_name, backend.tagger.get_tag_dict_for_resource(b.arn))
        for b in backend.buckets.values()
    ]


def is_s3(env: dict[str, Any]) -> bool:
    """Say whether a request is signed for S3."""
    return bool(re.search(r"/s3/aws4_request", env.get("HTTP_AUTHORIZATION", "")))


def install() -> None:
    """Let moto judge no bucket policies: it ignores their conditions, and would refuse all."""
    FakeBucket.get_permission = lambda self, action, resource: PermissionResult.NEUTRAL
