"""What serves instructions in a schedule, against the plainest description of it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import model_kernels as kernels
from model_kernels import ones
from nkisim.chip import hw
from nkisim.simulation.launch import launch
from nkisim.timing import events
from nkisim.timing.engines import CappedDmaEngines, DmaEngines, SharedMemory, TensorEngine
from nkisim.timing.schedule import schedule

ENGINES = 4
#: kinds of DMAs: (microseconds on each engine, engines), and microseconds in HBM
KINDS = [(2.0, 4), (0.5, 4), (1.0, 1), (3.0, 2), (0.25, 3)]
HBM = [0.0, 4.0, 1.0, 0.25, 0.0]
_dmas = st.lists(
    st.tuples(st.integers(0, len(KINDS) - 1), st.sampled_from([0.0, 0.5, 1.0, 8.0])), max_size=40
)


@pytest.mark.parametrize("capped", [False, True])
@given(_dmas)
def test_dma_engines_serve_in_order_each_for_itself(capped, dmas):
    ours = CappedDmaEngines(ENGINES, KINDS, HBM) if capped else DmaEngines(ENGINES, KINDS)
    free, hbm, at = [0.0] * ENGINES, 0.0, 0.0
    ends, busy = [], 0.0
    for i, (kind, gap) in enumerate(dmas):
        at += gap
        us, count = KINDS[kind]
        begins = [max(at, free[e]) for e in range(count)]
        own_ends = [b + us for b in begins]
        if capped:
            hbm = max(hbm, min(begins)) + HBM[kind]
            if hbm > max(own_ends):
                own_ends = [hbm] * count
        free[:count] = own_ends
        busy += us * count
        ends += own_ends
        assert ours.serve(i, kind, at) == (min(begins), max(own_ends))
    served, all_ends, all_busy = ours.log(np.array([kind for kind, _ in dmas], np.int64))
    assert served.tolist() == list(range(len(dmas)))
    assert (all_ends.tolist(), all_busy) == (ends, busy)


@pytest.mark.parametrize("core", hw.CORES, ids=lambda c: c.name)
def test_hbm_is_asked_only_where_it_may_be_slower(core):
    assert type(events._dma_engines([], core)) is DmaEngines
    slow = dataclasses.replace(core, hbm_gbps=core.hbm_gbps / 64)
    assert type(events._dma_engines([], slow)) is CappedDmaEngines


@given(
    st.lists(
        st.tuples(st.sampled_from([0.125, 0.5, 1.0]), st.sampled_from([0.0, 0.25, 9.0])),
        max_size=60,
    )
)
def test_the_clock_of_the_tensor_engine(instructions):
    """Full after a window of 4 us that is 3/4 busy, half after one of 1/4 or less, else as before.

    The slow and obvious way: a list of the times at which the engine was busy, cut into windows.
    """
    timing = dataclasses.replace(
        hw.TRN2.timing,
        pe_window_us=4.0,
        pe_full_share=0.75,
        pe_half_share=0.25,
        pe_share_spread=0.0,
        pe_cold_factor=2.0,
    )
    costs = [(us, us + 1.0, "") for us, _ in instructions]
    pe = TensorEngine(0, list(range(len(costs))), 1, costs, [], timing, [1.0] * len(costs))
    spans: list[tuple[float, float]] = []

    def warm(at):
        full = False
        for n in range(int(at // 4)):
            used = sum(max(0.0, min(b, 4.0 * n + 4) - max(a, 4.0 * n)) for a, b in spans)
            full = used >= 3.0 or full and used > 1.0
        return full

    at = 0.0
    for kind, (us, pause) in enumerate(instructions):
        at += pause
        took = us if warm(at) else 2 * us
        assert pe.charge(kind, at) == at
        assert (pe.free, pe.done) == (at + took, at + took + 1.0)
        spans.append((at, at + took))
        at += took
    assert pe.busy == sum(b - a for a, b in spans)


@pytest.mark.parametrize("rows, took", [(1.0, 1.0), (0.5, 2.0)])
def test_half_of_the_rows_do_not_warm_the_tensor_engine(rows, took):
    timing = dataclasses.replace(
        hw.TRN2.timing,
        pe_window_us=4.0,
        pe_full_share=0.75,
        pe_half_share=0.25,
        pe_share_spread=0.0,
        pe_cold_factor=2.0,
    )
    pe = TensorEngine(0, list(range(9)), 1, [(1.0, 1.0, "")] * 9, [], timing, [rows] * 9)
    for kind in range(9):
        begun = pe.charge(kind, pe.free)
    assert pe.free - begun == took


def test_no_kernel_is_half_as_fast_for_a_hair():
    """A stream that is busy for a little more or less of its windows takes a little more or less.

    What takes 1 us at the half clock is there every (1 / share) us.
    """

    def took(share, spread):
        timing = dataclasses.replace(hw.TRN2.timing, pe_share_spread=spread)
        pe = TensorEngine(0, list(range(200)), 1, [(0.5, 0.5, "")] * 200, [], timing, [1.0] * 200)
        for kind in range(200):
            pe.charge(kind, kind / share)
        return pe.busy

    shares = np.arange(0.5, 1.0, 0.005)
    mean = np.array([took(s, 0.1) for s in shares])
    hard = np.array([took(s, 0.0) for s in shares])
    assert mean[0] == hard[0] == 200.0 and mean[-1] == hard[-1] < 105.0
    assert np.abs(np.diff(hard)).max() > 35.0 > 2 * np.abs(np.diff(mean)).max()


def test_banks_and_ports_are_used_by_one_at_a_time():
    shared = SharedMemory({0: 7, 1: 7, 2: 8}, [(0,), (0, 1), ()], [2.0, 3.0, 1.0])
    assert shared.claim(0, 0, 0.0) == 0.0  # bank 7 and port 0, until 2
    assert shared.claim(1, 2, 0.0) == 2.0  # bank 7 until 3
    assert shared.claim(2, 1, 1.0) == 2.0  # port 0 and 1 until 5
    assert shared.claim(3, 1, 2.0) == 5.0  # no bank, but the ports
    assert shared.claim(4, 2, 2.0) == 2.0  # nothing shared


@pytest.mark.parametrize("core", hw.CORES, ids=lambda c: c.name)
def test_a_schedule_is_the_same_every_time(core):
    half = np.float16
    trace = launch(
        kernels.products,
        (ones(128, 128, dtype=half), ones(128, 512, dtype=half)),
        {},
        target=core.name,
        compute=False,
    ).trace
    first, again = schedule(trace, core), schedule(trace, core)
    for name in ("start", "end", "issue", "pred", "dma", "dma_ends"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
    assert (first.busy, first.spill_bytes) == (again.busy, again.spill_bytes)
