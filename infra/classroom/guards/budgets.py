"""Budgets: mail at 50, 80 and 100 %, and a stop of every machine at 100 %. One more counts all that
the account pays for, with a tag or without, and only mails: the net under what no guard sees."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..aws.cloud import GLOBAL, aware, doing, run_all, when_assumable
from ..spec import tags
from ..spec.run import Run

ALERTS = (50, 80, 100)
TOLD = "budgets.json"
UNBUDGETED = (
    "AWS keeps no budget for this class (`budget: none` or `in_aws: false`): it mails nothing at"
    " 50, 80 and 100 % and stops nothing at 100 %. What guards it: the nightly stop, the stop of"
    " unarmed machines and the final teardown (schedules), an idle alarm for each machine, and the"
    " idle guard on it; `start` refuses who has used the cap, by our own count."
)
EXECUTED = ("EXECUTION_SUCCESS", "EXECUTION_FAILURE", "RESET_FAILURE")
ACTION_IDS = 100  # machine ids per budget action


def class_budget_name(run: Run) -> str:
    """Return the name of the class budget."""
    return tags.prefix(run.spec) + "class"


def account_budget_name(run: Run) -> str:
    """Return the name of the budget that counts all of the account."""
    return tags.prefix(run.spec) + "account"


def _budget(run: Run, name: str, usd: float, key: str, value: str) -> dict[str, Any]:
    today = run.cloud.now().date()  # what the account cost before the class is not its business
    first = today.replace(day=1) if key else today
    start = dt.datetime.combine(first, dt.time(), dt.timezone.utc)
    end = run.spec.teardown_at.astimezone(dt.timezone.utc) + dt.timedelta(days=45)
    return {
        "BudgetName": name,
        "BudgetType": "COST",
        "TimeUnit": "CUSTOM",  # one period; any other starts again at 0 in the middle of a term
        "BudgetLimit": {"Amount": f"{usd:.2f}", "Unit": "USD"},
        "CostFilters": {"TagKeyValue": [f"user:{key}${value}"]} if key else {},
        # Credits must not hide the cost: with them counted, spending stays at 0 until they are
        # gone.
        "CostTypes": {
            "IncludeCredit": False,
            "IncludeRefund": False,
            "IncludeDiscount": True,
            "IncludeOtherSubscription": True,
            "IncludeRecurring": True,
            "IncludeSubscription": True,
            "IncludeSupport": False,
            "IncludeTax": True,
            "IncludeUpfront": True,
            "UseAmortized": False,
            "UseBlended": False,
        },
        "TimePeriod": {"Start": start, "End": end},
    }


def _alerts(mails: list[str]) -> list[dict[str, Any]]:
    people = [{"SubscriptionType": "EMAIL", "Address": m} for m in mails]
    return [
        {
            "Notification": {
                "NotificationType": "ACTUAL",
                "ComparisonOperator": "GREATER_THAN",
                "Threshold": float(p),
                "ThresholdType": "PERCENTAGE",
            },
            "Subscribers": people,
        }
        for p in ALERTS
    ]


def _subscribe(run: Run, name: str, mails: list[str]) -> None:
    """Let an existing budget write to these addresses and no others."""
    client, account = run.cloud.client("budgets"), run.cloud.account
    for alert in _alerts(mails):
        place = {"AccountId": account, "BudgetName": name, "Notification": alert["Notification"]}
        have = {
            s["Address"]
            for s in client.describe_subscribers_for_notification(**place)["Subscribers"]
        }
        for address in sorted(set(mails) - have):  # first the new ones: one must always be left
            client.create_subscriber(
                **place, Subscriber={"SubscriptionType": "EMAIL", "Address": address}
            )
        for address in sorted(have - set(mails)):
            client.delete_subscriber(
                **place, Subscriber={"SubscriptionType": "EMAIL", "Address": address}
            )


def _recipients(run: Run) -> dict[str, list[str]]:
    """Return whom each budget writes to, as of the last run on this computer."""
    try:
        return json.loads((run.spec.out / TOLD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


@dataclass(frozen=True)
class Wanted:
    """Hold a budget as it should be: dollars, the tag (key, value) whose costs count (without a
    key, all costs), and whom it writes to."""

    usd: float
    key: str
    value: str
    mails: list[str]


def _wanted(run: Run, owners: dict[str, list[str]], have: Collection[str]) -> dict[str, Wanted]:
    """Return the budgets of the class and of the owners by name; a run that is limited makes that
    of the class only where it is missing."""
    spec, whole = run.spec, class_budget_name(run)
    out = {}
    if run.limit is None or whole not in have:
        out[whole] = Wanted(spec.budget.class_usd, tags.CLASS, spec.name, [spec.contact])
    usd = spec.budget.class_usd if spec.budget.account_usd is None else spec.budget.account_usd
    account = account_budget_name(run)
    if usd and (run.limit is None or account not in have):
        out[account] = Wanted(usd, "", "", [spec.contact])
    for owner, people in owners.items():
        shared = spec.budget.per_student_usd * spec.machine.cores
        out[owner_budget(run, owner)] = Wanted(
            shared if spec.mode == "shared" else spec.cap([owner]),
            tags.BUDGET,
            tags.payer(spec, owner),
            sorted({spec.contact, *people}),
        )
    return out


def _same(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Return whether AWS has the budget that we would write; its end may differ by under a day."""
    later = aware(old["TimePeriod"]["End"]) - new["TimePeriod"]["End"]
    return (
        float(old["BudgetLimit"]["Amount"]) == float(new["BudgetLimit"]["Amount"])
        and (old.get("CostFilters") or {}) == new["CostFilters"]
        and old.get("TimeUnit") == new["TimeUnit"]
        and abs(later) < dt.timedelta(days=1)
    )


def budgets(run: Run, owners: dict[str, list[str]]) -> None:
    """Make the class budget and one per owner (student or shared machine -> addresses); remove
    those of others."""
    if not run.spec.budget.in_aws:
        run.warn(UNBUDGETED)
        return
    with doing("read the budgets"):
        have = {
            b["BudgetName"]: b
            for b in run.cloud.pages(
                "budgets", GLOBAL, "describe_budgets", "Budgets", AccountId=run.cloud.account
            )
        }
    want, recipients = _wanted(run, owners, have), _recipients(run)

    def write(item: tuple[str, Wanted]) -> None:
        name, wanted = item
        if name in have:
            _update(run, name, wanted, have[name], recipients)
        else:
            run.do(f"create budget {name}", partial(_create, run, name, wanted, recipients))

    with doing("write the budgets"):
        run_all(write, want.items())
    if not run.check:
        run.spec.out.mkdir(parents=True, exist_ok=True)
        (run.spec.out / TOLD).write_text(json.dumps(recipients, indent=1, sort_keys=True) + "\n")
    if run.limit is None:
        ours = (owner_budget(run, ""), account_budget_name(run))
        _delete(run, sorted(n for n in set(have) - set(want) if n.startswith(ours)))


def _update(
    run: Run, name: str, wanted: Wanted, old: dict[str, Any], recipients: dict[str, list[str]]
) -> None:
    client, account, mails = run.cloud.client("budgets"), run.cloud.account, wanted.mails

    def tell() -> None:
        _subscribe(run, name, mails)
        recipients[name] = mails

    if recipients.get(name) != mails:
        run.do(f"budget {name}: mail to {', '.join(mails)}", tell)
    budget = _budget(run, name, wanted.usd, wanted.key, wanted.value)
    if _same(old, budget):
        return
    budget["TimePeriod"]["Start"] = old["TimePeriod"]["Start"]
    run.do(
        f"update budget {name}",
        partial(client.update_budget, AccountId=account, NewBudget=budget),
    )


def _create(run: Run, name: str, wanted: Wanted, recipients: dict[str, list[str]]) -> None:
    client = run.cloud.client("budgets")
    recipients[name] = wanted.mails
    owner = wanted.value.partition(".")[2] or tags.STAFF
    try:
        client.create_budget(
            AccountId=run.cloud.account,
            Budget=_budget(run, name, wanted.usd, wanted.key, wanted.value),
            NotificationsWithSubscribers=_alerts(wanted.mails),
            ResourceTags=tags.as_list(tags.common(run.spec, owner)),
        )
    except client.exceptions.DuplicateRecordException:
        pass


def alerts(run: Run) -> set[float]:
    """Return at how many percent the class's budget writes mails."""
    client = run.cloud.client("budgets")
    try:
        notifications = client.describe_notifications_for_budget(
            AccountId=run.cloud.account, BudgetName=class_budget_name(run)
        )
    except client.exceptions.NotFoundException:
        return set()
    return {n["Threshold"] for n in notifications["Notifications"]}


def owner_budget(run: Run, owner: str) -> str:
    """Return the name of the budget of a student or shared machine."""
    return f"{tags.prefix(run.spec)}owner.{owner}"


def delete_budgets(run: Run, owners: list[str]) -> None:
    """Delete the budgets of students or machines that are gone."""
    if not run.spec.budget.in_aws:
        return
    with doing("read the budgets"):
        described = run.cloud.pages(
            "budgets", GLOBAL, "describe_budgets", "Budgets", AccountId=run.cloud.account
        )
    have = {b["BudgetName"] for b in described}
    _delete(run, sorted(have & {owner_budget(run, o) for o in owners}))


def _delete(run: Run, names: list[str]) -> None:
    client, account = run.cloud.client("budgets"), run.cloud.account
    for name in names:
        with doing("delete a budget"):
            run.do(
                f"delete budget {name}",
                partial(client.delete_budget, AccountId=account, BudgetName=name),
            )


Stops = dict[str, dict[str, list[str]]]  # budget -> region -> ids of the machines that it stops


def stop_actions(run: Run, role: str, machines: Stops) -> None:
    """Let budgets stop machines at 100 %: the class's all of them, a student's that student's, if
    class.yml asks for it. At most 100 machines in an action; those of others are removed."""
    if not run.spec.budget.in_aws:
        return
    client, account, prefix = run.cloud.client("budgets"), run.cloud.account, tags.prefix(run.spec)
    with doing("read the budgets' stop actions"):
        actions = run.cloud.pages(
            "budgets", GLOBAL, "describe_budget_actions_for_account", "Actions", AccountId=account
        )
    wanted = {
        (name, region, tuple(ids[i : i + ACTION_IDS]))
        for name, by_region in machines.items()
        for region, all_ids in by_region.items()
        for ids in [sorted(all_ids)]
        for i in range(0, len(ids), ACTION_IDS)
    }
    kept: set[tuple[str, str, tuple[str, ...]]] = set()
    stale, used = [], []
    for action in (a for a in actions if a["BudgetName"].startswith(prefix)):
        ssm = action["Definition"].get("SsmActionDefinition", {})
        ids = tuple(sorted(ssm.get("InstanceIds", [])))
        key = (action["BudgetName"], ssm.get("Region", ""), ids)
        if key in wanted and key not in kept and action["ExecutionRoleArn"] == role:
            kept.add(key)
            used += [action] if action["Status"] in EXECUTED else []
        else:
            stale.append(action)

    def make(item: tuple[str, str, tuple[str, ...]]) -> None:
        name, region, ids = item
        run.do(
            f"{region}: budget {name} stops {len(ids)} machines at 100 %",
            partial(_create_action, run, client, name, role, region, ids),
        )

    def place(action: dict[str, Any]) -> dict[str, str]:
        ids = {"BudgetName": action["BudgetName"], "ActionId": action["ActionId"]}
        return {"AccountId": account, **ids}

    with doing("write the budgets' stop actions"):
        run_all(make, sorted(wanted - kept))  # new ones first: at no moment is a machine without
        for action in used:  # one that has acted once does not act again by itself
            run.do(
                "let the budget's stop act again",
                partial(
                    client.execute_budget_action,
                    **place(action),
                    ExecutionType="RESET_BUDGET_ACTION",
                ),
            )
        for action in stale:
            run.do(
                "delete a budget action that is out of date",
                partial(client.delete_budget_action, **place(action)),
            )


def _create_action(
    run: Run, client: Any, name: str, role: str, region: str, ids: tuple[str, ...]
) -> None:
    def create() -> None:
        client.create_budget_action(
            AccountId=run.cloud.account,
            BudgetName=name,
            NotificationType="ACTUAL",
            ActionType="RUN_SSM_DOCUMENTS",
            ActionThreshold={"ActionThresholdValue": 100.0, "ActionThresholdType": "PERCENTAGE"},
            ExecutionRoleArn=role,
            Definition={
                "SsmActionDefinition": {
                    "ActionSubType": "STOP_EC2_INSTANCES",
                    "Region": region,
                    "InstanceIds": list(ids),
                }
            },
            ApprovalModel="AUTOMATIC",
            Subscribers=[{"SubscriptionType": "EMAIL", "Address": run.spec.contact}],
            ResourceTags=tags.as_list(tags.common(run.spec)),
        )

    try:
        when_assumable(create)
    except client.exceptions.DuplicateRecordException:
        pass  # an earlier answer was lost
