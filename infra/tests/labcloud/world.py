"""The state of the fake cloud that moto does not keep: clock, log, faults, usage, quotas,
blocks."""

from __future__ import annotations

import datetime as dt
import os
import threading
from dataclasses import dataclass, field
from typing import Any

from freezegun import freeze_time

ACCOUNT = os.environ.get("LABCLOUD_ACCOUNT", "123456789012")
HOUR_USD = {"trn1.2xlarge": 1.34375, "trn1.32xlarge": 21.50, "inf2.xlarge": 0.7582}
DEFAULT_REGIONS = ["us-east-1", "us-east-2", "us-west-2", "ap-southeast-4"]


def utc(t: dt.datetime) -> dt.datetime:
    """Return `t` as an aware UTC time (moto keeps naive ones)."""
    return t.replace(tzinfo=dt.timezone.utc) if t.tzinfo is None else t.astimezone(dt.timezone.utc)


@dataclass
class World:
    """Hold everything that the server adds to moto."""

    regions: list[str] = field(default_factory=lambda: list(DEFAULT_REGIONS))
    faults: list[dict[str, Any]] = field(default_factory=list)
    log: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    usage: dict[str, list[list[dt.datetime | None]]] = field(default_factory=dict)
    machines: dict[str, dict[str, Any]] = field(default_factory=dict)
    busy: dict[str, list[tuple[dt.datetime, dt.datetime]]] = field(default_factory=dict)
    boot_cpu: dict[str, float] = field(default_factory=dict)
    # instance id -> (percent of the CPU, seconds) that its own user data computes after each boot
    awake: dict[str, tuple[float, float]] = field(default_factory=dict)
    tokens: dict[tuple, Any] = field(default_factory=dict)
    quotas: dict[str, float] = field(default_factory=dict)
    quota_requests: list[dict[str, Any]] = field(default_factory=list)
    blocks: dict[str, dict[str, Any]] = field(default_factory=dict)
    no_extensions: bool = False  # blocks cannot be extended
    slow_payment: bool = False  # an extension stays payment-pending until `pay`
    spot: dict[str, dict[str, Any]] = field(default_factory=dict)
    refilled: str = ""  # the request for which AWS launches again just now
    budget_actions: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    cost_tags: list[str] = field(default_factory=list)  # active cost allocation tags
    budget_fired: set[tuple] = field(default_factory=set)
    calls: int = 0
    hanging: int = 0  # calls that wait for `clear`, so that a test finds a run alive at them
    released: Any = field(default_factory=threading.Event)
    denied: list[str] = field(default_factory=list)
    callers: dict[str, dict[str, Any]] = field(default_factory=dict)  # access key -> who has it
    organisation: list[dict[str, Any]] | None = None  # service control policies
    hourly: dict[str, float] = field(default_factory=dict)  # dollars by type, as Pricing says
    unconfirmed: bool = False  # nobody follows the links in SNS's mails
    sandbox: bool = False  # SES writes to verified addresses only
    mfa: bool = False  # whether callers signed in with a second factor
    # id -> (when it arrives, machine, the state that it is in until then)
    turning: dict[str, tuple[dt.datetime, Any, str]] = field(default_factory=dict)
    # launches and starts that fail after AWS has answered: {"code", "times", "start"}; by machine
    failing: list[dict[str, Any]] = field(default_factory=list)
    dying: dict[str, str] = field(default_factory=dict)
    watching: bool = False  # look at every machine at every virtual minute
    watched: dict[str, Any] = field(default_factory=dict)
    played: dt.datetime | None = None  # until when everything that was due has happened
    turn_seconds: dict[str, float] = field(
        default_factory=lambda: {"pending": 4.0, "stopping": 4.0, "shutting-down": 4.0}
    )
    born: dict[str, float] = field(default_factory=dict)  # when it was made, in virtual time
    late_seconds: float = 2.0
    machines_late_seconds: float = 0.0  # where listings of machines lag more than the others
    # role -> what it was, and since when: services see a change of IAM that much later
    roles: dict[str, list[tuple[float, dict[str, Any]]]] = field(default_factory=dict)
    trust_seconds: float = 4.0
    policy_seconds: float = 12.0
    metric_seconds: float = 180.0  # until CloudWatch has what Scheduler counted
    retry_refused: bool = False  # whether Scheduler tries again what a target refused for good
    failing_functions: bool = False  # whatever functions do ends in an error
    busy_targets: int = 0  # that many invocations of schedules are throttled first
    rate_share: float = 1.0  # how much of the rates this account has left: others ask, too
    buckets: dict[tuple, tuple[float, float]] = field(default_factory=dict)  # tokens, since when
    executions: list[dict[str, Any]] = field(default_factory=list)  # automations that ran
    history: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # what alarms did
    invocations: list[dict[str, Any]] = field(default_factory=list)  # of schedules
    retries: list[tuple] = field(default_factory=list)  # of schedules whose target failed
    lock: Any = field(default_factory=threading.RLock)
    frozen: Any = None

    def start_clock(self, at: str | None, ticks: bool = True) -> None:
        """Freeze time at `at` (ISO), and let it tick from there unless `ticks` is False."""
        self.frozen = freeze_time(
            at or dt.datetime.now(dt.timezone.utc).replace(tzinfo=None),
            tick=ticks,
            ignore=["werkzeug", "threading", "queue", "selectors", "socketserver", "asyncio"],
        ).start()

    def reset(self, at: str | None) -> None:
        """Start over at another time, in the same process."""
        fresh = World(frozen=self.frozen, lock=self.lock)
        self.__dict__.update(fresh.__dict__)
        if at:
            self.frozen.move_to(at)

    def now(self) -> dt.datetime:
        """Return the virtual time."""
        return dt.datetime.now(dt.timezone.utc)

    def note(self, kind: str, **what: Any) -> None:
        """Record something that happened without a call: a schedule, an alarm, a machine's
        state."""
        with self.lock:
            self.events.append({"t": self.now().isoformat(), "kind": kind, **what})

    def machine_started(self, instance: Any, guards: list[str]) -> None:
        """Open a usage interval; `guards` says what protected the machine at that moment."""
        self.usage.setdefault(instance.id, []).append([self.now(), None])
        self.note(
            "running",
            instance=instance.id,
            region=instance.region_name,
            guards=guards,
            type=instance.instance_type,
            tags=tags_of(instance),
        )
        self.machines[instance.id] = {
            "type": instance.instance_type,
            "region": instance.region_name,
            "tags": tags_of(instance),
        }

    def machine_stopped(self, instance: Any, state: str, why: str) -> None:
        """Close the usage interval."""
        intervals = self.usage.get(instance.id) or []
        if intervals and intervals[-1][1] is None:
            intervals[-1][1] = self.now()
        self.note(state, instance=instance.id, region=instance.region_name, why=why)

    def hours(
        self, instance_id: str, since: dt.datetime | None = None, until: dt.datetime | None = None
    ) -> float:
        """Return how long an instance ran, in hours."""
        until, total = until or self.now(), 0.0
        for start, stop in self.usage.get(instance_id, []):
            a, b = max(start, since or start), min(stop or until, until)
            total += max(0.0, (b - a).total_seconds())
        return total / 3600

    def ran_through(self, instance_id: str, start: dt.datetime, end: dt.datetime) -> bool:
        """Say whether an instance ran during the whole of a period."""
        return any(
            a <= start and (b is None or b >= end) for a, b in self.usage.get(instance_id, [])
        )

    def cpu(self, instance_id: str, start: dt.datetime, end: dt.datetime) -> float:
        """Return the CPU sample of a period: booting, what user data computes after a boot, what
        `busy` says, else 0.2 %."""
        boots = [a for a, _ in self.usage.get(instance_id, [])]
        percent, seconds = self.awake.get(instance_id, (0.0, 0.0))
        overlap = sum(
            max(0.0, (min(end, a + dt.timedelta(seconds=seconds)) - max(a, start)).total_seconds())
            for a in boots
        )
        awake = percent * overlap / (end - start).total_seconds()
        if awake > 0.2:
            return awake
        if any(start - dt.timedelta(minutes=5) <= a < end for a in boots):
            boot = self.boot_cpu.get(instance_id, self.boot_cpu.get("*", 30.0))
            if boot > 1:
                return boot
        return (
            80.0 if any(a < end and b > start for a, b in self.busy.get(instance_id, [])) else 0.2
        )


def tags_of(resource: Any) -> dict[str, str]:
    """Return the tags of a moto EC2 resource as a dictionary."""
    backend = getattr(resource, "ec2_backend", None)
    if backend is not None:  # moto's own way looks through the tags of everything
        return dict(backend.tags.get(resource.id, {}))
    return {t["key"]: t["value"] for t in resource.get_tags()}


WORLD = World()
