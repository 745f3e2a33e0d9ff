"""Capacity blocks: Trainium 2 time that is bought in advance and paid at once."""

from __future__ import annotations

import datetime as dt
from typing import Any

from . import tags
from .cloud import doing
from .problems import ClassroomError
from .run import Run

USABLE = ("active", "scheduled", "payment-pending", "pending")


def find(run: Run, region: str) -> dict[str, Any] | None:
    """Return the class's block in a region that has not ended."""
    with doing("list the capacity blocks", region):
        found = run.cloud.pages(
            "ec2",
            region,
            "describe_capacity_reservations",
            "CapacityReservations",
            Filters=[{"Name": f"tag:{tags.CLASS}", "Values": [run.spec.name]}],
        )
    mine = [r for r in found if tags.ours(r.get("Tags"), run.spec.name) and r["State"] in USABLE]
    return mine[0] if mine else None


def offer(run: Run, region: str, machines: int) -> dict[str, Any] | None:
    """Return the cheapest offer for the class that starts before the teardown date."""
    block = run.spec.capacity_block
    assert block is not None
    with doing("ask for capacity block offers", region):
        offers = run.cloud.ec2(region).describe_capacity_block_offerings(
            InstanceType=run.spec.instance_type,
            InstanceCount=machines,
            CapacityDurationHours=block.hours,
        )["CapacityBlockOfferings"]
    ends = run.spec.teardown_at.astimezone(dt.timezone.utc)
    fitting = [o for o in offers if o["StartDate"] < ends]
    return min(fitting, key=lambda o: float(o["UpfrontFee"]), default=None)


def ensure(run: Run, region: str, machines: int) -> str | None:
    """Return the id of an active block; buy one within the price limit. None: there is none to be
    had here yet."""
    block = run.spec.capacity_block
    assert block is not None
    have = find(run, region)
    if have is None:
        best = offer(run, region, machines)
        if best is None:
            return None
        price = float(best["UpfrontFee"])
        if price > block.max_upfront_usd:
            raise ClassroomError(
                f"The cheapest block of {block.hours} h for {machines} machines costs"
                f" ${price:,.2f}, above the limit of ${block.max_upfront_usd:,.2f}.",
                "Raise capacity_block.max_upfront_usd, or take fewer hours.",
            )
        with doing("buy the capacity block", region):
            have = run.do(
                f"{region}: buy {block.hours} h of {machines} x {run.spec.instance_type} for"
                f" ${price:,.2f}, paid in advance",
                lambda: run.cloud.ec2(region).purchase_capacity_block(
                    CapacityBlockOfferingId=best["CapacityBlockOfferingId"],
                    InstancePlatform="Linux/UNIX",
                    TagSpecifications=tags.spec_for(
                        ["capacity-reservation"], tags.common(run.spec)
                    ),
                )["CapacityReservation"],
            )
        if have is None:
            return "cr-would-be-bought"
    if have["State"] != "active":
        run.warn(
            f"{region}: the capacity block {have['CapacityReservationId']} is {have['State']} and"
            f" starts {have.get('StartDate')}; run provision again then. It is paid for; nothing"
            " else bills until then."
        )
        return None
    run.warn(
        f"{region}: the capacity block ends {have.get('EndDate')}; its machines are ended with it"
        " (30 minutes before): save work in time."
    )
    return have["CapacityReservationId"]
