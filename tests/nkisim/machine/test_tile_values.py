"""What a profile keeps of the values that instructions write, for the page."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import model_kernels
from nkisim import report
from nkisim.machine.tile_values import BAD, BINS, TileValues, summarize
from nkisim.simulation.prediction import profile


@nki.jit
def halve_and_root(a):
    """Load, halve, take the root (of negative numbers as well), store."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    half = nl.multiply(nl.load(a), 0.5)
    nl.store(out, nl.sqrt(half))
    return out


@nki.jit
def two_products(a, b):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    s, m = nl.load(a), nl.load(b)
    acc = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
    for _ in nl.affine_range(2):
        acc += nisa.nc_matmul(s, m)
    nl.store(out, nisa.tensor_copy(acc))
    return out


def names(prof):
    return [prof.trace.op_specs[k].row.name for k in prof.timeline.spec]


def test_each_instruction_has_the_values_that_it_wrote():
    a = np.linspace(-1, 3, 128 * 64, dtype=np.float32).reshape(128, 64)
    prof = profile(halve_and_root, a, target="trn2", tile_values=True)
    rows = prof.tile_values.rows
    assert rows["instr"].tolist() == [0, 1, 2, 3] and prof.tile_values.complete
    assert rows["min"][:2] == pytest.approx([-1, -0.5])
    assert rows["max"][:2] == pytest.approx([3, 1.5])
    assert rows["mean"][1] == pytest.approx(0.5 * a.mean(), rel=1e-5)
    assert rows["nan"].tolist() == [0, 0, *[(a < 0).sum()] * 2]
    assert (rows["histogram"].sum(1) == a.size - rows["nan"]).all()


def test_a_sum_in_psum_is_seen_after_each_of_its_products():
    a, b = np.ones((128, 128), np.float32), np.ones((128, 512), np.float32)
    prof = profile(two_products, a, b, target="trn2", tile_values=True)
    rows = prof.tile_values.rows
    sums = [rows["max"][i] for i, name in enumerate(names(prof)) if name == "nc_matmul"]
    assert sums == [128, 256]
    assert (prof.outputs == 256).all()


def test_looking_changes_nothing():
    a = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32)
    plain = profile(model_kernels.rounds, a, target="trn2")
    seen = profile(model_kernels.rounds, a, target="trn2", tile_values=True)
    assert (plain.outputs == seen.outputs).all() and plain.latency_us == seen.latency_us
    assert list(plain.trace.rows) == list(seen.trace.rows)


def test_a_picture_has_the_means_of_parts_and_marks_what_is_no_number():
    tile = np.zeros((128, 64), np.float32)
    tile[64:] = 1.0
    tile[0, 0] = np.inf
    row = summarize(tile)[0]
    assert (row["rows"], row["columns"], row["inf"], row["nan"]) == (16, 32, 1, 0)
    assert row["picture"][0, 0] == BAD
    assert (row["picture"][1:8] == 0).all() and (row["picture"][8:] == BAD - 1).all()


@pytest.mark.parametrize(
    "values",
    [
        np.full((4, 3), np.nan, np.float32),
        np.full((1, 1), 7, np.int32),
        np.array([[True, False]]),
        np.full((2, 2), 3e38, np.float64),
        np.zeros((128, 1), np.float16),
    ],
)
def test_any_tile_can_be_looked_at(values):
    row = summarize(values)[0]
    assert row["count"] == values.size and row["histogram"].shape == (BINS,)
    assert row["histogram"].sum() + row["nan"] + row["inf"] == values.size


def test_there_is_an_end_to_it():
    kept = TileValues(instructions=5)
    from nkisim.simulation.launch import launch

    run = launch(
        model_kernels.rounds, (np.ones((128, 64), np.float32),), {}, target="trn2", tile_values=kept
    )
    assert len(kept.rows) == 5 and not kept.complete and len(run.trace) > 5


def test_nothing_is_kept_without_arithmetic_or_when_no_one_asks(tmp_path):
    a = np.ones((128, 64), np.float32)
    for more in ({"compute": False, "tile_values": True}, {}):
        prof = profile(halve_and_root, a, target="trn2", **more)
        assert prof.tile_values is None and "val_min" not in report.report_of(prof).columns


def test_values_survive_being_saved(tmp_path):
    a = np.linspace(-1, 3, 128 * 64, dtype=np.float32).reshape(128, 64)
    prof = profile(halve_and_root, a, target="trn2", tile_values=True)
    report.save_json(prof, tmp_path / "p.json")
    columns = report.load(tmp_path / "p.json").columns
    assert (columns["val_max"] == prof.tile_values.rows["max"]).all()
    assert columns["val_histogram"].reshape(-1, BINS).shape == (4, BINS)


def test_values_follow_their_instructions_through_what_a_compiler_changes():
    """Two loads of one tile become one; what the others wrote stands at their new places."""

    @nki.jit
    def twice(x):
        out = nl.ndarray((2, 128, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        for i in nl.static_range(2):
            nl.store(out[i], nisa.tensor_scalar(nl.load(x), nl.multiply, float(i + 2)))
        return out

    x = np.ones((128, 8), np.float32)
    for compiler in (("reorder",), ("reorder", "hoist")):
        prof = profile(twice, x, target="trn2", tile_values=True, compiler=compiler)
        names = [prof.trace.op_specs[k].row.name for k in prof.trace.spec_ids()]
        rows = prof.tile_values.rows
        assert len(names) == 6 - ("hoist" in compiler)
        assert [r["max"] for r in rows if names[r["instr"]] == "tensor_scalar"] == [2, 3]
        assert len(rows) == len(names) and prof.tile_values.complete
