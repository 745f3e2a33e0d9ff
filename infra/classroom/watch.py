"""What the guards did, and what AWS answered: a guard that exists is not yet one that acts.

EventBridge Scheduler tells nobody when a target refuses; so the automations that ran and its own
counters are read back.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import Any

import botocore.exceptions as be

from . import pace, tags
from .cloud import aware, code_of, doing
from .run import Run

PROOF_TRIES, PROOF_SECONDS = 12, 10  # the first run of a new schedule comes within a minute
DOCUMENTS = "AWS-"
# How AWS says that somebody may not. Another failure, such as that no machine is pending just now,
# still shows that Scheduler, role and runbook work together. (assumed: what AWS answers when a tag
# chooses nothing is not documented)
DENIAL = re.compile(r"AccessDenied|not authorized|UnauthorizedOperation|assume", re.I)
ENDED_WELL = ("Success", "CompletedWithSuccess")


@dataclass(frozen=True)
class Seen:
    """Hold the last run of a guard: when, what AWS said."""

    guard: str
    region: str
    at: dt.datetime | None
    status: str
    answer: str = ""

    @property
    def good(self) -> bool:
        """Say whether it ran and succeeded."""
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


def executions(run: Run, region: str, hours: float = 26) -> dict[str, Seen]:
    """Return the newest automation of each guard within some hours."""
    since = run.cloud.now() - dt.timedelta(hours=hours)
    with doing("read what the guards did", region):
        found = run.cloud.pages(
            "ssm",
            region,
            "describe_automation_executions",
            "AutomationExecutionMetadataList",
            Filters=[
                {"Key": "DocumentNamePrefix", "Values": [DOCUMENTS]},
                {"Key": "StartTimeAfter", "Values": [since.strftime("%Y-%m-%dT%H:%M:%SZ")]},
            ],
        )
    newest: dict[str, Seen] = {}
    for e in found:
        guard, at = _guard_of(run, e), aware(e["ExecutionStartTime"])
        if guard and (guard not in newest or (newest[guard].at or at) < at):
            status, answer = e["AutomationExecutionStatus"], e.get("FailureMessage") or ""
            newest[guard] = Seen(guard, region, at, status, answer)
    return newest


def refusals(run: Run, region: str, hours: float = 24) -> tuple[int, int]:
    """Return how often Scheduler invoked the class's schedules lately, and how often the target
    refused."""
    end = run.cloud.now() + dt.timedelta(minutes=10)  # what happens while we wait counts, too
    names = ("InvocationAttemptCount", "TargetErrorCount", "InvocationDroppedCount")
    queries = [
        {
            "Id": f"m{k}",
            "ReturnData": True,
            "MetricStat": {
                "Stat": "Sum",
                "Period": 3600,
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
        found = run.cloud.pages(
            "cloudwatch",
            region,
            "get_metric_data",
            "MetricDataResults",
            MetricDataQueries=queries,
            StartTime=end - dt.timedelta(hours=hours),
            EndTime=end,
        )
    sums = {r["Id"]: 0.0 for r in found}
    for r in found:
        sums[r["Id"]] += sum(r["Values"])
    return int(sums.get("m0", 0)), int(max(sums.get("m1", 0), sums.get("m2", 0)))


def proven(run: Run, region: str) -> str:
    """Return "" once the schedule that stops unarmed machines has run with success, else why not.

    It runs every 15 minutes, the first time as soon as it is made. Only when it has, a machine may
    be called armed: the role, its trust and the runbook are the same for every guard.
    """
    for k in range(PROOF_TRIES):
        seen = executions(run, region, hours=26).get("unarmed")
        if seen is not None and (seen.good or not DENIAL.search(seen.answer)):
            return ""
        tried, refused = (0, 0) if seen is not None else refusals(run, region, hours=1)
        if seen is not None:
            why = f"its last run ended {seen.status}: {seen.answer or 'no reason given'}"
        elif refused:
            why = f"AWS refused {refused} of its {max(tried, refused)} runs"
        else:
            why = "it has not run yet"
        if k < PROOF_TRIES - 1:
            pace.sleep(PROOF_SECONDS)
    return f"the schedule that stops unarmed machines is not proven to work in {region}: {why}"


def last(run: Run, region: str) -> list[Seen]:
    """Return every guard of a region with its last run; one that never ran has no time."""
    found = executions(run, region)
    out = [
        found.get(guard, Seen(guard, region, None, "not in the last 26 hours"))
        for guard in ("unarmed", "nightly", "teardown")
    ]
    tried, refused = refusals(run, region)
    words = f"{tried} invocations in 24 hours, {refused} refused"
    out.append(Seen("scheduler", region, None, "refused" if refused else "Success", words))
    return [*out, alarms(run, region)]


def alarms(run: Run, region: str, hours: float = 26) -> Seen:
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
    mine = [i for i in items if i["AlarmName"].startswith(tags.prefix(run.spec))]
    failed = [i for i in mine if "fail" in i["HistorySummary"].lower()]
    if not mine:
        return Seen("idle alarms", region, None, f"none acted in the last {hours:.0f} hours")
    one = (failed or mine)[0]
    words = f"{one['AlarmName']}: {one['HistorySummary']}"
    status = f"{len(failed)} of {len(mine)} failed" if failed else "Success"
    return Seen("idle alarms", region, aware(one["Timestamp"]), status, words)


def cost_tags(run: Run) -> tuple[bool | None, str]:
    """Say whether budgets can see the class's tag: True, False, or None when this account may not
    ask; and a sentence."""
    try:
        found = run.cloud.client("ce").list_cost_allocation_tags(
            TagKeys=[tags.CLASS, tags.BUDGET], Type="UserDefined"
        )["CostAllocationTags"]
    except (be.ClientError, be.BotoCoreError) as error:
        return None, (
            "Whether budgets see the class's tags cannot be asked from this account"
            f" ({code_of(error) or type(error).__name__}): ask whoever pays to look at Billing >"
            " Cost allocation tags."
        )
    active = {t["TagKey"] for t in found if t["Status"] == "Active"}
    missing = [k for k in (tags.CLASS, tags.BUDGET) if k not in active]
    if missing:
        return False, (
            f"Budgets are blind: the cost allocation tags {', '.join(missing)} are not active, so"
            " every budget sees $0. Activate them under Billing > Cost allocation tags (they show"
            " up there a day after the first machine)."
        )
    return True, "budgets see the class's tags"
