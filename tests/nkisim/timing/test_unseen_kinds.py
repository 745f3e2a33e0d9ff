"""Spills by slices, run-time addresses, who makes descriptors, and meetings of two cores."""

from __future__ import annotations

import dataclasses

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.calibration import bands
from nkisim.calibration.outcomes import Outcome
from nkisim.chip import hw
from nkisim.simulation import kinds
from nkisim.timing.schedule import schedule

ROWS, WIDE, SLICE, BLOCKS = 128, 4096, 512, 8
STORED = BLOCKS * ROWS * WIDE * 4


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


@nki.jit
def add_by_slices(x):
    """Add to slices of blocks, column by column: each block is filled and stored as a whole."""
    out = nl.ndarray((BLOCKS * ROWS, WIDE), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((ROWS, SLICE), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    blocks = []
    for _ in range(BLOCKS):
        block = nl.ndarray((ROWS, WIDE // SLICE, SLICE), dtype=x.dtype, buffer=nl.sbuf)
        nisa.memset(dst=block, value=0.0)
        blocks.append(block)
    for _ in range(2):
        for n in range(WIDE // SLICE):
            for block in blocks:
                nisa.tensor_tensor(dst=block[:, n], data1=block[:, n], data2=tile, op=nl.add)
    for b, block in enumerate(blocks):
        nisa.dma_copy(dst=out[b * ROWS : (b + 1) * ROWS], src=block.reshape((ROWS, WIDE)))
    return out


def test_a_spill_moves_the_slice_in_use_and_not_the_tile():
    prof = nkisim.profile(add_by_slices, ones(ROWS, SLICE), target="trn2", compute=False)
    small = dataclasses.replace(hw.TRN2, sbuf_usable_bytes=4 * WIDE * 4)  # half of the blocks
    plan = schedule(prof.trace, small, dge=True, on=frozenset(prof.compiler))
    moved = {spec.operands[0].nbytes for spec in plan.trace.op_specs if spec.row.spills}
    assert moved == {ROWS * SLICE * 4}
    # a fill, two additions and a store use a block: no slice moves more than thrice each way
    assert 0 < plan.spill_bytes <= 6 * STORED
    assert schedule(prof.trace, hw.TRN2, dge=True).spill_bytes == 0


@nki.jit
def chosen_rows(x, where, mode=nisa.dge_mode.unknown):
    """Load a block whose place a number in memory chooses, and one at a fixed place."""
    out = nl.ndarray((2 * ROWS, x.shape[2]), dtype=x.dtype, buffer=nl.shared_hbm)
    at = nl.ndarray((1, 1), dtype=where.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=at, src=where)
    width = x.shape[2]
    for n, more in enumerate(({"scalar_offset": at, "indirect_dim": 0}, {})):
        tile = nl.ndarray((ROWS, width), dtype=x.dtype, buffer=nl.sbuf)
        place = x.ap(pattern=[[width, ROWS], [1, width]], offset=0, **more)
        nisa.dma_copy(dst=tile, src=place, dge_mode=mode)
        nisa.dma_copy(dst=out[n * ROWS : (n + 1) * ROWS], src=tile)
    return out


def test_gpsimd_makes_the_descriptors_of_rows_that_data_choose():
    where = np.zeros((1, 1), np.int32)
    prof = nkisim.profile(chosen_rows, ones(4, ROWS, 64), where, target="trn2", compute=False)
    made = {x.maker for x in prof.schedule.transfers if x is not None}
    assert made == {"", "gpsimd"}
    t = hw.TRN2.timing
    assert prof.schedule.busy["gpsimd"] >= t.swdge_issue_us + ROWS * t.swdge_row_us
    assert prof.trust.unknown == kinds.SPECIAL[kinds.RUN_TIME]


def test_hardware_makes_the_descriptors_of_one_place_if_the_kernel_asks_for_it():
    """AWS's page of descriptor generation: with `scalar_offset` a copy takes any mode."""
    args = ones(4, ROWS, 64), np.zeros((1, 1), np.int32)
    mode = nisa.dge_mode
    asked = {
        m: nkisim.profile(chosen_rows, *args, m, target="trn2", compute=False)
        for m in (mode.unknown, mode.swdge, mode.hwdge)
    }
    assert asked[mode.hwdge].schedule.busy["gpsimd"] < hw.TRN2.timing.swdge_issue_us
    assert asked[mode.swdge].schedule.busy["gpsimd"] > hw.TRN2.timing.swdge_issue_us
    assert asked[mode.hwdge].latency_us < asked[mode.unknown].latency_us
    assert asked[mode.unknown].latency_us == pytest.approx(asked[mode.swdge].latency_us, rel=0.1)


def loads(count, choose=lambda n: {}):
    """Return a kernel of so many loads; `choose(n)` are keywords of the n-th."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((ROWS, 64), dtype=x.dtype, buffer=nl.shared_hbm)
        total = nl.ndarray((ROWS, 64), dtype=x.dtype, buffer=nl.sbuf)
        nisa.memset(dst=total, value=0.0)
        for n in range(count):
            tile = nl.ndarray((ROWS, 64), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[n * ROWS : (n + 1) * ROWS], **choose(n))
            nisa.tensor_tensor(dst=total, data1=total, data2=tile, op=nl.add)
        nisa.dma_copy(dst=out, src=total)
        return out

    return kernel


@pytest.mark.parametrize("mode, kind", [("swdge", kinds.RUN_TIME), ("hwdge", kinds.MODE)])
def test_a_kernel_that_chooses_who_makes_descriptors_is_told_that_its_error_is_unknown(mode, kind):
    x = ones(8 * ROWS, 64)
    chosen = loads(8, lambda n: {"dge_mode": nisa.dge_mode[mode]})
    left = loads(8, lambda n: {"dge_mode": nisa.dge_mode[["unknown", "none"][n % 2]]})
    unknown = nkisim.profile(chosen, x, target="trn2", compute=False).trust.unknown
    assert unknown == kinds.SPECIAL[kind]
    assert not nkisim.profile(left, x, target="trn2", compute=False).trust.unknown


def test_engine_and_mode_of_a_dma_choose_who_makes_its_descriptors():
    hwdge, engine = nisa.dge_mode.hwdge, nisa.engine
    x = ones(64 * ROWS, 64)

    def us(choose):
        return nkisim.profile(loads(64, choose), x, target="trn2", compute=False).body_us

    sync = us(lambda n: {"dge_mode": hwdge, "engine": engine.sync})
    both = us(lambda n: {"dge_mode": hwdge, "engine": (engine.sync, engine.scalar)[n % 2]})
    software = us(lambda n: {"dge_mode": nisa.dge_mode.swdge})
    static = us(lambda n: {"dge_mode": nisa.dge_mode.none})
    assert static < both < sync < software


@pytest.mark.parametrize("name", ("gpsimd", "vector", "tensor"))
def test_only_the_scalar_and_the_sync_engine_trigger_hardware_descriptors(name):
    kernel = loads(
        1, lambda n: {"dge_mode": nisa.dge_mode.hwdge, "engine": getattr(nisa.engine, name)}
    )
    with pytest.raises(nkisim.NkiError) as caught:
        nkisim.run(kernel, ones(ROWS, 64))
    assert caught.value.id == "NKI-E01" and "only nisa.engine.scalar and sync" in str(caught.value)


@pytest.mark.parametrize("mode", ("none", "hwdge", "swdge", "unknown"))
def test_a_gather_has_descriptors_of_gpsimd(mode):
    @nki.jit
    def gather(x, rows):
        out = nl.ndarray((ROWS, 64), dtype=x.dtype, buffer=nl.shared_hbm)
        at = nl.ndarray((ROWS, 1), dtype=rows.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=at, src=rows)
        tile = nl.ndarray((ROWS, 64), dtype=x.dtype, buffer=nl.sbuf)
        chosen = x.ap(pattern=[[64, ROWS], [1, 64]], offset=0, vector_offset=at, indirect_dim=0)
        nisa.dma_copy(dst=tile, src=chosen, dge_mode=getattr(nisa.dge_mode, mode))
        nisa.dma_copy(dst=out, src=tile)
        return out

    rows = np.arange(ROWS, dtype=np.uint32)[::-1].reshape(ROWS, 1).copy()
    x = np.arange(ROWS * 64, dtype=np.float32).reshape(ROWS, 64)
    if mode in ("none", "hwdge"):
        with pytest.raises(nkisim.NkiError) as caught:
            nkisim.run(gather, x, rows, target="trn2")
        assert caught.value.id == "NKI-E01"
    else:
        got = nkisim.run(gather, x, rows, target="trn2").outputs
        np.testing.assert_array_equal(got, x[::-1])


def test_the_time_in_program_order_stands_beside_the_prediction():
    """Where the order decides, a search that ranks by one time alone may be wrong."""

    @nki.jit
    def late(x):
        out = nl.ndarray((8 * ROWS, 64), dtype=x.dtype, buffer=nl.shared_hbm)
        for n in range(8):
            tile = nl.ndarray((ROWS, 64), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[n * ROWS : (n + 1) * ROWS])
            for _ in range(4):  # each engine waits for the other one
                nisa.activation(dst=tile, data=tile, op=nl.exp)
                nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.multiply)
            nisa.dma_copy(dst=out[n * ROWS : (n + 1) * ROWS], src=tile)
        return out

    prof = nkisim.profile(late, ones(8 * ROWS, 64), target="trn2", compute=False)
    assert prof.in_order_us > 1.1 * prof.latency_us
    assert "if the compiler keeps the order of your program" in prof.summary()
    assert prof.to_dict()["in_order_us"] == prof.in_order_us
    assert prof.trust.pct is None or prof.band_us[1] >= prof.in_order_us
    written = nkisim.profile(
        late, ones(8 * ROWS, 64), target="trn2", compute=False, compiler=("engines", "rename")
    )
    assert written.in_order_us is None


@nki.jit
def meet_often(x):
    """Exchange tiles many times; the cores use what they got in another order."""
    me = nl.program_id(0)
    out = nl.ndarray((2, ROWS, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    got = []
    for n in range(6):
        mine = nl.ndarray((ROWS, 64), dtype=x.dtype, buffer=nl.sbuf)
        other = nl.ndarray((ROWS, 64), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=mine, src=x[n * ROWS : (n + 1) * ROWS])
        nisa.sendrecv(src=mine, dst=other, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
        got.append(other)
    total = nl.ndarray((ROWS, 64), dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(dst=total, value=0.0)
    for other in got[:: 1 - 2 * me]:
        nisa.tensor_tensor(dst=total, data1=total, data2=other, op=nl.add)
    nisa.dma_copy(dst=out[me], src=total)
    return out


def test_cores_that_use_what_they_exchange_in_another_order_still_meet():
    prof = nkisim.profile(meet_often[2], ones(6 * ROWS, 64), target="trn2", compute=False)
    alone = nkisim.profile(loads(6), ones(6 * ROWS, 64), target="trn2", compute=False)
    assert alone.body_us < prof.body_us < 6 * alone.body_us
    assert prof.trust.unknown == kinds.SPECIAL[kinds.TWO_CORES]


def outcome(n, kind, error, family):
    return Outcome(
        f"r{n}", "trn2", "kernel_body", 100.0, 100.0 + error, error, family=family, variant=str(n),
        bound="dma", body_us=100.0 + error, kind=kind, blind_us=100.0 + 2 * error,
        blind_pct=2 * error,
    )  # fmt: skip


def test_a_kind_is_judged_as_if_it_had_never_been_seen_and_a_family_counts_once():
    spilling = [outcome(n, kinds.SPILL, 40.0, "grid") for n in range(9)]
    spilling += [outcome(9, kinds.SPILL, 2.0, "other")]
    plain = [outcome(10 + n, kinds.OTHER, 1.0, f"family {n}") for n in range(5)]
    spill, other = bands.by_kind(spilling + plain)
    assert (spill["records"], spill["families"]) == (10, 2)
    assert spill["mape"] == 42.0  # the mean of 80 and 4: nine records of a grid are one family
    assert spill["bands"] == 0 and other["bands"] == 0  # no other kind tells their error
