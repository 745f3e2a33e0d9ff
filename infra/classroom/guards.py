"""The guards. Class-wide ones exist, verified, before any machine starts; those that must name a machine arm it after.

Why by tag: a schedule that lists machine ids cannot exist before the machines do, and misses the machine whose
launch was never answered. EventBridge Scheduler starts AWS's own automation documents (a universal target, no Lambda),
which choose machines by the class tag at the moment they run.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from typing import Any

from . import tags
from .cloud import GLOBAL, code_of, doing, each, every
from .problems import ClassroomError
from .run import Run

ALERTS = (50, 80, 100)
UNARMED_MINUTES = 15
REARM, REARM_MINUTES = "rearm-", 15
EIPS_PER_SCHEDULE = 40  # an automation target takes up to 50 values
ACTION_IDS = 100  # machine ids per budget action


class GuardMissing(ClassroomError):
    """Refuse to start machines that nothing would stop."""

    def __init__(self, missing: list[str]) -> None:
        super().__init__("No machine was started, because guards are missing: " + "; ".join(missing) + ".",
                         "Run provision again; if it stays, `python -m classroom doctor` says why.", exit_code=1)
        self.missing = missing


# ---- schedules ------------------------------------------------------------------------------------------------------

def group(run: Run) -> str:
    """Return the name of the schedule group."""
    return tags.prefix(run.spec).rstrip(".")


def _automation(role: str, document: str, targets: list[dict[str, Any]], parameter: str) -> dict[str, Any]:
    body = {"DocumentName": document, "Parameters": {"AutomationAssumeRole": [role]}, "TargetParameterName": parameter,
            "Targets": targets, "MaxConcurrency": "100%", "MaxErrors": "100%"}
    return {"Arn": "arn:aws:scheduler:::aws-sdk:ssm:startAutomationExecution", "RoleArn": role,
            "Input": json.dumps(body, sort_keys=True),
            "RetryPolicy": {"MaximumEventAgeInSeconds": 3600, "MaximumRetryAttempts": 20}}


def desired(run: Run, role: str, addresses: list[str]) -> dict[str, dict[str, Any]]:
    """Return every schedule of a region: name -> arguments of create_schedule."""
    spec = run.spec
    hour, minute = map(int, spec.stop_nightly.split(":"))
    mine = [{"Key": f"tag:{tags.CLASS}", "Values": [spec.name]}]
    # Both tags must match; AWS takes the machines that carry all of them.
    unarmed = [*mine, {"Key": f"tag:{tags.GUARD}", "Values": ["pending"]}]
    end = spec.teardown_at
    # Every day of the week after the end, so that a machine started late is ended too.
    window = {"StartDate": (end - dt.timedelta(hours=1)).astimezone(dt.timezone.utc),
              "EndDate": (end + dt.timedelta(days=8)).astimezone(dt.timezone.utc)}
    stop, terminate = "AWS-StopEC2Instance", "AWS-TerminateEC2Instance"
    out: dict[str, dict[str, Any]] = {
        "nightly": {"ScheduleExpression": f"cron({minute} {hour} * * ? *)", "Target": _automation(role, stop, mine, "InstanceId")},
        "unarmed": {"ScheduleExpression": f"rate({UNARMED_MINUTES} minutes)", "Target": _automation(role, stop, unarmed, "InstanceId")},
        "teardown": {"ScheduleExpression": "cron(0 6 * * ? *)", "Target": _automation(role, terminate, mine, "InstanceId"), **window},
    }
    chunks = [addresses[i:i + EIPS_PER_SCHEDULE] for i in range(0, len(addresses), EIPS_PER_SCHEDULE)]
    for k, chunk in enumerate(chunks):
        values = [{"Key": "ParameterValues", "Values": chunk}]
        out[f"release-addresses-{k}"] = {"ScheduleExpression": "cron(0 8 * * ? *)", **window,
                                         "Target": _automation(role, "AWS-ReleaseElasticIP", values, "AllocationId")}
    for arguments in out.values():
        arguments.update(ScheduleExpressionTimezone=spec.time_zone, FlexibleTimeWindow={"Mode": "OFF"}, State="ENABLED",
                         Description=f"trainium-labs {spec.name}", ActionAfterCompletion="NONE")
    return out


def _same(have: dict[str, Any], want: dict[str, Any]) -> bool:
    for key, value in want.items():
        other = have.get(key)
        if key in ("StartDate", "EndDate"):
            if other is None or abs((_aware(other) - value).total_seconds()) > 1:
                return False
        elif key == "Target":
            if any(other.get(k) != value[k] for k in ("Arn", "RoleArn")) or json.loads(other.get("Input") or "{}") != json.loads(value["Input"]):
                return False
        elif other != value:
            return False
    return not any(have.get(k) for k in ("StartDate", "EndDate") if k not in want)


def _aware(value: Any) -> dt.datetime:
    moment = value if isinstance(value, dt.datetime) else dt.datetime.fromtimestamp(float(value), dt.timezone.utc)
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.timezone.utc)


def read_schedules(run: Run, region: str) -> dict[str, dict[str, Any]]:
    """Return the schedules of the class in a region, in full."""
    client = run.cloud.client("scheduler", region)
    with doing("read the schedules", region):
        try:
            names = [s["Name"] for s in run.cloud.pages("scheduler", region, "list_schedules", "Schedules", GroupName=group(run))]
        except client.exceptions.ResourceNotFoundException:
            return {}
        return {s["Name"]: s for s in every(lambda n: client.get_schedule(GroupName=group(run), Name=n), names)}


def schedules(run: Run, region: str, role: str, addresses: list[str] = ()) -> None:  # type: ignore[assignment]
    """Make the schedules of a region as they should be; remove surplus ones."""
    client, want = run.cloud.client("scheduler", region), desired(run, role, list(addresses))
    with doing("create the schedule group", region):
        try:
            client.get_schedule_group(Name=group(run))
        except client.exceptions.ResourceNotFoundException:
            def create_group() -> None:
                try:
                    client.create_schedule_group(Name=group(run), Tags=tags.as_list(tags.common(run.spec)))
                except client.exceptions.ConflictException:
                    pass
            run.do(f"{region}: create schedule group", create_group)
    have = read_schedules(run, region)
    for name, arguments in want.items():
        if name in have and _same(have[name], arguments):
            continue
        token = hashlib.sha256(json.dumps([name, arguments], sort_keys=True, default=str).encode()).hexdigest()[:60]

        def write(name: str = name, arguments: dict[str, Any] = arguments, token: str = token) -> None:
            if name not in have:
                try:
                    client.create_schedule(GroupName=group(run), Name=name, ClientToken=token, **arguments)
                    return
                except client.exceptions.ConflictException:
                    pass  # an earlier answer was lost
            client.update_schedule(GroupName=group(run), Name=name, **arguments)
        with doing(f"write the schedule {name}", region):
            run.do(f"{region}: {'update' if name in have else 'create'} schedule {name}", write)
    for name in sorted(n for n in set(have) - set(want) if not n.startswith(REARM)):
        with doing(f"delete the schedule {name}", region):
            run.do(f"{region}: delete schedule {name}", lambda name=name: client.delete_schedule(GroupName=group(run), Name=name))


# ---- budgets ----------------------------------------------------------------------------------------------------------

def class_budget_name(run: Run) -> str:
    """Return the name of the class budget."""
    return tags.prefix(run.spec) + "class"


def _budget(run: Run, name: str, usd: float, key: str, value: str) -> dict[str, Any]:
    start = dt.datetime.combine(run.cloud.now().date().replace(day=1), dt.time(), dt.timezone.utc)
    end = run.spec.teardown_at.astimezone(dt.timezone.utc) + dt.timedelta(days=45)
    return {"BudgetName": name, "BudgetType": "COST", "TimeUnit": "ANNUALLY", "BudgetLimit": {"Amount": f"{usd:g}", "Unit": "USD"},
            "CostFilters": {"TagKeyValue": [f"user:{key}${value}"]},
            # Credits must not hide the cost: with them counted, spending stays at 0 until they are gone.
            "CostTypes": {"IncludeCredit": False, "IncludeRefund": False, "IncludeDiscount": True, "IncludeOtherSubscription": True,
                          "IncludeRecurring": True, "IncludeSubscription": True, "IncludeSupport": False, "IncludeTax": True,
                          "IncludeUpfront": True, "UseAmortized": False, "UseBlended": False},
            "TimePeriod": {"Start": start, "End": end}}


def _alerts(mails: list[str]) -> list[dict[str, Any]]:
    people = [{"SubscriptionType": "EMAIL", "Address": m} for m in mails]
    return [{"Notification": {"NotificationType": "ACTUAL", "ComparisonOperator": "GREATER_THAN", "Threshold": float(p),
                              "ThresholdType": "PERCENTAGE"}, "Subscribers": people} for p in ALERTS]


def budgets(run: Run, owners: dict[str, str]) -> None:
    """Make the class budget and one per owner (student or shared machine -> its e-mail); remove those of others."""
    client, account, spec = run.cloud.client("budgets"), run.cloud.account, run.spec
    with doing("read the budgets"):
        have = {b["BudgetName"]: b for b in run.cloud.pages("budgets", GLOBAL, "describe_budgets", "Budgets", AccountId=account)}
    want = {class_budget_name(run): (spec.budget.class_usd, tags.CLASS, spec.name, [spec.contact])}
    for owner, mail in owners.items():
        usd = spec.budget.per_student_usd * (spec.machine.cores if spec.mode == "shared" else 1)
        want[f"{tags.prefix(spec)}owner.{owner}"] = (usd, tags.OWNER, owner, sorted({spec.contact, mail}))

    def write(item: tuple[str, tuple[float, str, str, list[str]]]) -> None:
        name, (usd, key, value, mails) = item
        budget = _budget(run, name, usd, key, value)
        if name in have:
            same = (float(have[name]["BudgetLimit"]["Amount"]) == usd and have[name].get("CostFilters") == budget["CostFilters"]
                    and abs((_aware(have[name]["TimePeriod"]["End"]) - budget["TimePeriod"]["End"]).total_seconds()) < 86400)
            if same:
                return
            budget["TimePeriod"]["Start"] = have[name]["TimePeriod"]["Start"]
            run.do(f"update budget {name}", lambda: client.update_budget(AccountId=account, NewBudget=budget))
            return

        def create() -> None:
            try:
                client.create_budget(AccountId=account, Budget=budget, NotificationsWithSubscribers=_alerts(mails),
                                     ResourceTags=tags.as_list(tags.common(spec, value if key == tags.OWNER else tags.STAFF)))
            except client.exceptions.DuplicateRecordException:
                pass
        run.do(f"create budget {name}", create)

    with doing("write the budgets"):
        every(write, want.items())
    if run.limit is None:
        for name in sorted(n for n in have if n.startswith(tags.prefix(spec) + "owner.") and n not in want):
            with doing("delete a budget"):
                run.do(f"delete budget {name}", lambda name=name: client.delete_budget(AccountId=account, BudgetName=name))


def stop_actions(run: Run, role: str, machines: dict[str, list[str]]) -> None:
    """Let the class budget stop every machine at 100 %: region -> machine ids, at most 100 in an action."""
    client, account, name = run.cloud.client("budgets"), run.cloud.account, class_budget_name(run)
    with doing("read the budget's stop actions"):
        try:
            have = run.cloud.pages("budgets", GLOBAL, "describe_budget_actions_for_budget", "Actions", AccountId=account, BudgetName=name)
        except client.exceptions.NotFoundException:
            have = []
    wanted = {(region, tuple(ids[i:i + ACTION_IDS])) for region, all_ids in machines.items()
              for ids in [sorted(all_ids)] for i in range(0, len(ids), ACTION_IDS)}
    kept: set[tuple[str, tuple[str, ...]]] = set()
    stale = []
    for action in have:
        ssm = action["Definition"].get("SsmActionDefinition", {})
        key = (ssm.get("Region", ""), tuple(sorted(ssm.get("InstanceIds", []))))
        if key in wanted and key not in kept and action["ExecutionRoleArn"] == role:
            kept.add(key)
        else:
            stale.append(action)
    with doing("write the budget's stop action"):
        for region, ids in sorted(wanted - kept):  # new ones first: at no moment is a machine without
            run.do(f"{region}: budget stops {len(ids)} machines at 100 %", lambda region=region, ids=ids: _create_action(run, client, name, role, region, ids))
        for action in stale:
            run.do("delete a budget action that is out of date", lambda action=action: client.delete_budget_action(
                AccountId=account, BudgetName=name, ActionId=action["ActionId"]))


def _create_action(run: Run, client: Any, name: str, role: str, region: str, ids: tuple[str, ...]) -> None:
    try:
        client.create_budget_action(
            AccountId=run.cloud.account, BudgetName=name, NotificationType="ACTUAL", ActionType="RUN_SSM_DOCUMENTS",
            ActionThreshold={"ActionThresholdValue": 100.0, "ActionThresholdType": "PERCENTAGE"}, ExecutionRoleArn=role,
            Definition={"SsmActionDefinition": {"ActionSubType": "STOP_EC2_INSTANCES", "Region": region, "InstanceIds": list(ids)}},
            ApprovalModel="AUTOMATIC", Subscribers=[{"SubscriptionType": "EMAIL", "Address": run.spec.contact}],
            ResourceTags=tags.as_list(tags.common(run.spec)))
    except client.exceptions.DuplicateRecordException:
        pass  # an earlier answer was lost


# ---- idle alarms --------------------------------------------------------------------------------------------------------

def alarm_name(run: Run, machine: str) -> str:
    """Return the name of a machine's idle alarm."""
    return f"{tags.prefix(run.spec)}{machine}.idle"


def _alarm(run: Run, region: str, machine: str, instance_id: str) -> dict[str, Any]:
    idle = run.spec.idle
    return {"AlarmName": alarm_name(run, machine), "AlarmDescription": "Idle machine: stop it", "ActionsEnabled": True,
            "Namespace": "AWS/EC2", "MetricName": "CPUUtilization", "Dimensions": [{"Name": "InstanceId", "Value": instance_id}],
            "Statistic": "Maximum", "Period": 300, "EvaluationPeriods": idle.minutes // 5, "Threshold": float(idle.cpu_percent),
            "ComparisonOperator": "LessThanOrEqualToThreshold",
            # A stopped machine sends no data; counted as busy, the alarm is OK again by the time it is restarted.
            "TreatMissingData": "notBreaching", "AlarmActions": [f"arn:aws:automate:{region}:ec2:stop"]}


def read_alarms(run: Run, region: str) -> dict[str, dict[str, Any]]:
    """Return the idle alarms of the class in a region."""
    with doing("read the alarms", region):
        found = run.cloud.pages("cloudwatch", region, "describe_alarms", "MetricAlarms", AlarmNamePrefix=tags.prefix(run.spec))
    return {a["AlarmName"]: a for a in found}


def alarms(run: Run, region: str, machines: dict[str, str]) -> dict[str, Exception]:
    """Make an idle alarm for each machine (name -> instance id); return the machines for which it failed."""
    client, have = run.cloud.client("cloudwatch", region), read_alarms(run, region)

    def write(item: tuple[str, str]) -> None:
        machine, instance_id = item
        want, old = _alarm(run, region, machine, instance_id), have.get(alarm_name(run, machine), {})
        if all(old.get(k) == v for k, v in want.items()):
            return
        label = tags.as_list({**tags.common(run.spec, machine), tags.MACHINE: machine})
        extra = {} if old else {"Tags": label}  # tags count on creation only
        run.do(f"{region}: {'update' if old else 'create'} idle alarm of {machine}", lambda: client.put_metric_alarm(**want, **extra))

    return {item[0]: error for item, _, error in each(write, machines.items()) if error}


def rearm(run: Run, region: str, role: str, machines: list[str]) -> None:
    """See to it that an alarm which has fired can fire again; called before the start.

    CloudWatch acts on a change of state, so an alarm that stays in ALARM never stops anything. Setting it to OK right
    away would be worse: it would be judged by the samples from before the stop and end the student's new session at
    once. So AWS itself (a schedule that deletes itself, laptop off) sets it to OK when new samples have come in.
    """
    client, have = run.cloud.client("scheduler", region), read_alarms(run, region)
    moment = run.cloud.now() + dt.timedelta(minutes=max(REARM_MINUTES, run.spec.idle.minutes))

    def write(machine: str) -> None:
        name = alarm_name(run, machine)
        if have.get(name, {}).get("StateValue") != "ALARM":
            return
        arguments: dict[str, Any] = {
            "GroupName": group(run), "Name": f"{REARM}{machine}", "ScheduleExpression": f"at({moment.astimezone(dt.timezone.utc):%Y-%m-%dT%H:%M:%S})",
            "ScheduleExpressionTimezone": "UTC", "FlexibleTimeWindow": {"Mode": "OFF"}, "ActionAfterCompletion": "DELETE", "State": "ENABLED",
            "Target": {"Arn": "arn:aws:scheduler:::aws-sdk:cloudwatch:setAlarmState", "RoleArn": role, "Input": json.dumps(
                {"AlarmName": name, "StateValue": "OK", "StateReason": "re-armed after a start"})}}

        def put() -> None:
            try:
                client.create_schedule(**arguments)
            except client.exceptions.ConflictException:
                client.update_schedule(**arguments)
        run.do(f"{region}: re-arm idle alarm of {machine} at {moment:%H:%M} UTC", put)
    with doing("re-arm the idle alarms", region):
        every(write, machines)


def delete_alarms(run: Run, region: str, machines: list[str]) -> None:
    """Delete the alarms of machines that are gone."""
    names = sorted(set(read_alarms(run, region)) & {alarm_name(run, m) for m in machines})
    if names:
        with doing("delete idle alarms", region):
            run.do(f"{region}: delete {len(names)} idle alarms", lambda: [
                run.cloud.client("cloudwatch", region).delete_alarms(AlarmNames=names[i:i + 100]) for i in range(0, len(names), 100)])


# ---- proof --------------------------------------------------------------------------------------------------------------

def verify(run: Run, region: str, role: str) -> None:
    """Read the class-wide guards back from AWS; raise GuardMissing unless each is there and enabled."""
    missing, have = [], read_schedules(run, region)
    for name, arguments in desired(run, role, []).items():
        if name not in have:
            missing.append(f"schedule {name} in {region}")
        elif not _same(have[name], arguments):
            missing.append(f"schedule {name} in {region} differs from what it should be")
    iam, client = run.cloud.client("iam"), run.cloud.client("budgets")
    with doing("verify the guards", region):
        try:
            iam.get_role_policy(RoleName=role.rsplit("/", 1)[1], PolicyName="guard")
        except iam.exceptions.NoSuchEntityException:
            missing.append("the guards' role")
        try:
            found = client.describe_notifications_for_budget(AccountId=run.cloud.account, BudgetName=class_budget_name(run))
            alerts = {n["Threshold"] for n in found["Notifications"]}
        except client.exceptions.NotFoundException:
            alerts = set()
        if not set(map(float, ALERTS)) <= alerts:
            missing.append("the class budget with its alerts")
    if missing:
        raise GuardMissing(missing)


__all__ = ["GuardMissing", "alarms", "budgets", "code_of", "delete_alarms", "desired", "read_alarms", "read_schedules", "rearm",
           "schedules", "stop_actions", "verify"]
