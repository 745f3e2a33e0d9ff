"""Where the scans are asked: before a launch, and for a file; and how severe findings are."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import CodeType
from typing import Any

from ..checks.finding import Finding
from ..checks.strictness import OFF, STRICT, TEACH, setting
from ..errors import NkiError, fail
from . import program
from .beta1 import Beta1Scan
from .constructs import ACCEPTED, BETA1, BOTH, CONSTRUCTS, NEWEST, SEVERITY, TRACED, VERSIONS
from .nki import NkiScan
from .program import Function

#: what the compiler is known to refuse is an error; is said, and the kernel goes on; all that is
#: refused in a release or two is an error as well; nothing is said
LEVELS = REFUSE, *_ = "refuse", TEACH, STRICT, OFF
LEVEL_VARIABLE, VERSION_VARIABLE = "NKI_LANGUAGE", "NKI_LANGUAGE_VERSION"
#: AWS's variable that picks what turns a kernel into instructions: Python itself ("tracer", what
#: 0.7 does), or a compiler of its own ("custom" in the documents of 0.7, "parser" in those of 0.6)
FRONTEND_VARIABLE, FRONTENDS = "NKI_COMPILER_FRONTEND", ("tracer", "custom", "parser")
_IN_RUN = {row.id for row in CONSTRUCTS.values() if row.in_run}
_known: dict[tuple[int, str], tuple[CodeType, list[Finding]]] = {}  # hashing a code takes long


def release() -> str:
    """Return the release of NKI that the environment asks for; raise NkiError for other values."""
    return setting(VERSION_VARIABLE, VERSIONS, NEWEST, "NKI-G00")


def traced() -> bool:
    """Return whether kernels are specialized by tracing them: since 0.7, unless told otherwise.

    NKI 0.6 has both ways, and the other one as its default; earlier releases have one.
    """
    version = release()
    frontend = setting(
        FRONTEND_VARIABLE, FRONTENDS, "tracer" if version >= TRACED else "custom", "NKI-G00"
    )
    return frontend == "tracer" and version >= BOTH


def requested() -> tuple[str, str]:
    """Return (level, version of NKI whose language is held) from the environment.

    What Python a kernel may be made of goes with the way in which it is specialized.
    Raises: NkiError for values that there are not.
    """
    version = max(release(), TRACED) if traced() else min(release(), BOTH)
    return setting(LEVEL_VARIABLE, LEVELS, LEVELS[0], "NKI-G00"), version


def older() -> bool:
    """Return whether the version that is asked about is one before calls changed, 0.1 or 0.2."""
    return release() < "0.3"


def scan(functions: list[Function], version: str = NEWEST) -> list[Finding]:
    """Return what is to be said of functions, in the order of their lines."""
    findings: list[Finding] = []

    def read() -> None:
        findings.clear()
        for function in functions:
            kind = Beta1Scan if function.dialect == BETA1 else NkiScan
            findings.extend(kind(function, version).run())

    try:
        read()
    except RecursionError:
        _deeply(read)
    return findings


def _deeply(read: Callable[[], None]) -> None:
    """Call what reads source. Python runs expressions of thousands of terms, which are as deep."""
    limit, size = sys.getrecursionlimit(), threading.stack_size(256 << 20)
    sys.setrecursionlimit(100_000)
    try:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(read).result()
    finally:
        sys.setrecursionlimit(limit)
        threading.stack_size(size)


def of_kernel(func: Any, dialect: str = "") -> list[Finding]:
    """Return the findings about a kernel's source, before it runs; `dialect`: what it is in.

    Raises: NkiError for the first refused construct, if the level is "strict".
    """
    level, version = requested()
    if level == "off":
        return []
    code = getattr(func, "__code__", None)
    if code is None:
        return []
    key = id(code), version
    if key not in _known:
        if len(_known) > 4096:
            _known.clear()
        findings = scan(program.of_kernel(func, dialect), version)
        _known[key] = code, [f for f in findings if f.id not in _IN_RUN]
    scanned = _known[key][1]
    if level == "strict":
        refused = [f for f in scanned if f.severity == "warning"]
        if refused:
            raise as_error(refused[0], len(refused) - 1)
    return scanned


def in_run(key: str, what: str, remedy: str = "") -> tuple[str, str, str] | None:
    """Return (id, severity, text) of a construct that a run comes upon, None if it is accepted.

    `remedy`: what to write there, if that is more precise than the row's.

    Raises: NkiError for a refused construct, if the level is "strict".
    """
    setting, version = requested()
    row = CONSTRUCTS[key]
    verdict = row.verdict(version)
    if setting == "off" or verdict == ACCEPTED:
        return None
    if setting == "strict" and SEVERITY[verdict] == "warning":
        raise fail(row.id, f"{what}: {row.says}", hint=remedy or row.remedy)
    return row.id, SEVERITY[verdict], row.message(what, remedy)


def as_error(finding: Finding, more: int = 0) -> NkiError:
    """Return the error for a finding; `more` findings like it were there."""
    problem, _, _ = finding.text.partition(" (NKI ")
    rest = f"; {more} more like this" if more else ""
    return fail(finding.id, f"{problem}{rest}", where=finding.where)
