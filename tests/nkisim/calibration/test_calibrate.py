"""`python -m nkisim calibrate`: records in, a table out, nothing dropped in silence."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import nkisim
from nkisim.calibration import records
from nkisim.calibration.baseline import page, rounded
from nkisim.calibration.calibrate import command, compare
from nkisim.calibration.outcomes import (
    Outcome,
    by_family,
    by_file,
    counter_lines,
    figures,
    level,
    order,
    rank_correlation,
)
from nkisim.calibration.records import Skipped
from nkisim.simulation.error_bands import overall

ROOT = Path(__file__).parents[3]
CALIBRATION = json.loads((Path(nkisim.__file__).parent / "data" / "calibration.json").read_text())

SOURCE = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

@nki.jit
def add(a, b):
    FREE = 7
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    x, y, z = (t.reshape((128, t.shape[0] // 128)) for t in (a, b, out))
    for i in nl.affine_range(x.shape[1] // FREE):
        at = slice(i * FREE, (i + 1) * FREE)
        nl.store(z[:, at], nl.add(nl.load(x[:, at]), nl.load(y[:, at])))
    return out
"""
CANDIDATES = f"C(parent=C(parent=None, code='''{SOURCE}'''), code='raise ValueError(1)')"


@pytest.fixture
def world(tmp_path):
    """Return (records file, sources folder) with one repository of one commit."""
    repo = tmp_path / "sources" / "me+mine"
    repo.mkdir(parents=True)
    (repo / "k.py").write_text(SOURCE)
    (repo / "c.py").write_text(CANDIDATES)

    def git(*args):
        return subprocess.run(
            ["git", "-C", str(repo), "-c", "user.name=x", "-c", "user.email=x@example.org", *args],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "x")
    commit = git("rev-parse", "HEAD")
    (repo / "k.py").write_text("raise RuntimeError('not the recorded version')")
    x = {"shape": [25600], "dtype": "float32"}

    def record(id, **changes):
        source = {
            "repo": "me/mine",
            "commit": commit,
            "path": "k.py",
            "function": "add",
            **changes.pop("source", {}),
        }
        return {
            "id": id,
            "target": "trn1",
            "metric": "nc_latency",
            "value_us": 20.0,
            "descriptors": "static",
            "source": source,
            "set": {"FREE": 200},
            "args": [x, x],
            "kwargs": {},
            "confidence": "high",
            **changes,
        }

    file = tmp_path / "records.json"
    file.write_text(
        json.dumps(
            {
                "schema": 1,
                "records": [
                    record("whole"),
                    record("slices", set={"FREE": 2}),
                    record("total", metric="profile_total"),
                    record("old", source={"path": "c.py", "candidate": 0}),
                    record("new", set={}, source={"path": "c.py", "candidate": 1}),
                    record("elsewhere", source={"repo": "no/where"}),
                    record("typo", set={"FREEE": 2}),
                ],
            }
        )
    )
    return file, tmp_path / "sources"


def run(world, capsys, *more):
    code = command(["--measurements", str(world[0]), "--sources", str(world[1]), *more])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_every_record_is_compared_or_skipped_with_a_reason(world, capsys):
    code, out, _ = run(world, capsys, "--json")
    facts = json.loads(out)
    by_id = {r["id"]: r for r in facts["records"]}
    assert code == 0 and list(by_id) == [
        "whole",
        "slices",
        "total",
        "old",
        "new",
        "elsewhere",
        "typo",
    ]
    assert by_id["slices"]["predicted_us"] > by_id["whole"]["predicted_us"]
    assert by_id["old"]["predicted_us"] == by_id["whole"]["predicted_us"]
    assert by_id["total"]["predicted_us"] != by_id["whole"]["predicted_us"]
    assert "not checked out" in by_id["elsewhere"]["skipped"]
    assert "FREEE" in by_id["typo"]["skipped"] and "ValueError" in by_id["new"]["skipped"]
    assert (facts["compared"], facts["skipped"]) == (4, 3)
    error = 100 * (by_id["whole"]["predicted_us"] / 20.0 - 1)
    assert by_id["whole"]["error_pct"] == pytest.approx(error)


def test_the_table_and_the_explanation_are_for_people(world, capsys):
    _, out, _ = run(world, capsys, "--only", "whole", "--only", "typo")
    assert "1 records compared, 1 skipped" in out and "skipped: " in out
    code, out, _ = run(world, capsys, "--explain", "slices")
    assert code == 0 and "tensor_tensor vector" in out and "measured" in out


def test_what_was_skipped_of_the_sources_is_said_at_the_end(world, capsys):
    """The table has hundreds of lines, and that of the counters leaves such records out."""
    for more in ((), ("--json",), ("--counters",)):
        _, out, err = run(world, capsys, *more)
        assert "3 of 7 records were skipped:\n    1  " in err and "is not checked out at" in err
    assert run(world, capsys, "--only", "whole")[2] == ""


@pytest.mark.parametrize("more", [(), ("--fit", "x.json")])
def test_a_folder_of_sources_that_is_not_there_is_said(world, capsys, tmp_path, more):
    assert command(["--sources", str(tmp_path / "none"), *more]) == 2
    assert f"there is no folder {tmp_path / 'none'}" in capsys.readouterr().err


def test_other_assumptions_about_the_compiler(world, capsys):
    default, merged = (
        json.loads(run(world, capsys, "--json", "--only", "slices", *more)[1])
        for more in ((), ("--compiler", "reorder,engines,rename,merge-dma"))
    )
    assert merged["records"][0]["predicted_us"] < default["records"][0]["predicted_us"]
    code, _, err = run(world, capsys, "--compiler", "fuse")
    assert code == 2 and "'fuse'" in err


def test_nothing_to_compare_is_not_a_success(world, capsys, tmp_path):
    assert run(world, capsys, "--only", "elsewhere")[0] == 2
    assert run(world, capsys, "--target", "trn9")[0] == 2
    assert run(world, capsys, "--explain", "nothing")[0] == 2
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    assert command(["--measurements", str(bad)]) == 2


def change(world, **changes):
    """Write the records file again, with its first record changed; None takes a field away."""
    file = world[0]
    data = json.loads(file.read_text())
    record = {**data["records"][0], **changes}
    data["records"] = [{k: v for k, v in record.items() if v is not None}]
    file.write_text(json.dumps(data))


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"metric": "speed"}, "there is no metric 'speed'; known are nc_latency"),
        ({"target": "trn9"}, "There is no target named 'trn9'"),
        ({"descriptors": "quick"}, "no such way to make DMA descriptors"),
        ({"descriptors": "dge"}, "trn1 has no hardware descriptor generation"),
        ({"args": [{"shape": [2], "dtype": "float99"}]}, "float99 is not a data type"),
        ({"args": [{"shape": "x", "dtype": "float32"}]}, "an argument is no array"),
        ({"source": {"commit": "0" * 40}}, "has no commit 0000000000; fetch it"),
        ({"source": {"path": "gone.py"}}, "gone.py"),
        ({"source": {"function": "gone"}}, "no function gone"),
    ],
)
def test_a_record_that_cannot_be_run_says_why(world, capsys, changes, sentence):
    if "source" in changes:
        first = json.loads(world[0].read_text())["records"][0]
        changes = {"source": {**first["source"], **changes["source"]}}
    change(world, **changes)
    code, out, err = run(world, capsys)
    assert code == 2 and sentence in out and "Traceback" not in out + err
    assert run(world, capsys, "--target", "trn2")[0] == 2
    code, out, err = run(world, capsys, "--explain", "whole")
    assert code == 2 and sentence in err


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"value_us": "fast"}, "record 'whole': value_us is 'fast'"),
        ({"value_us": 0}, "record 'whole': value_us is 0"),
        ({"value_us": float("nan")}, "value_us is nan"),
        ({"args": None}, "record 'whole' has no args"),
        ({"args": 5}, "args is 5"),
        ({"source": "me/mine"}, "source is 'me/mine'"),
        ({"source": {"repo": "me/mine"}}, "source has no commit"),
        (
            {"source": {"repo": "me/mine", "commit": "--help", "path": "k.py", "function": "add"}},
            "'--help' is no commit",
        ),
    ],
)
def test_a_record_of_the_wrong_form_is_named(world, capsys, changes, sentence):
    change(world, **changes)
    code, _, err = run(world, capsys)
    assert code == 2 and sentence in err and "NKI-C01" in err


@pytest.mark.parametrize(
    "text, sentence",
    [
        ('{"schema": 1, "records": [', "not a file of measurement records"),
        ('{"schema": 2, "records": []}', "schema 2"),
        ('{"schema": 1}', "no list named records"),
        ("[1]", "a JSON list"),
        ('{"schema": 1, "records": [5]}', "record 0 is 5"),
        (None, "cannot be read"),
        ("", "not a file of measurement records"),
    ],
)
def test_a_file_that_is_not_of_measurements_gets_a_sentence(tmp_path, capsys, text, sentence):
    file = tmp_path / "m.json"
    if text is not None:
        file.write_text(text)
    assert command(["--measurements", str(file)]) == 2
    err = capsys.readouterr().err
    assert sentence in err and "Traceback" not in err


def test_the_records_that_nkisim_carries_are_readable():
    loaded = records.load()
    assert len(loaded) == len({r.id for r in loaded}) == 63 + 127 + 75 + 46
    assert sum(r.scale == "relative" for r in loaded) == 97 and len(loaded[63 + 127 - 1].parts) == 2


def test_candidates_are_counted_from_the_oldest():
    assert records.candidate(CANDIDATES, 0) == SOURCE
    with pytest.raises(Skipped):
        records.candidate(CANDIDATES, 2)


def test_rank_correlation():
    assert rank_correlation([1, 2, 3], [10, 20, 30]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([1, 1, 2], [5, 5, 9]) == pytest.approx(1)


def test_written_figures_are_of_all_records(world, capsys, tmp_path):
    out = tmp_path / "c.json"
    code, _, err = run(world, capsys, "--write", str(out), "--only", "whole")
    assert code == 2 and "--write is for all records" in err and not out.exists()
    assert run(world, capsys, "--write", str(out))[0] == 0
    facts, said = json.loads(out.read_text()), json.loads(run(world, capsys, "--json")[1])
    assert (facts["compared"], facts["skipped"]) == (4, 3)
    assert facts["median_error_pct"] == round(said["median_error_pct"], 1)
    assert facts["predicted_us"] == {
        r["id"]: round(r["predicted_us"], 4) for r in said["records"] if r["predicted_us"]
    }


def outcomes():
    """Return the records that nkisim carries with the predictions that calibrate wrote."""
    out = []
    for r in records.load():
        us = CALIBRATION["predicted_us"].get(r.id)
        error = None if us is None else 100 * (us / r.value_us - 1)
        out.append(
            Outcome(
                r.id,
                r.target,
                r.metric,
                r.value_us,
                us,
                error,
                family=r.family,
                variant=r.variant,
                relative=r.scale == "relative",
                ranked=r.ranked,
                file=r.file,
            )
        )
        us = out[-1].across_us = CALIBRATION["across_us"].get(r.id)
        out[-1].across_pct = None if us is None else 100 * (us / r.value_us - 1)
    level(out)
    return out


def test_the_written_figures_are_those_of_the_written_predictions():
    """They were a sentence in the code that nothing compared with anything."""
    written = outcomes()
    errors = [abs(o.error_pct) for o in written if o.error_pct is not None]
    assert len(errors) == CALIBRATION["compared"] == len(written) - CALIBRATION["skipped"]
    assert (
        f"median |error| {np.median(errors):.1f} %, 90th percentile "
        f"{np.percentile(errors, 90):.1f} % on {len(errors)} published"
    ) in overall()
    assert order(written) == CALIBRATION["order"]
    assert [rounded(f) for f in by_file(written)] == CALIBRATION["files"]
    assert rounded(figures(written, unseen=True)) == CALIBRATION["across"]
    assert by_family(written) == CALIBRATION["families"]


def test_relative_records_count_by_their_ratios():
    def one(measured, predicted, variant, **more):
        return Outcome(
            variant,
            "trn2",
            "nc_latency",
            measured,
            predicted,
            0.0,
            family="f",
            variant=variant,
            **more,
        )

    some = [
        one(10.0, 20.0, "a", relative=True),
        one(20.0, 40.0, "b", relative=True),
        one(30.0, 66.0, "c", relative=True),
    ]
    level(some)
    assert [o.error_pct for o in some] == pytest.approx([0, 0, 10])
    assert order(some) == {"pairs": 3, "pairs_right": 3, "families": 1, "best_right": 1}
    wrong = [one(10.0, 50.0, "a"), one(20.0, 40.0, "b"), one(10.2, 60.0, "c", ranked=False)]
    assert order(wrong) == {"pairs": 1, "pairs_right": 0, "families": 1, "best_right": 0}


def test_counters_are_compared_with_those_of_the_profiler(world, capsys):
    path = world[0]
    data = json.loads(path.read_text())
    data["records"][0] |= {"dma_transfers": 3, "dma_bytes": 307200, "pe_active": 0.5}
    path.write_text(json.dumps(data))
    _, out, _ = run(world, capsys, "--counters")
    assert re.search(r"whole +dma_transfers +3 +3$", out, re.MULTILINE)
    assert re.search(r"whole +dma_bytes +307,200 +307,200$", out, re.MULTILINE)
    assert re.search(r"whole +pe_active +0.500 +0.000$", out, re.MULTILINE)
    assert "2 of 2 whole numbers are exactly those of the profiler" in out


def test_a_sum_of_launches_is_one_record(world, capsys):
    path = world[0]
    data = json.loads(path.read_text())
    two = [data["records"][0], data["records"][1]]
    data["sums"] = [{**two[0], "id": "both", "parts": two}]
    path.write_text(json.dumps(data))
    by_id = {r["id"]: r for r in json.loads(run(world, capsys, "--json")[1])["records"]}
    assert by_id["both"]["predicted_us"] == pytest.approx(
        by_id["whole"]["predicted_us"] + by_id["slices"]["predicted_us"]
    )


def test_the_written_predictions_are_those_of_this_model():
    """Of kernels that need no sources, every third; if it fails, the model has changed: see
    calibration/README."""
    cache: dict = {}
    now = {
        r.id: compare(r, None, cache).predicted_us
        for r in [r for r in records.load() if r.twin][::3]
    }
    assert now == pytest.approx({id: CALIBRATION["twins_us"][id] for id in now}, abs=0.01)


def test_the_page_has_the_written_figures(tmp_path, capsys):
    text = (ROOT / "docs" / "latency-model.md").read_text(encoding="utf-8")
    assert page(CALIBRATION) in text, "python -m nkisim calibrate --page docs/latency-model.md"
    old = tmp_path / "old.md"
    old.write_text(text.replace(page(CALIBRATION), "what was"))
    assert command(["--page", str(old)]) == 0 and old.read_text() == text
    old.write_text("no marks")
    assert command(["--page", str(old)]) == 2 and old.read_text() == "no marks"
    assert "<!-- residuals -->" in capsys.readouterr().err


def test_counters_are_summed_up_below_their_table():
    def one(**both):
        return Outcome(
            "r",
            "trn2",
            "nc_latency",
            1.0,
            counted={k: v[0] for k, v in both.items()},
            counters={k: v[1] for k, v in both.items()},
        )

    text = counter_lines(
        [
            one(pe_active=(0.5, 0.59), dma_bytes=(1000.0, 1010.0)),
            one(pe_active=(0.5, 0.61), dma_bytes=(1000.0, 1100.0)),
            one(pe_active=(0.0, 0.0), dma_bytes=(1000.0, 1000.0)),
        ]
    )
    assert text[-3:] == [
        "1 of 3 whole numbers are exactly those of the profiler",
        "2 of 3 dma_bytes within 2 %",
        "1 of 2 pe_active within 10 points",
    ]
