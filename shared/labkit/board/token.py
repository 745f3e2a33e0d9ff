"""What a student's request to the live server carries: proof of the token, never the token."""
from __future__ import annotations

import hashlib
import hmac
import time


def signature(token: str, student: str, at: str, body: bytes) -> str:
    """Return what goes into X-Signature: HMAC-SHA256 of student, time and body."""
    text = f"{student}\n{at}\n".encode() + hashlib.sha256(body).digest()
    return hmac.new(token.encode(), text, hashlib.sha256).hexdigest()


def headers(token: str, student: str, body: bytes) -> dict[str, str]:
    """Return the headers of a request that is signed now."""
    at = str(int(time.time()))
    return {"X-Student": student, "X-Time": at, "X-Signature": signature(token, student, at, body)}
