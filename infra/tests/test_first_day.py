"""The first minutes of a class in a new account: IAM is late, Scheduler's counters are late, and
nothing that guards have not shown may be taken for granted."""

from __future__ import annotations

import pytest

from conftest import Lab
from test_rates import minutes


@pytest.mark.parametrize("seconds", [0, 12, 45])
def test_a_class_comes_up_in_one_run_however_late_iam_is(lab: Lab, seconds: float) -> None:
    lab.post("set", policy_seconds=seconds, trust_seconds=min(seconds, 10), watching=True)
    done = lab("provision")
    assert done["exit_code"] == 0 and done["warnings"] == [], done["warnings"]
    assert len(lab.running()) == 2 and minutes(lab.log()) < 6
    launched = next(c["t"] for c in lab.log() if c["op"] == "RunInstances")
    ran = [e for e in lab.post("events") if e["kind"] == "schedule" and "refused" not in e["did"]]
    assert ran[0]["t"] < launched, "no machine starts before a guard has run"
    lab.post("advance", seconds=20 * 60)
    assert len(lab.running()) == 2, "nothing stops a class that has just come up"
    assert lab.post("watched")["unguarded"] == []
    assert lab("provision")["changed"] is False


def test_a_region_whose_guard_is_not_proven_is_said(lab: Lab) -> None:
    lab.post("set", policy_seconds=100, trust_seconds=10)
    done = lab("provision")
    assert "is not proven to work in us-east-2" in done["warnings"][0]
    assert done["exit_code"] == 0 and len(lab.running()) == 2  # in the next region


def test_what_was_stopped_before_it_was_ever_armed_runs_after_the_next_provision(lab: Lab) -> None:
    """A run that was cut after the launch: the guard for unarmed machines has stopped them."""
    lab.fault("PutMetricAlarm", code="AccessDenied", status=403, times=1000)
    cut = lab("provision")
    assert cut["exit_code"] == 1 and any("not armed" in line for line in cut["lines"])
    assert len(lab.running()) == 2
    lab.post("clear")
    lab.post("advance", seconds=16 * 60)
    assert lab.running() == []
    done = lab("provision")
    assert done["exit_code"] == 0 and [r[2] for r in done["tables"][0]["rows"]] == ["running"] * 2
    lab.busy()
    lab.post("advance", seconds=3600)
    assert len(lab.running()) == 2, "armed and busy: nothing stops them before the night"
    lab("stop")
    lab("provision")
    assert lab.running() == [], "what was armed and stopped stays stopped"


@pytest.mark.parametrize("retried", [False, True])
def test_it_makes_no_difference_whether_scheduler_tries_denials_again(
    lab: Lab, retried: bool
) -> None:
    lab.post("set", retry_refused=retried, policy_seconds=100)
    assert lab("provision")["exit_code"] == 0
    lab.post("advance", seconds=20 * 60)
    assert len(lab.running()) == 2
    if retried:
        assert [e for e in lab.post("events") if e.get("retry")]


def test_a_throttled_guard_is_tried_again_by_scheduler(lab: Lab) -> None:
    begin = lab.post("now")["at"]
    lab("provision")
    lab.busy()
    night = begin + 16 * 3600 + 29 * 60  # a minute before 23:30 in New York
    lab.post("advance", seconds=night - lab.post("now")["at"])
    lab.post("set", busy_targets=2)
    lab.post("advance", seconds=10 * 60)
    nightly = [e for e in lab.post("events") if e.get("name") == "nightly"]
    assert [e.get("retry", 0) for e in nightly][-1] >= 1 and lab.running() == []
