"""Spot machines: what AWS did with them, and ending their requests before it relaunches one."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from ..aws.cloud import doing
from ..fleet.inventory import Machine
from ..spec import tags
from ..spec.run import Run

# Status code of a spot request -> why AWS took the machine. (documented: "Get the status of your
# Spot Instance requests")
TAKEN = {
    "instance-stopped-no-capacity": "no free capacity",
    "instance-stopped-by-price": "the spot price rose",
    "marked-for-stop": "it is about to be stopped",
    "capacity-not-available": "no free capacity",
    "price-too-low": "the spot price rose",
}
AGAIN = (
    "AWS starts it again by itself once it can; the files stay. If that takes too long, change"
    " `market` to on-demand: remove the student from the roster, provision, add the row, provision."
)


def read(run: Run, region: str) -> list[dict[str, Any]]:
    """Return the class's spot requests of a region."""
    with doing("list the spot requests", region):
        requests = run.cloud.pages(
            "ec2",
            region,
            "describe_spot_instance_requests",
            "SpotInstanceRequests",
            Filters=[{"Name": f"tag:{tags.CLASS}", "Values": [run.spec.name]}],
        )
    return [r for r in requests if tags.ours(r.get("Tags"), run.spec.name)]


def taken(run: Run, machines: Iterable[Machine]) -> dict[str, str]:
    """Return machine -> why AWS has taken it back; machines that run or were stopped by us are not
    in it."""
    spots = [m for m in machines if m.market == "spot" and m.state != "running"]
    out: dict[str, str] = {}
    for region in sorted({m.region for m in spots}):
        codes = {r.get("InstanceId"): r.get("Status", {}).get("Code") for r in read(run, region)}
        for m in spots:
            if m.region == region and codes.get(m.id) in TAKEN:
                out[m.name] = TAKEN[codes[m.id]]
    return out


def say(name: str, why: str) -> str:
    """Return the sentence about a machine that AWS has taken back."""
    return f"{name}: AWS has taken this spot machine back ({why}). {AGAIN}"


def cancel(run: Run, region: str, machines: list[Machine]) -> None:
    """Cancel the requests of machines that are about to be ended: a persistent request whose
    machine ends starts another one."""
    spots = [m for m in machines if m.market == "spot"]
    ids = {m.id for m in spots}
    if not ids:
        return
    requests = {
        r["SpotInstanceRequestId"]
        for r in read(run, region)
        if r.get("InstanceId") in ids and r["State"] in ("open", "active", "disabled")
    } | {m.request for m in spots if m.request}  # by the machine itself, whatever its tags are
    if requests:
        with doing("cancel spot requests", region):
            run.do(
                f"{region}: cancel {len(requests)} spot requests",
                partial(
                    run.cloud.ec2(region).cancel_spot_instance_requests,
                    SpotInstanceRequestIds=sorted(requests),
                ),
            )
