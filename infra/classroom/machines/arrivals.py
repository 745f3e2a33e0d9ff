"""What became of machines that AWS said it starts: its answer says `pending`, and a launch or a
start may still fail.

A machine whose disk, key or capacity cannot be had goes from pending to terminated, a started one
back to stopped, and only its StateReason says why. (documented: EC2 guide, "Instance terminates
immediately"; EC2 API reference, StateReason)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..aws import rate_limit
from ..aws.cloud import IDS_PER_FILTER, doing
from ..fleet.inventory import Machine
from ..spec.run import Run

GOOD, GONE = ("running",), ("shutting-down", "terminated")
POLL_SECONDS, MINUTES = 5, 10
STALE_SECONDS = 30  # after which a listing no longer shows the state before the start
VOLUMES = "L-7A658B76"  # Storage for General Purpose SSD (gp3) volumes, in TiB
# StateReason.Code -> what it means, what to do, whether another region may have it.
REASONS: dict[str, tuple[str, bool]] = {
    "Client.VolumeLimitExceeded": (
        "the account's quota of disks is used up; ask for more"
        f" (quota {VOLUMES}, `doctor --request-quota`) or take a smaller disk_gib",
        True,
    ),
    "Client.InternalError": (
        "AWS ended it while it started: most often the key that encrypts new disks may not be used"
        " (EC2 > Settings > EBS encryption)",
        False,
    ),
    "Client.InvalidSnapshot.NotFound": ("the image's snapshot is gone; pin another SDK", False),
    "Server.InsufficientInstanceCapacity": ("AWS has no free machine of this type there", True),
    "Server.InternalError": ("AWS had an internal error while it started; run it again", True),
}
OTHER = "AWS ended it while it started"


def _read(run: Run, region: str, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    wanted, out = sorted(ids), {}
    with doing("look at the new machines", region):
        for i in range(0, len(wanted), IDS_PER_FILTER):
            reservations = run.cloud.pages(
                "ec2",
                region,
                "describe_instances",
                "Reservations",
                Filters=[{"Name": "instance-id", "Values": wanted[i : i + IDS_PER_FILTER]}],
            )
            out.update({m["InstanceId"]: m for r in reservations for m in r["Instances"]})
    return out


def why(instance: dict[str, Any]) -> str:
    """Return why AWS ended a machine, in our words where we have some."""
    reason = instance.get("StateReason") or {}
    code = reason.get("Code", "")
    words = REASONS.get(code, (f"{OTHER}: {reason.get('Message') or 'no reason given'}", False))[0]
    return f"{words} ({code})" if code else words


def elsewhere(reason: str) -> bool:
    """Return whether another region may start a machine that failed for this reason."""
    return any(other and reason.startswith(words) for words, other in REASONS.values())


def ended(run: Run, region: str, machines: list[Machine]) -> set[str]:
    """Return the ids of machines that ended while they started."""
    if run.check or not machines:
        return set()
    instances = _read(run, region, [m.id for m in machines])
    return {i for i, m in instances.items() if m["State"]["Name"] in GONE}


def settle(run: Run, region: str, machines: list[Machine]) -> dict[str, str]:
    """Wait until machines that are starting run; bring their states up to date and return the
    reasons of those that ended instead. Ones that still take longer stay `pending`."""
    begin, left = rate_limit.clock(), {m.id: m for m in machines if m.id}
    failed: dict[str, str] = {}
    while left and not run.check:
        waited = rate_limit.clock() - begin
        for iid, instance in _read(run, region, left).items():
            m, state = left[iid], instance["State"]["Name"]
            back = state in ("stopping", "stopped")
            if state in GONE or (back and waited >= STALE_SECONDS and _failed(instance)):
                failed[m.name] = why(instance)
            elif state not in GOOD and not (back and waited >= STALE_SECONDS):
                continue
            m.state = state
            del left[iid]
        if not left or waited > MINUTES * 60:
            break
        run.say(f"{region}: waiting for {len(left)} machines to run")
        rate_limit.sleep(POLL_SECONDS)
    for m in left.values():
        m.state = "pending"
    return failed


def _failed(instance: dict[str, Any]) -> bool:
    """Return whether a stopped machine has failed to start, rather than been stopped."""
    return (instance.get("StateReason") or {}).get("Code") in REASONS
