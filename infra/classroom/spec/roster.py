"""The roster: one student a row, checked row by row so that all mistakes come out at once."""

from __future__ import annotations

import base64
import binascii
import csv
import io
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..aws.problems import ClassroomError, Problem

STUDENT = re.compile(r"[a-z][a-z0-9-]{0,29}[a-z0-9]")
# No address that a spreadsheet would take for a formula, or a mail program for more than one.
EMAIL = re.compile(r"[^@\s,;=+<>()\"|-][^@\s,;<>()\"|]*@[A-Za-z0-9.-]+\.[A-Za-z]{2,}")
# Accounts and groups of Debian and Ubuntu (base-passwd, cloud images), of the Neuron driver, of
# our roles, and what would confuse an inventory: an account of that name would be in a group of
# another's, or not be made at all.
RESERVED = frozenset(
    """
    adm admin all audio avahi backup bin cdrom chrony class crontab daemon dialout dip disk dnsmasq
    docker ec2-user fax floppy fwupd-refresh games gnats influxdb input irc kmem kvm landscape list
    localhost lp lxd machines mail man messagebus munge mysql netdev neuron news nobody
    nogroup ntp operator plugdev polkitd pollinate postfix proxy rdma render root rtkit sasl sgx
    shadow slurm src ssh ssl-cert sshd staff stopped students sudo sync sys syslog tape tcpdump
    telegraf tss tty ubuntu ungrouped
    usbmux users utmp uucp uuidd video voice wheel whoopsie www-data
    """.split()
)
# services; machines of a shared class; groups of devices
RESERVED_START = ("systemd-", "node-", *(f"neuron{n}" for n in range(10)))
COLUMNS = ("student", "email", "public_key")
OPTIONAL = ("section",)
MAX_STUDENTS = 1000


@dataclass(frozen=True)
class Student:
    """Hold one row; `public_key` is empty when a key is to be generated."""

    id: str
    email: str
    public_key: str = ""
    section: str = ""


def key_problem(text: str) -> tuple[str, str] | None:
    """Return (what, remedy) when `text` is not an OpenSSH ed25519 or RSA (>= 2048 bit) public
    key."""
    ask = "Ask for the one line of ~/.ssh/id_ed25519.pub (made by `ssh-keygen -t ed25519`)."
    if "PRIVATE KEY" in text:
        return (
            "The key is a PRIVATE key, which must never be sent.",
            "Delete it, tell its owner to make a new pair, and " + ask[0].lower() + ask[1:],
        )
    if text.startswith(("---- BEGIN SSH2", "PuTTY-User-Key-File")):
        return (
            "The key is in PuTTY's format.",
            "Export it as OpenSSH in PuTTYgen, or " + ask[0].lower() + ask[1:],
        )
    parts = text.split()
    if len(parts) < 2:
        return "The public key has no `type base64` form.", ask
    kind, blob = parts[0], parts[1]
    if kind not in ("ssh-ed25519", "ssh-rsa"):
        return f"The key type {kind[:40]!r} is not accepted (only ssh-ed25519 and ssh-rsa).", ask
    try:
        raw = base64.b64decode(blob, validate=True)
        fields = _fields(raw)
    except (binascii.Error, struct.error, ValueError):
        return "The public key is cut off or has stray characters.", ask
    if not fields or fields[0] != kind.encode():
        return "The public key is cut off or has stray characters.", ask
    if kind == "ssh-ed25519" and (len(fields) != 2 or len(fields[1]) != 32):
        return "The ed25519 key has the wrong length.", ask
    if kind == "ssh-rsa":
        bits = int.from_bytes(fields[2], "big").bit_length() if len(fields) == 3 else 0
        if bits < 2048:
            return f"The RSA key has {bits} bits; 2048 is the least.", ask
    return None


def _fields(raw: bytes) -> list[bytes]:
    out, at = [], 0
    while at < len(raw):
        (size,) = struct.unpack_from(">I", raw, at)
        if at + 4 + size > len(raw):
            raise ValueError("truncated")
        out.append(raw[at + 4 : at + 4 + size])
        at += 4 + size
    return out


def csv_rows(
    path: Path, name: str, bad: Callable[[int, str, str], None]
) -> list[tuple[int, list[str]]] | None:
    """Return line and cells of each row, or say to `bad` why this is no CSV and return None.

    Raises FileNotFoundError: what that means is for the caller to say.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        bad(1, f"{name} is not UTF-8 text.", "Save it as CSV (UTF-8).")
        return None
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        return [(reader.line_num, cells) for cells in reader]
    except csv.Error as error:  # without `strict`, a quote too many swallows the rows after it
        bad(reader.line_num, f"The quotes do not fit together ({error}).", "Remove the stray one.")
        return None


def _header(cells: list[str], bad: Callable[[int, str, str], None]) -> list[str] | None:
    """Return the names of the columns, or say to `bad` what is wrong with them."""
    header, whole = [c.strip().lower() for c in cells], f"header is `{','.join(COLUMNS)}`."
    if len(header) == 1 and ";" in header[0]:
        bad(1, "The columns are separated by semicolons.", "Save it with commas.")
        return None
    if len(header) == 1 and "\t" in header[0]:
        bad(1, "The columns are separated by tabs.", "Save it as CSV, with commas.")
        return None
    missing = [c for c in ("student", "email") if c not in header]
    unknown = [c for c in header if c and c not in (*COLUMNS, *OPTIONAL)]
    twice = [c for c in (*COLUMNS, *OPTIONAL) if header.count(c) > 1]
    for column in missing:
        bad(1, f"The column `{column}` is missing.", f"The {whole}")
    for column in unknown:
        bad(1, f"The column {column!r} is not known.", f"Remove it; the {whole}")
    for column in twice:
        bad(1, f"The column `{column}` is there twice.", f"Remove one; the {whole}")
    return None if missing or unknown or twice else header


def _wrong(row: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the cells of one student, and what to do."""
    sid, section, key = row["student"], row["section"], row["public_key"]
    if not STUDENT.fullmatch(sid):
        problem = f"The student id {sid[:40]!r} is not a name that Linux and AWS both take."
        yield problem, "Use 2 to 31 of a-z, 0-9 and -, starting with a letter."
    elif sid in RESERVED or sid.startswith(RESERVED_START):
        problem = f"The student id {sid!r} is the name of an account or group that exists."
        yield problem, "Use another id."
    if not EMAIL.fullmatch(row["email"]):
        problem, how = "The e-mail address is missing or not an address.", "name@example.edu"
        if not row["email"].rpartition("@")[2].isascii():
            problem = "The e-mail address has a domain with other letters than a to z."
            how = "name@xn--..., as the domain is written in mails, or give another address"
        yield problem, f"Write it as {how}."
    if section and not re.fullmatch(r"[a-z0-9-]{1,40}", section):
        yield "The section is not of a-z, 0-9 and -.", "Write it as lab-01."
    mistake = key_problem(key) if key else None
    if mistake:
        yield mistake


def read(path: Path, shown: str) -> tuple[list[Student], list[Problem]]:
    """Read roster.csv; return the good rows and every mistake. Rows are never printed, they are
    personal data."""
    problems: list[Problem] = []

    def bad(line: int, what: str, remedy: str) -> None:
        problems.append(Problem(shown, line, what, remedy))

    try:
        rows = csv_rows(path, "The roster", bad)
    except FileNotFoundError:
        remedy = f"Write it with the header `{','.join(COLUMNS)}`, or fix `roster:`."
        bad(1, "The roster does not exist.", remedy)
        return [], problems
    header = _header(rows[0][1] if rows else [], bad) if rows is not None else None
    if rows is None or header is None:
        return [], problems

    students: list[Student] = []
    seen: dict[tuple[str, str], int] = {}
    for line, cells in rows[1:]:
        if not any(c.strip() for c in cells):
            continue
        if len(cells) > len(header):
            what = f"The row has {len(cells)} cells, the header {len(header)}."
            bad(line, what, "Quote cells that hold commas.")
            continue
        given = dict(zip(header, (c.strip() for c in cells)))
        row = {c: given.get(c, "") for c in (*COLUMNS, *OPTIONAL)}
        row["section"] = row["section"].lower()
        before = len(problems)
        for what, remedy in _wrong(row):
            bad(line, what, remedy)
        row["public_key"] = " ".join(row["public_key"].split()[:2])  # a comment may hold a name
        labels = {"student": "student id", "email": "e-mail address", "public_key": "public key"}
        for column, label in labels.items():
            value = row[column].lower() if column == "email" else row[column]
            if value and (first := seen.setdefault((column, value), line)) != line:
                what = f"The {label} is the same as in line {first}."
                bad(line, what, "Give each student one row and one of their own.")
        if len(problems) == before:
            students.append(Student(*(row[c] for c in (*COLUMNS, *OPTIONAL))))
    if not students and not problems:
        bad(1, "The roster is empty.", "Add a row for each student (a class of one works too).")
    if len(students) > MAX_STUDENTS:
        what = f"The roster has {len(students)} students; {MAX_STUDENTS} is the most."
        bad(1, what, "Split the class.")
    return students, problems


def expand(limit: list[str], students: list[Student]) -> list[str]:
    """Return a --limit with `section:NAME` replaced by its students."""
    out: list[str] = []
    for word in limit:
        name = word.removeprefix("section:")
        if name == word:
            out.append(word)
            continue
        ids = [s.id for s in students if s.section == name.lower()]
        if not ids:
            sections = ", ".join(sorted({s.section for s in students if s.section})) or "none"
            raise ClassroomError(f"There is no section {name}.", f"The roster has: {sections}.")
        out += ids
    return out
