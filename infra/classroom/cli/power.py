"""Start and stop machines. Starting checks the guards again and re-arms the idle alarm."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..aws.cloud import Cloud, doing
from ..aws.problems import ClassroomError
from ..fleet import inventory
from ..fleet.inventory import Machine
from ..guards import audit, class_guards, roles
from ..machines import arrivals, launch, spot
from ..money import cost, prices
from ..spec import ledger, tags
from ..spec.class_file import ClassSpec
from ..spec.run import Run
from ..students import links
from ..teardown import sweep
from . import preflight
from .provision import survey

Say = Callable[[str], None]


def chosen(run: Run) -> list[Machine]:
    """Return the existing machines within --limit."""
    existing, _ = survey(run)
    return [m for m in existing if run.wants(m.name, *m.students)]


def chosen_whole(run: Run, what: str) -> list[Machine]:
    """Return the machines within --limit; refuse one that is shared with students outside of it."""
    machines = chosen(run)
    for m in machines:
        others = sorted(s for s in m.students if not run.wants(m.name, s))
        if others:
            raise ClassroomError(
                f"{m.name} cannot {what} for some of its students only:"
                f" {', '.join(others)} would lose it too.",
                f"If that is meant, name the machine: --limit {m.name}. To take a student off a"
                " shared machine, remove the row from the roster and run provision.",
            )
    return machines


def _spent(run: Run, machines: list[Machine]) -> dict[str, str]:
    """Return the machines whose student has used up the budget; raise if the class has.

    A budget acts once and lags a day, so it does not stop what is started after it; and for a
    single student it only writes mail.
    """
    ledger.remember(run, machines)
    used, budget = cost.hours(run), run.spec.budget
    total = sum(h["usd"] for h in used.values())
    if total >= budget.class_usd:
        raise ClassroomError(
            f"The class has used ${total:,.2f} of its ${budget.class_usd:,.2f} (at"
            f" {prices.rate(run.spec, run.cloud.now().date())}), so nothing was started.",
            "Raise budget.class_usd and run extend; or start once with --over-budget.",
            exit_code=1,
        )
    out = {}
    for m in machines:
        usd = used.get(m.name, {"usd": 0.0})["usd"]
        cap = run.spec.cap(m.students)
        if usd >= cap:
            out[m.name] = (
                f"${usd:,.2f} of ${cap:,.2f} are used. Raise budget.per_student_usd and run"
                " extend; or start once with --over-budget."
            )
    return out


def start(run: Run, over_budget: bool = False) -> tuple[list[Machine], dict[str, str]]:
    """Start machines after verifying what would stop them; return them, and the reasons of those
    that did not start."""
    preflight.check(run)
    machines = chosen(run)
    role = f"arn:aws:iam::{run.cloud.account}:role/{roles.guard_role(run)}"
    failed = {} if over_budget else _spent(run, machines)
    for region in sorted({m.region for m in machines}):
        here = [m for m in machines if m.region == region]
        class_guards.verify(run, region, role)
        why = "" if run.check else audit.proven(run, region, role)
        if why:
            raise class_guards.GuardMissing([why])
        unarmed = launch.arm(run, region, here)
        if unarmed:
            raise class_guards.GuardMissing([f"idle alarm of {n}" for n in unarmed])
        gone = spot.taken(run, here)
        failed.update({name: spot.say(name, why) for name, why in gone.items()})
        on_the_way = [m for m in here if m.state == "stopping"]
        late = launch.wait(run, region, [m.id for m in on_the_way], {"stopped"})
        for m in on_the_way:
            m.state = "stopping" if m.id in late else "stopped"
            if m.id in late:
                failed[m.name] = "it is still stopping; run start again"
        stopped = [m for m in here if m.state == "stopped" and m.name not in failed]
        class_guards.rearm(run, region, role, [m.name for m in stopped])
        failed.update(launch.start(run, region, stopped))
        started = [m for m in stopped if m.name not in failed]
        failed.update(arrivals.settle(run, region, started))
        failed.update(
            {
                m.name: "it has been starting for minutes; `status` shows what becomes of it"
                for m in started
                if m.id and m.state == "pending" and not run.check
            }
        )
        _addresses(run, region, here)
    ledger.remember(run, machines)
    links.settle(run, machines)
    return machines, failed


def _addresses(run: Run, region: str, machines: list[Machine]) -> None:
    """Read the addresses again: without an Elastic IP they change at every start."""
    now = {m.id: m.ip for m in inventory.read(run, region)}
    for m in machines:
        m.ip = now.get(m.id, m.ip)


def stop(run: Run) -> list[Machine]:
    """Stop machines; disks, and so the students' work, stay."""
    run.cloud.identity()
    return _stop(run, chosen_whole(run, "be stopped"))


def stop_by_name(cloud: Cloud, name: str, limit: list[str] | None, check: bool, say: Say) -> Run:
    """Stop machines by the class's tag alone: a class.yml that is broken must not keep them
    running. `limit` names machines or students."""
    run = Run(ClassSpec.model_construct(name=name), cloud, check=check, say=say)
    listed = sweep.machines(cloud, name, blind=run.warnings)
    machines = [inventory.machine(f.raw, f.region) for f in listed]
    _stop(run, [m for m in machines if not limit or {m.name, *m.students} & set(limit)])
    return run


def _stop(run: Run, machines: list[Machine]) -> list[Machine]:
    for region in sorted({m.region for m in machines}):
        running = [m for m in machines if m.region == region and m.state in ("running", "pending")]
        # AWS refuses a whole call if one of its machines is still pending.
        begun = {"running", "stopping", "stopped", "terminated"}
        launch.wait(run, region, [m.id for m in running if m.state == "pending"], begun)
        dead = arrivals.ended(run, region, [m for m in running if m.state == "pending"])
        running = [m for m in running if m.id not in dead]
        for chunk in (running[i : i + 100] for i in range(0, len(running), 100)):
            with doing("stop machines", region):
                run.do(
                    f"{region}: stop {', '.join(m.name for m in chunk)}",
                    partial(
                        run.cloud.ec2(region).stop_instances, InstanceIds=[m.id for m in chunk]
                    ),
                )
        late = launch.wait(run, region, [m.id for m in running], {"stopped", "terminated"})
        if late and not run.check:
            raise ClassroomError(
                f"{region}: {len(late)} machines are still stopping.",
                "Run stop again; the nightly stop follows in any case.",
                exit_code=1,
            )
        for m in running:
            m.state = "stopped"
    return machines


__all__ = ["chosen", "chosen_whole", "start", "stop", "tags"]
