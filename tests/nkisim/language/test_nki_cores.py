"""Two cores, kernel[2]: what a barrier holds up, and what it does not; in time and in values."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from test_nki_traps import array

import nkisim
from nkisim import NkiError
from nkisim.simulation.launch import launch

ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync")


@nki.jit
def meets(x, engine, busy):
    """Core 1 is late; core 0 has work on the engine `busy` that needs nothing of the other."""
    out = nl.ndarray((256, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    me = nl.program_id()
    t, other = nl.load(x), nl.ndarray((128, 512), dtype=x.dtype)
    if me == 1:
        for _ in range(64):
            nisa.activation(t, nl.exp, t)
    nisa.dma_copy(dst=out[me * 128 : (me + 1) * 128, :], src=t)
    if engine is not None:
        nisa.core_barrier(out, (0, 1), engine=engine)
    if me == 0:
        for _ in range(64):
            if busy == "scalar":
                nisa.activation(other, nl.copy, t)
            else:
                nisa.tensor_tensor(other, t, t, nl.add, engine=nisa.engine[busy])
    return out


def time(engine, busy, compiler=("engines",)):
    run = nkisim.profile(
        meets[2],
        np.zeros((128, 512), np.float32),
        engine and nisa.engine[engine],
        busy,
        compute=False,
        compiler=compiler,
    )
    return run


@pytest.mark.parametrize("compiler", [("engines",), ("reorder", "engines", "rename")])
@pytest.mark.parametrize("busy", ["vector", "scalar", "gpsimd"])
def test_a_barrier_holds_up_its_engine_and_no_other(busy, compiler):
    none = time(None, busy, compiler).body_us
    times = {e: time(e, busy, compiler) for e in ENGINES}
    for engine, run in times.items():
        if engine == busy:  # its work comes after the other core's
            assert run.body_us > 1.3 * none and run.waiting_us > 0.3 * none
        else:  # its work goes on beside it
            assert run.body_us == pytest.approx(none, rel=0.1), engine
        assert run.hbm_write_bytes == 2 * 128 * 512 * 4  # a barrier moves nothing
        assert run.instructions["core_barrier"] == 2


def test_what_uses_the_tensor_of_a_barrier_waits_whatever_moves_it():
    """Twins: after the barrier core 0 loads what the other one stores, or something else."""

    @nki.jit
    def kernel(x, named):
        out = nl.ndarray((256, 512), dtype=x.dtype, buffer=nl.shared_hbm)
        me = nl.program_id()
        t = nl.load(x)
        if me == 1:
            for _ in range(64):
                nisa.activation(t, nl.exp, t)
        nisa.dma_copy(dst=out[me * 128 : (me + 1) * 128, :], src=t)
        nisa.core_barrier(out, (0, 1))
        if me == 0:
            other = nl.load(out[128:256, :] if named else x)
            for _ in range(64):
                nisa.activation(other, nl.exp, other)
        return out

    x = np.zeros((128, 512), np.float32)
    after, beside = (
        nkisim.profile(kernel[2], x, named, compute=False).body_us for named in (True, False)
    )
    assert after > 1.5 * beside


def test_many_meetings_are_in_order():
    """Cores that are late in turn wait for each other each time."""

    @nki.jit
    def kernel(x, rounds, apart):
        me = nl.program_id()
        t = nl.load(x)
        out = nl.ndarray((2, 128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
        for i in range(rounds):
            for _ in range(16 if i % 2 == me else 0):
                nisa.activation(t, nl.exp, t)
            if not apart:
                nisa.core_barrier(out, (0, 1), engine=nisa.engine.scalar)
        nisa.dma_copy(dst=out[me], src=t)
        return out

    x = np.zeros((128, 512), np.float32)
    one, eight = (nkisim.profile(kernel[2], x, n, False, compute=False).body_us for n in (2, 16))
    alone = nkisim.profile(kernel[2], x, 16, True, compute=False)
    step = (eight - one) / 14  # a round takes what the late core works
    work = (alone.body_us - nkisim.profile(kernel[2], x, 2, True, compute=False).body_us) / 7
    assert step == pytest.approx(work, rel=0.15)
    assert alone.waiting_us == 0


# -- values ---------------------------------------------------------------------------------------


@nki.jit
def exchanged(x, named):
    """Each core reads what the other has stored; the barrier names that tensor, or another."""
    me = nl.program_id()
    mine, other = me * 64, 64 - me * 64
    half, more = (nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm) for _ in range(2))
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x[mine : mine + 64])
    nl.store(half[mine : mine + 64], t)
    nl.store(more[mine : mine + 64], t)
    nisa.core_barrier(half if named else more, (0, 1))
    nl.store(out[mine : mine + 64], nl.load(half[other : other + 64]))
    return out


@pytest.mark.parametrize("named", [True, False])
def test_a_barrier_orders_the_tensor_that_it_names(named):
    x = array(128, 64)
    run = nkisim.run(exchanged[2], x, named)
    assert (run.outputs == np.concatenate([x[64:], x[:64]])).all()
    found = [f for f in run.findings if f.id == "NKI-L02"]
    assert len(found) == (not named)
    if found:
        assert found[0].severity == "warning" and "orders no other one" in found[0].text


@nki.jit
def roots(x):
    """Each core takes the inverse roots of its half, in a loop of calls that look alike."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows = x.shape[0] // nl.num_programs()
    mine = nl.ds(nl.program_id() * rows, rows)
    for i in range(4):
        t = nl.ndarray((rows, 16), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[mine, nl.ds(i * 16, 16)])
        nisa.activation(dst=t, op=nl.rsqrt, data=t, scale=2.0, bias=0.5)
        nisa.dma_copy(dst=out[mine, nl.ds(i * 16, 16)], src=t)
    return out


@pytest.mark.parametrize("compute", [True, False])
def test_the_constants_of_a_core_are_its_own(compute):
    """A bias that is a number is a tile of the simulator's: each core has one."""
    x = np.abs(array(128, 64)) + 1
    run = launch(roots[2], (x,), {}, compute=compute)
    assert not run.findings
    assert run.instructions["memset"] == 2
    if compute:
        np.testing.assert_allclose(run.outputs, 1 / np.sqrt(2 * x + 0.5), rtol=1e-5)


@pytest.mark.parametrize("waits", [True, False])
def test_rows_that_both_write_are_looked_at_between_waits(waits):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((4, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        me = nl.program_id()
        t = nl.load(x)
        nisa.core_barrier(out, (0, 1))
        if me == 0:
            nl.store(out, t)
        if waits:
            nisa.core_barrier(out, (0, 1))
        if me == 1:
            nl.store(out, t)
        return out

    found = {f.id for f in nkisim.run(kernel[2], array(4, 8)).findings}
    assert ("NKI-L04" in found) == (not waits)


def test_cores_that_both_do_all_of_the_work_are_noted():
    """AWS's library does that where there is too little to share; a barrier of it ends it."""

    @nki.jit
    def kernel(x):
        assert nl.program_id() in (0, 1)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        nisa.core_barrier(out, (0, 1))
        return out

    found = [f for f in nkisim.run(kernel[2], array(4, 8)).findings if f.id == "NKI-L04"]
    assert [f.severity for f in found] == ["note"]


def test_an_exchange_orders_what_is_stored_around_it():
    @nki.jit
    def kernel(x):
        me = nl.program_id()
        half = nl.ndarray((2, 4, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        t, other = nl.load(x), nl.ndarray((4, 8), dtype=x.dtype)
        nisa.dma_copy(dst=half[me], src=t)
        nisa.sendrecv(t, other, 1 - me, 1 - me, pipe_id=0)
        nisa.dma_copy(dst=other, src=half[1 - me])
        out = nl.ndarray((2, 4, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out[me], src=other)
        return out

    assert not nkisim.run(kernel[2], array(4, 8)).findings


def test_a_barrier_is_of_an_engine_that_waits_and_of_a_tensor():
    @nki.jit
    def kernel(x, data, cores, engine):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.core_barrier(out if data is None else data, cores, engine)
        nl.store(out, nl.load(x))
        return out

    x = array(4, 8)
    for cores, engine, data, id in (
        ((0, 1, 2), nisa.engine.gpsimd, None, "NKI-N10"),
        (0, nisa.engine.gpsimd, None, "NKI-N10"),
        ((0, 1), nisa.engine.dma, None, "NKI-E01"),
        ((0, 1), nisa.engine.gpsimd, 3.0, "NKI-M0"),
    ):
        with pytest.raises(NkiError, match=id):
            nkisim.run(kernel[2], x, data, cores, engine)


@pytest.mark.parametrize(
    "rank, dtype, id",
    [
        (lambda me: 1 - me, lambda me: nl.float32, None),
        (lambda me: me, lambda me: nl.float32, "NKI-N10"),
        (lambda me: 2, lambda me: nl.float32, "NKI-N10"),
        (lambda me: 1 - me, lambda me: (nl.float32, nl.bfloat16)[me], "NKI-S01"),
    ],
)
def test_an_exchange_is_with_the_other_core_and_of_tiles_that_are_alike(rank, dtype, id):
    @nki.jit
    def kernel(x):
        me = nl.program_id()
        mine, other = (nl.ndarray((4, 8), dtype=dtype(me)) for _ in range(2))
        nisa.memset(mine, 1.0)
        nisa.sendrecv(mine, other, rank(me), rank(me), pipe_id=0)
        out = nl.ndarray((2, 4, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out[me], src=other)
        return out

    if id is None:
        assert nkisim.run(kernel[2], array(4, 8)).outputs.min() == 1
    else:
        with pytest.raises(NkiError, match=id):
            nkisim.run(kernel[2], array(4, 8))


def test_what_the_first_core_returns_is_the_result():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((2, 128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
        me = nl.program_id()
        nisa.dma_copy(dst=out[me], src=nl.load(x))
        return out if me == 0 else None

    x = array(128, 512)
    np.testing.assert_array_equal(nkisim.run(kernel[2], x).outputs, np.stack([x, x]))


@pytest.mark.parametrize("fence", [True, False])
def test_a_copy_of_a_tensor_onto_itself_reads_nothing_of_the_other_core(fence):
    """Both cores do all of the work for as many rows as a register says, and end with a transfer
    of the output onto itself, as a kernel of AWS's library does; into another tensor it reads."""

    @nki.jit
    def kernel(x, count):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        other = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        rows, tiles = nl.load(count), nisa.register_alloc()
        nisa.register_load(tiles, rows)
        at = nl.ndarray((1, 1), dtype=nl.int32)
        nisa.memset(dst=at, value=0)
        for _ in nl.dynamic_range(0, tiles, 1):
            pattern = {"pattern": [[512, 128], [1, 512]], "scalar_offset": at, "indirect_dim": 0}
            nisa.dma_copy(dst=out.ap(**pattern), src=nl.load(x[0:128]))
            nisa.tensor_scalar(dst=at, data=at, op0=nl.add, operand0=128)
        nisa.dma_copy(dst=out if fence else other, src=out)
        return out if fence else other

    run = nkisim.run(kernel[2], array(256, 512), np.array([[1]], np.int32))
    said = {f.id for f in run.findings if f.severity != "note"}
    assert ("NKI-L02" in said) is not fence


@pytest.mark.parametrize("crossed", [False, True])
def test_indices_that_choose_within_each_cores_columns_meet_nothing(crossed):
    """Sums in a table whose columns the cores share out, in rows that an index chooses."""

    @nki.jit
    def kernel(number):
        out = nl.ndarray((4, 128, 256), dtype=nl.float32, buffer=nl.shared_hbm)
        mine = nl.program_id(0) * 128
        zeros = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=zeros, value=0.0)
        for e in range(4):
            nisa.dma_copy(dst=out[e, :, mine : mine + 128], src=zeros)
        chosen = nl.ndarray((1, 1), dtype=number.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=chosen, src=number)
        if crossed:  # what the other core has filled
            nisa.dma_copy(dst=zeros, src=out[0, :, 128 - mine : 256 - mine])
        for _ in range(2):
            rows = out.ap([[256, 128], [1, 128]], offset=mine, scalar_offset=chosen, indirect_dim=0)
            t = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=t, src=rows)
            nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)
            nisa.dma_copy(dst=rows, src=t)
        return out

    run = nkisim.run(kernel[2], np.array([[2]], np.int32), target="trn2")
    assert ("NKI-L02" in {f.id for f in run.findings}) is crossed
    assert run.outputs[2].min() == 2.0 and run.outputs[1].max() == 0.0
