"""The price table: what a figure is, where it was read and when, and a refresh from AWS's list."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import botocore.exceptions as be
import yaml

from ..aws.problems import ClassroomError
from ..spec import instance_types
from ..spec.class_file import ClassSpec
from . import pricelist

OLD_DAYS = 90
KEPT = "prices.yml"  # in out/<class>: what provision read of AWS's Pricing API
HEAD = """\
# Prices in US dollars, for forecasts. `sources` says where a figure was read, and when.
# Written by `python -m classroom prices CLASS --refresh`; class.yml names it by `prices:`.
"""
UNITS = {
    "on_demand_hour": "an hour",
    "capacity_block_hour": "an hour",
    "spot_share": "of on-demand",
    "gp3_gib_month": "a GiB and month",
    "public_ipv4_hour": "an hour",
    "alarm_month": "a month",
    "automation_step": "a step",
    "action_budget_day": "a day",
    "s3_gib_month": "a GiB and month",
    "s3_write": "a request",
    "lambda_gib_second": "a GiB and second",
    "lambda_request": "a request",
}
# What every forecast uses apart from the machine, and what class.yml may ask for.
USED = ("gp3_gib_month", "public_ipv4_hour", "alarm_month", "automation_step")
STOPPING, COPIES = ("action_budget_day",), ("s3_gib_month", "s3_write")
LINKS = ("lambda_gib_second", "lambda_request")


@dataclass(frozen=True)
class Price:
    """Hold one figure; `as_of` is None when the table does not date it."""

    figure: str
    usd: float
    source: str
    as_of: dt.date | None
    from_memory: bool

    def age(self, today: dt.date) -> int | None:
        """Return how many days ago it was read."""
        return (today - self.as_of).days if self.as_of else None

    def old(self, today: dt.date) -> bool:
        """Return whether it was read more than OLD_DAYS ago, or nobody knows when."""
        days = self.age(today)
        return days is None or days > OLD_DAYS

    def provenance(self, today: dt.date) -> str:
        """Return where it comes from, in a few words."""
        days = self.age(today)
        when = f"{self.as_of}, {days} days ago" if days is not None else "no date"
        return f"from memory, {when}" if self.from_memory else f"AWS, {when}"


def table(spec: ClassSpec) -> dict[str, Any]:
    """Return the price table: the file that class.yml names, else what `renew` wrote, else ours."""
    if spec.prices:
        return instance_types.price_table(str(spec.folder / spec.prices))
    if (spec.out / KEPT).exists():
        return instance_types.price_table(str(spec.out / KEPT))
    return instance_types.price_table()


def _date(value: Any) -> dt.date | None:
    try:
        return value if isinstance(value, dt.date) else dt.date.fromisoformat(str(value))
    except ValueError:
        return None


def price(prices: dict[str, Any], figure: str) -> Price:
    """Return one figure of a table, `group.name` or `name`; a figure that the table lacks is taken
    from ours, which an older copy of it may not have."""
    group, _, name = figure.partition(".")
    value = (prices.get(group) or {}).get(name) if name else prices.get(group)
    if value is None and prices is not instance_types.price_table():
        return price(instance_types.price_table(), figure)
    sources = prices.get("sources") or {}
    where = sources.get(figure) or sources.get(group) or prices
    return Price(
        figure,
        float(value or 0.0),
        str(where.get("source", "")),
        _date(where.get("as_of")),
        bool(where.get("from_memory")),
    )


def used(spec: ClassSpec) -> list[Price]:
    """Return the figures that a class is planned with."""
    asked = ((spec.budget.stop_each, STOPPING), (spec.work_copies, COPIES), (spec.my, LINKS))
    names = [*USED, *(n for wanted, group in asked if wanted for n in group)]
    return [hourly_price(spec), *(price(table(spec), n) for n in names)]


def all_prices(prices: dict[str, Any]) -> list[Price]:
    """Return all figures of a table."""
    names = [
        *(f"{g}.{n}" for g in ("on_demand_hour", "capacity_block_hour") for n in prices.get(g, {})),
        *(n for n in UNITS if not n.endswith("_hour") or n == "public_ipv4_hour"),
    ]
    return [price(prices, n) for n in names]


def hourly(spec: ClassSpec, market: str | None = None) -> float:
    """Return dollars an hour of one machine."""
    return hourly_price(spec, market).usd


def hourly_price(spec: ClassSpec, market: str | None = None) -> Price:
    """Return dollars an hour of one machine, and where they come from."""
    prices, market = table(spec), market or spec.market
    on_demand = price(prices, f"on_demand_hour.{spec.instance_type}")
    if market == "capacity-block":
        block = price(prices, f"capacity_block_hour.{spec.instance_type}")
        return block if block.usd else on_demand
    if market == "spot":
        share = price(prices, "spot_share").usd
        return Price(
            on_demand.figure,
            on_demand.usd * share,
            on_demand.source,
            on_demand.as_of,
            on_demand.from_memory,
        )
    return on_demand


def about(spec: ClassSpec, now: dt.datetime) -> list[str]:
    """Return what to know about the figures that a class is planned with: how old, from where, how
    to refresh them; [] when they are young and were read from their source."""
    planned = used(spec)
    name, today = spec.prices or "infra/classroom/money/prices.yml", now.date()
    undated = [p.figure for p in planned if p.as_of is None]
    memory = [p.figure for p in planned if p.from_memory]
    old = [p for p in planned if (p.age(today) or 0) > OLD_DAYS]
    lines = []
    if undated:
        lines.append(f"{name} has no date for {', '.join(undated)}; write as_of as 2027-01-15.")
    if memory:
        lines.append(
            f"From memory, not copied from AWS's pages, are in {name}: {', '.join(memory)}. Check"
            " them before you plan with them."
        )
    if old:
        days = max(p.age(today) or 0 for p in old)
        lines.append(f"Up to {days} days old are in {name}: {', '.join(p.figure for p in old)}.")
    if lines:
        lines.append("To refresh: python -m classroom prices CLASS --refresh (AWS's public list).")
    return lines


def rate(spec: ClassSpec, today: dt.date) -> str:
    """Return the dollars an hour that caps and `status` count with, and where they come from."""
    price = hourly_price(spec)
    old = " (old: prices --refresh)" * price.old(today)
    return f"${price.usd:g} an hour, {price.provenance(today)}{old}"


def show(spec: ClassSpec, today: dt.date) -> dict[str, Any]:
    """Return the table as a result: each figure with its source and age."""
    prices = table(spec)
    rows = [
        [p.figure, f"{p.usd:g}", UNITS[p.figure.split(".")[0]], p.provenance(today), p.source]
        for p in all_prices(prices)
    ]
    old = [r for r, p in zip(rows, all_prices(prices)) if (p.age(today) or 0) > OLD_DAYS]
    name = spec.prices or "infra/classroom/money/prices.yml"
    return {
        "tables": [
            {
                "title": f"Prices in {name}, {prices.get('region', 'US regions')}",
                "columns": ["figure", "dollars", "", "read", "where"],
                "rows": rows,
                "right": [1],
            }
        ],
        "summary": f"{len(rows)} figures, {len(old)} older than {OLD_DAYS} days",
    }


def _found(region: str, client: Callable[[], Any] | None) -> dict[str, pricelist.Found]:
    """Return AWS's figures: from its Pricing API if this account may ask it, else from its list."""
    return _asked(region, client) or pricelist.read(region)


def _asked(region: str, client: Callable[[], Any] | None) -> dict[str, pricelist.Found]:
    """Return what the Pricing API says; {} without an account, a permission, or an answer."""
    if client is None or os.environ.get("CLASSROOM_PRICE_LIST"):
        return {}
    try:
        return pricelist.ask(client(), region)
    except (be.ClientError, be.BotoCoreError, ClassroomError):
        return {}


def renew(spec: ClassSpec, today: dt.date, client: Callable[[], Any]) -> bool:
    """Ask the Pricing API for figures that are old, unless class.yml names a table of its own;
    return whether there are new ones now, in out/<class>."""
    if spec.prices or not any(p.old(today) for p in used(spec)):
        return False
    region = spec.regions[0]
    figures = _asked(region, client)
    if figures:
        _write(spec.out / KEPT, pricelist.merged(table(spec), figures, region, today))
    return bool(figures)


def _write(path: Path, prices: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(HEAD + yaml.safe_dump(_dated(prices), sort_keys=False), encoding="utf-8")
    temporary.replace(path)
    instance_types.price_table.cache_clear()


def refresh(
    spec: ClassSpec,
    today: dt.date,
    check: bool = False,
    client: Callable[[], Any] | None = None,
) -> dict[str, Any]:
    """Read AWS's prices for the class's first region and write prices.yml next to class.yml."""
    region, name = spec.regions[0], spec.prices or "prices.yml"
    figures = _found(region, client)
    old = table(spec)
    new = pricelist.merged(old, figures, region, today)
    path = Path(spec.folder / name)
    if not check and figures:
        _write(path, new)
    rows = [
        [n, f"{price(old, n).usd:g}", f"{f.usd:g}", f.source] for n, f in sorted(figures.items())
    ]
    kept = [w.figure for w in pricelist.WANTED if w.figure not in figures]
    lines = [f"{n} is not in the list of {region} and keeps its figure and date." for n in kept]
    lines += [f"{n} keeps its figure and date: {why}." for n, why in pricelist.NOT_LISTED.items()]
    if figures and not spec.prices and not check:
        lines.append(f"Write `prices: {name}` into class.yml to plan with it.")
    return {
        "tables": [
            {
                "title": f"AWS's prices for {region}",
                "columns": ["figure", "before", "now", "where"],
                "rows": rows,
                "right": [1, 2],
            }
        ],
        "lines": lines,
        "changed": bool(figures),
        "summary": f"{len(figures)} figures read"
        + (f", written to {path}" if figures and not check else "; nothing was written"),
        "exit_code": 0 if figures else 1,
    }


def _dated(prices: dict[str, Any]) -> dict[str, Any]:
    """Return the table with dates as dates, so that YAML writes them without quotes."""
    out = {**prices, "as_of": _date(prices.get("as_of")) or prices.get("as_of")}
    out["sources"] = {
        n: {**s, "as_of": _date(s["as_of"]) or s["as_of"]} for n, s in prices["sources"].items()
    }
    return out
