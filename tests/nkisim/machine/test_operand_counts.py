"""How many elements an instruction takes: what views repeat is limited like what lies in memory.

Each kernel that is refused has a twin within the limit. None may compute before it is refused, or
one call of NumPy would last for hours.
"""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import nki as new
import nki.isa as isa
import nki.language as nkl
import numpy as np
import pytest

import nkisim
from nkisim.chip import hw
from nkisim.errors import NkiError

ENDLESS = 1 << 42
X = np.random.default_rng(0).random((128, 128), dtype=np.float32)


def pattern(t, n):
    """Return a view that has element 0 of each row n times."""
    return t.ap(pattern=[[128, 128], [0, n], [1, 1]])


def reduced_beta1(repeated):
    """Return a kernel that takes the maximum of what `repeated(tile)` reads."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nisa.tensor_reduce(nl.max, repeated(nl.load(x)), axis=1, keepdims=True))
        return out

    return kernel


def reduced_nki(repeated):
    """Return a kernel that takes the maximum of what `repeated(tile)` reads."""

    @new.jit
    def kernel(x):
        out = nkl.ndarray((128, 1), dtype=x.dtype, buffer=nkl.shared_hbm)
        most, data = nkl.ndarray((128, 1), dtype=x.dtype), repeated(nkl.load(x))
        isa.tensor_reduce(dst=most, op=nkl.maximum, data=data, axis=tuple(range(1, data.ndim)))
        isa.dma_copy(dst=out, src=most)
        return out

    return kernel


def refused(kernel, *args, **how):
    """Run a kernel that is refused, with and without values; return the error."""
    for run in (nkisim.run, lambda *a, **k: nkisim.profile(*a, compute=False, **k)):
        with pytest.raises(NkiError) as broken:
            run(kernel, *args, **{"target": "trn2", **how})
        assert broken.value.id == "NKI-P08" and broken.value.where
    return broken.value


REPEATED = {
    "broadcast_to": (reduced_beta1, lambda n: lambda t: t[:, 0:1].broadcast_to((128, n))),
    "arange": (
        reduced_beta1,
        lambda n: lambda t: t[nl.arange(128)[:, None], 0 * nl.arange(n)[None, :]],
    ),
    "ap": (reduced_nki, lambda n: lambda t: pattern(t, n)),
    "broadcast": (reduced_nki, lambda n: lambda t: t[:, 0:1].broadcast(1, n)),
    "nl.broadcast_to": (reduced_nki, lambda n: lambda t: nkl.broadcast_to(t[:, 0:1], (128, n))),
}


@pytest.mark.parametrize("how", REPEATED)
@pytest.mark.parametrize("core", [hw.TRN2, hw.TRN3], ids=lambda c: c.name)
def test_an_engine_takes_so_many_elements_a_partition(how, core):
    kernel, repeated = REPEATED[how]
    most = core.sbuf_operand_elements
    for n in (most + 1, ENDLESS):
        error = refused(kernel(repeated(n)), X, target=core.name)
        assert str(n) in str(error) and str(most) in error.limit
    if how != "nl.broadcast_to":  # that copies, and the copy has to fit as well
        got = nkisim.run(kernel(repeated(most)), X, target=core.name)
        np.testing.assert_array_equal(got.outputs, X[:, 0:1])


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_of_psum_it_takes_fewer(target):
    def kernel(n):
        @nki.jit
        def kernel(x):
            out = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
            p = nl.ndarray((nl.par_dim(128), 8), dtype=x.dtype, buffer=nl.psum)
            p[...] = nl.load(x[:, 0:8])
            data = p[:, 0:1].broadcast_to((128, n))
            nl.store(out, nisa.tensor_reduce(nl.max, data, axis=1, keepdims=True))
            return out

        return kernel

    most = hw.get(target).psum_operand_elements
    refused(kernel(most + 1), X, target=target)
    np.testing.assert_array_equal(nkisim.run(kernel(most), X, target=target).outputs, X[:, 0:1])


def test_a_tile_that_is_there_counts_alike():
    """A partition has room for more elements of one byte than an instruction takes."""

    def kernel(parts):
        @new.jit
        def kernel(x):
            t = nkl.ndarray((4, 100_000), dtype=nkl.uint8)
            for part in parts:
                isa.memset(t[:, part], 1)
            out = nkl.ndarray((4, 100_000), dtype=nkl.uint8, buffer=nkl.shared_hbm)
            isa.dma_copy(dst=out, src=t)
            return out

        return kernel

    refused(kernel([slice(0, 100_000)]), X)
    assert (
        nkisim.run(kernel([slice(0, 50_000), slice(50_000, 100_000)]), X, target="trn2").outputs
        == 1
    ).all()


def test_nothing_is_computed_before_a_mask_is_refused():
    """A mask that is no box is an array as large as what it selects from."""

    def kernel(n):
        @nki.jit
        def kernel(x):
            out = nl.ndarray((128, 1), dtype=x.dtype, buffer=nl.shared_hbm)
            t, most = nl.load(x), nl.zeros((128, 1), x.dtype)
            i_p, i_f = nl.arange(128)[:, None], nl.arange(n)[None, :]
            t[i_p, 0 * i_f] = nisa.affine_select(i_f < i_p, t[i_p, 0 * i_f], 0.0)
            most[...] = nisa.tensor_reduce(nl.max, t[i_p, 0 * i_f], axis=1, keepdims=True)
            nl.store(out, most)
            return out

        return kernel

    refused(kernel(ENDLESS), X)
    nkisim.run(kernel(256), X, target="trn2")


# -- DMA -------------------------------------------------------------------------------------------


def copied_beta1(n, both):
    """Return a kernel that copies element 0 of each row n times, to one place or to n."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((128, n if n < ENDLESS else 8), dtype=x.dtype, buffer=nl.shared_hbm)
        i_p, i_f = nl.arange(128)[:, None], nl.arange(n)[None, :]
        nisa.dma_copy(dst=out[i_p, 0 * i_f if both else i_f], src=x[i_p, 0 * i_f])
        return out

    return kernel


def copied_nki(n, both):
    """Return a kernel that copies element 0 of each row n times, to one place or to n."""

    @new.jit
    def kernel(x):
        wide = n if n < ENDLESS else 8
        out = nkl.ndarray((128, wide), dtype=x.dtype, buffer=nkl.shared_hbm)
        to = out.ap(pattern=[[wide, 128], [0 if both else 1, n]])
        isa.dma_copy(dst=to, src=x.ap(pattern=[[128, 128], [0, n]]))
        return out

    return kernel


COPIES = {"beta1": copied_beta1, "nki": copied_nki}


@pytest.mark.parametrize("dialect", COPIES)
def test_a_dma_repeats_one_side_at_most(dialect):
    copied = COPIES[dialect]
    error = refused(copied(ENDLESS, True), X)
    assert "DMA" in str(error) and str(128 * ENDLESS) in str(error)
    got = nkisim.run(copied(2000, False), X, target="trn2")
    np.testing.assert_array_equal(got.outputs, np.repeat(X[:, 0:1], 2000, axis=1))


@pytest.mark.parametrize(
    "pattern",
    [[[0, 1 << 33], [1, 1]], [[1, 1 << 17], [1, 1 << 17]], [[1 << 22, 1 << 10], [0, 1 << 24]]],
    ids=["repeated", "windows", "far_apart"],
)
def test_no_large_tensor_makes_room_for_repetitions(pattern):
    """A tensor in HBM takes no memory here until it is written."""

    @new.jit
    def kernel(x):
        room = nkl.ndarray((1 << 33,), dtype=nkl.uint8, buffer=nkl.hbm)
        isa.dma_copy(dst=room.ap(pattern=pattern), src=x.ap(pattern=[[0, n] for _, n in pattern]))
        return nkl.ndarray((1, 1), dtype=nkl.uint8, buffer=nkl.shared_hbm)

    refused(kernel, X.view(np.uint8))


@pytest.mark.parametrize("value", ["a number", "a load with a mask"])
def test_so_does_a_store_of_a_number_and_a_masked_load(value):
    def kernel(n):
        @nki.jit
        def kernel(x):
            out = nl.ndarray((128, 8), dtype=x.dtype, buffer=nl.shared_hbm)
            i_p, i_f = nl.arange(128)[:, None], nl.arange(n)[None, :]
            if value == "a number":
                nl.store(out[i_p, 0 * i_f], 1.0)
            else:
                t = nl.ndarray((nl.par_dim(128), 8), x.dtype)
                t[...] = 0.0
                t[i_p, 0 * i_f] = nl.load(x[i_p, 0 * i_f], mask=(i_f < i_p))
                nl.store(out, t)
            return out

        return kernel

    refused(kernel(ENDLESS), X)
    nkisim.run(kernel(8), X, target="trn2")


def test_large_copies_and_gathers_are_no_matter():
    """A copy in HBM is larger than SBUF; a gather takes a row more often than the table has rows,
    and a scatter adds all rows to one."""

    @new.jit
    def moved(x):
        out = nkl.ndarray(x.shape, dtype=x.dtype, buffer=nkl.shared_hbm)
        isa.dma_copy(dst=out, src=x)
        return out

    x = np.ones((4096, 4096), np.float32)
    assert x.size * 4 > hw.TRN2.sbuf_total_bytes
    assert nkisim.run(moved, x, target="trn2").outputs.sum() == x.size

    @nki.jit
    def gathered(table, rows):
        out = nl.ndarray((128, 512), dtype=table.dtype, buffer=nl.shared_hbm)
        i_p, i_f = nl.arange(128)[:, None], nl.arange(512)[None, :]
        index = nl.load(rows)
        nl.store(out, nl.load(table[index[i_p, 0], i_f]))
        return out

    @nki.jit
    def added(table, rows):
        out = nl.ndarray((1, 512), dtype=table.dtype, buffer=nl.shared_hbm)
        nl.store(out, 0.0)
        i_p, i_f = nl.arange(128)[:, None], nl.arange(512)[None, :]
        index, ones = nl.load(rows), nl.load(table)
        ones = nl.broadcast_to(ones, (128, 512))
        nisa.dma_copy(dst=out[index[i_p, 0], i_f], src=ones[i_p, i_f], dst_rmw_op=np.add)
        return out

    table, rows = np.ones((1, 512), np.float32), np.zeros((128, 1), np.int32)
    assert (nkisim.run(gathered, table, rows, target="trn2").outputs == 1).all()
    assert (nkisim.run(added, table, rows, target="trn2").outputs == 128).all()
