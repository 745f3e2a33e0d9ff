"""A semester on the virtual clock: hours equal the plan, nothing runs after the end, with the
laptop off."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import boto3
import pytest

from classroom.machines import firstboot
from conftest import Lab
from labcloud.client import LabCloud

HOME = ZoneInfo("America/New_York")


class Term:
    """Move through days at local times."""

    def __init__(self, cloud: LabCloud) -> None:
        self.cloud = cloud

    def now(self) -> dt.datetime:
        """Return the virtual time at the class."""
        return dt.datetime.fromisoformat(self.cloud.post("now")["now"]).astimezone(HOME)

    def until(self, day: dt.date, clock: str) -> None:
        """Advance to a local time."""
        moment = dt.datetime.combine(day, dt.time.fromisoformat(clock), HOME)
        self.cloud.post(
            "advance",
            seconds=(
                moment.astimezone(dt.timezone.utc) - self.now().astimezone(dt.timezone.utc)
            ).total_seconds(),
        )

    def ids(self, region: str = "us-east-2") -> dict[str, str]:
        """Return machine -> instance id."""
        found = boto3.client("ec2", region_name=region).describe_instances()["Reservations"]
        return {
            t["Value"]: i["InstanceId"]
            for r in found
            for i in r["Instances"]
            for t in i["Tags"]
            if t["Key"] == "trainium-labs:machine"
        }

    def busy(self, iid: str, day: dt.date, start: str, end: str) -> None:
        """Let a machine compute between two local times."""
        at = [
            dt.datetime.combine(day, dt.time.fromisoformat(c), HOME).isoformat()
            for c in (start, end)
        ]
        self.cloud.post("busy", instance=iid, start=at[0], end=at[1])


@pytest.mark.parametrize(
    ("first", "days"),
    [
        pytest.param(dt.date(2027, 3, 12), 4, id="days over the start of daylight saving time"),
        pytest.param(
            *(dt.date(2027, 2, 25), 30),
            id="a month over the start of daylight saving time",
            marks=pytest.mark.full,
        ),
        pytest.param(dt.date(2027, 1, 10), 100, id="a semester over it", marks=pytest.mark.full),
        pytest.param(dt.date(2026, 9, 10), 100, id="one over its end", marks=pytest.mark.full),
    ],
)
def test_days_cost_what_was_planned_and_end(lab: Lab, first: dt.date, days: int) -> None:
    lab.post("reset", at=f"{first}T15:00:00")
    students = ["diligent", "idler", "away"]
    lab.write(
        students,
        teardown=str(first + dt.timedelta(days=days)),
        budget={"per_student_usd": 2000, "class_usd": 6000},
        elastic_ip=True,
    )
    lab("provision")
    lab("stop")
    # From here on the laptop is off: students start machines in the console, AWS does the rest.
    term, ec2 = Term(lab.cloud), boto3.client("ec2", region_name="us-east-2")
    ids = term.ids()
    before = lab.post("hours")
    for n in range(1, days):
        day = first + dt.timedelta(days=n)
        term.until(day, "10:00")
        ec2.start_instances(InstanceIds=[ids["idler"]])
        term.until(day, "14:00")
        ec2.start_instances(InstanceIds=[ids["diligent"]])
        term.busy(ids["diligent"], day, "14:00", "23:59")
    after = lab.post("hours")  # at 14:00 of the last day
    term.until(first + dt.timedelta(days=days), "05:00")
    after = lab.post("hours")
    assert after[ids["diligent"]] - before[ids["diligent"]] == pytest.approx(
        9.5 * (days - 1), abs=0.1
    ), "14:00 to 23:30 each day"
    idle_each = (after[ids["idler"]] - before[ids["idler"]]) / (days - 1)
    assert 0.6 <= idle_each <= 0.85, "10 + 30 minutes after the boot, each day"
    assert after[ids["away"]] == before[ids["away"]]
    assert lab.running() == []
    ec2.start_instances(InstanceIds=[ids["away"]])  # someone starts one an hour before the end
    term.until(first + dt.timedelta(days=days), "09:00")
    kinds = lab.kinds()
    assert not kinds & {
        "instance",
        "volume",
        "elastic-ip",
        "network-interface",
    }, "the schedules alone end all that bills by the hour"
    lab.post("advance", seconds=20 * 86400)
    assert lab.running() == []
    assert lab("teardown")["exit_code"] == 0 and lab.leftovers() == []


@pytest.mark.sample(2)
@pytest.mark.parametrize("where", ["console", "start.yml"])
@pytest.mark.parametrize("awake", [True, False])
def test_an_alarm_that_fired_fires_again_wherever_the_machine_was_restarted(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, where: str, awake: bool
) -> None:
    """The trap of the handouts: restart right after the alarm's stop, idle at once.

    A machine computes after each boot, which makes its alarm OK. The twin without that (the worst
    case: not even booting shows as work) is left running after a start in the console, and only
    start.yml's own re-arming helps.
    """
    if not awake:
        real = firstboot.script
        monkeypatch.setattr(
            firstboot, "script", lambda s: real(s).replace("WantedBy=multi-user.target", "")
        )
    lab.post("reset", at="2027-01-11T15:01:30")
    lab.post("set", boot_cpu={"*": 0.0})
    lab.write(["idler"])
    lab("provision")
    for _ in range(3):  # more than once: no alarm may be used up
        for _ in range(55):
            lab.post("advance", seconds=60)
            if not lab.running():
                break
        if lab.running():
            break
        if where == "console":
            lab.post("advance", seconds=10)  # EC2 refuses to start what is still stopping
            boto3.client("ec2", region_name="us-east-2").start_instances(
                InstanceIds=list(Term(lab.cloud).ids().values())
            )
        else:
            lab("start")
        lab.post("advance", seconds=12 * 60)
        running = len(lab.running())
        assert running == 1 or not awake, "samples from before the stop do not end a new session"
    lab.post("advance", seconds=48 * 60)
    assert (lab.running() == []) is (awake or where == "start.yml")


def test_an_alarm_is_ok_again_after_a_longer_stop_without_anybodys_help(lab: Lab) -> None:
    lab.post("reset", at="2027-01-11T15:01:30")
    lab.post("set", boot_cpu={"*": 0.0})
    lab.write(["idler"])
    lab("provision")
    lab.post("advance", seconds=100 * 60)
    boto3.client("ec2", region_name="us-east-2").start_instances(
        InstanceIds=list(Term(lab.cloud).ids().values())
    )
    lab.post("advance", seconds=60 * 60)
    assert lab.running() == []


def test_the_budget_stops_a_class_that_never_sleeps(lab: Lab) -> None:
    lab.write(
        ["alice", "bob"],
        budget={"per_student_usd": 15, "class_usd": 30},
        stop_nightly="11:59",
        time_zone="UTC",
    )
    lab("provision")
    lab.post("set", cost_tags=["trainium-labs:class", "trainium-labs:budget"])
    lab.busy()
    lab.post("advance", seconds=23 * 3600)
    stops = [e for e in lab.post("events") if e["kind"] == "stopped"]
    assert {e["why"] for e in stops} == {"budget trainium-labs.lab.class"} and lab.running() == []
    mails = {e["percent"] for e in lab.post("events") if e["kind"] == "budget-mail"}
    assert mails == {50.0, 80.0, 100.0}


def test_status_shows_hours_and_dollars_also_of_machines_long_gone(lab: Lab) -> None:
    lab.write(["alice", "bob"])
    lab("provision")
    lab.busy()
    lab.post("advance", seconds=4 * 3600)
    lab("teardown")
    hours = lab("status")["hours"]
    for name in ("alice", "bob"):
        assert hours[name]["hours"] == pytest.approx(4, abs=0.1) and hours[name][
            "usd"
        ] == pytest.approx(4 * 1.34375, abs=0.2)
