"""The latency model: what has to hold on any chip, and the lessons that the labs teach."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import model_kernels as kernels
import nkisim
from model_kernels import ones
from nkisim import NkiError
from nkisim.simulation.prediction import ENGINES
from nkisim.trace.geometry import Geometry
from nkisim.trace.trace import Pattern

CASES = {
    "add": (kernels.add(100), (ones(128 * 800), ones(128 * 800))),
    "direct": (kernels.add_in_place_of(2, 100), (ones(128 * 800), ones(128 * 800))),
    "products": (kernels.products, (ones(128, 128), ones(128, 512))),
    "transpose": (kernels.transpose, (ones(512, 256),)),
    "rounds": (kernels.rounds, (ones(128, 64),)),
    "crowd": (kernels.crowd, (ones(128, 128), ones(128, 512))),
}
every_case = pytest.mark.parametrize("case", CASES)
targets = pytest.mark.parametrize("target", ["trn1", "trn2"])


def predict(kernel, *args, **kwargs):
    return nkisim.profile(kernel, *args, compute=False, **{"target": "trn2", **kwargs})


def bytes_of(pattern, offset):
    """Return the set of bytes that an access touches, the slow and obvious way."""
    at = np.array([offset])
    for n, s in zip(pattern.shape, pattern.strides):
        at = (at[:, None] + np.arange(n) * s).ravel()
    return set((at[:, None] + np.arange(pattern.dtype.itemsize)).ravel().tolist())


def access(pattern, flat, offset):
    """Return the view of what an access touches, in an array of one element per byte."""
    return np.ndarray(
        pattern.shape,
        flat.dtype,
        flat,
        offset * flat.itemsize,
        tuple(s * flat.itemsize for s in pattern.strides),
    )


@targets
@every_case
def test_nothing_starts_before_what_it_reads_is_written(case, target):
    kernel, args = CASES[case]
    prof = predict(kernel, *args, target=target)
    tl = prof.timeline
    writer = {s.id: np.full(s.nparts * s.row_bytes, -1) for s in prof.trace.storages}
    for i, (kind, _, _, operands) in enumerate(prof.trace):
        touched = [(s, access(p, writer[s], o)) for p, (s, o) in zip(kind.operands, operands)]
        for _, seen in touched[kind.outputs :]:
            for w in np.unique(seen[seen >= 0]):
                assert tl.end_us[w] <= tl.start_us[i] + 1e-9, (w, i)
        for _, seen in touched[: kind.outputs]:
            seen[...] = i


@targets
@every_case
def test_an_engine_runs_one_instruction_at_a_time(case, target):
    kernel, args = CASES[case]
    prof = predict(kernel, *args, target=target)
    plan, tl = prof.schedule, prof.timeline
    for e in range(4):
        of_engine = np.flatnonzero(tl.engine == e)
        of_engine = of_engine[np.argsort(tl.start_us[of_engine])]
        busy = np.array([plan.works[plan.deps.spec[i]].interval_us for i in of_engine])
        assert (tl.start_us[of_engine][1:] >= (tl.start_us[of_engine] + busy)[:-1] - 1e-9).all()
    segments = tl.dma_segments
    for e in range(16):
        of_engine = np.sort(segments[segments["engine"] == e], order="start_us")
        assert (of_engine["start_us"][1:] >= of_engine["end_us"][:-1] - 1e-9).all()


def test_a_sum_is_drained_after_all_its_parts():
    """The first product waits for a long load and the compiler takes the others first."""

    @nki.jit
    def late_first(a, b, c):
        out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        s, early, late = nl.load(a), nl.load(b), nl.load(c)
        acc = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
        acc += nisa.nc_matmul(s, late[:, 0:512])
        for _ in nl.affine_range(3):
            acc += nisa.nc_matmul(s, early)
        nl.store(out, nl.copy(acc))
        return out

    prof = predict(late_first, ones(128, 128), ones(128, 512), ones(128, 8192))
    tl = prof.timeline
    products = [i for i, (kind, *_) in enumerate(prof.trace) if kind.row.name == "nc_matmul"]
    (drain,) = (i for i, (kind, *_) in enumerate(prof.trace) if kind.row.name == "tensor_copy")
    assert tl.start_us[products[0]] > tl.end_us[products[1]]
    assert tl.start_us[drain] >= max(tl.end_us[products])


@every_case
def test_times_do_not_change_from_run_to_run_nor_with_the_arithmetic(case):
    kernel, args = CASES[case]
    first, second = predict(kernel, *args), predict(kernel, *args)
    assert first.latency_us == second.latency_us
    assert (first.timeline.start_us == second.timeline.start_us).all()
    assert nkisim.profile(kernel, *args, target="trn2").latency_us == first.latency_us


@every_case
def test_what_is_said_about_memory_is_consistent(case):
    kernel, args = CASES[case]
    prof = predict(kernel, *args)
    life = prof.memory.lifetimes
    assert (life["last_us"] >= life["first_us"]).all()
    assert prof.memory.sbuf_bytes[-1] == 0 and prof.memory.psum_banks[-1] == 0
    assert 0 < prof.sbuf_peak_bytes <= prof.hw.sbuf_usable_bytes
    assert sum(p.amount for p in prof.sbuf_peak_lines) == prof.sbuf_peak_bytes
    assert prof.psum_peak_banks <= 8


dims = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 24)), min_size=1, max_size=3)


@settings(max_examples=300, deadline=None)
@given(dims, dims, st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4]), st.integers(-60, 60))
def test_overlap_of_access_patterns_is_exact(a, b, wide_a, wide_b, distance):
    pa, pb = (
        Pattern("sbuf", np.dtype(f"u{w}"), tuple(n for n, _ in d), tuple(s for _, s in d))
        for d, w in ((a, wide_a), (b, wide_b))
    )
    geometry = Geometry()
    got = geometry.overlap(geometry.id(pa), geometry.id(pb), distance)
    assert got == bool(bytes_of(pa, 0) & bytes_of(pb, distance))


# -- lessons ---------------------------------------------------------------------------------------


@targets
def test_two_tiles_are_faster_than_one_because_loads_overlap(target):
    x = ones(256_000)
    one = predict(kernels.add(2000), x, x, target=target, descriptors="static")
    two = predict(kernels.add(1000), x, x, target=target, descriptors="static")
    assert (one.dma_transfer_count, two.dma_transfer_count) == (3, 6)
    assert two.latency_us < one.latency_us
    tl = two.timeline  # the second pair of loads is under way during the first add
    dma, sync = ENGINES.index("dma"), ENGINES.index("sync")
    loads = np.flatnonzero((tl.engine == dma) & (tl.queue == sync))
    adds = np.flatnonzero(tl.engine == ENGINES.index("vector"))
    assert tl.start_us[loads[-1]] < tl.end_us[adds[0]]


def test_one_row_at_a_time_is_about_100_times_slower_than_128():
    x = ones(5120)
    by_row, by_tile = (
        predict(kernels.add(1, parts), x.reshape(-1), x, descriptors="dge") for parts in (1, 128)
    )
    assert 50 < by_row.body_us / by_tile.body_us < 200


@targets
def test_direct_allocation_with_buffers_is_as_fast_as_the_allocator(target):
    x = ones(256_000 * 2)
    stream = predict(kernels.add(1000), x, x, target=target, descriptors="static")
    direct = predict(kernels.add_in_place_of(4), x, x, target=target, descriptors="static")
    assert direct.latency_us == pytest.approx(stream.latency_us, rel=0.1)


@targets
def test_more_buffers_overlap_more(target):
    x = ones(128_000 * 8)
    one, two, four = (
        predict(kernels.add_in_place_of(n), x, x, target=target).body_us for n in (1, 2, 4)
    )
    assert one > 1.3 * two and two >= four


@targets
def test_half_precision_multiplies_about_four_times_as_fast(target):
    wide = predict(kernels.products, ones(128, 128), ones(128, 512), target=target)
    half = predict(
        kernels.products,
        ones(128, 128, dtype=np.float16),
        ones(128, 512, dtype=np.float16),
        target=target,
    )
    busy = [p.schedule.busy["tensor"] for p in (wide, half)]
    assert 3 < busy[0] / busy[1] < 5
    assert wide.flops == half.flops == 16 * 8 * 2 * 128 * 128 * 512


def test_the_clock_of_trn2_has_to_warm_up():
    prof = predict(kernels.products, ones(128, 128), ones(128, 512))
    tl = prof.timeline
    starts = np.sort(tl.start_us[tl.engine == 0])
    gaps = np.diff(starts)
    assert gaps[0] == pytest.approx(2 * np.median(gaps), rel=0.05)


def test_static_descriptors_are_cheaper_than_generated_ones():
    x = ones(25_600)
    static, dge = (predict(kernels.add(2), x, x, descriptors=d) for d in ("static", "dge"))
    assert static.latency_us < dge.latency_us
    assert predict(kernels.add(2), x, x).descriptors == "dge"
    assert predict(kernels.add(2), x, x, target="trn1").descriptors == "static"


@pytest.mark.parametrize("cut", [1, 2])
def test_slices_of_one_tile_that_interleave_do_not_wait_for_each_other(cut):
    """Columns 0, 2, 4 ... and 1, 3, 5 ... (or halves) of a tile are written at the same time."""

    @nki.jit
    def halves(a, b):
        out = nl.ndarray((128, 1024), dtype=a.dtype, buffer=nl.shared_hbm)
        t = nl.ndarray((128, 1024), dtype=a.dtype, buffer=nl.sbuf)
        for x, at in ((a, 0), (b, 1)):
            where = slice(at, 1024, 2) if cut == 1 else slice(512 * at, 512 * (at + 1))
            t[:, where] = nl.load(x)
        nl.store(out, t)
        return out

    prof = predict(halves, ones(128, 512), ones(128, 512))
    deps = prof.schedule.deps
    pairs = set(zip(deps.before.tolist(), deps.after.tolist()))
    assert pairs == {(0, 2), (1, 2)}


def test_a_row_that_meets_a_tile_is_read_out_of_psum():
    @nki.jit
    def scale(a, row):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.multiply(nl.load(a), nl.load(row)))
        return out

    a, row = ones(128, 512) * 3, ones(1, 512) * 5
    got = nkisim.run(scale, a, row, target="trn1")
    assert (got.outputs == 15).all()
    assert got.instructions["tensor_copy"] == 0 and got.instructions["partition_broadcast"] == 1


def test_a_transpose_of_several_blocks_on_the_vector_engine_is_told():
    @nki.jit
    def flip(a):
        out = nl.ndarray((64, 128), dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.copy(nisa.nc_transpose(nl.load(a), engine=nisa.vector_engine)))
        return out

    a = np.arange(128 * 64, dtype=np.float32).reshape(128, 64)
    got = nkisim.run(flip, a, target="trn1")
    assert (got.outputs == a.T).all() and "NKI-P08" in {f.id for f in got.findings}


# -- the door --------------------------------------------------------------------------------------


def test_a_profile_says_what_design_promises():
    x = ones(256_000)
    prof = predict(kernels.add(1000), x, x)
    assert prof.outputs is None
    assert prof.latency_us == prof.body_us + prof.hw.timing.launch_us
    assert prof.profile_total_us == prof.body_us + prof.hw.timing.profile_us
    assert set(prof.engine_busy) == set(ENGINES)
    assert all(0 <= v <= 1 for v in prof.engine_busy.values())
    assert (prof.hbm_read_bytes, prof.hbm_write_bytes) == (2 * 4 * 256_000, 4 * 256_000)
    facts = prof.to_dict()
    assert facts["predicted"] is True and facts["bound"] == prof.bound
    assert prof.timeline.dma_segments["bytes"].sum() == 3 * 4 * 256_000


def test_generated_descriptors_do_not_exist_on_trn1():
    with pytest.raises(NkiError, match="NKI-K09"):
        predict(kernels.add(2), ones(256), ones(256), target="trn1", descriptors="dge")
    with pytest.raises(NkiError, match="NKI-K09"):
        predict(kernels.add(2), ones(256), ones(256), descriptors="quick")


def test_a_benchmark_is_the_prediction_and_says_so(tmp_path, capsys):
    x = ones(25_600)
    bench = nki.benchmark(
        kernels.add(200),
        save_neff_name="a.neff",
        working_directory=str(tmp_path),
        additional_compile_opt="--disable-dge",
    )
    bench(x, x)
    latency = bench.benchmark_result.nc_latency
    assert latency.get_latency_percentile(50) == latency.get_latency_percentile(99)
    expect = predict(kernels.add(200), x, x, target="trn1").latency_us
    assert latency.get_latency_percentile(99) == expect
    said = capsys.readouterr().out
    assert "predicted by nkisim for trn1" in said and "NCL(99)" in said
    assert "not a NEFF" in (tmp_path / "a.neff").read_text()


def test_every_row_of_the_table_says_what_it_costs():
    from nkisim.isa.table import ROWS

    assert [name for name, row in ROWS.items() if row.cost is None] == []
