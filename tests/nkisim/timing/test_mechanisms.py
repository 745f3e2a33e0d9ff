"""Mechanisms of the latency model, each on a kernel that shows it alone."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import nki as new
import nki.isa as isa
import nki.language as nkl
import numpy as np
import pytest

import nkisim
from model_kernels import ones
from nkisim.chip import hw
from nkisim.dialect import NKI
from nkisim.simulation.launch import launch
from nkisim.timing import compiler
from nkisim.timing.vectorize import vectorize


def predict(kernel, *args, **kwargs):
    return nkisim.profile(kernel, *args, compute=False, **{"target": "trn2", **kwargs})


def kinds(prof, name):
    return [k for k, *_ in prof.trace if k.row.name == name]


def interval(prof, name):
    """Return how long one instruction of a name keeps its engine, in microseconds."""
    (us,) = {
        round(w.interval_us, 6)
        for k, w in zip(prof.trace.op_specs, prof.schedule.works)
        if k.row.name == name and w is not None
    }
    return us


# -- loops that become one instruction -------------------------------------------------------------


@nki.jit
def maxima(a):
    """Four groups of columns: their maxima, one by one."""
    out = nl.ndarray((128, 4), dtype=a.dtype, buffer=nl.shared_hbm)
    x, most = nl.load(a), nl.ndarray((128, 4), dtype=a.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        most[:, i : i + 1] = nisa.tensor_reduce(nl.max, x[:, 64 * i : 64 * (i + 1)], axis=1)
    nl.store(out, most)
    return out


@nki.jit
def phases(a):
    """Each group doubled into a tile of its own, which one more instruction of the group uses."""
    out = nl.ndarray((128, 256), dtype=a.dtype, buffer=nl.shared_hbm)
    x, y = nl.load(a), nl.ndarray((128, 256), dtype=a.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        at = slice(64 * i, 64 * (i + 1))
        twice = nisa.tensor_tensor(x[:, at], x[:, at], nl.add)
        y[:, at] = nisa.tensor_tensor(twice, x[:, at], nl.multiply)
    nl.store(out, y)
    return out


@nki.jit
def running(a):
    """Each iteration uses what the one before has written."""
    out = nl.ndarray((128, 256), dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.load(a)
    for i in nl.sequential_range(3):
        x[:, 64 * i + 64 : 64 * i + 128] = nisa.tensor_tensor(
            x[:, 64 * i : 64 * i + 64], x[:, 64 * i + 64 : 64 * i + 128], nl.add
        )
    nl.store(out, x)
    return out


@pytest.mark.parametrize(
    "kernel, name, count",
    [(maxima, "tensor_reduce", 1), (phases, "tensor_tensor", 2), (running, "tensor_tensor", 3)],
)
def test_a_loop_of_instructions_that_differ_by_an_offset_is_one(kernel, name, count):
    prof = predict(kernel, ones(128, 256))
    loose = predict(kernel, ones(128, 256), compiler=compiler.DEFAULT)
    assert len(kinds(prof, name)) == count
    assert len(kinds(loose, name)) == (3 if kernel is running else count * 4)
    if kernel is not running:
        assert sum(k.operands[0].elements for k in kinds(prof, name)) == sum(
            k.operands[0].elements for k in kinds(loose, name)
        )


def test_the_instruction_for_all_iterations_touches_the_bytes_of_each():
    trace = launch(phases, (ones(128, 256),), {}, target="trn2", compute=False).trace
    one = vectorize(trace, hw.TRN2)

    def touched(t, outputs):
        """Return every byte of the storages that stay which instructions of DVE read or write."""
        out = set()
        for kind, _, _, operands in t:
            if kind.row.name != "tensor_tensor":
                continue
            for j, (p, (s, at)) in enumerate(zip(kind.operands, operands)):
                if (j < kind.outputs) == outputs and s in kept:
                    grid = np.array([at])
                    for n, step in zip(p.shape, p.strides):
                        grid = (grid[:, None] + np.arange(n) * step).ravel()
                    out |= {(s, int(b)) for b in grid}
        return out

    kept = set(one.operands().storage.tolist()) & set(trace.operands().storage.tolist())
    assert touched(one, True) == touched(trace, True)
    assert touched(one, False) == touched(trace, False)


@nki.jit
def shifted(a, by, inside):
    """64 sums of a column and another one, each `by` columns further; or of two columns."""
    out = nl.ndarray((128, 192), dtype=a.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 192), dtype=a.dtype, buffer=nl.sbuf)
    t[...] = nl.load(a)
    for i in inside(64):
        t[:, nl.ds(i + by, 1)] = nl.add(t[:, nl.ds(i, 1)], 1.0)
    nl.store(out, t)
    return out


@pytest.mark.parametrize("by", [1, 2, 31, 63, 64, 128])
def test_iterations_that_write_what_others_read_stay_apart(by):
    """What moves alike may meet all the same, from one iteration to another."""
    a = np.ones((128, 192), np.float32)
    one, apart = (
        predict(shifted, a, by=by, inside=inside)
        for inside in (nl.affine_range, nl.sequential_range)
    )
    assert (len(kinds(one, "tensor_scalar")) == 1) == (by >= 64)
    if by < 64:
        assert one.latency_us >= apart.latency_us - 1e-6
    else:
        assert one.latency_us < apart.latency_us


def test_a_loop_whose_results_are_long_stays_a_loop():
    """512 elements a partition are written at once at most."""

    @nki.jit
    def wide(a):
        out = nl.ndarray((128, 2048), dtype=a.dtype, buffer=nl.shared_hbm)
        x, y = nl.load(a), nl.ndarray((128, 2048), dtype=a.dtype, buffer=nl.sbuf)
        for i in nl.affine_range(4):
            at = slice(512 * i, 512 * (i + 1))
            y[:, at] = nisa.tensor_tensor(x[:, at], x[:, at], nl.add)
        nl.store(out, y)
        return out

    assert len(kinds(predict(wide, ones(128, 2048)), "tensor_tensor")) == 4


# -- engines ---------------------------------------------------------------------------------------


@nki.jit
def tiny(a):
    out = nl.ndarray((128, 1), dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.load(a)
    for _ in range(8):
        x = nisa.tensor_tensor(x, x, nl.add)
    nl.store(out, x)
    return out


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_the_shortest_instruction_has_its_gap_in_it(target):
    core = hw.get(target)
    assert interval(predict(tiny, ones(128, 1), target=target), "tensor_tensor") == pytest.approx(
        64 / core.dve_ghz / 1e3, abs=1e-6
    )


def test_functions_of_the_scalar_engine_repeat_later_than_copies_on_trn2():
    @nki.jit
    def functions(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, nisa.activation(nl.exp, nl.load(a)))
        return out

    x = ones(128, 512)
    gap = {
        t: interval(predict(functions, x, target=t), "activation") - 512 / hw.get(t).act_ghz / 1e3
        for t in ("trn1", "trn2")
    }
    assert 0.14 <= gap["trn2"] <= 0.18 and gap["trn1"] < 0.05


def test_arithmetic_with_a_scalar_goes_to_the_engine_with_less_to_do():
    @nki.jit
    def scaled(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        x = nl.load(a)
        busy = nisa.reciprocal(x)  # keeps the Vector Engine
        nl.store(out, nisa.tensor_tensor(busy, nl.multiply(x, 3.0), nl.add))
        return out

    @nki.jit
    def asked(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        x = nl.load(a)
        y = nisa.tensor_scalar(x, nl.multiply, 3.0, engine=nisa.vector_engine)
        nl.store(out, nisa.tensor_tensor(nisa.reciprocal(x), y, nl.add))
        return out

    x = ones(128, 512)
    assert [k.engine for k in kinds(predict(scaled, x), "tensor_scalar")] == ["scalar"]
    assert [k.engine for k in kinds(predict(asked, x), "tensor_scalar")] == ["vector"]


def test_float32_pays_for_the_stationary_load_on_trn1_alone():
    @nki.jit
    def product(a, b):
        out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        acc = nisa.nc_matmul(nl.load(a), nl.load(b))
        nl.store(out, nisa.tensor_copy(acc))
        return out

    def cycles(target, dtype):
        prof = predict(
            product, ones(128, 128, dtype=dtype), ones(128, 512, dtype=dtype), target=target
        )
        return interval(prof, "nc_matmul") * hw.get(target).pe_ghz * 1e3

    exposed = hw.TRN1.timing.pe_exposed_load_cycles
    assert cycles("trn1", np.float32) - cycles("trn2", np.float32) == pytest.approx(
        2 * exposed, abs=0.1
    )
    assert cycles("trn1", np.float16) == pytest.approx(cycles("trn2", np.float16), abs=0.1)


# -- DMA -------------------------------------------------------------------------------------------


@nki.jit
def many_loads(a):
    out = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(64):
        x[:, i : i + 1] = nl.load(a[:, i : i + 1])
    nl.store(out, x)
    return out


def test_descriptors_are_made_by_units_side_by_side_where_dmas_are_spread():
    x = ones(128, 64)
    one, two = (
        predict(many_loads, x, compiler=(*compiler.DEFAULT, *more), descriptors="dge")
        for more in ((), ("spread-dma",))
    )
    t = hw.TRN2.timing
    each = t.dge_issue_us + 128 * t.dge_row_us
    assert one.body_us - two.body_us == pytest.approx(32 * each, rel=0.05)
    static = [
        predict(many_loads, x, compiler=(*compiler.DEFAULT, *more), descriptors="static")
        for more in ((), ("spread-dma",))
    ]
    assert static[0].body_us == static[1].body_us


def test_loads_and_stores_share_the_unit_that_makes_descriptors():
    @nki.jit
    def both(a):
        out = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(64):
            nl.store(out[:, i : i + 1], nl.load(a[:, i : i + 1]))
        return out

    t = hw.TRN2.timing
    prof = predict(both, ones(128, 64), compiler=compiler.DEFAULT, descriptors="dge")
    assert prof.body_us >= 128 * (t.dge_issue_us + 128 * t.dge_row_us)


@pytest.mark.parametrize("dtype, transposes", [(np.float32, 3), (np.float16, 0)])
def test_wide_data_is_transposed_on_the_tensor_engine(dtype, transposes):
    @nki.jit
    def turned(a):
        out = nl.ndarray((a.shape[1], a.shape[0]), dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load_transpose2d(a))
        return out

    x = ones(320, 64, dtype=dtype)
    prof = predict(turned, x)
    assert prof.instructions["nc_transpose"] == prof.instructions["tensor_copy"] == transposes
    assert prof.instructions["load_transpose2d"] == (0 if transposes else 1)
    assert prof.hbm_read_bytes == x.nbytes and prof.dma_transfer_count == 1 + max(1, transposes)


def test_the_tiles_of_such_transposes_have_their_shape():
    """Rows and bytes of a row were swapped: a tile of 64 rows of 512 bytes took 512 rows of 64."""

    @nki.jit
    def turned(a):
        out = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load_transpose2d(a))
        return out

    prof = predict(turned, ones(64, 128))
    storages = [prof.trace.storages[s] for s in range(len(prof.trace.storages))]
    assert {(s.memory, s.nparts, s.row_bytes) for s in storages if s.memory != "hbm"} == {
        ("sbuf", 64, 512),
        ("psum", 128, 256),
        ("sbuf", 128, 256),
    }


def transposed_by_dma(shape, source="hbm"):
    """Return a kernel of the package nki that transposes its input, seen with a shape, by a DMA."""

    @new.jit
    def turned(x):
        x = x.reshape(shape)
        to = (shape[-1], *shape[1:-1], shape[0])
        out = nkl.ndarray(to, dtype=x.dtype, buffer=nkl.shared_hbm)
        t = nkl.ndarray(to, dtype=x.dtype)
        isa.dma_transpose(dst=t, src=nkl.load(x) if source == "sbuf" else x)
        isa.dma_copy(dst=out, src=t)
        return out

    return turned


def transposed_by_hand(shape):
    """Return a kernel of the package nki that does the same on the Tensor Engine."""

    @new.jit
    def turned(x):
        out = nkl.ndarray((shape[-1], shape[0]), dtype=x.dtype, buffer=nkl.shared_hbm)
        t = nkl.ndarray((shape[-1], shape[0]), dtype=x.dtype)
        for r in range(0, shape[0], 128):
            bank = nkl.ndarray((shape[-1], 128), dtype=x.dtype, buffer=nkl.psum)
            isa.nc_transpose(dst=bank, data=nkl.load(x[r : r + 128]))
            isa.tensor_copy(dst=t[:, r : r + 128], src=bank)
        isa.dma_copy(dst=out, src=t)
        return out

    return turned


@pytest.mark.parametrize("target", ["trn2", "trn3"])
@pytest.mark.parametrize("rows", [128, 512, 2048])
def test_a_dma_that_transposes_wide_data_is_no_cheaper_than_the_tensor_engine(rows, target):
    """Of 2 bytes an element it is; of 4 bytes it was, and moved twice as many bytes a second."""
    shape = (rows, 128)
    for dtype, cheaper in ((np.float32, False), (np.int32, False), (np.float16, True)):
        x = ones(*shape, dtype=dtype)
        by_dma, by_hand = (
            predict(f(shape), x, target=target).latency_us
            for f in (transposed_by_dma, transposed_by_hand)
        )
        assert by_dma < by_hand if cheaper else by_dma > 0.98 * by_hand


@pytest.mark.parametrize("shape", [(256, 1, 128), (256, 3, 64), (128, 2, 1, 64), (64, 2, 3, 64)])
def test_dims_between_rows_and_columns_make_it_no_cheaper(shape):
    """Each of their elements is a matrix of its own, which the Tensor Engine transposes."""
    x = ones(int(np.prod(shape)))
    prof = predict(transposed_by_dma(shape), x)
    matrices = int(np.prod(shape[1:-1])) * -(-shape[0] // 128)
    assert prof.instructions["nc_transpose"] == prof.instructions["tensor_copy"] == matrices
    assert "dma_transpose" not in prof.instructions or not prof.instructions["dma_transpose"]
    assert prof.hbm_read_bytes == x.nbytes
    flat = predict(transposed_by_dma((shape[0] * matrices // -(-shape[0] // 128), shape[-1])), x)
    assert prof.latency_us > 0.95 * flat.latency_us


@pytest.mark.parametrize("how", [{"source": "sbuf"}, {"compiler": ()}], ids=["sbuf", "as_written"])
def test_what_stays_with_the_dma_moves_bytes_as_fast_as_of_2(how):
    """Twice as long an element, then; a cast counts for the smaller side, as was measured."""
    how, source = dict(how), how.get("source", "hbm")
    how.pop("source", None)

    def moved(dtype):
        prof = predict(
            transposed_by_dma((512, 128) if source == "hbm" else (128, 128), source),
            ones(512 if source == "hbm" else 128, 128, dtype=dtype),
            **how,
        )
        plan = prof.schedule
        (us,) = (
            x.us
            for k, x in zip(plan.trace.op_specs, plan.transfers)
            if k.row.name == "dma_transpose"
        )
        return us

    assert moved(np.float32) == pytest.approx(2 * moved(np.float16))


# -- what the compiler does to which kernels -------------------------------------------------------


def test_the_middle_end_leaves_alone_what_asks_for_it_and_the_package_nki():
    assert set(predict(maxima, ones(128, 256)).compiler) == {
        *compiler.DEFAULT,
        *compiler.MIDDLE_END,
    }
    assert not compiler.has_middle_end(NKI, False)
    assert "hoist" not in predict(maxima, ones(128, 256), target="trn1").compiler
    written = ncc.skip_middle_end_transformations(nki.jit(phases.func))  # it marks what it is given
    assert set(predict(written, ones(128, 256)).compiler) == set(compiler.DEFAULT)


# -- how far to trust it ---------------------------------------------------------------------------


def test_a_prediction_says_what_kernels_like_it_were_off_by():
    prof = predict(many_loads, ones(128, 64))
    assert prof.trust.pct and prof.trust.like >= 5
    assert prof.model_error == prof.trust.text and "like" in prof.model_error
    assert prof.to_dict()["model_error_like"]["pct"] == prof.trust.pct


@pytest.mark.parametrize(
    "rows, why", [(1, "one-row DMAs on trn1"), (128, "DMAs of 4 bytes a partition on trn1")]
)
def test_it_says_where_it_does_not_know(rows, why):
    @nki.jit
    def chunks(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(a.shape[0] // rows):
            at = slice(i * rows, (i + 1) * rows)
            nl.store(out[at], nl.load(a[at]))
        return out

    x = ones(128 * 64)
    assert predict(chunks, x, target="trn1").model_error == f"unknown: {why}"
    assert "unknown" not in predict(chunks, x).model_error


def test_counters_have_the_names_and_sums_of_a_profiler():
    prof = predict(many_loads, ones(128, 64), descriptors="static")
    counters = prof.counters
    assert counters["dma_transfers"] == 65 and counters["dma_packets"] > 65
    assert (
        counters["dma_bytes"]
        == counters["hbm_read_bytes"] + counters["hbm_write_bytes"]
        == 2 * 128 * 64 * 4
    )
    assert counters["spill_bytes"] == 0 and counters["pe_full_clock"] == 1.0


# -- PSUM ------------------------------------------------------------------------------------------


def test_a_tile_of_all_banks_is_held_until_its_last_reader_is_done():
    """Whichever of its matmuls comes first: none begins while another tile has the banks."""

    @nki.jit
    def held(a, b):
        out = nl.ndarray((3, 128, 4096), dtype=nl.float32, buffer=nl.shared_hbm)
        x, y = nl.load(a), nl.load(b)
        for i in nl.affine_range(3):
            acc = nl.ndarray((128, 4096), dtype=nl.float32, buffer=nl.psum)
            for j in nl.affine_range(8):
                acc[:, j * 512 : (j + 1) * 512] = nisa.nc_matmul(x, y)
            nl.store(out[i], nisa.activation(nl.exp, acc))
        return out

    prof = predict(held, ones(128, 128), ones(128, 512), compiler=compiler.DEFAULT)
    plan = prof.schedule
    names = np.array([k.row.name for k, *_ in prof.trace])
    reads, products = (np.flatnonzero(names == n) for n in ("activation", "nc_matmul"))
    assert len(products) == 24
    for n, read in enumerate(reads[:2]):
        assert plan.start[products[8 * n + 8 :]].min() >= plan.end[read]
