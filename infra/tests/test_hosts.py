"""The roles for real: over SSH against booted systemd hosts at the Elastic IPs that the fake cloud
handed out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hosts
from conftest import INFRA, START, ClassFolder
from labcloud.client import LabCloud

pytestmark = pytest.mark.skipif(bool(hosts.why_not()), reason=hosts.why_not())
ROOT = INFRA.parent


def play(name: str, folder: ClassFolder, cloud: LabCloud, key: Path, *more: str) -> tuple[int, str]:
    """Run a playbook as its user would, from the top of the repository."""
    environ = {
        **os.environ,
        **cloud.environ,
        "ANSIBLE_PRIVATE_KEY_FILE": str(key),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_SSH_ARGS": (
            "-o ControlMaster=auto -o ControlPersist=15s -o UserKnownHostsFile=/dev/null -o"
            " LogLevel=ERROR"
        ),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["ansible-playbook", f"infra/playbooks/{name}.yml", "-e", f"class={folder.file}", *more],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=600,
    )
    return done.returncode, done.stdout + done.stderr


def changed(output: str) -> dict[str, int]:
    """Return host -> changed tasks from the recap."""
    return {
        m[1]: int(m[2]) for m in re.finditer(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)", output, re.M)
    }


class Setting:
    """Hold the image, the key and the hosts of a test module."""

    def __init__(self, work: Path) -> None:
        self.work, self.hosts = work, {}
        self.key = work / "staff"
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key)], check=True
        )
        self.root = hosts.rootfs(work)
        self.variables = hosts.prepare(
            self.root, self.key.with_suffix(".pub").read_text().strip(), work
        )

    def boot(self, addresses: dict[str, str]) -> None:
        """Boot a host at each address."""
        for name, ip in addresses.items():
            self.hosts[name] = hosts.Host(name, ip, self.root, self.work, self.key)
        for host in self.hosts.values():
            host.wait()

    def close(self) -> None:
        """Power all off."""
        for host in self.hosts.values():
            host.close()
        self.hosts = {}


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    """Prepare the image once."""
    made = Setting(tmp_path_factory.mktemp("hosts"))
    yield made
    made.close()


def bring_up(
    folder: ClassFolder, cloud: LabCloud, setting: Setting, students: list[str], **changes: Any
) -> None:
    """Provision at the fake's addresses and boot the hosts there."""
    (folder.path / "staff.pub").write_text(setting.key.with_suffix(".pub").read_text())
    lab = {
        "repository": "https://github.com/example/labs.git",
        "commit": setting.variables["commit"],
        "extras": [],
    }
    folder.write(students, elastic_ip=True, lab=lab, **changes)
    code, output = play("provision", folder, cloud, setting.key, "-e", "yes=true")
    assert code == 0, output
    found = [
        (r["tags"]["trainium-labs:machine"], r["id"])
        for r in cloud.leftovers()
        if r["kind"] == "elastic-ip"
    ]
    import boto3

    ips = {
        a["AllocationId"]: a["PublicIp"]
        for a in boto3.client("ec2", region_name="us-east-2").describe_addresses()["Addresses"]
    }
    setting.boot({name: ips[allocation] for name, allocation in found})


def variables(setting: Setting, **more: str) -> list[str]:
    """Return the -e options that point the roles at the local package repository and make the guard
    quick."""
    options = {k: v for k, v in setting.variables.items() if k.startswith("influxdb_")}
    options.update(
        idle_guard_minutes="0.1",
        idle_guard_grace_minutes="0.07",
        idle_guard_tick_seconds="2",
        idle_guard_proc_stat="/srv/stat",
        **more,
    )
    out = [x for k, v in options.items() for x in ("-e", f"{k}={v}")]
    # All hosts share one network here, so each binds its own loopback address.
    return [
        *out,
        "-e",
        '{"influxdb_bind": "{{ ansible_host }}:8086"}',
        "-e",
        '{"idle_guard_stop_command": ["/usr/bin/touch", "/run/stop-issued"]}',
    ]


def test_three_hosts_are_configured_twice_and_the_second_time_nothing_changes(
    folder: ClassFolder, cloud: LabCloud, setting: Setting
) -> None:
    cloud.post("reset", at=time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()))
    bring_up(folder, cloud, setting, ["idle", "busy", "neuron"])
    setting.hosts["busy"].ssh("sudo ln -sf /proc/stat /srv/stat")
    setting.hosts["busy"].ssh("(yes > /dev/null 2>&1 &) ; true")
    setting.hosts["neuron"].ssh("echo 60 | sudo tee /srv/neuron-use")
    extra = variables(setting)
    code, first = play("configure", folder, cloud, setting.key, *extra)
    assert code == 0, first
    assert set(changed(first)) == {"idle", "busy", "neuron"} and min(changed(first).values()) > 10
    code, second = play("configure", folder, cloud, setting.key, *extra)
    assert code == 0 and set(changed(second).values()) == {0}, second
    code, checked = play(
        "configure", folder, cloud, setting.key, "--check", "--limit", "idle", *extra
    )
    assert code == 0 and changed(checked) == {"idle": 0}, checked

    host = setting.hosts["idle"]
    assert host.ssh("bash -lc 'echo $VIRTUAL_ENV'") == "/opt/aws_neuronx_venv_pytorch_2_8", (
        "the newest plain PyTorch environment"
    )
    assert host.ssh("git -C labs rev-parse HEAD") == setting.variables["commit"]
    assert (
        host.ssh(
            "systemctl is-active influxdb trainium-idle-guard.timer trainium-night.timer"
        ).split()
        == ["active"] * 3
    )
    listening = host.ssh("sudo ss -Hltn 'sport = :8086'")
    assert listening and all(
        line.split()[3].startswith("127.") for line in listening.splitlines()
    ), listening
    assert host.ssh("sudo stat -c %a:%G /etc/trainium-labs/influxdb.env") == "640:neuron"
    token = re.search(r"INFLUX_TOKEN=(\S+)", host.ssh("sudo cat /etc/trainium-labs/influxdb.env"))
    assert token and token[1] not in first + second, "the token is in no log"
    assert "Push your work" in host.ssh("cat /etc/motd") and "23:30" in host.ssh(
        "systemctl cat trainium-night.timer"
    )
    assert "inhibit" not in host.ssh("systemctl --failed --no-legend"), "no failed unit"


def test_an_idle_host_is_stopped_after_the_grace_and_busy_ones_never(setting: Setting) -> None:
    if not setting.hosts:
        pytest.skip("needs the hosts of the test before")
    idle, end = setting.hosts["idle"], time.monotonic() + 60
    while time.monotonic() < end and not idle.ssh("ls /run/stop-issued", check=False):
        time.sleep(1)
    journal = idle.ssh("sudo journalctl -u trainium-idle-guard --no-pager -o cat")
    assert idle.ssh("ls /run/stop-issued") and journal.index("stops in") < journal.index(
        "stops now"
    )
    for name in ("busy", "neuron"):
        assert setting.hosts[name].ssh("ls /run/stop-issued", check=False) == "", name
        assert "stops in" not in setting.hosts[name].ssh(
            "sudo journalctl -u trainium-idle-guard --no-pager -o cat"
        ), name
    # With the real command the machine really ends.
    idle.ssh(
        "sudo sed -i 's#/usr/bin/touch#/sbin/shutdown#; s#/run/stop-issued#now#'"
        " /etc/trainium-labs/idle.json"
    )
    assert idle.ended(150)  # open SSH connections may hold it for 90 s
    assert not setting.hosts["busy"].ended(1)


def test_a_shared_host_gives_each_student_a_home_a_key_and_a_core(
    folder: ClassFolder, cloud: LabCloud, setting: Setting, tmp_path: Path
) -> None:
    setting.close()
    cloud.post("reset", at=time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()))
    keys = {}
    for student in ("alice", "bob"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / student)],
            check=True,
        )
        keys[student] = (tmp_path / f"{student}.pub").read_text().strip()
    folder.write(["alice", "bob"])
    rows = [f"{s},{s}@example.edu,{' '.join(k.split()[:2])}" for s, k in keys.items()]
    real_write = folder.write

    def write(*args: Any, **kwargs: Any) -> Path:
        path = real_write(*args, **kwargs)
        (folder.path / "roster.csv").write_text(
            "\n".join(["student,email,public_key", *rows]) + "\n"
        )
        return path

    folder.write = write  # type: ignore[method-assign]
    bring_up(folder, cloud, setting, ["alice", "bob"], mode="shared")
    code, output = play("configure", folder, cloud, setting.key, *variables(setting))
    assert code == 0, output
    (host,) = setting.hosts.values()
    for core, student in enumerate(("alice", "bob")):
        assert host.ssh(
            "bash -lc 'echo $NEURON_RT_VISIBLE_CORES'", user=student, key=tmp_path / student
        ) == str(core)
        assert (
            host.ssh("git -C labs rev-parse HEAD", user=student, key=tmp_path / student)
            == setting.variables["commit"]
        )
    assert host.ssh("ls /home/bob", user="alice", key=tmp_path / "alice", check=False) == "", (
        "homes are private"
    )
    assert "uid" not in host.ssh("sudo -n id", user="alice", key=tmp_path / "alice", check=False)
    code, again = play(
        "configure", folder, cloud, setting.key, "--limit", "bob", *variables(setting)
    )
    assert code == 0 and set(changed(again).values()) == {0}, again
    host.ssh("echo answer > labs/answer.py", user="alice", key=tmp_path / "alice")
    code, saved = play("save_work", folder, cloud, setting.key)
    assert code == 0, saved
    listed = subprocess.run(
        ["tar", "-tzf", str(folder.path / "out/lab/work/alice.tar.gz")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "labs/answer.py" in listed
    code, down = play("teardown", folder, cloud, setting.key, "-e", "yes=true")
    assert code == 0 and "0 billable resources of class lab" in down, down
    assert cloud.leftovers() == []


assert START
