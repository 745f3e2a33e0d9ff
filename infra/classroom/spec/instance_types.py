"""What the supported instance types are: sizes, quotas, prices. Each figure has one home: here or
prices.yml."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

PRICES = Path(__file__).parents[1] / "money" / "prices.yml"


@dataclass(frozen=True)
class MachineType:
    """Describe one instance type as far as a class needs it."""

    name: str
    vcpus: int
    # NeuronCores that NEURON_RT_VISIBLE_CORES counts (trn2: logical cores at the default LNC=2)
    cores: int
    family: str  # trn1 | trn2 | inf2
    # chips, each a file /dev/neuronN: the unit whose access the system can restrict
    devices: int
    capacity_block_only: bool = False

    @property
    def cores_per_device(self) -> int:
        """Return how many NeuronCores are behind one file /dev/neuronN."""
        return self.cores // max(1, self.devices)


# Sizes: EC2 instance type pages of Trn1, Trn2, Inf2 (documented). trn2.3xlarge: one Trainium2 chip
# of 8 physical cores.
TYPES: dict[str, MachineType] = {
    t.name: t
    for t in (
        MachineType("trn1.2xlarge", 8, 2, "trn1", 1),
        MachineType("trn1.32xlarge", 128, 32, "trn1", 16),
        MachineType("trn2.3xlarge", 12, 4, "trn2", 1, capacity_block_only=True),
        MachineType("inf2.xlarge", 4, 2, "inf2", 1),
        MachineType("inf2.8xlarge", 32, 2, "inf2", 1),
        MachineType("inf2.24xlarge", 96, 12, "inf2", 6),
        MachineType("inf2.48xlarge", 192, 24, "inf2", 12),
    )
}

# What `doctor --drill` starts: the cheapest machine that EC2 has. (documented: T3)
DRILL = MachineType("t3.nano", 2, 0, "t3", 0)

# Service Quotas codes (service "ec2"), counted in vCPUs. (documented)
QUOTAS = {
    ("trn", "on-demand"): ("L-2C3B7624", "Running On-Demand Trn instances"),
    ("trn", "spot"): ("L-6B0D517C", "All Trn Spot Instance Requests"),
    ("inf", "on-demand"): ("L-1945791B", "Running On-Demand Inf instances"),
    ("inf", "spot"): ("L-B5D1601B", "All Inf Spot Instance Requests"),
}


def quota_for(machine: MachineType, market: str) -> tuple[str, str] | None:
    """Return (code, name) of the vCPU quota, or None for capacity blocks, which need none."""
    return QUOTAS.get((machine.family[:3], market))


def price_problem(path: Path, machine: str, market: str) -> tuple[str, str] | None:
    """Return (what, remedy) if a price table cannot be used for a class."""
    copy = "Copy infra/classroom/money/prices.yml and change its figures."
    try:
        table = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return f"The price table {path.name!r} cannot be read.", copy
    except yaml.YAMLError:
        return f"The price table {path.name!r} is not YAML.", copy
    if not isinstance(table, dict):
        return f"The price table {path.name!r} holds no `key: value` pairs.", copy
    figures = {k: table.get(k) for k in ("gp3_gib_month", "public_ipv4_hour", "spot_share")}
    block, hour = table.get("capacity_block_hour") or {}, table.get("on_demand_hour") or {}
    figures[machine] = (market == "capacity-block" and block.get(machine)) or hour.get(machine)
    for name, value in figures.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
            return f"The price table {path.name!r} has no number above 0 for {name}.", copy
    return None


@cache
def price_table(path: str = str(PRICES)) -> dict[str, Any]:
    """Read the dated price table."""
    return yaml.safe_load(Path(path).read_text(encoding="utf-8"))
