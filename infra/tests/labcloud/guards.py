"""Judge guards by what they would do, not by their names: what would stop or end this machine,
laptop off?"""

from __future__ import annotations

import json
import re
import threading
from typing import Any

from moto.budgets.models import budgets_backends
from moto.cloudwatch.models import cloudwatch_backends
from moto.scheduler.models import scheduler_backends

from .world import ACCOUNT, WORLD, tags_of

_why = threading.local()


def reason() -> str:
    """Return who is changing a machine's state right now: a call, or one of the guards."""
    return getattr(_why, "value", "call")


class because:
    """Label state changes made inside the block."""

    def __init__(self, why: str) -> None:
        self.why = why

    def __enter__(self) -> None:
        self.before, _why.value = reason(), self.why

    def __exit__(self, *_: Any) -> None:
        _why.value = self.before


def target_of(schedule: Any) -> tuple[str, dict[str, Any]]:
    """Return ("ssm:startAutomationExecution", input) of a schedule with a universal target."""
    match = re.fullmatch(r"arn:aws:scheduler:::aws-sdk:(\w+):(\w+)", schedule.target["Arn"])
    return (f"{match[1]}:{match[2]}" if match else schedule.target["Arn"]), json.loads(
        schedule.target.get("Input") or "{}"
    )


def schedules(region: str) -> list[Any]:
    """Return the enabled schedules of a region."""
    backend = scheduler_backends[ACCOUNT][region]
    return [
        s
        for g in backend.schedule_groups.values()
        for s in g.schedules.values()
        if s.state != "DISABLED"
    ]


def _acts(instance: Any, role: str, inputs: dict[str, Any], service: str, runs_as: bool) -> bool:
    """Say whether an automation that a service starts would reach a machine: chosen and allowed."""
    from . import authority, automation

    region, document = instance.region_name, inputs.get("DocumentName", "")
    try:
        if not automation.chooses(inputs, instance.id, tags_of(instance)):
            return False
        authority.assume(role, service)
        acting = automation.may_start(region, role, inputs) if runs_as else role
        authority.act(acting, region, automation.needs(document, region, instance.id))
    except authority.Refused:
        return False
    return True


def covering(instance: Any) -> list[str]:
    """Return which kinds of guard would act on the machine by themselves."""
    found, tags = set(), tags_of(instance)
    for schedule in schedules(instance.region_name):
        operation, inputs = target_of(schedule)
        role = schedule.target["RoleArn"]
        if operation == "ssm:startAutomationExecution" and _acts(
            instance, role, inputs, "scheduler.amazonaws.com", True
        ):
            often = schedule.schedule_expression.startswith("rate(")
            if inputs["DocumentName"] == "AWS-StopEC2Instance":
                found.add("unarmed" if often else "nightly")
            elif inputs["DocumentName"] == "AWS-TerminateEC2Instance":
                found.add("teardown")
    for name, budget in budgets_backends[ACCOUNT]["aws"].budgets[ACCOUNT].items():
        wanted = [
            v.split("$", 1) for v in (budget.budget.get("CostFilters") or {}).get("TagKeyValue", [])
        ]
        if (
            wanted
            and all(tags.get(k.removeprefix("user:")) == v for k, v in wanted)
            and budget.notifications
        ):
            found.add("budget")
        for action in WORLD.budget_actions.get(name, []):
            ids = action["Definition"]["SsmActionDefinition"]["InstanceIds"]
            inputs = {
                "DocumentName": "AWS-StopEC2Instance",
                "Targets": [{"Key": "ParameterValues", "Values": ids}],
            }
            role = action["ExecutionRoleArn"]
            if _acts(instance, role, inputs, "budgets.amazonaws.com", True):
                found.add("budget-stop")
    for alarm in list(cloudwatch_backends[ACCOUNT][instance.region_name].alarms.values()):
        if (
            any(d.value == instance.id for d in alarm.dimensions)
            and alarm.actions_enabled
            and alarm.alarm_actions
        ):
            found.add("alarm")
    return sorted(found)
