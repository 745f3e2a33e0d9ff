"""The front door: `python3 -m nox -s simulate` runs the labs, `python3 -m nox -s tests` tests all.

Needs nothing but Python >= 3.10, pip and nox. Arguments after `--` go to the program behind.

TRAINIUM_LABS_TORCH=1 in the environment: the tests install PyTorch (some 200 MB as CPU build, more
as others) and run those that compare with it, too. TRAINIUM_LABS_REPORTS=FOLDER: each run of pytest
leaves its results there. `.ci/run` sets both.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nox

OLDEST = (3, 10)
if sys.version_info < OLDEST:  # pip would take minutes to say less
    sys.stderr.write(
        f"trainium-labs needs Python {OLDEST[0]}.{OLDEST[1]} or newer; this is Python "
        f"{sys.version.split()[0]} ({sys.executable}).\n"
        "Install a newer one, from your system's packages or python.org, and start nox with it:\n"
        "    python3.13 -m pip install nox && python3.13 -m nox -s simulate\n"
    )
    sys.exit(2)

nox.options.reuse_existing_virtualenvs = True
# pip, which reads the settings that say where PyTorch's CPU build is; uv only where a session says
nox.options.default_venv_backend = "virtualenv"
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


@nox.session(default=False)
def verify_sim(session: nox.Session) -> None:
    """On a Neuron machine: chip, SDK's simulator and nkisim compared, constants proposed."""
    session.install("-e", ".[labs]", silent=True)
    session.run("python", "-m", "labkit", "verify_sim", *session.posargs)


def results(name: str) -> list[str]:
    """Return pytest's arguments that leave its results where CI collects them, if it does."""
    folder = os.environ.get("TRAINIUM_LABS_REPORTS")
    return [f"--junitxml={folder}/{name}.xml"] if folder else []


@nox.session(default=False)
def conformance(session: nox.Session) -> None:
    """Run public suites and course repositories: -- --sources DIR (a folder of checkouts)."""
    session.install("-e", ".[labs,test,torch]", "scipy", silent=True)
    session.run("python", "-m", "conformance", *session.posargs, env={"PYTHONPATH": "tools"})


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests, on all cores: -- --full runs every one; other arguments go to pytest."""
    torch = ",torch,jax" if os.environ.get("TRAINIUM_LABS_TORCH") == "1" else ""
    # Python compiles what is imported; to compile all of PyTorch and JAX takes half a minute
    everything = f".[labs,grade,test,infra,history,neuron,docs{torch}]"
    session.install("--no-compile", "-e", everything, silent=True)
    if session.posargs not in ([], ["--full"]):
        session.run("python", "-m", "pytest", *session.posargs)
        return
    # a worker a core; a worker keeps neighbours, which share what a module sets up
    workers = ("-n", "auto", "--dist", "worksteal")
    session.run("python", "-m", "pytest", "-q", *workers, *session.posargs, *results("tests"))
    # the quick tests of infra, apart: its folder has a conftest of its own
    files = ("test_spec.py", "test_cost.py", "test_course_plans.py")
    with session.chdir("infra/tests"):
        session.run("python", "-m", "pytest", "-q", *files, *results("tests-infra"))


@nox.session(default=False, venv_backend="uv|virtualenv")
def quick(session: nox.Session) -> None:
    """Check in a minute what one edits: style, types, samples of rows and rules, labs on trn2."""
    session.install("-e", ".[labs,infra,grade,lint]", silent=True)
    session.install("pytest", "pytest-xdist", "pytest-timeout", "hypothesis", silent=True)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy", "shared/labkit", "shared/nkisim")
    rooms = ("tests/nkisim/isa/test_row_matrix.py", "tests/nkisim/checks/test_examples.py")
    few = ("-n", "auto", "--dist", "worksteal", "--quick", "60")
    session.run("python", "-m", "pytest", "-q", *few, *rooms, *results("quick"))
    session.run("python", "-m", "labkit", "simulate", "--target", "trn2")


@nox.session(default=False)
def pythons(session: nox.Session) -> None:
    """Run what depends on the version of Python in each other one here: -- 3.13 ..."""
    session.run("python", "tests/labkit/try_pythons.py", *session.posargs)


@nox.session(venv_backend="uv|virtualenv")
def lint(session: nox.Session) -> None:
    """Check style (ruff), types (mypy), imports, and what is often insecure (bandit).

    `infra` runs the checkers of policies (parliament, cloudsplaining), for the roles' policies
    exist only once a class was made in the fake cloud, and bandit with every finding explained.
    """
    session.install("-e", ".[labs,grade,infra,lint]", silent=True)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run(
        "bandit",
        "-q",
        "-ll",
        "-c",
        "pyproject.toml",
        "-r",
        "shared/labkit",
        "shared/nkisim",
        "tools/conformance",
        "infra/classroom",
        "infra/plugins",
    )
    session.run("mypy", "shared/labkit", "shared/nkisim", "tools/conformance")
    session.run("mypy", "infra/classroom")
    session.run("lint-imports", "--no-cache", "--no-logo", env={"PYTHONPATH": "shared:infra"})
    for spec in sorted(Path("labs").glob("*/spec.py")):  # the labs share file names
        with session.chdir(spec.parent):
            session.run(
                "mypy",
                "--config-file",
                "../../pyproject.toml",
                "--cache-dir",
                "../../.mypy_cache",
                "spec.py",
                "reference.py",
                "tester.py",
            )


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Draw the figures and build the site in build/docs/site; a dead link is an error."""
    session.install("-e", ".[labs,docs]", silent=True)
    session.run("python", "-m", "docs.figures")
    session.run("python", "docs/book.py")


@nox.session(default=False)
def starter(session: nox.Session) -> None:
    """Export the students' repository to dist/starter: -- --lab NAME, --course trn2, --out DIR."""
    session.install("-e", ".[labs]", "build", silent=True)
    session.run("python", "-m", "labkit", "starter", *session.posargs)


def staff(session: nox.Session, command: str) -> None:
    """Run a command of labkit that course staff use."""
    session.install("-e", ".[labs,grade]", "build", silent=True)
    session.run("python", "-m", "labkit", command, *session.posargs)


@nox.session(default=False)
def grade(session: nox.Session) -> None:
    """Grade a class in a sandbox: -- SUBMISSIONS --lab NAME --out DIR."""
    staff(session, "grade")


@nox.session(default=False)
def gradescope(session: nox.Session) -> None:
    """Build the autograder's archive for Gradescope: -- --lab NAME."""
    staff(session, "gradescope")


@nox.session(default=False)
def leaderboard(session: nox.Session) -> None:
    """Sign verdicts, build the contest's page, or serve it live: -- sign|page|live|key."""
    staff(session, "leaderboard")


@nox.session(default=False)
def submit(session: nox.Session) -> None:
    """Pack what a lab asks for, and say what is missing: -- NAME."""
    session.install("-e", ".[labs]", silent=True)
    session.run("python", "-m", "labkit", "submit", *session.posargs)


@nox.session(default=False)
def build(session: nox.Session) -> None:
    """Build wheel and sdist into dist/, check them, and try them in empty environments."""
    session.install("build", "twine", silent=True)
    folder = Path("dist")
    for old in (*folder.glob("*.whl"), *folder.glob("*.tar.gz")):
        old.unlink()
    session.run("python", "-m", "build", "--outdir", str(folder), silent=True)
    files = [str(p.resolve()) for p in (*folder.glob("*.whl"), *folder.glob("*.tar.gz"))]
    session.run("twine", "check", "--strict", *files)
    session.run("python", "tests/labkit/try_wheel.py", *files)


def others_tools(session: nox.Session, requirements: str) -> str:
    """Install programs of others apart, since each pins its own boto3; return their folder."""
    folder = Path(session.virtualenv.location).parent / Path(requirements).stem
    python = str(folder / "bin/python")
    session.run_install("python", "-m", "venv", str(folder), silent=True)
    install = [python, "-m", "pip", "install", "-q"]
    if session.venv_backend == "uv":
        install = [nox.virtualenv.UV, "pip", "install", "-q", "--python", python]
    session.run_install(*install, "-r", requirements, external=True, silent=True)
    # its schema alone: the rest of it (CDK, 180 MB) pins what contradicts the others' pins
    alone = ("--no-deps", "aws-parallelcluster==3.16.1")
    session.run_install(*install, *alone, external=True, silent=True)
    return str((folder / "bin").resolve())


@nox.session(default=False, venv_backend="uv|virtualenv")
def infra(session: nox.Session) -> None:
    """Test infra against the fake cloud and booted hosts, and lint it: -- --full runs all.

    What a machine cannot run (booted hosts need root, systemd-container and mmdebstrap) is skipped,
    and the last lines say what and why. Where uv is installed, it installs the packages: Ansible's
    40,000 files take pip minutes.
    """
    # pip: uv's environments have none, and tests build the packages of their hosts with it
    session.install("pip", "-r", "infra/requirements-test.txt", silent=True)
    if session.venv_backend == "uv":
        # what pip does and uv does not; Ansible reads its collections without bytecode
        folder = str(Path(session.virtualenv.location) / "lib")
        words = ("-m", "compileall", "-q", "-j", "0", "-x", "ansible_collections", folder)
        session.run_install("python", *words, silent=True, success_codes=[0, 1])
    programs = others_tools(session, "infra/requirements-tools.txt")
    session.run("yamllint", "-c", "infra/.yamllint", "infra")
    with session.chdir("infra/tests"):
        # four workers, a file each, the longest first: tests of a file may share booted hosts,
        # and wait for them a third of the time
        shared_out = ("-n", "4", "--dist", "loadfile", "--no-loadscope-reorder")
        session.run(
            "pytest",
            "-q",
            *shared_out,
            *session.posargs,
            *results("infra"),
            env={"CLASSROOM_TOOLS": programs},
        )
