"""The week's report: spend against plan by student and class, as CSV and as pages that work
offline.

Hours are counted from CloudWatch's samples and dollars are hours x price table, without disks and
addresses: what AWS bills comes a day later and from AWS. The plan is `hours_per_student`, spread
evenly from the class's first machine to its last day.
"""

from __future__ import annotations

import csv
import datetime as dt
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2

from ..fleet.inventory import Machine
from ..money import cost, prices
from ..spec import ledger, tags
from ..spec.class_file import ClassSpec
from ..spec.run import Run
from ..students.selfservice.aws import LATE_SECONDS
from . import status

WEEKS_SHOWN = 12


@dataclass
class Row:
    """Hold one machine's line: what it cost by week, in all, and what it may and should."""

    machine: str
    students: list[str]
    weeks: dict[str, float] = field(default_factory=dict)
    hours: float = 0.0
    usd: float = 0.0
    cap: float = 0.0
    plan: float = 0.0
    known: bool = True  # whether CloudWatch has told all of its hours
    margin: float = 0.0  # the students' function stops a machine that much before the cap

    @property
    def verdict(self) -> str:
        """Return how the spend compares with cap and plan, as a short label."""
        if self.usd + self.margin >= self.cap:
            return "cap reached"
        if self.usd >= 0.8 * self.cap:
            return "near the cap"
        if not self.known:
            return "unknown"
        return "above plan" if self.usd > 1.25 * self.plan + 1 else "on plan"


def monday(day: str) -> str:
    """Return the Monday of a day's week."""
    at = dt.date.fromisoformat(day)
    return (at - dt.timedelta(days=at.weekday())).isoformat()


def gather(run: Run) -> tuple[list[Row], list[str], dt.date]:
    """Return a row for each machine's name, all weeks, and the class's first day. What CloudWatch
    does not show makes a row unknown."""
    spec, now = run.spec, run.cloud.now()
    blind: list[str] = []
    ledger.remember(run, [], ledger.read(run, blind))
    entries = ledger.local(spec.out)
    begin = min((e["first_seen"][:10] for e in entries.values()), default=now.date().isoformat())
    first = dt.date.fromisoformat(begin)
    whole = max(1, (spec.teardown - first).days)
    gone = min(1.0, max(0.0, (now.date() - first).days / whole))
    by_name: dict[str, Row] = {}
    read = cost.by_instance(run, blind)
    for iid in set(entries) - set(read):
        name = entries[iid]["machine"]
        by_name.setdefault(name, Row(name, entries[iid]["students"])).known = False
    for entry in read.values():
        row = by_name.setdefault(entry["machine"], Row(entry["machine"], entry["students"]))
        row.hours += entry["hours"]
        row.usd += entry["usd"]
        for day, hours in entry["days"].items():
            week = monday(day)
            row.weeks[week] = row.weeks.get(week, 0.0) + hours * entry["rate"]
    for s in spec.students:
        if not any(s.id in r.students for r in by_name.values()):
            by_name[s.id] = Row(s.id, [s.id])
    rate = prices.hourly(spec, spec.market)
    for row in by_name.values():
        row.cap = spec.cap(row.students)
        row.margin = LATE_SECONDS / 3600 * rate if spec.my else 0.0
        row.plan = spec.hours_per_student * rate * len(row.students) * gone
        if spec.mode == "shared":
            row.plan /= max(1, len(row.students))
    weeks = sorted({w for r in by_name.values() for w in r.weeks})
    return sorted(by_name.values(), key=lambda r: r.machine), weeks, first


def as_csv(rows: list[Row], weeks: list[str], sections: dict[str, str]) -> str:
    """Return the table for a spreadsheet; a cell never begins with what it would compute."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    head = ["machine", "students", "section", "hours", "dollars", "plan to date", "cap", "verdict"]
    writer.writerow([*head, *(f"week of {w}" for w in weeks)])
    for r in rows:
        section = " ".join(sorted({sections.get(s, "") for s in r.students} - {""}))
        figures = [f"{r.hours:.1f}", f"{r.usd:.2f}", f"{r.plan:.2f}", f"{r.cap:.2f}", r.verdict]
        by_week = [f"{r.weeks.get(w, 0.0):.2f}" for w in weeks]
        writer.writerow([r.machine, " ".join(r.students), section, *figures, *by_week])
    return out.getvalue()


# ---- pages ----

CLASSES = {  # the look of a verdict, in templates/base.html
    "cap reached": "bad",
    "near the cap": "warn",
    "above plan": "warn",
    "unknown": "warn",
    "on plan": "good",
}


def number(value: float, digits: int = 2) -> str:
    """Return a number with commas and `digits` digits after the point."""
    return f"{value:,.{digits}f}"


def page(name: str, **values: Any) -> str:
    """Return the page that a template makes; it loads nothing from anywhere."""
    loader = jinja2.FileSystemLoader(Path(__file__).with_name("templates"))
    made = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    made.filters["number"] = number
    return made.get_template(name).render(values) + "\n"


def chart(weeks: dict[str, float], plan: float) -> dict[str, Any] | None:
    """Return where a bar for each week and the line of a week's plan are; None without weeks."""
    shown = sorted(weeks)[-WEEKS_SHOWN:]
    if not shown:
        return None
    top = max([*(weeks[w] for w in shown), plan, 0.01]) * 1.15
    step, high = 60, 160
    bars = []
    for k, w in enumerate(shown):
        h = weeks[w] / top * high
        bars.append(
            {
                "x": 10 + k * step,
                "y": f"{high - h + 20:.1f}",
                "height": f"{h:.1f}",
                "text_y": f"{high - h + 14:.1f}",
                "colour": "var(--warn)" if weeks[w] > plan * 1.25 + 1 else "var(--good)",
                "dollars": f"${weeks[w]:,.0f}",
                "week": w[5:],
            }
        )
    return {
        "bars": bars,
        "width": max(20 + len(shown) * step, 320),
        "height": high + 45,
        "week_y": high + 36,
        "line_x": 20 + len(shown) * step,
        "line_y": f"{high + 20 - plan / top * high:.1f}",
        "words": f"Dollars by week; the dashed line is the plan, ${plan:,.0f} a week.",
    }


def spend_page(run: Run, rows: list[Row], weeks: list[str], first: dt.date) -> str:
    """Return the page with spend against plan."""
    spec, now = run.spec, run.cloud.now()
    used, plan = sum(r.usd for r in rows), sum(r.plan for r in rows)
    totals = {w: sum(r.weeks.get(w, 0.0) for r in rows) for w in weeks}
    whole = max(1, (spec.teardown - first).days)
    rate = prices.hourly(spec, spec.market)
    people = len(spec.students) if spec.mode == "per-student" else len(rows)
    each_week = spec.hours_per_student * rate * people / whole * 7
    figures = [
        ("used", f"${used:,.2f}"),
        ("plan to date", f"${plan:,.2f}"),
        ("class budget", f"${spec.budget.class_usd:,.0f}"),
        ("near or over a cap", str(sum(r.usd >= 0.8 * r.cap for r in rows))),
    ]
    return page(
        "spend.html",
        title=f"{spec.name}: spend against plan",
        now=f"{now:%Y-%m-%d %H:%M}",
        figures=figures,
        chart=chart(totals, each_week),
        weeks=weeks[-WEEKS_SHOWN:],
        rows=sorted(rows, key=lambda r: (-r.usd / max(r.cap, 0.01), r.machine)),
        classes=CLASSES,
    )


def staff_page(run: Run, facts: dict[str, Any], existing: list[Machine], rows: list[Row]) -> str:
    """Return the staff's page: what is wrong, who waits for something, machines, guards."""
    spec, now = run.spec, run.cloud.now()
    waiting = queue(run, existing, rows)
    running = [m for m in existing if m.state in ("running", "pending")]
    figures = [
        ("machines", str(len(existing))),
        ("running now", str(len(running))),
        ("used", f"${facts['used_usd']:,.2f}"),
        ("class budget", f"${spec.budget.class_usd:,.0f}"),
        ("waiting for staff", str(len(waiting))),
    ]
    by_name, machines = {r.machine: r for r in rows}, []
    for m in sorted(existing, key=lambda m: m.name):
        section = sections_of(spec, m) or m.tags.get(tags.SECTION, "")
        guard = m.tags.get(tags.GUARD, "-")
        machines.append((m, section, guard, guard == tags.ARMED, by_name.get(m.name)))
    return page(
        "staff.html",
        title=f"{spec.name}: staff",
        now=f"{now:%Y-%m-%d %H:%M}",
        spec=spec,
        figures=figures,
        problems=facts["problems"],
        waiting=waiting,
        machines=machines,
        guards=facts["guards"],
    )


def sections_of(spec: ClassSpec, m: Machine) -> str:
    """Return the sections that the roster has for who works on a machine."""
    return " ".join(sorted({s.section for s in spec.students if s.id in m.students} - {""}))


def queue(run: Run, existing: list[Machine], rows: list[Row]) -> list[list[str]]:
    """Return who waits for the staff: who, since when, for what, and what to do."""
    out = []
    have = {s for m in existing for s in m.students}
    for s in run.spec.students:
        if s.id not in have:
            out.append([s.id, "-", "has no machine", "provision"])
    over = {r.machine for r in rows if r.verdict == "cap reached"}
    for m in existing:
        asked = m.tags.get(tags.ASKS, "")
        who = " ".join(m.students)
        if asked or m.name in over:
            reason = "has used up the cap" if m.name in over else "asks for more"
            since = asked[:16].replace("T", " ") or "-"
            todo = f"extra_usd under budget in class.yml, then extend --limit {m.name}"
            out.append(
                [who, since, reason + (", asks for more" * (bool(asked) and m.name in over)), todo]
            )
    return sorted(out)


def write(run: Run) -> dict[str, Any]:
    """Write report.csv, report.html and staff.html to out/<class>; return the summary."""
    facts = status.gather(run)
    existing = facts["existing"]
    rows, weeks, first = gather(run)
    out, sections = run.spec.out, {s.id: s.section for s in run.spec.students}
    files = {
        "report.csv": as_csv(rows, weeks, sections),
        "report.html": spend_page(run, rows, weeks, first),
        "staff.html": staff_page(run, facts, existing, rows),
    }
    if not run.check:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            part = out / f".{name}.part"
            part.write_text(text, encoding="utf-8")
            part.replace(out / name)
    used, plan = sum(r.usd for r in rows), sum(r.plan for r in rows)
    last = [
        [r.machine, f"{r.hours:.1f}", f"{r.usd:.2f}", f"{r.plan:.2f}", f"{r.cap:.2f}", r.verdict]
        for r in rows
        if r.verdict != "on plan"
    ]
    return {
        "tables": [
            {
                "title": "not on plan",
                "columns": ["machine", "hours", "dollars", "plan", "cap", "verdict"],
                "rows": last,
                "right": [1, 2, 3, 4],
            }
        ],
        "lines": [
            f"{who}: {reason}. {todo}." for who, _, reason, todo in queue(run, existing, rows)
        ],
        "problems": facts["problems"],
        "exit_code": facts["exit_code"],
        "files": sorted(files),
        "used_usd": used,
        "plan_usd": plan,
        "summary": f"${used:,.2f} used, ${plan:,.2f} planned to date;"
        f" {', '.join(sorted(files))} are in {out}",
    }
