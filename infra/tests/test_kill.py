"""SIGKILL of the playbook at twenty points: teardown leaves nothing, or a rerun converges."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import INFRA, START, ClassFolder
from labcloud.client import LabCloud

Classroom = Callable[..., dict[str, Any]]


@pytest.mark.parametrize("batch", range(4))
def test_a_killed_playbook_leaves_guarded_machines_and_a_clean_way_out(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom, batch: int
) -> None:
    folder.write(6, elastic_ip=True)
    dice = random.Random(batch)
    environ = {
        **os.environ,
        **cloud.environ,
        "CLASSROOM_NOW": START + "+00:00",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    for k in range(5):
        cloud.post("reset", at=START, soft=True)
        number = 5 * batch + k
        # A full run is about 90 calls: kill after a certain number of them, so that the points
        # cover the run on any machine.
        calls = 4 + number * 4 + dice.randrange(4)
        run = subprocess.Popen(
            [
                "ansible-playbook",
                "infra/playbooks/provision.yml",
                "-e",
                f"class={folder.file}",
                "-e",
                "yes=true",
            ],
            cwd=INFRA.parent,
            env=environ,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while run.poll() is None and len(cloud.log()) < calls:
            time.sleep(0.002)
        killed = run.poll() is None
        if killed:
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        while any(c["status"] == 0 for c in cloud.log()):
            time.sleep(0.05)  # what the server was doing for the dead client ends
        for event in cloud.post("events"):
            if event["kind"] == "running":
                assert {"nightly", "teardown", "unarmed", "budget"} <= set(event["guards"]), (
                    number,
                    event,
                )
        assert all(
            (r["tags"] or {}).get("trainium-labs:class") == "lab"
            for r in cloud.leftovers()
            if r["kind"] != "schedule"
        ), number
        if k % 2:
            assert classroom("provision", folder.file)["exit_code"] == 0
            names = sorted(
                r["tags"]["trainium-labs:machine"]
                for r in cloud.leftovers()
                if r["kind"] == "instance"
            )
            assert names == folder.students, number
            assert classroom("provision", folder.file)["changed"] is False
        else:
            cloud.post("advance", seconds=16 * 60)
            unarmed = [
                r["id"]
                for r in cloud.leftovers()
                if r["kind"] == "instance" and r["tags"].get("trainium-labs:guard") == "pending"
            ]
            assert not set(unarmed) & set(cloud.running()), (
                "the cloud itself stops what was left unarmed"
            )
        assert classroom("teardown", folder.file)["exit_code"] == 0, number
        assert cloud.leftovers() == [], number
