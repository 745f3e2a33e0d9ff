"""Read today's figures from AWS: from its Pricing API with an account that may ask it, else from
the public price list: no account, no credentials, a download of a few hundred megabytes.

The API's answers hold the same products and prices ("GetProducts", AWS Pricing API reference), page
by page. The list is documented in "Getting price list files manually" and "Reading the price list
files" (AWS Billing guide): an index names each service's region index, which names the file of a
region. We read the CSV form of that file, line by line: EC2's JSON of one region takes gigabytes of
memory.
"""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..aws.problems import ClassroomError
from ..spec.instance_types import TYPES

HOME = "https://pricing.us-east-1.amazonaws.com"
API = "AWS Pricing API"
INDEX = "/offers/v1.0/aws/index.json"
TIMEOUT_S = 60
# Of a region; others, as in Lambda-Managed-Instances-Request, are another thing's.
PREFIX = re.compile(r"((EU|[A-Z]{3}\d)-)?")


@dataclass(frozen=True)
class Wanted:
    """Say where a figure of our table stands in the list: service and usage type (regions but
    us-east-1 put a prefix before it, such as EU- or USE2-), and the operation if several share that
    type."""

    figure: str  # dots go into the table
    service: str
    usage: str
    unit: str  # "": whatever it is
    operation: str = ""
    attribute: tuple[str, str] = ("", "")  # by which the API narrows a large service


WANTED = (
    *(  # operation RunInstances without a suffix is Linux without bought software
        Wanted(
            f"on_demand_hour.{t.name}",
            "AmazonEC2",
            f"BoxUsage:{t.name}",
            "Hrs",
            "RunInstances",
            ("instanceType", t.name),
        )
        for t in TYPES.values()
        if not t.capacity_block_only
    ),
    Wanted(
        "gp3_gib_month",
        "AmazonEC2",
        "EBS:VolumeUsage.gp3",
        "GB-Mo",
        attribute=("volumeApiName", "gp3"),
    ),
    Wanted("public_ipv4_hour", "AmazonVPC", "PublicIPv4:InUseAddress", "Hrs"),
    Wanted("alarm_month", "AmazonCloudWatch", "CW:AlarmMonitorUsage", "Alarms"),
    Wanted("s3_gib_month", "AmazonS3", "TimedStorage-ByteHrs", "GB-Mo"),
    Wanted("s3_write", "AmazonS3", "Requests-Tier1", "Requests"),
    # AWS's own texts write their units in several ways; the usage types name nothing else
    Wanted("lambda_gib_second", "AWSLambda", "Lambda-GB-Second", ""),
    Wanted("lambda_request", "AWSLambda", "Request", ""),
)
NOT_LISTED = {
    "capacity_block_hour": "each block has a price of its own, told when it is offered",
    "spot_share": "spot moves all the time; it is an assumption",
    "automation_step": "its name in the list is not known to us",
    "action_budget_day": "its name in the list is not known to us",
}


@dataclass(frozen=True)
class Found:
    """Hold one figure and the file that it comes from."""

    usd: float
    source: str


def read(region: str) -> dict[str, Found]:
    """Return what the list says of our figures in a region; figures that are not in it are left
    out. Raise ClassroomError when the list cannot be had or is not what is documented."""
    home = os.environ.get("CLASSROOM_PRICE_LIST", HOME).rstrip("/")
    offers = _json(home + INDEX, "offers")
    figures: dict[str, Found] = {}
    for service in dict.fromkeys(w.service for w in WANTED):
        if service not in offers or "currentRegionIndexUrl" not in offers[service]:
            raise _not_as_documented(home + INDEX, f"it names no region index of {service}")
        regions = home + offers[service]["currentRegionIndexUrl"]
        files = _json(regions, "regions")
        if region not in files:  # the service is not sold there
            continue
        url = home + files[region]["currentVersionUrl"].removesuffix(".json") + ".csv"
        wanted = [w for w in WANTED if w.service == service]
        for figure, usd in _figures(_rows(url), wanted, url).items():
            figures[figure] = Found(usd, url)
    return figures


def ask(client: Any, region: str) -> dict[str, Found]:
    """Return what the Pricing API says of our figures in a region, as `read` does; botocore's
    errors are the caller's."""
    figures: dict[str, Found] = {}
    for service, attribute in dict.fromkeys((w.service, w.attribute) for w in WANTED):
        wanted = [w for w in WANTED if (w.service, w.attribute) == (service, attribute)]
        pages = client.get_paginator("get_products").paginate(
            ServiceCode=service,
            FormatVersion="aws_v1",
            Filters=[
                {"Type": "TERM_MATCH", "Field": field, "Value": value}
                for field, value in (("regionCode", region), attribute)
                if field
            ],
        )
        rows = (row for page in pages for text in page["PriceList"] for row in _product(text))
        for figure, usd in _figures(rows, wanted, API).items():
            figures[figure] = Found(usd, f"{API}, {service}")
    return figures


def _product(text: Any) -> Iterator[dict[str, str]]:
    """Yield the prices of a product of the API as rows of the list."""
    try:
        product = json.loads(text) if isinstance(text, str) else text
        about = product["product"]["attributes"]
        for term in product["terms"].get("OnDemand", {}).values():
            for price in term["priceDimensions"].values():
                yield {
                    "TermType": "OnDemand",
                    "Currency": "USD",
                    "Unit": price["unit"],
                    "PricePerUnit": price["pricePerUnit"].get("USD", "0"),
                    "usageType": about.get("usagetype", ""),
                    "operation": about.get("operation", ""),
                }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _not_as_documented(API, f"a product has no {error}") from error


def _figures(rows: Iterable[dict[str, str]], wanted: list[Wanted], url: str) -> dict[str, float]:
    """Return figure -> dollars. Of several tiers the dearest counts: a forecast should not be too
    low."""
    out: dict[str, float] = {}
    for row in rows:
        if row["TermType"] != "OnDemand" or row["Currency"] != "USD":
            continue
        for w in wanted:
            usage = row["usageType"]
            if usage.removesuffix(w.usage) == usage or not PREFIX.fullmatch(usage[: -len(w.usage)]):
                continue
            if (w.unit or row["Unit"]) != row["Unit"]:
                continue
            if (w.operation or row["operation"]) != row["operation"]:
                continue
            try:
                usd = float(row["PricePerUnit"])
            except ValueError as error:
                raise _not_as_documented(url, f"a price is {row['PricePerUnit']!r}") from error
            if usd > 0:
                out[w.figure] = max(usd, out.get(w.figure, 0.0))
    return out


def _rows(url: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a price file; a few lines about the file come before the column names."""
    needed = ("TermType", "Currency", "Unit", "PricePerUnit", "usageType", "operation")
    with _open(url) as answer:
        lines = csv.reader(io.TextIOWrapper(answer, encoding="utf-8", newline=""))
        columns: list[str] = []
        for cells in lines:
            if not columns:
                if cells and cells[0] == "SKU":
                    columns = cells
                    missing = [c for c in needed if c not in columns]
                    if missing:
                        raise _not_as_documented(url, f"it has no column {missing[0]}")
                continue
            if len(cells) == len(columns):
                yield dict(zip(columns, cells))
        if not columns:
            raise _not_as_documented(url, "it has no line of column names")


def _json(url: str, key: str) -> dict[str, Any]:
    with _open(url) as answer:
        try:
            return json.load(answer)[key]
        except (ValueError, KeyError, TypeError) as error:
            raise _not_as_documented(url, f"it is not JSON with {key!r}") from error


@contextmanager
def _open(url: str) -> Iterator[Any]:
    """Open an address; whatever breaks, also while reading, becomes a sentence."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            yield answer
    except (urllib.error.URLError, OSError, UnicodeDecodeError, csv.Error) as error:
        raise ClassroomError(
            f"AWS's price list could not be read: {url}: {getattr(error, 'reason', error)}.",
            "Nothing was changed. Try again later, or correct the table by hand.",
        ) from error


def _not_as_documented(url: str, what: str) -> ClassroomError:
    return ClassroomError(
        f"AWS's price list is not as documented: {url}: {what}.",
        "Nothing was changed. Correct the table by hand, and tell us.",
    )


def merged(
    table: dict[str, Any], found: dict[str, Found], region: str, today: dt.date
) -> dict[str, Any]:
    """Return the table with what was found in it, dated; what was not found keeps its date."""
    out = json.loads(json.dumps(table, default=str))
    out["region"], sources = region, out.setdefault("sources", {})
    for figure, f in found.items():
        group, _, name = figure.partition(".")
        if name:
            out.setdefault(group, {})[name] = f.usd
        else:
            out[group] = f.usd
        sources[figure] = {"source": f.source, "as_of": today.isoformat()}
    return out
