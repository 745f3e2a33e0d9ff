"""Our kernels against the floor of their problem (benchmarks/kernels_vs_floor.py), and its page."""
from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "tuning.md").read_text("utf-8")
#: cases that are predicted in a moment
QUICK = ("stream_256000_free1000", "transpose_1024x512", "matmul_tiled_512x640x1536",
         "matmul_fully_optimized_512x640x1536", "bias_add_relu_2048x8192", "speed_32x16_float16")


@pytest.fixture(scope="module")
def benchmark():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import kernels_vs_floor
    finally:
        sys.path.pop(0)
    return kernels_vs_floor


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
    for dialect in ("", "_nki"):
        for lab, case in cases:
            row = benchmark.row(lab, case, target, dialect)
            assert 1.0 <= row.ratio < (1.25 if not row.step else 2.0), (case.name, row)
            if not dialect:
                shown = float(page[case.name][4].replace(",", ""))
                assert row.ours == pytest.approx(shown, rel=0.1), \
                    "python benchmarks/kernels_vs_floor.py --write writes the page anew"


def test_every_case_is_on_the_page_for_both_targets(benchmark):
    names = {case.name for _, case in benchmark.cases()}
    assert all(names <= set(rows) for rows in written().values()) and len(written()) == 2


def test_a_floor_is_the_longest_of_its_chains(benchmark):
    from nkisim.chip import hw
    core = hw.get("trn2")
    _, nothing = benchmark.floor(core, 0.0, 0, 0)
    moved, many = benchmark.floor(core, 0.0, 1 << 30, 1 << 30)
    _, busy = benchmark.floor(core, 5000.0, 1 << 20, 1 << 20)
    assert nothing > core.timing.launch_us + 2 * core.timing.dma_start_us
    assert moved < many < moved + nothing and 5000.0 + nothing < busy < 5002.0 + nothing
