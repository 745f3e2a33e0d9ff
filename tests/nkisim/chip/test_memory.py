"""Memory: what was written, what is shared, what fits; and how results are bound to it."""

from __future__ import annotations

import ml_dtypes
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from neuronxcc import nki

import nkisim
from nkisim.chip import hw
from nkisim.chip.memory import FULLY, SBUF, Storage


def data(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def ids(run):
    return sorted(f.id for f in run.findings)


def output(shape=(128, 8), dtype=np.float32):
    return nl.ndarray(shape, dtype, buffer=nl.shared_hbm)


X = data(128, 8)


# -- never written ---------------------------------------------------------------------------------


@pytest.mark.parametrize("buffer", ["sbuf", "psum", "private_hbm"])
def test_reading_what_was_never_written(buffer, breaks):
    @nki.jit
    def kernel(x, write):
        out = output()
        t = nl.ndarray((128, 8), np.float32, buffer=getattr(nl, buffer))
        if write and buffer == "private_hbm":
            nl.store(t, nl.load(x))
        elif write:
            t[...] = nl.load(x)
        nl.store(out, nl.load(t) if buffer == "private_hbm" else nl.copy(t))  # BUG
        return out

    np.testing.assert_array_equal(nkisim.simulate(kernel, X, True), X)
    error = breaks(kernel, X, False, id="NKI-U01")
    assert "created at" in error.given


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(1, 8), st.integers(0, 2)), max_size=6))
def test_written_is_known_per_element(writes):
    """Any mix of slices, masks and views marks exactly what it writes."""
    seen = np.zeros((4, 8), bool)

    @nki.jit
    def kernel():
        out = output((4, 8))
        t = nl.ndarray((4, 8), np.float32)
        p, f = nl.mgrid[0:4, 0:8]
        for lo, n, how in writes:
            hi = min(8, lo + n)
            if how == 0:
                t[:, lo:hi] = 1
                seen[:, lo:hi] = True
            elif how == 1:
                t[p, f] = nl.add(nl.full((4, 8), 0, np.float32), 1, mask=(f >= lo) & (p < n))
                seen[:n, lo:] = True
            else:
                t.reshape((4, 2, 4))[:, lo % 2, 0 : (n + 1) // 2] = 1
                seen.reshape(4, 2, 4)[:, lo % 2, : (n + 1) // 2] = True
        nl.store(out, 0)
        for i in range(8):
            if seen[:, i].any():
                nl.store(out[:, i : i + 1], t[:, i : i + 1])
        return out

    out = nkisim.simulate(kernel)
    np.testing.assert_array_equal(out[:, seen.any(0)] == 1, seen[:, seen.any(0)])


@settings(deadline=None, max_examples=200)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([(0, 4), (0, 4), (0, 2), (1, 4)]),
            st.integers(0, 3),
            st.integers(1, 3),
            st.sampled_from(["mark", "some", "spoil", "narrow"]),
        ),
        max_size=8,
    )
)
def test_what_is_written_to_all_partitions_is_the_same_as_to_each(steps):
    """The marks of a storage against a plain array of them: one a byte of 4 partitions."""
    rows, row, item = 4, 24, 4
    storage = Storage(0, SBUF, rows, row, item, -1, 0, False, False)
    marks = np.zeros((rows, row), bool)
    rng = np.random.default_rng(len(steps))
    for (p0, p1), first, count, what in steps:
        size = 2 if what == "narrow" else item
        at = p0 * row + first * item, (p1 - p0, count), (row, size), size
        part = marks[p0:p1, first * item : first * item + count * size]
        chosen = rng.random((p1 - p0, count)) < 0.5
        if what == "some":
            storage.mark(*at, chosen)
            part |= np.repeat(chosen, size, axis=1)
        elif what == "spoil":
            storage.spoil(*at, np.where(chosen, np.int16(1), np.int16(-1)))
            part &= ~np.repeat(chosen, size, axis=1)
        else:
            storage.mark(*at)
            part[...] = True
        assert (storage.init == FULLY) == marks.all() or what == "spoil"
        for p, n in ((0, 4), (1, 2)):
            seen = storage.origins(p * row, (n, row // item), (row, item), item) < 0
            assert (seen == marks[p : p + n].reshape(n, -1, item).all(axis=2)).all()


def test_an_output_that_is_written_in_part():
    @nki.jit
    def kernel(x, rows):
        out = output()
        nl.store(out[0:rows], nl.load(x[0:rows]))
        return out

    assert not nkisim.run(kernel, X, 128).findings
    run = nkisim.run(kernel, X, 100)
    assert ids(run) == ["NKI-O04"] and "224 of 1,024" in run.findings[0].text
    assert run.findings[0].where.text.startswith("return nl.ndarray")


# -- shared bytes ----------------------------------------------------------------------------------


def test_mod_alloc_folds_blocks_onto_physical_tiles():
    """With 2 physical tiles, block 2 lies where block 0 was; with 4 each has its own."""

    @nki.jit
    def kernel(x, tiles):
        out = output((4, 128, 8))
        where = ncc.sbuf.mod_alloc(base_addr=256, num_free_tiles=(tiles,))
        t = nl.ndarray((4, nl.par_dim(128), 8), np.float32, buffer=where)
        for i in range(4):
            t[i] = nl.load(x[i])
        for i in range(4):
            nl.store(out[i], t[i])
        return out

    x = data(4, 128, 8)
    np.testing.assert_array_equal(nkisim.simulate(kernel, x, 4), x)
    run = nkisim.run(kernel, x, 2)
    np.testing.assert_array_equal(run.outputs, x[[2, 3, 2, 3]])
    assert set(ids(run)) == {"NKI-A05"}
    assert all(f.severity == "error" and f.other is not None for f in run.findings)
    assert (
        "t[0] (test_memory.py:" in run.findings[0].text and "after t[2] (" in run.findings[0].text
    )


@pytest.mark.parametrize("place, rows, columns", [((0, 80), 128, 4), ((96, 0), 32, 8)])
def test_alloc_by_a_function(place, rows, columns):
    """The function's (partition, address) is where the tile lies: bytes shift with both."""

    @nki.jit
    def kernel(x):
        out, begin = output((rows, columns)), 64 if place[1] else 0
        whole = nl.ndarray((128, 8), np.float32, buffer=ncc.sbuf.alloc(lambda i, p, f: (0, begin)))
        part = nl.ndarray((rows, columns), np.float32, buffer=ncc.sbuf.alloc(lambda i, p, f: place))
        whole[...] = nl.load(x)
        nl.store(out, part)
        return out

    np.testing.assert_array_equal(nkisim.simulate(kernel, X), X[-rows:, -columns:])


@pytest.mark.parametrize("narrow", [np.uint8, np.float16, nl.bfloat16, np.int32])
def test_bytes_are_shared_across_dtypes(narrow):
    """A write of one dtype is read as another: the bytes are the same, as on the chip."""

    @nki.jit
    def kernel(x):
        n = 32 // np.dtype(narrow).itemsize
        out, back = output((128, n), narrow), output()
        a = nl.ndarray((128, 8), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
        b = nl.ndarray((128, n), narrow, buffer=ncc.sbuf.mod_alloc(base_addr=0))
        a[...] = nl.load(x)
        nl.store(out, b)
        b[:, 0 : n // 2] = 0
        nl.store(back, a)
        return out, back

    out, back = nkisim.simulate(kernel, X)
    np.testing.assert_array_equal(out.view(np.uint8), X.view(np.uint8))
    want = X.copy()
    want[:, :4] = 0
    np.testing.assert_array_equal(back, want)


def test_psum_banks_are_shared():
    @nki.jit
    def kernel(a, b, bank):
        out = output((2, 128, 8))
        one = nl.ndarray((128, 8), np.float32, buffer=ncc.psum.mod_alloc(base_bank=0))
        two = nl.ndarray((128, 8), np.float32, buffer=ncc.psum.mod_alloc(base_bank=bank))
        s = nl.ndarray((128, 128), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=0))
        m = nl.ndarray((128, 8), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=512))
        c = nl.ndarray((128, 8), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=1024))
        s[...], m[...] = nl.load(a), nl.load(b)
        one[...] = nisa.nc_matmul(s, m)
        c[...] = nisa.tensor_scalar(m, nl.multiply, 2.0)
        two[...] = nisa.nc_matmul(s, c)
        c[...] = nl.copy(one)
        nl.store(out[0], c)
        c[...] = nl.copy(two)
        nl.store(out[1], c)
        return out

    a, b = data(128, 128), data(128, 8, seed=1)
    product = a.T @ b
    out = nkisim.simulate(kernel, a, b, 1)
    np.testing.assert_allclose(out, [product, 2 * product], rtol=1e-3, atol=1e-3)
    run = nkisim.run(kernel, a, b, 0)
    np.testing.assert_allclose(run.outputs, [2 * product] * 2, rtol=1e-3, atol=1e-3)
    assert "NKI-A05" in ids(run)


# -- what fits -------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_capacity_follows_the_generation(target, breaks):
    """A partition's usable bytes are those of the target, for tensors and for addresses."""
    n, all_bytes = hw.get(target).sbuf_usable_bytes // 4, hw.get(target).sbuf_bytes

    @nki.jit
    def kernel(size, base):
        out = output((1, 1))
        nl.store(out, 0)
        assert nl.tile_size.total_available_sbuf_size == 4 * n
        nl.ndarray((1, size), np.float32)
        nl.ndarray((1, 8), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=base))
        return out

    assert not nkisim.run(kernel, n, 4 * n - 32, target=target).findings
    assert ids(nkisim.run(kernel, n, 4 * n - 28, target=target)) == ["NKI-A10"]
    breaks(kernel, n + 1, 0, id="NKI-M04", target=target)
    breaks(kernel, n, all_bytes - 28, id="NKI-A01", target=target)


def test_psum_has_eight_banks_of_2_kib(breaks):
    @nki.jit
    def kernel(bank, size):
        out = output((1, 1))
        nl.store(out, 0)
        nl.ndarray((128, size), np.float32, buffer=ncc.psum.mod_alloc(base_bank=bank))  # BUG
        return out

    nkisim.run(kernel, 7, 512)
    breaks(kernel, 8, 512, id="NKI-A01")
    breaks(kernel, 7, 513, id="NKI-A01")


# -- results are bound late ------------------------------------------------------------------------


def test_an_assignment_is_the_instruction_itself():
    """`t[...] = op()` writes t: one instruction, not an op and a copy."""

    @nki.jit
    def kernel(x):
        out = output()
        t = nl.ndarray((128, 8), np.float32)
        t[...] = nl.load(x)
        t[...] = nl.exp(t)
        t[:, 0:4] = nisa.tensor_scalar(t[:, 0:4], nl.add, 1.0)
        nl.store(out, t)
        return out

    run = nkisim.run(kernel, X)
    assert run.instructions == {"load": 1, "activation": 1, "tensor_scalar": 1, "store": 1}
    want = np.exp(X)
    want[:, :4] += 1
    np.testing.assert_allclose(run.outputs, want, rtol=1e-5)


def test_an_assignment_of_a_tile_is_a_copy():
    @nki.jit
    def kernel(x):
        out = output()
        a = nl.load(x)
        t = nl.ndarray((128, 8), np.float32)
        t[...] = a
        t[...] = 2.0
        nl.store(out, a)
        return out

    run = nkisim.run(kernel, X)
    assert run.instructions == {"load": 1, "tensor_copy": 1, "memset": 1, "store": 1}
    np.testing.assert_array_equal(run.outputs, X)


def test_an_assignment_casts_to_the_destination():
    """The instruction writes the destination's dtype: no cast of its own, rounded once."""

    @nki.jit
    def kernel(x):
        out = output(dtype=np.float16)
        t = nl.ndarray((128, 8), np.float16)
        t[...] = nl.multiply(nl.load(x), 3.0)
        nl.store(out, t)
        return out

    run = nkisim.run(kernel, X)
    assert run.instructions == {"load": 1, "tensor_scalar": 1, "store": 1}
    np.testing.assert_array_equal(run.outputs, (X * np.float32(3)).astype(np.float16))


@pytest.mark.parametrize("loop", [range, nl.affine_range])
def test_a_matmul_accumulates_in_one_instruction(loop):
    """zeros and += is one matmul a step: no memset, no add, and no hazard."""

    @nki.jit
    def kernel(a, b):
        out = output()
        psum = nl.zeros((128, 8), np.float32, buffer=nl.psum)
        for _ in loop(3):
            psum += nisa.nc_matmul(nl.load(a), nl.load(b))
        psum[...] += nisa.nc_matmul(nl.load(a), nl.load(b))
        nl.store(out, nl.copy(psum))
        return out

    a = data(128, 128)
    run = nkisim.run(kernel, a, X)
    assert run.instructions == {"load": 8, "nc_matmul": 4, "tensor_copy": 1, "store": 1}
    np.testing.assert_allclose(run.outputs, 4 * (a.T @ X), rtol=1e-3, atol=1e-3)
    assert not run.findings


def test_zeros_of_psum_that_are_read_cost_a_memset():
    @nki.jit
    def kernel(x):
        out = output()
        psum = nl.zeros((128, 8), np.float32, buffer=nl.psum)
        nl.store(out, nl.add(psum, nl.load(x)))
        return out

    run = nkisim.run(kernel, X)
    assert run.instructions == {"load": 1, "memset": 1, "tensor_tensor": 1, "store": 1}
    np.testing.assert_array_equal(run.outputs, X)


def test_products_assigned_into_zeros_of_psum_stay():
    """`psum[:, a:b] = matmul` after nl.zeros keeps every part that was assigned."""

    @nki.jit
    def kernel(a, b):
        out = output((128, 16))
        psum = nl.zeros((128, 24), np.float32, buffer=nl.psum)
        for i in range(2):
            psum[:, i * 8 : i * 8 + 8] = nisa.nc_matmul(nl.load(a), nl.load(b[i]))
        nl.store(out, nl.copy(psum[:, 0:16]))
        return out

    a, b = data(128, 128), data(2, 128, 8, seed=1)
    run = nkisim.run(kernel, a, b)
    assert "memset" not in run.instructions
    np.testing.assert_allclose(
        run.outputs, np.hstack([a.T @ b[0], a.T @ b[1]]), rtol=1e-3, atol=1e-3
    )


def test_a_result_keeps_its_value_when_its_destination_changes():
    """`r` names the value that was computed, also after the tile it went to was overwritten."""

    @nki.jit
    def kernel(x):
        out = output((3, 128, 8))
        t = nl.ndarray((128, 8), np.float32)
        r = nl.add(nl.load(x), 1)
        t[...] = r
        nl.store(out[0], r)
        t[...] = 5
        nl.store(out[1], r)
        nl.store(out[2], t)
        return out

    np.testing.assert_array_equal(
        nkisim.simulate(kernel, X), np.stack([X + 1, X + 1, np.full_like(X, 5)])
    )


def test_in_place_operators():
    """+= -= *= /= on a tile change it in place, seen by every name of it."""

    @nki.jit
    def kernel(x):
        out = output()
        t = nl.load(x)
        same = t
        t += 1
        t *= nl.load(x)
        t -= 0.5
        t /= 2
        t[:, 0:4] += t[:, 4:8]
        nl.store(out, same)
        return out

    want = ((X + 1) * X - np.float32(0.5)) / 2
    want[:, :4] += want[:, 4:]
    np.testing.assert_allclose(nkisim.simulate(kernel, X), want, rtol=1e-5, atol=1e-6)


def test_unused_results_are_instructions_too():
    @nki.jit
    def kernel(x):
        out = output()
        t = nl.load(x)
        nl.exp(t)
        nl.store(out, t)
        nl.exp(t)
        return out

    assert nkisim.run(kernel, X).instructions == {"load": 1, "activation": 2, "store": 1}


def test_matmul_operands_in_psum_are_copied():
    """The Tensor Engine reads SBUF: the compiler copies such an operand, and that is noted."""

    @nki.jit
    def kernel(a, b, memory):
        out = output()
        t = nl.ndarray((128, 8), np.float32, buffer=memory)
        t[...] = nl.copy(nl.load(b))
        nl.store(out, nl.copy(nisa.nc_matmul(nl.load(a), t)))
        return out

    a = data(128, 128)
    direct, copied = (nkisim.run(kernel, a, X, m) for m in (nl.sbuf, nl.psum))
    assert (ids(direct), ids(copied)) == ([], ["NKI-M09"])
    assert copied.instructions["tensor_copy"] == direct.instructions["tensor_copy"] + 1
    np.testing.assert_array_equal(direct.outputs, copied.outputs)


@pytest.mark.parametrize("op", [nl.exp, nl.relu, nl.gelu, nl.rsqrt, nl.sign, nl.copy, nl.softplus])
def test_an_activation_of_a_tile_into_itself(op):
    """It reads everything before it writes, also a part of the tile that lies beside."""

    @nki.jit
    def kernel(x):
        out, apart = output((128, 16)), output((128, 12))
        t = nl.ndarray((128, 16), np.float32)
        t[...] = nl.load(x)
        nl.store(apart, nisa.activation(op, t[:, 0:12], scale=0.5, bias=nl.load(x[:, 15:16])))
        t[:, 4:16] = nisa.activation(op, t[:, 0:12], scale=0.5, bias=t[:, 15:16])
        t[...] = nisa.activation(nl.copy, t)
        nl.store(out, t)
        return out, apart

    x = np.abs(data(128, 16)) + np.float32(0.1)
    out, apart = nkisim.simulate(kernel, x)
    np.testing.assert_array_equal(out[:, :4], x[:, :4])
    np.testing.assert_array_equal(out[:, 4:], apart)


def test_an_assignment_keeps_what_the_dtype_that_was_asked_for_keeps():
    """dtype= makes a tile of that dtype, which is then assigned: 2.6 as an int32 is 3."""

    @nki.jit
    def kernel(x):
        outs = [output() for _ in range(7)]
        a = nl.load(x)
        for out, made in zip(
            outs,
            (
                lambda: nl.copy(a, dtype=nl.int32),
                lambda: nl.load(x, dtype=nl.int32),
                lambda: nisa.tensor_scalar(a, np.multiply, 1.0, dtype=nl.bfloat16),
                lambda: nisa.activation(np.copy, a, dtype=nl.bfloat16),
                lambda: nl.multiply(a, 1.0, dtype=nl.float32),
                lambda: nl.multiply(a, 1.0),
                lambda: nl.less(a, 0),
            ),
        ):
            t = nl.ndarray((128, 8), np.float32)
            t[...] = made()
            nl.store(out, t)
        return tuple(outs)

    run = nkisim.run(kernel, X)
    half = X.astype(ml_dtypes.bfloat16).astype(np.float32)
    for got, right in zip(run.outputs, (np.rint(X), np.rint(X), half, half, X, X, X < 0)):
        np.testing.assert_array_equal(got, right)
    assert run.instructions["tensor_copy"] == 1 + 4  # nl.copy, and one for each other dtype


def test_with_a_mask_the_dtype_of_the_destination_holds():
    @nki.jit
    def kernel(x):
        out = output()
        t = nl.load(x)
        i, j = nl.mgrid[0:128, 0:8]
        t[i, j] = nl.multiply(t[i, j], 3.0, mask=j < 4, dtype=nl.bfloat16)
        nl.store(out, t)
        return out

    run = nkisim.run(kernel, X)
    right = X.copy()
    right[:, :4] *= np.float32(3)
    np.testing.assert_array_equal(run.outputs, right)
    assert [f.id for f in run.findings] == ["NKI-K12"]
