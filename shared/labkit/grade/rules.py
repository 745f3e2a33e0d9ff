"""What staff should look at in a submission: imports and names that no kernel needs.

None of it can earn a point, since the grader gives kernels nothing to gain by it; so a flag takes
no points either. It says where to look before talking to somebody.
"""
from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Mapping

_ALLOWED = {"__future__", "math", "numpy", "neuronxcc", "nki", "typing", "functools", "itertools",
            "dataclasses", "enum", "collections", "operator", "abc"}
_NAMES = {"exec", "eval", "compile", "open", "__import__", "globals", "locals", "vars", "setattr",
          "delattr", "input", "breakpoint"}
_TRACES = ("__simulator__", "nkisim", "labkit", "NKI_BACKEND", "NEURON_", "neuron0", "sys.modules",
           "__globals__", "__subclasses__", "__builtins__", "gc.get_objects")


def find_flags(file: str, text: str) -> list[dict[str, object]]:
    """Return {"file", "line", "what"} of each suspicious thing, in order; each line once."""
    try:
        tree = ast.parse(text.removeprefix("\ufeff"))   # a mark of byte order, which Python skips
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found: dict[int, str] = {}
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
                found.setdefault(node.lineno, f"imports {name[:60]}")
        if isinstance(node, ast.Name) and node.id in _NAMES:
            found.setdefault(node.lineno, f"uses {node.id}")
        if isinstance(node, ast.Attribute) and node.attr.startswith("__") \
                and node.attr not in ("__name__", "__init__", "__doc__"):
            found.setdefault(node.lineno, f"uses .{node.attr[:60]}")
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if any(trace in node.value for trace in _TRACES) and len(node.value) < 200:
                found.setdefault(node.lineno, "names a part of the simulator or the grader")
    return [{"file": file, "line": line, "what": what} for line, what in sorted(found.items())][:20]


def flags_of(files: Mapping[str, str]) -> list[dict[str, object]]:
    """Return the flags of all files, read in a process of its own: there is source that is so deep
    that Python 3.10 crashes on it, and a judge that crashes keeps a submission without a grade."""
    try:
        done = subprocess.run([sys.executable, "-S", __file__], input=json.dumps(dict(files)),
                              text=True, capture_output=True, timeout=120)
        if done.returncode == 0:
            return list(json.loads(done.stdout))
    except subprocess.TimeoutExpired:
        pass
    return [{"file": name, "line": 1, "what": "is what Python cannot read"} for name in files]


if __name__ == "__main__":
    json.dump([flag for name, text in json.load(sys.stdin).items()
               for flag in find_flags(name, text)], sys.stdout)
