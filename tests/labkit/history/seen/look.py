"""Draw the dashboards by their makers' own libraries, in Chromium: `python look.py FOLDER`.

For who changes a dashboard; no test runs it, since it installs 600 MB from npm (once, in FOLDER).
It

- fills a real InfluxDB (Debian's 1.6) with made-up runs, through `labkit history`'s own queue;
- sends it the queries of grafana.json, as Grafana would, and draws the panels with @grafana/ui and
  @grafana/data from the answers; checks the file against the types of @grafana/schema;
- checks the Flux of influxdb.yml with InfluxData's language server (syntax, types, signatures), and
  draws its charts with @influxdata/giraffe, the plot library of InfluxDB 2's pages. Nothing here
  runs Flux: the rows that it would return are made from the points below, by `flux_rows`.

Neither Grafana nor InfluxDB 2 itself is run. Needs influxd, npm, Chromium and its driver.
"""

from __future__ import annotations

import copy
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from selenium import webdriver

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[3]
sys.path[:0] = [str(HERE.parent), str(ROOT / "shared")]
from servers import Influx1  # noqa: E402

from labkit.history import points, queue  # noqa: E402
from labkit.history import results as results_file  # noqa: E402
from labkit.history.dashboards import make  # noqa: E402
from labkit.history.server import Server  # noqa: E402

STUDENTS = {"ada": 0.7, "grace": 0.8, "linus": 1.0, "margaret": 0.65}
CASES = {"stream_256000_free1000": 28.0, "transpose_1024x1024": 61.0}
DAYS = 12


def made_up() -> Iterator[dict[str, Any]]:
    """Yield runs of a class: each student gets faster, on several commits and hosts."""
    for number, (student, skill) in enumerate(STUDENTS.items()):
        for day in range(number, DAYS):
            for kind in ("measured", "predicted"):
                slow = (1 + 2 * skill * (DAYS - day) / DAYS) * (1.07 if kind == "measured" else 1)
                slow *= 1 + 0.1 * math.sin(3 * day + number)
                yield {
                    "id": f"{number:08x}{day:08x}{kind:>16}",
                    "lab": "vecadd",
                    "student": student,
                    "time": f"2026-11-{1 + day:02}T{9 + number:02}:30:00+00:00",
                    "git_commit": f"{day % 3}" * 40,
                    "sdk": "2.21",
                    "target": "trn1",
                    "backend": "hw",
                    "cases": [
                        {
                            "case": case,
                            "kernel": case.split("_")[0],
                            "target": "trn1",
                            "status": "passed" if day % 5 else "failed",
                            "latency_us": {"p50": round(us * slow, 2)},
                            "latency_kind": kind,
                        }
                        for case, us in CASES.items()
                    ],
                }


def answers_of(influx: Influx1, board: dict[str, Any]) -> dict[str, Any]:
    """Return what the server says to each panel, its variables filled in as Grafana does.

    A panel that is repeated by a variable is replaced, in `board`, by one for each of its values.
    """
    values = {
        v["name"]: [value for _, value in influx.query(v["query"])[0]["values"]]
        for v in board["templating"]["list"]
    }
    panels, found = [], {}
    for panel in board["panels"]:
        by = panel.get("repeat")
        for one in values[by] if by else [None]:
            chosen = values | ({by: [one]} if by else {})
            text = panel["targets"][0]["query"].replace("$timeFilter", "time > 0")
            title = panel["title"]
            for name in values:
                text = text.replace(f"${name}", f"({'|'.join(chosen[name])})")
                title = title.replace(f"${name}", chosen[name][0])
            panels.append(panel | {"title": title, "id": f"{panel['id']} {one}"})
            found[title] = influx.query(text)
    board["panels"] = panels
    return found


def flux_rows(chart: dict[str, Any], runs: list[dict[str, Any]]) -> str:
    """Return what InfluxDB 2 would answer to a chart, as its annotated CSV.

    Points of a group come in the order in which `group` merges them, one set of tags after another,
    unless the query sorts them.
    """
    text = chart["queries"][0]["query"]
    tags = ("case", "student", "target")
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for point in sorted(
        (p for run in runs for p in points.points(run)),
        key=lambda p: (sorted(p["tags"].items()), p["time"]),
    ):
        if point["tags"]["kind"] in text and point["fields"]["right"]:
            groups.setdefault(tuple(point["tags"][t] for t in tags), []).append(point)
    if chart["kind"] == "Table":
        rows = sorted(
            (case, target, min(p["fields"]["p50"] for p in found), student)
            for (case, student, target), found in groups.items()
        )
        return (
            "\n".join(
                [
                    "#group,false,false,false,false,false,false",
                    "#datatype,string,long,string,string,string,double",
                    "#default,_result,,,,,",
                    ",result,table,case,target,student,best us",
                    *(
                        f",,0,{case},{target},{student},{best}"
                        for case, target, best, student in rows
                    ),
                ]
            )
            + "\n"
        )
    lines = [
        "#group,false,false,false,false,true,true,true",
        "#datatype,string,long,dateTime:RFC3339,double,string,string,string",
        "#default,_result,,,,,,",
        f",result,table,_time,_value,{','.join(tags)}",
    ]
    for number, (key, found) in enumerate(sorted(groups.items())):
        if 'sort(columns: ["_time"])' in text:
            found.sort(key=lambda p: p["time"])
        lines += [
            f",,{number},{rfc3339(p['time'])},{p['fields']['p50']},{','.join(key)}" for p in found
        ]
    return "\n".join(lines) + "\n"


def rfc3339(ns: int) -> str:
    """Return a time in ns since 1970."""
    return datetime.fromtimestamp(ns // points.SECOND, timezone.utc).isoformat()[:19] + "Z"


def installed(name: str, folder: Path) -> Path:
    """Install a page's packages, and bundle the page; return the folder."""
    place = folder / name
    shutil.copytree(HERE / name, place, dirs_exist_ok=True)
    run = dict(cwd=place, check=True, stdout=subprocess.DEVNULL)
    if not (place / "node_modules").is_dir():
        print(f"npm install in {place}")
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"], **run)
        for esbuild in place.glob("node_modules/@esbuild/*/bin/esbuild"):
            esbuild.chmod(0o755)
    # Grafana's packages as CommonJS: what they import is that, too, and esbuild then gives them the
    # default exports that they expect
    aliases = [
        f"--alias:@grafana/{p.parents[2].name}=./{p.relative_to(place)}"
        for p in place.glob("node_modules/@grafana/*/dist/cjs/index.cjs")
    ]
    subprocess.run(
        [
            "node_modules/.bin/esbuild",
            "page.jsx",
            "--bundle",
            "--outfile=page.js",
            "--loader:.svg=dataurl",
            "--loader:.png=dataurl",
            "--loader:.woff2=dataurl",
            "--loader:.ttf=empty",
            "--log-level=error",
            '--define:process.env.NODE_ENV="production"',
            "--define:global=window",
            *aliases,
        ],
        **run,
    )
    (place / "page.css").touch()
    return place


def schema_errors(place: Path, board: dict[str, Any]) -> str:
    """Return what TypeScript says of the dashboard as a value of @grafana/schema's type."""
    # what only files for import have, and no dashboard in Grafana
    value = {k: v for k, v in board.items() if k != "__inputs"}
    (place / "board.ts").write_text(
        "import type { Dashboard } from '@grafana/schema/dist/esm/raw/dashboard/x/"
        f"dashboard_types.gen';\nexport const board: Dashboard = {json.dumps(value, indent=1)};\n"
    )
    return subprocess.run(
        [
            "node_modules/.bin/tsc",
            "--noEmit",
            "--strict",
            "--skipLibCheck",
            "--moduleResolution",
            "node",
            "board.ts",
        ],
        cwd=place,
        text=True,
        capture_output=True,
    ).stdout


def screenshot(place: Path, shown: dict[str, Any], out: Path, dark: bool = False) -> list[str]:
    """Draw a page in Chromium to a file; return what the browser complains of."""
    (place / "page.html").write_text(
        '<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="page.css">'
        '<body style="margin:0"><div id="root"></div><script>'
        f"window.SHOWN = {json.dumps(shown | {'dark': dark})}</script>"
        '<script src="page.js"></script>',
        "utf-8",
    )
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={place / 'browser'}",
        "--window-size=1220,1300",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "SEVERE"})
    driver = webdriver.Chrome(
        options=options, service=webdriver.ChromeService(shutil.which("chromedriver"))
    )
    try:
        driver.get((place / "page.html").as_uri())
        driver.implicitly_wait(10)
        driver.find_elements("css selector", "canvas")
        driver.save_screenshot(str(out))
        return [
            entry["message"]
            for entry in driver.get_log("browser")
            if "/fonts/" not in entry["message"]
        ]  # Grafana's own are not in its packages
    finally:
        driver.quit()


def main(folder: Path) -> int:
    """Draw and check all; return 1 if something is wrong."""
    folder.mkdir(parents=True, exist_ok=True)
    runs = list(made_up())
    board = make.grafana()
    charts = [json.loads(part) for part in make.influxdb().split("\n---\n")][1]["spec"]["charts"]
    shutil.rmtree(folder / "server", ignore_errors=True)
    (folder / "server").mkdir()
    influx = Influx1(folder / "server")
    influx.start()
    shown = copy.deepcopy(board)
    try:
        at = Server(influx.url)
        influx.create(at.bucket)
        results = folder / "server" / "results.json"
        results_file.append_runs(results, runs)
        queue.send(results, at)
        answers = answers_of(influx, shown)
    finally:
        influx.kill()
    bad = []
    grafana, flux = installed("grafana", folder), installed("influxdb", folder)
    bad += schema_errors(grafana, board).splitlines()
    texts = [
        "option v = {timeRangeStart: -30d, timeRangeStop: now()}\n" + c["queries"][0]["query"]
        for c in charts
    ]
    done = subprocess.run(
        ["node", "flux.cjs"],
        cwd=flux,
        input=json.dumps(texts),
        text=True,
        capture_output=True,
        check=True,
    )
    bad += [
        f"Flux of {c['name']!r} is not valid"
        for c, ok in zip(charts, json.loads(done.stdout))
        if not ok
    ]
    for scheme in ("light", "dark"):
        bad += screenshot(
            grafana,
            {"board": shown, "answers": answers},
            folder / f"grafana-{scheme}.png",
            scheme == "dark",
        )
    rows = {c["name"]: flux_rows(c, runs) for c in charts}
    bad += screenshot(flux, {"charts": charts, "answers": rows}, folder / "influxdb.png")
    print("\n".join(bad) or f"nothing is wrong; look at {folder}/*.png")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
