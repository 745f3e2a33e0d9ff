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
        told = {m: done.failed.get(m, why) for m, why in unsafe.items()}
        raise archives.WorkNotSaved(name, told)


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
    known = ledger.read(run)
    drift.check(run, known, {m.region for m in existing}, confirm_changes)
    save_before_the_end(run, plan.remove + plan.duplicates)
    outcome = Outcome()
    images: dict[str, str] = {}
    first = run.spec.regions[0]
    images[first] = access.image(run, first)  # before money is spent: does the SDK exist at all?
    if plan.launch:
        preflight.try_launch(run, first, images[first])
    if not run.check:  # before anything is made, so that a run that is cut is bound, too
        lock.write(run.spec.folder, account=run.cloud.account, name=run.spec.name)

    role = roles.roles(run)
    ledger.remember_settings(run, known)
    ledger.remember(run, existing, known)
    class_guards.budgets(run, _owners(run, plan))
    links.deploy(run)
    mail.warn(run)
    copies.ensure(run)
    todo: list[Wanted] = list(plan.launch)
    reasons: dict[str, str] = {}
    for region in [*run.spec.regions, *_others(run, existing)]:
        kept = [m for m in plan.keep if m.region == region]
        if not todo and not kept and not any(m.region == region for m in plan.remove):
            continue
        todo, reasons = _region(
            run, region, role, images, kept, todo, plan, outcome, reasons, existing, known
        )
    outcome.unplaced = {w.name: reasons.get(w.name, "no region has room") for w in todo}
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
    ledger.remember(run, outcome.machines, known)
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


def _region(
    run: Run,
    region: str,
    role: str,
    images: dict[str, str],
    kept: list[Machine],
    todo: list[Wanted],
    plan: inventory.Plan,
    outcome: Outcome,
    reasons: dict[str, str],
    existing: list[Machine],
    known: ledger.Ledger,
) -> tuple[list[Wanted], dict[str, str]]:
    """Guard a region, then launch there what it has room for; return what is left and why."""
    live = [m for m in existing if m.region == region]
    net = access.network(run, region)
    if not net.subnets:
        for w in todo:
            reasons[w.name] = f"{region} does not offer {run.spec.instance_type}"
        if not live:
            return todo, reasons
    _guard(run, region, role)
    access.key_pair(run, region)
    fresh: list[Machine] = []
    unarmed = [m for m in kept if _never_armed(run, m)]
    if todo and net.subnets and region in run.spec.regions:
        # What stops machines has acted before one starts; where it cannot, none does.
        unproven = "" if run.check else audit.proven(run, region, role)
        if unproven:
            reasons.update({w.name: unproven for w in todo})
            run.warn(f"No machine was started in {region}: {unproven}.")
        else:
            ledger.remember_region(run, region, known)
            todo, fresh = _launch(run, region, net, images, todo, reasons, len(live))
            outcome.launched += [m.name for m in fresh]
    dead = _settle(run, region, kept + fresh, outcome, reasons)
    todo = todo + [plan.wanted[m.name] for m in dead]
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
    launch.retag(run, region, kept, plan.wanted)
    others = {m.name for m in live}
    ids = launch.addresses(
        run, region, machines, keep=lambda name: name in others and run.limit is not None
    )
    if run.spec.elastic_ip:
        class_guards.schedules(run, region, role, ids)
    if machines:
        failures.ensure(run, region)
    outcome.machines += machines
    return todo, reasons


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


def _settle(
    run: Run, region: str, machines: list[Machine], outcome: Outcome, reasons: dict[str, str]
) -> list[Machine]:
    """Wait for machines that are starting; return those that ended instead."""
    starting = [m for m in machines if m.state == "pending"]
    failed = arrivals.settle(run, region, starting)
    reasons.update({name: f"{region}: {reason}" for name, reason in failed.items()})
    dead = [m for m in starting if m.name in failed]
    spot.cancel(run, region, dead)
    if any(m.market == "spot" for m in dead):  # AWS may have launched again by itself meanwhile
        again = [m for m in inventory.read(run, region) if m.name in failed]
        launch.retire(run, again, unused=True)
    outcome.launched = [n for n in outcome.launched if n not in failed]
    outcome.slow += [m.name for m in starting if m.id and m.state == "pending"]
    return dead


def _launch(
    run: Run,
    region: str,
    net: access.Network,
    images: dict[str, str],
    todo: list[Wanted],
    reasons: dict[str, str],
    live: int,
) -> tuple[list[Wanted], list[Machine]]:
    block = None
    if run.spec.market == "capacity-block":
        block = blocks.ensure(run, region, len(todo) + live)
        if block is None:
            reasons.update({w.name: f"no active capacity block in {region}" for w in todo})
            return todo, []
    now, later = _fitting(run, region, todo, live, preflight.vcpus, reasons)
    # beyond the quota of disks AWS would accept launches, and end the machines while they start
    now, full = _fitting(run, region, now, live, preflight.disks, reasons)
    later = full + later
    if not now:
        return later, []
    if region not in images:
        images[region] = access.image(run, region)
    if block and (zone := blocks.zone(run, region)):  # its machines can start in its zone only
        net = replace(net, subnets=tuple(s for s in net.subnets if s[0] == zone))
        if not net.subnets:
            reasons.update({w.name: f"the block's zone {zone} has no subnet" for w in now})
            return todo, []
    template = access.launch_template(run, net, images[region], block)
    results = launch.launch(run, net, template, now)
    for r in results:
        if r.machine is None:
            reasons[r.wanted.name] = f"{region}: {r.reason}"
    if any(r.unknown for r in results):  # perhaps launched, answer lost: look before asking again
        run.say(f"{region}: AWS did not answer all launches; waiting until it lists what began")
        rate_limit.sleep(rate_limit.LISTED_SECONDS)
        found = {m.name: m for m in inventory.read(run, region)}
        for r in results:
            if r.unknown:
                r.machine = found.get(r.wanted.name)
    left = [r.wanted for r in results if r.machine is None]
    return later + left, [r.machine for r in results if r.machine is not None]


def _fitting(
    run: Run,
    region: str,
    todo: list[Wanted],
    live: int,
    quota: Callable[[Run, str, int], preflight.Need | None],
    reasons: dict[str, str],
) -> tuple[list[Wanted], list[Wanted]]:
    """Return for whom a quota of the account has room, and for whom not."""
    need = quota(run, region, live + len(todo)) if todo else None
    if need is None or need.enough:
        return todo, []
    fit = max(0, need.fit - live)
    reasons.update(
        {w.name: f"{region}: the quota {need.sentence}; it has no room" for w in todo[fit:]}
    )
    run.warn(f"{region}: {need.sentence}. Ask for more (hours to days): {need.command}")
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
        known = ledger.read(run)
        drift.check(run, known, {m.region for m in existing}, confirm_changes)
        ledger.remember_settings(run, known)
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
