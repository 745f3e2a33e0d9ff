"""How fast AWS may be asked: token buckets by account, region and operation, in virtual time.

Source: EC2 guide, "Request throttling for the Amazon EC2 API" (bucket and refill of RunInstances
and StartInstances 5 and 2, of reading calls 100 and 20; other changes 50 and 5 are assumed);
CloudWatch guide, "CloudWatch service quotas" (PutMetricAlarm, DeleteAlarms, SetAlarmState 3 a
second, DescribeAlarms 9, ListTagsForResource 10); EventBridge Scheduler guide, "Quotas" (50 a
second for CreateSchedule, GetSchedule and the like); Lambda guide, "Lambda quotas" (15 a second for
the control plane, GetFunction 100); Systems Manager, "Endpoints and quotas" (GetParameter 40). Not
published, so assumed: Budgets 10 and 5, IAM 20 and 15, the rest of Systems Manager 10 and 5, S3's
calls for buckets 20 and 10.
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
    "scheduler:*": (50, 50),
    "lambda:*": (15, 15),
    "ssm:GetParameter": (40, 40),
    "ssm:PutParameter": (3, 3),
    "ssm:DeleteParameter": (3, 3),
    "ssm:*": (10, 5),
    "iam:*": (20, 15),
    "s3:CreateBucket": (20, 10),
}
CODES = {
    "ec2": ("RequestLimitExceeded", 503),
    "budgets": ("ThrottlingException", 400),
    "scheduler": ("ThrottlingException", 429),
    "ssm": ("ThrottlingException", 400),
    "lambda": ("TooManyRequestsException", 429),
    "s3": ("SlowDown", 503),
}


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
    if found is None:
        return None
    name, (size, rate) = found
    size, rate = max(1.0, size * WORLD.rate_share), rate * WORLD.rate_share
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
