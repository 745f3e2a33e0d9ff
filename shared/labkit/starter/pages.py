"""What the pages of an export link to: figures, and sections of pages that are not exported.

A starter of one lab has no link that leads nowhere: where its handout refers to a section of
another lab's, that section comes along as a page of its own.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from ..spec import SpecError

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^(#+) (.*)$", re.M)


#: what a page of the staff's repository becomes in an export: its text and name, to its text
Render = Callable[[str, str], str]


def as_it_is(text: str, page: str) -> str:
    """Return the text of a page unchanged."""
    return text


def bring_linked(root: Path, files: dict[str, bytes], render: Render = as_it_is) -> None:
    """Add to `files` (name in the export -> content) what their Markdown pages link to.

    A link to `PAGE.md#section` of a page that is not exported is turned to docs/FOLDER-section.md,
    which has that section (docs/PAGE-section.md for a page of docs/). Raises SpecError for any
    other link to what is not in the export.
    """
    todo = sorted(name for name in files if name.endswith(".md"))
    while todo:
        page = todo.pop()
        folder = posixpath.dirname(page)
        text = files[page].decode()
        for link in dict.fromkeys(_LINK.findall(text)):
            target, _, anchor = link.partition("#")
            path = posixpath.normpath(posixpath.join(folder, target))
            if not target or re.match(r"\w+:", link) or path in files:
                continue
            if not (root / path).is_file() or not (anchor or path.endswith(".svg")):
                raise SpecError(
                    f"{page} links to {link}, which is not in the export: link to a "
                    "figure, or to a section of a page (PAGE.md#section)"
                )
            if anchor:
                source, of = path, posixpath.basename(posixpath.dirname(path))
                if of == "docs":
                    of = posixpath.splitext(posixpath.basename(path))[0]
                path = f"docs/{of}-{anchor}.md"
                if path not in files:
                    files[path] = section(root, source, anchor, render).encode()
                    todo.append(path)
                text = text.replace(f"]({link})", f"]({posixpath.relpath(path, folder or '.')})")
            else:
                files[path] = (root / path).read_bytes()
        files[page] = text.encode()


def slug(heading: str) -> str:
    """Return the name by which a link calls a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def section(root: Path, page: str, anchor: str, render: Render = as_it_is) -> str:
    """Return a section of a page as a page in docs/, its links turned to where it lies then."""
    text = render((root / page).read_text(encoding="utf-8"), page)
    headings = list(_HEADING.finditer(text))
    for k, head in enumerate(headings):
        if slug(head[2]) == anchor:
            end = next((h.start() for h in headings[k + 1 :] if len(h[1]) <= len(head[1])), None)
            body = text[head.end() : end].strip()
            break
    else:
        raise SpecError(f"{page} has no section #{anchor}")

    def turned(link: re.Match[str]) -> str:
        target, mark, place = link[1].partition("#")
        if re.match(r"\w+:", link[1]):
            return link[0]
        path = (
            posixpath.normpath(posixpath.join(posixpath.dirname(page), target)) if target else page
        )
        return f"]({posixpath.relpath(path, 'docs')}{mark}{place})"

    return f"# {head[2]}\n\n{_LINK.sub(turned, body)}\n"
