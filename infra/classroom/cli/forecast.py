"""What a class will cost: each figure with where its price comes from."""

from __future__ import annotations

import datetime as dt
import json
import math
from dataclasses import dataclass
from typing import Any

import botocore.exceptions as be

from ..aws.cloud import GLOBAL
from ..guards import failures
from ..money import prices
from ..spec.class_file import ClassSpec
from ..spec.run import Run
from ..students import links
from ..work import copies

DAYS_PER_MONTH = 30.4
# AWS-StopEC2Instance takes two steps for each machine that it is aimed at, running or not.
STEPS_PER_NIGHT = 2
FREE_ACTION_BUDGETS = 2  # in an account (Budgets pricing page)
# Of copies of the work: the timer of the role work_copies, and how large one is, packed (assumed:
# sources, results and a few profiles).
COPIES_PER_HOUR, COPY_GIB = 6, 0.02
# Of the function behind the links: the schedule that looks after caps, and what a student asks in a
# day and what an answer takes (both assumed; the first of a quiet hour takes that long).
LOOKS_PER_DAY, CALLS_PER_STUDENT_DAY, CALL_SECONDS = 96, 20, 2.0


@dataclass(frozen=True)
class Forecast:
    """Hold a forecast in dollars, and the prices that it rests on."""

    machines: int
    hourly_usd: float
    planned_usd: float
    disk_usd: float
    address_usd: float
    alarm_usd: float
    step_usd: float
    stop_usd: float
    copies_usd: float
    links_usd: float
    worst_usd: float
    hours_in_budget: float
    sources: dict[str, str]  # what -> where its price comes from and how old it is

    @property
    def other_usd(self) -> float:
        """Return what comes on top of the machines' hours."""
        fixed = self.disk_usd + self.address_usd + self.alarm_usd + self.step_usd + self.stop_usd
        return fixed + self.copies_usd + self.links_usd

    @property
    def total_usd(self) -> float:
        """Return what the planned use will cost in all."""
        return self.planned_usd + self.other_usd


def count(spec: ClassSpec) -> int:
    """Return how many machines the roster needs."""
    if spec.cluster:
        return spec.cluster.nodes
    return (
        len(spec.students)
        if spec.mode == "per-student"
        else math.ceil(len(spec.students) / spec.machine.cores)
    )


def forecast(spec: ClassSpec, now: dt.datetime, live_hourly: float | None = None) -> Forecast:
    """Return the cost of the plan (hours_per_student) and the most that the nightly stop lets
    happen."""
    table, n, today = prices.table(spec), count(spec), now.date()
    days = max(1, (spec.teardown_at - now).days + 1)
    months = days / DAYS_PER_MONTH
    machine = prices.hourly_price(spec)
    rate = live_hourly or machine.usd
    figures = (*prices.USED, *prices.STOPPING, *prices.COPIES, *prices.LINKS)
    gp3, ipv4, alarm, step, stop, kept, write, second, request = (
        prices.price(table, f) for f in figures
    )
    stopping = 1 + n if spec.budget.stop_each else 1  # the class's budget, and one each
    address_hours = days * 24.0 if spec.elastic_ip else spec.hours_per_student
    parts = {
        "disk_usd": n * spec.disk_gib * gp3.usd * months,
        "address_usd": 0.0 if spec.private else n * ipv4.usd * address_hours,
        "alarm_usd": (n + failures.count(spec)) * alarm.usd * months,
        "step_usd": n * step.usd * STEPS_PER_NIGHT * days,
        "stop_usd": max(0, stopping - FREE_ACTION_BUDGETS) * stop.usd * days,
        "copies_usd": 0.0,
        "links_usd": 0.0,
    }
    if spec.work_copies:
        made = spec.hours_per_student * COPIES_PER_HOUR  # at most: what did not change is not sent
        gib_months = COPY_GIB * (
            made * copies.KEEP_VERSIONS_DAYS / DAYS_PER_MONTH
            + months
            + copies.KEEP_AFTER_DAYS / DAYS_PER_MONTH
        )
        # with each copy a look for what the staff put there, as if it were as dear
        parts["copies_usd"] = n * (gib_months * kept.usd + 2 * made * write.usd)
    if spec.my:
        calls = days * (LOOKS_PER_DAY + CALLS_PER_STUDENT_DAY * len(spec.students))
        parts["links_usd"] = calls * (request.usd + CALL_SECONDS * links.MEMORY / 1024 * second.usd)
    hour, minute = map(int, spec.stop_nightly.split(":"))
    awake = (
        hour + minute / 60 - 8 if hour >= 8 else hour + minute / 60 + 16
    )  # all start at 08:00 and never stop
    used = n * rate * spec.hours_per_student
    most = n * rate * awake * days
    if spec.market == "capacity-block" and spec.capacity_block:
        used = most = n * rate * spec.capacity_block.hours
    sources = {
        "machine": "AWS Pricing API, now" if live_hourly else machine.provenance(today),
        "disk": gp3.provenance(today),
        "address": ipv4.provenance(today),
        "alarm": alarm.provenance(today),
        "step": step.provenance(today),
        "stop": stop.provenance(today),
        "copies": kept.provenance(today),
        "links": second.provenance(today),
    }
    return Forecast(
        machines=n,
        hourly_usd=rate,
        planned_usd=used,
        worst_usd=most + sum(parts.values()),
        hours_in_budget=spec.budget.per_student_usd / rate,
        sources=sources,
        **parts,
    )


def show(run: Run, live: float | None) -> dict[str, Any]:
    """Return the forecast of a class as a result."""
    spec, now = run.spec, run.cloud.now()
    f = forecast(spec, now, live)
    fleet, s = f"{f.machines} x {spec.instance_type}, {spec.market}", f.sources
    until = f"until {spec.teardown}"
    amounts = [
        (f"{fleet}, each hour", f.machines * f.hourly_usd, s["machine"]),
        (f"planned: {spec.hours_per_student:g} h each", f.planned_usd, s["machine"]),
        (f"disks, {spec.disk_gib} GiB each {until}, also while stopped", f.disk_usd, s["disk"]),
        (
            "public addresses, " + (until if spec.elastic_ip else "while machines run"),
            f.address_usd,
            s["address"],
        ),
        (f"alarms: one for each idle machine, some for guards {until}", f.alarm_usd, s["alarm"]),
        ("automation steps of the nightly stop", f.step_usd, s["step"]),
        *[("budgets that stop one student each", f.stop_usd, s["stop"])] * spec.budget.stop_each,
        *[("copies of the work (S3)", f.copies_usd, s["copies"])] * bool(spec.work_copies),
        *[("the function behind the links (Lambda)", f.links_usd, s["links"])] * bool(spec.my),
        ("planned, in all", f.total_usd, ""),
        ("worst case: all students from 08:00 to the nightly stop, every day", f.worst_usd, ""),
        (
            "class budget, at which "
            + ("all machines are stopped" if spec.budget.in_aws else "`start` refuses"),
            spec.budget.class_usd,
            "class.yml",
        ),
    ]
    rows = [[item, f"${usd:,.2f}", source] for item, usd, source in amounts]
    student = f"hours that ${spec.budget.per_student_usd:g} buy one student"
    rows.append([student, f"{f.hours_in_budget:.1f}", s["machine"]])
    if spec.market == "capacity-block":
        run.warn(
            "The hours of a capacity block are paid for whether machines run or not: the nightly"
            " stop and the idle guards save nothing there. Set `stop_nightly` to an hour without"
            " work, raise `idle.minutes`, and `start` again what was stopped."
        )
    if f.total_usd > spec.budget.class_usd:
        run.warn(
            "The plan costs more than the class budget: machines will be stopped before the end of"
            " the term."
        )
    return {
        "tables": [
            {
                "title": f"Forecast for {spec.name}",
                "columns": ["what", "dollars", "price from"],
                "rows": rows,
                "right": [1],
            }
        ],
        "lines": ["A forecast, not a bill.", *prices.about(spec, now)],
        "forecast": f.__dict__ | {"total_usd": f.total_usd},
    }


def live_price(run: Run) -> float | None:
    """Return today's on-demand price from the Pricing API; None when the class pays another one, or
    it may not be asked or does not know."""
    if run.spec.market != "on-demand":
        return None
    filters = [
        ("instanceType", run.spec.instance_type),
        ("regionCode", run.spec.regions[0]),
        ("operatingSystem", "Linux"),
        ("preInstalledSw", "NA"),
        ("tenancy", "Shared"),
        ("capacitystatus", "Used"),
    ]
    try:
        products = run.cloud.client("pricing", GLOBAL).get_products(
            ServiceCode="AmazonEC2",
            Filters=[{"Type": "TERM_MATCH", "Field": f, "Value": v} for f, v in filters],
        )["PriceList"]
        for item in products:
            terms = (json.loads(item) if isinstance(item, str) else item)["terms"]["OnDemand"]
            for term in terms.values():
                for dimension in term["priceDimensions"].values():
                    if float(dimension["pricePerUnit"]["USD"]) > 0:
                        return float(dimension["pricePerUnit"]["USD"])
    except (be.BotoCoreError, be.ClientError, KeyError, ValueError):
        return None
    return None


def behind_caps(run: Run, live: float | None) -> list[str]:
    """Return what to know about the price that caps go by."""
    spec, today = run.spec, run.cloud.now().date()
    price = prices.hourly_price(spec)
    says = f"Caps go by ${price.usd:g} an hour ({price.provenance(today)})"
    if live is not None and abs(live - price.usd) > 0.01 * live:
        return [
            f"{says}, and AWS asks ${live:g} in {spec.regions[0]}: run prices --refresh, or what"
            f" they call $100 is ${100 * live / price.usd:.0f}."
        ]
    if live is None and (price.from_memory or (price.age(today) or 0) > prices.OLD_DAYS):
        return [f"{says}: run prices --refresh and name the table in class.yml."]
    return []
