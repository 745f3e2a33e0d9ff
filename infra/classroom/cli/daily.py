"""Commands of a class's daily life: links, saved work, rosters, reports. Each takes a run
and its options and returns tables, lines, summary, exit code, as those in commands.py."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

from ..aws.problems import AWS_ERRORS, ClassroomError
from ..fleet import hostkeys, keys
from ..fleet.inventory import Machine
from ..guards import policies
from ..machines import reserve
from ..spec import enrolment, interview
from ..spec.run import Run
from ..students import links, pages
from ..work import archives, copies
from ..work import fetch as work
from . import provision

Result = dict[str, Any]
FULL = ("InsufficientInstanceCapacity", "InsufficientHostCapacity")


def before_a_class(
    command: str, class_file: Path, now: dt.datetime, check: bool, options: Result
) -> Result:
    """Run what comes before there is a class: `init` and `roster`."""
    folder = class_file.parent
    if class_file.name != "class.yml" and not class_file.exists():
        folder = class_file  # a folder that is not there yet
    if command == "init":
        return interview.init(folder, str(options.get("answers") or ""), now)
    source = str(options.get("source") or "")
    if not source:
        raise ClassroomError("Say which export: --source FILE.", "Nothing was written.")
    domain = str(options.get("mail_domain") or "").lstrip("@")
    remove = bool(options.get("remove_dropped"))
    return enrolment.merge(folder, Path(source).expanduser(), domain, remove, check)


def assistant(r: Run, options: Result) -> Result:
    """Print the policy of a teaching assistant of some sections ("all": of the whole class)."""
    words = [w.strip().lower() for w in str(options["assistant"]).split(",") if w.strip()]
    sections = sorted({s.section for s in r.spec.students if s.section})
    wrong = [w for w in words if w != "all" and w not in sections]
    if wrong:
        raise ClassroomError(
            f"There is no section {', '.join(wrong)}.",
            f"The roster has: {', '.join(sections) or 'none'}.",
        )
    document = policies.assistant(r.spec.name, [] if "all" in words else words)
    return {"lines": [json.dumps(document, indent=1)], "policy": document}


def links_(r: Run, options: Result) -> Result:
    """End links and write pages with new ones; or only write the pages; or print the policy that
    serves students where there is no function."""
    if options.get("sign_in"):
        most = policies.student(r.spec.name)
        return {"lines": [json.dumps(most, indent=1)], "policy": most}
    if r.spec.my != "lambda":
        raise ClassroomError(
            f"Students of {r.spec.name} have no links.", "Write `my: lambda` and run provision."
        )
    existing, _plan = provision.survey(r)
    chosen = [m for m in existing if r.wants(m.name, *m.students)]
    hostkeys.pin(r, chosen)
    ended = links.revoke(r, chosen) if options.get("revoke") else []
    written = pages.write(r, chosen, keys.ensure(r))
    return {
        "ended": ended,
        "lines": [f"{student}: the old link is ended" for student in ended],
        "summary": f"{len(written)} pages written to {r.spec.out}",
    }


def save_work(r: Run, _: Result) -> Result:
    """Fetch the work; machines that were stopped are stopped again afterwards."""
    existing, _plan = provision.survey(r)
    chosen = [m for m in existing if r.wants(m.name, *m.students)]
    if r.check:
        return {"summary": f"would fetch the work on {len(chosen)} machines"}
    done = work.save(
        r.cloud,
        r.spec.out,
        chosen,
        wanted=lambda m, s: r.wants(m.name, s),
        say=r.say,
        copied=copies.fetcher(copies.folder(r), archives.Shelf(r.spec.out / "work")),
    )
    work.stop_started(r.cloud, done)
    return {
        "changed": True,
        "lines": work.failures(done),
        "saved": sorted(done.saved),
        "failed": done.failed,
        "archives": archives.summary(archives.Shelf(r.spec.out / "work"), chosen),
        "summary": f"the work of {len(done.saved)} students is in {r.spec.out / 'work'}",
        "exit_code": 1 if done.failed else 0,
    }


def reserve_(r: Run, options: Result) -> Result:
    """Reserve capacity, or cancel it."""
    existing, _plan = provision.survey(r)
    return reserve.reserve(r, existing, bool(options.get("cancel")))


def restore(r: Run, options: Result) -> Result:
    """Fetch copies as of a moment and hand them to the students' machines."""
    existing, _plan = provision.survey(r)
    return copies.restore(r, existing, str(options.get("as_of") or ""))


def elsewhere(r: Run, machines: list[Machine], failed: dict[str, str]) -> list[str]:
    """Give those whose zone is full a new machine in another zone or region, with their work from
    the bucket; change `machines` and `failed`, return what to tell."""
    full = {AWS_ERRORS[code][0] for code in FULL if code in AWS_ERRORS}
    stuck = [m for m in machines if failed.get(m.name) in full]
    place = copies.folder(r)
    if not stuck or r.check:
        return []
    if place is None:
        raise ClassroomError(
            "A machine in another zone would come without the work: the class keeps no copies.",
            "Write `work_copies: s3` and run provision, for the next time; or start again later.",
            exit_code=1,
        )
    shelf = archives.Shelf(r.spec.out / "work")
    shelf.folder.mkdir(parents=True, exist_ok=True)
    fetch, notes, safe = copies.fetcher(place, shelf), [], []
    for m in stuck:
        if fetch(m) is None:
            notes.append(
                f"{m.name} stays where it is: it has not said that all of its work is in the bucket"
                " (a crash, or it was never configured with copies). Start it later."
            )
        else:
            safe.append(m)
    if not safe:
        return notes
    names = frozenset(m.name for m in safe)
    zones = {m.name: m.zone for m in safe}
    provision.launch.retire(r, safe)
    moved = Run(r.spec, r.cloud, limit=names, discard=r.discard, say=r.say)
    outcome = provision.provision(moved)
    r.changes += moved.changes
    r.warnings += moved.warnings
    for m in outcome.machines:
        failed.pop(m.name, None)
        machines[:] = [m if old.name == m.name else old for old in machines]
        notes.append(
            f"{m.name} has a new machine in {m.zone} ({zones[m.name]} was full). Run configure"
            f" --limit {m.name}: the work comes back with it."
        )
    for name, why in outcome.unplaced.items():
        failed[name] = f"{why}. Its old machine is ended, its work is safe in the bucket and in" + (
            f" {shelf.folder}. Run provision --limit {name} again later."
        )
    return notes
