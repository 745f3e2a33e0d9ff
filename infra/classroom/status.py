"""What runs, what it has cost, and whether what should stop it does: warnings first."""

from __future__ import annotations

import datetime as dt
from typing import Any

from . import budgets, cost, provision, spot, tags, watch
from .cloud import GLOBAL, doing, each
from .fleet import Machine
from .problems import ClassroomError
from .run import Run


def look(run: Run) -> dict[str, Any]:
    """Return the facts of a class: machines, guards, hours, budget, and what is wrong."""
    existing, _plan = provision.survey(run)
    chosen = [m for m in existing if run.wants(m.name, *m.students)]
    provision.remember(run, existing)
    hours = cost.hours(run)
    gone = spot.taken(run, chosen)
    for m in chosen:
        if m.name in gone:
            m.state = "taken by AWS"
    seen, blind = _guards(run, existing)
    open_ = unguarded(run, existing)
    budget = _budget(run)
    used = sum(h["usd"] for h in hours.values())
    warnings = [
        *(f"{name} has run {minutes:.0f} minutes unguarded." for name, minutes in open_.items()),
        *(_complaint(s) for s in seen if _bad(s)),
        *blind,
        *([budget["tags"]] if budget["visible"] is not True else []),
    ]
    if existing and not budget["stops"]:
        warnings.append("The class budget stops nothing: run provision again.")
    failed = [s for s in budget["stops"] if s.endswith("FAILURE")]
    if failed:
        warnings.append(
            f"The class budget was to stop the machines and could not ({', '.join(failed)}): stop"
            " them, and run `doctor`."
        )
    if used >= run.spec.budget.class_usd:
        warnings.append(
            f"${used:,.2f} of ${run.spec.budget.class_usd:,.2f} are used: start refuses now."
        )
    return {
        "existing": existing,
        "chosen": chosen,
        "hours": hours,
        "used_usd": used,
        "taken": gone,
        "guards": [{**s.__dict__, "at": s.at.isoformat() if s.at else None} for s in seen],
        "unguarded_minutes": open_,
        "budget": budget,
        "problems": warnings,
    }


def unguarded(run: Run, machines: list[Machine]) -> dict[str, float]:
    """Return machine -> minutes since its launch, for those that run and are not armed."""
    now, out = run.cloud.now(), {}
    for m in machines:
        if m.state in ("running", "pending") and m.tags.get(tags.GUARD) != tags.ARMED:
            try:
                since = dt.datetime.fromisoformat(m.launched)
            except ValueError:
                since = now
            out[m.name] = max(0.0, (now - since).total_seconds() / 60)
    return out


def _guards(run: Run, machines: list[Machine]) -> tuple[list[watch.Seen], list[str]]:
    """Return the last run of each guard of each region with machines, and where none was told."""
    seen: list[watch.Seen] = []
    blind: list[str] = []
    for region, found, error in each(
        lambda region: watch.last(run, region), sorted({m.region for m in machines})
    ):
        if isinstance(error, ClassroomError):
            blind.append(f"{region}: what the guards did is not known: {error}")
        elif error:
            raise error
        else:
            seen += found or []
    return seen, blind


def _bad(seen: watch.Seen) -> bool:
    """Say whether the reader must know: `unarmed` runs every 15 minutes, the others rarely."""
    return not seen.good and (seen.at is not None or seen.guard in ("unarmed", "scheduler"))


def _complaint(seen: watch.Seen) -> str:
    where = f"{seen.guard} in {seen.region}"
    return f"The guard {where} did not act: {seen.status}{': ' if seen.answer else ''}{seen.answer}"


def _budget(run: Run) -> dict[str, Any]:
    """Return what the class budget has seen, the state of its stop, and whether AWS can see the
    tags."""
    visible, words = watch.cost_tags(run)
    out: dict[str, Any] = {"visible": visible, "tags": words, "seen_usd": None, "stops": []}
    client, account = run.cloud.client("budgets"), run.cloud.account
    name = budgets.class_budget_name(run)
    with doing("read the budget"):
        for b in run.cloud.pages(
            "budgets", GLOBAL, "describe_budgets", "Budgets", AccountId=account
        ):
            if b["BudgetName"] == name:
                actual = b.get("CalculatedSpend", {}).get("ActualSpend", {})
                out["seen_usd"] = float(actual.get("Amount", 0))
        try:
            actions = client.describe_budget_actions_for_budget(
                AccountId=account, BudgetName=name
            )["Actions"]
            out["stops"] = [a["Status"] for a in actions]
        except client.exceptions.NotFoundException:
            pass
    return out


def tables(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the table of the guards."""
    rows = [
        [g["region"], g["guard"], (g["at"] or "-")[:16].replace("T", " "), g["status"], g["answer"]]
        for g in facts["guards"]
    ]
    return [
        {
            "title": "guards: what they did last, and what AWS answered (UTC)",
            "columns": ["region", "guard", "last run", "result", "answer"],
            "rows": rows,
        }
    ]
