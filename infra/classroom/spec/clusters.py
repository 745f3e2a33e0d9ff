"""Classes that share a Slurm cluster: what class.yml must say, and who gets which number."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from . import instance_types
from . import sdk as sdks
from .roster import Student

HEAD = "node-01"  # controller, accounting, login, and the /home of all; it computes as well
FIRST_UID, UIDS = 1_900_000_000, 200_000_000  # above what systemd-nspawn and subuid give out


def node(number: int) -> str:
    """Return the name of a node; the first is number 1."""
    return f"node-{number:02d}"


def uid(student: str) -> int:
    """Return a student's number, the same on every node and after every change of the roster: a
    share of /home and Slurm both know people by number."""
    digest = hashlib.sha256(student.encode()).digest()
    return FIRST_UID + int.from_bytes(digest[:8], "big") % UIDS


def problems(
    good: dict[str, Any], sized: bool, students: Sequence[Student]
) -> list[tuple[tuple, str, str]]:
    """Return what is wrong with class.yml as far as it is about a cluster: place, what, remedy.

    `sized`: it has a key `cluster`, right or wrong.
    """
    if good.get("mode") != "cluster":
        if not sized:
            return []
        return [(("cluster",), "`cluster` is for `mode: cluster` only.", "Set it, or remove this.")]
    out: list[tuple[tuple, str, str]] = []
    if not sized:
        out.append(
            (
                ("mode",),
                "Nothing says how many nodes the cluster has.",
                "Add cluster: {nodes: 2, core_hours_per_student: 20}.",
            )
        )
    regions = good.get("regions")
    if isinstance(regions, list) and len(regions) > 1:
        problem = (
            f"The nodes of a cluster talk to each other, and {len(regions)} regions are named."
        )
        out.append((("regions",), problem, "Name one region."))
    version = good.get("sdk")
    if version and sdks.ubuntu_for(version) == "22.04":
        problem = f"The image of SDK {version} is Ubuntu 22.04, whose Slurm (21.08) cannot close"
        text = f"{problem} devices to jobs: it does not know cgroup v2."
        remedy = 'Pin `sdk: "2.27.0"` or newer (2.27 to 2.29 carry both dialects).'
        out.append((("sdk",), text, remedy))
    if good.get("my"):
        problem = "Students' links start and stop a machine of one student; a cluster has none."
        out.append((("my",), problem, "Remove it: the staff start a cluster, for all students."))
    taken: dict[int, str] = {}
    for student in students:
        other = taken.setdefault(uid(student.id), student.id)
        if other != student.id:
            problem = f"{other} and {student.id} would have the same number on the cluster."
            out.append((("roster",), problem, "Write one of the two ids in another way."))
    return out


def devices(machine: instance_types.MachineType, nodes: int) -> int:
    """Return how many Neuron devices a cluster has."""
    return machine.devices * nodes
