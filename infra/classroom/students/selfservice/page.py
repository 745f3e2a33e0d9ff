"""What a student sees behind the link: one page that loads nothing, for a phone as for a desk.

Goes into the function's archive with `function.py`, its template and Jinja2.
"""

from __future__ import annotations

import secrets
import urllib.parse
from pathlib import Path
from typing import Any

import jinja2


def page(c: dict[str, Any], q: dict[str, str], a: dict[str, Any]) -> tuple[str, str]:
    """Return the answer as a page, and the policy that says what the page may load: nothing."""
    nonce = secrets.token_urlsafe(12)
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    made = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    text = made.get_template("page.html").render(
        a,
        name=c["name"],
        student=q.get("s", ""),
        rows=_rows(a["facts"]) if a["facts"] else [],
        again=urllib.parse.urlencode(q),
        program=urllib.parse.urlencode({**q, "get": "my.py"}),
        nonce=nonce,
    )
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-{nonce}'"
    return text, f"{policy}; form-action 'self'; base-uri 'none'"


def _rows(f: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what the page's table says of a machine."""
    rows = [
        ("state", f["state"]),
        ("address", f["address"] or "none while it is stopped"),
        ("log in", f"ssh {f['alias']}"),
        (
            "used",
            f"${f['used_usd']:.2f} of ${f['cap_usd']:.2f} ({f['hours']:.1f} hours;"
            f" {f['hours_left']:.1f} left at ${f['usd_hour']:.2f})",
        ),
        ("stops", f"every night at {f['stops_nightly']}, and when it idles"),
        ("deleted", f"on {f['ends']}, disks too"),
    ]
    if f["host_key"]:
        rows.append(("its key", f["host_key"]))
    if f["shared_with"]:
        rows.append(("shared with", ", ".join(f["shared_with"])))
    if f["asked"]:
        rows.append(("you asked for more", f["asked"][:16].replace("T", " ")))
    return rows
