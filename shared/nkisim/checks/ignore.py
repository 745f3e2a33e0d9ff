"""Findings that were looked at: `# nkisim: ignore[NKI-L05] reason` on a line turns them off."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable

from ..errors import Where
from .finding import Finding

_COMMENT = re.compile(r"#\s*nkisim:\s*ignore\[([A-Z0-9, -]+)\]\s*(.*)")


_heeded = True


def heed_comments(yes: bool) -> None:
    """Let comments turn findings off in this process, or not."""
    global _heeded
    _heeded = yes


def is_ignored(finding: Finding) -> bool:
    """Return whether a comment with a reason, on a line that a finding names, turns it off."""
    return any(
        finding.id in ids and reason
        for ids, reason in map(_comment, (finding.where, finding.other))
    )


def without_ignored(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that no comment turns off; an `ignore` without a reason is said."""
    out = []
    for finding in findings:
        if is_ignored(finding):
            continue
        out.append(finding)
        for place in (finding.where, finding.other):
            ids, reason = _comment(place)
            if finding.id in ids and not reason:
                out.append(
                    Finding(
                        "NKI-X03",
                        "note",
                        f"{finding.id} is not ignored here: a reason belongs behind the bracket",
                        place,
                    )
                )
    return out


def _comment(place: Where | None) -> tuple[frozenset[str], str]:
    """Return the ids that a line's comment names, and its reason."""
    match = (
        _COMMENT.search(linecache.getline(place.file, place.line)) if place and _heeded else None
    )
    if match is None:
        return frozenset(), ""
    return frozenset(word.strip() for word in match[1].split(",")), match[2].strip()
