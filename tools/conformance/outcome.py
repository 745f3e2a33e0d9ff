"""What became of a case, in four words, and why.

passed    the values are right, or the suite's own assertions hold
refused   nkisim raised NkiError: it says that NKI or the chip would not take this
failed    wrong values, a broken assertion, a crash, or not finished in time
not here  nothing that the simulator is asked: another dialect, a package that is not installed,
          hardware, a function that it says it does not model, or a kernel that ends itself (its own
          `raise`, a name it never defines)
"""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PASSED, REFUSED, FAILED, NOT_HERE = "passed", "refused", "failed", "not here"
_NOT_MODELLED = "exists in NKI and is not modelled here"  # nkisim, of a name of the public API
OUTCOMES = (PASSED, REFUSED, FAILED, NOT_HERE)


@dataclass(frozen=True)
class Finding:
    """A warning or an error that a run printed: see nkisim.Finding."""

    id: str
    severity: str
    text: str
    place: str = ""


@dataclass(frozen=True)
class Result:
    """What became of one case. `reason`: an id of nkisim's rules first, where there is one."""

    case: str
    outcome: str
    reason: str = ""
    place: str = ""
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return it JSON-ready."""
        return asdict(self)


def of_exception(
    case: str, error: BaseException, root: Path, *, asserts: bool, ran: bool = True
) -> Result:
    """Return the result of a case that ended in an exception.

    `asserts`: the suite judges itself, so that its `raise` and `assert` mean a failure; otherwise
    they are the kernel's own way to say no. `ran`: a kernel ran before.
    """
    import nkisim

    rule = next((e for e in _chain(error) if isinstance(e, nkisim.NkiError)), None)
    if rule is not None:
        where = rule.where
        return Result(
            case, REFUSED, f"{rule.id} {rule.what}", f"{where.file}:{where.line}" if where else ""
        )
    place, line = _place(error, root)
    what = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    if any(_NOT_MODELLED in str(e) for e in _chain(error)):
        return Result(case, NOT_HERE, what, place)
    if isinstance(error, (ImportError, SyntaxError)):
        if isinstance(error, SyntaxError) and error.filename:
            place = f"{error.filename}:{error.lineno}"
        return Result(case, NOT_HERE, what, place)
    says_no = line.startswith(("raise", "assert")) and not asserts
    never = not ran and not isinstance(error, AssertionError) and not _came_here(error)
    if says_no or never or isinstance(error, NameError) and line:
        return Result(case, NOT_HERE, f"its own {what}", place)
    if not isinstance(error, AssertionError):
        what = f"crash: {what}"
    return Result(case, FAILED, what, place)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what it was raised from: harnesses wrap what a kernel raised."""
    while error is not None:
        yield getattr(error, "nki_error", error)
        error = error.__cause__


def _came_here(error: BaseException) -> bool:
    """Return whether an error, or what it was raised from, went through the simulator."""
    import nkisim

    ours = str(Path(nkisim.__file__).parent)
    return any(
        frame.filename.startswith(ours)
        for e in _chain(error)
        for frame in traceback.extract_tb(e.__traceback__)
    )


def _place(error: BaseException, root: Path) -> tuple[str, str]:
    """Return the innermost place in the checkout and its source; no source if it went deeper."""
    frames = traceback.extract_tb(error.__traceback__)
    for i, frame in enumerate(reversed(frames)):
        if str(Path(frame.filename).resolve()).startswith(str(root.resolve())):
            line = linecache.getline(frame.filename, frame.lineno or 0).strip()
            return f"{frame.filename}:{frame.lineno}", line if i == 0 else ""
    return "", ""


_FINDING = re.compile(
    r"^(error|warning): (NKI-\w+) (.*)(?:\n  at (.+?:\d+)(?:, in .*?)?: .*)?", re.MULTILINE
)


def findings_in(text: str) -> list[Finding]:
    """Return the findings that a run printed to stderr, each once."""
    found = {
        (m[2], m[4] or m[3]): Finding(m[2], m[1], m[3], m[4] or "") for m in _FINDING.finditer(text)
    }
    return list(found.values())
