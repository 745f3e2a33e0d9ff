"""CloudWatch's numbers: samples of machines that ran, invocations of schedules.

Source: EC2 user guide, "List the available CloudWatch metrics": basic monitoring sends five-minute
periods, each with SampleCount 5. CloudWatch user guide, "Metrics retention". EventBridge Scheduler
guide, "Monitoring with CloudWatch": namespace AWS/Scheduler, dimension ScheduleGroup.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from moto.cloudwatch.responses import CloudWatchResponse
from moto.core.responses import ActionResult
from moto.iam.models import iam_backends
from moto.sns.responses import SNSResponse

from .world import ACCOUNT, WORLD

SAMPLES, PERIOD = 5, 300  # of a machine, in each period of that many seconds


def moment(value: Any) -> dt.datetime:
    """Return a time of a request, whatever its protocol made of it."""
    if isinstance(value, dt.datetime):
        return value if value.tzinfo else value.replace(tzinfo=dt.timezone.utc)
    if isinstance(value, (int, float)):
        return dt.datetime.fromtimestamp(value, dt.timezone.utc)
    return dt.datetime.fromisoformat(str(value).replace("Z", "+00:00"))


def late() -> dt.datetime:
    """Return until when CloudWatch has what happened: some minutes ago (AWS says that data
    comes in five-minute periods, and not how long after; three minutes are assumed)."""
    return WORLD.now() - dt.timedelta(seconds=WORLD.metric_seconds)


def _cpu(region: str, query: dict[str, Any], start: dt.datetime, end: dt.datetime) -> float:
    """Return the samples of a machine: of each whole five minutes that it ran."""
    end = max(start, min(end, late()))
    instance = query["Metric"]["Dimensions"][0]["Value"]
    periods = round(WORLD.hours(instance, start, end) * 3600 / PERIOD)
    return float(periods * SAMPLES) if query["Stat"] == "SampleCount" else 0.0


def _schedules(
    region: str, query: dict[str, Any], start: dt.datetime, end: dt.datetime, step: dt.timedelta
) -> dict[dt.datetime, float]:
    """Return, by period, how often schedules of a group were tried, or refused by their target."""
    groups = [d["Value"] for d in query["Metric"]["Dimensions"] if d["Name"] == "ScheduleGroup"]
    end = min(end, late())
    bad = query["Metric"]["MetricName"] in ("TargetErrorCount", "InvocationDroppedCount")
    out: dict[dt.datetime, float] = {}
    for i in WORLD.invocations:
        counts = i["region"] == region and i["group"] in groups and start <= i["t"] < end
        if counts and (i["error"] or not bad):
            at = start + (i["t"] - start) // step * step
            out[at] = out.get(at, 0.0) + 1
    return out


def _calls(
    region: str, query: dict[str, Any], start: dt.datetime, end: dt.datetime, step: dt.timedelta
) -> dict[dt.datetime, float]:
    """Return, by period, how often a function was called. (Lambda guide, "Types of metrics")"""
    names = [d["Value"] for d in query["Metric"]["Dimensions"]]
    out: dict[dt.datetime, float] = {}
    for e in WORLD.events:
        if e["kind"] == "invoke" and e["region"] == region and e["function"] in names:
            at = moment(e["t"])
            if start <= at < end:
                at = start + (at - start) // step * step
                out[at] = out.get(at, 0.0) + 1
    return out


def get_metric_data(self: Any) -> ActionResult:
    """Answer by period, as far as there is anything in it."""
    start, end = moment(self._get_param("StartTime")), moment(self._get_param("EndTime"))
    end, results = min(end, WORLD.now()), []
    for query in self._get_param("MetricDataQueries"):
        stat = query["MetricStat"]
        step = dt.timedelta(seconds=int(stat["Period"]))
        points: dict[dt.datetime, float] = {}
        if stat["Metric"]["Namespace"] == "AWS/EC2":
            at = start
            while at < end:
                points[at] = _cpu(self.region, stat, at, min(at + step, end))
                at += step
        else:
            count = _calls if stat["Metric"]["Namespace"] == "AWS/Lambda" else _schedules
            points = count(self.region, stat, start, end, step)
        times = sorted(at for at, value in points.items() if value)
        values = [points[at] for at in times]
        results.append(
            {
                "Id": query["Id"],
                "Label": query["Id"],
                "StatusCode": "Complete",
                "Timestamps": times,
                "Values": values,
            }
        )
    return ActionResult({"MetricDataResults": results})


def acts(region: str, alarm: str, action: str) -> bool:
    """Say whether CloudWatch may do an alarm's action, and write it into the alarm's history.

    Source: CloudWatch guide, "Create alarms to stop, terminate, reboot, or recover an EC2
    instance": it acts with the service-linked role; CloudWatch API reference, DescribeAlarmHistory.
    """
    roles = iam_backends[ACCOUNT]["aws"].roles.values()
    role = any(r.name == "AWSServiceRoleForCloudWatchEvents" for r in roles)
    said = "Successfully executed" if role else "Failed to execute"
    item = {
        "AlarmName": alarm,
        "AlarmType": "MetricAlarm",
        "Timestamp": WORLD.now(),
        "HistoryItemType": "Action",
        "HistorySummary": f"{said} action {action}",
    }
    WORLD.history.append((region, item))
    return role


def describe_alarm_history(self: Any) -> ActionResult:
    """Answer what alarms did, the newest first."""
    since = moment(self._get_param("StartDate"))
    found = [i for r, i in WORLD.history if r == self.region and i["Timestamp"] >= since]
    return ActionResult({"AlarmHistoryItems": found[::-1]})


def list_subscriptions_by_topic(self: Any) -> ActionResult:
    """Answer who is subscribed; an address that has not agreed has no ARN yet.

    Source: SNS API reference, Subscribe: "PendingConfirmation".
    """
    found, _ = self.backend.list_subscriptions_by_topic(self._get_param("TopicArn"))
    shown = [
        {
            "SubscriptionArn": "PendingConfirmation" if WORLD.unconfirmed else s.arn,
            "Protocol": s.protocol,
            "Endpoint": s.endpoint,
            "Owner": ACCOUNT,
            "TopicArn": s.topic.arn,
        }
        for s in found
    ]
    return ActionResult({"Subscriptions": shown})


def install() -> None:
    """Patch moto's classes."""
    SNSResponse.list_subscriptions_by_topic = list_subscriptions_by_topic
    CloudWatchResponse.get_metric_data = get_metric_data
    CloudWatchResponse.describe_alarm_history = describe_alarm_history
