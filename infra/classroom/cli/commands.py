"""What the command line and the playbooks can ask for. Each command returns one dictionary: tables,
lines, summary, exit code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..aws.cloud import Cloud, doing
from ..aws.problems import SET_THE_CLOCK, BadClass, ClassroomError
from ..fleet import hostkeys, keys
from ..fleet.inventory import Machine
from ..guards import policies
from ..machines import access, spot
from ..money import prices
from ..spec import class_file as specs
from ..spec import lock
from ..spec import roster as rosters
from ..spec.run import Run
from ..students import links, pages
from ..work import fetch
from . import (
    daily,
    doctor,
    drill,
    forecast,
    hosts,
    power,
    provision,
    report,
    status,
    teardown,
)
from .options import COMMANDS, refused

Result = dict[str, Any]
WITHOUT_AN_ACCOUNT = ("check", "forecast", "prices", "doctor")  # doctor says it itself
AFTER_THE_END = (
    *("status", "hosts", "cost", "prices", "stop", "doctor", "pages"),
    *("save_work", "restore", "report"),
)


def run(
    command: str,
    class_file: str,
    *,
    limit: list[str] | None = None,
    check: bool = False,
    say: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> Result:
    """Run one command and return its result. Whatever AWS throws is a ClassroomError: calls say
    what they were doing, and one that does not is said here."""
    with doing(f"finish {command}"):
        return _run(command, class_file, limit, check, say, options)


def _run(
    command: str,
    class_file: str,
    limit: list[str] | None,
    check: bool,
    say: Callable[[str], None],
    options: Result,
) -> Result:
    if command not in COMMANDS:
        raise ClassroomError(f"There is no command {command!r}.", f"Use {', '.join(COMMANDS)}.")
    wrong = refused(command, options)
    if wrong:  # passed over, `-e dry_run=true` to the wrong playbook would spend money
        raise ClassroomError(f"{command} has no option {', '.join(wrong)}.", "Nothing was done.")
    cloud = Cloud()
    if command == "teardown":
        return teardown.teardown(cloud, class_path(class_file), limit, check, say, options)
    if command == "doctor" and options.get("policy") and not options.get("assistant"):
        return policies.printed(teardown.boundary(class_path(class_file)))
    if command in ("init", "roster"):
        return daily.before_a_class(command, class_path(class_file), cloud.now(), check, options)
    try:
        spec = specs.load(class_path(class_file), cloud.now(), ended_ok=command in AFTER_THE_END)
    except BadClass as error:
        if command != "stop":
            raise
        return _stop_by_name(cloud, class_path(class_file), limit, check, say, error)
    by_the_clock = COMMANDS[command].by_the_clock or options.get("drill")
    if command not in WITHOUT_AN_ACCOUNT or by_the_clock:
        lock.check_account(spec.folder, cloud.account, spec.account)
        if by_the_clock and (off := cloud.wrong_clock()):
            raise ClassroomError(f"{off} Nothing was done.", SET_THE_CLOCK)
        lock.check_name(spec.folder, spec.name)
        if not check:
            lock.close_folder(spec.folder)
    if command == "check":
        return {
            "summary": f"class {spec.name}: {len(spec.students)} students, no mistakes",
            "name": spec.name,
            "students": [s.id for s in spec.students],
        }
    chosen = frozenset(rosters.expand(limit, spec.students)) if limit else None
    r = Run(spec, cloud, check=check, limit=chosen, say=say)
    if off := cloud.wrong_clock():
        r.warn(off)
    if command == "doctor" and options.get("assistant"):
        return daily.assistant(r, options)
    r.discard = fetch.discarded(options)
    try:
        with doing(f"finish {command}"):
            result = _COMMANDS[command](r, options)
    except ClassroomError as error:
        if r.changes and not check:  # 2 is: nothing was done
            error.exit_code = 1
        raise
    return {
        "changed": bool(r.changes),
        "changes": r.changes,
        "warnings": r.warnings,
        "check": check,
        **result,
    }


def _stop_by_name(
    cloud: Cloud,
    file: Path,
    limit: list[str] | None,
    check: bool,
    say: Callable[[str], None],
    error: BadClass,
) -> Result:
    """Stop the machines that carry the name in a class.yml that has mistakes, or, if that holds
    none, in class.lock.yml."""
    try:
        name = teardown.named(file)
    except ClassroomError:
        name = str(lock.read(file.parent).get("name") or "")
        if not name:
            raise error from None
    lock.check_account(file.parent, cloud.account, teardown.account(file))
    r = power.stop_by_name(cloud, name, limit, check, say)
    return {
        "changed": bool(r.changes),
        "changes": r.changes,
        "warnings": [
            f"{file.name} has mistakes, so machines were found by the tag of {name} alone.",
            *r.warnings,
        ],
        "lines": str(error).splitlines()[1:],
        "check": check,
        "summary": f"{sum(c.count(',') + 1 for c in r.changes)} machines "
        + ("would be stopped" if check else "were stopped"),
        "exit_code": 1,
    }


def class_path(class_file: str) -> Path:
    """Return class.yml of a folder, or the file that was given."""
    path = Path(class_file).expanduser()
    return path / "class.yml" if path.is_dir() else path


def _machines(
    r: Run,
    machines: list[Machine],
    title: str,
    hours: dict[str, Any] | None = None,
    known: bool = True,
) -> dict[str, Any]:
    rows = []
    for m in sorted(machines, key=lambda m: m.name):
        row = [
            m.name,
            " ".join(m.students) if m.seats else m.students[0],
            m.state,
            m.zone,
            m.ip or "-",
            m.tags.get("trainium-labs:guard", "-"),
        ]
        if hours is not None:
            h = hours.get(m.name, {"hours": 0.0, "usd": 0.0} if known else None)
            budget = r.spec.cap(m.students)
            row += (
                [f"{h['hours']:.1f}", f"{h['usd']:.2f}", f"{100 * h['usd'] / budget:.0f} %"]
                if h
                else ["-"] * 3
            )
        rows.append(row)
    columns = ["machine", "student", "state", "zone", "address", "guard"] + (
        ["hours", "dollars", "of budget"] if hours is not None else []
    )
    return {"title": title, "columns": columns, "rows": rows, "right": [6, 7, 8]}


def _provision(r: Run, options: Result) -> Result:
    _renew_prices(r)
    public = keys.ensure(r)
    outcome = provision.provision(
        r, bool(options.get("confirm_removals")), bool(options.get("confirm_changes"))
    )
    written = pages.write(r, [m for m in outcome.machines if m.id], public)
    lines = [f"{name} has no machine: {why}" for name, why in sorted(outcome.unplaced.items())]
    lines += [
        f"{name} is not armed; it is stopped within"
        f" {provision.class_guards.UNARMED_MINUTES} minutes."
        " Run provision again."
        for name in outcome.unarmed
    ]
    lines += [
        f"{name} has been starting for {provision.arrivals.MINUTES} minutes: `status` shows what"
        " becomes of it; run provision again."
        for name in outcome.slow
    ]
    lines += [
        f"{student}: the copy of {at:%Y-%m-%d %H:%M} UTC comes onto the new machine."
        for student, at in sorted(outcome.restored.items())
    ]
    if outcome.unplaced:
        lines.append(
            "Run provision again later: who has a machine keeps it, only the missing ones are"
            " tried."
        )
    if not r.check:
        lines += forecast.behind_caps(r, forecast.live_price(r))
    if not r.check and not drill.done_in(r.spec.folder, r.cloud.account):
        lines.append(
            "No drill is on record for this account: `python -m classroom doctor --drill` (an hour,"
            " about a cent) shows whether AWS lets every guard act."
        )
    summary = (
        f"{len(outcome.machines)} machines, {len(outcome.launched)} new, {len(outcome.removed)}"
        f" removed, {len(outcome.unplaced)} without a machine"
    )
    return {
        "tables": [_machines(r, outcome.machines, r.spec.name)],
        "lines": lines,
        "summary": summary,
        "exit_code": outcome.exit_code,
        "launched": outcome.launched,
        "removed": outcome.removed,
        "unplaced": outcome.unplaced,
        "pages": written,
    }


def _renew_prices(r: Run) -> None:
    """Let caps go by today's prices, where the account may ask AWS for them."""
    if not r.check and prices.renew(
        r.spec, r.cloud.now().date(), lambda: r.cloud.client("pricing")
    ):
        r.say("prices: old figures were read again from AWS's Pricing API")


def _forecast(r: Run, _: Result) -> Result:
    return forecast.show(r, forecast.live_price(r))


def _prices(r: Run, options: Result) -> Result:
    today = r.cloud.now().date()
    return (
        prices.refresh(r.spec, today, r.check, lambda: r.cloud.client("pricing"))
        if options.get("refresh")
        else prices.show(r.spec, today)
    )


def _status(r: Run, _: Result) -> Result:
    facts = status.gather(r)
    existing, hours, gone = facts.pop("existing"), facts["hours"], facts["taken"]
    running = [m for m in existing if m.state in ("running", "pending")]
    seen, known = facts["budget"]["seen_usd"], facts["hours_known"]
    return {
        "tables": [
            _machines(r, facts.pop("chosen"), r.spec.name, hours, known),
            *status.tables(facts),
        ],
        "lines": [
            *(spot.say(name, why) for name, why in sorted(gone.items())),
            f"Dollars are machine hours x {prices.rate(r.spec, r.cloud.now().date())}; disks and"
            " addresses come on top (see cost)."
            + (f" The class budget has seen ${seen:,.2f} so far." if seen is not None else ""),
        ],
        "summary": (
            f"{len(existing)} machines, {len(running)} running, {'' if known else 'at least '}"
            f"${facts['used_usd']:,.2f} of"
            f" ${r.spec.budget.class_usd:,.2f} used"
        ),
        **facts,
    }


def _cost(r: Run, options: Result) -> Result:
    now, ahead = _status(r, options), _forecast(r, options)
    return {
        **now,
        "tables": now["tables"] + ahead["tables"],
        "lines": now["lines"] + ahead["lines"],
    }


def _start(r: Run, options: Result) -> Result:
    machines, failed = power.start(r, bool(options.get("over_budget")))
    moved = daily.elsewhere(r, machines, failed) if options.get("elsewhere") else []
    pages.write(r, machines, {})
    return {
        "tables": [_machines(r, machines, "started")],
        "lines": [
            why if why.startswith(n) else f"{n} did not start: {why}" for n, why in failed.items()
        ]
        + moved,
        "summary": f"{sum(m.state == 'running' for m in machines)} of {len(machines)} machines run",
        "exit_code": 1 if failed else 0,
    }


def _stop(r: Run, _: Result) -> Result:
    machines = power.stop(r)
    return {
        "tables": [_machines(r, machines, "stopped")],
        "summary": (
            f"{sum(m.state == 'stopped' for m in machines)} of {len(machines)} machines are stopped"
        ),
    }


def _extend(r: Run, options: Result) -> Result:
    _renew_prices(r)
    outcome = provision.extend(r, bool(options.get("confirm_changes")))
    return {
        "tables": [_machines(r, outcome.machines, r.spec.name)],
        "exit_code": outcome.exit_code,
        "summary": (
            f"{r.spec.name} now ends {r.spec.teardown} and stops nightly at {r.spec.stop_nightly}"
        ),
    }


def _pages(r: Run, _: Result) -> Result:
    existing, _plan = provision.survey(r)
    links.settle(r, existing)
    hostkeys.pin(r, existing)
    written = pages.write(r, existing, keys.ensure(r)) + pages.write_staff(r, existing)
    late = sorted(m.name for m in existing if m.state == "running" and not hostkeys.known(m))
    lines = [
        f"The host keys of {', '.join(late)} are not printed yet: a machine does that a minute or"
        " two after its first boot. Run pages again then; so far pages have no fingerprint of it."
    ]
    return {
        "lines": lines if late else [],
        "summary": f"{len(written)} pages written to {r.spec.out};"
        " the others were as they should be",
    }


def _keys(r: Run, options: Result) -> Result:
    rotate = bool(options.get("rotate"))
    public = keys.ensure(r, rotate=rotate)
    if rotate:
        existing, _plan = provision.survey(r)
        if r.limit is None:  # the staff key is the whole class's
            for region in sorted({m.region for m in existing}):
                access.key_pair(r, region)
        pages.write(r, [m for m in existing if r.wants(m.name, *m.students)], public)
    return {"public_keys": public, "summary": f"{len(public)} public keys"}


_COMMANDS: dict[str, Callable[[Run, Result], Result]] = {
    "provision": _provision,
    "forecast": _forecast,
    "prices": _prices,
    "status": _status,
    "hosts": lambda r, _: hosts.logins(r),
    "cost": _cost,
    "start": _start,
    "stop": _stop,
    "extend": _extend,
    "pages": _pages,
    "links": daily.links_,
    "save_work": daily.save_work,
    "restore": daily.restore,
    "reserve": daily.reserve_,
    "report": lambda r, _: report.write(r),
    "keys": _keys,
    "doctor": doctor.doctor,
}
