"""What does not build: what compilers of NKI refuse, by release, and who says so."""

from __future__ import annotations

from ..errors.rules import RULES
from ..language.nki.refusals import VERDICTS
from ..language.nki.sentences import SENTENCES, Sentence, counts
from ..lint.constructs import CONSTRUCTS, NKI

_HEAD = """# What does not build, by release

Printed by `python -m nkisim coverage --releases`.

AWS's simulator of the package `nki` runs forms that its compiler refuses. Here what the compiler
is known to refuse is an **error**, in testers, `run`, `check`, `profile`, `simulate` and grading.
`NKI_LANGUAGE=teach` makes a warning of it and goes on; `NKI_LANGUAGE_VERSION` names the release
that is asked about ([environment](../docs/environment.md)). Kernels of `neuronxcc.nki` are not
concerned: its compiler makes other instructions of a division, and repeats columns.

How a verdict is known stands in each row: *documented* (release notes, API reference), *met in
builds* (a compiler said it), *met in builds of one team* (which makes a note or a warning, no
error), *ran on a chip*, *read in the open compiler* (leanprover/KLR, the front end of NKI 0.1 and
0.2).

## Forms of calls

| form | verdict | a finding is | releases | generations | how it is known | rule |
|---|---|---|---|---|---|---|"""

_PYTHON = """
## Python of kernels

What becomes of a construct of Python, by release:
[limits of the language](../docs/language-limits.md) says what the words mean. What no row names is
taken by all releases.

| limit | verdicts | source | rule |
|---|---|---|---|"""

_SENTENCES = """
## What AWS's documents say, and our answer

Each sentence of the known issues and limits of NKI {first} to {last}, in our words. A rule in the
last column says it of a kernel; `python -m nkisim explain ID` has a wrong and a right one.
"""


def markdown() -> str:
    """Return the text of the page."""
    parts = [_HEAD]
    for row in VERDICTS:
        parts.append(
            f"| `{row.form}` | {row.verdict} | {row.severity} | {row.releases} | "
            f"{row.generations} | {_cell(row.basis)} | {row.id} |"
        )
    parts.append(_PYTHON)
    for kind in CONSTRUCTS.values():
        if kind.dialect == NKI:
            parts.append(f"| {_cell(kind.title)} | {kind.history()} | {kind.source} | {kind.id} |")
    releases = [s.release for s in SENTENCES]
    parts.append(_SENTENCES.format(first=min(releases), last=max(releases)))
    for (release, heading), number in counts().items():
        parts += [f"### {release}, {heading} ({number})\n", "| it says | here |", "|---|---|"]
        parts += [
            f"| {_cell(s.says)} | {_answer(s)} |"
            for s in SENTENCES
            if (s.release, s.heading) == (release, heading)
        ]
        parts.append("")
    answered = sum(bool(s.rules) for s in SENTENCES)
    parts.append(f"{len(SENTENCES)} sentences; rules answer {answered} of them.")
    return "\n".join(parts) + "\n"


def _answer(s: Sentence) -> str:
    rules = ", ".join(f"{id} ({RULES[id].title})" for id in s.rules)
    return "; ".join(part for part in (rules, s.remark) if part)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
