"""`--host` of the labs on a booted host: runs as units of systemd, a restart in the middle, two
accounts on one NeuronCore.

Real: systemd, sudo, logins, the restart. Stand-ins: the Neuron environment (empty packages by the
names) and /dev/neuron0 (a plain file); nothing computes on any device.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hosts
from conftest import INFRA

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(900),  # booted hosts, configured by Ansible
    pytest.mark.skipif(bool(hosts.why_not()), reason=hosts.why_not()),
]
ROOT = INFRA.parent
IP = "127.0.79.1"
#: one who may use sudo, one who may not, and one whose own services outlive the logout
USERS = ("ubuntu", "bob", "carol")
DRIVER = (
    "import sys; from labkit.cli import guarded;sys.exit(guarded(None, sys.argv[1:], ('job.py',)))"
)
JOB = (ROOT / "tests" / "labkit" / "remote" / "job_for_tests.py").read_text()


# systemd-nspawn ends with 133 when the host restarts, for its unit to start it again
BOOT = hosts.BOOT.replace("exec systemd-nspawn", "while :; do code=0; systemd-nspawn").rstrip()
BOOT += " || code=$?; [ $code = 133 ] || exit $code; done\n"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[hosts.Host]:
    work = tmp_path_factory.mktemp("boot")
    key = work / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    root = hosts.rootfs(work)
    for user in USERS:
        subprocess.run(["chroot", str(root), "useradd", "-m", "-s", "/bin/bash", user], check=True)
        subprocess.run(["chroot", str(root), "usermod", "-p", "*", user], check=True)
        keys = f"home/{user}/.ssh/authorized_keys"
        hosts.write(root / keys, key.with_suffix(".pub").read_text(), 0o600)
        chown = ["chroot", str(root), "chown", "-R", f"{user}:{user}", f"/home/{user}"]
        subprocess.run(chown, check=True)
    hosts.write(root / "etc/sudoers.d/ubuntu", "ubuntu ALL=(ALL) NOPASSWD:ALL\n", 0o440)
    hosts.write(root / "var/lib/systemd/linger/carol", "")
    venv = "/opt/aws_neuronx_venv_pytorch_2_8"
    subprocess.run(["chroot", str(root), "python3", "-m", "venv", venv], check=True)
    site = next((root / venv.lstrip("/") / "lib").glob("python3*")) / "site-packages"
    for name in ("numpy", "ml_dtypes", "rich", "filelock", "neuronxcc/nki/__init__"):
        hosts.write(site / f"{name}.py", "# a stand-in for tests\n")
    hosts.write(site / "neuronx_cc-2.21.1.dist-info/METADATA", "Name: neuronx-cc\n")
    hosts.write(root / "etc/tmpfiles.d/neuron.conf", "f /dev/neuron0 0666 root root - stand-in\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hosts, "BOOT", BOOT)
        booted = hosts.Host("remote", IP, root, work, key)
    booted.wait(60)
    booted.ssh("test -e /dev/neuron0 || sudo touch /dev/neuron0")
    yield booted
    booted.close()


@pytest.fixture()
def desk(host: hosts.Host, tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Return what starts the program on the host, as a user there."""
    host.wait(60)
    host.ssh("test -e /dev/neuron0 || sudo touch /dev/neuron0")
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "job.py").write_text(JOB)
    (repo / ".gitignore").write_text("results/\n")
    subprocess.run(["git", "init", "-q"], cwd=repo, check=True)
    config = tmp_path / "config"
    text = ""
    for user in USERS:
        text += f"Host {user}-chip\n  HostName {IP}\n  User {user}\n"
    rest = "  IdentitiesOnly yes\n  IdentityAgent none\n  StrictHostKeyChecking no\n"
    rest += "  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n"
    config.write_text(text + f"Host *\n  IdentityFile {host.key}\n{rest}")
    # a socket's name may have 108 characters, and pytest's folders are long
    env = {**os.environ, "PYTHONPATH": str(ROOT / "shared"), "LABKIT_SSH_CONFIG": str(config)}

    def start(*args: str, user: str = "ubuntu", **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", DRIVER, "--host", f"{user}-chip", *args],
            cwd=repo,
            env={**env, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    start.repo = repo  # type: ignore[attr-defined]
    return start


def names(repo: Path) -> list[str]:
    path = repo / "results" / "results.json"
    return [r["name"] for r in json.loads(path.read_text())["runs"]] if path.exists() else []


def wait_log(host: hosts.Host, text: str, user: str = "ubuntu") -> None:
    for _ in range(200):
        ask = f"sudo sh -c 'cat /home/{user}/.trainium-labs/jobs/*/log 2>/dev/null'"
        if text in host.ssh(ask, check=False):
            return
        time.sleep(0.2)
    raise AssertionError(f"{text!r} did not come")


def test_a_run_is_a_unit_that_outlives_the_login(host: hosts.Host, desk) -> None:
    first = desk("--runs", "8", "--pause", "0.7", "--say", "a")
    wait_log(host, "run 1")
    assert "trainium-labs-" in host.ssh("systemctl list-units --plain 'trainium-labs-*'")
    first.kill()
    first.communicate()
    host.ssh("pkill -KILL -u ubuntu sshd || true", user="bob", check=False)
    again = desk("--runs", "8", "--pause", "0.7", "--say", "a")
    out, err = again.communicate(timeout=90)
    assert again.returncode == 0 and "picking up" in err, err
    assert names(desk.repo) == [f"a{n}" for n in range(8)]
    assert "trainium-labs-" not in host.ssh("systemctl list-units --plain 'trainium-labs-*'")


def test_a_lingering_user_has_a_unit_without_sudo(host: hosts.Host, desk) -> None:
    first = desk("--runs", "8", "--pause", "0.7", "--say", "u", user="carol")
    wait_log(host, "run 1", user="carol")
    units = "XDG_RUNTIME_DIR=/run/user/$(id -u) systemctl --user list-units --plain"
    assert "trainium-labs-" in host.ssh(units, user="carol")
    first.kill()
    first.communicate()
    host.ssh("sudo pkill -KILL -u carol sshd || true")
    again = desk("--runs", "8", "--pause", "0.7", "--say", "u", user="carol")
    _, err = again.communicate(timeout=90)
    assert again.returncode == 0 and "picking up" in err, err
    assert names(desk.repo) == [f"u{n}" for n in range(8)]
    assert "trainium-labs-" not in host.ssh(units, user="carol")


def test_two_accounts_on_one_core(host: hosts.Host, desk) -> None:
    first = desk("--hang", "--say", "b")
    wait_log(host, "run 0")
    second = desk("--say", "c", user="bob")  # without sudo: a session of its own
    out, err = second.communicate(timeout=90)
    assert second.returncode == 2, err
    assert "NeuronCore 0 is in use by ubuntu since" in " ".join(out.split())
    other = desk("--say", "d", user="bob", NEURON_RT_VISIBLE_CORES="1")
    out, err = other.communicate(timeout=90)
    assert other.returncode == 0, out + err
    assert names(desk.repo) == ["d0"]
    host.ssh("sudo systemctl stop 'trainium-labs-*'")
    out, err = first.communicate(timeout=90)
    assert first.returncode == 2, err
    assert names(desk.repo) == ["d0", "b0"]
    assert "job.py" not in host.ssh("ps -eo args")


def test_a_restart_in_the_middle_is_told_and_what_was_recorded_comes_home(
    host: hosts.Host, desk
) -> None:
    process = desk("--hang", "--runs", "2", "--say", "e")
    wait_log(host, "run 1")
    host.ssh("sync; sudo systemctl reboot --force --force", check=False)
    time.sleep(2)
    host.wait(90)
    out, err = process.communicate(timeout=180)
    assert process.returncode == 2, out + err
    assert "was restarted or stopped while the run went on" in err
    assert names(desk.repo) == ["e0", "e1"]
    host.ssh("test -e /dev/neuron0 || sudo touch /dev/neuron0")
    again = desk("--say", "f")
    out, err = again.communicate(timeout=90)
    assert again.returncode == 0, out + err
