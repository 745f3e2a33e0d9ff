"""Run the tests that depend on the version of Python in each other Python that is here.

    python tests/labkit/try_pythons.py [VERSION ...]

Ends with 1 if one fails. A version that is not here is named; CI names it at its end.
"""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from try_wheel import VERSIONS, python_of

ROOT = Path(__file__).parents[2]
#: what reads instructions, frames, syntax trees and signatures, starts processes, or is a start-up
#: hook; the examples are kernels of all kinds, with what is said of their lines
TESTS = ("test_pythons", *(f"nkisim/test_{name}" for name in (
    "bytecode", "compiler_refusals", "coverage", "doors", "errors_kernels", "examples", "launch",
    "migrate", "nest_random", "nki_traced", "replay_state", "trace", "traced_once", "truth_values",
    "tune", "uncaught")))


def attempt(version: str, python: str) -> bool:
    """Run the tests in an environment of their own, which is kept; tell whether they passed."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    folder = ROOT / ".nox" / f"pythons-{version}"
    own = str(folder / ("Scripts" if os.name == "nt" else "bin") / "python")
    tests = [f"tests/{name}.py" for name in TESTS]
    reports = os.environ.get("TRAINIUM_LABS_REPORTS")
    kept = [f"--junitxml={reports}/python-{version}.xml"] if reports else []
    return all(subprocess.run(command, cwd=ROOT, env=env).returncode == 0 for command in (
        [python, "-m", "venv", str(folder)],
        [own, "-m", "pip", "install", "-q", "-e", ".[labs,plot]", "pytest", "pytest-xdist",
         "hypothesis"],
        [own, "-m", "pytest", "-q", "-n", "auto", "--dist", "worksteal", *kept, *tests]))


def main() -> int:
    """Try the versions given, or all but the running one; print a line for each."""
    ended, absent = {}, []
    for version in sys.argv[1:] or VERSIONS:
        if version == "{}.{}".format(*sys.version_info) and not sys.argv[1:]:
            continue
        python = python_of(version)
        if python is None:
            absent.append(f"Python {version}: not on the PATH, nor in pyenv")
            continue
        print(f"\nPython {version} ({python})", flush=True)
        ended[version] = attempt(version, python)
    print("", *(f"Python {v}: {'passed' if ok else 'FAILED'}" for v, ok in ended.items()), *absent,
          sep="\n")
    if reports := os.environ.get("TRAINIUM_LABS_REPORTS"):
        with open(Path(reports) / "not-installed", "a", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in absent)
    return 0 if all(ended.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
