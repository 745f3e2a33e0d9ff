"""The same as a page that works offline: a chart a case, and who is fastest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from html import escape
from pathlib import Path

from .points import SECOND

COLORS = ("#3366cc", "#dc3912", "#109618", "#990099", "#ff9900", "#0099c6", "#b82e2e", "#66aa00")
W, H, LEFT, BOTTOM = 640, 220, 64, 26
HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Latency over time</title>
<style>body{font:14px system-ui,sans-serif;margin:24px;max-width:1000px;color:#222}
svg{background:#fafafa;border:1px solid #ddd}h2{margin:28px 0 4px;font-size:16px}
td,th{text-align:left;padding:2px 14px 2px 0}td.n{text-align:right}
.key{display:inline-block;width:10px;height:10px;margin:0 4px 0 12px}
.note{color:#666}.row{display:flex;gap:24px;flex-wrap:wrap;align-items:flex-start}</style>
"""
Series = Sequence[tuple[int, float]]


def write_page(path: Path, rows: Mapping[tuple[str, ...], Series], source: str) -> None:
    """Write a page; `rows`: (time in ns, p50 us) by kind, lab, case, target, student."""
    charts: dict[tuple[str, ...], dict[str, Series]] = {}
    for (kind, lab, case, target, student), values in rows.items():
        charts.setdefault((lab, case, target, kind), {})[student] = values
    body = [
        f"<h1>Latency over time</h1><p class=note>p50 in microseconds, from {escape(source)}. "
        "Predicted (nkisim's model) and measured (a chip) are never in one chart.</p>"
    ]
    for (lab, case, target, kind), lines in charts.items():
        body.append(
            f"<h2>{escape(lab)}: {escape(case)} on {escape(target)}, {escape(kind)}</h2>"
            f"<div class=row>{_chart(lines)}{_ranking(lines)}</div>"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD + "\n".join(body) + "</html>\n", encoding="utf-8")


def _chart(lines: Mapping[str, Series]) -> str:
    times = [t for values in lines.values() for t, _ in values]
    top = max(v for values in lines.values() for _, v in values) * 1.08 or 1.0
    first, last = min(times), max(times)

    def x(t: int) -> float:
        return LEFT + (W - LEFT - 12) * ((t - first) / (last - first) if last > first else 0.5)

    def y(v: float) -> float:
        return (H - BOTTOM) * (1 - v / top) + 6

    out = [f'<svg width="{W}" height="{H}" role="img">']
    for part in (0, 0.5, 1):
        at = y(top * part / 1.08)
        out.append(
            f'<line x1="{LEFT}" x2="{W}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>'
            f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end" font-size="11">'
            f"{top * part / 1.08:,.1f}</text>"
        )
    for t, anchor in ((first, "start"), (last, "end")):
        day = datetime.fromtimestamp(t // SECOND, timezone.utc)
        out.append(
            f'<text x="{x(t):.1f}" y="{H - 4}" text-anchor="{anchor}" font-size="11">'
            f"{day:%Y-%m-%d %H:%M}</text>"
        )
        if first == last:
            break
    keys = []
    for number, (student, values) in enumerate(sorted(lines.items())):
        color = COLORS[number % len(COLORS)]
        places = " ".join(f"{x(t):.1f},{y(v):.1f}" for t, v in values)
        out.append(f'<polyline points="{places}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        out += [
            f'<circle cx="{x(t):.1f}" cy="{y(v):.1f}" r="2.5" fill="{color}">'
            f"<title>{escape(student)}: {v:,.1f} us</title></circle>"
            for t, v in values
        ]
        keys.append(f'<span class=key style="background:{color}"></span>{escape(student)}')
    return f"<div>{''.join(out)}</svg><div>{''.join(keys)}</div></div>"


def _ranking(lines: Mapping[str, Series]) -> str:
    best = sorted(
        (min(v for _, v in values), student, len(values)) for student, values in lines.items()
    )
    rows = "".join(
        f"<tr><td class=n>{n}</td><td>{escape(student)}</td><td class=n>{us:,.1f}</td>"
        f"<td class=n>{count}</td></tr>"
        for n, (us, student, count) in enumerate(best, 1)
    )
    return f"<table><tr><th></th><th>student</th><th>best us</th><th>runs</th></tr>{rows}</table>"
