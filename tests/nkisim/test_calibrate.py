"""`python -m nkisim calibrate`: records in, a table out, nothing dropped in silence."""
from __future__ import annotations

import json
import subprocess

import pytest

from nkisim import records
from nkisim.calibrate import command, rank_correlation
from nkisim.records import Skipped

SOURCE = '''
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
'''
CANDIDATES = f"C(parent=C(parent=None, code='''{SOURCE}'''), code='raise ValueError(1)')"


@pytest.fixture
def world(tmp_path):
    """Return (records file, sources folder) with one repository of one commit."""
    repo = tmp_path / "sources" / "me+mine"
    repo.mkdir(parents=True)
    (repo / "k.py").write_text(SOURCE)
    (repo / "c.py").write_text(CANDIDATES)

    def git(*args):
        return subprocess.run(["git", "-C", str(repo), "-c", "user.name=x", "-c",
                               "user.email=x@example.org", *args], check=True,
                              capture_output=True, text=True).stdout.strip()
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "x")
    commit = git("rev-parse", "HEAD")
    (repo / "k.py").write_text("raise RuntimeError('not the recorded version')")
    x = {"shape": [25600], "dtype": "float32"}

    def record(id, **changes):
        source = {"repo": "me/mine", "commit": commit, "path": "k.py", "function": "add",
                  **changes.pop("source", {})}
        return {"id": id, "target": "trn1", "metric": "nc_latency", "value_us": 20.0,
                "descriptors": "static", "source": source, "set": {"FREE": 200},
                "args": [x, x], "kwargs": {}, "confidence": "high", **changes}
    file = tmp_path / "records.json"
    file.write_text(json.dumps({"schema": 1, "records": [
        record("whole"), record("slices", set={"FREE": 2}),
        record("total", metric="profile_total"),
        record("old", source={"path": "c.py", "candidate": 0}),
        record("new", set={}, source={"path": "c.py", "candidate": 1}),
        record("elsewhere", source={"repo": "no/where"}),
        record("typo", set={"FREEE": 2}),
    ]}))
    return file, tmp_path / "sources"


def run(world, capsys, *more):
    code = command(["--measurements", str(world[0]), "--sources", str(world[1]), *more])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_every_record_is_compared_or_skipped_with_a_reason(world, capsys):
    code, out, _ = run(world, capsys, "--json")
    facts = json.loads(out)
    by_id = {r["id"]: r for r in facts["records"]}
    assert code == 0 and list(by_id) == ["whole", "slices", "total", "old", "new", "elsewhere",
                                         "typo"]
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


def test_nothing_to_compare_is_not_a_success(world, capsys, tmp_path):
    assert run(world, capsys, "--only", "elsewhere")[0] == 2
    assert run(world, capsys, "--target", "trn9")[0] == 2
    assert run(world, capsys, "--explain", "nothing")[0] == 2
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    assert command(["--measurements", str(bad)]) == 2


def test_the_records_that_nkisim_carries_are_readable():
    assert len(records.load()) == 63
    assert len({r.id for r in records.load()}) == 63


def test_candidates_are_counted_from_the_oldest():
    assert records.candidate(CANDIDATES, 0) == SOURCE
    with pytest.raises(Skipped):
        records.candidate(CANDIDATES, 2)


def test_rank_correlation():
    assert rank_correlation([1, 2, 3], [10, 20, 30]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([1, 1, 2], [5, 5, 9]) == pytest.approx(1)
