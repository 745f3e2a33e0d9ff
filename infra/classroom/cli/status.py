"""What runs, what it has cost, and whether what should stop it does: warnings first."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import botocore.exceptions as be

from ..aws.cloud import GLOBAL, doing, run_all, words_of
from ..aws.problems import ClassroomError
from ..fleet.inventory import Machine
from ..guards import audit, budgets, drift, failures
from ..machines import spot
from ..money import cost
from ..spec import ledger, tags
from ..spec.run import Run
from ..students import mail
from ..teardown import sweep
from . import provision

T = TypeVar("T")
NONE: list[str] = []
# AWS offers a tag for activation up to a day after its first use, and takes a day to activate it.
# (documented: Billing guide, "Activating user-defined cost allocation tags")
TAGS_COME = dt.timedelta(days=2)


def part(blind: list[str], what: str, read: Callable[[], T], default: T) -> T:
    """Return what `read` reads, or `default` and one more line in `blind`: a part that AWS does not
    show hides no other."""
    try:
        return read()
    except (ClassroomError, be.ClientError, be.BotoCoreError) as error:
        words = str(error) if isinstance(error, ClassroomError) else words_of(error)
        blind.append(f"{what} not known: {words}")
        return default


def gather(run: Run) -> dict[str, Any]:
    """Return the facts of a class: machines, guards, hours, budget, and what is wrong. What cannot
    be read is in `blind`."""
    blind: list[str] = []
    existing, plan = provision.survey(run, blind)
    chosen = [m for m in existing if run.wants(m.name, *m.students)]
    recorded = ledger.read(run, blind)
    ledger.remember(run, existing, recorded)
    blind += drift.disabled(run, recorded).values()
    wrong: list[str] = []
    subject = "Whether a machine has lost its tag is"
    wrong += part(blind, subject, lambda: _untagged(run, recorded, existing), NONE)
    subject = "Whether the account has what class.yml says is"
    wrong += part(blind, subject, lambda: _differences(run, recorded, existing), NONE)
    for region in sorted({m.region for m in existing}):
        subject = f"{region}: who gets mails about guards that fail is"
        wrong += part(blind, subject, partial(failures.problems, run, region), NONE)
    unread: list[str] = []
    hours = cost.hours(run, unread)
    blind += unread
    subject = "Whether AWS has taken spot machines back is"
    none_taken: dict[str, str] = {}
    gone = part(blind, subject, lambda: spot.taken(run, chosen), none_taken)
    for m in chosen:
        if m.name in gone:
            m.state = "taken by AWS"
    seen = _guards(run, existing, blind)
    open_ = unguarded(run, existing)
    budget = _budget(run, blind)
    used = sum(h["usd"] for h in hours.values())
    wrong += [
        *(
            f"{m.name} has a second machine, {m.id} in {m.region}: provision ends it."
            for m in plan.duplicates
        ),
        *(_complaint(s) for s in seen if _bad(s)),
        *_money(run, existing, budget, used),
    ]
    first = min((e["first_seen"] for e in recorded.machines.values()), default="")
    unseen = [budget["tags"]] if budget["visible"] is not True else []
    if budget["visible"] is False and first and run.cloud.now() - _time(first) > TAGS_COME:
        wrong += unseen
    warnings = [
        *blind,
        *wrong,
        *(f"{name} has run {minutes:.0f} minutes unguarded." for name, minutes in open_.items()),
        *(line for line in unseen if line not in wrong),
        *mail.refused(run, existing),
    ]
    return {
        "existing": existing,
        "chosen": chosen,
        "hours": hours,
        "hours_known": not unread,
        "used_usd": used,
        "taken": gone,
        "guards": [{**s.__dict__, "at": s.at.isoformat() if s.at else None} for s in seen],
        "unguarded_minutes": open_,
        "budget": budget,
        "problems": warnings,
        "blind": blind,
        "exit_code": 1 if blind or wrong else 0,
    }


def _time(text: str) -> dt.datetime:
    at = dt.datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=dt.timezone.utc)


def _untagged(run: Run, known: ledger.Ledger, existing: list[Machine]) -> list[str]:
    """Return a sentence for each machine of the ledger that lives without the class's tag."""
    listed, name = {m.id for m in existing}, run.spec.name
    places = {r: [i for i in known.ids(r) if i not in listed] for r in run.cloud.regions()}
    with doing("look for machines without a tag"):
        results = run_all(
            lambda r: sweep.untagged(run.cloud, name, r, places[r]),
            [r for r in places if places[r]],
        )
    return [f"{sweep.without_a_tag(f, name)}." for here in results for f in here]


def _differences(run: Run, known: ledger.Ledger, existing: list[Machine]) -> list[str]:
    """Return what the account has and class.yml says differently."""
    who = known.settings
    by = f" (set by {who['by']}, {who['at']} UTC)" if who.get("by") else ""
    return [
        f"{d}{by}: provision applies class.yml."
        for d in drift.differences(run, known, {m.region for m in existing})
    ]


def _money(run: Run, existing: list[Machine], budget: dict[str, Any], used: float) -> Iterator[str]:
    """Yield what is wrong with the class's budget."""
    stops = budget["stops"]
    if existing and stops is not None and not stops:
        yield "The class budget stops nothing: run provision again."
    failed = [s for s in stops or [] if s.endswith("FAILURE")]
    if failed:
        yield (
            f"The class budget was to stop the machines and could not ({', '.join(failed)}): stop"
            " them, and run `doctor`."
        )
    spent, most = budget["account_usd"] or (0.0, 1.0)
    if spent >= most:
        yield (
            f"All of the account has cost ${spent:,.2f} this term, and ${most:,.2f} were to be"
            f" enough (the class's machines: ${used:,.2f}). Look for machines without a class: EC2"
            " console, every region; docs/other-tools.md has a policy that names them."
        )
    if used >= run.spec.budget.class_usd:
        yield f"${used:,.2f} of ${run.spec.budget.class_usd:,.2f} are used: start refuses now."


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


def _guards(run: Run, machines: list[Machine], blind: list[str]) -> list[audit.LastRun]:
    """Return the last run of each guard of each region with machines."""
    seen: list[audit.LastRun] = []
    none: list[audit.LastRun] = []
    for region in sorted({m.region for m in machines}):
        subject = f"{region}: what the schedules did is"
        seen += part(blind, subject, partial(audit.last, run, region), none)
        subject = f"{region}: what the idle alarms did is"
        seen += part(blind, subject, partial(audit.stops, run, region), none)
    return seen


def _bad(seen: audit.LastRun) -> bool:
    """Return whether the reader must know: `unarmed` runs every 15 minutes, the others rarely."""
    return not seen.good and (seen.at is not None or seen.guard in ("unarmed", "scheduler"))


def _complaint(seen: audit.LastRun) -> str:
    where = f"{seen.guard} in {seen.region}"
    return f"The guard {where} did not act: {seen.status}{': ' if seen.answer else ''}{seen.answer}"


def _budget(run: Run, blind: list[str]) -> dict[str, Any]:
    """Return what the class budget has seen, the state of its stop (None: not known), and whether
    AWS can see the tags."""
    if not run.spec.budget.in_aws:
        none = {"seen_usd": None, "account_usd": None, "stops": None}
        return {"visible": True, "tags": "", **none}
    visible, words = audit.cost_tags(run)
    nothing: dict[str, tuple[float, float]] = {}
    read = part(blind, "What the budgets have seen is", lambda: _seen(run), nothing)
    seen, _ = read.get(budgets.class_budget_name(run), (None, 0))
    account = read.get(budgets.account_budget_name(run))
    stops = part(blind, "Whether the class budget stops machines is", lambda: _stops(run), None)
    return {
        "visible": visible,
        "tags": words,
        "seen_usd": seen,
        "account_usd": account,
        "stops": stops,
    }


def _seen(run: Run) -> dict[str, tuple[float, float]]:
    """Return budget -> (dollars that it has seen, dollars that it allows)."""
    account = run.cloud.account
    with doing("read the budget"):
        in_account = run.cloud.pages(
            "budgets", GLOBAL, "describe_budgets", "Budgets", AccountId=account
        )
    return {
        b["BudgetName"]: (
            float(b.get("CalculatedSpend", {}).get("ActualSpend", {}).get("Amount", 0)),
            float(b["BudgetLimit"]["Amount"]),
        )
        for b in in_account
    }


def _stops(run: Run) -> list[str] | None:
    client, name = run.cloud.client("budgets"), budgets.class_budget_name(run)
    with doing("read the budget's stop"):
        try:
            actions = client.describe_budget_actions_for_budget(
                AccountId=run.cloud.account, BudgetName=name
            )["Actions"]
        except client.exceptions.NotFoundException:
            return []
    return [a["Status"] for a in actions]


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
