"""Install a wheel (and an sdist) into empty environments of every Python here, and use it.

    python tests/labkit/try_wheel.py dist/*.whl dist/*.tar.gz

Ends with 1 if one fails, and with 2 if no Python of VERSIONS was found.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14", "3.15")
KERNEL = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def double(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(x), 2.0))
    return out


if __name__ == "__main__":
    x = np.ones((128, 4), np.float32)
    assert (double(x) == 2 * x).all()
    print("doubled")
"""


def has_version(python: str, version: str) -> bool:
    """Return whether a program is a Python of this version (a shim may be there and not work)."""
    try:
        done = subprocess.run(
            [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            timeout=60,
        )
    except OSError:
        return False
    return done.stdout.strip() == version


def python_of(version: str) -> str | None:
    """Return the Python of a version, from the PATH or from pyenv."""
    found = [shutil.which(f"python{version}")]
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found += [str(p / "bin" / "python") for p in sorted(root.glob(f"{version}.*"))]
    return next((p for p in found if p and has_version(p, version)), None)


def needless(package: Path) -> list[str]:
    """Return the files of a wheel that only those who calibrate the model read, from a checkout."""
    names = zipfile.ZipFile(package).namelist() if package.suffix == ".whl" else []
    return [name for name in names if re.search("calibration/|measurements|twins", name)]


def attempt(python: str, package: Path, extra: str) -> str:
    """Install a package into an empty environment and run it there; return "" or what failed."""
    # nothing of ours may be on the path: what is tried is what was installed
    env = {
        k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "NKI_BACKEND", "VIRTUAL_ENV")
    }
    with tempfile.TemporaryDirectory(prefix="try-wheel-") as scratch:
        folder = Path(scratch)
        subprocess.run([python, "-m", "venv", str(folder / "venv")], check=True)
        bin = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
        (folder / "double.py").write_text(KERNEL)
        run = [
            (bin / "python", "-m", "pip", "install", "-q", f"{package}{extra}"),
            (bin / "nkisim", "explain", "NKI-P01"),
            (bin / "nkisim", "run", "double.py"),
            (bin / "nkisim", "profile", "double.py:double", "--arg", "128x64:float32"),
        ]
        if extra:
            run += [(bin / "labkit", "--help"), (bin / "labkit", "update", "--help")]
        for command in run:
            done = subprocess.run(
                [str(part) for part in command], cwd=folder, env=env, text=True, capture_output=True
            )
            if done.returncode:
                return (
                    f"{Path(command[0]).name} {' '.join(map(str, command[1:]))}\n"
                    + (done.stdout + done.stderr)[-2000:]
                )
        done = subprocess.run(
            [str(bin / "nkisim"), "calibrate"], cwd=folder, env=env, text=True, capture_output=True
        )
        if done.returncode != 2 or "clone the repository" not in done.stderr:
            return f"calibrate without a checkout\n{done.stderr[-2000:]}"
        if not extra:
            done = subprocess.run(
                [str(bin / "labkit"), "simulate"],
                cwd=folder,
                env=env,
                text=True,
                capture_output=True,
            )
            if done.returncode != 2 or not done.stderr.startswith("could not run: labkit needs"):
                return f"labkit without its extra\n{done.stderr[-2000:]}"
    return ""


def main() -> int:
    """Try all packages given with all versions; print a line for each."""
    wrong = tried = 0
    for package in map(Path, sys.argv[1:]):
        if names := needless(package):
            wrong += 1
            print(f"{package.name} has what only calibration reads: {', '.join(names)}")
    for version in VERSIONS:
        python = python_of(version)
        if python is None:
            print(f"Python {version}: not here")
            continue
        for package in map(Path, sys.argv[1:]):
            extras = ("", "[labs]") if package.suffix == ".whl" else ("",)
            for extra in extras:
                tried += 1
                said = attempt(python, package, extra)
                wrong += bool(said)
                print(
                    f"Python {version}: {package.name}{extra} "
                    f"{'FAILED' if said else 'installs and runs'}",
                    said,
                    flush=True,
                )
    return 1 if wrong else 0 if tried else 2


if __name__ == "__main__":
    sys.exit(main())
