"""Entries of the contest: files that the grading host has signed (Ed25519, RFC 8032).

An entry says who (a pseudonym), which lab and dialect, backend, SDK and generation, whether its
times are predicted or measured, the time and the bytes of each case, and what the contest ranks on.
What is signed is the canonical JSON of
all that: a file that was changed, or signed by another host, is refused with the reason.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..dialect import DIALECTS
from ..spec import QUANTITIES, SpecError, hbm_bytes

SCHEMA = "trainium-labs/entry"
KINDS = ("measured", "predicted")
LARGEST = 1 << 20


class Refused(Exception):
    """A file that is no entry of this contest; the text says why."""


@dataclass(frozen=True)
class Entry:
    """One verified entry; `times` are microseconds by case, `at` orders a contestant's entries.

    `hbm_bytes`: what each case read from HBM and wrote to it; `least_bytes`: what it has to. {} in
    entries of before, and of times from a chip. `rank`: what the contest ranks on.
    """

    name: str
    lab: str
    kind: str
    backend: str
    version: str
    target: str
    at: str
    times: dict[str, float]
    dialect: str = "beta1"  # entries of before the second dialect do not say it
    rank: tuple[str, ...] = ("time",)
    hbm_bytes: dict[str, float] = field(default_factory=dict)
    least_bytes: dict[str, float] = field(default_factory=dict)


def canonical(body: dict[str, Any]) -> bytes:
    """Return what is signed: JSON with sorted keys and no spaces, in ASCII."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


# -- keys ------------------------------------------------------------------------------------------


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise SpecError(
            'signatures need cryptography: pip install "trainium-labs[grade]"'
        ) from None
    return ed25519


def make_key(path: Path) -> str:
    """Write a new private key to a file of the owner's alone; return the public key in hex."""
    key = _ed25519().Ed25519PrivateKey.generate()
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise SpecError(f"{path} is there already; a contest keeps its key") from None
    with os.fdopen(fd, "w") as file:
        file.write(key.private_bytes_raw().hex() + "\n")
    return key.public_key().public_bytes_raw().hex()


def read_key(path: Path) -> Any:
    """Return the private key of a file; raise SpecError if it is not one, or is open to others."""
    try:
        if os.name == "posix" and path.stat().st_mode & 0o077:
            raise SpecError(f"{path} can be read by others: chmod 600 {path}")
        return _ed25519().Ed25519PrivateKey.from_private_bytes(
            bytes.fromhex(path.read_text().strip())
        )
    except (OSError, ValueError) as error:
        raise SpecError(f"{path} is no key of nox -s leaderboard -- key ({error})") from None


def public_of(key: Any) -> str:
    """Return the public key of a private one, in hex."""
    return key.public_key().public_bytes_raw().hex()


def pseudonym(key: Any, student: str) -> str:
    """Return a name that only the holder of the key can lead back to a student."""
    digest = hmac.new(key.private_bytes_raw(), student.encode(), hashlib.sha256).hexdigest()
    return f"kernel-{digest[:8]}"


# -- files -----------------------------------------------------------------------------------------


def sign(key: Any, body: dict[str, Any]) -> dict[str, Any]:
    """Return an entry's document: the body, the signature, and whose it is."""
    body = {"schema": SCHEMA, "schema_version": 1, **body}
    return {
        "entry": body,
        "public_key": public_of(key),
        "signature": key.sign(canonical(body)).hex(),
    }


def body_of(verdict: dict[str, Any], name: str, at: str) -> dict[str, dict[str, Any]]:
    """Return the bodies of a verdict's entries by target; {} unless every judged time is right."""
    bodies: dict[str, dict[str, Any]] = {}
    for target in sorted({c["target"] for c in verdict["cases"]}):
        cases = [c for c in verdict["cases"] if c["target"] == target]
        timed = [
            c
            for c in cases
            if c["status"] == "passed" and c["latency_us"] and c.get("contest", not c["hidden"])
        ]
        times = {c["case"]: c["latency_us"] for c in timed}
        if times and all(c["status"] == "passed" for c in cases):
            bodies[target] = {
                "name": name,
                "lab": verdict["lab"],
                "dialect": verdict.get("dialect", "beta1"),
                "kind": verdict["latency_kind"],
                "backend": verdict["backend"],
                "version": f"nkisim {verdict['nkisim']}",
                "target": target,
                "at": at,
                "times_us": times,
                "rank": verdict.get("rank", ["time"]),
                "hbm_bytes": _of_all(timed, hbm_bytes),
                "least_bytes": _of_all(timed, lambda c: c.get("least_bytes")),
            }
    return bodies


def _of_all(
    cases: list[dict[str, Any]], number: Callable[[dict[str, Any]], int | None]
) -> dict[str, int]:
    """Return a number by case; {} unless each case has it."""
    by_case = {c["case"]: n for c in cases if (n := number(c))}
    return by_case if len(by_case) == len(cases) else {}


def _positive(body: dict[str, Any], key: str) -> dict[str, float]:
    """Return a body's numbers by case, {} if it has none; raise ValueError for what is no number
    above 0."""
    by_case = {str(case): float(number) for case, number in body.get(key, {}).items()}
    if not all(0 < number < math.inf for number in by_case.values()):
        raise ValueError(key)
    return by_case


def verify(document: Any, public: str) -> Entry:
    """Return the entry of a document; raise Refused unless `public` has signed every bit of it."""
    ed25519 = _ed25519()
    from cryptography.exceptions import InvalidSignature

    try:
        body, signature = document["entry"], bytes.fromhex(document["signature"])
        if document["public_key"] != public:
            raise Refused("signed by another host")
        ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(
            signature, canonical(body)
        )
    except InvalidSignature:
        raise Refused("changed after it was signed") from None
    except (LookupError, TypeError, ValueError, AttributeError):
        raise Refused("not a signed entry") from None
    try:
        times, moved = _positive(body, "times_us"), _positive(body, "hbm_bytes")
        words = {
            k: str(body[k]) for k in ("name", "lab", "kind", "backend", "version", "target", "at")
        }
        entry = Entry(
            times=times,
            dialect=str(body.get("dialect", "beta1")),
            rank=tuple(map(str, body.get("rank", ("time",)))),
            hbm_bytes=moved,
            least_bytes=_positive(body, "least_bytes"),
            **words,
        )
        good = (
            body["schema"] == SCHEMA
            and body["schema_version"] == 1
            and entry.kind in KINDS
            and entry.dialect in DIALECTS
            and bool(entry.rank)
            and {*entry.rank} <= {*QUANTITIES}
            and (not moved or set(moved) == set(times))
        )
    except (LookupError, TypeError, ValueError, AttributeError):
        raise Refused("not an entry of this version") from None
    if not good or not times:
        raise Refused("not an entry of this version")
    return entry


def read_entries(folders: list[Path], public: str) -> Iterator[tuple[Path, Entry | Refused]]:
    """Yield each .json file of some folders (or each file) with its entry, or why it is refused."""
    for folder in folders:
        if not folder.exists():
            raise SpecError(f"there is no file or folder {folder}")
        for path in sorted(folder.rglob("*.json")) if folder.is_dir() else [folder]:
            try:
                if path.stat().st_size > LARGEST:
                    raise Refused("larger than 1 MiB")
                yield path, verify(json.loads(path.read_text(encoding="utf-8")), public)
            except (OSError, ValueError, RecursionError):
                yield path, Refused("not JSON")
            except Refused as why:
                yield path, why
