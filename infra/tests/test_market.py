"""Spot machines that AWS takes back, and capacity blocks that are bought and lengthened."""

from __future__ import annotations

import boto3
import pytest

from classroom.aws.problems import ClassroomError
from classroom.machines import launch
from conftest import Lab
from labcloud.client import LabCloud

BLOCK = {
    "instance_type": "trn2.3xlarge",
    "market": "capacity-block",
    "regions": ["ap-southeast-4"],
}


def test_an_interrupted_spot_machine_is_told_and_comes_back_with_capacity(lab: Lab) -> None:
    lab.write(["alice", "bob"], market="spot")
    lab("provision")
    machine = lab.ids()
    lab.post("interrupt", region="us-east-2", instance=machine["bob"])
    status = lab("status")
    assert {row[0]: row[2] for row in status["tables"][0]["rows"]} == {
        "alice": "running",
        "bob": "taken by AWS",
    }
    lines = [line for line in status["lines"] if line.startswith("bob: ")]
    assert len(lines) == 1 and "no free capacity" in lines[0] and "by itself" in lines[0]
    start = lab("start")
    assert start["exit_code"] == 1 and start["lines"] == lines
    lab.post("restore", region="us-east-2", instance=machine["bob"])
    assert sorted(lab.running()) == sorted(machine.values())
    assert not [x for x in lab("status")["lines"] if "taken" in x]
    lab.post("advance", seconds=3600)
    assert lab.running() == [], "the alarm guards what AWS started by itself, too"
    assert lab("start")["exit_code"] == 0, "we stopped it, so we may start it"
    assert len(lab.running()) == 2


def test_a_machine_that_aws_takes_at_the_start_is_a_sentence(lab: Lab) -> None:
    lab.write(["alice"], market="spot")
    lab("provision")
    lab("stop")
    lab.fault("StartInstances", code="IncorrectSpotRequestState", status=400, times=9)
    result = lab("start")
    assert result["exit_code"] == 1 and "only AWS can start it again" in result["lines"][0]


@pytest.mark.sample(3)
@pytest.mark.parametrize("tagged", [True, False])
@pytest.mark.parametrize("how", ["removed from the roster", "teardown of one", "teardown of all"])
def test_ending_a_spot_machine_does_not_bring_another(
    lab: Lab, how: str, tagged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A persistent request whose machine is terminated starts a new one, unless it is cancelled.
    Without tags, as though AWS had dropped what the call said about it, its machine shows it."""
    lab.write(["alice", "bob"], market="spot")
    labels = launch._labels
    if not tagged:
        monkeypatch.setattr(launch, "_labels", lambda run, w: labels(run, w)[:-1])
    lab("provision")
    requests = [r["tags"] for r in lab.leftovers() if r["kind"] == "spot-request"]
    of = [(t.get("trainium-labs:class"), t.get("trainium-labs:owner")) for t in requests]
    assert sorted(of) == [("lab", "alice"), ("lab", "bob")] if tagged else requests == [{}, {}]
    lab.busy()
    if how == "removed from the roster":
        lab.write(["alice"])
        lab("provision", confirm_changes=True)
    elif how == "teardown of one":
        lab("teardown", limit=["bob"])
    else:
        assert lab("teardown")["exit_code"] == 0
    lab.post("advance", seconds=2 * 3600)
    left = [] if how == "teardown of all" else ["alice"]
    assert sorted(lab.ids()) == left and len(lab.running()) == len(left)
    assert [r["kind"] for r in lab.leftovers()].count("spot-request") == len(left)


def test_the_fake_relaunches_what_is_ended_without_its_request(lab: Lab) -> None:
    lab.write(["alice"], market="spot")
    lab("provision")
    boto3.client("ec2", region_name="us-east-2").terminate_instances(
        InstanceIds=list(lab.ids().values())
    )
    lab.post("advance", seconds=600)
    assert len(lab.running()) == 1, "the trap is real in the fake"
    assert lab("teardown")["exit_code"] == 0 and lab.leftovers() == []


def test_a_spot_class_ends_by_itself(lab: Lab) -> None:
    lab.write(["alice", "bob"], market="spot", teardown="2026-11-23")
    lab("provision")
    (version,) = boto3.client("ec2", "us-east-2").describe_launch_template_versions(
        LaunchTemplateName="trainium-labs.lab.machine", Versions=["$Latest"]
    )["LaunchTemplateVersions"]
    options = version["LaunchTemplateData"]["InstanceMarketOptions"]["SpotOptions"]
    assert options["SpotInstanceType"] == "persistent", "others cannot be stopped at night"
    lab.post("advance", seconds=2 * 86400)
    assert lab.running() == [] and lab.ids() == {}
    assert not [r for r in lab.leftovers() if r["kind"] == "spot-request"]


def test_extending_a_spot_class_says_what_its_requests_will_do(lab: Lab) -> None:
    lab.write(["alice"], market="spot")
    lab("provision")
    assert lab("extend")["warnings"] == []
    lab.write(teardown="2027-02-20")
    warnings = lab("extend")["warnings"]
    assert any("spot requests keep the end" in w for w in warnings)


def test_a_capacity_block_is_bought_once_within_its_price_and_filled_in_its_zone(lab: Lab) -> None:
    lab.write(**BLOCK, capacity_block={"hours": 24, "max_upfront_usd": 60})
    with pytest.raises(ClassroomError, match=r"costs \$107.28, above the limit"):
        lab("provision")
    assert lab.ids() == {}
    lab.write(capacity_block={"hours": 24, "max_upfront_usd": 120})
    (shown,) = [c for c in lab("provision", check=True)["changes"] if "buy" in c]
    assert "2026-11-22 11:30 to 2026-11-23 11:30 UTC in ap-southeast-4c" in shown
    first = lab("provision")
    assert first["exit_code"] == 0, first
    found = boto3.client("ec2", "ap-southeast-4").describe_instances()["Reservations"]
    zones = [i["Placement"]["AvailabilityZone"] for r in found for i in r["Instances"]]
    assert zones == ["ap-southeast-4c"] * 2, "a block is in one zone"
    refused = [c["error"] for c in lab.log() if c["op"] == "RunInstances" and c["status"] != 200]
    assert all("NotFound" in r for r in refused), "but for what is not seen yet"
    lab("provision")
    assert sum(c["op"] == "PurchaseCapacityBlock" for c in lab.log()) == 1


@pytest.mark.parametrize("drop", [True, False])
def test_a_lost_answer_to_a_purchase_does_not_buy_twice(lab: Lab, drop: bool) -> None:
    """The purchase knows no client token, so not even the AWS library may repeat it."""
    lab.write(**BLOCK, capacity_block={"hours": 24, "max_upfront_usd": 500})
    lab.fault("PurchaseCapacityBlock", status=500, after=True, drop=drop)
    with pytest.raises(ClassroomError, match="Could not buy the capacity block"):
        lab("provision")
    assert lab("provision")["exit_code"] == 0
    ec2 = boto3.client("ec2", region_name="ap-southeast-4")
    assert len(ec2.describe_capacity_reservations()["CapacityReservations"]) == 1


def bought(cloud: LabCloud) -> int:
    """Return how many extensions were asked for."""
    return sum(c["op"] == "PurchaseCapacityBlockExtension" for c in cloud.log())


def test_a_capacity_block_is_extended_once_within_its_price(lab: Lab) -> None:
    lab.write(**BLOCK, capacity_block={"hours": 24, "max_upfront_usd": 120})
    lab("provision")
    assert not any("capacity block by" in c for c in lab("extend")["changes"])
    lab.write(capacity_block={"hours": 48, "max_upfront_usd": 120})
    with pytest.raises(ClassroomError, match=r"\$107.28 paid so far .* above the limit"):
        lab("extend")
    lab.write(capacity_block={"hours": 48, "max_upfront_usd": 220})
    mark = len(lab.log())
    planned = lab("extend", check=True)
    assert lab.writes(mark) == []
    assert any("by 24 h for $107.28" in c for c in planned["changes"])
    lab.post("set", slow_payment=True)
    lab("extend")
    lab("extend")
    assert bought(lab.cloud) == 1, "hours that are being paid for count as had"
    lab.post("pay")
    assert lab("extend")["changed"] is False and bought(lab.cloud) == 1


def test_a_lost_answer_to_an_extension_does_not_buy_twice(lab: Lab) -> None:
    lab.write(**BLOCK, capacity_block={"hours": 24, "max_upfront_usd": 500})
    lab("provision")
    lab.write(capacity_block={"hours": 48, "max_upfront_usd": 500})
    lab.fault("PurchaseCapacityBlockExtension", code="InternalError", status=500, after=True)
    with pytest.raises(ClassroomError, match="Could not buy the capacity block extension"):
        lab("extend")
    lab("extend")
    (block,) = boto3.client("ec2", region_name="ap-southeast-4").describe_capacity_reservations()[
        "CapacityReservations"
    ]
    assert (block["EndDate"] - block["StartDate"]).total_seconds() == 48 * 3600


def test_no_extension_to_be_had_is_said(lab: Lab) -> None:
    lab.write(**BLOCK, capacity_block={"hours": 24, "max_upfront_usd": 120})
    lab("provision")
    lab.write(capacity_block={"hours": 48, "max_upfront_usd": 500})
    lab.post("set", no_extensions=True)
    warnings = lab("extend")["warnings"]
    assert any("offers no extension" in w for w in warnings) and bought(lab.cloud) == 0


def test_a_forecast_says_that_stops_save_nothing_in_a_block(lab: Lab) -> None:
    lab.write(**BLOCK, capacity_block={"hours": 24, "max_upfront_usd": 500})
    warnings = lab("forecast")["warnings"]
    assert any("paid for whether machines run or not" in w for w in warnings)
    lab.write(market="on-demand", instance_type="trn1.2xlarge", regions=["us-east-2"])
    warnings = lab("forecast")["warnings"]
    assert not any("whether machines run or not" in w for w in warnings)


def test_only_machines_are_pending(lab: Lab) -> None:
    """Disks and cards are never armed, so the tag would stay on them for ever."""
    lab("provision")
    found = {r["kind"]: r["tags"] for r in lab.leftovers() if r["tags"]}
    for kind in ("volume", "network-interface"):
        assert found[kind]["trainium-labs:class"] == "lab"
        assert "trainium-labs:guard" not in found[kind], found[kind]
