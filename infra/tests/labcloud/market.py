"""What EC2 sells beside on-demand and moto lacks: capacity blocks."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Any

from moto.core.responses import ActionResult

from .world import WORLD


def _offer(hours: int, region: str) -> dict[str, Any]:
    start = (WORLD.now() + dt.timedelta(days=1)).replace(
        hour=11, minute=30, second=0, microsecond=0
    )
    return {
        "CapacityBlockOfferingId": f"cbo-{hours}",
        "InstanceType": "trn2.3xlarge",
        "AvailabilityZone": f"{region}a",
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


def describe_capacity_reservations(self: Any) -> ActionResult:
    return ActionResult(
        {"CapacityReservations": [b for b in WORLD.blocks.values() if b["region"] == self.region]}
    )


RESPONSES = (
    describe_capacity_block_offerings,
    purchase_capacity_block,
    describe_capacity_reservations,
)
