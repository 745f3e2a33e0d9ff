"""results.json: appended to, atomic, and never at the cost of what was there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.history.results import ResultsError, append_run


def test_runs_are_appended(tmp_path):
    path = tmp_path / "new" / "results.json"
    assert append_run(path, {"n": 1}) == [] and append_run(path, {"n": 2}) == []
    document = json.loads(path.read_text())
    assert document["schema_version"] == 1 and document["runs"] == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("old", ["{ half", "[]", '{"schema": "other"}'])
def test_what_cannot_be_read_is_kept_under_another_name(tmp_path, old):
    path = tmp_path / "results.json"
    path.write_text(old)
    (note,) = append_run(path, {"n": 1})
    assert "results.kept-1.json" in note
    assert (tmp_path / "results.kept-1.json").read_text() == old
    assert json.loads(path.read_text())["runs"] == [{"n": 1}]


def test_two_processes_lose_nothing(tmp_path):
    path = tmp_path / "results.json"
    code = (
        "import sys; from pathlib import Path; from labkit.history.results import append_run\n"
        "for n in range(20): append_run(Path(sys.argv[1]), {'n': n})"
    )
    both = [subprocess.Popen([sys.executable, "-c", code, str(path)]) for _ in range(2)]
    assert [p.wait() for p in both] == [0, 0]
    assert len(json.loads(path.read_text())["runs"]) == 40


def test_a_value_that_json_lacks_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "results.json"
    append_run(path, {"n": 1})
    with pytest.raises(ValueError):
        append_run(path, {"n": float("nan")})
    assert json.loads(path.read_text())["runs"] == [{"n": 1}]
    assert not list(tmp_path.glob("*.tmp"))


def test_a_folder_that_is_a_file_gets_a_sentence(tmp_path):
    (tmp_path / "results").write_text("")
    with pytest.raises(ResultsError, match="cannot write"):
        append_run(tmp_path / "results" / "results.json", {})


def test_what_is_finished_is_written_while_the_rest_runs_and_comes_once(tmp_path, monkeypatch):
    """A kill lost every finished case of the lab: all were written at the end."""
    import argparse

    from rich.console import Console

    from labkit import cli
    from labkit.load import load_lab

    lab = load_lab(Path(__file__).parents[2] / "labs" / "vecadd")
    cases = [lab.case("naive_128"), lab.case("stream_128_free1")]
    path, seen = tmp_path / "results.json", []
    args = argparse.Namespace(
        results=path,
        backend="sim",
        simulate=True,
        seed=None,
        dialect=None,
        in_process=True,
        language=None,
        timeout=None,
    )
    real = cli.evaluate

    def evaluate(*given, **named):
        for outcome in real(*given, **named):
            if path.exists():
                seen.append(json.loads(path.read_text())["runs"])
            yield outcome

    monkeypatch.setattr(cli, "evaluate", evaluate)
    monkeypatch.setattr(cli, "SAVE_S", 0.0)
    cli.run_cases(lab, [(c, "trn1") for c in cases], args, Console(quiet=True))
    (early,), (final,) = seen[0], json.loads(path.read_text())["runs"]
    assert early["unfinished"] and len(early["cases"]) == 1
    assert "unfinished" not in final and len(final["cases"]) == 2 and final["id"] == early["id"]
