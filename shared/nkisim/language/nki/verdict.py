"""What a verdict is: what becomes of a form in a release on a generation, and who says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...chip import hw
from ...chip.hw import CORES, TARGETS
from ...errors.rules import Rule
from ...lint.constructs import NEWEST, VERSIONS
from ...machine.interface import Machine

REFUSED, WRONG = "refused by the compiler", "wrong on the chip"
ACCEPTED, UNSURE = "accepted", "accepted, with doubts"
#: how a verdict is known
DOCUMENTED, BUILT, ONCE, RAN, READ = (
    "documented",
    "met in builds",
    "met in builds of one team",
    "ran on a chip",
    "read in the open compiler",
)

#: gets the machine and the arguments by name; says what is refused, or None
Test = Callable[[Machine, dict[str, Any]], "str | None"]


def never(m: Machine, given: dict[str, Any]) -> str | None:
    """Return None: the front end finds such a form at another place than a call."""
    return None


@dataclass(frozen=True)
class Verdict:
    """A row: a form, its verdict, and who says so.

    `code`: the compiler's code or the document; `severity`: how a finding of it is graded, "error"
    stops the kernel (`refusals.say`); `calls`: the instructions ("tensor_tensor") and functions
    ("nl.divide") that `test` looks at, empty for all instructions; `since`, `until`: the releases
    that have it; `targets`: the generations, empty for all; `form`: how it is written; `cure`: gets
    the arguments, and returns what to write in place of them, "" for `remedy`.
    """

    id: str
    code: str
    severity: str
    title: str
    test: Test
    calls: frozenset[str]
    text: str
    remedy: str
    form: str
    verdict: str = REFUSED
    known: tuple[str, ...] = (DOCUMENTED,)
    since: str = "0.1"
    until: str = NEWEST
    targets: tuple[str, ...] = ()
    cure: Callable[[dict[str, Any]], str] | None = None

    def holds(self, release: str, target: str) -> bool:
        """Return whether the verdict is one of a release on a generation."""
        return VERSIONS.index(self.since) <= VERSIONS.index(release) <= VERSIONS.index(
            self.until
        ) and (not self.targets or target in self.targets)

    @property
    def releases(self) -> str:
        """Return the releases as text."""
        if self.since == self.until:
            return f"NKI {self.since}"
        return f"NKI {self.since} to {self.until}"

    @property
    def generations(self) -> str:
        """Return the generations as text."""
        return ", ".join(self.targets or (core.name for core in CORES))

    @property
    def basis(self) -> str:
        """Return how the verdict is known, and from where."""
        return ", ".join(self.known) + (f" ({self.code})" if self.code else "")

    def __str__(self) -> str:
        return (
            f"`{self.form}`: {self.verdict}; {self.releases}; {self.generations}. "
            f"How it is known: {self.basis}."
        )


def page(rows: Sequence[Verdict]) -> Rule:
    """Return the page of a rule: its rows have one id."""
    first = rows[0]
    text = "\n".join((first.text, *dict.fromkeys(map(str, rows)), f"Try: {first.remedy}."))
    is_refused = any(row.verdict == REFUSED or BUILT in row.known for row in rows)
    return Rule(
        first.id, first.title, text, hint=first.remedy, refused="warning" if is_refused else ""
    )


def before(target: str) -> tuple[str, ...]:
    """Return the generations before one."""
    return TARGETS[: CORES.index(hw.get(target))]
