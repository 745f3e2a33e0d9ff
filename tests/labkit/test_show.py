"""What a person sees in a terminal of 80 columns, of prints, of reports that repeat themselves."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from labkit import Case, MustFailNumerically, Tensor
from labkit.evaluate import FAILED, PASSED, Outcome
from labkit.history.results import append_run
from labkit.load import load_lab
from labkit.run.child import _where as line_of
from labkit.show import (
    case_table,
    show_check,
    show_failures,
    show_printed,
    show_stats,
    show_steps,
    show_table,
    summary_table,
)

LABS = Path(__file__).parents[2] / "labs"


def shown(show, *args, width=80) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    show(console, *args)
    return console.file.getvalue()


def outcome(name="c", status=PASSED, text="fine", **more) -> Outcome:
    case = Case(name, "k", "same", (Tensor((4, 4)),))
    return Outcome(case, "trn1", status, text, **more)


@pytest.mark.parametrize("width", [20, 80, 100, 200])
@pytest.mark.parametrize("lab", ["vecadd", "ffnn", "conv2d"])
def test_names_can_be_copied(lab, width):
    """Every name of a case stands whole in a line, at the width of any terminal."""
    cases = load_lab(LABS / lab).cases
    some = [("lab", outcome(c.name)) for c in cases]
    for table in (case_table(load_lab(LABS / lab), "trn1"), summary_table(some)):
        text = shown(show_table, table, width=width)
        assert [
            c.name for c in cases if not re.search(rf"^{re.escape(c.name)}( |$)", text, re.M)
        ] == []
        if width >= 80:
            assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize(
    "kind, named", [("predicted", [""]), ("measured", ["p50", "p99"])], ids=lambda v: str(v)
)
def test_a_predicted_time_has_no_percentiles(kind, named):
    ran = outcome(latency={"p50": 7.0, "p99": 7.0}, latency_kind=kind)
    said = re.findall(rf"latency ?(\w*), {kind} +7.0 us", shown(show_stats, ran))
    assert said == named


def test_what_passing_kernels_print_is_shown():
    text = shown(
        show_printed,
        [
            outcome("a", printed="x = 3"),
            outcome("b", printed="x = 3"),
            outcome("c"),
            outcome("d", printed="\n".join(map(str, range(99)))),
            outcome("e", FAILED, printed="shown with the failure"),
        ],
    )
    assert "a on trn1, printed by the kernel:\nx = 3\n" in text
    assert "b on trn1, printed by the kernel:\n  (the same as above)" in text
    assert "c on" not in text and "e on" not in text
    assert "(79 lines before; --in-process shows all)" in text and "\n98\n" in text


def test_a_report_is_the_same_as_above_only_if_it_is_above():
    text = shown(
        show_failures,
        [
            outcome("a", FAILED, "one"),
            outcome("b", FAILED, "one"),
            outcome("c", FAILED, "two"),
            outcome("d", FAILED, "one"),
        ],
    )
    assert text.count("(the same report as above)") == 1
    assert "d on trn1: failed\n  (the same report as that of a on trn1)" in text


def test_what_is_not_written_is_not_called_failed():
    begun = outcome("a", FAILED, "wrong")
    stub = outcome("b", FAILED, "step 1 is not written yet", error={"name": "not_written"})
    text = shown(show_failures, [begun, stub])
    assert "a on trn1: failed\n" in text and "b on trn1: not written yet\n" in text
    table = shown(
        lambda console, rows: console.print(summary_table(rows)), [("k", begun), ("k", stub)]
    )
    assert table.count("failed") == 1 and "not written yet" in table


def test_the_line_of_a_failure_is_quoted_without_its_backslash(tmp_path):
    file = tmp_path / "kernels.py"
    file.write_text("def k(n):\n    assert n == 1, \\\n        f'one, not {n}'\n")
    names: dict = {}
    exec(compile(file.read_text(), str(file), "exec"), names)
    with pytest.raises(AssertionError) as caught:
        names["k"](2)
    assert line_of(caught.value, file).endswith("kernels.py:2 in k\n         assert n == 1,")


def started(lab: str, *args: str, cwd: Path) -> subprocess.CompletedProcess:
    env = {**os.environ, "PYTHONPATH": str(LABS.parent / "shared"), "COLUMNS": "80"}
    return subprocess.run(
        [sys.executable, str(LABS / lab / "tester.py"), *args],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize(
    "lab, args", [("conv2d", ["--basic"]), ("ffnn", ["--small", "--test-matmul"]), ("vecadd", [])]
)
def test_a_backend_that_is_not_here_is_said_once(tmp_path, lab, args):
    done = started(lab, "--backend", "hw", *args, cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("could not run") == 1 == len(done.stderr.splitlines())
    assert "--backend hw needs" in done.stderr and "--backend sim" in done.stderr
    assert "NKI_BACKEND" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="modes")
def test_everybody_may_read_results(tmp_path):
    append_run(tmp_path / "results.json", {"cases": []})
    assert (tmp_path / "results.json").stat().st_mode & 0o777 == 0o644


@pytest.mark.full
def test_prints_of_a_passing_case_reach_the_terminal(tmp_path):
    """Both kinds, from a kernel that passes: what the host computes, and a tile on the chip."""
    folder = tmp_path / "vecadd"
    folder.mkdir()
    for file in (LABS / "vecadd").glob("*.py"):
        text = file.read_text("utf-8")
        if file.name == "kernels.py":
            text = text.replace(
                "    b = nl.load(b_vec)\n",
                "    b = nl.load(b_vec)\n"
                "    nl.device_print('tile', a)\n    print('shape', a_vec.shape)\n",
            )
        (folder / file.name).write_text(text, "utf-8")
    (folder / "README.md").write_text("")
    env = {**os.environ, "PYTHONPATH": str(LABS.parent / "shared")}
    for args in (["--kernel", "naive", "-n", "128"], []):
        done = subprocess.run(
            [sys.executable, "tester.py", "--dialect", "beta1", *args],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        if not args:  # of many cases, the last lines
            assert "lines before; --in-process shows all" in done.stdout
            continue
        assert "naive_128 on trn1, printed by the kernel" in done.stdout
        assert "shape (128,)" in done.stdout and "tile (128, 1) float32 sbuf" in done.stdout


WARNING = {
    "severity": "warning",
    "id": "NKI-L05",
    "text": "iterations share a tile",
    "where": "kernels.py:3, in k",
    "try": "a tile for each",
}
NOTE = {"severity": "note", "id": "NKI-M09", "text": "a copy", "where": None, "try": ""}


def test_findings_of_cases_that_pass_are_listed_once_worst_first():
    both = [outcome("a", findings=[NOTE, WARNING]), outcome("b", findings=[WARNING])]
    said = shown(show_check, both)
    for part in (
        "warning NKI-L05 iterations share a tile",
        "in     a on trn1 and 1 more",
        "try    a tile for each",
        "explain NKI-L05",
    ):
        assert part in said
    assert "NKI-M09" not in said
    said = shown(show_check, both, True)
    assert said.index("NKI-L05") < said.index("NKI-M09") and "1 warning, 1 note" in said


def test_findings_of_a_failure_come_worst_first():
    said = shown(show_failures, [outcome("a", FAILED, "wrong", findings=[NOTE, WARNING])])
    assert said.index("NKI-L05") < said.index("NKI-M09")


def test_what_to_try_is_said_once():
    finding = {**WARNING, "text": "iterations share a tile. Try: a tile for each"}
    assert shown(show_check, [outcome(findings=[finding])]).count("a tile for each") == 1


def test_points_of_several_courses_are_not_added_up():
    """conv2d has the points of three courses, ffnn those of one."""
    for name, case, points in (
        ("conv2d", "small_in128_out128", "-"),
        ("ffnn", "transpose_128x128", "6"),
    ):
        lab = load_lab(LABS / name)
        said = shown(show_steps, lab, [Outcome(lab.case(case), "trn1", PASSED, "")])
        assert re.search(rf"passing +{points} *$", said, re.M), said


def test_what_is_right_or_meant_to_be_wrong_or_reported_elsewhere_is_not_listed():
    assert shown(show_check, [outcome()]) == ""
    assert shown(show_check, [outcome(status=FAILED, findings=[WARNING])]) == ""
    wrong = Case("c", "k", "same", (Tensor((4, 4)),), expect=MustFailNumerically("on purpose"))
    assert shown(show_check, [Outcome(wrong, "trn1", PASSED, "", findings=[WARNING])]) == ""
    assert "findings: none" in shown(show_check, [outcome()], True)
