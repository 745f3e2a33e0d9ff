"""Reservations for a deadline week: asked for, bounded, ended by themselves or by a teardown."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest

from classroom.aws.problems import BadClass, ClassroomError
from classroom.guards import policies
from conftest import Lab
from labcloud.client import LabCloud

WEEK = [{"begins": "2026-11-21", "ends": "2026-11-23", "max_usd": 400}]


def held(cloud: LabCloud) -> list[dict[str, Any]]:
    """Return what bills as reserved."""
    return [r for r in cloud.leftovers() if r["kind"] == "reservation"]


def test_a_place_is_kept_for_each_machine_in_its_zone_until_the_last_day(lab: Lab) -> None:
    boto3.client("iam").create_policy(
        PolicyName=policies.BOUNDARY, PolicyDocument=json.dumps(policies.boundary())
    )
    lab.post("permit", key="AKIAFAKE", policies=[policies.policy()])
    lab.write(["alice", "bob", "carol"], reservations=WEEK)
    lab("provision")
    mark = len(lab.log())
    shown = lab("reserve", check=True)
    assert held(lab.cloud) == [] and lab.writes(mark) == [] and shown["usd"] < 400
    done = lab("reserve")
    assert done["exit_code"] == 0 and sum(r[2] for r in done["tables"][0]["rows"]) == 3
    assert done["usd"] == pytest.approx(shown["usd"], rel=0.01)
    number = len(held(lab.cloud))
    assert lab("reserve")["changed"] is False and len(held(lab.cloud)) == number
    (first, *_) = boto3.client("ec2", "us-east-2").describe_capacity_reservations()[
        "CapacityReservations"
    ]
    assert first["EndDateType"] == "limited" and first["InstanceMatchCriteria"] == "open"
    assert first["EndDate"].isoformat() == "2026-11-24T05:00:00+00:00", "midnight in New York"
    lab.post("advance", seconds=3 * 24 * 3600)
    assert held(lab.cloud) == [], "it ends by itself"


def test_a_teardown_and_a_cancel_end_it(lab: Lab) -> None:
    lab.write(["alice"], reservations=WEEK)
    lab("provision")
    lab("reserve")
    assert "1 reservations cancelled" in lab("reserve", cancel=True)["summary"]
    assert held(lab.cloud) == []
    lab.post("advance", seconds=60)
    lab.fault("CreateCapacityReservation", code="InsufficientInstanceCapacity", status=500, times=9)
    refused = lab("reserve")
    assert refused["exit_code"] == 1 and "no free machine" in refused["lines"][0]
    lab.post("clear")
    lab.write(reservations=[{**WEEK[0], "ends": "2026-11-22"}])
    lab("reserve")
    assert len(held(lab.cloud)) == 1
    lab("teardown")
    assert lab.leftovers() == []


def test_what_costs_too_much_or_comes_too_early_is_not_reserved(lab: Lab) -> None:
    lab.write(["alice"], reservations=[{**WEEK[0], "max_usd": 50}])
    lab("provision")
    with pytest.raises(ClassroomError, match=r"used or not; max_usd is \$50.00. Nothing was"):
        lab("reserve")
    later = {"begins": "2026-12-01", "ends": "2026-12-03", "max_usd": 500}
    lab.write(reservations=[later])
    with pytest.raises(ClassroomError, match="begins 2026-12-01: it would bill from now on"):
        lab("reserve")
    lab.write(reservations=[])
    with pytest.raises(ClassroomError, match="into class.yml"):
        lab("reserve")
    assert held(lab.cloud) == []


@pytest.mark.parametrize(
    "change, says",
    [
        ({"ends": "2026-12-30"}, "not of 1 to 15 days"),
        ({"begins": "2027-01-14", "ends": "2027-01-15"}, "not before the teardown"),
        ({"ends": "2026-11-20"}, "not of 1 to 15 days"),
    ],
)
def test_a_reservation_that_makes_no_sense_is_a_mistake(
    lab: Lab, change: dict[str, str], says: str
) -> None:
    lab.write(["alice"], reservations=[{**WEEK[0], **change}])
    with pytest.raises(BadClass, match=says):
        lab("check")
    lab.write(reservations=WEEK, market="spot")
    with pytest.raises(BadClass, match="use no reservation"):
        lab("check")
