"""Host keys of machines: kept by machine id in out/<class>/known_hosts, for AWS hands addresses out
again. The first key seen is taken, for nobody can know it before; another one later is refused."""

from __future__ import annotations

import base64
import binascii
import hashlib
from pathlib import Path

FILE = "known_hosts"


def options(out: Path, machine_id: str) -> dict[str, str]:
    """Return the SSH options by which every door knows a machine again."""
    return {
        "StrictHostKeyChecking": "accept-new",
        "UserKnownHostsFile": f'"{out / FILE}"',
        "HashKnownHosts": "no",
        "HostKeyAlias": machine_id,
    }


def fingerprints(out: Path, machine_id: str) -> list[str]:
    """Return `ED25519 SHA256:...` of each key that a machine has shown, as ssh prints it."""
    try:
        lines = (out / FILE).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        names, _, rest = line.partition(" ")
        kind, _, blob = rest.strip().partition(" ")
        if machine_id not in names.split(","):
            continue
        try:
            digest = hashlib.sha256(base64.b64decode(blob.split()[0], validate=True)).digest()
        except (binascii.Error, IndexError):
            continue
        text = base64.b64encode(digest).decode().rstrip("=")
        found.append(f"{kind.removeprefix('ssh-').upper()} SHA256:{text}")
    return found
