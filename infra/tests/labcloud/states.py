"""The states in between: a machine is `pending` before it runs, `stopping` before it is stopped,
`shutting-down` before it is terminated.

Source: EC2 guide, "Amazon EC2 instance state changes". A `pending` machine can be neither stopped
nor given an address (IncorrectInstanceState), a `stopping` one not be started; what a machine uses
is held until it is terminated.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.elastic_ip_addresses import ElasticAddressBackend

from .world import WORLD

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
    if not WORLD.strict["states"]:
        return
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
            put(instance, THEN[through])
            WORLD.turning.pop(iid, None)


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
