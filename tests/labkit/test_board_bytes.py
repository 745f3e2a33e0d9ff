"""The contest on time and bytes: ranks, older entries, the page, from a verdict to its CSV."""
# ruff: noqa: F811 (fixtures of other files)

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

import pytest
from rich.console import Console

from grading import ROOT, SOLVED, hand_in, run, small_lab
from labkit import Contest, SpecError
from labkit.board.cli import leaderboard
from labkit.board.entries import Refused, sign, verify
from labkit.board.page import csv_of, render, show
from labkit.board.rank import tables
from labkit.grade.gradescope import results
from labkit.grade.judge import ranked_cases
from labkit.grade.plan import load_plan
from labkit.history.points import points
from test_board import BODY, entry, key  # noqa: F401
from test_board_browser import browser  # noqa: F401

pytestmark = pytest.mark.skipif(os.name != "posix", reason="grading is not for Windows")

BOTH = {
    "lab": "moe",
    "rank": ["time", "bytes"],
    "hbm_bytes": {"a": 1000, "b": 4000},
    "least_bytes": {"a": 500, "b": 2000},
}


def bytes_of(a, b):
    return {**BOTH, "hbm_bytes": {"a": a, "b": b}}


def board(key):
    """Return a board on time and bytes: two kernels of one time, one faster, an older entry."""
    return tables(
        [
            entry(key, name="reference", **BOTH),
            entry(key, name="ann", **BOTH),
            entry(key, name="bob", **bytes_of(500, 2000)),
            entry(key, name="cy", times_us={"a": 2.5, "b": 10.0}, **bytes_of(2000, 8000)),
            entry(key, name="old", lab="moe"),
        ]
    )


def test_of_two_kernels_with_the_same_time_the_one_with_fewer_bytes_is_ahead(key):
    (table,) = board(key)
    assert [(s.rank, s.name, s.score, s.speed, s.fewer) for s in table.standings] == [
        (1, "bob", 1.4142, 1.0, 2.0),
        (1, "cy", 1.4142, 4.0, 0.5),  # four times as fast for twice the bytes
        (3, "ann", 1.0, 1.0, 1.0),
        (3, "reference", 1.0, 1.0, 1.0),
    ]
    assert [s.over_least for s in table.standings] == pytest.approx([1.0, 4.0, 2.0, 2.0])
    assert "time and bytes" in table.rule and "Half of the bytes" in table.rule


def test_the_order_does_not_depend_on_the_reference(key):
    rows = [
        entry(key, name=n, times_us={"a": t, "b": 4 * t}, **bytes_of(m, m))
        for n, t, m in (("ann", 10.0, 700), ("bob", 8.0, 900), ("cy", 12.0, 500))
    ]
    orders = []
    for t, m in ((1.0, 1e6), (1e4, 10.0)):
        reference = entry(key, name="reference", times_us={"a": t, "b": t}, **bytes_of(m, m))
        (table,) = tables([*rows, reference])
        orders.append([s.name for s in table.standings if s.name != "reference"])
    assert orders[0] == orders[1] == ["cy", "ann", "bob"]


def test_an_older_entry_is_not_ranked_on_bytes_and_is_shown_without_them(key):
    (table,) = board(key)
    assert table.left_out == (
        "old: its entry does not say the bytes, which count here; judge it and sign it again",
    )
    known = {**BOTH, "rank": ["time"]}
    (table,) = tables([entry(key, name="reference", **known), entry(key, name="old", lab="moe")])
    assert [(s.name, s.rank, s.mean_bytes) for s in table.standings] == [
        ("old", 1, None),
        ("reference", 1, pytest.approx(2000)),
    ]
    page = render([table], "00" * 32, 2, [])
    assert '<td class="n">-</td>' in page and '<td class="n">2.0</td>' in page
    rows = list(csv.DictReader(io.StringIO(csv_of([table]))))
    assert [row["mean_bytes"] for row in rows] == ["", "2000"]


@pytest.mark.parametrize(
    "more",
    [
        {"rank": ["time", "watts"]},
        {"rank": []},
        {"hbm_bytes": {"a": 1000}},
        {"hbm_bytes": {"a": 1000, "b": 0}},
        {"hbm_bytes": {"a": 1000, "b": "many"}},
        {"hbm_bytes": [1000, 4000]},
        {"least_bytes": {"a": -1, "b": 1}},
    ],
)
def test_what_is_no_rule_or_no_number_of_bytes_is_refused_though_signed(key, more):
    with pytest.raises(Refused, match="not an entry"):
        entry(key, **{**BOTH, **more})


def test_bytes_cannot_be_changed_after_they_are_signed(key):
    document = sign(key, {**BODY, **BOTH})
    document["entry"]["hbm_bytes"] = {"a": 1, "b": 1}
    with pytest.raises(Refused, match="changed after"):
        verify(document, document["public_key"])


@pytest.mark.parametrize("rank", [(), ("speed",), ("time", "time")])
def test_a_contest_ranks_on_what_there_is(rank):
    with pytest.raises(SpecError, match="it can rank on time and bytes, each once"):
        Contest(rank=rank)


def test_the_cases_of_the_contest_count_and_where_none_is_judged_all_visible_ones():
    moe, vecadd = (load_plan(ROOT / "labs" / name) for name in ("moe", "vecadd"))
    assert ranked_cases(moe) == {
        c.name for c in moe.lab.cases if "contest" in c.fleets and "trn2" in c.targets
    }
    assert ranked_cases(vecadd) == {c.name for c, _ in vecadd.runs} - vecadd.secret


@pytest.mark.full
def test_from_a_verdict_with_bytes_to_the_page_and_its_csv(tmp_path, monkeypatch, capsys, key):
    labs = small_lab(tmp_path)
    spec = labs / "vecadd" / "spec.py"
    text = spec.read_text().replace("from labkit import (", "from labkit import (\n    Contest,", 1)
    ranked = '    name="vecadd", contest=Contest(("time", "bytes")),'
    spec.write_text(text.replace('    name="vecadd",', ranked))
    monkeypatch.setenv("LABKIT_LABS", str(labs))
    subs = hand_in(tmp_path / "subs", staff=SOLVED, ann=SOLVED + "# 1\n")
    run(subs, tmp_path / "out", "--sandbox", "none")
    verdict = json.loads((tmp_path / "out" / "verdicts" / "ann.json").read_text())
    (shown,) = (c for c in verdict["cases"] if c["contest"])
    moved = shown["hbm_read_bytes"] + shown["hbm_write_bytes"]
    assert moved == shown["least_bytes"] == 2 * 128 * 128 * 4 and verdict["looks"] == []
    assert verdict["rank"] == ["time", "bytes"]
    (hidden,) = (c for c in verdict["cases"] if c["hidden"])
    assert hidden["least_bytes"] is None and not hidden["contest"]
    names = [line["name"] for line in results(verdict)["leaderboard"]]
    assert names == [
        "mean of us and MB (geometric)",
        "predicted us (geometric mean)",
        "MB of HBM (geometric mean)",
        "points",
    ]
    host = ["--key", str(tmp_path / "host.key"), "--out", str(tmp_path / "entries")]
    leaderboard(["sign", str(tmp_path / "out/verdicts"), *host, "--reference", "staff"])
    public = capsys.readouterr().out.split()[-1]
    page, table = tmp_path / "board.html", tmp_path / "board.csv"
    files = ["--out", str(page), "--csv", str(table)]
    assert leaderboard(["page", str(tmp_path / "entries"), "--public-key", public, *files]) == 0
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert {(row["mean_bytes"], row["times_least_bytes"], row["ranks_on"]) for row in rows} == {
        (str(moved), "1", "time bytes")
    }
    assert "Ranked on time and bytes" in page.read_text()
    assert "Ranked on time and bytes" in capsys.readouterr().out


def test_recorded_times_and_the_history_have_bytes(tmp_path, key):
    from labkit.evaluate import Outcome
    from labkit.history.results import write_times
    from labkit.load import load_lab

    lab = load_lab(ROOT / "labs" / "moe")
    outcome = Outcome(
        lab.cases[0],
        "trn2",
        "passed",
        "",
        stats={"hbm_read_bytes": 700, "hbm_write_bytes": 50},
        latency={"p50": 9.0, "p99": 9.0},
        latency_kind="predicted",
    )
    write_times(tmp_path / "times.json", lab, [outcome], "sim", 1)
    times = json.loads((tmp_path / "times.json").read_text())
    assert times["hbm_bytes"] == {lab.cases[0].name: 750} and times["rank"] == ["time", "bytes"]
    host = ["--key", str(tmp_path / "host.key"), "--out", str(tmp_path / "e")]
    leaderboard(["sign", str(tmp_path / "times.json"), *host, "--name", "reference"])
    (path,) = (tmp_path / "e").glob("*.json")
    document = json.loads(path.read_text())
    signed = verify(document, document["public_key"])
    assert signed.rank == ("time", "bytes") and signed.hbm_bytes == times["hbm_bytes"]
    at = {"time": "2026-05-01T10:00:00+00:00", "lab": "moe", "cases": [outcome.to_dict()]}
    (point,) = points(at)
    assert point["fields"]["hbm_bytes"] == 750.0
    del at["cases"][0]["stats"]["hbm_write_bytes"]
    assert "hbm_bytes" not in next(points(at))["fields"]


def test_times_of_a_chip_are_ranked_on_time_alone(tmp_path, key):
    document = {
        "lab": "moe",
        "kind": "measured",
        "backend": "hw",
        "sdk": "2.26",
        "nkisim": None,
        "target": "trn2",
        "execution_times_us": {"a": 12.5},
        "rank": ["time", "bytes"],
    }
    (tmp_path / "times.json").write_text(json.dumps(document))
    host = ["--key", str(tmp_path / "host.key"), "--out", str(tmp_path / "e")]
    leaderboard(["sign", str(tmp_path / "times.json"), *host, "--name", "reference"])
    (path,) = (tmp_path / "e").glob("*.json")
    signed = json.loads(path.read_text())
    (table,) = tables([verify(signed, signed["public_key"])])
    assert table.ranks_on == ("time",) and len(table.standings) == 1


def test_the_terminal_has_the_same_numbers(key, capsys):
    show(Console(width=160), board(key), [])
    said = capsys.readouterr().out
    assert "times fewer bytes" in said and "1.414" in said and "Ranked on time and bytes" in said
    assert "not ranked: old" in said


def cells(driver, column):
    """Return what a column of the only table shows, from top to bottom."""
    script = """
        const table = document.querySelector("table[data-sortable]");
        const place = [...table.tHead.rows[0].cells].findIndex(
            (head) => head.textContent.trim() === arguments[0]);
        return [...table.tBodies[0].rows].map((row) => row.cells[place].textContent.trim());"""
    return driver.execute_script(script, column)


@pytest.mark.sample(1)
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_ranks_and_sorts_by_bytes_in_a_browser(tmp_path, browser, key, width):
    path = tmp_path / "board.html"
    path.write_text(render(board(key), "00" * 32, 5, []), "utf-8")
    size = {"width": width, "height": 700, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(path.as_uri())
    assert cells(browser, "who") == ["bob", "cy", "ann", "reference"]
    assert cells(browser, "mean kB") == ["1.0", "4.0", "2.0", "2.0"]
    browser.execute_script("""[...document.querySelectorAll("th button")]
        .find((b) => b.textContent === "mean kB").click()""")
    assert cells(browser, "who") == ["bob", "ann", "reference", "cy"]
    text = browser.execute_script("return document.body.innerText")
    assert "Half of the bytes count as much" in text and "does not say the bytes" in text
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert browser.get_log("browser") == []
    if folder := os.environ.get("LABKIT_SCREENSHOTS"):
        browser.save_screenshot(str(Path(folder) / f"board-bytes-{width}.png"))
