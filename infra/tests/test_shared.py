"""A shared machine for real: accounts, keys, NeuronCores, and who opens which device.

On a booted host (see hosts.py). Stand-ins: the Neuron devices are virtual terminals under other
names, files of character devices that open; cluster.py has the same.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import cluster
import hosts
from conftest import ClassFolder, to_the_real_time
from labcloud.client import LabCloud
from test_hosts import Setting, bring_up, changed, logs_in, new_key, play, variables

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(900),  # booted hosts, configured by Ansible
    pytest.mark.skipif(bool(hosts.why_not()), reason=hosts.why_not()),
]
DEVICES = 3

# Whatever a student can think of; prints what was opened in each way, and what could be done.
HOSTILE = r"""
import os, subprocess, sys

def tried(name, *before):
    words = [*before, sys.executable, "/usr/local/bin/try-devices", "0", "1", "2"]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    print(name, ",".join(done.stdout.split()) or "none", flush=True)

tried("plainly")
for name in ("NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES", "NEURON_RT_ROOT_COMM_ID"):
    os.environ[name] = "0-31"
tried("env")
tried("setsid", "setsid", "--wait")
tried("as-root-of-a-namespace", "unshare", "-r")
tried("group", "setpriv", "--regid", "0", "--clear-groups")
tried("another-group", "sh", "-c", 'exec sg neuron1 -c "$*"', "sh")
tried("bound", "unshare", "-rm", "sh", "-c", 'mount --bind /dev/neuron1 /dev/neuron0; "$@"', "sh")
tried("user-manager", "systemd-run", "--user", "--pipe", "--wait", "--quiet")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        tried("double-fork")
    os._exit(0)
os.wait()
for number in range(3):
    try:
        os.mknod(f"/tmp/mine{number}", 0o20666, os.stat(f"/dev/neuron{number}").st_rdev)
        print("could make", number)
    except PermissionError:
        pass
for command in (
    "sudo -n true", "su -c true dora < /dev/null",
    "chmod 666 /dev/neuron1", "chgrp neuron0 /dev/neuron1", "chown $USER /dev/neuron1",
    "setfacl -m u:$USER:rw /dev/neuron1", "ln -f /dev/neuron1 /tmp/linked",
    "mv /dev/neuron1 /dev/neuron9", "rm -f /dev/neuron1",
    "unshare -r chmod 666 /dev/neuron1",
    "usermod -aG neuron1 $USER", "gpasswd -a $USER neuron1",
    "echo x >> /etc/group", "touch /etc/udev/rules.d/00-mine.rules",
    "udevadm trigger", "systemctl restart systemd-udevd", "cat ~dora/labs/README.md",
    "kill -0 $(pgrep -u dora -x sleep)", "gdb -p $(pgrep -u dora -x sleep)",
    "ls /proc/$(pgrep -u dora -x sleep)/fd",
):
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    if subprocess.run(command, shell=True, **quiet).returncode == 0:
        print("could", command)
tried("in-the-end")
"""


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    """Give a module hosts of the image that all share."""
    image = hosts.shared_image(tmp_path_factory.getbasetemp())
    made = Setting(tmp_path_factory.mktemp("shared"), image)
    yield made
    made.close()


def test_a_shared_host_gives_each_student_a_home_a_key_and_a_core(
    folder: ClassFolder, cloud: LabCloud, setting: Setting, tmp_path: Path
) -> None:
    to_the_real_time(cloud, folder)
    keys: dict[str, Path] = {}
    for student in ("alice", "bob", "carol", "dora"):
        keys[student], folder.keys[student] = new_key(tmp_path, student)
    folder.sections = {"alice": "lab-01", "bob": "lab-01", "dora": "lab-01", "carol": "lab-02"}
    (tia, public), (by_hand, added) = (new_key(tmp_path, n) for n in ("tia", "by-hand"))
    folder.staff(f"tia@example.edu,ta,lab-01,{public}")
    students = ["alice", "bob", "dora"]  # two on the first chip, one on the next
    kind = {"mode": "shared", "instance_type": "trn1.32xlarge"}
    bring_up(folder, cloud, setting, students, **kind)
    (host,) = setting.hosts.values()
    host.ssh(f"sudo tee /usr/local/bin/try-devices <<'EOF'\n{cluster.TRY}\nEOF")
    for number in range(DEVICES):  # stand-ins, open as the driver's are
        host.ssh(f"sudo mknod -m 666 /dev/neuron{number} c 4 {cluster.TERMINALS + number}")
    code, output = play("configure", folder, cloud, setting.key, *variables(setting))
    assert code == 0, output
    assert logs_in(host, "ubuntu", tia), "all who sit there are of her section"

    assert host.ssh("stat -c %a:%U:%G /dev/neuron0") == "660:root:neuron0"
    assert host.ssh("stat -c %a:%U:%G /dev/neuron1") == "660:root:neuron1"
    assert host.ssh("stat -c %a:%U:%G /dev/neuron2") == "600:root:root", "it has no students"
    rules = host.ssh("cat /etc/udev/rules.d/99-trainium*")
    assert 'KERNEL=="neuron0", GROUP:="neuron0"' in rules and 'KERNEL=="neuron*", GRO' in rules
    opened = "python3 /usr/local/bin/try-devices 0 1 2"
    for student, own in (("alice", "0"), ("bob", "0"), ("dora", "1")):
        assert host.ssh(opened, user=student, key=keys[student]) == own, student
    assert host.ssh(opened) == "0 1", "the staff open what has students, without sudo"
    assert host.ssh(f"sudo runuser -u nobody -- {opened}") == ""
    hold = "exec 3<>/dev/neuron1; setsid sleep 600 > /dev/null 2>&1 < /dev/null &"
    host.ssh(hold, user="dora", key=keys["dora"])
    host.ssh(f"cat > hostile.py <<'EOF'\n{HOSTILE}\nEOF", user="alice", key=keys["alice"])
    lines = host.ssh("python3 hostile.py 2>&1", user="alice", key=keys["alice"]).splitlines()
    assert not [line for line in lines if line.startswith("could")], lines
    ways = dict(line.split() for line in lines)
    assert set(ways.values()) <= {"0", "none"} and len(ways) == 10, lines
    assert ways["plainly"] == ways["double-fork"] == ways["in-the-end"] == "0", lines
    tokens = [host.ssh("cat .influxdbv2/configs", user=s, key=keys[s]) for s in ("alice", "bob")]
    assert tokens[0] != tokens[1]
    other = "cat ~bob/.influxdbv2/configs"
    assert host.ssh(other, user="alice", key=keys["alice"], check=False) == ""
    assert "poweroff" not in host.ssh("cat /etc/motd"), "students of a shared machine have no sudo"

    def core(student: str) -> str:
        return host.ssh("bash -lc 'echo $NEURON_RT_VISIBLE_CORES'", user=student, key=keys[student])

    for number, student in enumerate(students):
        assert core(student) == str(number)
        assert (
            host.ssh("git -C labs rev-parse HEAD", user=student, key=keys[student])
            == setting.variables["commit"]
        )
    assert host.ssh("ls /home/bob", user="alice", key=keys["alice"], check=False) == "", (
        "homes are private"
    )
    assert "uid" not in host.ssh("sudo -n id", user="alice", key=keys["alice"], check=False)
    code, again = play(
        "configure", folder, cloud, setting.key, "--limit", "bob", *variables(setting)
    )
    assert code == 0 and set(changed(again).values()) == {0}, again
    host.ssh("echo answer > labs/answer.py", user="alice", key=keys["alice"])
    code, checked = play("save_work", folder, cloud, setting.key, "--check")
    assert code == 0 and not (folder.path / "out/lab/work").exists(), checked
    code, saved = play("save_work", folder, cloud, setting.key, "--limit", "bob")
    names = [p.name for p in (folder.path / "out/lab/work").iterdir()]
    assert code == 0 and sorted(names) == ["bob.tar.gz", "manifest.json"], saved

    # Bob brings another key; --limit alice leaves him alone.
    old = keys["bob"]
    keys["bob"], folder.keys["bob"] = new_key(tmp_path, "bob-2")
    folder.write()
    code, output = play("rotate_keys", folder, cloud, setting.key, "--limit", "alice")
    assert code == 0 and logs_in(host, "bob", old), output

    host.ssh(f"echo {added} >> .ssh/authorized_keys")
    assert logs_in(host, "ubuntu", tia)
    # Alice leaves while something of hers runs; Carol takes her NeuronCore.
    host.ssh("setsid sleep 900 > /dev/null 2>&1 < /dev/null &", user="alice", key=keys["alice"])
    folder.write(["bob", "carol", "dora"])
    code, output = play("provision", folder, cloud, setting.key, "-e", "yes=true")
    assert code == 0, output
    code, output = play("configure", folder, cloud, setting.key, *variables(setting))
    assert code == 0 and logs_in(host, "bob", keys["bob"]) and not logs_in(host, "bob", old), output
    assert not logs_in(host, "alice", keys["alice"]) and core("carol") == "0"
    assert not logs_in(host, "ubuntu", tia) and logs_in(host, "ubuntu", by_hand), "carol is not"
    opens = {s: host.ssh(opened, user=s, key=keys[s]) for s in ("bob", "carol", "dora")}
    assert opens == {"bob": "0", "carol": "0", "dora": "1"}
    assert core("bob") == "1" and host.ssh("pgrep -u alice", check=False) == ""
    assert host.ssh("sudo cat /home/alice/labs/answer.py") == "answer", "her files stay"
    listed = subprocess.run(
        ["tar", "-tzf", str(folder.path / "out/lab/work/alice.tar.gz")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "labs/answer.py" in listed
    code, output = play("configure", folder, cloud, setting.key, *variables(setting))
    assert code == 0 and set(changed(output).values()) == {0}, output

    # She comes back, onto a machine of her own or a free seat: her account opens again.
    folder.write(["alice", "bob", "dora"])
    play("provision", folder, cloud, setting.key, "-e", "yes=true")
    code, output = play("configure", folder, cloud, setting.key, *variables(setting))
    assert code == 0 and logs_in(host, "alice", keys["alice"]) and core("alice") == "0", output
    assert not logs_in(host, "carol", keys["carol"])

    code, down = play("teardown", folder, cloud, setting.key, "-e", "yes=true")
    assert code == 0 and "0 billable resources of class lab" in down, down
    assert cloud.leftovers() == []
