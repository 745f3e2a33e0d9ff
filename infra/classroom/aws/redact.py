"""Take out of AWS's calls what must not be given away, and keep their form: the same account, id or
name becomes the same other one each time, so that a transcript can still be followed."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import re
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

REMOVED = "<removed>"
# Whatever stands below such a key is taken out as a whole.
SECRET_KEYS = re.compile(
    r"password|secret|private_?key|userdata|zipfile|publickey|fingerprint|^environment$|sessiontoken"
    r"|^output$|^consoleoutput$|^body$|sha256|encodedauth|^subject$|^content$|signature|^etag$",
    re.I,
)
TOKENS = re.compile(r"^(next_?token|marker|next_?marker|continuation_?token|client_?token)$", re.I)
KEPT_NETWORKS = [
    ipaddress.ip_network(n)
    for n in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "0.0.0.0/32")
]
KEY_TEXT = re.compile(r"(ssh-(?:ed25519|rsa)|ecdsa-[\w-]+) [A-Za-z0-9+/=]{20,}( [^\s\"]+)?")
PEOPLE = re.compile(r"(:assumed-role/[^/\s\"]+/|:user/|:federated-user/)[^\s\"]+")
LONG = re.compile(r"(?<![\w/+-])(?=[\w/+-]*[A-Z])(?=[\w/+-]*[0-9])[\w/+-]{60,}={0,2}")
ADDRESS6 = r"(?<![\w:])(?:[0-9a-fA-F]{1,4}:){4,7}[0-9a-fA-F]{1,4}(?![\w:])"
# Tags whose values are names, and what they become; core- stands before a seat's number.
NAMING = {"class": "course", "owner": "student", "machine": "student", "section": "section"}
NAMING["core-"] = "student"
NO_NAMES = ("staff", "all", "student", "class")


def _seventeen(kind: str) -> Callable[[int], str]:
    return lambda n: f"{kind}-{n:017x}"


class Redactor:
    """Hold what became what; names are words that only this class has."""

    def __init__(self) -> None:
        self.known: dict[str, dict[str, str]] = {"name": {}}

    def name(self, word: str, kind: str) -> None:
        """Register a name: the first one, such as "alice", becomes student1."""
        if len(word) > 1 and word not in NO_NAMES and not word.startswith("node-"):
            names = self.known["name"]
            count = sum(v.startswith(kind) for v in names.values())
            names.setdefault(word, f"{kind}{count + 1}")

    def domain(self, mail: str) -> None:
        """Register the domain of an address, which calls to SES name alone, too."""
        if domain := mail.rpartition("@")[2]:
            self.known["name"].setdefault(domain, "example.edu")

    def learn(self, value: Any) -> None:
        """Register the names in a call's tags, such as that of a student who left the roster."""
        if isinstance(value, (list, tuple)):
            for v in value:
                self.learn(v)
        elif isinstance(value, dict):
            pairs = [(k, v) for k, v in value.items() if isinstance(v, str)]
            if isinstance(value.get("Key"), str) and isinstance(value.get("Value"), str):
                pairs.append((value["Key"], value["Value"]))
            for key, v in pairs:
                part = str(key).removeprefix("trainium-labs:")
                if part != key and part.startswith("link-"):
                    self.name(part.removeprefix("link-"), "student")
                elif part != key and (kind := NAMING.get(part.rstrip("0123456789"))):
                    self.name(v, kind)
            for v in value.values():
                self.learn(v)

    def named(self, value: Any) -> Any:
        """Return a cleaned value with other names; the last step, when all names are known."""
        if isinstance(value, dict):
            return {self.named(k): self.named(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self.named(v) for v in value]
        names = self.known["name"]
        if not isinstance(value, str) or not names:
            return value
        pattern = "|".join(re.escape(n) for n in sorted(names, key=len, reverse=True))
        return re.sub(
            rf"(?<![A-Za-z0-9])(?:{pattern})(?![A-Za-z0-9])", lambda m: names[m[0]], value
        )

    def other(self, kind: str, value: str, make: Callable[[int], str]) -> str:
        """Return what a value becomes; the same each time, and itself where it was made here."""
        table = self.known.setdefault(kind, {})
        if value in table.values():
            return value
        if value not in table:
            table[value] = make(len(table) + 1)
        return table[value]

    def text(self, text: str) -> str:
        """Return a text without what must not be given away."""
        text = KEY_TEXT.sub(lambda m: f"{m[1]} {REMOVED}", text)
        text = PEOPLE.sub(lambda m: f"{m[1]}person", text)
        return LONG.sub(REMOVED, self._patterns(text))

    def _patterns(self, text: str) -> str:
        def sub(kind: str, pattern: str, make: Callable[[int], str], text: str) -> str:
            return re.sub(pattern, lambda m: self.other(kind, m[0], make), text)

        text = sub("mail", r"[\w.+-]+@[\w-]+\.[\w.-]+\w", lambda n: f"person{n}@example.edu", text)
        text = sub("url", r"(?<=//)[a-z0-9]{16,}(?=\.lambda-url\.)", lambda n: f"{n:032x}", text)
        text = sub("key", r"\b(?:AKIA|ASIA)[A-Z0-9]{8,}\b", lambda n: f"AKIA{n:016d}", text)
        text = sub(
            "role", r"\b(?:AROA|AIDA|ANPA|AIPA)[A-Z0-9]{8,}\b", lambda n: f"AROA{n:017d}", text
        )
        text = sub(
            "account", r"(?<![\w.-])\d{12}(?!\w)|(?<=--)\d{12}(?!\w)", lambda n: f"{n:012d}", text
        )
        mac = r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b"
        text = sub("mac", mac, lambda n: f"02:00:00:00:00:{n:02x}", text)
        text = sub("v6", ADDRESS6, lambda n: f"2001:db8::{n:x}", text)
        text = re.sub(
            r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?:/\d+)?(?![\w.])",
            lambda m: self._address(m[0]),
            text,
        )
        text = re.sub(
            r"\bec2-(\d+-\d+-\d+-\d+)(?=\.)",
            lambda m: "ec2-" + self._address(m[1].replace("-", ".")).replace(".", "-"),
            text,
        )
        matches = re.finditer(r"\b([a-z]{1,12})-[0-9a-f]{8,17}\b", text)
        for kind, whole in {(m[1], m[0]) for m in matches}:
            text = text.replace(whole, self.other(f"id-{kind}", whole, _seventeen(kind)))
        uuid = r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
        return sub("uuid", uuid, lambda n: f"00000000-0000-4000-8000-{n:012d}", text)

    def _address(self, whole: str) -> str:
        """Return an address, or a network, in the place of another; private ones stay."""
        alone, _, bits = whole.partition("/")
        try:
            address = ipaddress.ip_address(alone)
        except ValueError:  # a version number
            return whole
        if any(address in n for n in KEPT_NETWORKS):
            return whole
        if bits not in ("", "32"):
            return self.other("network", whole, lambda n: f"198.18.{n}.0/24")
        return self.other("address", alone, lambda n: f"198.51.100.{n}") + ("/32" if bits else "")

    def clean(self, value: Any, key: str = "") -> Any:
        """Return a value of a call, ready for JSON, without what must not be given away."""
        if SECRET_KEYS.search(key) and value not in (None, "", {}, []):
            return REMOVED
        if isinstance(value, dict):
            return {self.text(str(k)): self.clean(v, str(k)) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.clean(v) for v in value]
        if isinstance(value, str):
            if TOKENS.match(key):
                return self.other("token", value, lambda n: f"token{n}")
            return self._string(value)
        if isinstance(value, dt.datetime):
            return {"$time": value.isoformat()}
        if isinstance(value, (bool, int, float)) or value is None:
            return value
        return REMOVED  # bytes, streams

    def _string(self, value: str) -> str:
        """Clean a string; one that is a JSON document is cleaned as the document it is."""
        if value[:3].upper() in ("%7B", "%5B"):  # IAM's documents, as they travel
            value = urllib.parse.unquote(value)
        if value[:1] in ("{", "["):
            try:
                return json.dumps(self.clean(json.loads(value)))
            except ValueError:
                pass
        return self.text(value)

    def save(self, path: Path) -> None:
        """Keep what became what, for the next command of the same transcript. Not to be given
        away."""
        path.write_text(json.dumps(self.known), encoding="utf-8")
        path.chmod(0o600)

    @classmethod
    def load(cls, path: Path) -> Redactor:
        """Return the redactor of a transcript, or a new one."""
        new = cls()
        if path.exists():
            new.known = json.loads(path.read_text(encoding="utf-8"))
        return new
