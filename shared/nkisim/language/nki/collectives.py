"""`nki.collectives`: operations between devices, which one simulated device does not have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..public_names import show_public_names_only


@dataclass
class ReplicaGroup:
    """Lists of ranks that work together."""

    replica_groups: list[list[int]]


def __getattr__(name: str) -> Any:
    """Say that a name of the package is not modelled, or that it does not exist."""
    from .versions import missing

    raise missing("nccl", name, globals())


__all__ = ["ReplicaGroup"]
show_public_names_only(__name__)
