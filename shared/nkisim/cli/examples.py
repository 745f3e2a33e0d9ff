"""A wrong and a right kernel for a rule, in each dialect: shown by `explain`, run by the tests.

They lie in data/examples, a file for each subject. An example is the body of a kernel of one HBM
tensor `x` (128, 512, float32), as the difference of the wrong kernel and the right one:

    == NKI-S02 beta1 columns that differ :: free
      t = nl.load(x)
    - u = nl.add(t, t[:, 0:64])
    + u = nl.add(t, t[:, 0:1])

The heading has the rule, the dialect, a target if it is not trn2, a release of NKI if it is not the
newest, a title, and behind `::` words; the finding says one of them. Lines marked `-` are of the
wrong kernel, `+` of the right one, `*` and blank of both; a finding names a line marked `-` or `*`.
A body without `return` gets an output that is not shown. Text with a `def` is complete, and a line
that begins with `>>>` says how to call it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "data" / "examples"
BETA1, NKI = "beta1", "nki"
#: dialect -> how its package is called
PACKAGES = {BETA1: "neuronxcc.nki", NKI: "nki"}
#: what stands above an example; {} is the package
INTRODUCTION = "With import {}, - is wrong and + right (x: 128 x 512, float32):"
_HEADING = re.compile(r"== (\S+) (beta1|nki)(?: (trn\d))?(?: (0\.\d))? (.+?)(?: :: (.+))?")
_HEAD = {
    BETA1: "import neuronxcc.nki as nki\nimport neuronxcc.nki.compiler as ncc\n"
    "import neuronxcc.nki.isa as nisa\nimport neuronxcc.nki.language as nl\n",
    NKI: "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n",
}


@dataclass(frozen=True)
class Example:
    """A wrong and a right kernel; `lines`: (mark, text), `says`: words, one of them is said."""

    id: str
    dialect: str
    title: str
    target: str
    release: str  # of NKI, "" for the newest
    says: tuple[str, ...]
    lines: tuple[tuple[str, str], ...]

    @property
    def introduction(self) -> str:
        """Return what stands above the example."""
        return INTRODUCTION.format(
            f"`{PACKAGES[self.dialect]}`" + (f" {self.release}" if self.release else "")
        )

    def text(self, wrong: bool) -> list[str]:
        """Return the lines of the wrong or of the right kernel."""
        return [text for mark, text in self.lines if mark != ("+" if wrong else "-")]

    def named(self) -> set[str]:
        """Return the lines that a finding about the wrong kernel may name."""
        return {
            text.strip().replace(">>> ", "result = ") for mark, text in self.lines if mark in "-*"
        }

    def source(self, wrong: bool) -> str:
        """Return a module that launches the kernel on an `x` that is there."""
        calls = [line for line in self.text(wrong) if line.startswith(">>>")] or [">>> kernel(x)"]
        lines = [line for line in self.text(wrong) if not line.startswith(">>>")]
        if not any(re.match(r"\s*def ", line) for line in lines):
            if not any(re.match(r"\s*return", line) for line in lines):
                lines = [
                    "out = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.shared_hbm)",
                    *lines,
                    "nl.store(out, 0.0)",
                    "return out",
                ]
            lines = ["@nki.jit", "def kernel(x):", *("    " + line for line in lines)]
        return "\n".join(
            [
                "import dataclasses",
                "import numpy as np",
                _HEAD[self.dialect],
                "",
                *lines,
                "",
                "",
                calls[0].replace(">>> ", "result = "),
                "",
            ]
        )

    def diff(self) -> str:
        """Return both kernels as a difference, for people."""
        return "\n".join(
            f"{mark if mark in '-+' else ' '} {text}".rstrip() for mark, text in self.lines
        )


@cache
def examples() -> tuple[Example, ...]:
    """Return all examples, in the order of the files."""
    found: list[Example] = []
    for path in sorted(FOLDER.glob("*.txt")):
        for block in re.split(r"^(?=== )", path.read_text(encoding="utf-8"), flags=re.M)[1:]:
            heading, *lines = block.rstrip("\n").split("\n")
            match = _HEADING.fullmatch(heading)
            if match is None:
                raise ValueError(f"{path.name}: no heading of an example: {heading}")
            id, dialect, target, release, title, says = match.groups()
            found.append(
                Example(
                    id,
                    dialect,
                    title,
                    target or "trn2",
                    release or "",
                    tuple(says.split("|")) if says else (),
                    tuple((line[:1] or " ", line[2:]) for line in lines),
                )
            )
    return tuple(found)


def of_rule(id: str) -> list[Example]:
    """Return the first example of a rule in each dialect that has one."""
    first: dict[str, Example] = {}
    for example in examples():
        if example.id == id:
            first.setdefault(example.dialect, example)
    return [first[d] for d in PACKAGES if d in first]
