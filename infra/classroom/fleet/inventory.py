"""Which machines should exist, which do, and the difference."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from ..aws import organisations
from ..aws.cloud import doing
from ..spec import clusters, tags
from ..spec.class_file import ClassSpec
from ..spec.run import Run

LIVE = ("pending", "running", "stopping", "stopped")


@dataclass
class Machine:
    """Hold one machine that exists."""

    name: str
    region: str
    id: str
    state: str
    zone: str
    ip: str
    type: str
    market: str
    launched: str
    why: str = ""  # what AWS says about the last change of state
    tags: dict[str, str] = field(default_factory=dict)
    request: str = ""  # the spot request behind it

    @property
    def seats(self) -> dict[int, str]:
        """Return core -> student of a shared machine; a student's own machine has no seats."""
        return {
            int(k[len(tags.SEAT) :]): v for k, v in self.tags.items() if k.startswith(tags.SEAT)
        }

    @property
    def proxy(self) -> str:
        """Return the command by which ssh reaches it; "" for one with a public address."""
        return organisations.proxy(self.tags.get(tags.REACH, ""), self.region)

    @property
    def clustered(self) -> bool:
        """Return whether it is a node of a cluster, which all students share."""
        return tags.NODE in self.tags

    @property
    def students(self) -> list[str]:
        """Return who works on it."""
        return [s for _, s in sorted(self.seats.items())] or [self.tags.get(tags.OWNER, self.name)]


@dataclass
class Wanted:
    """Hold one machine that should exist: its name, and the seats of its students."""

    name: str
    seats: dict[int, str] = field(default_factory=dict)
    owner: str = ""


@dataclass
class Plan:
    """Hold the difference between the roster and the cloud."""

    launch: list[Wanted]
    keep: list[Machine]
    remove: list[Machine]
    wanted: dict[str, Wanted]
    duplicates: list[Machine] = field(default_factory=list)


def read(run: Run, region: str) -> list[Machine]:
    """Return the class's machines of a region that are not terminated."""
    with doing("list the machines", region):
        reservations = run.cloud.pages(
            "ec2",
            region,
            "describe_instances",
            "Reservations",
            Filters=[
                {"Name": f"tag:{tags.CLASS}", "Values": [run.spec.name]},
                {"Name": "instance-state-name", "Values": list(LIVE)},
            ],
        )
    return [
        machine(i, region)
        for r in reservations
        for i in r["Instances"]
        if tags.ours(i.get("Tags"), run.spec.name)
    ]


def machine(i: dict[str, Any], region: str) -> Machine:
    """Turn an EC2 answer into a Machine."""
    t = tags.as_dict(i.get("Tags"))
    launched = i.get("LaunchTime")
    return Machine(
        name=t.get(tags.MACHINE, i["InstanceId"]),
        region=region,
        id=i["InstanceId"],
        state=i["State"]["Name"],
        zone=i.get("Placement", {}).get("AvailabilityZone", ""),
        ip=organisations.address(i, t.get(tags.REACH, "")),
        type=i["InstanceType"],
        market=i.get("InstanceLifecycle") or "on-demand",
        launched=str(launched or ""),
        why=i.get("StateTransitionReason") or "",
        tags=t,
        request=i.get("SpotInstanceRequestId") or "",
    )


def plan(spec: ClassSpec, existing: list[Machine], limit: frozenset[str] | None = None) -> Plan:
    """Compare roster and cloud. A shared machine keeps its seats: students stay when others
    leave."""
    by_name: dict[str, Machine] = {}
    duplicates = []
    for m in sorted(existing, key=lambda m: (m.launched, m.id)):
        if m.name in by_name:
            duplicates.append(m)  # the younger one goes
        else:
            by_name[m.name] = m
    if spec.cluster:
        names = map(clusters.node, range(1, spec.cluster.nodes + 1))
        wanted = {n: Wanted(n, {}, n) for n in names}
    else:
        wanted = _per_student(spec) if spec.mode == "per-student" else _shared(spec, by_name)
    chosen = {
        n: w
        for n, w in wanted.items()
        if limit is None or limit & ({w.owner, n} | set(w.seats.values()))
    }
    remove = [
        m
        for n, m in by_name.items()
        if n not in wanted and (limit is None or limit & {n, *m.students})
    ]
    return Plan(
        launch=[w for n, w in chosen.items() if n not in by_name],
        keep=[m for n, m in by_name.items() if n in chosen],
        remove=remove,
        wanted=chosen,
        duplicates=duplicates,
    )


def _per_student(spec: ClassSpec) -> dict[str, Wanted]:
    return {s.id: Wanted(s.id, {}, s.id) for s in spec.students}


def _shared(spec: ClassSpec, existing: dict[str, Machine]) -> dict[str, Wanted]:
    ids = [s.id for s in spec.students]
    size = spec.machine.cores
    nodes = {
        n: Wanted(n, {k: s for k, s in m.seats.items() if s in ids and k < size}, n)
        for n, m in existing.items()
        if n.startswith("node-")
    }
    seated = {s for w in nodes.values() for s in w.seats.values()}
    rest = [s for s in ids if s not in seated]
    for node in sorted(nodes.values(), key=lambda w: w.name):
        for core in range(size):
            if core not in node.seats and rest and node.seats:
                node.seats[core] = rest.pop(0)
    nodes = {n: w for n, w in nodes.items() if w.seats}
    number = 1
    for _ in range(math.ceil(len(rest) / size)):
        while f"node-{number:02d}" in nodes:
            number += 1
        name = f"node-{number:02d}"
        nodes[name] = Wanted(name, dict(enumerate(rest[:size])), name)
        rest = rest[size:]
    return nodes


def section(spec: ClassSpec, w: Wanted) -> dict[str, str]:
    """Return the tag of a student's section, if the roster says one."""
    sections = {s.section for s in spec.students if s.id == w.owner and s.section}
    return {tags.SECTION: sections.pop()} if sections else {}


def machine_tags(spec: ClassSpec, w: Wanted) -> dict[str, str]:
    """Return the tags of one machine."""
    seats = {f"{tags.SEAT}{core:02d}": student for core, student in sorted(w.seats.items())}
    return {
        "Name": f"{spec.name}-{w.name}",
        **tags.common(spec, w.owner),
        tags.MACHINE: w.name,
        **({tags.NODE: spec.name} if spec.cluster else {}),
        **({tags.REACH: spec.reach} if spec.private else {}),
        **section(spec, w),
        **seats,
    }
