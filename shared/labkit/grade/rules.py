"""Read the text of a submission: what staff should look at, and what the compiler refuses.

Imports and names that no kernel needs are flags. None of them can earn a point, since the grader
gives kernels nothing to gain by it; so a flag takes no points either. What AWS's compiler is known
to refuse in the source of a kernel fails the cases of that kernel.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ..run.refused import UNREADABLE, deeply, refused_in

_ALLOWED = frozenset(
    """
        __future__ math numpy neuronxcc nki typing functools itertools dataclasses enum
        collections operator abc
    """.split()
)
_NAMES = frozenset(
    """
        exec eval compile open __import__ globals locals vars setattr delattr input breakpoint
    """.split()
)
_TRACES = (
    "__simulator__",
    "nkisim",
    "labkit",
    "NKI_BACKEND",
    "NEURON_",
    "neuron0",
    "sys.modules",
    "__globals__",
    "__subclasses__",
    "__builtins__",
    "gc.get_objects",
)


SLOWEST = 60.0  # seconds that looking at a submission's source may take


def find_flags(file: str, text: str) -> list[dict[str, object]]:
    """Return {"file", "line", "what"} of each suspicious thing, in order; each line once."""
    try:
        tree = ast.parse(text.removeprefix("\ufeff"))  # a mark of byte order, which Python skips
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    flags: dict[int, str] = {}
    for node in ast.walk(tree):
        if not isinstance(node, (ast.stmt, ast.expr)):
            continue
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "."]
        for name in names:
            if name.split(".")[0] not in _ALLOWED:
                flags.setdefault(node.lineno, f"imports {name[:60]}")
        if isinstance(node, ast.Name) and node.id in _NAMES:
            flags.setdefault(node.lineno, f"uses {node.id}")
        if (
            isinstance(node, ast.Attribute)
            and node.attr.startswith("__")
            and node.attr not in ("__name__", "__init__", "__doc__")
        ):
            flags.setdefault(node.lineno, f"uses .{node.attr[:60]}")
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if any(trace in node.value for trace in _TRACES) and len(node.value) < 200:
                flags.setdefault(node.lineno, "names a part of the simulator or the grader")
    return [{"file": file, "line": line, "what": flag} for line, flag in sorted(flags.items())][:20]


def read_source(
    files: Mapping[str, str], kernels: str, names: Sequence[str], dialect: str
) -> tuple[list[dict[str, object]], dict[str, list[dict[str, object]]]]:
    """Return the flags of all files, and what the compiler refuses by kernel of the file `kernels`.

    The text is read in a process of its own: there is source that is so deep that Python 3.10
    crashes on it, and a judge that crashes keeps a submission without a grade.
    """
    job = {"files": dict(files), "kernels": kernels, "names": list(names), "dialect": dialect}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "labkit.grade.rules"],
            input=json.dumps(job),
            text=True,
            capture_output=True,
            timeout=SLOWEST,
        )
        if done.returncode == 0:
            answer = json.loads(done.stdout)
            return answer["flags"], answer["refused"]
    except subprocess.TimeoutExpired:
        pass
    return (
        [{"file": name, "line": 1, "what": "is what Python cannot read"} for name in files],
        {name: [UNREADABLE] for name in names},
    )


def _refused(job: Mapping[str, Any]) -> dict[str, list[dict[str, object]]]:
    import nkisim

    nkisim.be_strict()
    text = job["files"].get(job["kernels"], "")
    nkisim.register_source(job["kernels"], text)
    by_kernel: dict[str, list[dict[str, object]]] = {}
    for name in job["names"]:
        try:
            by_kernel[name] = refused_in(text, job["kernels"], name, job["dialect"])
        except (SyntaxError, ValueError):
            break  # the kernels do not run either
        except (RecursionError, MemoryError):
            by_kernel[name] = [UNREADABLE]
    return by_kernel


def main() -> None:
    """Read files from standard input and write the findings in their text."""
    asked = json.load(sys.stdin)
    flags = [flag for name, text in asked["files"].items() for flag in find_flags(name, text)]
    json.dump({"flags": flags, "refused": _refused(asked)}, sys.stdout)


if __name__ == "__main__":
    deeply(main)
