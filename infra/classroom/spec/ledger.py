"""The ledger: the machines that a class has had, and the regions where it may have some.

A machine without its tag and a region that was disabled are in no listing; the ledger says where
to look for them. It is kept on this computer (out/<class>/ledger.json) and in the account, as
parameters of Systems Manager in GLOBAL, so that every computer knows it:

    /trainium-labs/<class>/settings            what the last run set, who ran it, and when
    /trainium-labs/<class>/regions/<region>    where machines may be; made before the first launch
    /trainium-labs/<class>/machines/<id>       entries of some machines; added, never changed, so
                                               that two runs at once lose none

It holds no secret.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import botocore.exceptions as be

from ..aws.cloud import GLOBAL, Cloud, code_of, doing
from ..aws.problems import ClassroomError
from . import tags
from .run import Run

ROOT = "/trainium-labs"
MOST_BYTES = (
    4096  # of a standard parameter's value (documented: Parameter Store, "Parameter tiers")
)
EXISTS = "ParameterAlreadyExists"

Entries = dict[str, dict[str, Any]]  # instance id -> machine, students, region, type, market, ...


class Machine(Protocol):
    """What an entry says of a machine (`fleet.inventory` has them)."""

    id: str
    name: str
    region: str
    type: str
    market: str

    @property
    def students(self) -> list[str]:
        """Return who works on it."""
        ...


@dataclass
class Ledger:
    """Hold what is known of a class: what the last run set (empty if unknown), used regions,
    machines."""

    settings: dict[str, Any] = field(default_factory=dict)
    regions: set[str] = field(default_factory=set)
    machines: Entries = field(default_factory=dict)

    def ids(self, region: str) -> list[str]:
        """Return the ids of all machines that the class has had in a region."""
        return sorted(i for i, entry in self.machines.items() if entry["region"] == region)

    def add(self, machines: Entries) -> None:
        """Add entries of machines, and their regions."""
        self.machines.update(machines)
        self.regions.update(entry["region"] for entry in machines.values())


def path(name: str) -> str:
    """Return where the account keeps what it knows of a class."""
    return f"{ROOT}/{name}"


def local(out: Path) -> Entries:
    """Return the entries on this computer; raise ClassroomError if the file is garbled."""
    try:
        entries = json.loads((out / "ledger.json").read_text(encoding="utf-8"))
        return {i: {**entry, "region": entry["region"]} for i, entry in entries.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ClassroomError(
            f"Could not read {out / 'ledger.json'}: {error}.",
            "Move the file away: the account keeps a copy of what it said.",
        ) from error


def parameters(cloud: Cloud, name: str) -> list[dict[str, Any]]:
    """Return the parameters of a class."""
    return cloud.pages(
        "ssm", GLOBAL, "get_parameters_by_path", "Parameters", Path=path(name), Recursive=True
    )


def parse(found: Iterable[dict[str, Any]], name: str) -> Ledger:
    """Return what the parameters of a class say; raise ClassroomError if one is garbled."""
    out = Ledger()
    for parameter in found:
        kind, _, rest = parameter["Name"].removeprefix(path(name) + "/").partition("/")
        try:
            if kind == "regions":
                out.regions.add(rest)
            elif kind == "settings":
                out.settings = dict(json.loads(parameter["Value"]))
            elif kind == "machines":
                out.add(json.loads(parameter["Value"]))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ClassroomError(
                f"The parameter {parameter['Name']} in {GLOBAL} is garbled: {error}.",
                "Somebody has changed it. Look for machines of the class in every region, then"
                f" delete it: aws ssm delete-parameter --region {GLOBAL} --name"
                f" {parameter['Name']}",
            ) from error
    return out


def read(run: Run, blind: list[str] | None = None) -> Ledger:
    """Return what the account and this computer know. What the account does not show goes into
    `blind`, or is a warning."""
    out = Ledger()
    try:
        with doing("read what the account knows of the class"):
            out = parse(parameters(run.cloud, run.spec.name), run.spec.name)
    except ClassroomError as error:
        blind.append(str(error)) if blind is not None else run.warn(str(error))
    out.add(local(run.spec.out))
    return out


def remember(run: Run, machines: Sequence[Machine], known: Ledger | None = None) -> None:
    """Keep machines for hours and dollars after AWS has forgotten them, and to look for them."""
    if run.check:
        return
    known = known or read(run)
    now = run.cloud.now().isoformat()
    missing = {
        m.id: {
            "machine": m.name,
            "students": m.students,
            "region": m.region,
            "type": m.type,
            "market": m.market,
            "first_seen": known.machines.get(m.id, {}).get("first_seen") or now,
        }
        for m in machines
        if m.id
    }
    new = {i: entry for i, entry in missing.items() if i not in known.machines}
    known.add(missing)
    file = run.spec.out / "ledger.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps(known.machines, indent=1, sort_keys=True) + "\n", "utf-8")
    temporary.replace(file)
    for chunk in _chunks(new):
        _put(run, f"machines/{min(chunk)}", json.dumps(chunk, sort_keys=True))


def _chunks(entries: Entries) -> Iterator[Entries]:
    """Yield the entries in parts that fit into a parameter."""
    chunk: Entries = {}
    for i, entry in sorted(entries.items()):
        if chunk and len(json.dumps({**chunk, i: entry}).encode()) > MOST_BYTES:
            yield chunk
            chunk = {}
        chunk[i] = entry
    if chunk:
        yield chunk


def remember_region(run: Run, region: str, known: Ledger) -> None:
    """Note that machines may be in a region; before the first is launched there."""
    if region not in known.regions:
        key = f"regions/{region}"
        run.do(f"note in the account that the class uses {region}", lambda: _put(run, key, region))
        known.regions.add(region)


def remember_settings(run: Run, known: Ledger) -> None:
    """Note what this run sets, who runs it, and when."""
    spec = run.spec
    wanted = {
        "teardown": spec.teardown_at.isoformat(),
        "class_usd": spec.budget.class_usd,
        "per_student_usd": spec.budget.per_student_usd,
        "regions": spec.regions,
    }
    if wanted == {key: known.settings.get(key) for key in wanted}:
        return
    stamp = {"by": run.cloud.identity()["Arn"], "at": run.cloud.now().isoformat()[:16]}
    known.settings = {**wanted, **stamp}
    value = json.dumps(known.settings, sort_keys=True)
    run.do("note in the account what class.yml sets", lambda: _put(run, "settings", value, True))


def _put(run: Run, what: str, value: str, again: bool = False) -> None:
    """Write a parameter; one that exists stays, or with `again` gets the new value. An account
    that does not let us only loses what other computers would know."""
    client, name = run.cloud.client("ssm", GLOBAL), f"{path(run.spec.name)}/{what}"
    new = {"Type": "String", "Tags": tags.as_list(tags.common(run.spec))}
    try:
        with doing("keep in the account what the class has"):
            try:
                client.put_parameter(Name=name, Value=value, **new)
            except be.ClientError as error:
                if code_of(error) != EXISTS:
                    raise
                if again:
                    client.put_parameter(Name=name, Value=value, Overwrite=True)
    except ClassroomError as error:
        run.warn(f"{error} Only this computer knows it: {run.spec.out / 'ledger.json'}.")


def classes(cloud: Cloud) -> list[str]:
    """Return the names of all classes of which the account keeps a ledger."""
    with doing("list the classes of the account"):
        stored = cloud.pages(
            "ssm", GLOBAL, "get_parameters_by_path", "Parameters", Path=ROOT, Recursive=True
        )
    return sorted({parameter["Name"].split("/")[2] for parameter in stored})
