"""The roles for real: over SSH against booted systemd hosts at the Elastic IPs that the fake cloud
handed out."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import hosts
from classroom.machines import firstboot
from classroom.spec import class_file
from conftest import INFRA, ClassFolder, to_the_real_time
from labcloud.client import LabCloud

pytestmark = [
    pytest.mark.timeout(900),  # booted hosts, configured by Ansible
    pytest.mark.skipif(bool(hosts.why_not()), reason=hosts.why_not()),
]
ROOT = INFRA.parent


def play(name: str, folder: ClassFolder, cloud: LabCloud, key: Path, *more: str) -> tuple[int, str]:
    """Run a playbook as its user would, from the top of the repository."""
    cloud.post("set", policy_seconds=0, trust_seconds=0)  # it would be waited for in real time
    environ = {
        **os.environ,
        **cloud.environ,
        "CLASSROOM_NOW": cloud.post("now")["now"],
        "ANSIBLE_PRIVATE_KEY_FILE": str(key),
        "ANSIBLE_SSH_ARGS": ("-o ControlMaster=auto -o ControlPersist=15s -o LogLevel=ERROR"),
    }
    done = subprocess.run(
        ["ansible-playbook", f"infra/playbooks/{name}.yml", "-e", f"class={folder.file}", *more],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    cloud.settle()
    return done.returncode, done.stdout + done.stderr


def changed(output: str) -> dict[str, int]:
    """Return host -> changed tasks from the recap."""
    return {
        m[1]: int(m[2]) for m in re.finditer(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)", output, re.M)
    }


class Setting:
    """Hold the image, the key and the hosts of a test module."""

    def __init__(self, work: Path, image: hosts.Image, nspawn: str = "") -> None:
        self.work, self.hosts, self.nspawn = work, {}, nspawn
        self.root, self.key, self.variables = image.root, image.key, image.variables

    def boot(self, addresses: dict[str, str]) -> None:
        """Boot a host at each address."""
        for name, ip in addresses.items():
            self.hosts[name] = hosts.Host(name, ip, self.root, self.work, self.key, self.nspawn)
        for host in self.hosts.values():
            host.wait()

    def close(self) -> None:
        """Power all off."""
        for host in self.hosts.values():
            host.close()
        self.hosts = {}


def new_key(place: Path, name: str) -> tuple[Path, str]:
    """Make a key pair as a student would; return the private file and the public text."""
    path = place / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path, " ".join(path.with_suffix(".pub").read_text().split()[:2])


def logs_in(host: hosts.Host, user: str, key: Path) -> bool:
    """Say whether a private key opens an account."""
    return host.ssh("echo in", user=user, key=key, check=False) == "in"


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    """Give a module hosts of the image that all share."""
    image = hosts.shared_image(tmp_path_factory.getbasetemp())
    made = Setting(tmp_path_factory.mktemp("hosts"), image)
    yield made
    made.close()


def bring_up(
    folder: ClassFolder, cloud: LabCloud, setting: Setting, students: list[str], **changes: Any
) -> None:
    """Provision at the fake's addresses and boot the hosts there."""
    (folder.path / "staff.pub").write_text(setting.key.with_suffix(".pub").read_text())
    lab = {
        "repository": changes.pop("repository", "https://github.com/example/labs.git"),
        "commit": setting.variables["commit"],
        "extras": changes.pop("extras", []),
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
        idle_guard_tick_seconds="5",
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


@pytest.mark.full
def test_a_host_is_configured_twice_and_the_second_time_nothing_changes(
    folder: ClassFolder, cloud: LabCloud, setting: Setting
) -> None:
    to_the_real_time(cloud, folder)
    bring_up(folder, cloud, setting, ["idle", "busy", "device"], extras=["labs"])
    setting.hosts["busy"].ssh("sudo ln -sf /proc/stat /srv/stat")
    # a fraction of a core, for the tests want the rest
    burn = "while :; do timeout 0.1 yes; sleep 0.3; done > /dev/null 2>&1"
    setting.hosts["busy"].ssh(f"({burn} &) ; true")
    setting.hosts["device"].ssh("echo 60 | sudo tee /srv/neuron-use")
    extra = variables(setting)
    # A repository key that is not the expected one, alone or beside it, reaches apt in no way.
    strangers = (
        ("-e", "influxdb_key_fingerprint=ABCD"),
        ("-e", "influxdb_key_url=file:///srv/apt/two-keys.asc", "--tags", "influxdb"),
    )
    for wrong in strangers:
        code, refused = play(
            "configure", folder, cloud, setting.key, "--limit", "idle", *extra, *wrong
        )
        assert code == 2 and "is not the one that this role expects" in refused, refused
        assert setting.hosts["idle"].ssh("ls /etc/apt/keyrings") == ""
    # That InfluxDB could not be had takes neither the guard nor the labs away.
    assert setting.hosts["idle"].ssh("systemctl is-active trainium-idle-guard.timer") == "active"
    assert setting.hosts["idle"].ssh("git -C labs rev-parse HEAD") == setting.variables["commit"]
    # The other two are only guarded here; test_hosts_keys.py configures several hosts whole.
    guarded = ("--tags", "idle_guard", "--limit", "busy,device")
    code, others = play("configure", folder, cloud, setting.key, *extra, *guarded)
    assert code == 0 and set(changed(others)) == {"busy", "device"}, others
    idle = ("--limit", "idle")
    code, first = play("configure", folder, cloud, setting.key, *extra, *idle)
    assert code == 0 and changed(first)["idle"] > 5, first
    code, second = play("configure", folder, cloud, setting.key, *extra, *idle)
    assert code == 0 and changed(second) == {"idle": 0}, second
    code, checked = play("configure", folder, cloud, setting.key, "--check", *extra, *idle)
    assert code == 0 and changed(checked) == {"idle": 0}, checked

    host = setting.hosts["idle"]
    assert host.ssh("bash -lc 'echo $VIRTUAL_ENV'") == "/home/ubuntu/labs/.venv"
    assert "/opt/aws_neuronx_venv_pytorch_2_8/bin:" in host.ssh("bash -lc 'echo $PATH'"), (
        "the newest plain PyTorch environment"
    )
    assert host.ssh("git -C labs rev-parse HEAD") == setting.variables["commit"]
    # The lab's own environment holds the extras and sees the Neuron environment's packages.
    program = "import lab_work, neuron_stand_in; print(neuron_stand_in.NAME)"
    assert host.ssh(f"bash -lc 'python -B -c \"{program}\"'").split() == ["42", "pytorch_2_8"]
    assert host.ssh("git -C labs status --porcelain") == ""
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
    assert host.ssh("stat -c %a:%U /etc/trainium-labs/influxdb.env") == "600:root"
    secret = host.ssh("sudo cat /etc/trainium-labs/influxdb.env")
    operator = re.search(r"INFLUX_TOKEN=(\S+)", secret)
    assert operator and operator[1] not in first + second, "the token is in no log"
    assert host.ssh("stat -c %a:%U .influxdbv2/configs") == "600:ubuntu"
    config = host.ssh("cat .influxdbv2/configs")
    assert 'token = "of-0"' in config and operator[1] not in config, "a lesser token"
    given = json.loads(host.ssh("sudo cat /var/lib/influxdb-stand-in.json"))["given"]
    assert [p["action"] + " " + p["resource"]["type"] for p in given[0]["permissions"]] == [
        "read buckets",
        "write buckets",
        "read orgs",
    ]
    assert "Push your work" in host.ssh("cat /etc/motd") and "23:30" in host.ssh(
        "systemctl cat trainium-night.timer"
    )
    assert "inhibit" not in host.ssh("systemctl --failed --no-legend"), "no failed unit"


@pytest.mark.full
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
    for name in ("busy", "device"):
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


def run_examples(
    setting: Setting, place: Path, host: hosts.Host, roles: tuple[str, ...], known: dict[str, Any]
) -> None:
    """Run the example plays of roles' READMEs on a host, as they are written, but for what an
    example cannot know: `known`."""
    (place / "known.json").write_text(json.dumps(known))
    ssh = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    inventory = f"[machines]\n{host.name} ansible_host={host.ip} ansible_user=ubuntu\n"
    (place / "hosts.ini").write_text(
        inventory + f"[machines:vars]\nansible_ssh_common_args={ssh}\n"
    )
    plays: list[Any] = []
    for role in roles:
        text = (INFRA / f"roles/{role}/README.md").read_text(encoding="utf-8")
        plays += yaml.safe_load(text.split("```yaml\n")[1].split("```")[0])
    (place / "all.yml").write_text(yaml.safe_dump(plays))
    environ = {
        **os.environ,
        "ANSIBLE_ROLES_PATH": str(INFRA / "roles"),
        "ANSIBLE_PRIVATE_KEY_FILE": str(setting.key),
        "ANSIBLE_LOCAL_TEMP": str(place / "ansible"),
        "ANSIBLE_PIPELINING": "1",
    }
    done = subprocess.run(
        ["ansible-playbook", "-i", "hosts.ini", "-e", "@known.json", "all.yml"],
        cwd=place,
        env=environ,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr


ALONE = (
    "idle_guard",
    "cluster_home",
    "student_account",
    "motd",
    "work_copies",
    "neuron_venv",
    "lab_workspace",
    "influxdb",
)
SLURM = ("slurm_base", "slurm_controller", "slurm_node")  # test_cluster.py has their machines


def test_every_roles_example_is_run() -> None:
    assert {*ALONE, *SLURM} == {p.name for p in (INFRA / "roles").iterdir()}


def test_the_examples_of_the_roles_readmes_configure_a_machine_without_a_class(
    setting: Setting, tmp_path: Path
) -> None:
    """Each role alone: its example play as it is written, but for what the example cannot know
    (keys, the lab's commit, where packages come from)."""
    setting.close()
    setting.boot({"apart": "127.0.78.1"})
    host = setting.hosts["apart"]
    # work_copies looks for credentials at once: on this machine there are none
    drop_in = "/etc/systemd/system/trainium-work.service.d"
    text = "[Service]\\nEnvironment=AWS_EC2_METADATA_DISABLED=true\\n"
    host.ssh(f"sudo mkdir -p {drop_in}; printf '{text}' | sudo tee {drop_in}/test.conf")
    public = " ".join(setting.key.with_suffix(".pub").read_text().split()[:2])
    known = {k: v for k, v in setting.variables.items() if k.startswith("influxdb_")}
    known |= {
        "influxdb_bind": f"{host.ip}:8086",
        "lab_workspace_repository": "https://github.com/example/labs.git",
        "lab_workspace_commit": setting.variables["commit"],
        "student_account_keys": {"alice": public, "bob": public},
        "student_account_staff_key": public,
    }
    run_examples(setting, tmp_path, host, ALONE, known)
    timers = "trainium-idle-guard.timer trainium-night.timer trainium-work-tick.timer"
    assert (
        host.ssh(f"systemctl is-active influxdb {timers} trainium-work.service").split()
        == ["active"] * 5
    )
    assert "22:00:00 Europe/Berlin" in host.ssh("systemctl show trainium-night.timer")
    assert "NKI, fall" in host.ssh("cat /etc/motd")
    work = json.loads(host.ssh("cat /etc/trainium-labs/work.json"))
    assert work["bucket"] == "trainium-labs--nki-fall--123456789012", work
    assert work["prefix"] == "machines/AROA0123456789:i-0123456789abcdef0"
    assert "/home 10.0.0.5(rw,no_subtree_check,no_root_squash)" in host.ssh("cat /run/exported")
    for user in ("alice", "bob"):
        commit = host.ssh("git -C labs rev-parse HEAD", user=user)
        assert commit == setting.variables["commit"], user


def test_a_machine_that_was_only_born_guards_itself(folder: ClassFolder, setting: Setting) -> None:
    """User data applied as cloud-init would, on a booted host that no one configured."""
    setting.close()
    setting.boot({"fresh": "127.0.77.1"})
    host = setting.hosts["fresh"]
    data = yaml.safe_load(firstboot.script(class_file.load(folder.file)))
    for file in data["write_files"]:
        content = base64.b64encode(file["content"].encode()).decode()
        host.ssh(f"echo {content} | base64 -d | sudo tee {file['path']} > /dev/null")
    for command in data["runcmd"]:
        host.ssh(f"sudo {command}")
    units = "trainium-night.timer trainium-unconfigured.timer trainium-awake.service"
    assert host.ssh(f"systemctl is-active {units}").split() == ["active"] * 3
    assert host.ssh(f"systemctl is-enabled {units}").split() == ["enabled"] * 3, "at each boot"
    assert "23:30:00 America/New_York" in host.ssh("systemctl show trainium-night.timer")
    computing = host.ssh("ps -eo cls,args | grep '[w]hile :;' | grep -v xargs").splitlines()
    wanted = firstboot.awake_processes(class_file.load(folder.file))
    assert sum("timeout" not in line for line in computing) == wanted, computing
    assert all(line.split()[0] == "IDL" for line in computing), computing
    # The two-hour stop: not on a configured machine, at once on one that is not.
    host.ssh("sudo mkdir -p /etc/trainium-labs; sudo touch /etc/trainium-labs/configured")
    host.ssh("sudo systemctl start trainium-unconfigured.service")
    assert not host.ended(2)
    host.ssh("sudo rm /etc/trainium-labs/configured")
    host.ssh("sudo systemctl start --no-block trainium-unconfigured.service", check=False)
    assert host.ended(150)
