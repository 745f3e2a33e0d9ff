"""Budgets: what moto lacks of them, above all the actions."""

from __future__ import annotations

import json
import uuid
from typing import Any

from moto.budgets.exceptions import DuplicateRecordException, NotFoundException
from moto.budgets.models import BudgetsBackend
from moto.budgets.responses import BudgetsResponse
from moto.ce.responses import CostExplorerResponse

from .world import ACCOUNT, HOUR_USD, WORLD


def _actions(self: Any) -> list[dict[str, Any]]:
    return WORLD.budget_actions.setdefault(self._get_param("BudgetName"), [])


def create_budget_action(self: Any) -> str:
    self.backend.describe_budget(ACCOUNT, self._get_param("BudgetName"))
    kept = (
        "BudgetName",
        "NotificationType",
        "ActionType",
        "ActionThreshold",
        "Definition",
        "ExecutionRoleArn",
        "ApprovalModel",
        "Subscribers",
    )
    action = {k: self._get_param(k) for k in kept}
    action.update(ActionId=str(uuid.uuid4()), Status="STANDBY")
    if any(a["Definition"] == action["Definition"] for a in _actions(self)):
        raise DuplicateRecordException("action", "the same action")
    _actions(self).append(action)
    return json.dumps(
        {"AccountId": ACCOUNT, "BudgetName": action["BudgetName"], "ActionId": action["ActionId"]}
    )


def describe_budget_actions_for_budget(self: Any) -> str:
    self.backend.describe_budget(ACCOUNT, self._get_param("BudgetName"))
    return json.dumps({"Actions": _actions(self)})


def describe_budget_actions_for_account(self: Any) -> str:
    return json.dumps({"Actions": [a for some in WORLD.budget_actions.values() for a in some]})


def delete_budget_action(self: Any) -> str:
    actions, wanted = _actions(self), self._get_param("ActionId")
    found = [a for a in actions if a["ActionId"] == wanted]
    if not found:
        raise NotFoundException("Unable to find action")
    actions.remove(found[0])
    return json.dumps(
        {"AccountId": ACCOUNT, "BudgetName": self._get_param("BudgetName"), "Action": found[0]}
    )


def update_budget(self: Any) -> str:
    new = self._get_param("NewBudget")
    self.backend.describe_budget(ACCOUNT, new["BudgetName"])
    self.backend.budgets[ACCOUNT][new["BudgetName"]].budget.update(new)
    return json.dumps({})


def describe_subscribers_for_notification(self: Any) -> str:
    budget = self.backend.budgets[ACCOUNT][self._get_param("BudgetName")]
    found = [
        n.subscribers for n in budget.notifications if n.details == self._get_param("Notification")
    ]
    return json.dumps({"Subscribers": found[0] if found else []})


def execute_budget_action(self: Any) -> str:
    """Reset an executed action: it may act again."""
    name, wanted = self._get_param("BudgetName"), self._get_param("ActionId")
    (action,) = [a for a in _actions(self) if a["ActionId"] == wanted]
    assert self._get_param("ExecutionType") == "RESET_BUDGET_ACTION"
    action["Status"] = "STANDBY"
    WORLD.budget_fired.discard((name, wanted))
    return json.dumps({"AccountId": ACCOUNT, "BudgetName": name, "ActionId": wanted})


def _subscribers(self: Any) -> list[dict[str, str]]:
    budget = self.backend.budgets[ACCOUNT][self._get_param("BudgetName")]
    wanted = self._get_param("Notification")
    return next(n.subscribers for n in budget.notifications if n.details == wanted)


def create_subscriber(self: Any) -> str:
    _subscribers(self).append(self._get_param("Subscriber"))
    return json.dumps({})


def delete_subscriber(self: Any) -> str:
    found = _subscribers(self)
    if len(found) == 1:
        raise DuplicateRecordException("subscriber", "a notification needs one subscriber")
    found.remove(self._get_param("Subscriber"))
    return json.dumps({})


def describe_budgets(self: Any) -> str:
    """Add what was spent, as far as the budget can see it."""
    answer = json.loads(_describe_budgets(self))
    for budget in answer["Budgets"]:
        spent = {"Amount": f"{spend(budget):.2f}", "Unit": "USD"}
        budget["CalculatedSpend"] = {"ActualSpend": spent}
    return json.dumps(answer)


def spend(budget: dict[str, Any]) -> float:
    """Return what a budget has seen so far.

    Source: Billing guide, "Activating user-defined cost allocation tags": a tag that is not active
    does not appear in budgets, which then see $0.
    """
    filters = (budget.get("CostFilters") or {}).get("TagKeyValue", [])
    wanted = [v.removeprefix("user:").split("$", 1) for v in filters]
    if any(k not in WORLD.cost_tags for k, _ in wanted):
        return 0.0
    return sum(
        WORLD.hours(i) * HOUR_USD.get(m["type"], 2.0)
        for i, m in WORLD.machines.items()
        if all(m["tags"].get(k) == v for k, v in wanted)
    )


def list_cost_allocation_tags(self: Any) -> str:
    """Answer which tags are active; only whoever pays may ask."""
    state = {True: "Active", False: "Inactive"}
    shown = [
        {"TagKey": k, "Type": "UserDefined", "Status": state[k in WORLD.cost_tags]}
        for k in self._get_param("TagKeys")
    ]
    return json.dumps({"CostAllocationTags": shown})


_describe_budgets = BudgetsResponse.describe_budgets
_create_budget = BudgetsResponse.create_budget


def create_budget(self: Any) -> str:
    answer = _create_budget(self)
    budget = self.backend.budgets[ACCOUNT][self._get_param("Budget")["BudgetName"]]
    budget.resource_tags = self._get_param("ResourceTags", [])
    return answer


def budget_tags(self: Any) -> str:
    name = self._get_param("ResourceARN").split("budget/", 1)[1]
    if name not in self.backend.budgets[ACCOUNT]:
        raise NotFoundException("no such budget")
    return json.dumps(
        {"ResourceTags": getattr(self.backend.budgets[ACCOUNT][name], "resource_tags", [])}
    )


_describe_notifications = BudgetsResponse.describe_notifications_for_budget


def describe_notifications_for_budget(self: Any) -> str:
    self.backend.describe_budget(ACCOUNT, self._get_param("BudgetName"))  # raises if there is none
    return _describe_notifications(self)


_delete_budget = BudgetsBackend.delete_budget


def delete_budget(self: Any, account_id: str, budget_name: str) -> None:
    _delete_budget(self, account_id, budget_name)
    WORLD.budget_actions.pop(budget_name, None)


def install() -> None:
    """Patch moto's classes."""
    for f in (
        create_budget_action,
        describe_budget_actions_for_budget,
        describe_budget_actions_for_account,
        delete_budget_action,
        update_budget,
        create_budget,
        describe_subscribers_for_notification,
        describe_notifications_for_budget,
        describe_budgets,
        execute_budget_action,
        create_subscriber,
        delete_subscriber,
    ):
        setattr(BudgetsResponse, f.__name__, f)
    BudgetsResponse.list_tags_for_resource = budget_tags
    BudgetsBackend.delete_budget = delete_budget
    CostExplorerResponse.list_cost_allocation_tags = list_cost_allocation_tags
