"""What a student's request to the live server carries: proof of the token, never the token."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from urllib.parse import quote, unquote_to_bytes

#: before a name that a header cannot carry as it is (RFC 8187): UTF-8, percent-encoded
MARK = "UTF-8''"
_PLAIN = re.compile(r"[!-~](?:[ -~]*[!-~])?")


def signature(token: str, student: str, at: str, body: bytes) -> str:
    """Return what goes into X-Signature: HMAC-SHA256 of student, time and the body's digest."""
    return _signature(token, student, at, digest(body))


def digest(body: bytes) -> str:
    """Return what goes into X-Digest: a server knows a student before it reads a body."""
    return hashlib.sha256(body).hexdigest()


def _signature(token: str, student: str, at: str, digest: str) -> str:
    text = f"{student}\n{at}\n".encode() + bytes.fromhex(digest)
    return hmac.new(token.encode(), text, hashlib.sha256).hexdigest()


def headers(token: str, student: str, body: bytes) -> dict[str, str]:
    """Return the headers of a request that is signed now."""
    at = str(int(time.time()))
    return {
        "X-Student": name_header(student),
        "X-Time": at,
        "X-Digest": digest(body),
        "X-Signature": signature(token, student, at, body),
    }


def name_header(student: str) -> str:
    """Return a name as a header carries it: letters of any script, ASCII as it is."""
    plain = _PLAIN.fullmatch(student) and not student.startswith(MARK)
    return student if plain else MARK + quote(student, safe="")


def name_of(header: str) -> str:
    """Return the name in a header; "" for what is not a name."""
    if not header.startswith(MARK):
        return header
    try:
        return unquote_to_bytes(header[len(MARK) :]).decode("utf-8")
    except UnicodeDecodeError:
        return ""


def proves(given: str, token: str, student: str, at: str, digest: str) -> bool:
    """Return whether a signature is that of the token; whatever was sent in its place."""
    if not re.fullmatch("[0-9a-f]{64}", digest):
        return False
    expected = _signature(token, student, at, digest)
    return hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace"))


def seconds(at: str) -> int | None:
    """Return the time of a request, None if it is not a number of seconds."""
    return int(at) if re.fullmatch(r"[0-9]{1,12}", at) else None
