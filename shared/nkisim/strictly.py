"""What graders ask of the public door before any kernel runs: a process that only reads source
imports no simulator for it."""

from __future__ import annotations

import os

from . import course
from .checks.finding import Finding, worst_first
from .checks.ignore import heed_comments
from .lint import level, program


def be_strict() -> None:
    """Judge kernels of others in this process: no comment of theirs turns a finding off, and the
    environment's settings of NKI and of nkisim, the target included, have their defaults, and no
    pyproject.toml is read. The course, which release of NKI is asked about, and whether generations
    count that it does not support, stay as they are set: that is the choice of the staff."""
    for name in [
        n
        for n in os.environ
        if n.startswith(("NKI_", "NKISIM_"))
        and n
        not in (
            level.VERSION_VARIABLE,
            level.FRONTEND_VARIABLE,
            course.VARIABLE,
            course.TARGETS_VARIABLE,
        )
    ] + ["NEURON_PLATFORM_TARGET_OVERRIDE", "NEURON_LOGICAL_NC_CONFIG"]:
        os.environ.pop(name, None)
    heed_comments(False)
    course.heed_files(False)


def refusals(text: str, file: str, kernel: str, dialect: str) -> list[Finding]:
    """Return what AWS's compiler refuses in the source of a kernel; nothing is run.

    Args: the text of a file and its name, the kernel's name, "beta1" or "nki" where the imports of
    the file do not tell. Functions of the file that the kernel calls are read as well.
    Raises: SyntaxError if the text is not Python.
    """
    functions = program.of_text(
        text, file, dialect, lambda node: getattr(node, "name", "") == kernel
    )
    return worst_first(f for f in level.scan(functions) if f.refused)
