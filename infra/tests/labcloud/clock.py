"""Move virtual time and let schedules, alarms and budgets act as AWS lets them."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from typing import Any
from zoneinfo import ZoneInfo

from moto.budgets.models import budgets_backends
from moto.cloudwatch.models import cloudwatch_backends
from moto.scheduler.models import scheduler_backends
from moto.sns.models import sns_backends

from . import authority, automation, functions, guards, market, metrics, spending, states, watched
from .iam import Request
from .world import ACCOUNT, WORLD, utc

PERIOD = dt.timedelta(minutes=5)
DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


def _field(text: str, low: int, high: int) -> set[int]:
    out: set[int] = set()
    for part in text.split(","):
        base, _, step = part.partition("/")
        if base in ("*", "?"):
            a, b = low, high
        elif "-" in base:
            a, b = map(int, base.split("-"))
        else:
            a = int(base)
            b = high if step else a
        out |= set(range(a, b + 1, int(step or 1)))
    return out


def _exists(local: dt.datetime, moment: dt.datetime, zone: ZoneInfo) -> bool:
    """Say whether a local time is there on its day.

    Source: EventBridge Scheduler guide, "Daylight savings time": a time that falls into the hour
    which is skipped is not made up for; one that comes twice fires once.
    """
    return moment.astimezone(zone).replace(tzinfo=None) == local.replace(tzinfo=None)


def fires(
    expression: str, zone: str, created: dt.datetime, after: dt.datetime
) -> Iterator[dt.datetime]:
    """Yield the moments (UTC) after `after` at which a schedule fires: at(), rate() and cron() as
    in AWS."""
    tz = ZoneInfo(zone or "UTC")
    if match := re.fullmatch(r"at\((.+)\)", expression):
        moment = dt.datetime.fromisoformat(match[1]).replace(tzinfo=tz).astimezone(dt.timezone.utc)
        if moment > after:
            yield moment
    elif match := re.fullmatch(r"rate\((\d+) (minute|hour|day)s?\)", expression):
        step = int(match[1]) * {"minute": 60, "hour": 3600, "day": 86400}[match[2]]
        n = int((after - created).total_seconds() // step) + 1
        while True:
            yield created + dt.timedelta(seconds=n * step)
            n += 1
    elif match := re.fullmatch(r"cron\((\S+) (\S+) (\S+) (\S+) (\S+) (\S+)\)", expression):
        minutes, hours = sorted(_field(match[1], 0, 59)), sorted(_field(match[2], 0, 23))
        doms, months, years = (
            _field(match[3], 1, 31),
            _field(match[4], 1, 12),
            _field(match[6], 1970, 2199),
        )
        dow = match[5].upper()
        dows = (
            set(range(1, 8))
            if dow in "*?"
            else {DAYS.index(d) + 1 if d in DAYS else int(d) for d in dow.split(",")}
        )
        day = after.astimezone(tz).date()
        for _ in range(800):
            if (
                day.day in doms
                and day.month in months
                and day.year in years
                and (day.isoweekday() % 7) + 1 in dows
            ):
                for h in hours:
                    for m in minutes:
                        local = dt.datetime.combine(day, dt.time(h, m), tz)
                        moment = local.astimezone(dt.timezone.utc)
                        if moment > after and _exists(local, moment, tz):
                            yield moment
            day += dt.timedelta(days=1)
    else:
        raise ValueError(f"not a schedule expression: {expression}")


def _moment(value: Any) -> dt.datetime | None:
    if value in (None, ""):
        return None
    if isinstance(value, (int, float)):
        return dt.datetime.fromtimestamp(value, dt.timezone.utc)
    return dt.datetime.fromisoformat(str(value).replace("Z", "+00:00"))


_cache: dict[tuple, dt.datetime | None] = {}


def reset() -> None:
    """Forget when schedules fire next."""
    _cache.clear()


def _next_fire(schedule: Any, after: dt.datetime) -> dt.datetime | None:
    key = (
        schedule.arn,
        schedule.schedule_expression,
        schedule.schedule_expression_timezone,
        str(schedule.start_date),
        str(schedule.end_date),
    )
    if key in _cache and (_cache[key] is None or _cache[key] > after):
        return _cache[key]
    start, end = _moment(schedule.start_date), _moment(schedule.end_date)
    created = start or dt.datetime.fromtimestamp(schedule.creation_date, dt.timezone.utc)
    base = max(after, start - dt.timedelta(seconds=1)) if start else max(after, created)
    found = next(
        iter(
            fires(
                schedule.schedule_expression, schedule.schedule_expression_timezone, created, base
            )
        ),
        None,
    )
    if found and end and found > end:
        found = None
    _cache[key] = found
    return found


def machine(region: str, instance_id: str) -> Any:
    """Return a machine of a region, or None."""
    return next((m for m in automation.machines(region) if m.id == instance_id), None)


BUSY = "ThrottlingException: Rate exceeded"


def run_target(
    region: str, schedule: Any, attempt: int = 0, since: dt.datetime | None = None
) -> str:
    """Do what a universal target does, with the permissions of the schedule's role; return a line
    for the log.

    Source: EventBridge Scheduler guide, "Using universal targets", "Monitoring with CloudWatch" and
    the API reference, RetryPolicy: what fails is counted (TargetErrorCount), tried again with a
    growing wait up to MaximumRetryAttempts and MaximumEventAgeInSeconds, and then dropped
    without a message. Whether a denial is tried again is not documented (EventBridge's rules do
    not): it is not, unless a test says so (`retry_refused`). The waits are assumed: 1, 2, 4 ...
    minutes.
    """
    entry = {"t": WORLD.now(), "region": region, "group": schedule.group_name, "error": ""}
    WORLD.invocations.append(entry)
    did = _once(region, schedule, entry)
    if entry["error"] and (entry["error"] == BUSY or WORLD.retry_refused):
        policy, first = schedule.target.get("RetryPolicy") or {}, since or WORLD.now()
        again = WORLD.now() + dt.timedelta(minutes=2.0**attempt)
        oldest = dt.timedelta(seconds=policy.get("MaximumEventAgeInSeconds", 86400))
        if attempt < policy.get("MaximumRetryAttempts", 185) and again - first <= oldest:
            WORLD.retries.append((again, region, schedule, attempt + 1, first))
    return did


def retry(now: dt.datetime) -> None:
    """Try again what is due."""
    due = [r for r in WORLD.retries if r[0] <= now]
    WORLD.retries[:] = [r for r in WORLD.retries if r[0] > now]
    for _, region, schedule, attempt, first in due:
        did = run_target(region, schedule, attempt, first)
        WORLD.note("schedule", region=region, name=schedule.name, did=did, retry=attempt)


def _once(region: str, schedule: Any, entry: dict[str, Any]) -> str:
    operation, inputs = guards.target_of(schedule)
    role = schedule.target["RoleArn"]
    if WORLD.busy_targets > 0:
        WORLD.busy_targets -= 1
        entry["error"] = BUSY
        return f"refused: {BUSY}"
    try:
        authority.assume(role, "scheduler.amazonaws.com")
        if operation == "ssm:startAutomationExecution":
            return automation.start(region, role, inputs, f"schedule {schedule.name}")
        if operation.startswith("arn:aws:lambda:"):
            return functions.invoke(region, role, operation, schedule.target["Input"])
        if operation == "cloudwatch:setAlarmState":
            arn = f"arn:aws:cloudwatch:{region}:{ACCOUNT}:alarm:{inputs['AlarmName']}"
            authority.act(role, region, [Request("cloudwatch:SetAlarmState", arn)])
            cloudwatch_backends[ACCOUNT][region].set_alarm_state(
                inputs["AlarmName"], inputs["StateReason"], "{}", inputs["StateValue"]
            )
            return f"{operation}: {inputs['AlarmName']}"
    except authority.Refused as refused:
        entry["error"] = str(refused)
        return f"refused: {refused}"
    raise ValueError(f"the fake has no target {operation} {inputs}")


def refusal(service: str, op: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """Return why Scheduler does not take a schedule's role, or None.

    Source: EventBridge Scheduler guide, "Set up an execution role", and its ValidationException:
    the role must let Scheduler assume it when the schedule is made.
    """
    if service != "scheduler" or op not in ("CreateSchedule", "UpdateSchedule"):
        return None
    try:
        authority.assume(params["Target"]["RoleArn"], "scheduler.amazonaws.com")
    except authority.Refused:
        words = (
            "The execution role you provide must allow AWS EventBridge Scheduler to assume the"
            " role."
        )
        return {"code": "ValidationException", "status": 400, "message": words}
    return None


def begin(region: str, group: str, name: str) -> None:
    """Fire a new rate schedule at once.

    Source: EventBridge Scheduler guide, "Schedule types": without a start date a rate-based
    schedule starts invoking its target immediately.
    """
    schedule = scheduler_backends[ACCOUNT][region].schedule_groups[group].schedules.get(name)
    if schedule is None or schedule.start_date:
        return
    if schedule.schedule_expression.startswith("rate("):
        did = run_target(region, schedule)
        WORLD.note("schedule", region=region, name=name, did=did)


def evaluate_alarms(now: dt.datetime) -> None:
    """Evaluate idle alarms as CloudWatch does: an action runs when the state changes, not while it
    lasts."""
    for region, backend in list(cloudwatch_backends[ACCOUNT].items()):
        for name, alarm in list(backend.alarms.items()):
            if alarm.namespace in ("AWS/Scheduler", "AWS/Lambda"):
                _mail_failures(region, backend, alarm, now)
                continue
            iid = next((d.value for d in alarm.dimensions if d.name == "InstanceId"), None)
            if iid is None or alarm.metric_name != "CPUUtilization":
                continue
            n, period = int(alarm.evaluation_periods), dt.timedelta(seconds=int(alarm.period))
            points: list[float] = []
            for k in range(
                n + 2
            ):  # the evaluation range is a little longer than the periods asked for
                end = now - k * period
                if WORLD.ran_through(iid, end - period, end):
                    points.append(WORLD.cpu(iid, end - period, end))
            missing = alarm.treat_missing_data or "missing"
            if not points:
                new = {"notBreaching": "OK", "breaching": "ALARM", "ignore": alarm.state_value}.get(
                    missing, "INSUFFICIENT_DATA"
                )
            else:
                taken = points[:n]
                breaching = [v <= float(alarm.threshold) for v in taken]
                if len(taken) < n and missing == "missing":
                    new = (
                        "ALARM"
                        if all(breaching) and len(taken) == n
                        else alarm.state_value
                        if all(breaching)
                        else "OK"
                    )
                else:
                    breaching += [missing == "breaching"] * (n - len(taken))
                    new = "ALARM" if all(breaching) else "OK"
            if new != alarm.state_value:
                backend.set_alarm_state(name, "evaluated", "{}", new)
                WORLD.note("alarm", region=region, alarm=name, state=new)
                if new == "ALARM" and alarm.actions_enabled:
                    for action in alarm.alarm_actions:
                        if action.endswith(":ec2:stop"):
                            machine = next(
                                (
                                    m
                                    for m in automation.machines(region)
                                    if m.id == iid and m.state == "running"
                                ),
                                None,
                            )
                            if machine and metrics.acts(region, name, action):
                                with guards.because(f"alarm {name}"):
                                    machine.stop()


def _mail_failures(region: str, backend: Any, alarm: Any, now: dt.datetime) -> None:
    """Evaluate an alarm on what Scheduler's targets, or a function, refused; mail on a change."""
    of, since = {d.value for d in alarm.dimensions}, now - dt.timedelta(seconds=int(alarm.period))
    failed = [
        i
        for i in WORLD.invocations
        if i["region"] == region and i["group"] in of and i["error"] and since <= i["t"] < now
    ]
    new = "ALARM" if len(failed) > float(alarm.threshold) else "OK"
    if new == alarm.state_value:
        return
    backend.set_alarm_state(alarm.name, "evaluated", "{}", new)
    topics = sns_backends[ACCOUNT][region]
    for action in alarm.alarm_actions if new == "ALARM" else ():
        for s in topics.list_subscriptions_by_topic(action)[0]:
            if not WORLD.unconfirmed:
                WORLD.note("failure-mail", region=region, alarm=alarm.name, to=s.endpoint)


def evaluate_budgets() -> None:
    """Compare what machines cost so far with each budget; fire notifications and stop actions
    once."""
    for name, budget in list(budgets_backends[ACCOUNT]["aws"].budgets[ACCOUNT].items()):
        spend = spending.spend(budget.budget)
        percent = 100 * spend / float(budget.budget["BudgetLimit"]["Amount"])
        for notification in budget.notifications:
            threshold = float(notification.details["Threshold"])
            key = (name, "mail", threshold)
            if (
                notification.details["NotificationType"] == "ACTUAL"
                and percent >= threshold
                and key not in WORLD.budget_fired
            ):
                WORLD.budget_fired.add(key)
                WORLD.note("budget-mail", budget=name, percent=threshold)
        for action in WORLD.budget_actions.get(name, []):
            key = (name, action["ActionId"])
            if (
                percent >= float(action["ActionThreshold"]["ActionThresholdValue"])
                and key not in WORLD.budget_fired
            ):
                WORLD.budget_fired.add(key)
                _stop_by_budget(name, action)


def _stop_by_budget(name: str, action: dict[str, Any]) -> None:
    """Run a budget action with its role.

    Source: Budgets guide, "Configuring a budget action": once executed it stays so, and does not
    act again before RESET_BUDGET_ACTION.
    """
    ssm, role = action["Definition"]["SsmActionDefinition"], action["ExecutionRoleArn"]
    found = {i: machine(ssm["Region"], i) for i in ssm["InstanceIds"]}
    running = [i for i, m in found.items() if m is not None and m.state == "running"]
    inputs = {
        "DocumentName": "AWS-StopEC2Instance",
        "Targets": [{"Key": "ParameterValues", "Values": running}],
    }
    try:
        authority.assume(role, "budgets.amazonaws.com")
        automation.start(ssm["Region"], role, inputs, f"budget {name}")
        action["Status"] = "EXECUTION_SUCCESS"
        WORLD.note("budget-stop", budget=name, region=ssm["Region"])
    except authority.Refused as refused:
        action["Status"] = "EXECUTION_FAILURE"
        WORLD.note("budget-refused", budget=name, why=str(refused))


def advance(seconds: float) -> dict[str, Any]:
    """Move the clock; everything that is due on the way happens at its moment.

    Between two calls the clock ticks by itself, so what was due since the last one comes first.
    """
    goal = WORLD.now() + dt.timedelta(seconds=seconds)
    since = min(WORLD.played or WORLD.now(), WORLD.now())
    while True:
        step = min(goal, _ceil(since))
        if WORLD.watching:
            step = min(step, watched.next_minute(since))
        due: list[tuple[dt.datetime, str, Any, Any]] = []
        for region, backend in list(scheduler_backends[ACCOUNT].items()):
            for group in backend.schedule_groups.values():
                for schedule in group.schedules.values():
                    if schedule.state != "DISABLED":
                        moment = _next_fire(schedule, since)
                        if moment and moment <= step:
                            due.append((moment, region, group, schedule))
        if due or WORLD.retries:
            step = min(step, *(d[0] for d in due), *(r[0] for r in WORLD.retries))
        step = max(step, since)
        if step > WORLD.now():
            _move(step)
        for moment, region, group, schedule in due:
            if moment == step:
                WORLD.note(
                    "schedule", region=region, name=schedule.name, did=run_target(region, schedule)
                )
                if (
                    schedule.action_after_completion == "DELETE"
                    and _next_fire(schedule, step) is None
                ):
                    group.schedules.pop(schedule.name, None)
        retry(step)
        states.settle()
        market.tick(step, machine)
        watched.look(step)
        if step.timestamp() % PERIOD.total_seconds() == 0:  # that very moment, and so once
            evaluate_alarms(step)
            if int(step.timestamp()) % (8 * 3600) == 0:
                evaluate_budgets()
        since = WORLD.played = step
        if step >= goal:
            return {"now": WORLD.now().isoformat()}


def _ceil(now: dt.datetime) -> dt.datetime:
    size = int(PERIOD.total_seconds())
    return dt.datetime.fromtimestamp((int(now.timestamp()) // size + 1) * size, dt.timezone.utc)


def _move(to: dt.datetime) -> None:
    WORLD.frozen.move_to(to.replace(tzinfo=None))


__all__ = ["advance", "fires", "utc"]
