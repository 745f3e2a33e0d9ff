"""Memory is poisoned late, and let go of at once: neither may be seen in a value."""

from __future__ import annotations

import gc
import weakref

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nkisim
from nkisim.chip import dtypes, memory
from nkisim.chip.memory import FULLY, POISON, SBUF, Storage


@pytest.fixture(scope="module", autouse=True)
def nothing_else_to_look_through():
    """Let gc.collect() leave alone what other tests have made: that took seconds each time."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def full_of_garbage(monkeypatch):
    """Let memory that no one fills hold a pattern that is neither poison nor zero."""
    room = memory.room

    def dirty(size):
        out = room(size)
        out.fill(0x3C)
        return out

    monkeypatch.setattr(memory, "room", dirty)


def test_outputs_of_a_launch_are_not_those_of_the_next():
    @nki.jit
    def kernel(x, number):
        out = nl.ndarray((128, 512), np.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.add(nl.load(x), number))
        return out

    x = np.zeros((128, 512), np.float32)
    outs = [nkisim.simulate(kernel, x, float(i)) for i in range(4)]
    assert [np.unique(a).tolist() for a in outs] == [[0], [1], [2], [3]]


# -- poison that comes late ------------------------------------------------------------------------

steps = st.lists(
    st.tuples(
        st.sampled_from([(0, 4), (0, 4), (1, 2)]),
        st.integers(0, 5),
        st.integers(1, 3),
        st.sampled_from([2, 4]),
        st.sampled_from(["write", "write", "look", "spoil", "all"]),
    ),
    max_size=8,
)


@settings(deadline=None, max_examples=300)
@given(steps)
def test_poison_that_comes_late_is_where_it_would_have_been(operations):
    """A storage against one that is poisoned at once, by what can be seen of it."""
    rows, row = 4, 24
    storage = Storage(0, SBUF, rows, row, 4, -1, 0, False, False)
    plain = np.full((rows, row), POISON, np.uint8)
    for number, ((p0, p1), first, count, size, what) in enumerate(operations):
        count = min(count, 6 - first)
        at = p0 * row + first * 4, (p1 - p0, count), (row, size), size
        part = plain[p0:p1, first * 4 : first * 4 + count * size]
        if what in ("write", "spoil"):
            data = storage.data if storage.init == FULLY else storage.data_to_write()
            if data is None:
                data = storage.data
            np.ndarray((p1 - p0, count * size), np.uint8, data, at[0], (row, 1))[...] = number
            part[...] = number
            storage.mark(*at)
            if what == "spoil":
                storage.spoil(*at, np.full((p1 - p0, count), np.int16(1)))
        elif what == "look":
            seen = np.ndarray(
                (p1 - p0, count * size), np.uint8, storage.data_of(*at), at[0], (row, 1)
            )
            assert (seen == part).all()
        else:
            assert (storage.data.reshape(rows, row) == plain).all()
    assert (storage.data.reshape(rows, row) == plain).all()


@nki.jit
def partly_loaded(x, upto, step):
    out = nl.ndarray((128, 512), np.float32, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 512), np.float32)
    for i in nl.affine_range(upto // 64):
        t[:, i * 64 : i * 64 + 64 : step] = nl.load(x[:, i * 64 : i * 64 + 64 : step])
    nl.store(out, t)
    return out


@pytest.mark.parametrize("upto, step", [(64, 1), (256, 1), (448, 2), (512, 4)])
def test_what_was_not_loaded_reaches_an_output_as_poison(upto, step, full_of_garbage):
    x = np.random.default_rng(0).standard_normal((128, 512)).astype(np.float32)
    run = nkisim.run(partly_loaded, x, upto, step)
    want = np.full((128, 512), POISON, np.uint8).repeat(4, axis=1).view(np.float32)
    want[:, :upto:step] = x[:, :upto:step]
    assert run.outputs.view(np.uint32).tolist() == want.view(np.uint32).tolist()
    assert [f.id for f in run.findings] == ["NKI-U02"]


@pytest.mark.parametrize("dtype", [np.float32, nl.bfloat16, np.float16, np.int8])
def test_instructions_that_keep_a_part_of_what_is_there(dtype, full_of_garbage):
    """Accumulations and copies by a predicate read what they write to."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((128, 512), dtype, buffer=nl.shared_hbm)
        t = nl.ndarray((128, 512), dtype)
        t[:, 0:256] = nl.load(x[:, 0:256])
        i_p, i_f = nl.mgrid[0:128, 0:512]
        t[i_p, i_f] = nl.multiply(nl.load(x), 2, mask=i_f + 4 * i_p >= 700)
        nl.store(out, t)
        return out

    x = np.random.default_rng(0).integers(-8, 8, (128, 512)).astype(dtype)
    p, f = np.mgrid[0:128, 0:512]
    item = np.dtype(dtype).itemsize
    want = np.full((128, 512 * item), POISON, np.uint8).view(dtype)
    want[:, :256] = x[:, :256]
    want = np.where(f + 4 * p >= 700, (x.astype(np.float32) * 2).astype(dtype), want)
    got = nkisim.run(kernel, x).outputs
    assert got.view(np.uint8).tobytes() == np.ascontiguousarray(want).view(np.uint8).tobytes()


def test_a_failed_instruction_leaves_no_garbage(full_of_garbage):
    """What an instruction would have written is poison if it fails, also for who goes on."""

    @nki.jit
    def kernel(x, places):
        out = nl.ndarray((128, 512), np.float32, buffer=nl.shared_hbm)
        t = nl.ndarray((128, 512), np.float32)
        t[:, 0:256] = nl.load(x[:, 0:256])
        part = t[:, 256:512]
        try:
            part[...] = nl.load(x[nl.load(places), nl.arange(256)[None, :]])
        except IndexError:
            pass
        nl.store(out, nl.copy(t))
        return out

    x = np.ones((128, 512), np.float32)
    run = nkisim.run(kernel, x, np.full((128, 1), 1000, np.int32))
    assert (run.outputs[:, :256] == 1).all() and np.isnan(run.outputs[:, 256:]).all()


# -- transposes ------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=100)
@given(
    st.sampled_from([np.int8, np.float16, np.float32, dtypes.BFLOAT16]),
    st.integers(1, 300),
    st.integers(1, 200),
    st.sampled_from([0, 1, 512]),
    st.booleans(),
)
def test_a_transposing_copy_moves_every_bit(dtype, rows, columns, apart, turned):
    dtype = np.dtype(dtype)
    width = -(-rows // 512) * 512 + apart
    source = (
        np.random.default_rng(rows)
        .integers(0, 256, columns * width * dtype.itemsize, np.uint8)
        .view(dtype)
        .reshape(columns, width)
    )
    out = (
        np.zeros((rows, columns + 3), dtype)[:, :columns]
        if not turned
        else np.zeros((columns, rows), dtype).T
    )
    dtypes.cast(source[:, :rows].T, dtype, out)
    bits = f"u{dtype.itemsize}"
    assert (np.ascontiguousarray(out).view(bits) == source[:, :rows].T.copy().view(bits)).all()


# -- after a launch --------------------------------------------------------------------------------


@nki.jit
def two_products(a, b, again):
    """a.T @ b, twice or as often as wished, in tiles of every kind."""
    out = nl.ndarray((128, 512), dtype=a.dtype, buffer=nl.shared_hbm)
    between = nl.ndarray((128, 512), dtype=a.dtype, buffer=nl.hbm)
    left, right = nl.load(a), nl.load(b)
    for _ in nl.static_range(again):
        acc = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(4):
            acc += nisa.nc_matmul(left[:, k], right[:, k])
        nl.store(between, value=nl.copy(acc, dtype=a.dtype))
    nl.store(out, value=nl.multiply(nl.load(between), 2.0))
    return out


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_launch_leaves_no_memory_to_the_garbage_collector(monkeypatch, threads, dtype):
    """Neither tiles nor the arrays that came in, and without the run nothing at all."""
    monkeypatch.setenv("NKISIM_THREADS", threads)
    a, b = np.ones((128, 4, 128), dtype), np.ones((128, 4, 512), dtype)
    nkisim.run(two_products, a, b, 3)
    gc.collect()
    before = {id(x) for x in gc.get_objects() if type(x) is Storage}
    held = weakref.ref(a)
    gc.disable()
    try:
        run = nkisim.run(two_products, a, b, 3)
        left = [x for x in gc.get_objects() if type(x) is Storage and id(x) not in before]
        del a
        assert left == [] and held() is None
        assert (run.outputs == 2 * 512).all()
        machine = weakref.ref(run.machine)
        del run
        assert machine() is None
    finally:
        gc.enable()
