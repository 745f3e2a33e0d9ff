"""What the guards did, and what AWS answered: a guard that exists is not yet one that acts.

EventBridge Scheduler does not report when a target refuses; so the automations that ran and its own
counters are read back.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import Any

import botocore.exceptions as be

from ..aws import rate_limit
from ..aws.cloud import aware, code_of, doing
from ..aws.problems import ClassroomError
from ..spec import tags
from ..spec.run import Run
from . import class_guards
from .alarms import IDLE

# How often to poll, and the seconds between polls: for the first run of a new schedule, at once or
# within a minute; then for two more that are asked for.
PROOF_POLLS, PROOF_SECONDS = (4, 15, 27), 5
DOCUMENTS = "AWS-"
# How AWS denies permission. Another failure, such as that no machine is pending just now,
# still shows that Scheduler, role and runbook work together. (assumed: what AWS answers when a tag
# chooses nothing is not documented)
DENIAL = re.compile(r"AccessDenied|not authorized|UnauthorizedOperation|assume", re.I)
ENDED_WELL = ("Success", "CompletedWithSuccess")


@dataclass(frozen=True)
class LastRun:
    """Hold the last run of a guard: when, what AWS said."""

    guard: str
    region: str
    at: dt.datetime | None
    status: str
    answer: str = ""

    @property
    def good(self) -> bool:
        """Return whether it ran and succeeded."""
        return self.status in ENDED_WELL


def _guard_of(run: Run, execution: dict[str, Any]) -> str | None:
    """Return which schedule of the class started an automation."""
    targets = execution.get("Targets") or []
    if len(targets) != 1:
        return None
    target = (targets[0].get("Key"), tuple(targets[0].get("Values") or ()))
    document = execution.get("DocumentName")
    if target == (f"tag:{tags.GUARD}", (tags.pending(run.spec),)):
        return "unarmed"
    if target == (f"tag:{tags.CLASS}", (run.spec.name,)):
        return {"AWS-StopEC2Instance": "nightly", "AWS-TerminateEC2Instance": "teardown"}.get(
            str(document)
        )
    return None


def executions(run: Run, region: str, hours: float = 26) -> dict[str, LastRun]:
    """Return the newest automation of each guard within some hours."""
    newest: dict[str, LastRun] = {}
    for seen in _runs(run, region, hours):
        newest[seen.guard] = seen
    return newest


def _runs(run: Run, region: str, hours: float) -> list[LastRun]:
    """Return every automation of the class's guards within some hours, the oldest first."""
    since = run.cloud.now() - dt.timedelta(hours=hours)
    with doing("read what the guards did", region):
        described = run.cloud.pages(
            "ssm",
            region,
            "describe_automation_executions",
            "AutomationExecutionMetadataList",
            Filters=[
                {"Key": "DocumentNamePrefix", "Values": [DOCUMENTS]},
                {"Key": "StartTimeAfter", "Values": [since.strftime("%Y-%m-%dT%H:%M:%SZ")]},
            ],
        )
    out: list[tuple[dt.datetime, LastRun]] = []
    for e in described:
        guard, at = _guard_of(run, e), aware(e["ExecutionStartTime"])
        if guard:
            status, answer = e["AutomationExecutionStatus"], e.get("FailureMessage") or ""
            out.append((at, LastRun(guard, region, at, status, answer)))
    return [seen for _, seen in sorted(out, key=lambda o: o[0])]


def refusals(
    run: Run, region: str, hours: float = 24, after: dt.datetime | None = None
) -> tuple[int, int]:
    """Return how often Scheduler invoked the class's schedules lately, and how often the target
    refused (in minutes after `after`)."""
    end = run.cloud.now() + dt.timedelta(minutes=10)  # what happens while we wait counts, too
    names = ("InvocationAttemptCount", "TargetErrorCount", "InvocationDroppedCount")
    queries = [
        {
            "Id": f"m{k}",
            "ReturnData": True,
            "MetricStat": {
                "Stat": "Sum",
                "Period": 60,
                "Metric": {
                    "Namespace": "AWS/Scheduler",
                    "MetricName": name,
                    "Dimensions": [{"Name": "ScheduleGroup", "Value": tags.group(run.spec)}],
                },
            },
        }
        for k, name in enumerate(names)
    ]
    with doing("read the scheduler's counters", region):
        metrics = run.cloud.pages(
            "cloudwatch",
            region,
            "get_metric_data",
            "MetricDataResults",
            MetricDataQueries=queries,
            StartTime=end - dt.timedelta(hours=hours),
            EndTime=end,
        )
    sums = {r["Id"]: 0.0 for r in metrics}
    for r in metrics:
        for at, value in zip(r["Timestamps"], r["Values"]):
            if r["Id"] == "m0" or after is None or aware(at) > after:
                sums[r["Id"]] += value
    return int(sums.get("m0", 0)), int(max(sums.get("m1", 0), sums.get("m2", 0)))


def proven(run: Run, region: str, role: str) -> str:
    """Return "" once the schedule that stops unarmed machines has run with success, else why not.

    It runs every 15 minutes, the first time as soon as it is made. Only when it has, a machine may
    be called armed: the role, its trust and the runbook are the same for every guard. In a new
    class that first run may come before AWS's services know the role; then the same is scheduled
    once more, for in 15 minutes would be too late.
    """
    why = ""
    for k, polls in enumerate(PROOF_POLLS):
        if k:
            class_guards.prove(run, region, role)
        for poll in range(polls):
            why = _unproven(run, region)
            if not why:
                if k:
                    class_guards.end_proof(run, region)
                return ""
            if poll < polls - 1:
                rate_limit.sleep(PROOF_SECONDS)
    class_guards.end_proof(run, region)
    bound = run.spec.boundary
    under = f" (the roles are under {bound}: `doctor --policy` prints what it must allow)"
    return (
        f"the schedule that stops unarmed machines is not proven to work in {region}: {why}"
        + under * bool(bound)
    )


def _unproven(run: Run, region: str) -> str:
    """Return why the guards of a region are not proven, or ""."""
    seen = executions(run, region, hours=26).get("unarmed")
    if seen is not None:
        if seen.good or not DENIAL.search(seen.answer):
            return ""
        return f"its last run ended {seen.status}: {seen.answer or 'no reason given'}"
    try:
        tried, refused = refusals(run, region, hours=1)
    except ClassroomError:  # the counters only say why
        return "it has not run yet"
    if refused:
        return f"AWS refused {refused} of its {max(tried, refused)} runs"
    return "it has not run yet"


def last(run: Run, region: str) -> list[LastRun]:
    """Return the schedules of a region with their last run; one that never ran has no time."""
    runs = _runs(run, region, 26)
    by_guard = {seen.guard: seen for seen in runs}
    out = [
        by_guard.get(guard, LastRun(guard, region, None, "not in the last 26 hours"))
        for guard in ("unarmed", "nightly", "teardown")
    ]
    # What was refused before the first success is IAM's delay in a new class.
    first = next((s.at for s in runs if s.good), None)
    tried, refused = refusals(run, region, after=first)
    words = f"{tried} invocations in 24 hours, {refused} refused"
    out.append(LastRun("scheduler", region, None, "refused" if refused else "Success", words))
    return out


def stops(run: Run, region: str) -> list[LastRun]:
    """Return what the idle alarms did, as `last` does for schedules."""
    return [alarms(run, region)]


def alarms(run: Run, region: str, hours: float = 26) -> LastRun:
    """Return the last stop by an idle alarm of the class, or the last that failed, if any did."""
    with doing("read what the alarms did", region):
        items = run.cloud.pages(
            "cloudwatch",
            region,
            "describe_alarm_history",
            "AlarmHistoryItems",
            HistoryItemType="Action",
            StartDate=run.cloud.now() - dt.timedelta(hours=hours),
            ScanBy="TimestampDescending",
        )
    prefix = tags.prefix(run.spec)
    named = [i for i in items if i["AlarmName"].startswith(prefix)]
    history = [i for i in named if i["AlarmName"].endswith(IDLE)]
    failed = [i for i in history if "fail" in i["HistorySummary"].lower()]
    if not history:
        return LastRun("idle alarms", region, None, f"none acted in the last {hours:.0f} hours")
    one = (failed or history)[0]
    words = f"{one['AlarmName']}: {one['HistorySummary']}"
    status = f"{len(failed)} of {len(history)} failed" if failed else "Success"
    return LastRun("idle alarms", region, aware(one["Timestamp"]), status, words)


def cost_tags(run: Run) -> tuple[bool | None, str]:
    """Return whether budgets can see the class's tag (None if this account may not ask), and a
    sentence about it."""
    try:
        cost_tag = run.cloud.client("ce").list_cost_allocation_tags(
            TagKeys=[tags.CLASS, tags.BUDGET], Type="UserDefined"
        )["CostAllocationTags"]
    except (be.ClientError, be.BotoCoreError) as error:
        return None, (
            "Whether budgets see the class's tags cannot be asked from this account"
            f" ({code_of(error) or type(error).__name__}): ask the owner of the bill to look at"
            " Billing > Cost allocation tags."
        )
    active = {t["TagKey"] for t in cost_tag if t["Status"] == "Active"}
    missing = [k for k in (tags.CLASS, tags.BUDGET) if k not in active]
    if missing:
        return False, (
            f"Budgets are blind: the cost allocation tags {', '.join(missing)} are not active, so"
            " those of the class and of students see $0. Activate them under Billing > Cost"
            " allocation tags (they show up there a day after the first machine)."
        )
    return True, "budgets see the class's tags"
