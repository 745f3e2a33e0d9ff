"""What grading and a benchmark on the test's cluster need besides Slurm: real packages, and this
repository, in the nodes' image."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import tomllib

import hosts
from conftest import INFRA

ROOT = INFRA.parent
PYTHON = "/opt/grade/bin/python"
REPOSITORY = "/srv/trainium-labs"
SITE = """jobqueue:
  slurm:
    account: staff
    interface: lo          # all nodes of this test share one network
    memory: 1GB
    walltime: "00:30:00"
"""


def copy_repository(to: Path) -> None:
    """Copy what git tracks, or would."""
    words = [
        "git",
        "-c",
        "safe.directory=*",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    names = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in names.split("\0"):
        if name and (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def install(site: Path, *packages: str) -> None:
    """Install packages of Debian's Python, 3.11, into a folder."""
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--target",
            str(site),
            "--upgrade",
            "--python-version",
            "3.11",
            "--only-binary=:all:",
            *packages,
        ],
        check=True,
        env={**os.environ, "PIP_ROOT_USER_ACTION": "ignore"},
    )


def prepare(root: Path) -> None:
    """Put into an image: this repository, an environment that grades, and real packages in the
    Neuron environment, whose compiler stays a stand-in."""
    copy_repository(root / REPOSITORY.lstrip("/"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["labs"]]
    subprocess.run(["chroot", str(root), "python3", "-m", "venv", "/opt/grade"], check=True)
    (site,) = (root / "opt/grade/lib").glob("python3*/site-packages")
    install(site, *wanted, *project["optional-dependencies"]["grade"])
    (site / "labs.pth").write_text(f"{REPOSITORY}/shared\n")
    (neuron,) = (root / "opt/aws_neuronx_venv_pytorch_2_8/lib").glob("python3*/site-packages")
    install(neuron, *wanted)


PLAN = """from labkit import RubricLine
from labkit.grade.plan import Plan


def plan(spec):
    hidden = (spec.transpose_case(128, 256),)
    return Plan(rubric=(RubricLine("shown", 4, ("transpose_128x128",)),
                        RubricLine("hidden", 6, ("transpose_128x256",))),
                hidden=hidden, timeout_s=20, total_s=60)
"""


class Grading:
    """Hold four submissions in the staff's home, and a lab with a small plan."""

    def __init__(self, host: hosts.Host) -> None:
        self.host = host
        for command in (
            "mkdir -p ~/small/labs ~/.config/dask",
            f"cp -r {REPOSITORY}/labs/vecadd ~/small/labs/",
            f"cat > ~/small/labs/vecadd/hidden/plan.py <<'EOF'\n{PLAN}EOF",
            f"cat > ~/.config/dask/jobqueue.yaml <<'EOF'\n{SITE}EOF",
            f"cd {REPOSITORY}/tests/labkit && {PYTHON} mutants.py vecadd 4 ~/submissions",
        ):
            host.ssh(command)

    def start(self, out: str, more: str = "") -> None:
        """Begin to grade into a folder."""
        grade = f"{PYTHON} -m labkit grade ~/submissions --lab vecadd --out {out} {more}"
        inside = f"export LABKIT_LABS=~/small/labs; {grade} > {out}.log 2>&1; echo $? > {out}.code"
        self.host.ssh(f"setsid bash -c '{inside}' > /dev/null 2>&1 < /dev/null &")

    def run(self, out: str) -> None:
        """Grade into a folder on this node alone."""
        self.start(out)
        self.host.ssh(f"for _ in $(seq 50); do [ -s {out}.code ] && break; sleep 1; done")
        while not (code := self.code(out)):
            self.host.ssh("sleep 5")
        assert code == "0", self.log(out)

    def code(self, out: str) -> str:
        """Return the exit code of a run, or "" while it goes on."""
        return self.host.ssh(f"cat {out}.code 2>/dev/null; true")

    def log(self, out: str) -> str:
        """Return what a run has said."""
        return self.host.ssh(f"tail -n 40 {out}.log")

    def same_secret(self, one: str, other: str) -> None:
        """Let a second run have the secret of the first."""
        self.host.ssh(f"mkdir -p {other}/private && cp {one}/private/secret {other}/private/")

    def differ(self, one: str, other: str) -> str:
        """Return how what two runs leave for people differs."""
        return self.host.ssh(f"diff -rq --exclude=private {one} {other}; true")

    def grades(self, out: str) -> str:
        """Return the gradebook."""
        return self.host.ssh(f"cat {out}/grades.csv")


def course(folder: Path) -> Path:
    """Copy this repository as a student has it: a git repository with one commit."""
    copy_repository(folder)
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "begin"]):
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run([*git, *words], cwd=folder, check=True)
    return folder
