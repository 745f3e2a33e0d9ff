"""The table of docs/scale.md: what a course of a thousand takes, computed from the limits by which
calls are paced (classroom/aws/rate_limit.py), the table of prices, and calls that were counted on
the fake.

`python infra/tests/scale_table.py` writes it; test_scale.py says when it is out of date and counts
again.
"""

from __future__ import annotations

import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path

INFRA = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(INFRA))

from classroom.aws import rate_limit  # noqa: E402
from classroom.cli.forecast import DAYS_PER_MONTH, STEPS_PER_NIGHT  # noqa: E402
from classroom.guards import budgets, class_guards  # noqa: E402
from classroom.spec import instance_types  # noqa: E402

PAGE = INFRA.parent / "docs/scale.md"
PLACE = re.compile(r"(?<=<!-- table -->\n).*?(?=<!-- /table -->)", re.S)
REGIONS, DISK_GIB, WEEKS = 3, 150, 15
VCPUS = instance_types.TYPES["trn1.2xlarge"].vcpus
# Calls of a command over three regions, counted on the fake: students -> calls.
COUNTED = {
    "provision": {60: 403, 120: 580, 1000: 3304},
    "teardown": {60: 427, 120: 671, 1000: 4298},
}
SCHEDULES = 3  # of a region: nightly, unarmed, teardown


@dataclass(frozen=True)
class Course:
    """Hold a course: students over some accounts, each account over the same regions."""

    students: int
    accounts: int

    @property
    def each(self) -> int:
        """Return the machines of an account."""
        return math.ceil(self.students / self.accounts)

    @property
    def region(self) -> int:
        """Return the machines of a region of an account."""
        return math.ceil(self.each / REGIONS)


COURSES = (Course(60, 1), Course(300, 1), Course(1000, 1), Course(1000, 2), Course(1000, 4))


def rate(service: str, operation: str) -> float:
    """Return how many calls of an operation are sent in a second."""
    return rate_limit.LIMITS[service, operation][1] * rate_limit.SHARE


def calls(command: str, students: int) -> int:
    """Return the calls of a command: a line between the two counts that stand around it."""
    counts = sorted(COUNTED[command].items())
    (few, a), (many, b) = next(p for p in zip(counts, counts[1:]) if students <= p[1][0])
    return round(a + (b - a) * (students - few) / (many - few))


def provision_minutes(c: Course) -> float:
    """Return how long one account's provision waits for AWS's rates: regions one after the other,
    each with its launches and then its alarms; before them the budgets."""
    region = c.region / rate("ec2", "RunInstances")
    region += c.region / rate("cloudwatch", "PutMetricAlarm")
    return (REGIONS * region + (c.each + 1) / rate("budgets", "*")) / 60


def start_minutes(c: Course) -> float:
    """Return how long one account's start waits: fifty machines in a call, alarms set one by one,
    regions one after the other."""
    calls_ = math.ceil(c.region / 50) / rate("ec2", "StartInstances")
    return REGIONS * (calls_ + c.region / rate("cloudwatch", "SetAlarmState")) / 60


def rows() -> list[tuple[str, list[str]]]:
    """Return the rows: what, and a cell for each course."""
    p = instance_types.price_table()
    hour, disk = p["on_demand_hour"]["trn1.2xlarge"], DISK_GIB * p["gp3_gib_month"]
    months, nights = WEEKS * 7 / DAYS_PER_MONTH, WEEKS * 7

    def cells(f: object) -> list[str]:
        return [f(c) for c in COURSES]  # type: ignore[operator]

    acting = p["action_budget_day"]  # two in an account are free, and the class's is one
    step = STEPS_PER_NIGHT * p["automation_step"]
    return [
        ("machines in a region of an account", cells(lambda c: f"{c.region:,}")),
        ("calls of `provision`, in an account", cells(lambda c: f"{calls('provision', c.each):,}")),
        ("calls of `teardown`", cells(lambda c: f"{calls('teardown', c.each):,}")),
        ("minutes of `provision`, at AWS's rates", cells(lambda c: f"{provision_minutes(c):.0f}")),
        ("minutes of `start`, everybody", cells(lambda c: f"{start_minutes(c):.0f}")),
        ("quota of Trainium vCPUs, each region", cells(lambda c: f"{c.region * VCPUS:,}")),
        (
            "quota of gp3 storage, each region, TiB",
            cells(lambda c: f"{c.region * DISK_GIB / 1024:.1f}"),
        ),
        ("idle alarms in a region", cells(lambda c: f"{c.region:,}")),
        ("schedules in a region", cells(lambda c: f"{SCHEDULES}")),
        ("budgets in an account", cells(lambda c: f"{c.each + 1:,}")),
        (
            "stop actions of the class budget",
            cells(lambda c: f"{REGIONS * math.ceil(c.region / budgets.ACTION_IDS)}"),
        ),
        (
            "schedules that release Elastic IPs, each region",
            cells(lambda c: f"{math.ceil(c.region / class_guards.EIPS_PER_SCHEDULE)}"),
        ),
        (
            f"guards of a term ({WEEKS} weeks): alarms",
            cells(lambda c: f"${c.students * p['alarm_month'] * months:,.0f}"),
        ),
        (
            "... steps of the nightly stop",
            cells(lambda c: f"${c.students * step * nights:,.0f}"),
        ),
        (
            "... `stop_each: true`",
            cells(lambda c: f"${(c.students - c.accounts) * acting * nights:,.0f}"),
        ),
        ("disks of a term", cells(lambda c: f"${c.students * disk * months:,.0f}")),
        ("all machines, one hour", cells(lambda c: f"${c.students * hour:,.0f}")),
    ]


def table() -> str:
    """Return the table."""
    heads = [
        f"{c.students:,} students" + (f", {c.accounts} accounts" if c.accounts > 1 else "")
        for c in COURSES
    ]
    lines = [f"| | {' | '.join(heads)} |", "| --- |" + " ---: |" * len(heads)]
    lines += [f"| {what} | {' | '.join(cells)} |" for what, cells in rows()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(PLACE.sub(lambda _: table(), PAGE.read_text(encoding="utf-8")), "utf-8")
