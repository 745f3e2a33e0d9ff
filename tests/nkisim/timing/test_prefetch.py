"""When loads are triggered, and the clock of a Tensor Engine that works with few rows."""

from __future__ import annotations

from dataclasses import replace

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import nki as nki_new
import nki.isa as nisa_new
import nki.language as nl_new
import numpy as np
import pytest

import nkisim
from model_kernels import ones
from nkisim.chip import hw
from nkisim.dialect import BETA1, NKI
from nkisim.timing import compiler
from nkisim.timing.reasons import LEAD, reasons
from nkisim.timing.schedule import schedule

EARLY = tuple(name for name in compiler.DEFAULT if name != "late-loads")


def predict(kernel, *args, **kwargs):
    return nkisim.profile(
        kernel, *args, compute=False, **{"target": "trn2", "descriptors": "static", **kwargs}
    )


def products(count, at_once):
    """Products with `count` tiles of weights, which come in loads of `at_once` of them."""

    @nki.jit
    def kernel(weights, x):
        out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        moving = nl.load(x)
        for i in nl.sequential_range(count // at_once):
            tile = nl.load(weights[:, i * 128 * at_once : (i + 1) * 128 * at_once])
            for j in nl.sequential_range(at_once):
                acc = nisa.nc_matmul(tile[:, j * 128 : (j + 1) * 128], moving)
                if i == count // at_once - 1 and j == at_once - 1:
                    nl.store(out, nisa.tensor_copy(acc))
        return out

    return kernel


def test_small_loads_arrive_late_and_large_ones_in_time():
    x, weights = ones(128, 512), ones(128, 128 * 64)
    times = {
        (n, on): predict(products(64, n), weights, x, compiler=on)
        for n in (1, 8)
        for on in (EARLY, compiler.DEFAULT)
    }
    body = {key: prof.body_us for key, prof in times.items()}
    assert body[1, compiler.DEFAULT] > 1.1 * body[1, EARLY]
    assert body[8, compiler.DEFAULT] < 1.1 * body[8, EARLY]
    late = times[1, compiler.DEFAULT]
    why = reasons(late.schedule)["why"]
    assert (why[late.schedule.deps.leads[1]] == LEAD).sum() > 30
    assert not (reasons(times[1, EARLY].schedule)["why"] == LEAD).any()


def test_a_load_is_as_far_ahead_as_it_is_taken_to_need():
    """Where the engine never waits, it is triggered when the engine has come so near."""
    t = hw.TRN2.timing
    prof = predict(products(64, 8), ones(128, 128 * 64), ones(128, 512))
    plan = prof.schedule
    for before, load in zip(*plan.deps.leads):
        assert plan.issue[load] >= plan.end[before]
    needs = t.compiler_load_us + 8 * 65536 / t.compiler_load_gbps / 1e3
    matmul = next(
        w.interval_us for k, w in zip(prof.trace.op_specs, plan.works) if k.row.name == "nc_matmul"
    )
    kinds = [k.row.name for k, *_ in prof.trace]
    for before, load in zip(*plan.deps.leads):
        user = int(plan.deps.after[plan.deps.before == load].min())
        between = kinds[before:user].count("nc_matmul")
        assert (
            (1 - t.compiler_load_spread) * needs
            <= between * matmul
            <= (1 + t.compiler_load_spread) * needs + 2 * matmul
        )


def test_strictly_as_written_loads_wait_for_memory_alone():
    prof = predict(products(64, 1), ones(128, 128 * 64), ones(128, 512), compiler=())
    assert not len(prof.schedule.deps.leads[0])


def chain(sums):
    """Return a kernel that adds each tile to itself so many times."""

    @nki.jit
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(32):
            x = nl.load(a[i])
            for _ in range(sums):
                x = nisa.tensor_tensor(x, x, nl.add)
            nl.store(out[i], x)
        return out

    return kernel


@pytest.mark.parametrize("sums, delayed", [(1, False), (24, True)])
def test_nothing_is_delayed_where_the_engines_wait_for_dmas_anyway(sums, delayed):
    """Profiles of elementwise kernels show DMAs 99 % busy; with delays it would be 78 %."""
    plan = predict(chain(sums), ones(32, 128, 512)).schedule
    assert bool(len(plan.deps.leads[0])) == delayed
    if not delayed:
        assert plan.busy["dma"] > 0.8 * plan.end.max()


def slow_sums(columns):
    """Return a kernel whose loads are used by instructions that take longer than loads."""

    @nki.jit
    def kernel(a):
        out = nl.ndarray((32, 1, columns), dtype=a.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(32):
            nl.store(out[i], nisa.tensor_partition_reduce(nl.add, nl.load(a[i])))
        return out

    return kernel


@pytest.mark.parametrize("columns", [192, 256, 384])
def test_loads_come_in_time_for_instructions_that_are_longer_than_they(columns):
    """A load waited for the end of the instruction in which it was due, and the engine for it."""
    prof = predict(slow_sums(columns), ones(32, 128, columns))
    assert prof.schedule.busy["gpsimd"] > 0.9 * (prof.body_us - 8)  # first load, last store


def test_a_little_more_work_takes_a_little_longer():
    """Also where an elementwise kernel goes from waiting for DMAs to waiting for an engine: there
    128 columns more of some 6000 once took 80 % longer."""

    def stream(columns):
        @nki.jit
        def kernel(a):
            out = nl.ndarray((32, 128, 1024), dtype=a.dtype, buffer=nl.shared_hbm)
            for i in nl.affine_range(32):
                x, square, first, last = (nl.load(a[j, i]) for j in range(4))
                y = nisa.tensor_tensor(first, nisa.activation(nl.square, square), nl.add)
                for _ in range(2):
                    y = nisa.tensor_tensor(y, square, nl.add)
                if columns:
                    y[:, :columns] = nisa.tensor_tensor(y[:, :columns], y[:, :columns], nl.add)
                nl.store(out[i], nisa.tensor_tensor(x, nisa.tensor_tensor(y, last, nl.add), nl.add))
            return out

        return predict(kernel, ones(4, 32, 128, 1024)).body_us

    times = [stream(columns) for columns in range(0, 1025, 128)]
    steps = [b / a for a, b in zip(times, times[1:])]
    assert min(steps) > 0.98 and max(steps) < 1.3


def test_an_instruction_more_takes_no_longer_than_it_lasts():
    """Two iterations at a time once waited for their loads together: with six additions of a tile
    a kernel was 40 % slower than with five, and slower than with seven."""
    times = [predict(chain(sums), ones(32, 128, 1024)).body_us for sums in range(4, 9)]
    assert all(1 < b / a < 1.3 for a, b in zip(times, times[1:]))


def test_no_kernel_is_much_faster_on_an_engine_that_is_a_little_faster():
    """Loads wait for whole matmuls. With one estimate for all loads, each waited for the third
    matmul before its use, or on an engine 1 % faster for the fourth: a quarter less time."""
    prof = predict(products(64, 1), ones(128, 128 * 64), ones(128, 512))

    def body(faster):
        core = replace(hw.TRN2, pe_ghz=hw.TRN2.pe_ghz * faster)
        plan = schedule(prof.trace, core, on=frozenset(compiler.DEFAULT))
        return float(plan.end.max())

    times = [body(1 + percent / 100) for percent in range(-12, 13)]
    assert max(a / b for a, b in zip(times, times[1:])) < 1.05


def test_loads_are_triggered_in_the_order_of_their_use():
    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.shared_hbm)
        last, first = nl.load(a), nl.load(b)
        x = nisa.tensor_tensor(first, first, nl.add)
        nl.store(out, nisa.tensor_tensor(x, last, nl.add))
        return out

    args = ones(128, 64), ones(128, 64)
    for more, swapped in (((), False), (("use-order",), True)):
        prof = predict(kernel, *args, compiler=(*compiler.DEFAULT, *more))
        a, b = [i for i, (k, *_) in enumerate(prof.trace) if k.row.name == "load"]
        assert (prof.schedule.issue[a] > prof.schedule.issue[b]) == swapped


# steps that add up, load into tiles that no one reads, and what makes tile 0 be used earlier
@pytest.mark.parametrize(
    "steps, more",
    [
        (("add 1 1", "add 1 1", "part 2"), "add 0 0"),
        (("part 2", "add 0 0"), "add 0 1"),
        (("add 2 1", "load 1", "part 2", "load 2"), "add 0 0"),
    ],
)
def test_a_load_that_no_one_uses_comes_after_those_that_are_used(steps, more):
    """It kept its place in the program: there it waited for memory, and what is used for it. With
    one instruction more, whose operands so came first, kernels were 14 to 18 % faster."""

    @nki_new.jit
    def kernel(x, program):
        out = nl_new.ndarray((128, 512), dtype=x.dtype, buffer=nl_new.shared_hbm)
        tiles = [nl_new.ndarray((128, 512), dtype=x.dtype) for _ in range(3)]
        for tile in tiles:
            nisa_new.dma_copy(dst=tile, src=x)
        for step in program:
            what, i, *j = step.split()
            tile = tiles[int(i)]
            if what == "add":
                of = tiles[int(j[0])]
                nisa_new.tensor_scalar(dst=tile, data=of, op0=nl_new.add, operand0=1.0)
            else:
                columns = 64 if what == "part" else 512
                nisa_new.dma_copy(dst=tile[:, 0:columns], src=x[:, 0:columns])
        nisa_new.dma_copy(dst=out, src=tiles[0])
        return out

    on = (*compiler.DEFAULT, "use-order")
    less, most = (
        predict(kernel, ones(128, 512), program, compiler=on).latency_us
        for program in (steps, (more, *steps))
    )
    assert most > 0.97 * less


def test_the_order_of_use_is_that_of_the_package_nki():
    assert "use-order" in compiler.options(None, dialect=NKI)
    assert "use-order" not in compiler.options(None, True, dialect=BETA1)
    assert "late-loads" in compiler.options(None) and "late-loads" not in compiler.options(())


@pytest.mark.parametrize("rows, warm", [(128, True), (64, False)])
def test_the_clock_counts_the_rows_that_work(rows, warm):
    """Half of the rows are no reason to raise the clock; once it is full it stays."""

    @nki.jit
    def stream(a, b, first):
        out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        x, y, z = nl.load(a), nl.load(b), nl.load(first)
        for _ in range(40):  # all rows, or half of them as well
            nisa.nc_matmul(z, y[: first.shape[0]])
        for _ in range(100):
            acc = nisa.nc_matmul(x, y[:64])
        nl.store(out, nisa.tensor_copy(acc))
        return out

    half = np.float16
    prof = predict(
        stream, ones(64, 128, dtype=half), ones(128, 512, dtype=half), ones(rows, 128, dtype=half)
    )
    assert prof.counters["pe_full_clock"] == pytest.approx(1.0 if warm else 0.0, abs=0.25)


def test_an_early_activation_hides_the_table_that_it_loads_and_no_more():
    """The Scalar Engine loads a table when the set of functions changes (1.3 us in profiles of the
    documentation): an activation that is there while it would wait for a load does it in time."""

    @nki.jit
    def kernel(x, early):
        out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
        small = nl.zeros((128, 1), dtype=nl.float32)
        if early:
            small[...] = nisa.activation(nl.exp, small)
        nl.store(out, nisa.activation(nl.exp, nl.load(x), bias=small))
        return out

    plain, first = (predict(kernel, ones(128, 512), early).latency_us for early in (False, True))
    assert plain - first == pytest.approx(hw.TRN2.timing.act_table_us, abs=1e-6)
