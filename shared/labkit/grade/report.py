"""Write verdicts as reports: one for each student, the class's summary, the gradebook.

Names and outputs of students are text: pages are made by Jinja with autoescape on and forbid
scripts, Markdown is escaped, and cells of a CSV never begin as a formula.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..dialect import PACKAGE
from ..spec import SpecError
from ..starter.markers import split_file
from .gradebook import Gradebook
from .plan import Graded, LatePolicy
from .similarity import pairs
from .submissions import Submission, parse_time

PAGES = Path(__file__).with_name("pages")
SHOWN = 50  # pairs that are alike on the class's page; similar.csv has all
#: what spreadsheets take for the beginning of a formula, also in full width
_FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")


def number(value: float | None) -> str:
    """Return a number without noise: at most two digits after the point."""
    return "-" if value is None else f"{round(float(value), 2):,.2f}".rstrip("0").rstrip(".")


def markdown(text: Any) -> str:
    """Return text that Markdown shows as it is, in one line."""
    one = " ".join(str(text).split())
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~])", r"\\\1", one)


def block(text: str) -> str:
    """Return text as an indented block, in which Markdown has no meaning."""
    return "\n".join("    " + line for line in str(text).splitlines())


def environment() -> Any:
    """Return the Jinja environment of our pages; only .md is not HTML."""
    try:
        from jinja2 import Environment, FileSystemLoader
    except ImportError:
        raise SpecError('reports need Jinja: pip install "trainium-labs[grade]"') from None
    made = Environment(
        loader=FileSystemLoader(PAGES),
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=lambda name: not (name or "").endswith(".md"),
    )
    made.filters.update(num=number, md=markdown, block=block)
    return made


def cell(value: Any) -> str:
    """Return a cell that no spreadsheet takes for a formula."""
    if isinstance(value, (int, float)):
        return f"{round(value, 3):.3f}".rstrip("0").rstrip(".")
    text = str(value)
    return "'" + text if text.startswith(_FORMULA) else text


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8", errors="replace", newline="\n")
    os.replace(part, path)


def table(rows: Sequence[Sequence[Any]]) -> str:
    """Return rows as CSV."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([[cell(v) for v in row] for row in rows])
    return out.getvalue()


def _index(out: Path, submissions: Sequence[Submission]) -> dict[str, dict[str, Any]]:
    """Return what is known of all students of OUT, those of earlier runs too, by id."""
    path = out / "submissions.json"
    index: dict[str, dict[str, Any]] = {}
    if path.is_file():
        index = json.loads(path.read_text(encoding="utf-8"))
    for s in submissions:
        index[s.id] = {
            "student": s.student,
            "problem": s.problem,
            "notes": s.notes,
            "submitted_at": s.submitted.isoformat() if s.submitted else "",
            "text": "".join(data.decode("utf-8", "replace") for _, data in sorted(s.files.items())),
        }
        for name, data in s.files.items():  # for a person to look at, or for MOSS
            copy = out / "private" / "submitted" / s.id / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(data)
    write(path, json.dumps(index, indent=1, sort_keys=True) + "\n")
    os.chmod(path, 0o600)
    return index


def _row(
    out: Path, id: str, known: dict[str, Any], graded: Graded, late: LatePolicy
) -> dict[str, Any] | None:
    path = out / "verdicts" / f"{id}.json"
    if not path.is_file():
        return None
    verdict = json.loads(path.read_text(encoding="utf-8"))
    submitted = parse_time(known["submitted_at"]) if known["submitted_at"] else None
    share, why = late.share(submitted)
    hidden = [c for c in verdict["cases"] if c["hidden"]]
    names = {(c["case"], c["target"]): f"hidden case {i}" for i, c in enumerate(hidden, 1)}
    cases = [
        {**c, "name": names.get((c["case"], c["target"]), c["case"])} for c in verdict["cases"]
    ]
    wrong = [c for c in verdict["cases"] if c["status"] != "passed"]
    right = [
        c
        for c in verdict["cases"]
        if c["status"] == "passed" and not c["hidden"] and c["latency_us"] and c["engine_busy"]
    ]
    return {
        "id": id,
        "student": known["student"],
        "lab": graded.lab.name,
        "share": share,
        "package": PACKAGE[graded.lab.dialect],
        "points": number(verdict["points"]),
        "final": round(verdict["points"] * share, 2),
        "of": number(verdict["of"]),
        "late": why,
        "lines": verdict["lines"],
        "cases": cases,
        "problem": verdict.get("problem") or known["problem"],
        "flags": verdict["flags"],
        "looks": verdict.get("looks", []),
        "first": wrong[0] if wrong else None,
        "key": max(right, key=lambda c: c["latency_us"]) if right else None,
        "notes": known["notes"],
        "printed": verdict["printed"],
        "version": verdict["nkisim"],
        "sha": verdict["submission_sha256"][:12],
        "text": known["text"],
    }


def write_reports(
    out: Path,
    graded: Graded,
    late: LatePolicy,
    submissions: Sequence[Submission],
    gradebook: Gradebook,
) -> list[dict[str, Any]]:
    """Write reports, summary, grades.csv and canvas.csv; return a row a student.

    Rows with a reason in `apart` have a report, and a line in apart.csv instead of the gradebooks.
    """
    index = _index(out, submissions)
    all_rows = [row for id in sorted(index) if (row := _row(out, id, index[id], graded, late))]
    for row in all_rows:
        row["apart"] = gradebook.apart(row["student"], index[row["id"]])
    rows = [row for row in all_rows if not row["apart"]]
    pages = environment()
    for row in all_rows:
        shown = {**row, "final": number(row["final"])}
        write(
            out / "reports" / f"{row['id']}.html", pages.get_template("student.html").render(shown)
        )
        text = pages.get_template("student.md").render(shown)
        write(out / "reports" / f"{row['id']}.md", re.sub(r"\n{3,}", "\n\n", text))
    given = split_file(graded.lab.kernels)[0]
    alike = [
        (share, index[a]["student"], index[b]["student"])
        for share, a, b in pairs(
            {r["id"]: r["text"] for r in all_rows if r["student"] not in gradebook.staff}, given
        )
    ]
    texts = [line.text for line in graded.lab.rubric]
    write(
        out / "grades.csv",
        table(
            [
                [
                    "student",
                    "points",
                    "of",
                    "before_late",
                    "late",
                    "problem",
                    "flags",
                    "dialect",
                    *texts,
                ],
                *(
                    [
                        r["student"],
                        r["final"],
                        float(r["of"].replace(",", "")),
                        r["points"],
                        r["late"],
                        r["problem"],
                        len(r["flags"]) + len(r["looks"]),
                        graded.lab.dialect,
                        *_by_line(r, texts),
                    ]
                    for r in rows
                ),
            ]
        ),
    )
    write(out / "canvas.csv", canvas(rows, graded))
    write(
        out / "apart.csv",
        table(
            [
                ["name", "why", "points", "problem"],
                *(
                    [r["student"], r["apart"], r["final"], r["problem"]]
                    for r in all_rows
                    if r["apart"]
                ),
            ]
        ),
    )
    write(out / "similar.csv", table([["share", "one", "other"], *alike]))
    write(
        out / "summary.html",
        pages.get_template("summary.html").render(
            lab=graded.lab.name,
            package=PACKAGE[graded.lab.dialect],
            rows=rows,
            pairs=alike[:SHOWN],
            apart=[r for r in all_rows if r["apart"]],
            more=max(0, len(alike) - SHOWN),
            lines=_line_statistics(rows, texts),
            **_statistics(rows, graded.points),
        ),
    )
    return all_rows


def canvas(rows: Sequence[dict[str, Any]], graded: Graded) -> str:
    """Return the gradebook that Canvas imports: students by SIS Login ID, a row of points possible.

    Columns as Canvas's "Import a gradebook CSV" wants them: Student, ID, SIS User ID,
    SIS Login ID, Section, then the assignment; what is empty is looked up by the login.
    """
    head = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", graded.lab.name]
    return table(
        [
            head,
            ["    Points Possible", "", "", "", "", graded.points],
            *([r["student"], "", "", r["student"], "", r["final"]] for r in rows),
        ]
    )


def _by_line(row: dict[str, Any], texts: Sequence[str]) -> list[float]:
    points = {line["text"]: line["points"] for line in row["lines"]}
    return [points.get(text, 0.0) for text in texts]


def _statistics(rows: Sequence[dict[str, Any]], of: float) -> dict[str, Any]:
    points = [row["final"] for row in rows] or [0.0]
    counts = [0] * 10
    for p in points:
        counts[min(9, max(0, int(10 * p / of)))] += 1
    most = max(*counts, 1)
    return {
        "of": number(of),
        "mean": number(statistics.mean(points)),
        "median": number(statistics.median(points)),
        "least": number(min(points)),
        "most": number(max(points)),
        "bins": [
            {"count": n, "height": round(110 * n / most, 1), "label": f"{10 * i}-{10 * i + 10}"}
            for i, n in enumerate(counts)
        ],
    }


def _line_statistics(rows: Sequence[dict[str, Any]], texts: Sequence[str]) -> list[dict[str, Any]]:
    rows_of_lines = []
    for i, text in enumerate(texts):
        of = next((line["of"] for r in rows for line in r["lines"] if line["text"] == text), 0.0)
        points = [_by_line(r, texts)[i] for r in rows] or [0.0]
        rows_of_lines.append(
            {
                "text": text,
                "of": of,
                "mean": statistics.mean(points),
                "full": sum(p == of and of > 0 for p in points),
                "none": sum(p == 0 for p in points),
                "percent": round(100 * statistics.mean(points) / of, 1) if of else 0,
            }
        )
    return rows_of_lines
