"""Say why it does not work, or that it would: credentials, regions, permissions, quotas, image,
guards."""

from __future__ import annotations

from typing import Any

from . import access, drill, fleet, forecast, guards, lock, preflight, prices, roles, tags
from .cloud import doing
from .problems import ClassroomError
from .run import Run


def doctor(run: Run, options: dict[str, Any]) -> dict[str, Any]:
    """Run every check, also after one failed; exit code 1 if any did."""
    if options.get("drill"):
        return _drill(run)
    if options.get("submit_transcript"):
        return {"summary": f"{drill.submit(run)} may be given away: read it before you do"}
    rows: list[list[str]] = []
    read_only = Run(run.spec, run.cloud, check=True)

    def look(what: str, check: Any) -> None:
        try:
            rows.append(["ok", what, str(check() or "")])
        except ClassroomError as error:
            rows.append(["NO", what, str(error)])

    look("credentials", lambda: run.cloud.identity()["Arn"])
    look("account", lambda: _account(run))
    look("regions and permissions", lambda: preflight.check(read_only))
    try:
        enabled = set(run.cloud.regions())
    except ClassroomError:  # said above already
        enabled = set()
    for region in [r for r in run.spec.regions if r in enabled]:
        look(
            f"{region}: image of SDK {run.spec.sdk}",
            lambda region=region: access.find_image(run, region)["Name"],
        )
        look(
            f"{region}: zones with {run.spec.instance_type}",
            lambda region=region: _zones(read_only, region),
        )
        look(
            f"{region}: vCPU quota",
            lambda region=region: _quota(run, region, bool(options.get("request_quota"))),
        )
        there: list[fleet.Machine] = []
        look(
            f"{region}: machines",
            lambda region=region, there=there: _machines(run, region, there),
        )
        if there:
            role = f"arn:aws:iam::{run.cloud.account}:role/{roles.guard_role(run)}"
            look(
                f"{region}: guards",
                lambda region=region, role=role: guards.verify(run, region, role),
            )
            look(f"{region}: machines armed", lambda region=region: _armed(run, region))
    rows += [["note", "permissions", warning] for warning in read_only.warnings]
    bad, checks = sum(r[0] == "NO" for r in rows), len(rows)
    for line in prices.about(run.spec, run.cloud.now()):
        rows.append(["note", "prices", line])
    return {
        "tables": [
            {"title": f"doctor: {run.spec.name}", "columns": ["", "what", "finding"], "rows": rows}
        ],
        "summary": (
            f"{bad} of {checks} checks failed" if bad else f"all {checks} checks passed"
        ),
        "exit_code": 1 if bad else 0,
    }


def _drill(run: Run) -> dict[str, Any]:
    found = drill.drill(run)
    path = drill.write(run, found)
    rows = [["ok" if s["good"] else "NO", s["step"], s["seen"]] for s in found.steps]
    return {
        "tables": [{"title": "drill", "columns": ["", "what", "seen"], "rows": rows}],
        "summary": f"{'every guard acted' if found.good else 'not every guard acted'}; {path}",
        "changed": True,
        "exit_code": 0 if found.good else 1,
    }


def _account(run: Run) -> str:
    lock.check_account(run.spec.folder, run.cloud.account, run.spec.account)
    return run.cloud.account


def _machines(run: Run, region: str, there: list[fleet.Machine]) -> str:
    there += fleet.read(run, region)
    return f"{len(there)} of the class"


def _zones(run: Run, region: str) -> str:
    net = access.network(run, region)
    if not net.subnets:
        raise ClassroomError(
            f"{region} does not offer {run.spec.instance_type}.", "Take it out of `regions`."
        )
    return ", ".join(zone for zone, _ in net.subnets)


def _quota(run: Run, region: str, request: bool) -> str:
    room = preflight.room(run, region, 0)
    needed = forecast.count(run.spec)
    if room.quota is None or room.machines >= needed:
        return (
            f"{room.quota:g} vCPUs, enough for {needed} machines"
            if room.quota is not None
            else "none needed"
        )
    if request:
        with doing("ask for more vCPUs", region):
            client = run.cloud.client("service-quotas", region)
            wanted = float(needed * run.spec.machine.vcpus)
            open_ones = client.list_requested_service_quota_change_history_by_quota(
                ServiceCode="ec2", QuotaCode=room.code
            )["RequestedQuotas"]
            if any(
                q["Status"] in ("PENDING", "CASE_OPENED") and q["DesiredValue"] >= wanted
                for q in open_ones
            ):
                return f"{room.quota:g} vCPUs; an increase is already asked for"
            run.do(
                f"{region}: ask AWS for {wanted:g} vCPUs ({room.code})",
                lambda: client.request_service_quota_increase(
                    ServiceCode="ec2", QuotaCode=room.code, DesiredValue=wanted
                ),
            )
        return f"{room.quota:g} vCPUs; {wanted:g} asked for, which takes hours to days"
    raise ClassroomError(
        f"{room.name} is {room.quota:g} vCPUs: room for {room.machines} of {needed} machines.",
        "Ask for more: " + preflight.quota_request(run, room, needed),
    )


def _armed(run: Run, region: str) -> str:
    machines = fleet.read(run, region)
    bad = [m.name for m in machines if m.tags.get(tags.GUARD) != tags.ARMED]
    if bad:
        raise ClassroomError(f"{', '.join(bad)} have no idle alarm.", "Run provision again.")
    return f"{len(machines)} of {len(machines)}"
