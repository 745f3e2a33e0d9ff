"""Remove everything of a class, in an order that AWS accepts, as often as it takes, and prove that
nothing is left."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import botocore.exceptions as be

from ..aws import rate_limit
from ..aws.cloud import DENIED, GLOBAL, Cloud, code_of, each, words_of
from ..aws.problems import ClassroomError
from ..guards import failures
from ..machines import launch
from ..spec import ledger
from ..work import copies
from . import orphans
from .sweep import UNTAGGED, Found, Sweep, sweep, without_a_tag

# What must be gone before what.
MACHINES = (
    "function",
    "reservation",
    "spot-request",
    "instance",
)  # first, so that no student starts one
REST = (
    "bucket",
    "elastic-ip",
    "snapshot",
    "volume",
    "network-interface",
    "key-pair",
    "launch-template",
    "security-group",
    "alarm",
    "rule",
    "topic",
    "budget",
    "instance-profile",
    "schedule",
    "schedule-group",
    "role",
    "parameter",
)
# While a machine lives, or may live unseen, something must be able to end it: these stay.
GUARDS = ("alarm", "rule", "topic", "budget", "schedule", "schedule-group", "role", "parameter")
PASSES = 6
Held = Callable[[list[Found]], dict[str, str]]


@dataclass
class Report:
    """Hold what was removed, what is left, and where we could not look."""

    name: str
    removed: list[str] = field(default_factory=list)
    left: list[Found] = field(default_factory=list)
    blind: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    regions: list[str] = field(default_factory=list)
    looks: int = 0
    at: str = ""
    ledger: ledger.Ledger = field(default_factory=ledger.Ledger)  # as this computer knows it
    closed: list[str] = field(default_factory=list)  # denied, and nothing can be started there
    account: str = ""
    known: bool = True  # the class was found, or something here says that it existed
    keep_copies: bool = False
    unbudgeted: bool = False  # the class never had budgets
    kept: list[str] = field(default_factory=list)  # because the staff asked for it
    orphans: list[str] = field(default_factory=list)  # made by hand, on the class's machines
    partial: bool = False  # not all regions were looked at, so the global guards stay

    @property
    def clean(self) -> bool:
        """Return whether AWS itself showed that nothing is left."""
        return not self.left and not self.blind

    @property
    def exit_code(self) -> int:
        """Return 0 for a proven empty account, else 1."""
        return 0 if self.clean and self.known else 1

    def summary(self) -> str:
        """Return the closing line."""
        if self.clean and not self.known:
            return (
                f"Account {self.account} holds nothing of a class {self.name}, and nothing here"
                " says that it ever did. If the name and the account are right, it is gone."
            )
        if self.clean:
            return (
                f"0 billable resources of class {self.name} (read back from {len(self.regions)}"
                f" regions, {self.looks} listings)"
                + (f"; kept as you asked: {', '.join(self.kept)}" if self.kept else "")
                + (f"; {', '.join(self.closed)}: denied to you, also to launch" * bool(self.closed))
                + (
                    "; other regions were not looked at, so roles and budgets stay"
                    if self.partial
                    else ""
                )
                + self.by_hand()
            )
        billable = sum(f.billable for f in self.left)
        return (
            f"{billable} billable and {len(self.left) - billable} other resources of class"
            f" {self.name} are left"
            + (f"; {len(self.blind)} places could not be read" if self.blind else "")
            + self.by_hand()
            + ". Run teardown again."
        )

    def by_hand(self) -> str:
        """Say what bills on, as the last who can know."""
        return (
            f"; made by hand, not the class's, and billing until you delete it:"
            f" {', '.join(self.orphans)}"
            if self.orphans
            else ""
        )

    def save(self, folder: Path) -> Path:
        """Write the proof next to the students' pages."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"teardown-{self.at.replace(':', '')[:17]}.json"
        path.write_text(
            json.dumps(
                {
                    "class": self.name,
                    "account": self.account,
                    "at": self.at,
                    "summary": self.summary(),
                    "regions": self.regions,
                    "removed": self.removed,
                    "left": list(map(str, self.left)),
                    "not_readable": self.blind,
                    "denied_also_to_launch": self.closed,
                    "errors": self.errors,
                    "kept_as_asked": self.kept,
                    "made_by_hand": self.orphans,
                },
                indent=1,
            )
            + "\n",
            encoding="utf-8",
        )
        return path


def teardown(
    cloud: Cloud,
    name: str,
    regions: list[str] | None = None,
    *,
    dry_run: bool = False,
    say: Callable[[str], None] = lambda _: None,
    pause: float = 3.0,
    held: Held = lambda _: {},
    known: ledger.Ledger | None = None,
    keep_copies: bool = False,
    unbudgeted: bool = False,
) -> Report:
    """Remove all that carries the class's tag in every enabled region; needs no state but the name
    of the class. `held` says which machines must not be ended, and why; with `keep_copies` the
    bucket stays; `unbudgeted`: the class never had budgets, so they need not be listed."""
    enabled = set(cloud.regions())
    unknown = sorted(set(regions or ()) - enabled)
    if unknown:
        raise ClassroomError(
            f"The region {', '.join(unknown)} is not enabled for this account (or does not exist).",
            f"Enabled: {', '.join(sorted(enabled))}.",
        )
    regions = sorted(set(regions or enabled))
    report = Report(name, regions=regions, at=cloud.now().isoformat(timespec="seconds"))
    report.partial = set(regions) != enabled
    report.ledger = known or report.ledger
    report.keep_copies, report.unbudgeted = keep_copies, unbudgeted
    state = _sweep(cloud, name, report, say)
    report.orphans = orphans.find(
        cloud, name, [f for f in state.found if f.kind == "instance"], state.known
    )
    if dry_run:
        return report
    # What was made a moment ago (by a run that was killed) shows up in listings late, so the look
    # that proves comes some seconds after anything that went before.
    sure = False
    for k in range(PASSES):
        if not state.found and not state.blind:
            if sure:
                break
            rate_limit.sleep(rate_limit.LATE_SECONDS)
            state, sure = _sweep(cloud, name, report, say), True
            continue
        before, report.errors = set(state.found), []
        hopeless = _pass(cloud, state, report, say, held)
        rate_limit.sleep(rate_limit.LATE_SECONDS)
        state, sure = _sweep(cloud, name, report, say), True
        if hopeless and set(state.found) == before:
            break  # it would be refused again
        if (state.found or state.blind) and k < PASSES - 1:
            rate_limit.sleep(pause * (k + 1))
    return report


def _sweep(cloud: Cloud, name: str, report: Report, say: Callable[[str], None]) -> Sweep:
    state = sweep(cloud, name, report.regions, not report.partial, report.ledger, report.unbudgeted)
    report.closed, report.ledger = state.closed, state.known
    if report.keep_copies:
        report.kept = [str(f) for f in state.found if f.kind == "bucket"]
        state.found = [f for f in state.found if f.kind != "bucket"]
    report.left, report.blind, report.looks = state.found, state.blind, state.looks
    say(
        f"found {len(state.found)} resources in {len(report.regions)} regions"
        f" ({state.looks} listings)"
    )
    return state


def _pass(
    cloud: Cloud, state: Sweep, report: Report, say: Callable[[str], None], held: Held
) -> bool:
    """Remove what can be removed now; return whether it would be refused again."""
    codes: set[str] = set()
    machines = [f for f in state.found if f.kind == "instance"]
    kept = held(machines)
    report.errors += [f"machine {i}: its work is not saved ({why})" for i, why in kept.items()]
    state.found = [
        f
        for f in state.found
        if not (f.kind in MACHINES and (f.id in kept or f.raw.get("InstanceId") in kept))
    ]
    untagged = [f for f in state.found if f.kind == UNTAGGED]
    report.errors += [without_a_tag(f, report.name) for f in untagged]
    for kind in MACHINES:
        codes |= _batch(cloud, kind, state, report, say)
    refused = bool(codes) and codes <= set(DENIED)  # then the rest fails because machines live
    alive = {f.region for f in machines if str(f) not in report.removed}
    alive |= _wait_for_end(cloud, [f for f in machines if str(f) in report.removed], say)
    alive |= state.unseen | {f.region for f in untagged}
    for kind in REST:
        keep = alive if kind in GUARDS else set()
        if keep and kind in ("budget", "role", "parameter"):
            keep = {GLOBAL}
        if alive and kind == "bucket":  # a machine that lives may have copied its work only there
            keep = {f.region for f in state.found if f.kind == "bucket"}
        codes |= _batch(cloud, kind, state, report, say, keep)
    if alive:
        report.errors.append(
            f"guards of {', '.join(sorted(alive))}: kept, because machines may still run there"
        )
    return refused or (bool(codes) and codes <= set(DENIED))


def _batch(
    cloud: Cloud,
    kind: str,
    state: Sweep,
    report: Report,
    say: Callable[[str], None],
    keep: Collection[str] = (),
) -> set[str]:
    batch = [f for f in state.found if f.kind == kind and f.region not in keep]
    if not batch:
        return set()
    say(f"removing {len(batch)} x {kind}")
    return _remove(cloud, kind, batch, report)


def _wait_for_end(
    cloud: Cloud, machines: list[Found], say: Callable[[str], None], minutes: float = 10
) -> set[str]:
    """Wait for machines to end; return the regions where some have not, or where it is unknown."""
    end, alive = rate_limit.clock() + minutes * 60, set()
    for region in sorted({m.region for m in machines}):
        left = {m.id for m in machines if m.region == region}
        while left:
            try:
                now = launch.states(cloud, region, left)
            except (be.ClientError, be.BotoCoreError):
                alive.add(region)  # the next pass looks again
                break
            left = {i for i in left if now.get(i, "terminated") != "terminated"}
            if left and rate_limit.clock() > end:
                alive.add(region)
                break
            if left:
                say(f"{region}: waiting for {len(left)} machines to end")
                rate_limit.sleep(5)
    return alive


def _remove(cloud: Cloud, kind: str, batch: list[Found], report: Report) -> set[str]:
    """Remove resources of one kind; return the codes of what failed."""
    codes: set[str] = set()
    if kind == "instance":
        groups: dict[str, list[Found]] = {}
        for f in batch:
            groups.setdefault(f.region, []).append(f)
        chunks = [g[i : i + 100] for g in groups.values() for i in range(0, len(g), 100)]
        done = each(
            lambda chunk: cloud.ec2(chunk[0].region).terminate_instances(
                InstanceIds=[f.id for f in chunk]
            ),
            chunks,
        )
        results: list[tuple[Found, Any, Exception | None]] = [
            (f, None, error) for chunk, _, error in done for f in chunk
        ]
        if any(error for *_, error in results):  # one bad id fails a whole chunk
            results = each(
                lambda f: cloud.ec2(f.region).terminate_instances(InstanceIds=[f.id]), batch
            )
    else:
        results = each(lambda f: _REMOVERS[kind](cloud, f), batch)
    for f, _, error in results:
        if error is None or _is_gone(error):
            if str(f) not in report.removed:
                report.removed.append(str(f))
        else:
            code = code_of(error)
            codes.add(code or "unknown")
            why = words_of(error) + (f" ({code})" if code else "")
            if f.kind == "security-group" and code == "DependencyViolation":
                why = _members(cloud, f) or why
            report.errors.append(f"{f}: {why}")
    return codes


def _is_gone(error: Exception) -> bool:
    code = code_of(error)
    return "NotFound" in code or code in ("NoSuchEntity", "ResourceNotFoundException")


def _members(cloud: Cloud, group: Found) -> str:
    """Return which network interfaces keep a security group, and how they are deleted; "" if that
    is not known."""
    inside = [{"Name": "group-id", "Values": [group.id]}]
    try:
        interfaces = cloud.pages(
            "ec2", group.region, "describe_network_interfaces", "NetworkInterfaces", Filters=inside
        )
    except (be.ClientError, be.BotoCoreError):
        return ""
    ids = [i["NetworkInterfaceId"] for i in interfaces]
    return "; ".join(
        f"network interface {i} is in it: if nothing needs that, aws ec2 delete-network-interface"
        f" --region {group.region} --network-interface-id {i}"
        for i in ids
    )


def _elastic_ip(cloud: Cloud, f: Found) -> None:
    ec2 = cloud.ec2(f.region)
    if f.raw.get("AssociationId"):
        try:
            ec2.disassociate_address(AssociationId=f.raw["AssociationId"])
        except be.ClientError as error:
            if not _is_gone(error):
                raise
    ec2.release_address(AllocationId=f.id)


def _volume(cloud: Cloud, f: Found) -> None:
    if f.state == "available":  # attached ones go with their machine
        cloud.ec2(f.region).delete_volume(VolumeId=f.id)


def _network_interface(cloud: Cloud, f: Found) -> None:
    if f.state == "available":
        cloud.ec2(f.region).delete_network_interface(NetworkInterfaceId=f.id)


def _schedule(cloud: Cloud, f: Found) -> None:
    group, name = f.id.split("/", 1)
    cloud.client("scheduler", f.region).delete_schedule(GroupName=group, Name=name)


def _profile(cloud: Cloud, f: Found) -> None:
    iam = cloud.client("iam")
    for role in f.raw.get("Roles", []):
        try:
            iam.remove_role_from_instance_profile(
                InstanceProfileName=f.id, RoleName=role["RoleName"]
            )
        except be.ClientError as error:
            if not _is_gone(error):
                raise
    iam.delete_instance_profile(InstanceProfileName=f.id)


def _role(cloud: Cloud, f: Found) -> None:
    iam = cloud.client("iam")
    for policy in cloud.pages("iam", GLOBAL, "list_role_policies", "PolicyNames", RoleName=f.id):
        iam.delete_role_policy(RoleName=f.id, PolicyName=policy)
    for policy in cloud.pages(
        "iam", GLOBAL, "list_attached_role_policies", "AttachedPolicies", RoleName=f.id
    ):
        iam.detach_role_policy(RoleName=f.id, PolicyArn=policy["PolicyArn"])
    iam.delete_role(RoleName=f.id)


_REMOVERS: dict[str, Callable[[Cloud, Found], Any]] = {
    "spot-request": (
        lambda c, f: c.ec2(f.region).cancel_spot_instance_requests(SpotInstanceRequestIds=[f.id])
    ),
    "elastic-ip": _elastic_ip,
    "snapshot": lambda c, f: c.ec2(f.region).delete_snapshot(SnapshotId=f.id),
    "volume": _volume,
    "network-interface": _network_interface,
    "key-pair": lambda c, f: c.ec2(f.region).delete_key_pair(KeyName=f.id),
    "launch-template": lambda c, f: c.ec2(f.region).delete_launch_template(LaunchTemplateId=f.id),
    "security-group": lambda c, f: c.ec2(f.region).delete_security_group(GroupId=f.id),
    "alarm": lambda c, f: c.client("cloudwatch", f.region).delete_alarms(AlarmNames=[f.id]),
    "budget": lambda c, f: c.client("budgets").delete_budget(AccountId=c.account, BudgetName=f.id),
    "instance-profile": _profile,
    "schedule": _schedule,
    "schedule-group": lambda c, f: c.client("scheduler", f.region).delete_schedule_group(Name=f.id),
    "role": _role,
    "rule": lambda c, f: failures.remove_rule(c, f.id, f.region),
    "topic": lambda c, f: c.client("sns", f.region).delete_topic(TopicArn=f.id),
    "parameter": lambda c, f: c.client("ssm", f.region).delete_parameter(Name=f.id),
    "reservation": (
        lambda c, f: c.ec2(f.region).cancel_capacity_reservation(CapacityReservationId=f.id)
    ),
    "bucket": lambda c, f: copies.empty(c, f.region, f.id),
    "function": lambda c, f: c.client("lambda", f.region).delete_function(FunctionName=f.id),
}


__all__ = ["Report", "dt", "teardown"]
