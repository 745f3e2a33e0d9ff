"""A throwaway host and a small repository whose program records runs as the labs' do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from local_host import DRIVER, LocalHost, why_not  # noqa: E402

ROOT = HERE.parents[2]
JOB = HERE / "job_for_tests.py"
# their host is this machine, and hosts run Linux: what runs there cannot be imported on Windows
collect_ignore = ["test_remote.py", "test_remote_faults.py"] if os.name == "nt" else []


@dataclass
class Desk:
    """A student's computer: a repository and an SSH configuration."""

    repo: Path
    host: LocalHost
    config: Path
    env: dict[str, str] = field(default_factory=dict)

    def popen(self, *args: str, host: str = "chip", **more) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-c", DRIVER, "--host", host, "--backend", "sim", *args],
            cwd=self.repo,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **more,
        )

    def run(self, *args: str, host: str = "chip") -> subprocess.CompletedProcess:
        return self._ended(self.popen(*args, host=host))

    def remote(self, *args: str) -> subprocess.CompletedProcess:
        return self._ended(
            subprocess.Popen(
                [sys.executable, "-m", "labkit", "remote", *args],
                cwd=self.repo,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )

    @staticmethod
    def _ended(process: subprocess.Popen) -> subprocess.CompletedProcess:
        out, err = process.communicate(timeout=120)
        assert "Traceback" not in err, err
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def ids(self) -> list[str]:
        """Return what the runs in results.json are named, in order."""
        import json

        path = self.repo / "results" / "results.json"
        return [r["name"] for r in json.loads(path.read_text())["runs"]] if path.exists() else []


def make_repo(folder: Path) -> Path:
    folder.mkdir()
    (folder / "job.py").write_text(JOB.read_text())
    (folder / ".gitignore").write_text("results/\nprofiles/\n*.secret\n")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "begin"]):
        subprocess.run([*git, *words], cwd=folder, check=True)
    return folder


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    if why_not():
        pytest.skip(why_not())
    host = LocalHost(tmp_path)
    config = tmp_path / "ssh-config"
    config.write_text(host.config)
    repo = make_repo(tmp_path / "repo")
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "shared"),
        "LABKIT_SSH_CONFIG": str(config),
        "LABKIT_REMOTE_VENVS": sys.prefix,
        "COLUMNS": "200",
        "TMPDIR": str(tmp_path),
    }
    # sockets of shared connections have short names only: their folder is beside the test's
    short = Path(os.path.realpath("/tmp")) / f"lk{os.getpid()}{host.port}"
    short.mkdir(mode=0o700)
    env["TMPDIR"] = str(short)
    found = Desk(repo, host, config, env)
    yield found
    subprocess.run(
        [
            "ssh",
            "-F",
            str(config),
            "-o",
            f"ControlPath={short}/labkit-ssh-{os.getuid()}/%C",
            "-O",
            "exit",
            "chip",
        ],
        capture_output=True,
        env=env,
    )
    host.stop()
    left = host.left()
    host.kill_left()
    shutil.rmtree(short, ignore_errors=True)
    assert left == [], "processes were left on the host"
