"""Who gets into booted hosts: keys that are rotated, assistants of a section, and a student who is
staff and class in one."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import hosts
from conftest import ClassFolder, to_the_real_time
from labcloud.client import LabCloud
from test_hosts import Setting, bring_up, changed, logs_in, new_key, play, setting, variables

__all__ = ["setting"]  # the fixture
pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(900),  # booted hosts, configured by Ansible
    pytest.mark.skipif(bool(hosts.why_not()), reason=hosts.why_not()),
]


def test_rotated_keys_replace_the_old_ones_on_the_machines(
    folder: ClassFolder,
    cloud: LabCloud,
    setting: Setting,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setting.close()
    to_the_real_time(cloud, folder)
    place = tmp_path / "keys"
    place.mkdir()
    (tmp_path / "password").write_text("a long enough password\n")
    monkeypatch.setenv("ANSIBLE_VAULT_PASSWORD_FILE", str(tmp_path / "password"))
    old, folder.keys["alice"] = new_key(place, "alice")
    folder.keys["bob"] = ""  # one is generated
    folder.sections = {"alice": "lab-01", "bob": "lab-02"}
    tia, assistant = new_key(place, "tia")
    folder.staff(f"tia@example.edu,ta,lab-01,{assistant}")
    bring_up(folder, cloud, setting, ["alice", "bob"])
    code, output = play("configure", folder, cloud, setting.key, *variables(setting))
    assert code == 0, output
    alice, bob = setting.hosts["alice"], setting.hosts["bob"]
    generated = hosts.decrypted(folder.path / "out/lab/keys/bob.vault", place)
    assert logs_in(alice, "ubuntu", old) and logs_in(bob, "ubuntu", generated)
    assert not logs_in(bob, "ubuntu", old)
    assert logs_in(alice, "ubuntu", tia) and not logs_in(bob, "ubuntu", tia), "not her section"

    fresh, folder.keys["alice"] = new_key(place, "alice-2")
    staff, staff_public = new_key(place, "staff-2")
    (folder.path / "staff.pub").write_text(staff_public + " staff\n")
    folder.write()
    folder.staff(f"tia@example.edu,ta,lab-02,{assistant}")
    pub = folder.path / "out/lab/keys/bob.pub"
    before = pub.read_text()
    os.utime(pub, (0, time.time() - 7200))
    mark = len(cloud.log())
    code, output = play("rotate_keys", folder, cloud, setting.key, "--check")
    assert code == 0 and cloud.writes(mark) == [] and pub.read_text() == before, output
    assert logs_in(alice, "ubuntu", old) and not logs_in(alice, "ubuntu", fresh)

    code, output = play("rotate_keys", folder, cloud, setting.key, "--limit", "alice")
    assert code == 0 and set(changed(output)) == {"alice"}, output
    assert logs_in(alice, "ubuntu", fresh) and not logs_in(alice, "ubuntu", old)
    assert not logs_in(alice, "ubuntu", setting.key) and logs_in(alice, "ubuntu", staff)
    assert pub.read_text() == before and logs_in(bob, "ubuntu", generated)
    assert not logs_in(alice, "ubuntu", tia), "she has another section now"
    assert cloud.writes(mark) == [], "the class's key pair is not one student's"

    alice.key = staff
    code, output = play("rotate_keys", folder, cloud, setting.key, "--limit", "bob")
    assert code == 0 and pub.read_text() != before, output
    bob.key = staff
    assert logs_in(bob, "ubuntu", tia)
    newer = hosts.decrypted(pub.with_suffix(".vault"), place)
    assert logs_in(bob, "ubuntu", newer) and not logs_in(bob, "ubuntu", generated)
    assert "PRIVATE" not in output

    code, output = play("rotate_keys", folder, cloud, staff)
    assert code == 0, output
    assert cloud.writes(mark) == ["DeleteKeyPair", "ImportKeyPair"]
    mark = len(cloud.log())
    code, output = play("rotate_keys", folder, cloud, staff)
    assert code == 0 and set(changed(output).values()) == {0} and cloud.writes(mark) == [], output
    assert logs_in(bob, "ubuntu", newer), "a key younger than an hour is kept"

    # Ansible goes on without a host that does not answer; what deletes disks must not.
    bob.close()
    before = cloud.leftovers()
    code, output = play("teardown", folder, cloud, staff, "-e", "yes=true")
    assert code and "is not saved, so nothing was deleted: bob" in output, output
    assert cloud.leftovers() == before and (folder.path / "out/lab/work/alice.tar.gz").exists()
    given_up = ("-e", "yes=true", "-e", "discard_work=bob")
    code, output = play("teardown", folder, cloud, staff, *given_up)
    assert code == 0 and cloud.leftovers() == [], output


def test_a_lone_student_is_staff_and_class_in_one(
    folder: ClassFolder,
    cloud: LabCloud,
    setting: Setting,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setting.close()
    to_the_real_time(cloud, folder)
    public = " ".join(setting.key.with_suffix(".pub").read_text().split()[:2])
    folder.keys["me-alone"] = public  # the same key in the roster as staff_key
    private = "git@github.com:example/private-labs.git"  # only this computer has a key for it
    config = tmp_path / "gitconfig"
    config.write_text(f'[url "file://{setting.root}/srv/labs.git"]\n\tinsteadOf = {private}\n')
    config.write_text(config.read_text() + "[safe]\n\tdirectory = *\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    bring_up(folder, cloud, setting, ["me-alone"], repository=private)
    # as if class.yml pinned SDK 2.29
    other = ("-e", "neuron_venv_tools_release=2.29", "--tags", "neuron_venv")
    code, output = play("configure", folder, cloud, setting.key, *variables(setting), *other)
    said = " ".join(output.split())
    assert code and "carries Neuron tools 2.26.14.0; SDK 2.26.1" in said, output
    code, output = play("configure", folder, cloud, setting.key, *variables(setting))
    assert code == 0, output
    private_lab = ("--tags", "lab_workspace,student_account")
    code, output = play("configure", folder, cloud, setting.key, *variables(setting), *private_lab)
    assert code == 0 and set(changed(output).values()) == {0}, output
    code, output = play("rotate_keys", folder, cloud, setting.key)
    assert code == 0 and set(changed(output).values()) == {0}, output
    (host,) = setting.hosts.values()
    assert host.ssh("git -C labs rev-parse HEAD") == setting.variables["commit"]
    assert host.ssh("git -C labs remote get-url origin") == private
    assert host.ssh("wc -l < .ssh/authorized_keys") == "1"
    page = (folder.path / "out/lab/me-alone.md").read_text()
    assert f"HostName {host.ip}" in page and "User ubuntu" in page
