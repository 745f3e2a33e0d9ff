"""The students' pages say what is true for the machine: alone or shared, old profiler or new."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from classroom.fleet import hostkeys
from classroom.fleet.inventory import Machine
from classroom.spec import class_file
from classroom.spec.run import Run
from classroom.students import pages
from conftest import ClassFolder, public_key

ID = "i-0123456789abcdef0"


def write(folder: ClassFolder, tags: dict[str, str]) -> dict[str, str]:
    """Write the pages of one running machine; return student -> page."""
    loaded = class_file.load(folder.file)
    kind = ("us-east-2", ID, "running", "us-east-2a", "203.0.113.7", "trn1.2xlarge", "on-demand")
    machine = Machine("node-01", *kind, "2026-11-21", tags=tags)
    run = Run(loaded, None)  # type: ignore[arg-type]
    names = pages.write(run, [machine], {})
    return {n.removesuffix(".md"): (loaded.out / n).read_text() for n in names}


SHARED: dict[str, Any] = {"trainium-labs:core-00": "alice", "trainium-labs:core-01": "bob"}


def test_students_of_a_shared_machine_are_told_no_sudo_and_have_ports_of_their_own(
    folder: ClassFolder,
) -> None:
    folder.write(["alice", "bob"], mode="shared")
    pages = write(folder, SHARED)
    for page in pages.values():
        assert "poweroff" not in page and "only the staff can stop it" in page
        assert "not a wall" in page and "read what is in the device's memory" in page
        assert "the device `/dev/neuron0`" in page
        assert "You and the staff get mail" not in page
    assert "LocalForward 3001 localhost:3001" in pages["alice"] and "--port 3001" in pages["alice"]
    assert "LocalForward 3002 localhost:3002" in pages["bob"] and "--port 3002" in pages["bob"]
    assert "3001" not in pages["bob"] and "User bob" in pages["bob"]


def test_a_student_alone_stops_the_machine_with_sudo(folder: ClassFolder) -> None:
    page = write(folder, {"trainium-labs:owner": "alice"})["alice"]
    assert "sudo poweroff" in page and "not a wall" not in page and "User ubuntu" in page
    assert "LocalForward 3001 localhost:3001" in page and "LocalForward 8086" in page


def test_the_new_profiler_has_two_ports_and_no_database(folder: ClassFolder) -> None:
    folder.write(["alice", "bob"], mode="shared", profiler="neuron-explorer")
    page = write(folder, SHARED)["bob"]
    assert "LocalForward 3001" in page and "LocalForward 3002" in page and "8086" not in page
    assert "agree with who shares it" in page


def test_a_machine_is_known_by_its_key_once_the_staff_have_seen_it(folder: ClassFolder) -> None:
    page = write(folder, {"trainium-labs:owner": "alice"})["alice"]
    assert f"HostKeyAlias {ID}" in page and "say yes once" in page
    key = public_key(5)
    (folder.path / "out/lab/known_hosts").write_text(
        f"i-0other {public_key(6)}\n# a comment\nbroken\n{ID} {key}\n{ID} ssh-rsa %%%\n"
    )
    digest = hashlib.sha256(base64.b64decode(key.split()[1])).digest()
    wanted = "SHA256:" + base64.b64encode(digest).decode().rstrip("=")
    assert hostkeys.fingerprints(folder.path / "out/lab", ID) == [f"ED25519 {wanted}"]
    page = write(folder, {"trainium-labs:owner": "alice"})["alice"]
    assert f"It must be ED25519 {wanted}." in page
