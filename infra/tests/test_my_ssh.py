"""A student's `my.py ssh` for real: OpenSSH, the page behind the link, and a booted host whose key
is the pinned one, or is not."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

import hosts
from classroom.spec import tags
from conftest import ClassFolder, public_key, to_the_real_time
from function_server import FunctionServer
from labcloud.client import LabCloud
from test_hosts import Setting, bring_up, new_key

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(900),  # booted hosts, configured by Ansible
    pytest.mark.skipif(bool(hosts.why_not()), reason=hosts.why_not()),
]
REGION = "us-east-2"


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    """Give a module hosts of the image that all share."""
    image = hosts.shared_image(tmp_path_factory.getbasetemp())
    made = Setting(tmp_path_factory.mktemp("my"), image)
    yield made
    made.close()


def test_ssh_starts_the_machine_logs_in_and_knows_it_by_its_key(
    folder: ClassFolder, cloud: LabCloud, setting: Setting, tmp_path: Path
) -> None:
    to_the_real_time(cloud, folder)
    ssh = tmp_path / "ssh"
    ssh.mkdir(mode=0o700)
    _, public = new_key(ssh, "id_ed25519")
    folder.keys["alice"] = public
    bring_up(folder, cloud, setting, ["alice"], my="lambda")
    host = setting.hosts["alice"]
    host.ssh(f"echo {public} >> .ssh/authorized_keys")  # as configure does
    (machine,) = [r["id"] for r in cloud.machines()]
    ec2 = boto3.client("ec2", REGION)

    def printed(key: str) -> None:
        """Let it be what the machine's console has said."""
        ec2.create_tags(Resources=[machine], Tags=[{"Key": tags.HOSTKEY, "Value": key}])
        cloud.settle()

    real = " ".join(host.ssh("cat /etc/ssh/ssh_host_ed25519_key.pub").split()[:2])
    printed(real)
    page = (folder.path / "out/lab/alice.md").read_text()
    (link,) = [w[1:-1] for w in page.split() if w.startswith("<https://")]
    # OpenSSH looks for its settings in the home of the account, whatever HOME says
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    (home / ".ssh").mkdir(mode=0o700, exist_ok=True)

    with FunctionServer(cloud, folder.path, REGION, "trainium-labs_lab_my") as server:
        with urllib.request.urlopen(server.local(link) + "&get=my.py") as answer:
            text = answer.read().decode()
        program = tmp_path / "my.py"
        program.write_text(text.replace("LINK = 'https://127", "LINK = 'http://127"))

        def my(*words: str) -> subprocess.CompletedProcess[str]:
            script = f'mount --bind {ssh} {home}/.ssh && exec "$@"'
            inside = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]
            return subprocess.run(
                [*inside, sys.executable, str(program), *words],
                env={"HOME": str(home), "PATH": os.environ["PATH"]},
                capture_output=True,
                text=True,
                timeout=180,
                stdin=subprocess.DEVNULL,
            )

        done = my("ssh", "hostname; whoami")
        assert done.returncode == 0 and done.stdout.split() == ["alice", "ubuntu"], done
        assert my("ssh", "exit 7").returncode == 7, "the program's own code comes back"
        assert f"{machine} {real}" in (ssh / "known_hosts.lab-alice").read_text()
        assert "StrictHostKeyChecking yes" in (ssh / "config").read_text()

        # A stopped machine is started first; the page says so until it runs.
        ec2.stop_instances(InstanceIds=[machine])
        cloud.settle()
        assert cloud.running() == []
        over = threading.Event()

        def pass_time() -> None:
            while not over.wait(1):
                cloud.post("advance", seconds=30)

        clock = threading.Thread(target=pass_time)
        clock.start()
        try:
            done = my("ssh", "echo in")
        finally:
            over.set()
            clock.join()
        assert done.stdout.strip() == "in" and "It starts" in done.stderr, done
        assert cloud.running() == [machine]

        # Another host answers at its address.
        printed(public_key(99))
        done = my("ssh", "echo in")
        assert done.returncode == 255 and done.stdout == "", done
        assert "Host key verification failed" in done.stderr
        # and it is its own again: the student need not clean up
        printed(real)
        assert my("ssh", "echo in").stdout.strip() == "in"
