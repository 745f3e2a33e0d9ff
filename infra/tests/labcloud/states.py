"""The states in between: a machine is `pending` before it runs, `stopping` before it is stopped,
`shutting-down` before it is terminated.

Source: EC2 guide, "Amazon EC2 instance state changes". A `pending` machine can be neither stopped
nor given an address (IncorrectInstanceState), a `stopping` one not be started; what a machine uses
is held until it is terminated. EC2 guide, "Instance terminates immediately", and EC2 API reference,
StateReason: a launch that AWS has accepted may still fail, for the quota of disks (50 TiB of gp3 in
a region by default), the key that encrypts them or the image's snapshot; a start that fails goes
back to `stopped`.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import ec2_backends
from moto.ec2.models.elastic_ip_addresses import ElasticAddressBackend
from moto.ec2.models.instances import StateReason

from . import guards
from .world import ACCOUNT, WORLD

CODES = {
    "pending": 0,
    "running": 16,
    "shutting-down": 32,
    "terminated": 48,
    "stopping": 64,
    "stopped": 80,
}
THEN = {"pending": "running", "stopping": "stopped", "shutting-down": "terminated"}
REFUSED = {("start", "stopping"): "started", ("stop", "pending"): "stopped"}


def put(instance: Any, state: str) -> None:
    """Set the state of a machine."""
    instance._state.name, instance._state.code = state, CODES[state]


def turn(instance: Any, through: str) -> None:
    """Let a machine be in a state in between for some seconds."""
    put(instance, through)
    due = WORLD.now() + dt.timedelta(seconds=WORLD.turn_seconds[through])
    WORLD.turning[instance.id] = (due, instance, through)


def check(instance: Any, what: str) -> None:
    """Refuse what the state of a machine does not allow."""
    if word := REFUSED.get((what, instance.state)):
        raise EC2ClientError(
            "IncorrectInstanceState",
            f"The instance '{instance.id}' is not in a state from which it can be {word}.",
        )


def settle() -> None:
    """Let machines arrive where they are going."""
    for iid, (due, instance, through) in list(WORLD.turning.items()):
        if instance.state != through:
            WORLD.turning.pop(iid, None)
        elif due <= WORLD.now():
            WORLD.turning.pop(iid, None)
            code = WORLD.dying.pop(iid, "") if through == "pending" else ""
            put(instance, THEN[through])
            if code:
                fail(instance, code)


GP3_TIB, GP3_QUOTA = 50.0, "L-7A658B76"


def fails(instance: Any, started: bool = False) -> None:
    """Decide, as AWS does after it has answered, whether a machine comes up: by what a test has
    asked for (`dying`: reason, how many, "start" for those that were stopped), and by the quota of
    disks."""
    for wish in WORLD.failing:
        if wish.get("times", 1) > 0 and bool(wish.get("start")) == started:
            wish["times"] = wish.get("times", 1) - 1
            WORLD.dying[instance.id] = wish["code"]
            return
    volumes = ec2_backends[ACCOUNT][instance.region_name].volumes.values()
    quota = WORLD.quotas.get(GP3_QUOTA, GP3_TIB) * 1024
    if not started and sum(v.size for v in volumes if v.volume_type == "gp3") > quota:
        WORLD.dying[instance.id] = "Client.VolumeLimitExceeded"


def fail(instance: Any, code: str) -> None:
    """End a machine whose launch failed, or stop one whose start failed, and say why."""
    launched = len(WORLD.usage.get(instance.id, [])) <= 1
    with guards.because(f"launch failed: {code}"):
        instance.terminate() if launched else instance.stop()
    put(instance, "terminated" if launched else "stopped")
    WORLD.turning.pop(instance.id, None)
    instance._reason = f"Server: {code}"
    instance.state_reason = StateReason(f"{code}: {WORDS.get(code, '')}", code)


WORDS = {
    "Client.VolumeLimitExceeded": "Volume limit exceeded",
    "Client.InternalError": "Client error on launch",
    "Server.InternalError": "Internal error on launch",
}


def holds(group: str) -> bool:
    """Say whether a machine that is shutting down still uses a security group."""
    settle()
    return any(
        through == "shutting-down" and group in {g.id for g in instance.security_groups}
        for _, instance, through in WORLD.turning.values()
    )


def install() -> None:
    """Refuse an address to a machine that is not there yet."""
    original = ElasticAddressBackend.associate_address

    def associate(self: Any, instance: Any = None, *args: Any, **kwargs: Any) -> Any:
        if instance is not None and instance.state == "pending":
            raise EC2ClientError(
                "IncorrectInstanceState",
                f"The pending instance '{instance.id}' is not in a valid state for this operation.",
            )
        return original(self, instance, *args, **kwargs)

    ElasticAddressBackend.associate_address = associate
