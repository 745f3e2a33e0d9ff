"""Idle alarms: one for each machine, stopped by CloudWatch itself, re-armed at every start."""

from __future__ import annotations

import datetime as dt
import json
import math
from typing import Any

from ..aws.cloud import doing, each, run_all
from ..spec import tags
from ..spec.class_file import Idle
from ..spec.run import Run

REARM = "rearm-"
IDLE = ".idle"  # ends the name of a machine's alarm
AFTER_THE_HOST = 10  # minutes


def alarm_name(run: Run, machine: str) -> str:
    """Return the name of a machine's idle alarm."""
    return f"{tags.prefix(run.spec)}{machine}{IDLE}"


def alarm_minutes(idle: Idle) -> int:
    """Return after how many idle minutes the alarm acts: after the guard on the machine, which also
    sees NeuronCores and typing, warns, and waits. The alarm sees the CPU only."""
    return idle.minutes + idle.grace_minutes + AFTER_THE_HOST


def _alarm(run: Run, region: str, machine: str, instance_id: str) -> dict[str, Any]:
    idle = run.spec.idle
    return {
        "AlarmName": alarm_name(run, machine),
        "AlarmDescription": "Idle machine: stop it",
        "ActionsEnabled": True,
        "Namespace": "AWS/EC2",
        "MetricName": "CPUUtilization",
        "Dimensions": [{"Name": "InstanceId", "Value": instance_id}],
        "Statistic": "Maximum",
        "Period": 300,
        "EvaluationPeriods": math.ceil(alarm_minutes(idle) / 5),
        "Threshold": float(idle.cpu_percent),
        "ComparisonOperator": "LessThanOrEqualToThreshold",
        # A stopped machine sends no data; counted as busy, the alarm is OK again by the time it is
        # restarted.
        "TreatMissingData": "notBreaching",
        "AlarmActions": [f"arn:aws:automate:{region}:ec2:stop"],
    }


def read_alarms(run: Run, region: str) -> dict[str, dict[str, Any]]:
    """Return the idle alarms of the class in a region."""
    with doing("read the alarms", region):
        described = run.cloud.pages(
            "cloudwatch",
            region,
            "describe_alarms",
            "MetricAlarms",
            AlarmNamePrefix=tags.prefix(run.spec),
        )
    return {a["AlarmName"]: a for a in described}


def alarms(run: Run, region: str, machines: dict[str, str]) -> dict[str, Exception]:
    """Make an idle alarm for each machine (name -> instance id); return the machines for which it
    failed."""
    client, have = run.cloud.client("cloudwatch", region), read_alarms(run, region)

    def write(item: tuple[str, str]) -> None:
        machine, instance_id = item
        want, old = (
            _alarm(run, region, machine, instance_id),
            have.get(alarm_name(run, machine), {}),
        )
        if all(old.get(k) == v for k, v in want.items()):
            return
        label = tags.as_list({**tags.common(run.spec, machine), tags.MACHINE: machine})
        extra = {} if old else {"Tags": label}  # tags count on creation only
        run.do(
            f"{region}: {'update' if old else 'create'} idle alarm of {machine}",
            lambda: client.put_metric_alarm(**want, **extra),
        )

    return {item[0]: error for item, _, error in each(write, machines.items()) if error}


def rearm(run: Run, region: str, role: str, machines: list[str]) -> None:
    """Reset an alarm that has fired, so that it can fire again; called before the start.

    CloudWatch acts on a change of state, so an alarm that stays in ALARM never stops anything.
    Setting it to OK right
    away would be worse: it would be judged by the samples from before the stop and end the
    student's new session at
    once. So AWS itself (a schedule that deletes itself, laptop off) sets it to OK when new samples
    have come in.
    """
    client, have = run.cloud.client("scheduler", region), read_alarms(run, region)
    moment = run.cloud.now() + dt.timedelta(minutes=alarm_minutes(run.spec.idle))

    def write(machine: str) -> None:
        name = alarm_name(run, machine)
        if have.get(name, {}).get("StateValue") != "ALARM":
            return
        arguments: dict[str, Any] = {
            "GroupName": tags.group(run.spec),
            "Name": f"{REARM}{machine}",
            "ScheduleExpression": f"at({moment.astimezone(dt.timezone.utc):%Y-%m-%dT%H:%M:%S})",
            "ScheduleExpressionTimezone": "UTC",
            "FlexibleTimeWindow": {"Mode": "OFF"},
            "ActionAfterCompletion": "DELETE",
            "State": "ENABLED",
            "Target": {
                "Arn": "arn:aws:scheduler:::aws-sdk:cloudwatch:setAlarmState",
                "RoleArn": role,
                "Input": json.dumps(
                    {"AlarmName": name, "StateValue": "OK", "StateReason": "re-armed after a start"}
                ),
            },
        }

        def put() -> None:
            try:
                client.create_schedule(**arguments)
            except client.exceptions.ConflictException:
                client.update_schedule(**arguments)

        run.do(f"{region}: re-arm idle alarm of {machine} at {moment:%H:%M} UTC", put)

    with doing("re-arm the idle alarms", region):
        run_all(write, machines)


def delete_alarms(run: Run, region: str, machines: list[str]) -> None:
    """Delete the alarms of machines that are gone."""
    names = sorted(set(read_alarms(run, region)) & {alarm_name(run, m) for m in machines})
    if names:
        with doing("delete idle alarms", region):
            run.do(
                f"{region}: delete {len(names)} idle alarms",
                lambda: [
                    run.cloud.client("cloudwatch", region).delete_alarms(
                        AlarmNames=names[i : i + 100]
                    )
                    for i in range(0, len(names), 100)
                ],
            )
