"""Where the time and the bytes of a profile go: critical path, regions, tensors, floor."""

from __future__ import annotations

import json
from pathlib import Path

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.timing import compiler

P = 128
#: the compiler leaves out no load that was done before
AS_WRITTEN = compiler.DEFAULT
ROOT = Path(__file__).resolve().parents[3]


@nki.jit
def product(a, b, keep=False):
    """Return a.T @ b; `a` is loaded for each tile of columns, or once."""
    out = nl.ndarray((P, b.shape[1]), dtype=a.dtype, buffer=nl.shared_hbm)
    left = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    if keep:
        nisa.dma_copy(dst=left, src=a)
    for j in range(b.shape[1] // 512):
        here = left
        if not keep:
            here = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=here, src=a)
        columns = slice(j * 512, (j + 1) * 512)
        right = nl.ndarray((P, 512), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=right, src=b[:, columns])
        acc = nl.ndarray((P, 512), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=acc, stationary=here, moving=right)
        done = nl.ndarray((P, 512), dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=done, src=acc)
        nisa.dma_copy(dst=out[:, columns], src=done)
    return out


def half(*shape):
    return np.zeros(shape, nkisim.chip.dtypes.BFLOAT16)


@pytest.fixture(scope="module")
def prof():
    return nkisim.profile(
        product, half(P, P), half(P, 2048), target="trn2", compute=False, compiler=AS_WRITTEN
    )


@nki.jit
def windows(a):
    """Sum windows of 512 columns that are 256 apart: each column but those at the ends twice."""
    out = nl.ndarray((P, 512), dtype=a.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray((P, 512), dtype=a.dtype, buffer=nl.sbuf)
    nisa.memset(dst=total, value=0.0)
    for j in range(a.shape[1] // 256 - 1):
        part = nl.ndarray((P, 512), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=part, src=a[:, j * 256 : j * 256 + 512])
        nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)
    nisa.dma_copy(dst=out, src=total)
    return out


# -- tensors ---------------------------------------------------------------------------------------


def test_each_tensor_has_its_name_its_bytes_and_how_often_it_is_read(prof):
    rows = {r["name"]: r for r in prof.tensors()}
    assert set(rows) == {"a", "b", "out"}
    assert rows["a"]["bytes"] == 2 * P * P and rows["a"]["argument"]
    assert rows["a"]["repeat"] == 4 and rows["a"]["read_bytes"] == 4 * rows["a"]["bytes"]
    assert rows["b"]["repeat"] == 1 and rows["out"]["repeat"] is None
    assert rows["out"]["written_bytes"] == rows["out"]["distinct_written_bytes"] == 2 * P * 2048
    assert "test_accounts.py" in rows["out"]["where"] and not rows["out"]["argument"]


def test_a_tensor_that_is_kept_is_read_once():
    kept = nkisim.profile(
        product, half(P, P), half(P, 2048), True, target="trn2", compute=False, compiler=AS_WRITTEN
    )
    assert {r["name"]: r["repeat"] for r in kept.tensors()} == {"a": 1, "b": 1, "out": None}


def test_windows_that_overlap_count_what_they_share_once():
    (a,) = (
        r
        for r in nkisim.profile(
            windows, np.zeros((P, 2048), np.float32), target="trn2", compute=False
        ).tensors()
        if r["name"] == "a"
    )
    assert a["distinct_read_bytes"] == a["bytes"] == 4 * P * 2048
    assert a["repeat"] == pytest.approx(7 * 512 / 2048)


# -- regions and critical path ---------------------------------------------------------------------


def test_the_lines_share_out_the_time_on_the_critical_path(prof):
    regions, path = prof.regions(), prof.critical_path()
    lines = sum(r["critical_us"] for r in regions["lines"])
    assert lines == pytest.approx(prof.body_us, abs=0.01 * prof.body_us)
    assert lines == pytest.approx(path["total_us"]) == pytest.approx(sum(path["spent_us"].values()))
    assert sum(r["instructions"] for r in regions["lines"]) == len(prof.trace)
    assert sum(r["moved_bytes"] for r in regions["lines"]) == (
        prof.hbm_read_bytes + prof.hbm_write_bytes
    )


def test_a_line_has_the_time_of_its_engine(prof):
    by_line = {r["where"]: r["busy_us"] for r in prof.regions()["lines"]}
    assert sum(b.get("tensor", 0.0) for b in by_line.values()) == pytest.approx(
        prof.schedule.busy["tensor"]
    )
    assert all(set(b) <= {"tensor", "vector", "scalar", "gpsimd", "dma"} for b in by_line.values())


def test_loops_have_their_runs_and_what_is_in_them():
    from nkisim.cli.kernel_arguments import load_kernel

    kernel = load_kernel(f"{ROOT}/tests/nkisim/kernels_for_reports.py:matmul")
    zeros = (np.zeros((512, 256), np.float32), np.zeros((512, 2048), np.float32))
    rows = nkisim.profile(
        kernel, *zeros, target="trn2", compute=False, compiler=AS_WRITTEN
    ).regions()["loops"]
    assert [(r["depth"], r["runs"], r["iterations"]) for r in rows] == [
        (0, 1, 2),
        (1, 2, 8),
        (2, 8, 32),
    ]
    assert [r["inside"] for r in rows] == [None, 0, 1]
    outer, middle, inner = rows
    assert outer["instructions"] == middle["instructions"] > inner["instructions"] > 0
    assert outer["span_us"] >= middle["span_us"] >= inner["span_us"] > 0
    assert "tensor" in inner["busy_us"] and "scalar" not in inner["busy_us"]


def test_the_path_says_what_each_step_waited_for(prof):
    path = prof.critical_path()
    whys = {s["why"] for s in path["steps"]}
    assert whys <= {"start", "data", "buffer", "order", "space", "late-load", "queue"}
    assert path["steps"][-1]["name"] == "store" and path["steps"][-1]["why"] == "data"
    assert "tensor_copy" in path["steps"][-1]["why_text"]
    for before, after in zip(path["steps"], path["steps"][1:]):
        assert after["waited_for"] == before["instruction"]
    longest = path["by_line"][0]
    assert longest["us"] == max(r["us"] for r in path["by_line"]) and longest["why_text"]


def test_a_path_is_cut_and_says_how_much(prof):
    cut = prof.path.to_dict(most=2)
    whole = prof.critical_path()
    assert len(cut["steps"]) == 2 and cut["by_line"] == whole["by_line"]
    assert cut["steps_left_out"] == len(whole["steps"]) + whole["steps_left_out"] - 2


# -- floor -----------------------------------------------------------------------------------------


def test_the_floor_is_the_job_not_the_kernel(prof):
    kept = nkisim.profile(
        product, half(P, P), half(P, 2048), True, target="trn2", compute=False, compiler=AS_WRITTEN
    )
    assert kept.floor_us == prof.floor_us <= kept.latency_us < prof.latency_us
    floor = prof.floor()
    assert floor["least_read_bytes"] == 2 * P * (P + 2048)
    assert floor["least_write_bytes"] == 2 * P * 2048
    assert floor["launch_us"] + max(floor["bytes_us"], floor["tensor_us"]) < floor["floor_us"]
    assert floor["work_us"] <= prof.latency_us and floor["busiest"] in prof.engine_busy


@pytest.mark.parametrize(
    "lab, case",
    [("vecadd", "stream_256000_free1000"), ("vecadd", "transpose_1024x512")]
    + [("ffnn", "matmul_tiled_512x640x1536"), ("conv2d", "speed_32x16_float16")],
)
def test_no_lab_is_faster_than_its_floor(lab, case):
    from labkit.inputs import dtype_of
    from labkit.load import load_lab, load_module

    found = load_lab(ROOT / "labs" / lab)
    kernels = load_module(found.folder / "kernels.py", f"accounts_{lab}")
    case = next(c for c in found.cases if c.name.startswith(case))
    for constant, value in case.constants.items():
        setattr(kernels, constant, value)
    one = nkisim.profile(
        getattr(kernels, case.kernel),
        *(np.zeros(t.shape, dtype_of(t.dtype)) for t in case.inputs),
        target="trn1",
        compute=False,
        **case.kwargs,
        **case.kernel_kwargs,
    )
    floor = one.floor()
    assert 0.2 * one.latency_us < floor["floor_us"] < one.latency_us


def test_a_kernel_that_only_computes_on_chip_or_moves_has_a_floor():
    @nki.jit
    def fill(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=1.0)
        nisa.dma_copy(dst=out, src=tile)
        return out

    @nki.jit
    def copy(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=a)
        return out

    for kernel in (fill, copy):
        one = nkisim.profile(
            kernel, half(P, 512), target="trn2", compute=False, compiler=AS_WRITTEN
        )
        assert 0 < one.floor_us <= one.latency_us


def test_it_all_is_in_the_dict_and_ready_for_json(prof):
    facts = json.loads(json.dumps(prof.to_dict()))
    assert facts["floor"]["floor_us"] == prof.floor_us
    assert facts["tensors"] == prof.tensors() and facts["regions"]["lines"]
    assert facts["critical_path"]["by_line"]
    assert [a["name"] for a in facts["arguments"]] == ["a", "b", "keep"][: len(facts["arguments"])]
