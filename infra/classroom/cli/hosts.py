"""How to reach the machines, for programs: addresses, users, SSH options, dollars an hour.

`--host auto` and `--host all` of the labs read it.
"""

from __future__ import annotations

import os
from typing import Any

from ..fleet import hostkeys
from ..fleet.inventory import Machine
from ..money import prices
from ..spec.run import Run
from .provision import survey


def logins(run: Run) -> dict[str, Any]:
    """Return the machines within --limit, as what a program needs to log in to them."""
    existing, _ = survey(run)
    chosen = [m for m in existing if run.wants(m.name, *m.students)]
    return {
        "machines": [_machine(run, m) for m in sorted(chosen, key=lambda m: m.name)],
        "tables": [
            {
                "title": run.spec.name,
                "columns": ["machine", "state", "log in as"],
                "rows": [[m.name, m.state, " ".join(_logins(m))] for m in chosen],
            }
        ],
    }


def _logins(m: Machine) -> list[str]:
    users = m.students if m.seats else ["ubuntu"]
    return [f"{user}@{m.ip or '-'}" for user in users]


def _ssh(run: Run, m: Machine) -> list[dict[str, str]]:
    """Return which student logs in as which user; on a cluster each has an account."""
    if m.clustered:
        people = [{"student": s.id, "user": s.id} for s in run.spec.students]
        return [*people, {"student": "staff", "user": "ubuntu"}]
    return [{"student": s, "user": s if m.seats else "ubuntu"} for s in m.students]


def _machine(run: Run, m: Machine) -> dict[str, Any]:
    price = prices.hourly_price(run.spec, m.market)
    key = os.environ.get("CLASSROOM_SSH_KEY")
    return {
        "name": m.name,
        "id": m.id,
        "state": m.state,
        "ip": m.ip,
        "type": m.type,
        "students": m.students,
        "ssh": _ssh(run, m),
        "cluster": m.clustered,
        "options": {
            **hostkeys.options(run.spec.out, m.id, m.proxy),
            **({"IdentityFile": key} if key else {}),
        },
        # of a cluster, a run has one device
        "usd_hour": price.usd / (run.spec.machine.devices if m.clustered else 1),
        "price_note": price.provenance(run.cloud.now().date()),
    }
