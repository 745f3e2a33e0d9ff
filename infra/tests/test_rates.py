"""A large class under AWS's real limits: all of it in one run of each command."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import Any

import boto3
import botocore.config
import botocore.exceptions
import pytest

from classroom.aws import rate_limit
from classroom.machines import launch
from conftest import CLASSES, Lab
from labcloud import rates
from labcloud.client import LabCloud

REFUSED = ("RequestLimitExceeded", "Throttling", "ThrottlingException")


def refusals(log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the calls that came too fast."""
    return [call for call in log if call.get("error") in REFUSED]


def asks_too_fast(log: list[dict[str, Any]]) -> bool:
    """Return whether more than one call in 200 was refused. On a busy machine a thread can wait
    between its token and its call, while virtual time goes on, and arrive together with others."""
    return len(refusals(log)) > len(log) / 200


def minutes(log: list[dict[str, Any]]) -> float:
    """Return the virtual minutes between the first and the last call."""
    first, last = (dt.datetime.fromisoformat(log[k]["t"]) for k in (0, -1))
    return (last - first).total_seconds() / 60


def guards_of(cloud: LabCloud) -> list[str]:
    """Return the guard tag of each machine."""
    machines = cloud.machines()
    return [m["tags"]["trainium-labs:guard"] for m in machines]


def test_sixty_are_up_in_few_calls_and_minutes_and_a_second_run_changes_nothing(lab: Lab) -> None:
    lab.post("set", quotas={"L-0263D0A3": 100.0})
    lab.write(60, elastic_ip=True)
    first = lab("provision")
    assert first["exit_code"] == 0 and len(first["launched"]) == 60
    assert guards_of(lab.cloud) == ["armed"] * 60
    assert minutes(lab.log()) < 4
    assert not asks_too_fast(lab.log())
    assert len(lab.log()) < 7 * 60 + 30, "calls for each student, and some for the class"
    # schedules carry the class's tag through their group
    made = [r for r in lab.leftovers() if r["kind"] != "schedule"]
    assert {(r["tags"] or {}).get("trainium-labs:class") for r in made} == {"lab"}
    mark = len(lab.log())
    second = lab("provision")
    assert second["changed"] is False and second["changes"] == [] and lab.writes(mark) == []


@pytest.mark.parametrize("students", CLASSES)
def test_a_class_comes_up_stops_starts_and_ends_in_one_run_each(lab: Lab, students: int) -> None:
    lab.write(students)
    lab.post("set", watching=True)
    took = {}
    for command, running in (
        ("provision", students),
        ("stop", 0),
        ("start", students),
        ("teardown", 0),
    ):
        mark = len(lab.log())
        assert lab(command).get("exit_code", 0) == 0, command
        assert len(lab.running()) == running, command
        took[command] = (len(lab.log()) - mark, minutes(lab.log(mark)))
        if command in ("provision", "start"):
            assert Counter(guards_of(lab.cloud)) == {"armed": students}
            lab.post("advance", seconds=20 * 60)
    seen = lab.post("watched")
    assert seen["unguarded"] == [], seen["unguarded"][:3]
    assert seen["minutes"] >= 40 and seen["machine minutes"] >= 40 * students
    assert seen["longest wait"] <= 15, "minutes until a machine has the alarm that names it"
    assert lab.leftovers() == []
    assert took["provision"][1] < 15, took
    print("calls and virtual minutes:", took, "seen at every minute:", seen)  # shown with -s


def test_a_class_comes_up_where_others_use_most_of_the_accounts_rates(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifteen hundredths are left: calls are refused then, tried again, and all come through."""
    monkeypatch.delenv("CLASSROOM_ATTEMPTS")
    lab.post("set", rate_share=0.15)
    lab.write(20)
    assert lab("provision", fresh=True)["exit_code"] == 0
    assert guards_of(lab.cloud) == ["armed"] * 20
    refused = refusals(lab.log())
    assert refused, "it was not for nothing"
    print(len(refused), "of", len(lab.log()), "refused;", minutes(lab.log()), "minutes")


def test_a_minute_without_a_guard_is_seen(lab: Lab) -> None:
    lab("provision")
    lab.post("set", watching=True)
    lab.post("advance", seconds=120)
    seen = lab.post("watched")
    assert seen["unguarded"] == [] and seen["machine minutes"] == 2 * seen["minutes"] >= 4
    scheduler = boto3.client("scheduler", "us-east-2")
    scheduler.delete_schedule(GroupName="trainium-labs.lab", Name="nightly")
    lab.post("advance", seconds=60)
    bad = lab.post("watched")["unguarded"]
    assert len(bad) == 2 and all("nightly" not in b["guards"] for b in bad)


def test_machines_that_the_guard_stops_while_they_are_armed_run_in_the_end(lab: Lab) -> None:
    """The schedule for unarmed machines runs every 15 minutes, also in the middle of a launch."""
    lab.write(2)
    lab("provision")
    (first, *_) = [e for e in lab.post("events") if e["kind"] == "schedule"]
    due = dt.datetime.fromisoformat(first["t"]).timestamp() + 15 * 60
    lab.post("until", at=due - 25 - rate_limit.LISTED_SECONDS)  # a later run waits so long first
    lab.write(40)
    assert lab("provision")["exit_code"] == 0
    stopped = [e for e in lab.post("events") if e["kind"] == "stopped"]
    assert {e["why"] for e in stopped} == {"schedule unarmed"}, "it did happen"
    assert len(lab.running()) == 40 and guards_of(lab.cloud) == ["armed"] * 40


def test_a_batch_that_fails_is_started_one_by_one(lab: Lab) -> None:
    lab.write(12)
    lab("provision")
    lab("stop")
    lab.fault("StartInstances", code="InsufficientInstanceCapacity", status=500, times=2)
    done = lab("start")
    assert done["exit_code"] == 0 and len(lab.running()) == 12


def test_waiting_for_more_machines_than_a_filter_takes_asks_about_all_of_them() -> None:
    asked: list[list[str]] = []

    class Cloud:
        def pages(self, *_: Any, Filters: list[dict[str, Any]]) -> list[Any]:
            (ids,) = (f["Values"] for f in Filters)
            asked.append(ids)
            return [{"Instances": [{"InstanceId": i, "State": {"Name": "running"}} for i in ids]}]

    ids = [f"i-{k:03d}" for k in range(350)]
    found = launch.states(Cloud(), "us-east-2", ids)  # type: ignore[arg-type]
    assert set(found) == set(ids) and max(map(len, asked)) <= 200


def test_a_bucket_lets_a_burst_through_and_then_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(rate_limit, "clock", lambda: now[0])
    monkeypatch.setattr(rate_limit, "sleep", lambda s: now.__setitem__(0, now[0] + s))
    bucket = rate_limit.Bucket(5, 2)
    for _ in range(2):
        bucket.take()
    assert now[0] == 0
    for _ in range(18):
        bucket.take()
    assert now[0] == pytest.approx(17.5 / (2 * rate_limit.SHARE))


def test_what_is_paced_is_asked_no_faster_than_the_fake_allows() -> None:
    """However fast the computer is: preflight asks IAM a score of questions at once, and IAM and
    Budgets have one bucket for all regions."""
    assert {("iam", "*"), ("budgets", "*")} <= rate_limit.LIMITS.keys()
    for (service, operation), (size, rate) in rate_limit.LIMITS.items():
        found = rates.limit({"cloudwatch": "monitoring"}.get(service, service), operation)
        assert found and size <= found[1][0] and rate <= found[1][1], (service, operation)


# A reading call of each service whose bucket is not paced by us, and how it says no.
ASKED: dict[str, tuple[str, dict[str, Any], str]] = {
    "iam": ("list_roles", {}, "Throttling"),
    "scheduler": ("list_schedule_groups", {}, "ThrottlingException"),
    "lambda": ("list_functions", {}, "TooManyRequestsException"),
    "ssm": ("describe_automation_executions", {}, "ThrottlingException"),
    "s3": ("create_bucket", {"Bucket": "trainium-labs--x"}, "SlowDown"),
}


@pytest.mark.parametrize("service", ASKED)
def test_each_service_has_its_bucket_and_refills_it(cloud: LabCloud, service: str) -> None:
    call, arguments, code = ASKED[service]
    once = botocore.config.Config(retries={"total_max_attempts": 1})
    client = boto3.client(service, "us-east-1", config=once)
    cloud.post("set", rate_share=0.02)  # a bucket of one, and some seconds until the next
    getattr(client, call)(**arguments)
    with pytest.raises(botocore.exceptions.ClientError) as caught:
        getattr(client, call)(**arguments)
    assert caught.value.response["Error"]["Code"] == code
    cloud.post("advance", seconds=60)
    getattr(client, call)(**arguments)
