"""The price list's query API, which moto lacks: it knows the prices that a test sets.

Source: AWS Billing guide, "Using the AWS Price List Query API" (each item of PriceList is a JSON
text; a type that is not sold in the region gives an empty list).
"""

from __future__ import annotations

import json
from typing import Any

from .world import WORLD


def found(params: dict[str, Any], hourly: dict[str, float]) -> dict[str, Any]:
    """Answer GetProducts with the on-demand price of the instance type that the filters name."""
    wanted = {f["Field"]: f["Value"] for f in params.get("Filters", [])}
    kind = wanted.get("instanceType", "")
    if params.get("ServiceCode") != "AmazonEC2" or kind not in hourly:
        return {"FormatVersion": "aws_v1", "PriceList": []}
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": f"{hourly[kind]:.10f}"}}
    item = {
        "product": {"sku": "SKU0", "productFamily": "Compute Instance", "attributes": wanted},
        "serviceCode": "AmazonEC2",
        "terms": {"OnDemand": {"SKU0.TERM": {"priceDimensions": {"SKU0.TERM.RATE": dimension}}}},
    }
    return {"FormatVersion": "aws_v1", "PriceList": [json.dumps(item)]}


def answer(service: str, op: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """Answer a call of the query API; None for other calls."""
    return found(params, WORLD.hourly) if (service, op) == ("pricing", "GetProducts") else None
