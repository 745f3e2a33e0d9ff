"""Capacity blocks: Trainium 2 time that is bought in advance and paid at once."""

from __future__ import annotations

import datetime as dt
import math
from functools import partial
from typing import Any

from ..aws.cloud import aware, doing
from ..aws.problems import ClassroomError
from ..spec import tags
from ..spec.run import Run

PAID = "trainium-labs:paid-usd"  # what the block cost when it was bought; AWS does not say it later
USABLE = ("active", "scheduled", "payment-pending", "pending")


def find(run: Run, region: str) -> dict[str, Any] | None:
    """Return the class's block in a region that has not ended."""
    with doing("list the capacity blocks", region):
        reservations = run.cloud.pages(
            "ec2",
            region,
            "describe_capacity_reservations",
            "CapacityReservations",
            Filters=[{"Name": f"tag:{tags.CLASS}", "Values": [run.spec.name]}],
        )
    blocks = [
        r
        for r in reservations
        if tags.ours(r.get("Tags"), run.spec.name)
        and r["State"] in USABLE
        and r.get("ReservationType") == "capacity-block"
    ]
    return blocks[0] if blocks else None


def offer(run: Run, region: str, machines: int) -> dict[str, Any] | None:
    """Return the earliest offer within the price limit that starts before the teardown date, else
    the cheapest, so that its price can be said."""
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
    paid = [o for o in fitting if float(o["UpfrontFee"]) <= block.max_upfront_usd]
    if paid:
        return min(paid, key=lambda o: (o["StartDate"], float(o["UpfrontFee"])))
    return min(fitting, key=lambda o: float(o["UpfrontFee"]), default=None)


def zone(run: Run, region: str) -> str:
    """Return the zone of the class's block; "" when there is none."""
    have = find(run, region)
    return have["AvailabilityZone"] if have else ""


def when(found: dict[str, Any]) -> str:
    """Return the dates and the zone of an offer or a block."""
    start, end = aware(found["StartDate"]), aware(found["EndDate"])
    return f"{start:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC in {found['AvailabilityZone']}"


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
                f"{region}: buy {block.hours} h of {machines} x {run.spec.instance_type},"
                f" {when(best)}, for ${price:,.2f}, paid in advance",
                lambda: run.cloud.ec2_once(region).purchase_capacity_block(
                    CapacityBlockOfferingId=best["CapacityBlockOfferingId"],
                    InstancePlatform="Linux/UNIX",
                    TagSpecifications=tags.spec_for(
                        ["capacity-reservation"],
                        {**tags.common(run.spec), PAID: f"{price:.2f}"},
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
        " (30 minutes before): save work in time. Its hours are paid, also while machines are"
        " stopped at night or idle: `start` them when they are to be used."
    )
    return have["CapacityReservationId"]


def extend(run: Run, region: str) -> None:
    """Lengthen the class's block to the hours of class.yml, within the price limit for it all.

    A block cannot be shortened, and hours that are being paid for count as had: running this again
    never buys twice.
    """
    block, have = run.spec.capacity_block, find(run, region)
    if block is None or have is None:
        return
    ec2, cr = run.cloud.ec2(region), have["CapacityReservationId"]
    with doing("read the capacity block's extensions", region):
        bought = [
            e
            for e in run.cloud.pages(
                "ec2",
                region,
                "describe_capacity_block_extension_history",
                "CapacityBlockExtensions",
                CapacityReservationIds=[cr],
            )
            if e["CapacityBlockExtensionStatus"] != "payment-failed"
        ]
    unpaid = [e for e in bought if e["CapacityBlockExtensionStatus"] == "payment-pending"]
    hours = (aware(have["EndDate"]) - aware(have["StartDate"])).total_seconds() / 3600
    hours += sum(e["CapacityBlockExtensionDurationHours"] for e in unpaid)
    missing = math.ceil((block.hours - hours) / 24) * 24
    if missing <= 0:
        return
    with doing("ask for a capacity block extension", region):
        offers = ec2.describe_capacity_block_extension_offerings(
            CapacityReservationId=cr, CapacityBlockExtensionDurationHours=missing
        )["CapacityBlockExtensionOfferings"]
    best = min(offers, key=lambda o: float(o["UpfrontFee"]), default=None)
    if best is None:
        run.warn(
            f"{region}: AWS offers no extension of the capacity block {cr} by {missing} h. It ends"
            f" {have['EndDate']}; save the work before, or buy another block then."
        )
        return
    price = float(best["UpfrontFee"])
    first = tags.as_dict(have.get("Tags")).get(PAID)
    paid = float(first or 0) + sum(float(e["UpfrontFee"]) for e in bought)
    if first is None:
        run.warn(f"{region}: what the block {cr} itself cost is not known; only extensions count.")
    if paid + price > block.max_upfront_usd:
        raise ClassroomError(
            f"{missing} more hours cost ${price:,.2f}; with ${paid:,.2f} paid so far that is above"
            f" the limit of ${block.max_upfront_usd:,.2f}.",
            "Raise capacity_block.max_upfront_usd, or take fewer hours.",
        )
    with doing("buy the capacity block extension", region):
        run.do(
            f"{region}: extend the capacity block by {missing} h for ${price:,.2f}, paid in"
            " advance",
            partial(
                run.cloud.ec2_once(region).purchase_capacity_block_extension,
                CapacityBlockExtensionOfferingId=best["CapacityBlockExtensionOfferingId"],
                CapacityReservationId=cr,
            ),
        )
