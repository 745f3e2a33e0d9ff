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
#: hook, and the grader's sandbox; the examples, below, are kernels of all kinds, with what is said
#: of their lines
TESTS = (
    "test_pythons",
    "labkit/test_grade_usages",
    "labkit/test_untrusted",
    "nkisim/cli/test_compiler_refusals",
    "nkisim/cli/test_coverage",
    "nkisim/errors/test_uncaught",
    "nkisim/language/test_nki_traced",
    "nkisim/language/test_traced_once",
    "nkisim/loops/test_bytecode",
    "nkisim/loops/test_loops_state",
    "nkisim/machine/test_truth_values",
    "nkisim/migrate/test_migrate",
    "nkisim/simulation/test_launch",
    "nkisim/trace/test_trace",
)
#: most of the time: with the oldest and the newest version only
SLOW = (
    "nkisim/checks/test_examples",
    "nkisim/errors/test_errors_kernels",
    "nkisim/test_doors",
    "nkisim/loops/test_loops_random",
    "nkisim/tuning/test_tune",
)


def attempt(version: str, python: str, names: tuple[str, ...]) -> bool:
    """Run the tests in an environment of their own, which is kept; return whether they passed."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    folder = ROOT / ".nox" / f"pythons-{version}"
    own = str(folder / ("Scripts" if os.name == "nt" else "bin") / "python")
    tests = [f"tests/{name}.py" for name in names]
    reports = os.environ.get("TRAINIUM_LABS_REPORTS")
    kept = [f"--junitxml={reports}/python-{version}.xml"] if reports else []
    return all(
        subprocess.run(command, cwd=ROOT, env=env).returncode == 0
        for command in (
            [python, "-m", "venv", str(folder)],
            [
                own,
                "-m",
                "pip",
                "install",
                "-q",
                "-e",
                ".[labs,plot]",
                "pytest",
                "pytest-xdist",
                "pytest-timeout",
                "hypothesis",
            ],
            [own, "-m", "pytest", "-q", "-n", "auto", "--dist", "worksteal", *kept, *tests],
        )
    )


def key(version: str) -> tuple[int, ...]:
    """Return what versions are ordered by."""
    return tuple(map(int, version.split(".")))


def main() -> int:
    """Try the versions given, or all but the running one; print a line for each."""
    asked = [v for v in VERSIONS if v != "{}.{}".format(*sys.version_info)]
    pythons = {v: python_of(v) for v in sys.argv[1:] or asked}
    absent = [f"Python {v}: not on the PATH, nor in pyenv" for v, p in pythons.items() if not p]
    here = {v: p for v, p in pythons.items() if p}
    ended = {}
    for version, python in here.items():
        print(f"\nPython {version} ({python})", flush=True)
        slow = SLOW if version in (min(here, key=key), max(here, key=key)) else ()
        ended[version] = attempt(version, python, TESTS + slow)
    print(
        "",
        *(f"Python {v}: {'passed' if ok else 'FAILED'}" for v, ok in ended.items()),
        *absent,
        sep="\n",
    )
    if reports := os.environ.get("TRAINIUM_LABS_REPORTS"):
        with open(Path(reports) / "not-installed", "a", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in absent)
    return 0 if all(ended.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
