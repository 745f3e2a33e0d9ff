"""Machines without a public address, from the sides that reach them: Ansible's inventory, the
students' function, and my.py through AWS's command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from classroom.aws import organisations
from classroom.students.selfservice import my
from conftest import INFRA, ClassFolder, Classroom, Lab
from labcloud.client import LabCloud
from link_class import REGION, Class, act, ask

# It writes down what it was asked for and carries what it is given, as a session does.
AWS = '#!/bin/sh\necho "$@" > "$0.asked"\ncat\nexit ${REFUSES:-0}\n'


@pytest.fixture(params=["session-manager", "instance-connect"])
def private(
    request: pytest.FixtureRequest, folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> Iterator[Class]:
    """Return a class of two whose machines run and have no public address."""
    nets = None if request.param == "session-manager" else ["10.0.0.0/16"]
    folder.write(["alice", "bob"], my="lambda", reach=request.param, ssh_cidrs=nets)
    made = Class(folder, cloud, classroom)
    with made.server:
        yield made


def test_the_function_says_how_the_machine_is_reached_and_my_py_goes_that_way(
    private: Class, tmp_path: Path
) -> None:
    reach, link = private.folder.data["reach"], private.links["alice"]
    f = ask(link)["facts"]
    assert (f["reach"], f["region"], f["address"]) == (reach, REGION, f["machine"])
    assert f["machine"].startswith("i-") and f["state"] == "running"

    with urllib.request.urlopen(link + "&get=my.py") as answer:
        text = answer.read().decode()
    (tmp_path / "my.py").write_text(text.replace("LINK = 'https://127", "LINK = 'http://127"))
    (tmp_path / "bin").mkdir()
    aws = tmp_path / "bin/aws"
    aws.write_text(AWS)
    aws.chmod(0o755)

    def proxy(path: Path, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(tmp_path / "my.py"), "proxy"],
            env={"HOME": str(tmp_path), "PATH": f"{path}:/usr/bin:/bin", **more},
            input="SSH-2.0",
            capture_output=True,
            text=True,
            timeout=60,
        )

    done = proxy(aws.parent)
    assert (done.returncode, done.stdout) == (0, "SSH-2.0"), done
    written = organisations.proxy(reach, REGION).replace("%h", f["machine"]).replace("%p", "22")
    asked = Path(f"{aws}.asked").read_text().split()
    port = ["--remote-port", "22"]  # which AWS's command takes when none is named
    assert "aws " + " ".join(asked + port * (reach == "instance-connect")) == written
    done = proxy(aws.parent, REFUSES="254")
    assert done.returncode == 1 and "are you signed in" in done.stderr, done
    aws.unlink()
    done = proxy(aws.parent)
    assert done.returncode == 1 and "takes AWS's command line" in done.stderr, done

    act(link, "stop")
    private.cloud.settle()
    f = ask(link)["facts"]
    assert f["state"] == "stopped" and f["address"] == f["machine"], "it keeps its name"


def test_facts_that_are_not_ours_are_carried_nowhere() -> None:
    for f in (
        {"reach": "session-manager", "region": "us-east-2 --debug", "machine": "i-1"},
        {"reach": "telnet", "region": REGION, "machine": "i-1"},
    ):
        with pytest.raises(my.Stop, match="makes no sense"):
            my.through_aws(f)


@pytest.mark.sample(1)
@pytest.mark.parametrize("reach", ["session-manager", "instance-connect"])
def test_the_inventory_reaches_running_machines_by_id(lab: Lab, reach: str) -> None:
    nets = None if reach == "session-manager" else ["10.0.0.0/16"]
    lab.write(["alice", "bob"], reach=reach, ssh_cidrs=nets)
    lab("provision")
    lab("stop", limit=["bob"])
    environ = {
        **os.environ,
        **lab.cloud.environ,
        "CLASSROOM_NOW": lab.post("now")["now"],
    }
    done = subprocess.run(
        ["ansible-inventory", "--list", "-e", f"class={lab.folder.file}"],
        cwd=INFRA.parent,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = json.loads(done.stdout)
    assert found["machines"]["hosts"] == ["alice"] and found["stopped"]["hosts"] == ["bob"]
    machines = {r["tags"]["trainium-labs:owner"]: r["id"] for r in lab.machines()}
    host = {  # what may hold no template is marked so
        key: value.get("__ansible_unsafe", value) if isinstance(value, dict) else value
        for key, value in found["_meta"]["hostvars"]["alice"].items()
    }
    assert (host["ansible_host"], host["ansible_user"]) == (machines["alice"], "ubuntu")
    way = organisations.proxy(reach, REGION)
    assert f"-o 'ProxyCommand={way}'" in host["ansible_ssh_common_args"]
    assert f"HostKeyAlias={machines['alice']}" in host["ansible_ssh_common_args"]
