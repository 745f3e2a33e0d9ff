"""Budgets: what moto lacks of them, above all the actions."""

from __future__ import annotations

import json
import uuid
from typing import Any

from moto.budgets.exceptions import DuplicateRecordException, NotFoundException
from moto.budgets.models import BudgetsBackend
from moto.budgets.responses import BudgetsResponse

from .world import ACCOUNT, WORLD


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


_delete_budget = BudgetsBackend.delete_budget


def delete_budget(self: Any, account_id: str, budget_name: str) -> None:
    _delete_budget(self, account_id, budget_name)
    WORLD.budget_actions.pop(budget_name, None)



def install() -> None:
    """Patch moto's classes."""
    for f in (
        create_budget_action,
        describe_budget_actions_for_budget,
        delete_budget_action,
        update_budget,
        create_budget,
        describe_subscribers_for_notification,
    ):
        setattr(BudgetsResponse, f.__name__, f)
    BudgetsResponse.list_tags_for_resource = budget_tags
    BudgetsBackend.delete_budget = delete_budget
