"""Reservations for a deadline week: capacity that is there when all start at once.

A stopped machine can only start in its zone, and only if AWS has one free there. An On-Demand
Capacity Reservation keeps that many; it is open, so the class's machines use it by themselves. It
bills from the moment it is made until it ends, whether machines run or not, at the price of running
ones. So it is asked for (`reserve`), has a price limit in class.yml, ends by itself, and a teardown
cancels it. Source: EC2 guide, "On-Demand Capacity Reservations".
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections import Counter
from functools import partial
from typing import Any

from ..aws.cloud import Cloud, aware, doing
from ..aws.problems import ClassroomError
from ..fleet.inventory import Machine
from ..money import prices
from ..spec import tags
from ..spec.class_file import Reservation
from ..spec.run import Run

ALIVE = ("active", "pending")


def read(cloud: Cloud, name: str, region: str) -> list[dict[str, Any]]:
    """Return the class's reservations of a region that bill; capacity blocks are none."""
    reservations = cloud.pages(
        "ec2",
        region,
        "describe_capacity_reservations",
        "CapacityReservations",
        Filters=[{"Name": f"tag:{tags.CLASS}", "Values": [name]}],
    )
    return [
        r
        for r in reservations
        if tags.ours(r.get("Tags"), name)
        and r["State"] in ALIVE
        and r.get("ReservationType", "default") != "capacity-block"
    ]


def current(run: Run) -> Reservation:
    """Return the reservation of class.yml that today is in; raise if there is none."""
    today = run.cloud.now().astimezone(run.spec.teardown_at.tzinfo).date()
    for r in run.spec.reservations:
        if r.begins <= today <= r.ends:
            return r
    later = [r.begins for r in run.spec.reservations if r.begins > today]
    raise ClassroomError(
        f"Nothing is to be reserved on {today}."
        + (
            f" The next reservation begins {min(later)}: it would bill from now on."
            if later
            else ""
        ),
        "Write `reservations: [{begins: DATE, ends: DATE, max_usd: NUMBER}]` into class.yml."
        if not later
        else f"Run this on {min(later)}.",
    )


def reserve(run: Run, machines: list[Machine], cancel: bool = False) -> dict[str, Any]:
    """Reserve capacity in every zone for the class's machines there, or cancel it."""
    spec, now = run.spec, run.cloud.now()
    regions = sorted({*spec.regions, *(m.region for m in machines)})
    with doing("list the reservations"):
        have = {r: read(run.cloud, spec.name, r) for r in regions}
    if cancel:
        for region, held_there in have.items():
            for r in held_there:
                rid = r["CapacityReservationId"]
                with doing("cancel a reservation", region):
                    run.do(
                        f"{region}: cancel the reservation {rid}",
                        partial(
                            run.cloud.ec2(region).cancel_capacity_reservation,
                            CapacityReservationId=rid,
                        ),
                    )
        return {"summary": f"{sum(map(len, have.values()))} reservations cancelled"}
    wanted = current(run)
    tz = spec.teardown_at.tzinfo
    end = dt.datetime.combine(wanted.ends + dt.timedelta(days=1), dt.time(), tz)
    zones = Counter((m.region, m.zone) for m in machines if m.type == spec.instance_type)
    held = {
        (region, r["AvailabilityZone"]): r
        for region, held_there in have.items()
        for r in held_there
    }
    hours = max(0.0, (end - now).total_seconds() / 3600)
    rate = prices.hourly(spec, "on-demand")
    usd = sum(zones.values()) * rate * hours
    if usd > wanted.max_usd:
        raise ClassroomError(
            f"{sum(zones.values())} machines until {wanted.ends} are {hours:.0f} hours each, in all"
            f" ${usd:,.2f}, used or not; max_usd is ${wanted.max_usd:,.2f}. Nothing was reserved.",
            "Begin later, end earlier, or raise max_usd.",
        )
    rows, failed = [], []
    for (region, zone), count in sorted(zones.items()):
        reservation = held.get((region, zone))
        if reservation is None:
            try:
                _create(run, region, zone, count, end)
                word = "would be reserved" if run.check else "reserved"
            except ClassroomError as error:
                failed.append(f"{zone}: {error}")
                word = "not reserved"
        else:
            word = f"reserved until {aware(reservation['EndDate']):%Y-%m-%d %H:%M} UTC"
            if reservation["TotalInstanceCount"] < count:
                failed.append(
                    f"{zone}: {reservation['TotalInstanceCount']} of {count} are reserved;"
                    " --cancel, then reserve again."
                )
        rows.append([region, zone, count, f"{count * rate * hours:,.2f}", word])
    return {
        "tables": [
            {
                "title": f"reservations until {wanted.ends}",
                "columns": ["region", "zone", "machines", "dollars", ""],
                "rows": rows,
                "right": [2, 3],
            }
        ],
        "lines": failed,
        "usd": usd,
        "exit_code": 1 if failed else 0,
        "summary": f"${usd:,.2f} at most until {wanted.ends}, used or not; machines that run cost"
        " nothing on top",
    }


def _create(run: Run, region: str, zone: str, count: int, end: dt.datetime) -> None:
    spec = run.spec
    text = f"{spec.name} {zone} {count} {spec.instance_type} {end.isoformat()}"
    with doing(f"reserve {count} machines in {zone}", region):
        run.do(
            f"{region}: reserve {count} x {spec.instance_type} in {zone}",
            lambda: run.cloud.ec2(region).create_capacity_reservation(
                ClientToken="tl-" + hashlib.sha256(text.encode()).hexdigest()[:48],
                InstanceType=spec.instance_type,
                InstancePlatform="Linux/UNIX",
                AvailabilityZone=zone,
                InstanceCount=count,
                InstanceMatchCriteria="open",
                EndDateType="limited",
                EndDate=end.astimezone(dt.timezone.utc),
                TagSpecifications=tags.spec_for(["capacity-reservation"], tags.common(spec)),
            ),
        )
