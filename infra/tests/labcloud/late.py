"""What was just made is not seen at once.

Source: EC2 developer guide, "Eventual consistency in the Amazon EC2 API": a describe call may not
show a resource that a call before it created. Here: machines, addresses and security groups, for a
few virtual seconds; the answer of the creating call itself has them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moto.ec2.models.elastic_ip_addresses import ElasticAddressBackend
from moto.ec2.models.instances import InstanceBackend
from moto.ec2.models.security_groups import SecurityGroupBackend

from .world import WORLD


def born(resource: str) -> None:
    """Remember when something was made."""
    WORLD.born[resource] = WORLD.now().timestamp()


def seen(resource: str) -> bool:
    """Say whether everybody sees it already."""
    made = WORLD.born.get(resource)
    late = WORLD.late_seconds if WORLD.strict["late reads"] else 0.0
    return made is None or WORLD.now().timestamp() - made >= late


def _hide(backend: type, name: str, identify: Callable[[Any], str]) -> None:
    original = getattr(backend, name)

    def listing(self: Any, *args: Any, **kwargs: Any) -> list[Any]:
        return [r for r in original(self, *args, **kwargs) if seen(identify(r))]

    setattr(backend, name, listing)


def _mark(backend: type, name: str, identify: Callable[[Any], str]) -> None:
    original = getattr(backend, name)

    def create(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(self, *args, **kwargs)
        born(identify(made))
        return made

    setattr(backend, name, create)


def install() -> None:
    """Patch moto's listings."""
    _hide(InstanceBackend, "describe_instances", lambda r: r.instances[0].id)
    _hide(ElasticAddressBackend, "describe_addresses", lambda a: a.allocation_id)
    _hide(SecurityGroupBackend, "describe_security_groups", lambda g: g.id)
    _mark(InstanceBackend, "run_instances", lambda r: r.instances[0].id)
    _mark(ElasticAddressBackend, "allocate_address", lambda a: a.allocation_id)
    _mark(SecurityGroupBackend, "create_security_group", lambda g: g.id)
