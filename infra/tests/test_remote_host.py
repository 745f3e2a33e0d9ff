"""`--host auto` and `--host all` of the labs: the class's program starts, names and stops machines.

The cloud is the fake one; behind the address that it gives listens a real sshd.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import INFRA, ClassFolder, Classroom, Lab
from labcloud.client import LabCloud

ROOT = INFRA.parent
sys.path.append(str(ROOT / "tests" / "labkit" / "remote"))
from local_host import LocalHost, why_not  # noqa: E402

DRIVER = (
    "import sys; from labkit.cli import guarded;sys.exit(guarded(None, sys.argv[1:], ('job.py',)))"
)


class Desk:
    """Hold a student's repository, and what their SSH configuration adds for the tests."""

    def __init__(self, work: Path, folder: ClassFolder, cloud: LabCloud, address: str) -> None:
        self.host = LocalHost(work, "machine", address=address, account="ubuntu")
        self.repo = work / "repo"
        self.repo.mkdir()
        self.repo.joinpath("job.py").write_text("print('computed')\n")
        self.repo.joinpath(".gitignore").write_text("results/\n")
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "begin"]):
            subprocess.run([*git, *words], cwd=self.repo, check=True)
        config = work / "ssh-config"
        text = f"Host *\n  Port {self.host.port}\n  IdentityFile {self.host.key}\n"
        config.write_text(text + "  IdentitiesOnly yes\n  IdentityAgent none\n  ControlMaster no\n")
        self.cloud = cloud
        timed = cloud.in_its_time  # AWS's part of it waits in the fake cloud's time
        self._env = {
            **os.environ,
            **timed,
            "PYTHONPATH": f"{ROOT / 'shared'}{os.pathsep}{timed['PYTHONPATH']}",
            "LABKIT_SSH_CONFIG": str(config),
            "LABKIT_REMOTE_VENVS": sys.prefix,
            "LABKIT_CLASS": str(folder.file),
            "LABKIT_STUDENT": "alice",
            "TMPDIR": str(work),
        }

    @property
    def env(self) -> dict[str, str]:
        """Return the environment, with the fake cloud's time: not that of the day of the test."""
        return {**self._env, "CLASSROOM_NOW": self.cloud.post("now")["now"]}

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", DRIVER, "--backend", "sim", *args],
            cwd=self.repo,
            env=self.env,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=120,
        )


@pytest.fixture()
def desk(
    tmp_path_factory: pytest.TempPathFactory,
    folder: ClassFolder,
    cloud: LabCloud,
    classroom: Classroom,
) -> Iterator[Desk]:
    if why_not() or os.geteuid():
        pytest.skip(why_not() or "needs root (an account for sshd that is not there)")
    folder.write(elastic_ip=True)  # the fake gives addresses of the loopback interface
    classroom("provision", folder.file)
    (alice,) = classroom("hosts", folder.file, limit=["alice"])["machines"]
    made = Desk(tmp_path_factory.mktemp("desk"), folder, cloud, alice["ip"])
    yield made
    made.host.stop()


def state(classroom: Classroom, folder: ClassFolder) -> dict[str, str]:
    return {m["name"]: m["state"] for m in classroom("hosts", folder.file)["machines"]}


def test_hosts_says_how_to_log_in(lab: Lab) -> None:
    lab("provision")
    answer = lab("hosts")
    alice, bob = answer["machines"]
    assert [alice["name"], bob["name"]] == ["alice", "bob"]
    assert alice["ssh"] == [{"student": "alice", "user": "ubuntu"}]
    assert alice["options"]["HostKeyAlias"] == alice["id"] and alice["usd_hour"] > 1
    json.dumps(answer)


def test_auto_starts_the_students_own_machine_and_stops_it_again(lab: Lab, desk: Desk) -> None:
    lab.post("advance", seconds=16 * 60)
    lab("stop")
    before = lab("hosts")["machines"]
    done = desk.run("--host", "auto")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "starting alice" in done.stderr and "stopping alice" in done.stderr
    assert done.stdout.strip() == "computed" and "$1.34 an hour" in " ".join(done.stderr.split())
    assert state(lab, lab.folder) == {"alice": "stopped", "bob": "stopped"}
    assert [m["id"] for m in lab("hosts")["machines"]] == [m["id"] for m in before]
    kept = desk.run("--host", "auto", "--keep")
    assert kept.returncode == 0 and "stopping" not in kept.stderr
    assert state(lab, lab.folder) == {"alice": "running", "bob": "stopped"}
    on = desk.run("--host", "auto")  # was on, and is to be kept: is left on
    assert on.returncode == 0 and "stopping" not in on.stderr
    assert state(lab, lab.folder)["alice"] == "running"


@pytest.mark.full
def test_a_machine_stays_on_while_a_run_goes_on_and_is_stopped_by_the_call_that_picks_it_up(
    lab: Lab, desk: Desk
) -> None:
    lab.post("advance", seconds=16 * 60)
    lab("stop")
    (desk.repo / "job.py").write_text("import time\nprint('begun', flush=True)\ntime.sleep(6)\n")
    first = subprocess.Popen(
        [sys.executable, "-c", DRIVER, "--backend", "sim", "--host", "auto"],
        cwd=desk.repo,
        env=desk.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert first.stdout is not None and "begun" in first.stdout.readline()
    first.send_signal(signal.SIGINT)
    _, err = first.communicate(timeout=60)
    assert "left on, as the run goes on" in " ".join(err.split()), err
    assert state(lab, lab.folder)["alice"] == "running"
    again = desk.run("--host", "auto")
    assert again.returncode == 0 and "picking up" in again.stderr, again.stderr
    assert "stopping alice" in again.stderr
    assert state(lab, lab.folder)["alice"] == "stopped"


def test_all_is_a_table_and_one_dead_machine_does_not_stop_the_rest(lab: Lab, desk: Desk) -> None:
    done = desk.run("--host", "all")
    lines = {line.split()[0]: line for line in done.stderr.splitlines() if line.strip()}
    assert "passed" in lines["alice"] and "could not run" in lines["bob"], done.stderr
    assert done.returncode == 2


def test_a_student_who_is_not_in_the_roster_is_told(lab: Lab, desk: Desk) -> None:
    done = desk.run("--host", "auto", "--student", "mallory")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "mallory" in done.stderr
