"""The ladder of verdicts: what a kernel passes, from its text to its values."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..checks.finding import Finding
from ..errors import NkiError
from ..lint.constructs import CONSTRUCTS

#: step -> what it means to pass it, from the ground up
STEPS = {
    "parses": "the file is Python, and has the kernel",
    "lints": "no construct in the source that the release's compiler refuses",
    "accepted": "no rule of the release or of the chip is broken",
    "runs": "it returns, in time and memory",
    "right": "its outputs are the reference's, for the inputs given and for fresh ones",
    "any_order": "the same in a shuffled order of what hardware may reorder",
    "defined": "no output depends on memory that nothing has written",
}
#: the verdict where a step is the first that failed
FAILED = {
    "parses": "does_not_parse",
    "lints": "lint",
    "accepted": "refused",
    "runs": "fails",
    "right": "wrong",
    "any_order": "order_dependent",
    "defined": "undefined",
}
#: rules about memory that nothing has written
UNDEFINED = ("NKI-U01", "NKI-U02", "NKI-O04")
#: rules about a value that depends on an order which hardware does not keep
ORDER = ("NKI-L02", "NKI-L04", "NKI-L05")
#: how the error of a name begins that NKI does not have
_NO_NAME = re.compile(r"(?:neuronxcc\.)?nki\b[\w.]* has no ")
_IN_SOURCE = {row.id for row in CONSTRUCTS.values()}


@dataclass
class Step:
    """One step: `passed` is None where it was not looked at, and `text` says why or what."""

    name: str
    passed: bool | None = None
    text: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return {"step": self.name, "passed": self.passed, "text": self.text}


class Ladder:
    """The steps of one kernel; each begins as not looked at."""

    def __init__(self) -> None:
        self.steps = {name: Step(name, text="not reached") for name in STEPS}

    def __getitem__(self, name: str) -> Step:
        return self.steps[name]

    def set(self, name: str, passed: bool | None, text: str = "") -> None:
        """Say how a step went; one that has failed stays failed, with its first text."""
        step = self.steps[name]
        if step.passed is not False:
            step.passed, step.text = passed, text

    @property
    def verdict(self) -> str:
        """Return "right", "runs" where no reference says so, or what the first step that failed
        is called in FAILED."""
        for step in self.steps.values():
            if step.passed is False:
                return FAILED[step.name]
        return "right" if self.steps["right"].passed else "runs"

    def broken(self, error: BaseException) -> None:
        """Note at which step an exception ended the kernel."""
        rule = getattr(error, "nki_error", error)
        if isinstance(error, AttributeError) and _NO_NAME.match(str(error)):
            self.set("lints", True)
            self.set("accepted", False, str(error))
            return
        if not isinstance(rule, NkiError):
            self.set("accepted", None, "unknown: it ended before its end")
            self.set("runs", False, f"{type(error).__name__}: {error}".strip(": "))
            return
        text = f"{rule.id} {rule.what}"
        if rule.id in UNDEFINED:
            self.set("accepted", True)
            self.set("runs", True)
            self.set("defined", False, text)
        elif rule.id in _IN_SOURCE:
            self.set("lints", False, text)
        else:
            self.set("lints", True)
            self.set("accepted", False, text)

    def add_findings(self, findings: Iterable[Finding]) -> None:
        """Note what the findings of a run that returned say."""
        self.set("lints", True)
        self.set("accepted", True)
        self.set("runs", True)
        self.set("defined", True)
        for f in findings:
            text = f"{f.id} {f.text}"
            if f.refused:
                self.set("lints" if f.id in _IN_SOURCE else "accepted", False, text)
            elif f.severity == "error" and f.id in UNDEFINED:
                self.set("defined", False, text)
            elif f.severity != "note" and f.id in ORDER:
                self.set("any_order", False, text)
            elif f.severity == "error":
                self.set("accepted", False, text)

    def to_list(self) -> list[dict[str, Any]]:
        """Return the steps ready for JSON, from the ground up."""
        return [step.to_dict() for step in self.steps.values()]
