"""What a class will cost and what it has cost: forecasts from a dated table, hours from
CloudWatch."""

from __future__ import annotations

import datetime as dt
import json
import math
from dataclasses import dataclass
from typing import Any

import botocore.exceptions as be

from . import machines
from .cloud import GLOBAL, doing, every
from .run import Run
from .spec import ClassSpec

HOURS_PER_MONTH = 730.0
# Basic monitoring sends five-minute periods of 5 samples each. (documented: EC2 metrics)
SAMPLES_PER_HOUR = 60
REGION_NAMES = {
    "us-east-1": "US East (N. Virginia)",
    "us-east-2": "US East (Ohio)",
    "us-west-2": "US West (Oregon)",
}


@dataclass(frozen=True)
class Forecast:
    """Hold a forecast in dollars, and what it assumes."""

    machines: int
    hourly_usd: float
    planned_usd: float
    disk_usd: float
    address_usd: float
    worst_usd: float
    hours_in_budget: float
    source: str

    @property
    def total_usd(self) -> float:
        """Return what the planned use will cost in all."""
        return self.planned_usd + self.disk_usd + self.address_usd


def table(spec: ClassSpec) -> dict[str, Any]:
    """Return the price table: the file named in class.yml, else ours."""
    return (
        machines.price_table(str(spec.folder / spec.prices))
        if spec.prices
        else machines.price_table()
    )


OLD_DAYS = 180


def about_prices(spec: ClassSpec, now: dt.datetime) -> list[str]:
    """Return what to know about the price table: how old, from where, how to refresh it; [] when it
    is young and was copied from its source."""
    prices = table(spec)
    as_of = prices.get("as_of")
    if not isinstance(as_of, dt.date):
        return [f"The price table has no date (as_of: {as_of!r}); write one as 2027-01-15."]
    days = (now.date() - as_of).days
    name = spec.prices or "infra/classroom/prices.yml"
    lines = []
    if prices.get("from_memory"):
        lines.append(
            f"The prices in {name} were written down from memory and not copied from"
            f" {prices['source'].split(' ')[0]}: check them there before you plan with them."
        )
    if days > OLD_DAYS:
        lines.append(f"The prices in {name} are {days} days old.")
    if lines:
        lines.append(
            "To refresh: allow pricing:GetProducts, which asks AWS for the machine's price each"
            " time; or copy the table next to class.yml, correct it, set as_of, and name it by"
            " `prices:`."
        )
    return lines


def hourly(spec: ClassSpec, market: str | None = None) -> float:
    """Return dollars an hour of one machine."""
    prices, market = table(spec), market or spec.market
    if market == "capacity-block":
        return float(
            prices["capacity_block_hour"].get(spec.instance_type)
            or prices["on_demand_hour"].get(spec.instance_type, 0)
        )
    share = float(prices["spot_share"]) if market == "spot" else 1.0
    return float(prices["on_demand_hour"][spec.instance_type]) * share


def count(spec: ClassSpec) -> int:
    """Return how many machines the roster needs."""
    return (
        len(spec.students)
        if spec.mode == "per-student"
        else math.ceil(len(spec.students) / spec.machine.cores)
    )


def forecast(spec: ClassSpec, now: dt.datetime, live_hourly: float | None = None) -> Forecast:
    """Return the cost of the plan (hours_per_student) and the most that the nightly stop lets
    happen."""
    prices, n = table(spec), count(spec)
    rate = live_hourly or hourly(spec)
    days = max(1, (spec.teardown_at - now).days + 1)
    months = days / 30.4
    disk = n * spec.disk_gib * float(prices["gp3_gib_month"]) * months
    address_hours = days * 24.0 if spec.elastic_ip else spec.hours_per_student
    address = n * float(prices["public_ipv4_hour"]) * address_hours
    hour, minute = map(int, spec.stop_nightly.split(":"))
    awake = (
        hour + minute / 60 - 8 if hour >= 8 else hour + minute / 60 + 16
    )  # everybody starts at 08:00 and never stops
    worst = n * rate * awake * days + disk + address
    planned = n * rate * spec.hours_per_student
    if spec.market == "capacity-block" and spec.capacity_block:
        planned = worst = n * rate * spec.capacity_block.hours
    source = (
        "AWS Pricing API, now"
        if live_hourly
        else f"price table of {prices.get('as_of')} ({prices['source']}"
        + (", from memory)" if prices.get("from_memory") else ")")
    )
    return Forecast(
        n, rate, planned, disk, address, worst, spec.budget.per_student_usd / rate, source
    )


def live_price(run: Run, region: str) -> float | None:
    """Return today's on-demand price from the Pricing API; None when it may not be asked or does
    not know."""
    filters = [
        ("instanceType", run.spec.instance_type),
        ("regionCode", region),
        ("operatingSystem", "Linux"),
        ("preInstalledSw", "NA"),
        ("tenancy", "Shared"),
        ("capacitystatus", "Used"),
    ]
    try:
        found = run.cloud.client("pricing", GLOBAL).get_products(
            ServiceCode="AmazonEC2",
            Filters=[{"Type": "TERM_MATCH", "Field": f, "Value": v} for f, v in filters],
        )["PriceList"]
        for item in found:
            terms = (json.loads(item) if isinstance(item, str) else item)["terms"]["OnDemand"]
            for term in terms.values():
                for dimension in term["priceDimensions"].values():
                    if float(dimension["pricePerUnit"]["USD"]) > 0:
                        return float(dimension["pricePerUnit"]["USD"])
    except (be.BotoCoreError, be.ClientError, KeyError, ValueError):
        return None
    return None


def hours(run: Run) -> dict[str, dict[str, Any]]:
    """Return hours and dollars by machine since it was first seen.

    EC2 keeps no history and Cost Explorer lags a day; but a running machine sends one CPU sample
    per five minutes,
    and CloudWatch keeps their count for 15 months, also of machines that are long terminated.
    """
    path = run.spec.out / "ledger.json"
    ledger: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    end = run.cloud.now()
    by_region: dict[str, list[str]] = {}
    for iid, entry in ledger.items():
        by_region.setdefault(entry["region"], []).append(iid)
    out: dict[str, dict[str, Any]] = {}

    def one(job: tuple[str, list[str], dt.datetime]) -> list[tuple[str, float]]:
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
            found = run.cloud.pages(
                "cloudwatch",
                region,
                "get_metric_data",
                "MetricDataResults",
                MetricDataQueries=queries,
                StartTime=start,
                EndTime=end,
            )
        samples: dict[str, float] = {}
        for r in found:
            samples[r["Id"]] = samples.get(r["Id"], 0.0) + sum(r["Values"])
        return [(i, samples.get(f"q{k}", 0.0) / SAMPLES_PER_HOUR) for k, i in enumerate(ids)]

    jobs = []
    for region, ids in by_region.items():
        start = min(dt.datetime.fromisoformat(ledger[i]["first_seen"]) for i in ids) - dt.timedelta(
            hours=1
        )
        jobs += [(region, ids[i : i + 400], start) for i in range(0, len(ids), 400)]
    for results in every(one, jobs):
        for iid, h in results:
            entry = ledger[iid]
            rate = (
                hourly(
                    run.spec.model_copy(update={"instance_type": entry["type"]}), entry["market"]
                )
                if entry["type"] in machines.TYPES
                else 0.0
            )
            sums = out.setdefault(
                entry["machine"], {"hours": 0.0, "usd": 0.0, "students": entry["students"]}
            )
            sums["hours"] += h
            sums["usd"] += h * rate
    return out
