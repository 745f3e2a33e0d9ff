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
import json
from dataclasses import dataclass, field
from html import escape
from typing import Any

from . import cost, prices, status, tags
from .fleet import Machine
from .run import Run
from .selfservice.aws import LATE_SECONDS
from .spec import ClassSpec

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
    margin: float = 0.0  # the students' function stops a machine that much before the cap

    @property
    def verdict(self) -> str:
        """Return in a word how the spend stands to cap and plan."""
        if self.usd + self.margin >= self.cap:
            return "cap reached"
        if self.usd >= 0.8 * self.cap:
            return "near the cap"
        return "above plan" if self.usd > 1.25 * self.plan + 1 else "on plan"


def monday(day: str) -> str:
    """Return the Monday of a day's week."""
    at = dt.date.fromisoformat(day)
    return (at - dt.timedelta(days=at.weekday())).isoformat()


def gather(run: Run) -> tuple[list[Row], list[str], dt.date]:
    """Return a row for each machine's name, all weeks, and the class's first day."""
    spec, now = run.spec, run.cloud.now()
    path = spec.out / "ledger.json"
    ledger = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    begin = min((e["first_seen"][:10] for e in ledger.values()), default=now.date().isoformat())
    first = dt.date.fromisoformat(begin)
    whole = max(1, (spec.teardown - first).days)
    gone = min(1.0, max(0.0, (now.date() - first).days / whole))
    by_name: dict[str, Row] = {}
    for entry in cost.by_instance(run).values():
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

STYLE = """
:root{color-scheme:light dark;--line:#8884;--soft:#8881;--good:#0a6b4b;--bad:#c2332b;--warn:#8a5200}
@media(prefers-color-scheme:dark){:root{--good:#3fbf91;--bad:#ff7b72;--warn:#e3b341}}
html{background:Canvas;color:CanvasText}
body{font:16px/1.5 system-ui,sans-serif;margin:1.5rem auto;max-width:70rem;padding:0 1rem}
h1{font-size:1.5rem;margin-bottom:.2rem}h2{font-size:1.15rem;margin:2rem 0 .5rem}
.sub{opacity:.75;margin-top:0}.cards{display:flex;flex-wrap:wrap;gap:.8rem;margin:1rem 0}
.card{border:1px solid var(--line);border-radius:.5rem;padding:.6rem 1rem;min-width:7.5rem;flex:1}
.card b{display:block;font-size:1.5rem}.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .6rem;border-bottom:1px solid var(--line);text-align:left;white-space:nowrap}
th{font-weight:600;position:sticky;top:0;background:Canvas}td.n,th.n{text-align:right}
.bad{color:var(--bad);font-weight:600}.warn{color:var(--warn)}.good{color:var(--good)}
ul.alarm{border-left:4px solid var(--bad);background:var(--soft);padding:.6rem 1rem .6rem 2rem}
.none{border-left:4px solid var(--good);background:var(--soft);padding:.6rem 1rem}
meter{width:7rem;height:.9rem}svg{max-width:100%;height:auto}svg text{fill:currentColor}
"""
LOOK = {"cap reached": "bad", "near the cap": "warn", "above plan": "warn", "on plan": "good"}


def page(title: str, sub: str, body: list[str]) -> str:
    """Return a page that loads nothing from anywhere."""
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width,initial-scale=1'>"
        "<meta http-equiv=Content-Security-Policy content=\"default-src 'none';"
        " style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}</title><style>{STYLE}</style><main><h1>{escape(title)}</h1>"
        f"<p class=sub>{escape(sub)}</p>{''.join(body)}</main></html>\n"
    )


def table(what: str, head: list[str], rows: list[list[str]], right: set[int]) -> str:
    """Return a table of `what`, which the keyboard scrolls too; cells are HTML already."""

    def line(cells: list[str], tag: str) -> str:
        return "<tr>" + "".join(
            f"<{tag}{' class=n' if k in right else ''}>{c}" for k, c in enumerate(cells)
        )

    body = "".join(line(r, "td") for r in rows)
    label = f"tabindex=0 role=region aria-label='{escape(what)}'"
    return f"<div class=wide {label}><table><thead>{line(head, 'th')}</thead>{body}</table></div>"


def cards(items: list[tuple[str, str]]) -> str:
    """Return figures in boxes."""
    boxes = "".join(f"<div class=card>{escape(k)}<b>{escape(v)}</b></div>" for k, v in items)
    return f"<div class=cards>{boxes}</div>"


def chart(weeks: dict[str, float], plan: float) -> str:
    """Return a bar for each week with the plan of a week as a line."""
    shown = sorted(weeks)[-WEEKS_SHOWN:]
    if not shown:
        return "<p>Nothing has run yet.</p>"
    top = max([*(weeks[w] for w in shown), plan, 0.01]) * 1.15
    step, high = 60, 160
    out = []
    for k, w in enumerate(shown):
        h = weeks[w] / top * high
        x = 10 + k * step
        colour = "var(--warn)" if weeks[w] > plan * 1.25 + 1 else "var(--good)"
        out.append(
            f"<rect x={x} y={high - h + 20:.1f} width=40 height={h:.1f} fill='{colour}' rx=3 />"
            f"<text x={x + 20} y={high - h + 14:.1f} font-size=12 text-anchor=middle>"
            f"${weeks[w]:,.0f}</text>"
            f"<text x={x + 20} y={high + 36} font-size=12 text-anchor=middle>{w[5:]}</text>"
        )
    y = high + 20 - plan / top * high
    width = 20 + len(shown) * step
    out.append(
        f"<line x1=0 x2={width} y1={y:.1f} y2={y:.1f} stroke=currentColor stroke-dasharray='6 4' />"
    )
    words = f"Dollars by week; the dashed line is the plan, ${plan:,.0f} a week."
    return (
        f"<svg viewBox='0 0 {max(width, 320)} {high + 45}' width={max(width, 320)} role=img"
        f" aria-label='{escape(words)}'>{''.join(out)}</svg><p class=sub>{escape(words)}</p>"
    )


def spend_page(run: Run, rows: list[Row], weeks: list[str], first: dt.date) -> str:
    """Return the page with spend against plan."""
    spec, now = run.spec, run.cloud.now()
    used, plan = sum(r.usd for r in rows), sum(r.plan for r in rows)
    totals = {w: sum(r.weeks.get(w, 0.0) for r in rows) for w in weeks}
    whole = max(1, (spec.teardown - first).days)
    rate = prices.hourly(spec, spec.market)
    people = len(spec.students) if spec.mode == "per-student" else len(rows)
    each_week = spec.hours_per_student * rate * people / whole * 7
    shown = weeks[-WEEKS_SHOWN:]
    lines = [
        [
            escape(r.machine),
            escape(" ".join(r.students)),
            f"{r.hours:.1f}",
            f"{r.usd:,.2f}",
            f"{r.plan:,.2f}",
            f"{r.cap:,.2f}",
            f"<meter min=0 max={r.cap:.2f} high={r.cap * 0.8:.2f} value={r.usd:.2f}"
            f" aria-label='of the cap'>{r.usd:.2f}</meter>",
            f"<span class={LOOK[r.verdict]}>{r.verdict}</span>",
            *(f"{r.weeks.get(w, 0.0):,.2f}" for w in shown),
        ]
        for r in sorted(rows, key=lambda r: (-r.usd / max(r.cap, 0.01), r.machine))
    ]
    head = ["machine", "students", "hours", "dollars", "plan", "cap", "of cap", "verdict", *shown]
    boxes = [
        ("used", f"${used:,.2f}"),
        ("plan to date", f"${plan:,.2f}"),
        ("class budget", f"${spec.budget.class_usd:,.0f}"),
        ("near or over a cap", str(sum(r.usd >= 0.8 * r.cap for r in rows))),
    ]
    return page(
        f"{spec.name}: spend against plan",
        f"{now:%Y-%m-%d %H:%M} UTC. Machine hours x price table; disks and addresses come on top.",
        [
            cards(boxes),
            chart(totals, each_week),
            "<h2>By student</h2>",
            table("spend by student", head, lines, {2, 3, 4, 5, *range(8, 8 + len(shown))}),
        ],
    )


def staff_page(run: Run, facts: dict[str, Any], existing: list[Machine], rows: list[Row]) -> str:
    """Return the staff's page: what is wrong, who waits for something, machines, guards."""
    spec, now = run.spec, run.cloud.now()
    waiting = queue(run, existing, rows)
    running = [m for m in existing if m.state in ("running", "pending")]
    boxes = [
        ("machines", str(len(existing))),
        ("running now", str(len(running))),
        ("used", f"${facts['used_usd']:,.2f}"),
        ("class budget", f"${spec.budget.class_usd:,.0f}"),
        ("waiting for staff", str(len(waiting))),
    ]
    wrong = facts["problems"]
    alarm = (
        "<ul class=alarm>" + "".join(f"<li>{escape(w)}" for w in wrong) + "</ul>"
        if wrong
        else "<p class=none>Nothing is wrong that these commands can see.</p>"
    )
    rest = "<p class=none>Nobody waits.</p>"
    if waiting:
        rest = table(
            "who waits for the staff",
            ["who", "since", "what", "what to do"],
            [[escape(c) for c in w] for w in waiting],
            set(),
        )
    return page(
        f"{spec.name}: staff",
        f"As of {now:%Y-%m-%d %H:%M} UTC; run `report` again for a fresh one. Ends {spec.teardown},"
        f" stops nightly at {spec.stop_nightly} ({spec.time_zone}).",
        [
            cards(boxes),
            alarm,
            "<h2>Queue</h2>",
            rest,
            "<h2>Machines</h2>",
            _machines(spec, existing, {r.machine: r for r in rows}),
            "<h2>Guards: what they did last</h2>",
            _guards(facts["guards"]),
        ],
    )


def _machines(spec: ClassSpec, existing: list[Machine], by_name: dict[str, Row]) -> str:
    out = []
    for m in sorted(existing, key=lambda m: m.name):
        r, guard = by_name.get(m.name), m.tags.get(tags.GUARD, "-")
        state, armed = "good" if m.state == "running" else "off", guard == tags.ARMED
        out.append(
            [
                escape(m.name),
                escape(" ".join(m.students)),
                escape(sections_of(spec, m) or m.tags.get(tags.SECTION, "")),
                f"<span class={state}>{escape(m.state)}</span>",
                escape(m.zone),
                escape(m.ip or "-"),
                escape(guard) if armed else f"<span class=bad>{escape(guard)}</span>",
                f"{r.hours:.1f}" if r else "0.0",
                f"{r.usd:,.2f}" if r else "0.00",
                f"{spec.cap(m.students):,.0f}",
            ]
        )
    people = ["machine", "students", "section"]
    head = [*people, "state", "zone", "address", "guard", "hours", "dollars", "cap"]
    return table("machines", head, out, {7, 8, 9})


def _guards(facts: list[dict[str, Any]]) -> str:
    out = [
        [
            escape(g["region"]),
            escape(g["guard"]),
            escape((g["at"] or "-")[:16].replace("T", " ")),
            escape(g["status"]),
            escape(g["answer"]),
        ]
        for g in facts
    ]
    return table("guards", ["region", "guard", "last run (UTC)", "result", "answer"], out, set())


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
            what = "has used up the cap" if m.name in over else "asks for more"
            since = asked[:16].replace("T", " ") or "-"
            todo = f"extra_usd under budget in class.yml, then extend --limit {m.name}"
            out.append(
                [who, since, what + (", asks for more" * (bool(asked) and m.name in over)), todo]
            )
    return sorted(out)


def write(run: Run) -> dict[str, Any]:
    """Write report.csv, report.html and staff.html to out/<class>; return the summary."""
    facts = status.look(run)
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
        "lines": [f"{who}: {what}. {todo}." for who, _, what, todo in queue(run, existing, rows)],
        "problems": facts["problems"],
        "files": sorted(files),
        "used_usd": used,
        "plan_usd": plan,
        "summary": f"${used:,.2f} used, ${plan:,.2f} planned to date;"
        f" {', '.join(sorted(files))} are in {out}",
    }
