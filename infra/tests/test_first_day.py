"""The first minutes of a class in a new account: IAM is late, Scheduler's counters are late, and
nothing that guards have not shown may be taken for granted."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

from conftest import ClassFolder
from labcloud.client import LabCloud

Classroom = Callable[..., dict[str, Any]]


def minutes(cloud: LabCloud) -> float:
    """Return the virtual minutes that all calls took."""
    first, last = (dt.datetime.fromisoformat(cloud.log()[k]["t"]) for k in (0, -1))
    return (last - first).total_seconds() / 60


@pytest.mark.parametrize("seconds", [0, 12, 45])
def test_a_class_comes_up_in_one_run_however_late_iam_is(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom, seconds: float
) -> None:
    cloud.post("set", policy_seconds=seconds, trust_seconds=min(seconds, 10), watching=True)
    done = classroom("provision", folder.file)
    assert done["exit_code"] == 0 and done["warnings"] == [], done["warnings"]
    assert len(cloud.running()) == 2 and minutes(cloud) < 6
    cloud.post("advance", seconds=20 * 60)
    assert len(cloud.running()) == 2, "nothing stops a class that has just come up"
    assert cloud.post("watched")["unguarded"] == []
    assert classroom("provision", folder.file)["changed"] is False


def test_a_region_whose_guard_is_not_proven_is_said(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    cloud.post("set", policy_seconds=100, trust_seconds=10)
    done = classroom("provision", folder.file)
    assert "is not proven to work in us-east-2" in done["warnings"][0]
    assert done["exit_code"] == 0 and len(cloud.running()) == 2  # in the next region


def test_no_machine_starts_before_a_guard_has_run(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    cloud.post("set", policy_seconds=45)
    classroom("provision", folder.file)
    log = [c for c in cloud.log() if c["op"] in ("RunInstances", "CreateSchedule")]
    first = next(k for k, c in enumerate(log) if c["op"] == "RunInstances")
    ran = [e for e in cloud.post("events") if e["kind"] == "schedule" and "refused" not in e["did"]]
    assert ran[0]["t"] < log[first]["t"]


def test_what_was_stopped_before_it_was_ever_armed_runs_after_the_next_provision(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    """A run that was cut after the launch: the guard for unarmed machines has stopped them."""
    cloud.fault("PutMetricAlarm", code="AccessDenied", status=403, times=1000)
    assert classroom("provision", folder.file)["exit_code"] == 1
    cloud.post("clear")
    cloud.post("advance", seconds=20 * 60)
    assert cloud.running() == []
    done = classroom("provision", folder.file)
    assert done["exit_code"] == 0 and len(cloud.running()) == 2
    assert [r[2] for r in done["tables"][0]["rows"]] == ["running"] * 2
    classroom("stop", folder.file)
    classroom("provision", folder.file)
    assert cloud.running() == [], "what was armed and stopped stays stopped"


@pytest.mark.parametrize("retried", [False, True])
def test_it_makes_no_difference_whether_scheduler_tries_denials_again(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom, retried: bool
) -> None:
    cloud.post("set", retry_refused=retried, policy_seconds=100)
    assert classroom("provision", folder.file)["exit_code"] == 0
    cloud.post("advance", seconds=20 * 60)
    assert len(cloud.running()) == 2
    if retried:
        assert [e for e in cloud.post("events") if e.get("retry")]


def test_a_throttled_guard_is_tried_again_by_scheduler(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    begin = cloud.post("now")["at"]
    classroom("provision", folder.file)
    until = {"start": "2026-11-21T00:00:00+00:00", "end": "2026-12-21T00:00:00+00:00"}
    for machine in cloud.running():
        cloud.post("busy", instance=machine, **until)
    night = begin + 16 * 3600 + 29 * 60  # a minute before 23:30 in New York
    cloud.post("advance", seconds=night - cloud.post("now")["at"])
    cloud.post("set", busy_targets=2)
    cloud.post("advance", seconds=10 * 60)
    nightly = [e for e in cloud.post("events") if e.get("name") == "nightly"]
    assert [e.get("retry", 0) for e in nightly][-1] >= 1 and cloud.running() == []
