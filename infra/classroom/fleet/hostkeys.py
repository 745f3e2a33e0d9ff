"""Host keys of machines: kept by machine id in out/<class>/known_hosts, because AWS reuses
addresses.

A machine prints its keys on its console when it is made (cloud-init, documented), and AWS shows the
console to callers with permission: so the key is known before the first login. It is written into
the machine's tags, because the next boot overwrites the console. If it cannot be read, the first
key seen is accepted, and a different one later is refused.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import hashlib
import re
from pathlib import Path

import botocore.exceptions as be

from ..aws.cloud import DENIED, code_of, each
from ..spec import tags
from ..spec.run import Run
from .inventory import Machine

FILE = "known_hosts"
BOOTED = dt.timedelta(seconds=60)
PRINTED = re.compile(r"-----BEGIN SSH HOST KEY KEYS-----(.*?)-----END SSH HOST KEY KEYS-----", re.S)
KEY = re.compile(r"ssh-ed25519 [A-Za-z0-9+/]{60,80}=*")


def options(out: Path, machine_id: str, proxy: str = "") -> dict[str, str]:
    """Return the SSH options that check a machine's key; `proxy` is the command that carries the
    connection to a machine without a public address."""
    return {
        **({"ProxyCommand": proxy} if proxy else {}),
        "StrictHostKeyChecking": "accept-new",
        "UserKnownHostsFile": f'"{out / FILE}"',
        "HashKnownHosts": "no",
        "HostKeyAlias": machine_id,
    }


def of_console(text: str) -> str:
    """Return the ed25519 host key that cloud-init printed, as `ssh-ed25519 AAAA...`, or ""."""
    blocks = PRINTED.findall(text)
    match = KEY.search(blocks[-1]) if blocks else None
    return match[0] if match else ""


def pin(run: Run, machines: list[Machine]) -> None:
    """Read the host keys of machines that are not known yet from their consoles; write them into
    their tags and into known_hosts. One that differs from the key seen so far is told."""

    def read(m: Machine) -> str:
        # Latest: else AWS answers with what it kept when the machine last started or stopped
        answer = run.cloud.ec2(m.region).get_console_output(InstanceId=m.id, Latest=True)
        key = of_console(answer.get("Output", ""))
        if key:
            run.cloud.ec2(m.region).create_tags(
                Resources=[m.id], Tags=tags.as_list({tags.HOSTKEY: key})
            )
            m.tags[tags.HOSTKEY] = key
        return key

    new = [
        m
        for m in machines
        if m.id and tags.HOSTKEY not in m.tags and m.state == "running" and _has_booted(run, m)
    ]
    closed = []
    for m, _, error in each(read, new if not run.check else []):
        if error is not None and not isinstance(error, (be.ClientError, be.BotoCoreError)):
            raise error  # else: not to be had now; the first key seen is taken, as before
        if code_of(error) in DENIED:
            closed.append(m.name)
    if closed:
        run.warn(
            f"The host keys of {', '.join(sorted(closed))} are not known: AWS does not let you read"
            " their consoles or write what is there into their tags. The first key seen is taken"
            " on trust. Allow ec2:GetConsoleOutput and ec2:CreateTags (`doctor --policy`)."
        )
    for m in machines:
        key = m.tags.get(tags.HOSTKEY, "")
        if KEY.fullmatch(key) and not run.check:
            if not _keep(run.spec.out, m.id, key):
                run.warn(
                    f"{m.name} ({m.id}) has shown another host key than it printed on its console:"
                    " another machine may have answered at its address. Check before you log in;"
                    f" its lines in {run.spec.out / FILE} are the suspicious ones."
                )


def known(m: Machine) -> bool:
    """Return whether a machine has printed its host key."""
    return bool(KEY.fullmatch(m.tags.get(tags.HOSTKEY, "")))


def _has_booted(run: Run, m: Machine) -> bool:
    """Return whether a machine has run long enough to have printed its keys."""
    try:
        launched = dt.datetime.fromisoformat(m.launched)
    except ValueError:
        return False
    return launched.tzinfo is not None and run.cloud.now() - launched >= BOOTED


def _keep(out: Path, machine_id: str, key: str) -> bool:
    """Write a key into known_hosts; return whether it matches what is there."""
    path = out / FILE
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    have = [
        line.split(" ", 1)[1].strip()
        for line in text.splitlines()
        if machine_id in line.split(" ", 1)[0].split(",") and "ssh-ed25519" in line
    ]
    if not have:
        out.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            if text and not text.endswith("\n"):
                file.write("\n")
            file.write(f"{machine_id} {key}\n")
    return all(h.startswith(key) for h in have)


def lines(out: Path, machine_ids: list[str]) -> str:
    """Return the lines of known_hosts about these machines."""
    try:
        text = (out / FILE).read_text(encoding="utf-8")
    except OSError:
        return ""
    chosen = set(machine_ids)
    return "".join(
        f"{line}\n" for line in text.splitlines() if chosen & set(line.partition(" ")[0].split(","))
    )


def fingerprints(out: Path, machine_id: str) -> list[str]:
    """Return `ED25519 SHA256:...` of each key that a machine has shown, as ssh prints it."""
    try:
        lines = (out / FILE).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    prints = []
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
        prints.append(f"{kind.removeprefix('ssh-').upper()} SHA256:{text}")
    return prints
