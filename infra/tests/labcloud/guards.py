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


def selects(inputs: dict[str, Any], tags: dict[str, str], instance_id: str) -> bool:
    """Say whether an automation's targets choose a machine."""
    targets = inputs.get("Targets") or []
    if len(targets) != 1:  # AWS: "Only one resource group or tag can be specified at a time"
        return False
    key, values = targets[0]["Key"], targets[0]["Values"]
    if key == "ParameterValues":
        return instance_id in values
    return key.startswith("tag:") and len(values) == 1 and tags.get(key[4:]) == values[0]


def schedules(region: str) -> list[Any]:
    """Return the enabled schedules of a region."""
    backend = scheduler_backends[ACCOUNT][region]
    return [
        s
        for g in backend.schedule_groups.values()
        for s in g.schedules.values()
        if s.state != "DISABLED"
    ]


def covering(instance: Any) -> list[str]:
    """Return which kinds of guard would act on the machine by themselves."""
    found, tags = set(), tags_of(instance)
    for schedule in schedules(instance.region_name):
        operation, inputs = target_of(schedule)
        if operation == "ssm:startAutomationExecution" and selects(inputs, tags, instance.id):
            document, often = (
                inputs.get("DocumentName"),
                schedule.schedule_expression.startswith("rate("),
            )
            if document == "AWS-StopEC2Instance":
                found.add("unarmed" if often else "nightly")
            elif document == "AWS-TerminateEC2Instance":
                found.add("teardown")
        elif operation == "ec2:stopInstances" and instance.id in inputs.get("InstanceIds", []):
            found.add("nightly")
        elif operation == "ec2:terminateInstances" and instance.id in inputs.get("InstanceIds", []):
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
        if any(
            instance.id in a["Definition"]["SsmActionDefinition"]["InstanceIds"]
            for a in WORLD.budget_actions.get(name, [])
        ):
            found.add("budget-stop")
    for alarm in list(cloudwatch_backends[ACCOUNT][instance.region_name].alarms.values()):
        if (
            any(d.value == instance.id for d in alarm.dimensions)
            and alarm.actions_enabled
            and alarm.alarm_actions
        ):
            found.add("alarm")
    return sorted(found)
