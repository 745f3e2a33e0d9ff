"""What EC2 sells beside on-demand and moto lacks: capacity blocks and spot requests."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.exceptions import EC2ClientError

from . import guards, states
from .world import WORLD, utc


def _offer(hours: int, region: str) -> dict[str, Any]:
    start = (WORLD.now() + dt.timedelta(days=1)).replace(
        hour=11, minute=30, second=0, microsecond=0
    )
    return {
        "CapacityBlockOfferingId": f"cbo-{hours}",
        "InstanceType": "trn2.3xlarge",
        "AvailabilityZone": f"{region}c",
        "InstanceCount": 1,
        "CapacityBlockDurationHours": hours,
        "UpfrontFee": f"{hours * 2.235:.4f}",
        "CurrencyCode": "USD",
        "Tenancy": "default",
        "StartDate": start,
        "EndDate": start + dt.timedelta(hours=hours),
    }


def describe_capacity_block_offerings(self: Any) -> ActionResult:
    hours, count = (
        int(self._get_param("CapacityDurationHours")),
        int(self._get_param("InstanceCount", 1)),
    )
    offer = _offer(hours, self.region)
    offer["InstanceCount"], offer["UpfrontFee"] = count, f"{hours * count * 2.235:.4f}"
    offer["CapacityBlockOfferingId"] = f"cbo-{hours}-{count}"
    known = self._get_param("InstanceType") == "trn2.3xlarge" and self.region == "ap-southeast-4"
    return ActionResult({"CapacityBlockOfferings": [offer] if known else []})


def purchase_capacity_block(self: Any) -> ActionResult:
    hours, count = map(int, self._get_param("CapacityBlockOfferingId").split("-")[1:])
    offer = _offer(hours, self.region)
    tags = self._parse_tag_specification().get("capacity-reservation", {})
    cr = f"cr-{uuid.uuid4().hex[:17]}"
    WORLD.blocks[cr] = {
        "CapacityReservationId": cr,
        "InstanceType": offer["InstanceType"],
        "AvailabilityZone": offer["AvailabilityZone"],
        "TotalInstanceCount": count,
        "AvailableInstanceCount": count,
        "State": "active",
        "StartDate": offer["StartDate"],
        "EndDate": offer["EndDate"],
        "EndDateType": "limited",
        "ReservationType": "capacity-block",
        "Tags": [{"Key": k, "Value": v} for k, v in tags.items()],
        "region": self.region,
    }
    return ActionResult({"CapacityReservation": WORLD.blocks[cr]})


def create_capacity_reservation(self: Any) -> ActionResult:
    """Reserve on-demand capacity; the same token gives the same reservation."""
    token = (self.region, self._get_param("ClientToken"))
    if token in WORLD.tokens:
        return ActionResult({"CapacityReservation": WORLD.tokens[token]})
    tags = self._parse_tag_specification().get("capacity-reservation", {})
    cr = f"cr-{uuid.uuid4().hex[:17]}"
    end = self._get_param("EndDate")
    if not isinstance(end, dt.datetime):
        end = dt.datetime.fromisoformat(str(end).replace("Z", "+00:00"))
    count = int(self._get_param("InstanceCount"))
    WORLD.blocks[cr] = {
        "CapacityReservationId": cr,
        "InstanceType": self._get_param("InstanceType"),
        "AvailabilityZone": self._get_param("AvailabilityZone"),
        "TotalInstanceCount": count,
        "AvailableInstanceCount": count,
        "State": "active",
        "StartDate": WORLD.now(),
        "EndDate": utc(end),
        "EndDateType": self._get_param("EndDateType"),
        "InstanceMatchCriteria": self._get_param("InstanceMatchCriteria"),
        "ReservationType": "default",
        "Tags": [{"Key": k, "Value": v} for k, v in tags.items()],
        "region": self.region,
    }
    WORLD.tokens[token] = WORLD.blocks[cr]
    return ActionResult({"CapacityReservation": WORLD.blocks[cr]})


def cancel_capacity_reservation(self: Any) -> ActionResult:
    """End a reservation; blocks cannot be cancelled."""
    found = WORLD.blocks.get(self._get_param("CapacityReservationId"))
    if found is None or found["ReservationType"] != "default":
        raise EC2ClientError("InvalidCapacityReservationId.NotFound", "There is none.")
    found["State"] = "cancelled"
    return ActionResult({"Return": True})


def reserved(region: str) -> list[dict[str, Any]]:
    """Return the reservations of a region that bill now."""
    for b in WORLD.blocks.values():
        if b["ReservationType"] == "default" and b["State"] == "active":
            b["State"] = "active" if b["EndDate"] > WORLD.now() else "expired"
    return [
        b
        for b in WORLD.blocks.values()
        if b["region"] == region and b["State"] == "active" and b["ReservationType"] == "default"
    ]


def describe_capacity_reservations(self: Any) -> ActionResult:
    reserved(self.region)
    return ActionResult(
        {"CapacityReservations": [b for b in WORLD.blocks.values() if b["region"] == self.region]}
    )


def _extension(block: dict[str, Any], hours: int) -> dict[str, Any]:
    count = block["TotalInstanceCount"]
    return {
        "CapacityReservationId": block["CapacityReservationId"],
        "CapacityBlockExtensionOfferingId": f"cbe-{hours}",
        "InstanceType": block["InstanceType"],
        "InstanceCount": count,
        "AvailabilityZone": block["AvailabilityZone"],
        "CapacityBlockExtensionDurationHours": hours,
        "CapacityBlockExtensionStartDate": block["EndDate"],
        "CapacityBlockExtensionEndDate": block["EndDate"] + dt.timedelta(hours=hours),
        "UpfrontFee": f"{hours * count * 2.235:.4f}",
        "CurrencyCode": "USD",
    }


def describe_capacity_block_extension_offerings(self: Any) -> ActionResult:
    block = WORLD.blocks[self._get_param("CapacityReservationId")]
    hours = int(self._get_param("CapacityBlockExtensionDurationHours"))
    offers = [] if WORLD.no_extensions else [_extension(block, hours)]
    return ActionResult({"CapacityBlockExtensionOfferings": offers})


def purchase_capacity_block_extension(self: Any) -> ActionResult:
    """Sell an extension; it counts when it is paid, which a test can put off."""
    block = WORLD.blocks[self._get_param("CapacityReservationId")]
    bought = _extension(block, int(self._get_param("CapacityBlockExtensionOfferingId")[4:]))
    bought["CapacityBlockExtensionStatus"] = "payment-pending"
    block.setdefault("extensions", []).append(bought)
    if not WORLD.slow_payment:
        pay()
    return ActionResult({"CapacityBlockExtensions": [bought]})


def pay() -> None:
    """Settle every extension that waits for its payment."""
    for block in WORLD.blocks.values():
        for e in block.get("extensions", []):
            if e["CapacityBlockExtensionStatus"] == "payment-pending":
                e["CapacityBlockExtensionStatus"] = "payment-succeeded"
                block["EndDate"] = e["CapacityBlockExtensionEndDate"]


def describe_capacity_block_extension_history(self: Any) -> ActionResult:
    ids = self._get_param("CapacityReservationIds", [])
    found = [e for i in ids for e in WORLD.blocks[i].get("extensions", [])]
    return ActionResult({"CapacityBlockExtensions": found})


# ---- spot requests: persistent ones, which stop when interrupted ----


def request_spot(
    instance: Any, data: dict[str, Any], tags: dict[str, str], again: Callable[[], Any]
) -> None:
    """Record the request behind a machine; `again` launches another one as AWS would, for the same
    request.

    Source: EC2 guide, "Spot Instance request status" (a persistent request is opened again), EC2
    API reference, Instance (SpotInstanceRequestId).
    """
    options = (data.get("InstanceMarketOptions") or {}).get("SpotOptions") or {}
    request = WORLD.refilled or f"sir-{uuid.uuid4().hex[:8]}"
    instance.spot_instance_request_id = request
    if WORLD.refilled:
        WORLD.spot[request].update(
            InstanceId=instance.id, State="active", Status={"Code": "fulfilled", "Message": ""}
        )
        return
    WORLD.spot[request] = {
        "SpotInstanceRequestId": request,
        "InstanceId": instance.id,
        "State": "active",
        "Status": {"Code": "fulfilled", "Message": ""},
        "Type": options.get("SpotInstanceType", "one-time"),
        "ValidUntil": utc(
            dt.datetime.fromisoformat(str(options["ValidUntil"]).replace("Z", "+00:00"))
        ),
        "Tags": [{"Key": k, "Value": v} for k, v in tags.items()],
        "region": instance.region_name,
        "again": again,
    }


def _request_of(instance: Any) -> dict[str, Any] | None:
    return next((r for r in WORLD.spot.values() if r["InstanceId"] == instance.id), None)


def may_start(instance: Any) -> None:
    """Refuse to start a machine that AWS took: only AWS starts it again."""
    request = _request_of(instance)
    if request and request["Status"]["Code"] == "instance-stopped-no-capacity":
        raise EC2ClientError(
            "IncorrectSpotRequestState", "The spot request is not in a state that allows a start."
        )


def changed(instance: Any, what: str, why: str) -> None:
    """Follow a machine's state in its request."""
    request = _request_of(instance)
    if request is None or request["State"] in ("cancelled", "closed"):
        return
    if what == "stop":
        taken = why == "spot interruption"
        code = "instance-stopped-no-capacity" if taken else "instance-stopped-by-user"
        request.update(State="disabled", Status={"Code": code, "Message": ""})
    elif what == "start":
        request.update(State="active", Status={"Code": "fulfilled", "Message": ""})
    elif what == "terminate":
        request.update(State="open", Status={"Code": "pending-evaluation", "Message": ""})


def tick(now: dt.datetime, find: Callable[[str, str], Any]) -> None:
    """Relaunch for open requests; end requests (and their stopped machines) that ran out."""
    for request in list(WORLD.spot.values()):
        if request["State"] in ("cancelled", "closed"):
            continue
        instance = find(request["region"], request["InstanceId"])
        if now >= request["ValidUntil"]:
            request["State"] = "closed"
            if instance is not None and instance.state == "stopped":
                instance.terminate()
        elif request["State"] == "open":
            WORLD.refilled = request["SpotInstanceRequestId"]
            try:
                request["again"]()
            finally:
                WORLD.refilled = ""


def interrupt(instance: Any) -> None:
    """Take a spot machine back, as AWS does without free capacity."""
    with guards.because("spot interruption"):
        if instance.state == "pending":
            states.put(instance, "running")
        instance.stop()


def restore(instance: Any) -> None:
    """Let AWS start an interrupted machine again."""
    request = _request_of(instance)
    assert request is not None
    request["Status"] = {"Code": "fulfilled", "Message": ""}
    states.put(instance, "stopped")  # long stopped by then
    instance.start()


def describe_spot_instance_requests(self: Any) -> ActionResult:
    requests = [r for r in WORLD.spot.values() if r["region"] == self.region]
    return ActionResult(
        {"SpotInstanceRequests": [{k: v for k, v in r.items() if k != "again"} for r in requests]}
    )


def cancel_spot_instance_requests(self: Any) -> ActionResult:
    ids = self._get_param("SpotInstanceRequestIds", [])
    for i in ids:
        WORLD.spot[i]["State"] = "cancelled"
    done = [{"SpotInstanceRequestId": i, "State": "cancelled"} for i in ids]
    return ActionResult({"CancelledSpotInstanceRequests": done})


RESPONSES = (
    create_capacity_reservation,
    cancel_capacity_reservation,
    describe_capacity_block_offerings,
    purchase_capacity_block,
    describe_capacity_reservations,
    describe_capacity_block_extension_offerings,
    purchase_capacity_block_extension,
    describe_capacity_block_extension_history,
    describe_spot_instance_requests,
    cancel_spot_instance_requests,
)
