"""Points go to a server once, whatever happens to it on the way, and come back as a table.

Real servers: Debian's InfluxDB 1.6 and VictoriaMetrics, which takes what the official InfluxDB 2
client writes. InfluxDB 2 itself was never tried: it is in no package archive that the tests have.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from servers import Influx1, Victoria

from labkit.history import commands, page, points, queue
from labkit.history import results as results_file
from labkit.history.dashboards import make
from labkit.history.server import HistoryError, Server, Unreachable, configured

pytest.importorskip("influxdb_client")


def run(number: int, cases: int = 1, kind: str = "measured", student: str = "alice") -> dict:
    minute = f"{number // 60 % 24:02d}:{number % 60:02d}"
    return {
        "id": f"{number:032x}",
        "time": f"2026-11-{1 + number // 1440:02d}T{minute}:07+00:00",
        "lab": "vecadd",
        "backend": "hw",
        "target": "trn1",
        "student": student,
        "git_commit": "a" * 40,
        "sdk": "2.21",
        "cases": [
            {
                "case": f"case{k}",
                "kernel": "add",
                "target": "trn1",
                "status": "passed",
                "latency_us": {"p50": 100.0 + number % 7 + k, "p99": 120.0},
                "latency_kind": kind,
            }
            for k in range(cases)
        ],
    }


@pytest.fixture
def influx(tmp_path):
    if Influx1.why_not():
        pytest.skip(Influx1.why_not())
    folder = tmp_path / "influx"
    folder.mkdir()
    server = Influx1(folder)
    yield server
    server.kill()


@pytest.fixture
def victoria(tmp_path):
    if Victoria.why_not():
        pytest.skip(Victoria.why_not())
    folder = tmp_path / "victoria"
    folder.mkdir()
    server = Victoria(folder)
    yield server
    server.kill()


@pytest.fixture
def results(tmp_path, monkeypatch) -> Path:
    monkeypatch.delenv("INFLUXDB_V2_URL", raising=False)
    path = tmp_path / "results" / "results.json"
    results_file.append_runs(path, [run(n) for n in range(1000)])
    return path


def survive(results: Path, server, at: Server, start) -> int:
    """Send with the server absent, then there, killed in the middle, and back; count attempts."""
    with pytest.raises(Unreachable):
        queue.send(results, at)
    start()
    killed = threading.Event()

    def kill_after_some(count: int) -> None:
        if count >= 300 and not killed.is_set():
            killed.set()
            server.kill()

    queue_batch, queue.BATCH = queue.BATCH, 50
    try:
        with pytest.raises(Unreachable):
            queue.send(results, at, kill_after_some)
        # the server took a batch but could not say so: the batch comes again
        lines = results.with_suffix(".sent").read_text().splitlines()
        results.with_suffix(".sent").write_text("\n".join(lines[:-50]) + "\n")
        server.start()
        time.sleep(0.2)
        queue.send(results, at)
    finally:
        queue.BATCH = queue_batch
    assert queue.waiting(results, at) == []
    return len(lines)


def test_a_thousand_points_come_once_to_influxdb_1(results, influx):
    at = Server(influx.url)

    def start():
        influx.start()
        influx.create(at.bucket)

    survive(results, influx, at, start)
    assert influx.count() == 1000
    assert queue.send(results, at) == 0 and influx.count() == 1000
    found = at.read()
    assert len(found) == 1000 and {p["tags"]["student"] for p in found} == {"alice"}


def test_a_thousand_points_come_once_through_the_v2_write_path(results, victoria):
    at = Server(victoria.url, "class", "not-a-secret")
    survive(results, victoria, at, victoria.start)
    samples = victoria.samples()
    assert len(samples) == len(set(samples)) == 1000


def test_two_runs_of_one_second_are_two_points(results, influx):
    influx.start()
    at = Server(influx.url)
    influx.create(at.bucket)
    one = results.with_name("other.json")
    results_file.append_runs(one, [{**run(1), "id": str(n)} for n in range(40)])
    queue.send(one, at)
    assert influx.count() == 40


def test_a_server_that_refuses_is_a_sentence(results, influx, victoria):
    influx.start()
    with pytest.raises(HistoryError, match="no bucket 'trainium-labs'"):
        queue.send(results, Server(influx.url))
    assert len(queue.waiting(results, Server(influx.url))) == 1000


def test_a_run_is_sent_as_it_is_recorded_and_waits_when_the_server_is_away(
    tmp_path, influx, monkeypatch
):
    path = tmp_path / "r" / "results.json"
    monkeypatch.setenv("INFLUXDB_V2_URL", influx.url)
    (note,) = results_file.append_run(path, run(1))
    assert "does not answer" in note and "1 runs wait" in note
    influx.start()
    influx.create("trainium-labs")
    assert results_file.append_run(path, run(2)) == []
    assert influx.count() == 2
    monkeypatch.setenv("LABKIT_HISTORY", "off")
    assert configured() is None and results_file.append_run(path, run(3)) == []
    assert influx.count() == 2


def test_results_that_come_twice_are_one(tmp_path):
    path = tmp_path / "results.json"
    assert len(results_file.append_runs(path, [run(1), run(2)])[0]) == 2
    assert [r["id"][-1] for r in results_file.append_runs(path, [run(2), run(3)])[0]] == ["3"]
    assert len(json.loads(path.read_text())["runs"]) == 3


def test_history_in_the_terminal_with_and_without_a_server(results, influx, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    assert commands.history(["--results", str(results)]) == 0
    here = capsys.readouterr().out
    assert "from" in here and "1000" in here and "▁" in here and "█" in here
    monkeypatch.setenv("INFLUXDB_V2_URL", influx.url)
    assert commands.history(["--results", str(results)]) == 0
    away = capsys.readouterr().out
    assert "does not answer" in away and "1000 of its runs wait" in away
    influx.start()
    influx.create("trainium-labs")
    assert commands.history(["vecadd", "--results", str(results), "--student", "alice"]) == 0
    there = capsys.readouterr().out
    assert influx.url in there and "1000" in there and "105.0" in there
    assert commands.history(["ffnn", "--results", str(results)]) == 2
    assert "no right run" in capsys.readouterr().out


def test_predicted_and_measured_never_share_a_line(tmp_path):
    found = [p for r in (run(1), run(2, kind="predicted")) for p in points.points(r)]
    assert [key[0] for key in points.series(found)] == ["measured", "predicted"]


def test_wrong_runs_are_no_latency_of_a_right_kernel():
    wrong = run(1)
    wrong["cases"][0]["status"] = "failed"
    assert points.series(points.points(wrong)) == {}


def test_grafanas_queries_run_on_influxdb_and_find_the_points(results, influx):
    """Grafana is not here: what it would send is sent, with its variables filled in as it does."""
    influx.start()
    at = Server(influx.url)
    influx.create(at.bucket)
    queue.send(results, at)
    board = make.grafana()
    for panel in board["panels"]:
        text = panel["targets"][0]["query"].replace("$timeFilter", "time > 0")
        for variable in make.BY:
            text = text.replace(f"${variable}", "(.*)")
        found = influx.query(text)
        assert bool(found) == ("Predicted" not in panel["title"]), panel["title"]
    for variable in board["templating"]["list"]:
        assert influx.query(variable["query"])[0]["values"]


def test_the_dashboard_files_are_as_made(tmp_path):
    make.main(tmp_path)
    folder = Path(make.__file__).parent
    for name in ("grafana.json", "influxdb.yml"):
        assert (folder / name).read_text("utf-8") == (tmp_path / name).read_text("utf-8"), name
    json.loads((tmp_path / "grafana.json").read_text("utf-8"))


def test_a_line_is_sorted_by_time_after_its_groups_are_merged():
    """Flux merges points of several commits one after another, and the plot draws them so."""
    for kind in ("measured", "predicted"):
        text = make.flux(kind)
        assert text.rindex('sort(columns: ["_time"])') > text.rindex("group(")


def test_the_page_shows_each_kind_apart_and_the_ranking(tmp_path):
    found = [
        p
        for n in range(9)
        for s in ("alice", "<bob>")
        for p in points.points({**run(n, student=s), "id": f"{s}{n}"})
    ]
    page.write_page(tmp_path / "h.html", points.series(found), "results.json")
    text = (tmp_path / "h.html").read_text("utf-8")
    assert text.count("<svg") == 1 and "&lt;bob&gt;" in text and "<bob>" not in text
    assert "<script" not in text and "http" not in text
