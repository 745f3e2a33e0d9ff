"""Sums of several products in one bank of PSUM: which orders are said, and which are right.

The catalogue (data/examples) has the wrong kernel and the right one with a tile for each sum.
"""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from neuronxcc import nki as beta1
from neuronxcc.nki import language as beta1_nl

import nkisim
from nkisim.simulation.launch import launch

X = np.random.default_rng(1).random((128, 512), dtype=np.float32) + 0.5
SUMS, STEPS = 4, 4


def said(run):
    return [f for f in run.findings if f.id == "NKI-M12"]


def product(dst, t, i, k, accumulate=None):
    """Add product k of sum i: the columns of dst are as many as there are of i."""
    n = dst.shape[1]
    nisa.nc_matmul(
        dst=dst,
        stationary=t[:, k * 128 : k * 128 + dst.shape[0]],
        moving=t[:, i * n % 512 : i * n % 512 + n],
        accumulate=accumulate,
    )


def finish(sums):
    """Copy sums out, and return them as an output."""
    out = nl.ndarray((len(sums), *sums[0].shape), dtype=nl.float32, buffer=nl.shared_hbm)
    for i, s in enumerate(sums):
        t = nl.ndarray(s.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=t, src=s)
        nisa.dma_copy(dst=out[i], src=t)
    return out


def columns(tile, n):
    return [tile[:, i * n : (i + 1) * n] for i in range(tile.shape[1] // n)]


def psum(width, **more):
    return nl.ndarray((128, width), dtype=nl.float32, buffer=nl.psum, **more)


def summed(sums, order, begins=True):
    """Return a kernel of products k of sums i in an order; `begins`: accumulate= says which do."""

    @nki.jit
    def kernel(x):
        t, tiles = nl.load(x), sums()
        for i, k in order:
            product(tiles[i], t, i, k, accumulate=k > 0 if begins else None)
        return finish(tiles)

    return kernel


def rounds(sums, steps=STEPS):
    """Return (sum, product), one sum after the other."""
    return [(i, k) for i in range(sums) for k in range(steps)]


def in_turn(sums):
    return [(i, k) for k in range(STEPS) for i in range(sums)]


def four_columns():
    return columns(psum(SUMS), 1)


def every_second():
    both = psum(64)
    return [both[:, 0::2], both[:, 1::2]]


def halves_of_the_partitions():
    both = psum(64)
    return [both[0:64, :], both[64:128, :]]


@nki.jit
def many_of_many(x):
    """Sums of so many products that the loop over them is not run to its end."""
    t = nl.load(x)
    sums = columns(nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.psum), 128)
    for i in nl.affine_range(2):
        for k in nl.affine_range(64):
            product(sums[i], t, i, k % 4, accumulate=k > 0)
    return finish(sums)


WRONG = {
    "one after another": summed(four_columns, rounds(SUMS)),
    "interleaved": summed(four_columns, in_turn(SUMS)),
    "many of many": many_of_many,
    "every second column": summed(every_second, rounds(2)),
    "at an address": summed(lambda: columns(psum(128, address=(0, 2048)), 64), rounds(2)),
}


@pytest.mark.parametrize("compute", [True, False])
@pytest.mark.parametrize("kernel", WRONG.values(), ids=WRONG)
def test_sums_that_share_a_bank_are_said_once_with_their_line(kernel, compute):
    run = launch(kernel, (X,), {}, compute=compute)
    (found,) = said(run)
    assert found.severity == "warning" and "nisa.nc_matmul(" in found.where.text
    assert "tile for each sum" in found.suggestion()


@nki.jit
def each_read_before_the_next(x):
    t = nl.load(x)
    out = nl.ndarray((128, SUMS), dtype=nl.float32, buffer=nl.shared_hbm)
    result = nl.ndarray((128, SUMS), dtype=nl.float32)
    sums = nl.ndarray((128, SUMS), dtype=nl.float32, buffer=nl.psum)
    for i in range(SUMS):
        for k in range(STEPS):
            product(sums[:, i : i + 1], t, i, k, accumulate=k > 0)
        nisa.tensor_copy(dst=result[:, i : i + 1], src=sums[:, i : i + 1])
    nisa.dma_copy(dst=out, src=result)
    return out


@nki.jit
def parts_of_one_sum(x):
    """Begun as a whole, and added to in parts."""
    t = nl.load(x)
    whole = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.psum)
    product(whole, t, 0, 0, accumulate=False)
    for k in range(1, STEPS):
        for i, part in enumerate(columns(whole, 128)):
            product(part, t, i, k, accumulate=True)
    return finish([whole])


@nki.jit
def one_place_again_and_again(x):
    """A sum that is begun anew in its place, each time after it was read."""
    t = nl.load(x)
    out = nl.ndarray((3, 128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    acc = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
    for i in range(3):
        for k in range(STEPS):
            product(acc, t, i, k, accumulate=k > 0)
        result = nl.ndarray((128, 128), dtype=nl.float32)
        nisa.tensor_copy(dst=result, src=acc)
        nisa.dma_copy(dst=out[i], src=result)
    return out


@nki.jit
def added_to_a_memset(x):
    """As attention_bwd of AWS's library does: no product begins these sums."""
    t = nl.load(x)
    whole = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    nisa.memset(whole, value=0.0)
    for k in range(STEPS):
        for i in range(4):
            product(whole[:, i * 128 : (i + 1) * 128], t, i, k)
    return finish([whole])


@nki.jit
def transposes(x):
    t = nl.load(x)
    turned = columns(nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum), 128)
    for i in range(4):
        for _ in range(2):
            nisa.nc_transpose(dst=turned[i], data=t[:, i * 128 : (i + 1) * 128])
    return finish(turned)


RIGHT = {
    "single products": summed(four_columns, rounds(SUMS, 1), begins=False),
    "one sum among single products": summed(four_columns, [(0, 0), *rounds(2)[4:], (2, 0), (3, 0)]),
    "each read before the next": each_read_before_the_next,
    "a bank for each": summed(lambda: columns(psum(4 * 512), 512), rounds(4), begins=False),
    "other partitions": summed(halves_of_the_partitions, in_turn(2)),
    "parts of one sum": parts_of_one_sum,
    "one place again and again": one_place_again_and_again,
    # as output_projection_tkg of AWS's library does
    "left to the compiler": summed(four_columns, rounds(SUMS), begins=False),
    "added to a memset": added_to_a_memset,
    "transposes": transposes,
}


@pytest.mark.parametrize("kernel", RIGHT.values(), ids=RIGHT)
def test_what_may_share_a_bank_is_not_said(kernel):
    assert not said(nkisim.run(kernel, X))


def test_in_the_older_dialect_the_compiler_begins_sums_and_places_them():
    @beta1.jit
    def kernel(x):
        out = beta1_nl.ndarray((128, 2), dtype=x.dtype, buffer=beta1_nl.shared_hbm)
        t = beta1_nl.load(x)
        sums = beta1_nl.zeros((128, 2), beta1_nl.float32, buffer=beta1_nl.psum)
        for i in beta1_nl.static_range(2):
            for k in beta1_nl.static_range(4):
                left = t[:, k * 128 : (k + 1) * 128]
                sums[:, i : i + 1] += beta1_nl.matmul(left, t[:, i : i + 1], transpose_x=True)
        beta1_nl.store(out, sums)
        return out

    assert not said(nkisim.run(kernel, X))
