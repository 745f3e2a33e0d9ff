"""Handouts for one dialect, from pages that show both.

    <!-- beta1 -->only in the dialect of neuronxcc.nki<!-- /beta1 -->
    <!-- nki -->only in that of import nki<!-- /nki -->
    <!-- both -->only where a page shows both<!-- /both -->

Browsers and GitHub do not show such comments. They stand within a line or on lines of their own,
never in a block of code, since readers would see them there, nor before the text of a line, which
Markdown would take for HTML. What a page folds under the summary
"In the newer dialect" is unfolded where that is the only dialect.
"""

from __future__ import annotations

import re

from ..dialect import DIALECTS
from ..spec import SpecError

BOTH = "both"
FOLDED = "<details><summary>In the newer dialect</summary>"
_MARK = re.compile(r"<!-- (/?)([\w-]+) -->(\n?)")
#: a line, or item of a list, that begins with a mark
_BEGINS = re.compile(r"^ *(?:[*-] |\d+\. )? *(<!-- /?(?:beta1|nki|both) -->.*)", re.M)
_CODE = re.compile(r"^ *```.*?^ *```", re.M | re.S)


def render(text: str, dialect: str, page: str = "the page") -> str:
    """Return a Markdown page for readers of one dialect.

    Parts for the other dialect and for readers of both are left out. Names of files are those of
    the dialect: `kernels.py` and `tour.ipynb` stand for it in what both have in common, and
    `--dialect` goes, since a course's repository says which dialect is meant. The machine of the
    examples, my-trn1, is my-trn2 for `import nki`.
    Raises SpecError for markers that are nested, unclosed, stray, within a block of code or before
    the text of a line.
    """
    for block in _CODE.finditer(text):
        inside = next((m for m in _MARK.finditer(block[0]) if m[2] in (*DIALECTS, BOTH)), None)
        if inside:
            raise SpecError(f"{page}: {inside[0].strip()} is in a block of code and would be seen")
    kept: list[str] = []
    begun, place = "", 0
    for mark in _MARK.finditer(text):
        closing, name, end = mark.groups()
        if name not in (*DIALECTS, BOTH):
            continue
        where = f"{page}:{text.count(chr(10), 0, mark.start()) + 1}: {mark[0].strip()}"
        part = text[place : mark.start()]
        if not begun:
            if closing:
                raise SpecError(f"{where} without a beginning")
            kept.append(part)
            begun = name
        else:
            if not closing or name != begun:
                raise SpecError(f"{where} inside of <!-- {begun} -->")
            if begun == dialect:
                kept.append(_unfold(part))
            begun = ""
        alone = mark.start() == 0 or text[mark.start() - 1] == "\n"
        place = mark.end() if alone else mark.end() - len(end)
    if begun:
        raise SpecError(f"{page}: <!-- {begun} --> is never closed")
    for line in _BEGINS.finditer(text):
        if re.sub(r"<!--.*?-->", "", line[1]).strip():
            raise SpecError(
                f"{page}: a line begins with a mark and is raw HTML, whose links and `code` are "
                f"not shown as such: {line[0].strip()[:60]}"
            )
    whole = re.sub(r"\n{3,}", "\n\n", "".join([*kept, text[place:]]))
    return _named(whole, dialect)


def _unfold(part: str) -> str:
    """Return a part without the fold around it, if it is one."""
    before, fold, rest = part.partition(FOLDED)
    return before + rest.replace("</details>", "", 1) if fold else part


def _named(text: str, dialect: str) -> str:
    """Return a page with the names of files and flags that a dialect has."""
    text = re.sub(r" --dialect (beta1|nki)\b", "", text)
    if dialect == "beta1":
        return text
    text = re.sub(r"(?<!\w)(kernels|tour)\.(py|ipynb)\b", r"\1_nki.\2", text)
    return text.replace("my-trn1", "my-trn2")  # NKI 0.3 and later are for trn2 and later
