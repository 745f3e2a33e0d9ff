"""Start machines so that no failure starts one twice or leaves one without its guards."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

import botocore.exceptions as be

from ..aws import organisations, rate_limit
from ..aws.cloud import (
    IDS_PER_FILTER,
    Cloud,
    aware,
    code_of,
    doing,
    each,
    run_all,
    status_of,
    words_of,
)
from ..aws.problems import AWS_ERRORS
from ..fleet import inventory
from ..fleet.inventory import Machine, Wanted
from ..guards import class_guards
from ..spec import tags
from ..spec.run import Run
from ..work import archives
from . import access, spot

# A definite "not here": the next zone may be tried at once. Anything else may have launched a
# machine unseen.
NEXT_ZONE = {
    "InsufficientInstanceCapacity",
    "InsufficientHostCapacity",
    "Unsupported",
    "SpotMaxPriceTooLow",
    "InsufficientFreeAddressesInSubnet",
    "ReservationCapacityExceeded",
}
NEXT_REGION = {
    "VcpuLimitExceeded",
    "MaxSpotInstanceCountExceeded",
    "PendingVerification",
    "OptInRequired",
    "InvalidInstanceType.NotFound",
    "InstanceLimitExceeded",
}
PROFILE_TRIES = 8
NOT_SEEN_YET = (
    "nstance Profile",
    "iamInstanceProfile",
    "InvalidGroup.NotFound",
    "InvalidKeyPair.NotFound",
    "InvalidLaunchTemplateName.NotFound",
)
OLD_ANSWER = dt.timedelta(minutes=2)
# after which AWS may no longer list a machine that has ended: twice what is documented (EC2 API
# reference, TerminateInstances: "approximately one hour")
FORGOTTEN = dt.timedelta(hours=2)


@dataclass
class Result:
    """Say what became of one launch: a machine, or the reason why not. `unknown`: AWS did not say
    no, so there may be one that no listing shows yet."""

    wanted: Wanted
    machine: Machine | None = None
    reason: str = ""
    unknown: bool = False


def token(run: Run, arguments: dict[str, Any], generation: int) -> str:
    """Return the client token: the same request always has the same one, so a lost answer never
    launches twice."""
    text = json.dumps([run.spec.name, arguments, generation], sort_keys=True)
    return "tl-" + hashlib.sha256(text.encode()).hexdigest()[:48]


def launch(
    run: Run, net: access.Network, template: tuple[str, str], wanted: list[Wanted]
) -> list[Result]:
    """Launch machines on a few threads, spread over the zones that offer the type."""
    total, done = len(wanted), [0]

    def one(item: tuple[int, Wanted]) -> Result:
        k, w = item
        zones = [net.subnets[(k + j) % len(net.subnets)] for j in range(len(net.subnets))]
        result = _one(run, net, template, w, zones)
        done[0] += 1
        run.say(
            f"{net.region}: {done[0]}/{total} {w.name}:"
            f" {result.machine.zone if result.machine else result.reason}"
        )
        return result

    return run_all(one, enumerate(wanted))


def _labels(run: Run, w: Wanted) -> list[dict[str, Any]]:
    """Return the tags of all that a launch makes, in the call itself: whether AWS adds those of a
    template to a call's is not documented. Only the machine is pending; disks and cards would stay
    so for ever, and a guard that chooses by that tag would choose them."""
    label = inventory.machine_tags(run.spec, w)
    out = tags.spec_for(["instance"], {**label, tags.GUARD: tags.pending(run.spec)})
    out += tags.spec_for(["volume", "network-interface"], label)
    if run.spec.market == "spot":
        out += tags.spec_for(["spot-instances-request"], tags.common(run.spec, w.owner))
    return out


def _one(
    run: Run,
    net: access.Network,
    template: tuple[str, str],
    w: Wanted,
    zones: list[tuple[str, str]],
) -> Result:
    reason = "no zone of this region offers the type"
    for zone, subnet in zones:
        arguments = {
            "LaunchTemplate": {"LaunchTemplateName": template[0], "Version": template[1]},
            "MinCount": 1,
            "MaxCount": 1,
            "NetworkInterfaces": [
                {
                    "DeviceIndex": 0,
                    "SubnetId": subnet,
                    "Groups": [net.group],
                    "AssociatePublicIpAddress": not run.spec.private,
                    "DeleteOnTermination": True,
                }
            ],
            "TagSpecifications": _labels(run, w),
        }
        if run.check:
            run.do(f"{net.region}: launch {w.name} in {zone}", lambda: None)
            return Result(
                w,
                Machine(
                    w.name,
                    net.region,
                    "",
                    "would-launch",
                    zone,
                    "",
                    run.spec.instance_type,
                    run.spec.market,
                    "",
                ),
            )
        try:
            instance = _request(run, net.region, arguments)
        except be.ClientError as error:
            code = code_of(error)
            message = error.response["Error"].get("Message", "")
            reason = AWS_ERRORS.get(code, (f"{code}: {message}", ""))[0]
            if ruled := organisations.explained(message, net.region):
                reason = " ".join(ruled)
            if code in NEXT_ZONE:
                continue
            refused = code in NEXT_REGION or status_of(error) < 500
            return Result(w, reason=reason, unknown=not refused)
        except (be.HTTPClientError, be.EndpointConnectionError) as error:
            why = f"AWS did not answer ({type(error).__name__}); the next run looks again"
            return Result(w, reason=why, unknown=True)
        if instance is None:
            why = "AWS answers with a machine that it does not list; the next run looks again"
            return Result(w, reason=why, unknown=True)
        run.do(f"{net.region}: launch {w.name} in {zone}", lambda: None)
        return Result(w, inventory.machine(instance, net.region))
    return Result(w, reason=reason)


def _request(run: Run, region: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
    ec2 = run.cloud.ec2(region)
    for generation in range(20):
        for attempt in range(PROFILE_TRIES):
            try:
                answer = ec2.run_instances(
                    ClientToken=token(run, arguments, generation), **arguments
                )
                break
            except be.ClientError as error:
                # A new instance profile, group, key or template takes seconds to be known to EC2.
                if not any(word in str(error) for word in NOT_SEEN_YET):
                    raise
                if attempt == PROFILE_TRIES - 1:
                    raise
                rate_limit.sleep(min(2**attempt * 0.5, 10))
        instance = answer["Instances"][0]
        state = instance["State"]["Name"]
        age = run.cloud.now() - aware(instance["LaunchTime"])
        if age > OLD_ANSWER:
            # AWS may repeat its first answer, which says `pending` of a machine that is long gone.
            # One that is not listed is gone only if it is so old that AWS has forgotten it.
            state = _listed(run, region, instance["InstanceId"])
            if not state and age < FORGOTTEN:
                return None
        if state and state not in ("terminated", "shutting-down"):
            return instance
        # This token belongs to a machine of an earlier life (removed and added again): ask with the
        # next one.
    return None


def _listed(run: Run, region: str, machine: str) -> str:
    """Return the state of a machine, "" if listings do not show it for as long as they may lag."""
    end = rate_limit.clock() + rate_limit.LISTED_SECONDS
    while not (state := states(run.cloud, region, [machine]).get(machine, "")):
        if rate_limit.clock() >= end:
            break
        rate_limit.sleep(10)
    return state


def start(run: Run, region: str, machines: list[Machine]) -> dict[str, str]:
    """Start stopped machines, fifty in a call; return why some did not start.

    AWS starts all of a call or none, so a call that failed is repeated one by one: a zone without
    capacity must not keep the others from starting.
    """
    ec2 = run.cloud.ec2(region)

    def call(batch: list[Machine]) -> None:
        names = ", ".join(m.name for m in batch)
        ids = [m.id for m in batch]
        run.do(f"{region}: start {names}", lambda: ec2.start_instances(InstanceIds=ids))
        for m in batch:
            m.state = "running"

    failed: dict[str, str] = {}
    chunks = [machines[i : i + 50] for i in range(0, len(machines), 50)]
    for chunk, _, error in each(call, chunks):
        if error is None:
            continue
        for batch, _, why in each(call, [[m] for m in chunk]):
            if why:
                failed[batch[0].name] = words_of(why)
    return failed


def revive(run: Run, region: str, machines: list[Machine]) -> None:
    """Start again what the schedule for unarmed machines stopped while they were being armed: it
    runs every 15 minutes, and a large class takes some of them."""
    if run.check or not machines:
        return
    with doing("look at the new machines", region):
        now = states(run.cloud, region, [m.id for m in machines])
    caught = [m for m in machines if now.get(m.id) in ("stopping", "stopped")]
    wait(run, region, [m.id for m in caught], {"stopped"})
    for name, why in start(run, region, caught).items():
        run.warn(f"{name} was stopped while it was being armed and did not start again: {why}")


def states(cloud: Cloud, region: str, ids: Collection[str]) -> dict[str, str]:
    """Return id -> state of machines; ids that AWS does not know are not in it."""
    wanted, now = sorted(ids), {}
    for i in range(0, len(wanted), IDS_PER_FILTER):
        reservations = cloud.pages(
            "ec2",
            region,
            "describe_instances",
            "Reservations",
            Filters=[{"Name": "instance-id", "Values": wanted[i : i + IDS_PER_FILTER]}],
        )
        now.update(
            {m["InstanceId"]: m["State"]["Name"] for r in reservations for m in r["Instances"]}
        )
    return now


def wait(run: Run, region: str, ids: list[str], goal: set[str], minutes: float = 10) -> list[str]:
    """Wait until machines are in one of the states of `goal`; return those that are not in time."""
    left, end = set(ids), rate_limit.clock() + minutes * 60
    gone = "terminated" if "terminated" in goal else "unknown"
    while left and not run.check:
        with doing("wait for machines", region):
            now = states(run.cloud, region, left)
        left = {i for i in left if now.get(i, gone) not in goal}
        if not left or rate_limit.clock() > end:
            break
        run.say(f"{region}: waiting for {len(left)} machines to be {' or '.join(sorted(goal))}")
        rate_limit.sleep(5)
    return sorted(left)


def arm(run: Run, region: str, machines: list[Machine]) -> list[str]:
    """Give machines the guards that must name them, read them back, and only then tag them armed.

    Returns the names of machines that stay unarmed; the `unarmed` schedule stops those.
    """
    class_guards.alarms(run, region, {m.name: m.id for m in machines if m.id})
    have = {} if run.check else class_guards.read_alarms(run, region)
    bad, armed, disarmed, pending = [], [], [], tags.pending(run.spec)
    for m in machines:
        if not m.id:
            continue
        alarm = have.get(class_guards.alarm_name(run, m.name))
        good = bool(
            alarm
            and alarm["ActionsEnabled"]
            and alarm["AlarmActions"]
            and alarm["Dimensions"][0]["Value"] == m.id
        )
        if run.check:
            continue
        if not good:
            bad.append(m.name)
        if good and m.tags.get(tags.GUARD) != tags.ARMED:
            armed.append(m.id)
        elif not good and m.tags.get(tags.GUARD) != pending:
            disarmed.append(m.id)
    for m in machines:
        m.tags[tags.GUARD] = (
            tags.ARMED
            if m.id in armed
            else pending
            if m.id in disarmed
            else m.tags.get(tags.GUARD, pending)
        )
    for ids, value in ((armed, tags.ARMED), (disarmed, pending)):
        for chunk in (ids[i : i + 200] for i in range(0, len(ids), 200)):
            with doing("tag machines", region):
                run.do(
                    f"{region}: {len(chunk)} machines are {value}",
                    partial(
                        run.cloud.ec2(region).create_tags,
                        Resources=chunk,
                        Tags=[{"Key": tags.GUARD, "Value": value}],
                    ),
                )
    return bad


def retag(run: Run, region: str, machines: list[Machine], wanted: dict[str, Wanted]) -> None:
    """Bring owner, seats and expiry of existing machines up to date."""
    for m in machines:
        want = inventory.machine_tags(run.spec, wanted[m.name])
        surplus = [k for k in m.tags if k.startswith(tags.SEAT) and k not in want]
        changed = {k: v for k, v in want.items() if m.tags.get(k) != v}
        with doing(f"tag {m.name}", region):
            if changed:
                run.do(
                    f"{region}: update tags of {m.name}: {', '.join(sorted(changed))}",
                    partial(
                        run.cloud.ec2(region).create_tags,
                        Resources=[m.id],
                        Tags=tags.as_list(changed),
                    ),
                )
            if surplus:
                run.do(
                    f"{region}: free seats on {m.name}",
                    partial(
                        run.cloud.ec2(region).delete_tags,
                        Resources=[m.id],
                        Tags=[{"Key": k} for k in surplus],
                    ),
                )


# ---- Elastic IPs ----


def read_addresses(run: Run, region: str) -> list[dict[str, Any]]:
    """Return the class's Elastic IPs of a region."""
    with doing("list the Elastic IPs", region):
        return run.cloud.ec2(region).describe_addresses(
            Filters=[{"Name": f"tag:{tags.CLASS}", "Values": [run.spec.name]}]
        )["Addresses"]


def addresses(
    run: Run, region: str, machines: list[Machine], keep: Callable[[str], bool] = lambda _: False
) -> list[str]:
    """Give each machine one Elastic IP (if the class has them), release surplus ones; return the
    allocation ids."""
    ec2 = run.cloud.ec2(region)
    wanted = {m.name: m for m in machines if m.id} if run.spec.elastic_ip else {}

    def read() -> dict[str, list[dict[str, Any]]]:
        by: dict[str, list[dict[str, Any]]] = {}
        for a in read_addresses(run, region):
            by.setdefault(tags.as_dict(a.get("Tags")).get(tags.MACHINE, ""), []).append(a)
        return {
            name: sorted(found, key=lambda a: not a.get("AssociationId"))
            for name, found in by.items()
        }

    have = read()

    def allocate(name: str) -> None:
        label = {
            **tags.common(run.spec, wanted[name].tags.get(tags.OWNER, name)),
            tags.MACHINE: name,
            "Name": f"{run.spec.name}-{name}",
        }
        made = run.do(
            f"{region}: allocate an Elastic IP for {name}",
            lambda: ec2.allocate_address(
                Domain="vpc", TagSpecifications=tags.spec_for(["elastic-ip"], label)
            ),
        )
        if made:
            answered[name] = made

    answered: dict[str, dict[str, Any]] = {}  # a listing may not show them yet
    if not run.check and any(n not in have for n in wanted):
        rate_limit.sleep(
            rate_limit.LATE_SECONDS
        )  # a run just before this one may have allocated some
        have = read()
    missing = [n for n in wanted if n not in have]
    failed = [error for _, _, error in each(allocate, missing) if error]
    if missing and not run.check:
        have = (
            read()
        )  # allocation knows no client token: a lost answer shows up here as a surplus address
    for name, made in answered.items():
        allocation_ids = {a["AllocationId"] for a in have.setdefault(name, [])}
        if made["AllocationId"] not in allocation_ids:
            have[name].append(made)
    for error in failed:
        run.warn(
            f"{region}: some machines have no Elastic IP yet:"
            f" {AWS_ERRORS.get(code_of(error), (str(error), ''))[0]}"
        )

    def associate(name: str) -> None:
        m, first = wanted[name], have[name][0]
        if first.get("InstanceId") != m.id:
            answer = run.do(
                f"{region}: associate the Elastic IP of {name}",
                lambda: ec2.associate_address(
                    AllocationId=first["AllocationId"], InstanceId=m.id, AllowReassociation=True
                ),
            )
            first["InstanceId"] = m.id if answer else ""
        m.ip = first["PublicIp"]

    for _, _, problem in each(
        associate, [n for n in wanted if n in have and wanted[n].state in ("running", "stopped")]
    ):
        if problem:
            run.warn(
                f"{region}: an Elastic IP could not be associated; run provision again"
                f" ({code_of(problem) or problem})"
            )
    surplus = [
        a
        for name, found in have.items()
        for a in (found[1:] if name in wanted else [] if keep(name) else found)
    ]
    release(run, region, surplus)
    gone = {a["AllocationId"] for a in surplus}
    return sorted(
        a["AllocationId"] for found in have.values() for a in found if a["AllocationId"] not in gone
    )


def release(run: Run, region: str, surplus: list[dict[str, Any]]) -> None:
    """Release Elastic IPs, wherever they are attached."""
    ec2 = run.cloud.ec2(region)

    def one(a: dict[str, Any]) -> None:
        def act() -> None:
            try:
                if a.get("AssociationId"):
                    ec2.disassociate_address(AssociationId=a["AssociationId"])
            except be.ClientError as error:
                if "NotFound" not in code_of(error):
                    raise
            try:
                ec2.release_address(AllocationId=a["AllocationId"])
            except be.ClientError as error:
                if "NotFound" not in code_of(error):
                    raise

        run.do(f"{region}: release {a['PublicIp']}", act)

    with doing("release Elastic IPs", region):
        run_all(one, surplus)


def retire(run: Run, machines: list[Machine], unused: bool = False) -> None:
    """Terminate machines and remove what belongs to them; their disks go with them. Raises
    WorkNotSaved unless the work on them is safe or given up. `unused` ones are of this very run."""
    if not run.check and not unused:
        archives.require(run.spec.out, run.spec.name, machines, run.discard, run.cloud.now())
    for region in sorted({m.region for m in machines}):
        here = [m for m in machines if m.region == region]
        spot.cancel(run, region, here)
        with doing("terminate machines", region):
            run.do(
                f"{region}: terminate {', '.join(m.name for m in here)}",
                partial(
                    run.cloud.ec2(region).terminate_instances, InstanceIds=[m.id for m in here]
                ),
            )
        wait(run, region, [m.id for m in here], {"terminated", "shutting-down"})
        release(
            run,
            region,
            [
                a
                for a in read_addresses(run, region)
                if tags.as_dict(a.get("Tags")).get(tags.MACHINE) in {m.name for m in here}
            ],
        )
        class_guards.delete_alarms(run, region, [m.name for m in here])
