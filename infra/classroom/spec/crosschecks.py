"""class.yml: fields that are right each for itself, and wrong together.

Each check gets the fields that are right, so that no mistake hides another, and yields (place,
what is wrong, what to do).
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Iterator
from typing import Any
from zoneinfo import ZoneInfo

from . import instance_types
from . import sdk as sdks
from .roster import Student

Said = tuple[tuple, str, str]
ALLOW_WORLD = "yes-i-mean-it"
LONGEST_DAYS = 366  # a class
TAGS_OF_A_RESOURCE, OUR_TAGS = 50, 17  # what AWS takes (documented); ours, apart from seats


def check(
    good: dict[str, Any], students: list[Student], now: dt.datetime, ended_ok: bool
) -> Iterator[Said]:
    """Yield what is wrong between fields; `ended_ok`: a teardown date may have passed."""
    yield from _networks(good)
    yield from _skipped_stop(good, now)
    yield from _teardown(good, now, ended_ok)
    yield from _sdk(good)
    yield from _market(good)
    yield from _class_budget(good, students)
    yield from _reservations(good)
    yield from _copies(good)
    yield from _extra_budgets(good, students)
    yield from _mail(good)
    yield from _tags(good)


def _networks(good: dict[str, Any]) -> Iterator[Said]:
    allow = good.get("allow_world", "")
    for i, net in enumerate(good.get("ssh_cidrs") or []):
        try:
            size = ipaddress.ip_network(net).prefixlen
        except ValueError:
            continue
        if size == 0 and allow != ALLOW_WORLD:
            problem = f"{net} opens port 22 to the whole world."
            ask = f"ask a second time with `allow_world: {ALLOW_WORLD}`."
            yield ("ssh_cidrs", i), problem, f"Name the campus network; if you must, {ask}"
        elif 0 < size < 8:
            problem = f"{net} is a large part of the internet."
            yield ("ssh_cidrs", i), problem, "Name the campus network."
    if allow not in ("", ALLOW_WORLD):
        problem = f"`allow_world` is {allow!r}."
        yield ("allow_world",), problem, f"Write {ALLOW_WORLD} or remove it."


def _skipped_stop(good: dict[str, Any], now: dt.datetime) -> Iterator[Said]:
    """Refuse a stop at a time that some night does not have: EventBridge Scheduler and systemd both
    skip it, so nothing would stop the machines."""
    stop, zone, end = (good.get(k) for k in ("stop_nightly", "time_zone", "teardown"))
    if not (isinstance(stop, str) and isinstance(zone, str) and isinstance(end, dt.date)):
        return
    tz, clock = ZoneInfo(zone), dt.time.fromisoformat(stop)
    day = now.astimezone(tz).date()
    for _ in range(LONGEST_DAYS):
        moment = dt.datetime.combine(day, clock, tz)
        seen = moment.astimezone(dt.timezone.utc).astimezone(tz)
        if seen.replace(tzinfo=None) != moment.replace(tzinfo=None):
            problem = f"There is no {stop} on {day} in {zone}: the clocks are put forward then, and"
            text = f"{problem} machines would run through that night."
            yield ("stop_nightly",), text, f"Stop at {seen:%H:%M} or earlier in the evening."
            return
        day += dt.timedelta(days=1)
        if day > end:
            return


def _teardown(good: dict[str, Any], now: dt.datetime, ended_ok: bool) -> Iterator[Said]:
    teardown = good.get("teardown")
    if not isinstance(teardown, dt.date):
        return
    today = now.astimezone(ZoneInfo(good.get("time_zone", "UTC"))).date()
    if teardown <= today and not ended_ok:
        problem = f"The teardown date {teardown} is not in the future."
        yield ("teardown",), problem, "Write the day after the course ends."
    elif teardown > today + dt.timedelta(days=LONGEST_DAYS):
        problem = f"The teardown date {teardown} is more than a year away."
        yield ("teardown",), problem, "A class lasts a term; extend it later."


def _sdk(good: dict[str, Any]) -> Iterator[Said]:
    version, dialect = good.get("sdk"), good.get("dialect", "neuronxcc.nki")
    if not version or not dialect:
        return
    mistake = sdks.dialect_problem(version, dialect)
    if mistake:
        yield ("sdk",), *mistake
    profiler = "neuron-profile"
    if good.get("profiler") == profiler and sdks.profiler_for(version) != profiler:
        problem = f"SDK {version} has no neuron-profile; it ended with 2.29."
        yield ("profiler",), problem, "Use `profiler: auto`."


def _market(good: dict[str, Any]) -> Iterator[Said]:
    machine = instance_types.TYPES.get(good.get("instance_type", ""))
    market = good.get("market", "on-demand")
    if machine and machine.capacity_block_only and market != "capacity-block":
        place = ("market",) if "market" in good else ("instance_type",)
        problem = f"{machine.name} is sold in capacity blocks only."
        yield place, problem, "Set `market: capacity-block` and `capacity_block:`."
    if market == "capacity-block" and good.get("capacity_block") is None:
        problem = "A capacity block is paid for in advance, and nothing says how long or how much."
        yield ("market",), problem, "Add capacity_block: {hours: 24, max_upfront_usd: 60}."
    if machine and machine.family == "inf2" and market == "capacity-block":
        yield ("market",), "inf2 is not sold in capacity blocks.", "Use on-demand or spot."


def _class_budget(good: dict[str, Any], students: list[Student]) -> Iterator[Said]:
    budget, count = good.get("budget"), len(students)
    if budget is None or not students:
        return
    if budget.class_usd > 2 * (budget.per_student_usd * count + sum(budget.extra_usd.values())):
        problem = (
            f"The class budget (${budget.class_usd:,.0f}) is more than twice what"
            f" {count} students at ${budget.per_student_usd:,.0f} may cost."
        )
        yield ("budget", "class_usd"), problem, "Lower it, or raise per_student_usd."


def _reservations(good: dict[str, Any]) -> Iterator[Said]:
    teardown = good.get("teardown")
    for k, r in enumerate(good.get("reservations") or []):
        problem = ""
        if not r.begins <= r.ends < r.begins + dt.timedelta(days=15):
            problem = f"A reservation from {r.begins} until {r.ends} is not of 1 to 15 days."
        elif isinstance(teardown, dt.date) and r.ends >= teardown:
            problem = f"The reservation ends {r.ends}, not before the teardown on {teardown}."
        elif good.get("market", "on-demand") != "on-demand":
            problem = "Spot machines and capacity blocks use no reservation."
        if problem:
            yield ("reservations", k), problem, "It bills whether machines run or not."


def _copies(good: dict[str, Any]) -> Iterator[Said]:
    if good.get("work_copies") and good.get("mode") in ("shared", "cluster"):
        problem = "Every user of a shared machine could read the others' copies with its role."
        yield ("work_copies",), problem, "Remove it; teardown fetches the work in any case."


def _extra_budgets(good: dict[str, Any], students: list[Student]) -> Iterator[Said]:
    budget = good.get("budget")
    if budget is not None and students:
        for who in sorted(set(budget.extra_usd) - {s.id for s in students}):
            problem = f"`budget.extra_usd` names {who}, who is not in the roster."
            yield ("budget", "extra_usd", who), problem, "Check the spelling, or remove it."


def _mail(good: dict[str, Any]) -> Iterator[Said]:
    if good.get("mail_from") and good.get("my", "") != "lambda":
        problem = "Mails are sent by the students' function, and `my: lambda` is not there."
        yield ("mail_from",), problem, "Add it, or remove mail_from."


def _tags(good: dict[str, Any]) -> Iterator[Said]:
    tags, machine = good.get("tags") or {}, instance_types.TYPES.get(good.get("instance_type", ""))
    seats = machine.cores if machine and good.get("mode") == "shared" else 0
    most = max(0, TAGS_OF_A_RESOURCE - OUR_TAGS - seats)
    if len(tags) > most:
        problem = f"`tags` has {len(tags)}; AWS takes {TAGS_OF_A_RESOURCE} on a machine, and the"
        yield ("tags",), f"{problem} class needs the others.", f"Write at most {most}."
