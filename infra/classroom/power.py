"""Start and stop machines. Starting checks the guards again and re-arms the idle alarm."""

from __future__ import annotations

from . import fleet, guards, launch, preflight, roles, tags
from .cloud import code_of, doing, each
from .fleet import Machine
from .problems import AWS_ERRORS, ClassroomError
from .provision import remember, survey
from .run import Run


def chosen(run: Run) -> list[Machine]:
    """Return the existing machines within --limit."""
    existing, _ = survey(run)
    return [m for m in existing if run.limit is None or run.limit & {m.name, *m.students}]


def start(run: Run) -> tuple[list[Machine], dict[str, str]]:
    """Start machines after verifying what would stop them; return them, and the reasons of those
    that did not start."""
    preflight.check(run)
    machines = chosen(run)
    role = f"arn:aws:iam::{run.cloud.account}:role/{roles.guard_role(run)}"
    failed: dict[str, str] = {}
    for region in sorted({m.region for m in machines}):
        here = [m for m in machines if m.region == region]
        guards.verify(run, region, role)
        unarmed = launch.arm(run, region, here)
        if unarmed:
            raise guards.GuardMissing([f"idle alarm of {n}" for n in unarmed])
        stopped = [m for m in here if m.state == "stopped"]
        guards.rearm(run, region, role, [m.name for m in stopped])
        # One call each: a zone without capacity must not keep the others from starting.
        results = each(
            lambda m: run.do(
                f"{m.region}: start {m.name}",
                lambda: run.cloud.ec2(m.region).start_instances(InstanceIds=[m.id]),
            ),
            stopped,
        )
        for m, _, error in results:
            if error:
                failed[m.name] = AWS_ERRORS.get(code_of(error), (str(error), ""))[0]
            else:
                m.state = "running"
        started = [m for m in stopped if m.name not in failed]
        launch.wait(run, region, [m.id for m in started], {"running"})
        _addresses(run, region, here)
    remember(run, machines)
    return machines, failed


def _addresses(run: Run, region: str, machines: list[Machine]) -> None:
    """Read the addresses again: without an Elastic IP they change at every start."""
    now = {m.id: m.ip for m in fleet.read(run, region)}
    for m in machines:
        m.ip = now.get(m.id, m.ip)


def stop(run: Run) -> list[Machine]:
    """Stop machines; disks, and so the students' work, stay."""
    run.cloud.identity()
    machines = chosen(run)
    for region in sorted({m.region for m in machines}):
        running = [m for m in machines if m.region == region and m.state in ("running", "pending")]
        for chunk in (running[i : i + 100] for i in range(0, len(running), 100)):
            with doing("stop machines", region):
                run.do(
                    f"{region}: stop {', '.join(m.name for m in chunk)}",
                    lambda chunk=chunk, region=region: run.cloud.ec2(region).stop_instances(
                        InstanceIds=[m.id for m in chunk]
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


__all__ = ["chosen", "start", "stop", "tags"]
