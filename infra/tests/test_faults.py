"""A hundred faults: after each, a rerun converges and teardown leaves nothing; no machine ever ran
without guards."""

from __future__ import annotations

import random
from typing import Any

import pytest

from classroom.aws.problems import ClassroomError
from conftest import START, ClassFolder, Classroom, Lab
from labcloud.client import LabCloud

ALWAYS = {"nightly", "teardown", "unarmed", "budget"}
KINDS: dict[str, dict[str, Any]] = {
    "500": {"code": "InternalError", "status": 500, "times": 2},
    "500 once": {"code": "InternalError", "status": 500, "times": 1},
    "throttled": {"code": "Throttling", "status": 400, "times": 2},
    "lost answer": {"code": "InternalError", "status": 500, "after": True, "times": 2},
    "lost answer once": {"code": "InternalError", "status": 500, "after": True, "times": 1},
    "dropped": {"drop": True, "times": 2},
    "dropped after": {"drop": True, "after": True, "times": 2},
    "no capacity": {
        "op": "RunInstances",
        "code": "InsufficientInstanceCapacity",
        "status": 500,
        "times": 3,
    },
}


def plans(number: int) -> list[tuple[str, int]]:
    """Return (kind, which call) pairs that cover every kind and the whole length of a run; the same
    ones each time."""
    dice = random.Random(5)
    kinds = list(KINDS)
    return [
        (
            kinds[i % len(kinds)],
            (
                0
                if kinds[i % len(kinds)] == "no capacity"
                else int(i * 62 / number) + dice.randrange(3)
            ),
        )
        for i in range(number)
    ]


def check_running(cloud: LabCloud, when: str) -> None:
    """Assert that each machine that ever started had its class-wide guards at that moment."""
    for event in cloud.post("events"):
        if event["kind"] == "running":
            assert ALWAYS <= set(event["guards"]), (when, event)
            assert event["tags"].get("trainium-labs:class") == "lab", (when, event)


@pytest.mark.sample(1)
@pytest.mark.parametrize("batch", range(20))
def test_a_hundred_faults_leave_nothing_behind(lab: Lab, batch: int) -> None:
    lab.write(["alice", "bob"], elastic_ip=True)
    fired = 0
    for number, (kind, call) in list(enumerate(plans(100)))[batch * 5 : (batch + 1) * 5]:
        what = f"fault {number}: {kind} at call {call}"
        lab.post("reset", at=START, soft=True)
        lab.post("set", regions=["us-east-1", "us-east-2", "us-west-2"])
        (lab.folder.path / "class.lock.yml").unlink(missing_ok=True)
        lab.fault(skip=call, **KINDS[kind])
        try:
            lab("provision")
        except ClassroomError as error:
            assert str(error), what
        fired += sum(c["status"] not in (200, 404, 409) or "performed" in c for c in lab.log()) > 0
        lab.post("clear")
        check_running(lab.cloud, what)
        tagged = [r for r in lab.leftovers() if r["kind"] != "schedule"]
        assert all((r["tags"] or {}).get("trainium-labs:class") == "lab" for r in tagged), (
            what,
            tagged,
        )
        if number % 2:
            assert lab("provision")["exit_code"] == 0, what
            kinds = [r["kind"] for r in lab.leftovers() if ".failures." not in r["id"]]
            assert (
                kinds.count("instance") == kinds.count("elastic-ip") == kinds.count("alarm") == 2
            ), (what, sorted(kinds))
            assert lab("provision")["changed"] is False, what
        if number % 3 == 0:  # the same fault during the teardown
            lab.fault(skip=call, **KINDS[kind])
            classroom_or_error(lab, lab.folder)
            lab.post("clear")
        done = lab("teardown")
        never = "nothing here says that it ever did" in done["summary"]  # nothing was made at all
        assert done["exit_code"] == 0 or never, what
        assert lab.leftovers() == [], what
    assert fired >= 4, "the faults of this batch did happen"


def classroom_or_error(classroom: Classroom, folder: ClassFolder) -> None:
    """Tear down; a sentence is fine."""
    try:
        classroom("teardown", folder.file)
    except ClassroomError as error:
        assert str(error)
