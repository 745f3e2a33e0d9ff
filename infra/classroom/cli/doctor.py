"""Say whether a class can come up, and what it will cost: credentials, regions, permissions,
quotas, image, guards, forecast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..aws.problems import ClassroomError
from ..fleet import inventory
from ..guards import budgets, class_guards, roles
from ..machines import access
from ..money import prices
from ..spec import lock, tags
from ..spec.run import Run
from ..students import mail
from . import drill, forecast, preflight


def doctor(run: Run, options: dict[str, Any]) -> dict[str, Any]:
    """Run every check, also after one failed; exit code 1 if any did."""
    if options.get("drill"):
        return _drill(run)
    if options.get("submit_transcript"):
        return {"summary": f"{drill.submit(run)} may be given away: read it before you do"}
    rows: list[list[str]] = []
    read_only = Run(run.spec, run.cloud, check=True)

    def add_check(what: str, check: Any) -> None:
        try:
            rows.append(["ok", what, str(check() or "")])
        except ClassroomError as error:
            rows.append(["NO", what, str(error)])

    add_check("credentials", lambda: run.cloud.identity()["Arn"])
    add_check("account", lambda: _account(run))
    add_check("regions and permissions", lambda: preflight.check(read_only))
    try:
        enabled = set(run.cloud.regions())
    except ClassroomError:  # said above already
        enabled = set()
    for region in [r for r in run.spec.regions if r in enabled]:
        add_check(
            f"{region}: image of SDK {run.spec.sdk}",
            lambda region=region: access.find_image(run, region)["Name"],
        )
        add_check(
            f"{region}: zones with {run.spec.instance_type}",
            lambda region=region: _zones(read_only, region),
        )
        _quotas(run, region, bool(options.get("request_quota")), add_check)
        there: list[inventory.Machine] = []
        add_check(
            f"{region}: machines",
            lambda region=region, there=there: _machines(run, region, there),
        )
        if there:
            role = f"arn:aws:iam::{run.cloud.account}:role/{roles.guard_role(run)}"
            add_check(
                f"{region}: guards",
                lambda region=region, role=role: class_guards.verify(run, region, role),
            )
            add_check(f"{region}: machines armed", lambda region=region: _armed(run, region))
    if not run.spec.budget.in_aws:
        rows.append(["note", "budgets", budgets.UNBUDGETED])
    if run.spec.mail_from:
        add_check("mails to students", lambda: mail.check(run))
    rows += [["note", "permissions", warning] for warning in read_only.warnings]
    bad, checks = sum(r[0] == "NO" for r in rows), len(rows)
    live = forecast.live_price(run)
    ahead = forecast.show(run, live)
    for line in [*forecast.behind_caps(run, live), *prices.about(run.spec, run.cloud.now())]:
        rows.append(["note", "prices", line])
    return {
        "tables": [
            {"title": f"doctor: {run.spec.name}", "columns": ["", "what", "finding"], "rows": rows},
            *ahead["tables"],
        ],
        "forecast": ahead["forecast"],
        "summary": (f"{bad} of {checks} checks failed" if bad else f"all {checks} checks passed"),
        "exit_code": 1 if bad else 0,
    }


def _quotas(run: Run, region: str, request: bool, add_check: Callable[[str, Any], None]) -> None:
    """Look at each quota that the whole class needs of a region."""
    needs: list[preflight.Need] = []
    add_check(f"{region}: quotas read", lambda: needs.extend(preflight.needs(run, region)))
    for need in needs:
        add_check(
            f"{region}: quota of {need.unit}",
            lambda need=need: preflight.ask(run, need, request),
        )


def _drill(run: Run) -> dict[str, Any]:
    facts = drill.drill(run)
    path = drill.write(run, facts)
    rows = [["ok" if s["good"] else "NO", s["step"], s["seen"]] for s in facts.steps]
    return {
        "tables": [{"title": "drill", "columns": ["", "what", "seen"], "rows": rows}],
        "summary": f"{'every guard acted' if facts.good else 'not every guard acted'}; {path}",
        "changed": True,
        "exit_code": 0 if facts.good else 1,
    }


def _account(run: Run) -> str:
    lock.check_account(run.spec.folder, run.cloud.account, run.spec.account)
    return run.cloud.account


def _machines(run: Run, region: str, there: list[inventory.Machine]) -> str:
    there += inventory.read(run, region)
    return f"{len(there)} of the class"


def _zones(run: Run, region: str) -> str:
    net = access.network(run, region)
    if not net.subnets:
        raise ClassroomError(
            f"{region} does not offer {run.spec.instance_type}.", "Take it out of `regions`."
        )
    return ", ".join(zone for zone, _ in net.subnets)


def _armed(run: Run, region: str) -> str:
    machines = inventory.read(run, region)
    bad = [m.name for m in machines if m.tags.get(tags.GUARD) != tags.ARMED]
    if bad:
        raise ClassroomError(f"{', '.join(bad)} have no idle alarm.", "Run provision again.")
    return f"{len(machines)} of {len(machines)}"
