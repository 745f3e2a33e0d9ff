"""Students without a key get one, kept encrypted by ansible-vault; no private key touches the disk
in the clear."""

from __future__ import annotations

import os
import subprocess
import time
from functools import partial
from pathlib import Path

from cryptography.hazmat.primitives import serialization as ser
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ..aws.problems import ClassroomError
from ..spec.run import Run

PASSWORD_VARIABLE = "ANSIBLE_VAULT_PASSWORD_FILE"
# A rotation that is run again because a machine could not be reached must install the new keys, not
# make newer ones.
YOUNG_SECONDS = 3600


def folder(run: Run) -> Path:
    """Return where generated keys lie, encrypted."""
    return run.spec.out / "keys"


def _secret() -> bytes:
    name = os.environ.get(PASSWORD_VARIABLE, "")
    if not name or not Path(name).expanduser().is_file():
        raise ClassroomError(
            "Some students have no key, so one is to be generated, but there is no password to"
            " encrypt it with.",
            f"Write a long password into a file outside the repository and set {PASSWORD_VARIABLE}"
            " to its path; or ask the students for their public keys.",
        )
    path = Path(name).expanduser()
    if os.access(path, os.X_OK):  # a script that prints it, such as a keychain client
        text = subprocess.run([str(path)], capture_output=True, check=True).stdout
    else:
        text = path.read_bytes()
    if len(text.strip()) < 12:
        raise ClassroomError(
            "The vault password has fewer than 12 characters.", "Use a longer one."
        )
    return text.strip()


def ensure(run: Run, rotate: bool = False) -> dict[str, str]:
    """Return student -> public key; generate missing ones, and with `rotate` replace generated ones
    that are older than an hour and forget those of students who brought their own."""
    public: dict[str, str] = {}
    for student in run.spec.students:
        base = folder(run) / student.id
        pub = base.with_name(base.name + ".pub")
        chosen = rotate and run.wants(student.id)
        if student.public_key:
            public[student.id] = student.public_key
            if chosen and pub.exists():
                run.do(f"forget the generated key of {student.id}", partial(_forget, base))
            continue
        if pub.exists() and not (chosen and _age(pub) > YOUNG_SECONDS):
            public[student.id] = pub.read_text(encoding="utf-8").strip()
            continue
        if run.check:
            _secret()  # a preview refuses what the run would refuse
        made = run.do(f"generate a key for {student.id}", partial(_generate, base))
        old = pub.read_text(encoding="utf-8").strip() if run.check and pub.exists() else ""
        public[student.id] = made or old
    return public


def _age(path: Path) -> float:
    return time.time() - path.stat().st_mtime


def _forget(base: Path) -> None:
    for suffix in (".pub", ".vault"):  # the public key first: without it the pair does not count
        base.with_name(base.name + suffix).unlink(missing_ok=True)


def _generate(base: Path) -> str:
    from ansible.constants import DEFAULT_VAULT_ID_MATCH  # slow to import, needed only here
    from ansible.parsing.vault import VaultLib, VaultSecret

    vault = VaultLib([(DEFAULT_VAULT_ID_MATCH, VaultSecret(_secret()))])
    private = Ed25519PrivateKey.generate()
    text = private.private_bytes(ser.Encoding.PEM, ser.PrivateFormat.OpenSSH, ser.NoEncryption())
    public = (
        private.public_key().public_bytes(ser.Encoding.OpenSSH, ser.PublicFormat.OpenSSH).decode()
    )
    base.parent.mkdir(parents=True, exist_ok=True)
    base.parent.chmod(0o700)
    for path, content in (
        (base.with_name(base.name + ".vault"), vault.encrypt(text)),
        (base.with_name(base.name + ".pub"), (public + "\n").encode()),
    ):
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_bytes(content)
        temporary.chmod(0o600)
        temporary.replace(path)  # the public key comes last: with it the pair is complete
    return public
