"""What a run has cost: minutes of the machine, and dollars where its price is known."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .ssh import Host

PRICES = Path("infra") / "classroom" / "prices.yml"


def hourly(host: Host, machine: str, root: Path) -> tuple[float | None, str]:
    """Return (dollars an hour, where the figure is from) of a machine; None if unknown.

    In this order: LABKIT_HOURLY_USD, the class's inventory, the repository's price table.
    """
    given = os.environ.get("LABKIT_HOURLY_USD")
    if given:
        try:
            return float(given), "LABKIT_HOURLY_USD"
        except ValueError:
            return None, ""
    if host.hourly_usd is not None:
        return host.hourly_usd, host.price_note
    try:
        lines = (root / PRICES).read_text(encoding="utf-8").splitlines()
    except OSError:
        return None, ""
    date = next(
        (text.split(":", 1)[1].strip() for text in lines if text.startswith("as_of:")), "no date"
    )
    for line in lines:  # one figure a line; a YAML library for that would be too much
        name, _, value = line.strip().partition(":")
        if machine and name == machine:
            try:
                return float(value.split("#")[0]), f"price table of {date}"
            except ValueError:
                return None, ""
    return None, ""


def sentence(host: Host, facts: dict[str, Any], seconds: float, root: Path) -> str:
    """Return minutes and dollars of a run, and what the machine has cost since its start."""
    usd, source = hourly(host, facts.get("machine", ""), root)
    minutes = f"{seconds / 60:.1f} minutes on {host.name}"
    if facts.get("machine"):
        minutes += f" ({facts['machine']})"
    if usd is None:
        return f"{minutes}; its price is not known (set LABKIT_HOURLY_USD)"
    up = facts.get("uptime_s") or 0.0
    return (
        f"{minutes}, ${seconds / 3600 * usd:.2f} at ${usd:.2f} an hour ({source}); it has been "
        f"on for {up / 3600:.1f} hours, ${up / 3600 * usd:.2f}"
    )
