"""The profile as one self-contained page: no network, no build step, opened by double click."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from .columns import Report, ReportError
from .document import report_of

MOST_COMPARED = 8
LARGEST_INLINE = 4_000_000  # characters
PAGE = Path(__file__).with_name("page")
SCRIPTS = (
    "profile.js",
    "accounts.js",
    "lanes.js",
    "timeline.js",
    "search.js",
    "values.js",
    "panels.js",
    "memory.js",
    "measured.js",
    "main.js",
)


def save_html(
    prof: Any, path: str | os.PathLike[str], compare: Any = None, names: Sequence[str] = ()
) -> None:
    """Write the page of a profile; with `compare`, of several above each other.

    `compare`: a profile, or a list of at most seven; `names`: what the page calls each, the first
    one first (default: its kernel, and what tells it from the others).
    Raises ReportError for a kernel that executed nothing, and for more than eight profiles.
    """
    others = [] if compare is None else compare if isinstance(compare, (list, tuple)) else [compare]
    reports = [report_of(p) for p in (prof, *others)]
    if len(reports) > MOST_COMPARED:
        raise ReportError(
            f"{len(reports)} profiles were given; a page compares at most {MOST_COMPARED}."
        )
    for n, name in enumerate(names[: len(reports)]):
        reports[n] = Report({**reports[n].head, "label": name}, reports[n].columns)
    text = page(*reports)
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)


def inline(prof: Any) -> str:
    """Return the page as an element of a notebook: a frame that cannot reach the notebook.

    One of more than LARGEST_INLINE would make the notebook large: the summary takes its place.
    """
    try:
        text = page(report_of(prof))
    except ReportError as error:
        return f"<pre>{escape(str(error))}</pre>"
    if len(text) > LARGEST_INLINE:
        return (
            f"<pre>{escape(prof.summary())}</pre><p>save_html(path) writes the page, of "
            f"{len(text) / 1e6:.0f} MB.</p>"
        )
    return (
        f'<iframe sandbox="allow-scripts" srcdoc="{escape(text)}" title="profile" '
        'style="box-sizing:border-box;width:100%;height:40em;border:1px solid #8888"></iframe>'
    )


def page(report: Report, *others: Report) -> str:
    """Return the page as text."""
    script = "\n".join((PAGE / name).read_text("utf-8") for name in SCRIPTS)
    style = (PAGE / "style.css").read_text("utf-8")
    data = _data("profile", report) + "".join(
        _data(f"compare{n if n > 1 else ''}", other) for n, other in enumerate(others, 1)
    )
    # The page runs its own script and nothing else, and cannot reach the network: what a kernel's
    # source says can neither run nor leave.
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    kind = "measured and predicted" if report.head.get("measured") else "predicted"
    known = (report.head["kernel"], report.head.get("case"), report.head["target"])
    values = {
        "kind": kind,
        "title": escape(" - ".join(filter(None, known))),
        "policy": policy,
        "style": style,
        "script": script,
        "data": data,
    }
    template = (PAGE / "index.html").read_text("utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: values[mark[1]], template)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()


def _data(id: str, report: Report) -> str:
    """Return a report as a data block; without "<" no source text can close the block."""
    text = json.dumps(report.pack(), separators=(",", ":"), allow_nan=False)
    text = text.replace("<", "\\u003c")
    return f'<script type="application/json" id="{id}">{text}</script>\n'
