"""Reservations for a deadline week: asked for, bounded, ended by themselves or by a teardown."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import boto3
import pytest

from classroom.aws.problems import BadClass, ClassroomError
from classroom.guards import policies
from conftest import ClassFolder
from labcloud.client import LabCloud

Classroom = Callable[..., dict[str, Any]]
WEEK = [{"begins": "2026-11-21", "ends": "2026-11-23", "max_usd": 400}]


def held(cloud: LabCloud) -> list[dict[str, Any]]:
    """Return what bills as reserved."""
    return [r for r in cloud.leftovers() if r["kind"] == "reservation"]


def test_a_place_is_kept_for_each_machine_in_its_zone_until_the_last_day(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    boto3.client("iam").create_policy(
        PolicyName=policies.BOUNDARY, PolicyDocument=json.dumps(policies.boundary())
    )
    cloud.post("permit", key="AKIAFAKE", policies=[policies.policy()])
    folder.write(["alice", "bob", "carol"], reservations=WEEK)
    classroom("provision", folder.file)
    mark = len(cloud.log())
    shown = classroom("reserve", folder.file, check=True)
    assert held(cloud) == [] and cloud.writes(mark) == [] and shown["usd"] < 400
    done = classroom("reserve", folder.file)
    assert done["exit_code"] == 0 and sum(r[2] for r in done["tables"][0]["rows"]) == 3
    assert done["usd"] == pytest.approx(shown["usd"], rel=0.01)
    number = len(held(cloud))
    assert classroom("reserve", folder.file)["changed"] is False and len(held(cloud)) == number
    (first, *_) = boto3.client("ec2", "us-east-2").describe_capacity_reservations()[
        "CapacityReservations"
    ]
    assert first["EndDateType"] == "limited" and first["InstanceMatchCriteria"] == "open"
    assert first["EndDate"].isoformat() == "2026-11-24T05:00:00+00:00", "midnight in New York"
    cloud.post("advance", seconds=3 * 24 * 3600)
    assert held(cloud) == [], "it ends by itself"


def test_a_teardown_and_a_cancel_end_it(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    folder.write(["alice"], reservations=WEEK)
    classroom("provision", folder.file)
    classroom("reserve", folder.file)
    assert "1 reservations cancelled" in classroom("reserve", folder.file, cancel=True)["summary"]
    assert held(cloud) == []
    cloud.post("advance", seconds=60)
    cloud.fault(
        "CreateCapacityReservation", code="InsufficientInstanceCapacity", status=500, times=9
    )
    refused = classroom("reserve", folder.file)
    assert refused["exit_code"] == 1 and "no free machine" in refused["lines"][0]
    cloud.post("clear")
    folder.write(reservations=[{**WEEK[0], "ends": "2026-11-22"}])
    classroom("reserve", folder.file)
    assert len(held(cloud)) == 1
    classroom("teardown", folder.file)
    assert cloud.leftovers() == []


def test_what_costs_too_much_or_comes_too_early_is_not_reserved(
    folder: ClassFolder, cloud: LabCloud, classroom: Classroom
) -> None:
    folder.write(["alice"], reservations=[{**WEEK[0], "max_usd": 50}])
    classroom("provision", folder.file)
    with pytest.raises(ClassroomError, match=r"used or not; max_usd is \$50.00. Nothing was"):
        classroom("reserve", folder.file)
    later = {"begins": "2026-12-01", "ends": "2026-12-03", "max_usd": 500}
    folder.write(reservations=[later])
    with pytest.raises(ClassroomError, match="begins 2026-12-01: it would bill from now on"):
        classroom("reserve", folder.file)
    folder.write(reservations=[])
    with pytest.raises(ClassroomError, match="into class.yml"):
        classroom("reserve", folder.file)
    assert held(cloud) == []


@pytest.mark.parametrize(
    "change, says",
    [
        ({"ends": "2026-12-30"}, "not of 1 to 15 days"),
        ({"begins": "2027-01-14", "ends": "2027-01-15"}, "not before the teardown"),
        ({"ends": "2026-11-20"}, "not of 1 to 15 days"),
    ],
)
def test_a_reservation_that_makes_no_sense_is_a_mistake(
    folder: ClassFolder, classroom: Classroom, change: dict[str, str], says: str
) -> None:
    folder.write(["alice"], reservations=[{**WEEK[0], **change}])
    with pytest.raises(BadClass, match=says):
        classroom("check", folder.file)
    folder.write(reservations=WEEK, market="spot")
    with pytest.raises(BadClass, match="use no reservation"):
        classroom("check", folder.file)
