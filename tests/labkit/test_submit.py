"""What students hand in: packed the same every time, checked, its writeup held against the runs."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import zipfile
from pathlib import Path

import pytest
from rich.console import Console

from grading import ROOT, SOLVED, hand_in, run, small_lab
from labkit.spec import SpecError
from labkit.starter.export import export
from labkit.submit import send
from labkit.submit.pack import submit
from labkit.submit.writeup import check_writeup


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """Make a copy of vecadd the lab that is handed in; return its folder."""
    labs = small_lab(tmp_path)
    monkeypatch.setenv("LABKIT_LABS", str(labs))
    monkeypatch.chdir(tmp_path)
    return labs / "vecadd"


def test_a_whole_submission_is_packed_and_gradable(lab, capsys):
    (lab / "writeup.md").write_text("# Done\n")
    (lab / "secret.txt").write_text("mine")
    assert submit(["vecadd"]) == 0
    data = Path("submissions/vecadd.zip").read_bytes()
    names = zipfile.ZipFile(io.BytesIO(data)).namelist()
    assert names == ["labs/vecadd/kernels.py", "labs/vecadd/writeup.md"]
    assert submit(["vecadd", "--no-check"]) == 0
    assert Path("submissions/vecadd.zip").read_bytes() == data
    from labkit.grade import submissions

    (lab.parent / "ann.zip").write_bytes(data)
    found = submissions.take(
        {"student": "ann", "source": "ann.zip"}, lab.parent, "vecadd", ["kernels.py"], None, lab
    )
    assert found.files["kernels.py"] == (lab / "kernels.py").read_bytes()


@pytest.mark.full
@pytest.mark.parametrize("course, other", [("trn1", "trn2"), ("trn2", "trn1")])
def test_the_course_says_where_a_submission_runs(lab, course, other, capsys, monkeypatch):
    monkeypatch.setenv("NKI_COURSE", course)
    dialect, name = {"trn1": ("beta1", "kernels.py"), "trn2": ("nki", "kernels_nki.py")}[course]
    step = "\n\ndef matrix_transpose(x):\n    raise NotImplementedError('write it')\n"
    (lab / name).write_text((lab / name).read_text("utf-8") + step, "utf-8")
    assert submit(["vecadd", "--dialect", dialect]) == 1
    said = capsys.readouterr().out
    assert f"missing transpose_128x128 on {course}: not written yet" in said
    assert f"on {other}" not in said


@pytest.mark.full
def test_the_other_dialect_is_packed_and_checked(lab, capsys):
    (lab / "writeup.md").write_text("# Done\n")
    assert submit(["vecadd", "--dialect", "nki"]) == 0
    assert zipfile.ZipFile("submissions/vecadd.zip").namelist() == [
        "labs/vecadd/kernels_nki.py",
        "labs/vecadd/writeup.md",
    ]


@pytest.mark.full
@pytest.mark.skipif(os.name != "posix", reason="grading is not for Windows")
def test_the_other_dialect_from_the_starter_to_the_grade(lab, tmp_path, monkeypatch):
    """Exported, solved, packed and graded: what counts is kernels_nki.py."""
    solved = (lab / "kernels_nki.py").read_bytes()
    export(ROOT, tmp_path / "starter", ["vecadd"], "nki")
    folder = tmp_path / "starter" / "labs" / "vecadd"
    assert (
        "labs/vecadd/kernels_nki.py"
        in json.loads((tmp_path / "starter" / "starter.json").read_text())["editable"]
    )
    staff = tmp_path / "labs"
    results = {}
    for student in ("stub", "ann"):
        monkeypatch.setenv("LABKIT_LABS", str(folder.parent))
        assert submit(["vecadd", "--dialect", "nki", "--no-check", "--out", student]) == 1
        (tmp_path / "subs").mkdir(exist_ok=True)
        shutil.copyfile(f"{student}/vecadd.zip", tmp_path / "subs" / f"{student}.zip")
        (folder / "kernels_nki.py").write_bytes(solved)
    hand_in(tmp_path / "subs", cy=SOLVED)  # the other dialect: not what was asked
    monkeypatch.setenv("LABKIT_LABS", str(staff))
    assert run(Path("subs"), Path("out"), "--dialect", "nki", "--sandbox", "none") == 0
    with open("out/grades.csv", newline="") as file:
        results = {r["student"]: (r["points"], r["problem"]) for r in csv.DictReader(file)}
    assert results["ann"] == ("10", "") and results["stub"] == ("0", "")
    assert results["cy"] == ("0", "kernels_nki.py is missing from the submission")


@pytest.mark.full
def test_what_is_missing_is_said(lab, capsys):
    text = (lab / "kernels.py").read_text()
    (lab / "kernels.py").write_text(
        text.replace("c * tile:(c + 1)", "c:(c + 1)").replace(
            "\nimport neuron", "\nimport os\nimport neuron", 1
        )
    )
    assert submit(["vecadd"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "transpose_256x384 on trn1: failed" in said and "imports os" in said
    assert "a question without an answer" in said and "things are missing" in said
    (lab / "kernels.py").write_text("def f(:\n")
    assert submit(["vecadd"]) == 1
    assert "kernels.py:1 is not Python" in capsys.readouterr().out
    (lab / "kernels.py").write_text(f"x = {'-' * 8000}1\n")
    assert submit(["vecadd"]) == 1
    assert "nested too deeply" in capsys.readouterr().out


RUN = {
    "lab": "vecadd",
    "cases": [
        {
            "case": "transpose_128x128",
            "target": "trn2",
            "latency_us": {"p50": 16.2513, "p99": 16.2513},
            "latency_kind": "predicted",
            "stats": {"dma_transfers": 1200},
        }
    ],
}


@pytest.mark.parametrize(
    "line, says",
    [
        ("It takes predicted 16.25 us (transpose_128x128, trn2).", None),
        ("It takes predicted 16 us (transpose_128x128, trn2).", None),
        ("It takes predicted 0.0163 ms (transpose_128x128, trn2).", None),
        ("It takes 16.25 us (transpose_128x128, trn2).", "is a predicted time: write so"),
        ("It takes measured 16.25 us (transpose_128x128, trn2).", "is a predicted time: write so"),
        ("It takes predicted 15.9 us (transpose_128x128, trn2).", "your runs recorded 16.2513"),
        ("It takes predicted 16.2 us (transpose_128x128, trn1).", "no run of yours recorded"),
        ("It takes 16.25 us.", "for which case?"),
        ("That is `0.14 us` for each of them.", None),
        ("That is `0.14 us` each, 3 us in all.", "3 us for which case?"),
        ("It makes 1,200 transfers (dma_transfers of transpose_128x128, trn2).", None),
        ("It makes 1200 transfers (dma_transfer_count of transpose_128x128, trn2).", None),
        ("It makes 1201 transfers (dma_transfers of transpose_128x128, trn2).", "recorded 1,200"),
        ("   (your answer)", "a question without an answer"),
        ("The chip has 128 partitions.", None),
    ],
)
def test_figures_are_held_against_the_runs(tmp_path, line, says):
    (tmp_path / "writeup.md").write_text(line + "\n")
    (tmp_path / "results.json").write_text(json.dumps({"runs": [RUN]}))
    found = check_writeup(tmp_path / "writeup.md", [tmp_path / "results.json"], "vecadd")
    assert (found == []) if says is None else (len(found) == 1 and says in found[0]), found


def test_writeups_ask_what_the_labs_ask(tmp_path):
    for name in ("vecadd", "ffnn", "conv2d"):
        text = (ROOT / "labs" / name / "writeup.md").read_text("utf-8")
        shutil.copy(ROOT / "labs" / name / "writeup.md", tmp_path)
        found = check_writeup(tmp_path / "writeup.md", [tmp_path / "none.json"], name)
        assert len(found) == text.count("(your answer)") > 3
        assert all("without an answer" in f for f in found)


def test_what_was_run_in_the_folder_of_the_lab_counts(lab, capsys):
    """The pages say `python tester.py` there; submit runs at the top."""
    (lab / "writeup.md").write_text(
        "1,200 transfers (dma_transfers of transpose_128x128, trn2).\n"
        "It takes predicted 7 us (tiled_256_rows128, trn1).\n"
    )
    other = {
        **RUN,
        "cases": [
            {
                "case": "tiled_256_rows128",
                "target": "trn1",
                "stats": {},
                "latency_us": {"p50": 7.0},
                "latency_kind": "predicted",
            }
        ],
    }
    for folder, one in ((lab, RUN), (lab.parents[1], other)):
        (folder / "results").mkdir(exist_ok=True)
        (folder / "results" / "results.json").write_text(json.dumps({"runs": [one]}))
    assert submit(["vecadd", "--no-check"]) == 0, capsys.readouterr().out
    alone = str(lab / "results" / "results.json")
    assert submit(["vecadd", "--no-check", "--results", alone]) == 1
    assert "writeup.md:2: 7 is said to be" in capsys.readouterr().out


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["", "bom"])
def test_a_mark_of_byte_order_hides_nothing_and_is_no_mistake(lab, mark, capsys):
    """Notepad writes one, and Python reads it."""
    text = mark + (lab / "kernels.py").read_text().replace(
        "\nimport neuron", "\nimport os\nimport neuron", 1
    )
    (lab / "kernels.py").write_bytes(text.replace("\n", "\r\n").encode())
    submit(["vecadd", "--no-check"])
    said = capsys.readouterr().out
    assert "is not Python" not in said and "imports os" in said


@pytest.mark.parametrize(
    "data, says",
    [(b"\xef\xbb\xbftoken\r\n", "cannot be reached"), ("token".encode("utf-16"), "not UTF-8")],
)
def test_a_token_that_an_editor_of_windows_wrote(tmp_path, data, says, monkeypatch):
    seen = []

    def ask(url, student, token, signed, body):
        seen.append(token)
        raise SpecError("cannot be reached")

    monkeypatch.setattr(send, "ask", ask)
    (tmp_path / "token").write_bytes(data)
    with pytest.raises(SpecError, match=says):
        send.send(Console(), "https://board.example", "ann", tmp_path / "token", b"")
    assert seen in ([], ["token"])


def test_a_folder_that_is_in_the_way_is_a_sentence(lab, capsys):
    """As is one that may not be written: every command of labkit says so, and ends with 2."""
    from labkit.commands import main

    Path("submissions").write_text("a file\n")
    assert main(["submit", "vecadd", "--no-check"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "could not run: submissions: File" in said and "exists" in said
