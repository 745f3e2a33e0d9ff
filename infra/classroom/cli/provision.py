"""Bring a class up: guards first, machines after, and partial success kept as a state that the next
run continues."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ..aws import rate_limit
from ..aws.cloud import DENIED, aware, code_of, each
from ..aws.problems import ClassroomError
from ..fleet import inventory
from ..fleet.inventory import Machine, Wanted
from ..guards import audit, class_guards, drift, failures, roles
from ..machines import access, arrivals, blocks, launch, spot
from ..spec import clusters, ledger, lock, tags
from ..spec.run import Run
from ..students import links, mail
from ..work import archives, copies, fetch
from . import preflight

CAUGHT = dt.timedelta(days=1)  # after which a machine that was never armed is left as it is


@dataclass
class Outcome:
    """Hold what a provision run achieved."""

    machines: list[Machine] = field(default_factory=list)
    launched: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    unplaced: dict[str, str] = field(default_factory=dict)
    unarmed: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)  # still pending after minutes
    restored: dict[str, dt.datetime] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """Return 0 if every student has a guarded machine that runs, else 1."""
        return 1 if self.unplaced or self.unarmed or self.slow else 0


@dataclass
class _Progress:
    """Hold where a run stands while it goes from region to region."""

    run: Run
    role: str
    plan: inventory.Plan
    existing: list[Machine]
    known: ledger.Ledger
    images: dict[str, str]  # of the regions that were asked so far
    todo: list[Wanted]  # who has no machine yet
    reasons: dict[str, str] = field(default_factory=dict)  # why, by the machine's name
    outcome: Outcome = field(default_factory=Outcome)

    def give_up(self, some: list[Wanted], why: str) -> None:
        """Note why some have no machine of this region."""
        self.reasons.update({w.name: why for w in some})


def survey(run: Run, blind: list[str] | None = None) -> tuple[list[Machine], inventory.Plan]:
    """Read what exists, in every region of the account, and compare it with the roster: a region
    that was taken out of class.yml still holds its machines. With `blind`, a region that cannot be
    read goes in there, unless it is the last one."""
    everywhere = sorted({*run.cloud.regions(), *run.spec.regions})
    existing = []
    for region, found, error in each(lambda r: inventory.read(run, r), everywhere):
        if error is None:
            existing += found or []
        elif (
            blind is not None
            and region in run.spec.regions
            and isinstance(error, ClassroomError)
            and len(blind) + 1 < len(run.spec.regions)
        ):
            blind.append(f"The machines in {region} are not known: {error}")
        elif region in run.spec.regions or not isinstance(error, ClassroomError):
            raise error
        elif code_of(error.__cause__) not in DENIED:  # closed by the organisation: nothing is there
            run.warn(f"{region} could not be looked at: {error}")
    for region in sorted({m.region for m in existing} - set(run.spec.regions)):
        names = ", ".join(sorted(m.name for m in existing if m.region == region))
        run.warn(
            f"{region} is not in `regions` any more, but {names} live there. They stay and stay"
            " guarded; to move them, save the work, remove the students, provision, add them again."
        )
    if run.limit is not None:
        unknown = sorted(
            run.limit
            - {s.id for s in run.spec.students}
            - {m.name for m in existing}
            - {s for m in existing for s in m.students}
        )
        if run.spec.cluster and run.limit & {s.id for s in run.spec.students}:
            raise ClassroomError(
                "The nodes of a cluster have no owner, so --limit takes no students here.",
                f"Name nodes ({clusters.HEAD}), or leave --limit out.",
            )
        if unknown:
            raise ClassroomError(
                f"--limit names {', '.join(unknown)}, who is not in the roster.",
                "Check the spelling.",
            )
    return existing, inventory.plan(run.spec, existing, run.limit)


def check_removals(plan: inventory.Plan, existing: list[Machine], confirmed: bool) -> None:
    """Refuse to terminate many machines because of a truncated roster."""
    n = len(plan.remove)
    if n > max(1, len(existing) // 5) and not confirmed:
        names = ", ".join(m.name for m in plan.remove[:8]) + (" ..." if n > 8 else "")
        raise ClassroomError(
            f"The roster would terminate {n} of {len(existing)} machines ({names}).",
            "If that is meant, say so: `-e confirm_removals=yes` (or --confirm-removals).",
        )


def save_before_the_end(run: Run, gone: list[Machine]) -> None:
    """Fetch the work of machines that are about to be ended; raise WorkNotSaved if that fails."""
    name, given_up = run.spec.name, run.discard
    rest = [m for m in gone if not {name, m.name} & given_up and set(m.students) - given_up]
    if run.check or not rest:
        return
    shelf = archives.Shelf(run.spec.out / "work")
    done = fetch.save(
        run.cloud,
        run.spec.out,
        rest,
        wanted=lambda _, s: s not in given_up,
        say=run.say,
        copied=copies.fetcher(copies.folder(run), shelf),
    )
    unsafe = archives.unsafe(run.spec.out, name, rest, given_up, run.cloud.now())
    if unsafe:
        fetch.stop_started(run.cloud, done)
        reasons = {m: done.failed.get(m, why) for m, why in unsafe.items()}
        raise archives.WorkNotSaved(name, reasons)


def provision(run: Run, confirm_removals: bool = False, confirm_changes: bool = False) -> Outcome:
    """Make the cloud match class.yml and the roster. Safe to interrupt anywhere and to run
    again."""
    preflight.check(run)
    existing, plan = survey(run)
    begun_before = lock.read(run.spec.folder).get("name") == run.spec.name or roles.exist(run)
    if plan.launch and begun_before and not run.check:
        # A run that was cut a moment ago may have launched what no listing shows yet, in another
        # zone or from another template, so that its client tokens are not ours.
        run.say(f"waiting {rate_limit.LISTED_SECONDS} s: then AWS lists what an earlier run began")
        rate_limit.sleep(rate_limit.LISTED_SECONDS)
        existing, plan = survey(run)
    check_removals(plan, existing, confirm_removals)
    recorded = ledger.read(run)
    drift.check(run, recorded, {m.region for m in existing}, confirm_changes)
    save_before_the_end(run, plan.remove + plan.duplicates)
    first = run.spec.regions[0]
    image = access.image(run, first)  # before money is spent: does the SDK exist at all?
    if plan.launch:
        preflight.try_launch(run, first, image)
    if not run.check:  # before anything is made, so that a run that is cut is bound, too
        lock.write(run.spec.folder, account=run.cloud.account, name=run.spec.name)

    role = roles.roles(run)
    ledger.remember_settings(run, recorded)
    ledger.remember(run, existing, recorded)
    class_guards.budgets(run, _owners(run, plan))
    links.deploy(run)
    mail.warn(run)
    copies.ensure(run)
    at = _Progress(run, role, plan, existing, recorded, {first: image}, list(plan.launch))
    for region in [*run.spec.regions, *_others(run, existing)]:
        if at.todo or any(m.region == region for m in plan.keep + plan.remove):
            _region(at, region)
    outcome = at.outcome
    outcome.unplaced = {w.name: at.reasons.get(w.name, "no region has room") for w in at.todo}
    gone = plan.remove + plan.duplicates
    for m in plan.duplicates:
        run.warn(f"{m.name} had a second machine, {m.id} in {m.region}; it is ended.")
    if gone:
        launch.retire(run, gone)
        outcome.removed = [m.name for m in gone]
    if run.limit is None:
        _stop_actions(run, role, outcome.machines)
    elif outcome.launched or gone:
        ids = {m.id for m in gone}
        everyone = [m for m in existing if m.id not in ids] + [
            m for m in outcome.machines if m.name in outcome.launched
        ]
        _stop_actions(run, role, everyone)
    ledger.remember(run, outcome.machines, recorded)
    links.settle(run, outcome.machines)
    outcome.restored = copies.enrol(run, outcome.machines, outcome.launched)
    return outcome


def _others(run: Run, existing: list[Machine]) -> list[str]:
    """Return the regions outside of class.yml that still hold machines."""
    return sorted({m.region for m in existing} - set(run.spec.regions))


def _owners(run: Run, plan: inventory.Plan) -> dict[str, list[str]]:
    """Return whom a budget writes to: the student, or all who share the machine."""
    mails = {s.id: s.email for s in run.spec.students}
    return {
        w.owner: [mails[s] for s in w.seats.values() or [w.owner] if s in mails]
        for w in plan.wanted.values()
    }


def _guard(run: Run, region: str, role: str, addresses: list[str] | None = None) -> None:
    """Make the schedules of a region and read the guards back."""
    class_guards.schedules(run, region, role, addresses)
    if not run.check:
        class_guards.verify(run, region, role)


def _region(at: _Progress, region: str) -> None:
    """Guard a region, then launch there what it has room for."""
    run, role, outcome = at.run, at.role, at.outcome
    live = [m for m in at.existing if m.region == region]
    kept = [m for m in at.plan.keep if m.region == region]
    net = access.network(run, region)
    if not net.subnets:
        at.give_up(at.todo, f"{region} does not offer {run.spec.instance_type}")
        if not live:
            return
    _guard(run, region, role)
    access.key_pair(run, region)
    fresh: list[Machine] = []
    unarmed = [m for m in kept if _never_armed(run, m)]
    if at.todo and net.subnets and region in run.spec.regions:
        # What stops machines has acted before one starts; where it cannot, none does.
        unproven = "" if run.check else audit.proven(run, region, role)
        if unproven:
            at.give_up(at.todo, unproven)
            run.warn(f"No machine was started in {region}: {unproven}.")
        else:
            ledger.remember_region(run, region, at.known)
            fresh = _launch(at, region, net, len(live))
            outcome.launched += [m.name for m in fresh]
    dead = _settle(at, region, kept + fresh)
    at.todo = at.todo + [at.plan.wanted[m.name] for m in dead]
    machines = [m for m in kept + fresh if m not in dead]
    kept, fresh = [m for m in kept if m not in dead], [m for m in fresh if m not in dead]
    why = _proof(run, region, role) if machines and not run.check else ""
    if why:
        run.warn(f"No machine was armed: {why}.")
        outcome.unarmed += [m.name for m in machines]
    else:
        bad = launch.arm(run, region, machines)
        outcome.unarmed += bad
        again = fresh + [m for m in unarmed if m in kept]
        launch.revive(run, region, [m for m in again if m.name not in bad])
    launch.retag(run, region, kept, at.plan.wanted)
    others = {m.name for m in live}
    ids = launch.addresses(
        run, region, machines, keep=lambda name: name in others and run.limit is not None
    )
    if run.spec.elastic_ip:
        class_guards.schedules(run, region, role, ids)
    if machines:
        failures.ensure(run, region)
    outcome.machines += machines


def _proof(run: Run, region: str, role: str) -> str:
    """Return why the guards of a region are not proven, or "": with machines up, a failure to read
    is told with them."""
    try:
        return audit.proven(run, region, role)
    except ClassroomError as error:
        return f"what the guards of {region} did cannot be read: {error}".rstrip(".")


def _never_armed(run: Run, m: Machine) -> bool:
    """Return whether a machine was launched a short while ago and never armed: a run before this
    one was cut, and the guard for such machines stops it, if it has not yet."""
    try:
        begun = dt.datetime.fromisoformat(m.launched)
    except ValueError:
        return False
    unarmed = m.tags.get(tags.GUARD) == tags.pending(run.spec)
    return unarmed and run.cloud.now() - begun < CAUGHT


def _settle(at: _Progress, region: str, machines: list[Machine]) -> list[Machine]:
    """Wait for machines that are starting; return those that ended instead."""
    starting = [m for m in machines if m.state == "pending"]
    failed = arrivals.settle(at.run, region, starting)
    at.reasons.update({name: f"{region}: {reason}" for name, reason in failed.items()})
    dead = [m for m in starting if m.name in failed]
    spot.cancel(at.run, region, dead)
    if any(m.market == "spot" for m in dead):  # AWS may have launched again by itself meanwhile
        again = [m for m in inventory.read(at.run, region) if m.name in failed]
        launch.retire(at.run, again, unused=True)
    at.outcome.launched = [n for n in at.outcome.launched if n not in failed]
    at.outcome.slow += [m.name for m in starting if m.id and m.state == "pending"]
    return dead


def _launch(at: _Progress, region: str, net: access.Network, live: int) -> list[Machine]:
    """Launch what a region has room for beside its `live` machines; return the new ones."""
    run, block = at.run, None
    if run.spec.market == "capacity-block":
        block = blocks.ensure(run, region, len(at.todo) + live)
        if block is None:
            at.give_up(at.todo, f"no active capacity block in {region}")
            return []
    now, later = _fitting(at, region, at.todo, live, preflight.vcpus)
    # beyond the quota of disks AWS would accept launches, and end the machines while they start
    now, full = _fitting(at, region, now, live, preflight.disks)
    if not now:
        at.todo = full + later
        return []
    if region not in at.images:
        at.images[region] = access.image(run, region)
    if block and (zone := blocks.zone(run, region)):  # its machines can start in its zone only
        net = replace(net, subnets=tuple(s for s in net.subnets if s[0] == zone))
        if not net.subnets:
            at.give_up(now, f"the block's zone {zone} has no subnet")
            return []
    template = access.launch_template(run, net, at.images[region], block)
    results = launch.launch(run, net, template, now)
    for r in results:
        if r.machine is None:
            at.give_up([r.wanted], f"{region}: {r.reason}")
    if any(r.unknown for r in results):  # perhaps launched, answer lost: look before asking again
        run.say(f"{region}: AWS did not answer all launches; waiting until it lists what began")
        rate_limit.sleep(rate_limit.LISTED_SECONDS)
        by_name = {m.name: m for m in inventory.read(run, region)}
        for r in results:
            if r.unknown:
                r.machine = by_name.get(r.wanted.name)
    at.todo = full + later + [r.wanted for r in results if r.machine is None]
    return [r.machine for r in results if r.machine is not None]


def _fitting(
    at: _Progress,
    region: str,
    todo: list[Wanted],
    live: int,
    quota: Callable[[Run, str, int], preflight.Need | None],
) -> tuple[list[Wanted], list[Wanted]]:
    """Return for whom a quota of the account has room, and for whom not."""
    need = quota(at.run, region, live + len(todo)) if todo else None
    if need is None or need.enough:
        return todo, []
    fit = max(0, need.fit - live)
    at.give_up(todo[fit:], f"{region}: the quota {need.sentence}; it has no room")
    at.run.warn(f"{region}: {need.sentence}. Ask for more (hours to days): {need.command}")
    return todo[:fit], todo[fit:]


def _stop_actions(run: Run, role: str, machines: list[Machine]) -> None:
    stops: dict[str, dict[str, list[str]]] = {}
    for m in machines:
        owner = m.tags.get(tags.OWNER, m.name)
        names = [class_guards.class_budget_name(run)]
        names += [class_guards.owner_budget(run, owner)] * run.spec.budget.stop_each
        for name in names if m.id else ():
            stops.setdefault(name, {}).setdefault(m.region, []).append(m.id)
    class_guards.stop_actions(run, role, stops)


def extend(run: Run, confirm_changes: bool = False) -> Outcome:
    """Apply a later teardown date, stop time, budget or block to everything that exists; launches
    and removes nothing. With --limit only what belongs to those students."""
    preflight.check(run)
    existing, plan = survey(run)
    if run.limit is None:
        recorded = ledger.read(run)
        drift.check(run, recorded, {m.region for m in existing}, confirm_changes)
        ledger.remember_settings(run, recorded)
    outcome = Outcome()
    regions = sorted({m.region for m in existing})
    if run.limit is None:
        role = roles.roles(run)
        if run.spec.market == "capacity-block":
            for region in regions:
                blocks.extend(run, region)
    else:
        role = f"arn:aws:iam::{run.cloud.account}:role/{roles.guard_role(run)}"
        _class_is_extended(run, regions, role)
    class_guards.budgets(run, _owners(run, plan))
    if run.limit is None:
        links.deploy(run)
        copies.ensure(run)
    for region in regions:
        here = [m for m in plan.keep if m.region == region]
        if run.limit is None:
            held = launch.read_addresses(run, region) if run.spec.elastic_ip else []
            _guard(run, region, role, sorted(a["AllocationId"] for a in held))
            failures.ensure(run, region)
        outcome.unarmed += launch.arm(run, region, here)
        launch.retag(run, region, here, plan.wanted)
        outcome.machines += here
    links.settle(run, outcome.machines)
    copies.enrol(run, outcome.machines)
    until = run.spec.teardown_at.astimezone(dt.timezone.utc) - dt.timedelta(hours=2)
    for region in sorted({m.region for m in outcome.machines if m.market == "spot"}):
        if any(aware(r["ValidUntil"]) < until for r in spot.read(run, region) if "ValidUntil" in r):
            run.warn(
                f"{region}: spot requests keep the end they were made with, and AWS ends stopped"
                " machines on that day. Save the work (save_work.yml), then remove and add those"
                " students to give them new machines."
            )
    return outcome


def _class_is_extended(run: Run, regions: list[str], role: str) -> None:
    """Refuse to extend one student beyond guards that act on the whole class."""
    for region in regions:
        try:
            class_guards.verify(run, region, role)
        except class_guards.GuardMissing as error:
            raise ClassroomError(
                "The dates in class.yml are the whole class's, and AWS does not have them yet:"
                f" {'; '.join(error.missing)}.",
                "Run extend without --limit first.",
            ) from error


__all__ = ["Outcome", "dt", "extend", "provision", "survey"]
