"""The command teardown: fetch the work, remove what carries the class's tag, and report what is
left. It needs no class.yml that validates, only the name of the class."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic_core import PydanticCustomError

from ..aws import organisations
from ..aws.cloud import Cloud, doing
from ..aws.problems import ClassroomError
from ..fleet import inventory
from ..spec import class_file as specs
from ..spec import fields, ledger, lock, tags, yaml_source
from ..spec.run import Run
from ..teardown import removal, sweep
from ..work import archives, copies, fetch
from . import power, provision

Result = dict[str, Any]
Say = Callable[[str], None]
BILLS = ("instance ", "spot-request ", "elastic-ip ", "volume ", "snapshot ")  # kinds, as reported


@dataclass
class ClassTeardown:
    """Hold the settings of one teardown.

    `regions` is empty for all; `discard` names students and machines whose work may be lost, or
    the class; with `dry` nothing is changed."""

    cloud: Cloud
    class_file: Path
    name: str
    regions: list[str]
    discard: frozenset[str]
    dry: bool
    keep_copies: bool
    say: Say
    folder: Path = field(init=False)
    out: Path = field(init=False)

    def __post_init__(self) -> None:
        self.folder = self.class_file.resolve().parent
        self.out = self.folder / "out" / self.name


def teardown(
    cloud: Cloud, class_file: Path, limit: list[str] | None, check: bool, say: Say, options: Result
) -> Result:
    """Remove a class, or with `limit` machines of it. Raises ClassroomError, and WorkNotSaved
    before anything is deleted."""
    job = ClassTeardown(
        cloud,
        class_file,
        named(class_file, options.get("name") or ""),
        [region for region in (options.get("regions") or "").split(",") if region],
        fetch.discarded(options),
        check or bool(options.get("dry_run")),
        bool(options.get("keep_copies")),
        say,
    )
    lock.check_account(job.folder, cloud.account, account(class_file))
    if limit:
        return _machines_alone(job, limit)
    if not job.dry:
        lock.close_folder(job.folder)
        if job.name not in job.discard:
            _save_all(job)
    report = removal.teardown(
        cloud,
        job.name,
        job.regions,
        dry_run=job.dry,
        say=say,
        held=lambda found: _held(job, found),
        known=_known(job.out),
        keep_copies=job.keep_copies,
        unbudgeted=_unbudgeted(class_file),
    )
    return _would_remove(job, report) if job.dry else _removed(job, report)


def named(class_file: Path, given: str = "") -> str:
    """Return the name that was given, else that of a class.yml, valid otherwise or not."""
    name = given
    if not name:
        try:
            data = yaml_source.load(class_file.read_text(encoding="utf-8-sig")).data
            name = str(data["name"])
        except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError) as error:
            raise ClassroomError(
                f"Could not read the name of the class from {class_file}: {error}.",
                "Give it with --name.",
            ) from error
    try:
        return fields.name(name)
    except PydanticCustomError as error:
        raise ClassroomError(str(error), "Nothing was removed.") from error


def account(class_file: Path) -> str:
    """Return `account` of a class.yml that may be broken or lost."""
    try:
        data = yaml_source.load(class_file.read_text(encoding="utf-8-sig")).data
        return fields.account(data.get("account") or "")
    except (OSError, ValueError, yaml.YAMLError, AttributeError, PydanticCustomError):
        return ""


def boundary(class_file: Path) -> str:
    """Return `boundary` of a class.yml that may be broken or missing."""
    try:
        data = yaml_source.load(class_file.read_text(encoding="utf-8-sig")).data
        return fields.boundary(str(data.get("boundary") or ""))
    except (OSError, ValueError, yaml.YAMLError, AttributeError, PydanticCustomError):
        return ""


def _unbudgeted(class_file: Path) -> bool:
    """Return whether a class.yml, valid or not, says that AWS keeps no budgets for it."""
    try:
        data = yaml_source.load(class_file.read_text(encoding="utf-8-sig")).data
    except (OSError, ValueError, yaml.YAMLError):
        return False
    budget = data.get("budget") if isinstance(data, dict) else None
    return budget == organisations.NO_BUDGET or (
        isinstance(budget, dict) and budget.get("in_aws") is False
    )


def _machines_alone(job: ClassTeardown, limit: list[str]) -> Result:
    """Remove some machines of a class that continues."""
    spec = specs.load(job.class_file, job.cloud.now(), ended_ok=True)
    r = Run(spec, job.cloud, check=job.dry, limit=frozenset(limit), say=job.say)
    gone = power.chosen_whole(r, "be removed")
    r.discard = job.discard
    provision.save_before_the_end(r, gone)
    provision.launch.retire(r, gone)
    provision.class_guards.delete_budgets(r, [m.tags.get(tags.OWNER, m.name) for m in gone])
    return {
        "changed": bool(r.changes),
        "changes": r.changes,
        "check": r.check,
        "summary": f"{len(gone)} machines removed",
    }


def _save_all(job: ClassTeardown) -> None:
    """Fetch the work of every machine that AWS lists, wherever; raise WorkNotSaved if some of it
    cannot be had, before anything is deleted."""
    cloud, name, discard = job.cloud, job.name, job.discard
    machines = sweep.machines(cloud, name, job.regions or cloud.regions())
    living = [inventory.machine(f.raw, f.region) for f in machines if f.state != "shutting-down"]
    shelf = archives.Shelf(job.out / "work")
    shelf.folder.mkdir(parents=True, exist_ok=True)
    place = None
    with doing("look for copies of the work"):
        for b in sweep.buckets(cloud, name):
            place = copies.Folder(cloud, name, b.region)
            if job.keep_copies:
                continue
            lost = copies.former(place, shelf, {m.id for m in living}, discard)
            if lost:
                raise archives.WorkNotSaved(name, lost)
    wanted = [m for m in living if m.name not in discard]
    if not any(s not in discard for m in wanted for s in m.students):
        return
    done = fetch.save(
        cloud,
        job.out,
        wanted,
        wanted=lambda _, student: student not in discard,
        say=job.say,
        copied=copies.fetcher(place, shelf),
    )
    unsafe = archives.unsafe(job.out, name, living, discard, cloud.now())
    if unsafe:
        fetch.stop_started(cloud, done)
        raise archives.WorkNotSaved(name, {m: done.failed.get(m, w) for m, w in unsafe.items()})


def _held(job: ClassTeardown, found: list[sweep.Found]) -> dict[str, str]:
    """Return which machines must not end, and why: they came while we looked, with work."""
    machines = [inventory.machine(f.raw, f.region) for f in found]
    why = archives.unsafe(job.out, job.name, machines, job.discard, job.cloud.now())
    return {m.id: why[m.name] for m in machines if m.name in why}


def _known(out: Path) -> ledger.Ledger:
    """Return what this computer knows of the class; the account knows it, too."""
    recorded = ledger.Ledger()
    with contextlib.suppress(ClassroomError):
        recorded.add(ledger.local(out))
    return recorded


def _was_here(out: Path) -> bool:
    """Return whether anything on this computer shows that the class has existed."""
    return (out / "ledger.json").exists() or any(out.glob("teardown-*.json"))


def _other_classes(job: ClassTeardown, report: removal.Report) -> str:
    """Name the classes that the account has, where it has nothing of this one."""
    if report.known or not report.clean:
        return ""
    try:
        names = ledger.classes(job.cloud)
    except ClassroomError:
        return ""
    return f" Classes in this account: {', '.join(names)}." if names else ""


def _table(job: ClassTeardown, report: removal.Report) -> Result:
    counts = Counter((f.region, f.kind) for f in report.left)
    return {
        "title": f"class {job.name}: " + ("would remove" if job.dry else "left"),
        "columns": ["region", "type", "number"],
        "rows": [[region, kind, n] for (region, kind), n in sorted(counts.items())],
        "right": [2],
    }


def _lines(report: removal.Report) -> list[str]:
    """Return what failed, and a line for each reason and region that could not be checked."""
    groups: dict[tuple[str, str], list[str]] = {}
    for place in report.blind:
        where, why = place.split(": ", 1)
        kind, region = where.rsplit(" in ", 1)
        groups.setdefault((region, why), []).append(kind)
    return [f"not removed: {e}" for e in report.errors] + [
        f"could not look at {', '.join(kinds)} in {region}: {why}"
        for (region, why), kinds in groups.items()
    ]


def _would_remove(job: ClassTeardown, report: removal.Report) -> Result:
    return {
        "tables": [_table(job, report)],
        "lines": _lines(report),
        "check": True,
        "changed": bool(report.left),
        "left": list(map(str, report.left)),
        "summary": (
            f"{len(report.left)} resources of class {job.name} in {len(report.regions)} regions;"
            " nothing was removed" + report.by_hand()
        ),
        "exit_code": 0,
    }


def _removed(job: ClassTeardown, report: removal.Report) -> Result:
    """Write the proof, and free the name if nothing is left anywhere."""
    report.account = job.cloud.account
    report.known = bool(report.removed or report.left) or _was_here(job.out)
    path = report.save(job.out)
    recorded, enabled = report.ledger, set(report.regions)
    if report.clean and not report.partial:
        lock.forget_name(job.folder, job.name)
    return {
        "tables": [_table(job, report)] if report.left else [],
        "lines": _lines(report),
        "changed": bool(report.removed),
        "removed": report.removed,
        "left": list(map(str, report.left)),
        "class_name": job.name,
        "touched": sorted({r.rsplit(" in ", 1)[1] for r in report.removed if r.startswith(BILLS)}),
        "ledger": {region: recorded.ids(region) for region in sorted(recorded.regions & enabled)},
        "summary": report.summary() + _other_classes(job, report),
        "report": str(path),
        "exit_code": report.exit_code,
    }
