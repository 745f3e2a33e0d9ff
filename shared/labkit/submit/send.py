"""Send a packed lab to the contest's live server, and wait for what it says."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from ..board.token import headers
from ..spec import SpecError


def ask(url: str, student: str, token: str, signed: bytes, body: bytes | None) -> dict[str, Any]:
    """Return the server's answer; raise SpecError with its own words if it refuses."""
    request = urllib.request.Request(
        url,
        data=body,
        headers={**headers(token, student, signed), "Content-Type": "application/octet-stream"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        try:
            problem = json.load(error)["error"]
        except (ValueError, LookupError, TypeError):
            problem = error.reason
        raise SpecError(f"the server says: {problem}") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise SpecError(f"{url} cannot be reached: {error}") from None


def send(console: Console, url: str, student: str, token_file: Path, data: bytes) -> int:
    """Send an archive and print its points when they are there; 1 if they are not full."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in ("127.0.0.1", "localhost"):
        raise SpecError("submissions are sent over https only")
    try:
        token = token_file.read_text(encoding="utf-8-sig").strip()
    except OSError as error:
        raise SpecError(f"{token_file} cannot be read: {error}") from None
    except UnicodeDecodeError:  # `>` of Windows PowerShell writes UTF-16
        raise SpecError(f"{token_file} is not UTF-8; save it as UTF-8") from None
    base = url.rstrip("/")
    number = ask(f"{base}/submit", student, token, data, data)["id"]
    console.print(f"sent: it is number {number}", highlight=False)
    while True:
        status = ask(f"{base}/status/{number}", student, token, str(number).encode(), None)
        if status["state"] == "done":
            break
        with console.status(f"{status['state']}, {status['before']} before it"):
            time.sleep(2)
    for line in status["lines"]:
        console.print(
            f"{line['points']:g} of {line['of']:g}  {escape(line['text'])}: {escape(line['why'])}",
            highlight=False,
            soft_wrap=True,
        )
    console.print(
        f"{status['points']:g} of {status['of']:g} points"
        + (f": {escape(status['problem'])}" if status.get("problem") else ""),
        highlight=False,
    )
    return 0 if status["points"] == status["of"] else 1
