"""Write the dashboard files: `python -m labkit.history.dashboards.make FOLDER`.

Both are made from the one list of panels below, so that they show the same. grafana.json is
imported in Grafana (Dashboards > New > Import) with an InfluxDB data source that speaks InfluxQL;
influxdb.yml is applied with `influx apply -f influxdb.yml` to InfluxDB 2.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ..points import MEASUREMENT

BUCKET = "trainium-labs"
#: Title, unit, which points, by which tags, and how they are gathered.
OVER_TIME = (
    ("Measured latency over time (p50, us)", "measured"),
    ("Predicted latency over time (p50, us; nkisim's model)", "predicted"),
)
BY = ("kernel", "case", "student", "target")
RANKING = "Contest: best measured p50 (us), right runs only"


def over_time(kind: str) -> str:
    """Return the InfluxQL of a chart; $timeFilter is Grafana's."""
    tags = ", ".join(f'"{t}"' for t in BY)
    return (
        f'SELECT "p50" FROM "{MEASUREMENT}" WHERE ("kind" = \'{kind}\' AND "right" = 1 AND '
        f'"kernel" =~ /^$kernel$/ AND "student" =~ /^$student$/ AND "target" =~ /^$target$/) '
        f"AND $timeFilter GROUP BY {tags}"
    )


def ranking() -> str:
    """Return the InfluxQL of the table."""
    return (
        f'SELECT min("p50") AS "best us" FROM "{MEASUREMENT}" WHERE "kind" = \'measured\' AND '
        '"right" = 1 AND "case" =~ /^$case$/ AND "target" =~ /^$target$/ AND $timeFilter '
        'GROUP BY "case", "target", "student"'
    )


def grafana() -> dict[str, Any]:
    """Return the dashboard for Grafana's import."""
    source = {"type": "influxdb", "uid": "${DS_INFLUXDB}"}
    panels: list[dict[str, Any]] = []
    for number, (title, kind) in enumerate(OVER_TIME):
        panels.append(
            {
                "id": number + 1,
                "type": "timeseries",
                "title": title,
                "datasource": source,
                "gridPos": {"h": 9, "w": 24, "x": 0, "y": 9 * number},
                "fieldConfig": {
                    "defaults": {
                        "unit": "µs",
                        "custom": {"drawStyle": "line", "showPoints": "always"},
                    },
                    "overrides": [],
                },
                "targets": [
                    {
                        "refId": "A",
                        "rawQuery": True,
                        "query": over_time(kind),
                        "alias": "$tag_case $tag_student $tag_target",
                        "resultFormat": "time_series",
                        "datasource": source,
                    }
                ],
            }
        )
    panels.append(
        {  # one for each case that is chosen: each has its own ranking
            "id": 9,
            "type": "table",
            "title": f"{RANKING}: $case",
            "datasource": source,
            "repeat": "case",
            "repeatDirection": "v",
            "gridPos": {"h": 10, "w": 24, "x": 0, "y": 18},
            "transformations": [{"id": "sortBy", "options": {"sort": [{"field": "best us"}]}}],
            "targets": [
                {
                    "refId": "A",
                    "rawQuery": True,
                    "query": ranking(),
                    "resultFormat": "table",
                    "datasource": source,
                }
            ],
        }
    )
    variables = [
        {
            "name": tag,
            "label": tag,
            "type": "query",
            "datasource": source,
            "query": f'SHOW TAG VALUES FROM "{MEASUREMENT}" WITH KEY = "{tag}"',
            "includeAll": True,
            "multi": True,
            "refresh": 2,
            "current": {"text": "All", "value": "$__all"},
        }
        for tag in BY
    ]
    return {
        "__inputs": [
            {
                "name": "DS_INFLUXDB",
                "label": "InfluxDB",
                "type": "datasource",
                "pluginId": "influxdb",
                "pluginName": "InfluxDB",
            }
        ],
        "title": "Trainium labs: latency",
        "uid": "trainium-labs",
        "schemaVersion": 38,
        "time": {"from": "now-30d", "to": "now"},
        "refresh": "1m",
        "editable": True,
        "tags": ["trainium-labs"],
        "templating": {"list": variables},
        "panels": panels,
    }


def flux(kind: str) -> str:
    """Return the Flux of a chart of InfluxDB 2; a group has points of several commits and hosts."""
    return f'''from(bucket: "{BUCKET}")
  |> range(start: v.timeRangeStart, stop: v.timeRangeStop)
  |> filter(fn: (r) => r._measurement == "{MEASUREMENT}" and r.kind == "{kind}")
  |> pivot(rowKey: ["_time"], columnKey: ["_field"], valueColumn: "_value")
  |> filter(fn: (r) => r.right == 1.0)
  |> map(fn: (r) => ({{r with _value: r.p50}}))
  |> group(columns: ["case", "student", "target"])
  |> sort(columns: ["_time"])
'''


def influxdb() -> str:
    """Return the template for `influx apply`, in YAML."""
    charts: list[dict[str, Any]] = []
    for number, (title, kind) in enumerate(OVER_TIME):
        charts.append(
            {
                "kind": "Xy",
                "name": title,
                "xPos": 0,
                "yPos": 4 * number,
                "width": 12,
                "height": 4,
                "geom": "line",
                "xCol": "_time",
                "yCol": "_value",
                "queries": [{"query": flux(kind)}],
                "axes": [
                    {"base": "10", "name": "x", "scale": "linear"},
                    {"base": "10", "name": "y", "scale": "linear", "suffix": " us"},
                ],
            }
        )
    best = (
        flux("measured")
        + """  |> min()
  |> group()
  |> keep(columns: ["case", "target", "student", "_value"])
  |> rename(columns: {_value: "best us"})
  |> sort(columns: ["case", "target", "best us"])
"""
    )
    charts.append(
        {
            "kind": "Table",
            "name": RANKING,
            "xPos": 0,
            "yPos": 8,
            "width": 12,
            "height": 4,
            "queries": [{"query": best}],
        }
    )
    # JSON is YAML: one document each
    documents = [
        {
            "apiVersion": "influxdata.com/v2alpha1",
            "kind": "Bucket",
            "metadata": {"name": "trainium-labs-bucket"},
            "spec": {"name": BUCKET},
        },
        {
            "apiVersion": "influxdata.com/v2alpha1",
            "kind": "Dashboard",
            "metadata": {"name": "trainium-labs-latency"},
            "spec": {"name": "Trainium labs: latency", "charts": charts},
        },
    ]
    return "\n---\n".join(json.dumps(d, indent=1) for d in documents) + "\n"


def main(folder: Path) -> None:
    """Write both files."""
    (folder / "grafana.json").write_text(json.dumps(grafana(), indent=1) + "\n", encoding="utf-8")
    (folder / "influxdb.yml").write_text(influxdb(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
