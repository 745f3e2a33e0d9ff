"""The guards. Class-wide ones exist, verified, before any machine starts; those that must name a
machine arm it after.

Why by tag: a schedule that lists machine ids cannot exist before the machines do, and misses a
machine whose launch was never answered. EventBridge Scheduler starts AWS's own automation documents
(a universal target, no Lambda), which choose machines by the class tag when they run.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from functools import partial
from typing import Any

from ..aws import rate_limit
from ..aws.cloud import aware, doing, run_all, when_assumable
from ..aws.problems import ClassroomError
from ..spec import tags
from ..spec.run import Run
from .alarms import REARM, alarm_name, alarms, delete_alarms, read_alarms, rearm
from .budgets import (
    ALERTS,
    alerts,
    budgets,
    class_budget_name,
    delete_budgets,
    owner_budget,
    stop_actions,
)

UNARMED_MINUTES = 15
CAPS_MINUTES, WARN_MINUTES = 15, 30
WARN_DAYS = (7, 3, 1)
BEFORE_END = dt.timedelta(hours=1)  # the window of the schedule that ends machines begins
RELEASE = "release-addresses-"
PROOF = "proof"
EIPS_PER_SCHEDULE = 40  # an automation target takes up to 50 values


class GuardMissing(ClassroomError):
    """Refuse to start machines that nothing would stop."""

    def __init__(self, missing: list[str]) -> None:
        super().__init__(
            "No machine was started, because guards are missing: " + "; ".join(missing) + ".",
            "Run provision again; if it stays, `python -m classroom doctor` says why.",
            exit_code=1,
        )
        self.missing = missing


# ---- schedules ----


def _automation(
    role: str, document: str, targets: list[dict[str, Any]], parameter: str
) -> dict[str, Any]:
    body = {
        "DocumentName": document,
        "Parameters": {"AutomationAssumeRole": [role]},
        "TargetParameterName": parameter,
        "Targets": targets,
        "MaxConcurrency": "100%",
        "MaxErrors": "100%",
    }
    return {
        "Arn": "arn:aws:scheduler:::aws-sdk:ssm:startAutomationExecution",
        "RoleArn": role,
        "Input": json.dumps(body, sort_keys=True),
        "RetryPolicy": {"MaximumEventAgeInSeconds": 3600, "MaximumRetryAttempts": 20},
    }


def _calls(run: Run, role: str) -> dict[str, dict[str, Any]]:
    """Return the schedules that call the students' function: caps, and mails before the nightly
    stop and before the end."""
    spec = run.spec
    hour, minute = map(int, spec.stop_nightly.split(":"))
    early = (hour * 60 + minute - WARN_MINUTES) % 1440
    arn = f"arn:aws:lambda:{spec.regions[0]}:{run.cloud.account}:function:{tags.function(spec)}"

    def call(when: str, what: dict[str, str]) -> dict[str, Any]:
        target = {
            "Arn": arn,
            "RoleArn": role,
            "Input": json.dumps(what, sort_keys=True),
            "RetryPolicy": {"MaximumEventAgeInSeconds": 3600, "MaximumRetryAttempts": 20},
        }
        return {"ScheduleExpression": when, "Target": target}

    out = {"caps": call(f"rate({CAPS_MINUTES} minutes)", {"do": "caps"})}
    if spec.mail_from:
        out["mail-night"] = call(
            f"cron({early % 60} {early // 60} * * ? *)", {"do": "warn", "what": "night"}
        )
        for days in WARN_DAYS:
            at = dt.datetime.combine(spec.teardown - dt.timedelta(days=days), dt.time(9))
            if at.replace(tzinfo=spec.teardown_at.tzinfo) <= run.cloud.now():
                continue
            out[f"mail-end-{days}"] = call(f"at({at.isoformat()})", {"do": "warn", "what": "end"})
    return out


def desired(
    run: Run, role: str, addresses: list[str], region: str = ""
) -> dict[str, dict[str, Any]]:
    """Return every schedule of a region: name -> arguments of create_schedule."""
    spec = run.spec
    hour, minute = map(int, spec.stop_nightly.split(":"))
    of_class = [{"Key": f"tag:{tags.CLASS}", "Values": [spec.name]}]
    unarmed = [{"Key": f"tag:{tags.GUARD}", "Values": [tags.pending(spec)]}]
    end = spec.teardown_at
    # Every day of the week after the end, so that a machine started late is ended too.
    window = {
        "StartDate": (end - BEFORE_END).astimezone(dt.timezone.utc),
        "EndDate": (end + dt.timedelta(days=8)).astimezone(dt.timezone.utc),
    }
    stop, terminate = "AWS-StopEC2Instance", "AWS-TerminateEC2Instance"
    out: dict[str, dict[str, Any]] = {
        "nightly": {
            "ScheduleExpression": f"cron({minute} {hour} * * ? *)",
            "Target": _automation(role, stop, of_class, "InstanceId"),
        },
        "unarmed": {
            "ScheduleExpression": f"rate({UNARMED_MINUTES} minutes)",
            "Target": _automation(role, stop, unarmed, "InstanceId"),
        },
        "teardown": {
            "ScheduleExpression": "cron(0 6 * * ? *)",
            "Target": _automation(role, terminate, of_class, "InstanceId"),
            **window,
        },
    }
    chunks = [
        addresses[i : i + EIPS_PER_SCHEDULE] for i in range(0, len(addresses), EIPS_PER_SCHEDULE)
    ]
    for k, chunk in enumerate(chunks):
        values = [{"Key": "ParameterValues", "Values": chunk}]
        out[f"{RELEASE}{k}"] = {
            "ScheduleExpression": "cron(0 8 * * ? *)",
            **window,
            "Target": _automation(role, "AWS-ReleaseElasticIP", values, "AllocationId"),
        }
    if spec.my and region == spec.regions[0]:
        out.update(_calls(run, role))
    for arguments in out.values():
        arguments.update(
            ScheduleExpressionTimezone=spec.time_zone,
            FlexibleTimeWindow={"Mode": "OFF"},
            State="ENABLED",
            Description=f"trainium-labs {spec.name}",
            ActionAfterCompletion="NONE",
        )
    return out


def _same(have: dict[str, Any], want: dict[str, Any]) -> bool:
    for key, value in want.items():
        other: Any = have.get(key)
        if key in ("StartDate", "EndDate"):
            if other is None or abs((aware(other) - value).total_seconds()) > 1:
                return False
        elif key == "Target":
            if any(other.get(k) != value[k] for k in ("Arn", "RoleArn")) or json.loads(
                other.get("Input") or "{}"
            ) != json.loads(value["Input"]):
                return False
        elif other != value:
            return False
    return not any(have.get(k) for k in ("StartDate", "EndDate") if k not in want)


def read_schedules(run: Run, region: str) -> dict[str, dict[str, Any]]:
    """Return the schedules of the class in a region, in full."""
    client = run.cloud.client("scheduler", region)
    with doing("read the schedules", region):
        try:
            names = [
                s["Name"]
                for s in run.cloud.pages(
                    "scheduler",
                    region,
                    "list_schedules",
                    "Schedules",
                    GroupName=tags.group(run.spec),
                )
            ]
        except client.exceptions.ResourceNotFoundException:
            return {}
        return {
            s["Name"]: s
            for s in run_all(
                lambda n: client.get_schedule(GroupName=tags.group(run.spec), Name=n), names
            )
        }


def schedules(run: Run, region: str, role: str, addresses: list[str] | None = None) -> None:
    """Make the schedules of a region as they should be; remove surplus ones. Without `addresses`
    those that release Elastic IPs are left alone."""
    client, want = (
        run.cloud.client("scheduler", region),
        desired(run, role, addresses or [], region),
    )
    with doing("create the schedule group", region):
        try:
            client.get_schedule_group(Name=tags.group(run.spec))
        except client.exceptions.ResourceNotFoundException:

            def create_group() -> None:
                try:
                    client.create_schedule_group(
                        Name=tags.group(run.spec), Tags=tags.as_list(tags.common(run.spec))
                    )
                except client.exceptions.ConflictException:
                    pass

            run.do(f"{region}: create schedule group", create_group)
    have = read_schedules(run, region)
    for name, arguments in want.items():
        if name in have and _same(have[name], arguments):
            continue
        token = hashlib.sha256(
            json.dumps([name, arguments], sort_keys=True, default=str).encode()
        ).hexdigest()[:60]

        def write(
            name: str = name, arguments: dict[str, Any] = arguments, token: str = token
        ) -> None:
            if name not in have:
                try:
                    when_assumable(
                        lambda: client.create_schedule(
                            GroupName=tags.group(run.spec),
                            Name=name,
                            ClientToken=token,
                            **arguments,
                        )
                    )
                    return
                except client.exceptions.ConflictException:
                    pass  # an earlier answer was lost
            client.update_schedule(GroupName=tags.group(run.spec), Name=name, **arguments)

        with doing(f"write the schedule {name}", region):
            run.do(f"{region}: {'update' if name in have else 'create'} schedule {name}", write)
    kept = (REARM,) if addresses is not None else (REARM, RELEASE)
    for name in sorted(n for n in set(have) - set(want) if not n.startswith(kept)):
        with doing(f"delete the schedule {name}", region):
            run.do(
                f"{region}: delete schedule {name}",
                partial(client.delete_schedule, GroupName=tags.group(run.spec), Name=name),
            )


# ---- proof ----


def prove(run: Run, region: str, role: str) -> None:
    """Let Scheduler do once more what it does for unarmed machines: a new rate schedule runs at
    once, whatever the clock of this computer says. `end_proof` deletes it."""
    client = run.cloud.client("scheduler", region)
    arguments = desired(run, role, [], region)["unarmed"]
    end_proof(run, region)
    with doing("try a guard once more", region):
        run.do(
            f"{region}: try the guard for unarmed machines once more",
            lambda: when_assumable(
                lambda: client.create_schedule(
                    GroupName=tags.group(run.spec), Name=PROOF, **arguments
                )
            ),
        )


def end_proof(run: Run, region: str) -> None:
    """Delete the schedule of `prove`, if there is one."""
    client = run.cloud.client("scheduler", region)
    with doing("end the trial of a guard", region):
        try:
            client.delete_schedule(GroupName=tags.group(run.spec), Name=PROOF)
        except client.exceptions.ResourceNotFoundException:
            pass


def verify(run: Run, region: str, role: str) -> None:
    """Read the class-wide guards back from AWS; raise GuardMissing unless each is there and
    enabled."""
    missing, have = [], read_schedules(run, region)
    for name, arguments in desired(run, role, [], region).items():
        if name not in have:
            missing.append(f"schedule {name} in {region}")
        elif not _same(have[name], arguments):
            missing.append(f"schedule {name} in {region} differs from what it should be")
    iam = run.cloud.client("iam")

    def written() -> bool:
        try:
            iam.get_role_policy(RoleName=role.rsplit("/", 1)[1], PolicyName="guard")
        except iam.exceptions.NoSuchEntityException:
            return False
        return True

    with doing("verify the guards", region):
        if not rate_limit.wait_until_found(written, tries=4):
            missing.append("the guards' role")
        if run.spec.budget.in_aws and not set(map(float, ALERTS)) <= alerts(run):
            missing.append("the class budget with its alerts")
    if missing:
        raise GuardMissing(missing)


__all__ = [
    "GuardMissing",
    "alarm_name",
    "alarms",
    "budgets",
    "delete_alarms",
    "class_budget_name",
    "delete_budgets",
    "desired",
    "owner_budget",
    "read_alarms",
    "read_schedules",
    "rearm",
    "schedules",
    "stop_actions",
    "verify",
]
