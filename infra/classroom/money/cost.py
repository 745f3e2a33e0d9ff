"""What a class has cost: hours from CloudWatch, dollars from the price table."""

from __future__ import annotations

import datetime as dt
from typing import Any

from ..aws.cloud import aware, doing, each
from ..aws.problems import ClassroomError
from ..spec import instance_types, ledger
from ..spec.run import Run
from . import prices

# Basic monitoring sends five-minute periods of 5 samples each. (documented: EC2 metrics)
SAMPLES_PER_HOUR = 60


def hours(run: Run, blind: list[str] | None = None) -> dict[str, dict[str, Any]]:
    """Return hours and dollars by machine since it was first seen. With `blind`, what cannot be
    read goes in there and is missing here; without it that is an error."""
    out: dict[str, dict[str, Any]] = {}
    for entry in by_instance(run, blind).values():
        sums = out.setdefault(
            entry["machine"], {"hours": 0.0, "usd": 0.0, "students": entry["students"]}
        )
        sums["hours"] += entry["hours"]
        sums["usd"] += entry["usd"]
    return out


def by_instance(run: Run, blind: list[str] | None = None) -> dict[str, dict[str, Any]]:
    """Return hours and dollars by instance id: {"machine", "students", "hours", "usd",
    "days": {date: hours}} (UTC days).

    EC2 keeps no history and Cost Explorer lags a day; but a running machine sends one CPU sample
    per five minutes,
    and CloudWatch keeps their count for 15 months, also of machines that are long terminated.
    With `blind`, machines whose hours cannot be read are missing, and the reason is in there.
    """
    entries = ledger.local(run.spec.out)
    end = run.cloud.now()
    by_region: dict[str, list[str]] = {}
    for iid, entry in entries.items():
        by_region.setdefault(entry["region"], []).append(iid)
    out: dict[str, dict[str, Any]] = {}

    def one(job: tuple[str, list[str], dt.datetime]) -> list[tuple[str, dict[str, float]]]:
        region, ids, start = job
        queries = [
            {
                "Id": f"q{k}",
                "ReturnData": True,
                "MetricStat": {
                    "Stat": "SampleCount",
                    "Period": 86400,
                    "Metric": {
                        "Namespace": "AWS/EC2",
                        "MetricName": "CPUUtilization",
                        "Dimensions": [{"Name": "InstanceId", "Value": i}],
                    },
                },
            }
            for k, i in enumerate(ids)
        ]
        with doing("read the hours", region):
            pages = run.cloud.pages(
                "cloudwatch",
                region,
                "get_metric_data",
                "MetricDataResults",
                MetricDataQueries=queries,
                StartTime=start,
                EndTime=end,
            )
        days: dict[str, dict[str, float]] = {}
        for r in pages:
            hours = days.setdefault(r["Id"], {})
            for at, count in zip(r["Timestamps"], r["Values"]):
                day = aware(at).date().isoformat()
                hours[day] = hours.get(day, 0.0) + count / SAMPLES_PER_HOUR
        return [(i, days.get(f"q{k}", {})) for k, i in enumerate(ids)]

    jobs = []
    for region, ids in by_region.items():
        start = min(
            dt.datetime.fromisoformat(entries[i]["first_seen"]) for i in ids
        ) - dt.timedelta(hours=1)
        jobs += [(region, ids[i : i + 400], start) for i in range(0, len(ids), 400)]
    for (region, *_), results, error in each(one, jobs):
        if error is not None:
            if blind is None or not isinstance(error, ClassroomError):
                raise error
            blind.append(f"The hours of machines in {region} are not known: {error}")
        for iid, days in results or []:
            h = sum(days.values())
            entry = entries[iid]
            rate = (
                prices.hourly(
                    run.spec.model_copy(update={"instance_type": entry["type"]}), entry["market"]
                )
                if entry["type"] in instance_types.TYPES
                else 0.0
            )
            out[iid] = {
                "machine": entry["machine"],
                "students": entry["students"],
                "hours": h,
                "usd": h * rate,
                "rate": rate,
                "days": days,
            }
    return out
