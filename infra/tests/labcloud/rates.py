"""How fast AWS may be asked: token buckets by account, region and operation, in virtual time.

Source: EC2 guide, "Request throttling for the Amazon EC2 API" (bucket and refill of RunInstances
and StartInstances 5 and 2, of reading calls 100 and 20; other changes 50 and 5 are assumed);
CloudWatch guide, "CloudWatch service quotas" (PutMetricAlarm, DeleteAlarms, SetAlarmState 3 a
second, DescribeAlarms 9, ListTagsForResource 10); Budgets publishes none (10 and 5 are assumed).
"""

from __future__ import annotations

from .world import WORLD

EC2_READ, EC2_CHANGE = (100.0, 20.0), (50.0, 5.0)
BUCKETS: dict[str, tuple[float, float]] = {
    "ec2:RunInstances": (5, 2),
    "ec2:StartInstances": (5, 2),
    "monitoring:PutMetricAlarm": (3, 3),
    "monitoring:DeleteAlarms": (3, 3),
    "monitoring:SetAlarmState": (3, 3),
    "monitoring:DescribeAlarms": (9, 9),
    "monitoring:ListTagsForResource": (10, 10),
    "budgets:*": (10, 5),
}
CODES = {"ec2": ("RequestLimitExceeded", 503), "budgets": ("ThrottlingException", 400)}


def limit(service: str, op: str) -> tuple[str, tuple[float, float]] | None:
    """Return the bucket of an operation: its name, (size, tokens a second)."""
    for name in (f"{service}:{op}", f"{service}:*"):
        if name in BUCKETS:
            return name, BUCKETS[name]
    if service == "ec2":
        return op, EC2_READ if op.startswith("Describe") else EC2_CHANGE
    return None


def throttled(account: str, service: str, region: str, op: str) -> dict[str, object] | None:
    """Take a token; return the refusal when there is none."""
    found = limit(service, op)
    if found is None or not WORLD.strict["rates"]:
        return None
    name, (size, rate) = found
    now = WORLD.now().timestamp()
    with WORLD.lock:
        tokens, at = WORLD.buckets.get((account, region, name), (size, now))
        tokens = min(size, tokens + max(0.0, now - at) * rate)
        enough = tokens >= 1
        WORLD.buckets[(account, region, name)] = (tokens - enough, now)
    if enough:
        return None
    code, status = CODES.get(service, ("Throttling", 400))
    return {"code": code, "status": status, "message": "Rate exceeded"}
