"""Our kernels against their floor (tools/benchmarks/kernels_vs_floor.py), and its page."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "tuning.md").read_text("utf-8")
#: cases that are predicted in a moment
QUICK = (
    "stream_256000_free1000",
    "transpose_1024x512",
    "matmul_tiled_512x640x1536",
    "matmul_fully_optimized_512x640x1536",
    "bias_add_relu_2048x8192",
    "speed_32x16_float16",
)


def program(name):
    """Return a program of tools/benchmarks/ as a module."""
    sys.path.insert(0, str(ROOT / "tools" / "benchmarks"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


@pytest.fixture(scope="module")
def benchmark():
    return program("kernels_vs_floor")


def written() -> dict[str, dict[str, list[str]]]:
    """Return the cells of the page's tables by target and case."""
    found: dict[str, dict[str, list[str]]] = {}
    table = PAGE.partition("<!-- kernels -->")[2].partition("<!-- /kernels -->")[0]
    for target, rows in re.findall(r"^(trn\d)\. .*?\n\n(.*?)(?=\ntrn|\Z)", table, re.M | re.S):
        cells = [[c.strip() for c in line.strip("|").split("|")] for line in rows.splitlines()]
        found[target] = {c[0].rstrip("*"): c for c in cells[2:] if len(c) > 1}
    return found


@pytest.mark.parametrize("target", ("trn1", "trn2"))
def test_no_kernel_is_below_its_floor_and_the_page_says_what_is_predicted_today(benchmark, target):
    cases = [(lab, case) for lab, case in benchmark.cases() if case.name in QUICK]
    assert len(cases) == len(QUICK)
    page = written()[target]
    for dialect in ("", "_nki") if target != "trn1" else ("",):  # import nki is for trn2 and later
        for lab, case in cases:
            row = benchmark.row(lab, case, target, dialect)
            assert 1.0 <= row.ratio < (1.25 if not row.step else 2.0), (case.name, row)
            if not dialect:
                shown = float(page[case.name][4].replace(",", ""))
                assert row.ours == pytest.approx(shown, rel=0.1), (
                    "python tools/benchmarks/kernels_vs_floor.py --write writes the page anew"
                )


def test_every_case_is_on_the_page_for_both_targets(benchmark):
    names = {case.name for _, case in benchmark.cases()}
    assert all(names <= set(rows) for rows in written().values()) and len(written()) == 2


def test_a_floor_is_the_longest_of_its_chains(benchmark):
    from nkisim.chip import hw

    core = hw.get("trn2")
    assert benchmark.floor(core, 0.0, 0, 0)[1] == core.timing.launch_us
    _, nothing = benchmark.floor(core, 0.0, 1, 1)  # a way there and back, and hardly a byte
    moved, many = benchmark.floor(core, 0.0, 1 << 30, 1 << 30)
    _, busy = benchmark.floor(core, 5000.0, 1 << 20, 1 << 20)
    assert nothing > core.timing.launch_us + 2 * core.timing.dma_start_us
    assert moved < many < moved + nothing and 5000.0 + nothing < busy < 5002.0 + nothing


def test_a_public_solution_counts_if_it_is_right_and_can_do_the_shape(
    benchmark, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "benchmarks"))  # for the processes as well
    solutions = program("public_solutions")
    ours = (ROOT / "labs" / "vecadd" / "kernels.py").read_text("utf-8")
    stores = "value=turned[:, c])"
    assert stores in ours
    texts = {
        "right": ours,
        "wrong": ours.replace(stores, "value=block[:, 0, 0:height])"),
        "numpy": "def matrix_transpose(matrix):\n    return matrix.T.copy()\n",
        "small": ours.replace("wide = 8 * tile", "assert rows < 1024\n    wide = 8 * tile"),
    }
    for name, text in texts.items():
        for mark in ("part1/run_benchmark.py", "part2/conv2d.py"):
            (tmp_path / f"a+{name}" / mark).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / f"a+{name}" / mark).write_text("")
        (tmp_path / f"a+{name}" / "part1" / "kernels.py").write_text(text)
    [(lab, case)] = [
        (lab, case) for lab, case in benchmark.cases() if case.name == "transpose_1024x512"
    ]
    found = solutions.run_all(tmp_path, "trn2", [(lab.name, case)], 120)
    said = {name: one for name, one in zip(sorted(texts), found)}
    assert len(found) == 4 and {f.case for f in found} == {case.name}
    row = benchmark.row(lab, case, "trn2", "")
    assert said["right"].us == pytest.approx(row.ours) and said["right"].why == ""
    assert [name for name in texts if said[name].us] == ["right"]
    assert "elements are wrong" in said["wrong"].why and said["numpy"].why == "no kernel"
    assert "AssertionError" in said["small"].why or "assert" in said["small"].why
    [line] = benchmark.compared([row], found)
    assert line[2] == "1 of 4" and "(1.00)" in line[3]
