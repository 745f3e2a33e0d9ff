"""The front door: `python3 -m nox -s simulate` runs the labs, `python3 -m nox -s tests` tests all.

Needs nothing but Python >= 3.10, pip and nox. Arguments after `--` go to the program behind.
"""
from __future__ import annotations

from pathlib import Path

import nox

nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["simulate", "tests"]


@nox.session
def simulate(session: nox.Session) -> None:
    """Run all labs without hardware: -- vecadd ..., -- --full, -- --target trn2."""
    session.install("-e", ".[labs]", silent=True)
    session.run("python", "-m", "labkit", "simulate", *session.posargs)


@nox.session(default=False)
def benchmark(session: nox.Session) -> None:
    """Time the labs' fleets: measured on a Neuron machine, elsewhere predicted and said so."""
    session.install("-e", ".[labs]", silent=True)
    session.run("python", "-m", "labkit", "benchmark", *session.posargs)


@nox.session(default=False)
def profile(session: nox.Session) -> None:
    """Profile the labs' fleets: pages and Perfetto traces in profiles/."""
    session.install("-e", ".[labs]", silent=True)
    session.run("python", "-m", "labkit", "profile", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the test suite; arguments go to pytest."""
    session.install("-e", ".[labs,test,infra]", silent=True)
    session.run("python", "-m", "pytest", *(session.posargs or ["-q"]))
    if not session.posargs:
        # the quick tests of infra, apart: its folder has a conftest of its own
        with session.chdir("infra/tests"):
            session.run("python", "-m", "pytest", "-q", "test_spec.py", "test_cost.py")


@nox.session
def lint(session: nox.Session) -> None:
    """Check style (ruff) and types (mypy)."""
    session.install("-e", ".[labs,infra,lint]", silent=True)
    session.run("ruff", "check", ".")
    session.run("mypy", "shared/labkit", "shared/nkisim")
    session.run("mypy", "infra/classroom")
    for spec in sorted(Path("labs").glob("*/spec.py")):  # the labs share file names
        with session.chdir(spec.parent):
            session.run("mypy", "--config-file", "../../pyproject.toml", "spec.py",
                        "reference.py", "tester.py")


@nox.session(default=False)
def infra(session: nox.Session) -> None:
    """Test infra against the fake cloud and booted local hosts, and lint it: -- --full runs all.

    What a machine cannot run (booted hosts need root, systemd-container and mmdebstrap) is skipped,
    and the last lines say what and why.
    """
    session.install("-r", "infra/requirements-test.txt", silent=True)
    session.run("yamllint", "-c", "infra/.yamllint", "infra")
    with session.chdir("infra"):
        session.run("ansible-lint", "--offline", "-c", ".ansible-lint",
                    env={"ANSIBLE_CONFIG": "../ansible.cfg"})
    with session.chdir("infra/tests"):
        # two workers, a file each: the tests of a file may share booted hosts
        shared_out = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
        session.run("pytest", "-q", *shared_out, *session.posargs)
