"""Ask AWS no faster than it answers: a token bucket for each operation, and where to wait.

AWS refuses what comes too fast, and a class of 300 asks 300 times at once. Retrying after a refusal
gives up after some attempts; waiting before the call never has to. Others may use most of the
account's rate: each refusal halves ours for this operation, each answer gives a tenth back.
"""

from __future__ import annotations

import datetime as dt
import os
import threading
import time
from collections.abc import Callable
from typing import Any

# Replaced in rehearsals on a virtual clock.
sleep = time.sleep
clock = time.monotonic


def now() -> dt.datetime:
    """Return the time; CLASSROOM_NOW (ISO) replaces it in rehearsals on a virtual clock."""
    fixed = os.environ.get("CLASSROOM_NOW")
    return dt.datetime.fromisoformat(fixed) if fixed else dt.datetime.now(dt.timezone.utc)


LATE_SECONDS = 5  # after which a listing shows what was just made (EC2 is eventually consistent)
# after which a listing is believed when it does not show a machine (assumed: AWS names no bound)
LISTED_SECONDS = 90
# (service, operation) -> (requests at once, requests a second), for one region of one account.
# EC2: "Request throttling for the Amazon EC2 API" (documented for RunInstances and StartInstances;
# for other changes the smaller figures of its table are assumed).
# CloudWatch: "CloudWatch service quotas" (documented, transactions a second).
# Budgets and IAM publish none (assumed).
LIMITS: dict[tuple[str, str], tuple[float, float]] = {
    ("ec2", "RunInstances"): (5, 2),
    ("ec2", "StartInstances"): (5, 2),
    ("ec2", "AllocateAddress"): (20, 5),
    ("ec2", "AssociateAddress"): (20, 5),
    ("ec2", "ReleaseAddress"): (20, 5),
    ("ec2", "DisassociateAddress"): (20, 5),
    ("ec2", "CreateTags"): (50, 5),
    ("ec2", "DeleteTags"): (50, 5),
    ("cloudwatch", "PutMetricAlarm"): (3, 3),
    ("cloudwatch", "DeleteAlarms"): (3, 3),
    ("cloudwatch", "SetAlarmState"): (3, 3),
    ("cloudwatch", "DescribeAlarms"): (9, 9),
    ("cloudwatch", "ListTagsForResource"): (10, 10),
    ("budgets", "*"): (10, 5),
    ("iam", "*"): (20, 15),
    ("ssm", "PutParameter"): (3, 3),  # as AWS's support has told others; not documented
    ("ssm", "DeleteParameter"): (3, 3),  # assumed
}
SHARE = 0.9  # of the documented rate: others ask in the same account, too


UNLISTED = (5.0, 10.0)  # assumed; kept only after AWS refused such an operation once
SLOWEST = 1 / 32  # of the rate that a bucket begins with
REFUSALS = {
    "RequestLimitExceeded",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
}
LATE_READS = 8


def wait_until_found(find: Callable[[], Any], tries: int = LATE_READS) -> Any:
    """Return what `find` finds, asking again for some seconds while it finds nothing (false): what
    was just made is not seen at once everywhere."""
    for k in range(tries):
        if result := find():
            return result
        sleep(min(2**k * 0.5, 5))
    return None


class Bucket:
    """Hold the tokens of one operation in one region; each call takes one, and waits for it."""

    def __init__(self, size: float, rate: float) -> None:
        # Half of AWS's burst: what was sent evenly may arrive in a bunch.
        self.size, self.rate = max(1.0, size / 2), rate * SHARE
        self.fullest = self.rate
        self.tokens, self.at = self.size, clock()
        self.lock = threading.Lock()

    def take(self) -> None:
        """Take a token; wait until there is one. The lock is held meanwhile: who came later has to
        wait longer in any case."""
        with self.lock:
            now = clock()
            self.tokens = min(self.size, self.tokens + max(0.0, now - self.at) * self.rate)
            self.at = now
            self.tokens -= 1
            if self.tokens < 0:
                sleep(-self.tokens / self.rate)

    def learn(self, refused: bool) -> None:
        """Slow down after a refusal, and get faster again with each answer."""
        with self.lock:
            if refused:
                self.rate = max(self.rate / 2, self.fullest * SLOWEST)
                self.tokens = min(self.tokens, 0.0)
            else:
                self.rate = min(self.rate + self.fullest / 10, self.fullest)


class RateLimiter:
    """Hold the buckets of an account."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, str, str], Bucket] = {}
        self._lock = threading.Lock()

    def follow(self, client: Any, service: str, region: str) -> None:
        """Make a client's requests, repeated ones too, wait for their bucket."""

        def before(event_name: str, **_: Any) -> None:
            self.wait(service, region, event_name.rsplit(".", 1)[-1])

        def after(event_name: str, parsed_response: Any = None, **_: Any) -> None:
            if parsed_response is None:  # no answer came
                return
            code = str(parsed_response.get("Error", {}).get("Code", ""))
            self.learn(service, region, event_name.rsplit(".", 1)[-1], code in REFUSALS)

        client.meta.events.register("before-send", before)
        client.meta.events.register("response-received", after)

    def learn(self, service: str, region: str, operation: str, refused: bool) -> None:
        """Change the pace of an operation after an answer."""
        key = (service, region, self._name(service, operation))
        with self._lock:
            bucket = self._buckets.get(key)
            if bucket is None and refused:
                bucket = self._buckets[key] = Bucket(*UNLISTED)
        if bucket:
            bucket.learn(refused)

    @staticmethod
    def _name(service: str, operation: str) -> str:
        """Return the name of an operation's bucket: its own, or that of the whole service."""
        return "*" if (service, "*") in LIMITS else operation

    def wait(self, service: str, region: str, operation: str) -> None:
        """Wait until an operation may be asked for."""
        key = (service, region, name := self._name(service, operation))
        with self._lock:
            bucket = self._buckets.get(key)
            if bucket is None and (limit := LIMITS.get((service, name))):
                bucket = self._buckets[key] = Bucket(*limit)
        if bucket:
            bucket.take()
