"""What has to wait does: forms of kernels that made the model forget a dependency or a byte.

Each is a twin of a plain kernel that computes the same, and is predicted no faster.
"""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nkisim
from nkisim.trace.trace import Pattern


def tile(*shape, buffer=nl.sbuf, **more):
    return nl.ndarray(shape, dtype=nl.float32, buffer=buffer, **more)


def load(x):
    t = tile(*x.shape)
    nisa.dma_copy(dst=t, src=x)
    return t


def ones(*shape):
    return np.ones(shape, np.float32)


def us(body, *arrays):
    """Return the predicted time of a kernel with this body, which gets the arrays and `out`."""

    def kernel(*inputs):
        out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        body(out, *inputs)
        return out

    names = ", ".join(f"x{i}" for i in range(len(arrays)))  # a kernel has named parameters
    scope = {"kernel": kernel}
    exec(f"def named({names}):\n    return kernel({names})\n", scope)
    prof = nkisim.profile(nki.jit(scope["named"]), *arrays, target="trn2", compute=False)
    return prof.latency_us


@given(st.data())
def test_a_pattern_fills_a_partition_if_it_has_each_element_once(data):
    dims = data.draw(st.lists(st.tuples(st.integers(1, 4), st.integers(-6, 6)), max_size=3))
    pattern = Pattern(
        "sbuf", np.dtype(np.float32), (128, *(n for n, _ in dims)), (64, *(4 * s for _, s in dims))
    )
    at = [0]
    for n, step in dims:
        at = [place + k * step for place in at for k in range(n)]
    whole = len({*at}) == len(at) == max(at) - min(at) + 1
    assert pattern.fills() <= whole  # a dim of one element may have any step but 0
    assert pattern.fills() or not whole or any(step == 0 for _, step in dims)


def test_a_pattern_that_meets_itself_overwrites_no_tile():
    """It has as many elements as its span, and a hole, in which there is what is stored."""
    b = 17
    n, h = 2 * b * b, 2 * b - 1

    def hole(out, x):
        t = tile(128, n)
        nisa.dma_copy(dst=t[:, h : h + 512], src=x)
        steps = [[n, 128], [2 * b * b - 2 * b + 1, 2], [1, b], [1, b]]
        nisa.memset(t.ap(pattern=steps), 0.0, engine=nisa.engine.gpsimd)
        nisa.dma_copy(dst=out, src=t[:, h : h + 512])

    def plain(out, x):
        nisa.dma_copy(dst=out, src=load(x))

    assert us(hole, ones(128, 512)) >= us(plain, ones(128, 512))


@pytest.mark.parametrize("places", [(0, 256), (0, 0, 256)], ids=["halves", "one twice"])
def test_who_reads_a_part_of_a_sum_waits_for_all_of_it(places):
    """The product that comes last in the program has its operands first."""

    def summed(order, reads):
        def body(out, x, y):
            acc, junk, t = tile(128, 512, buffer=nl.psum), tile(128, 512, buffer=nl.psum), None
            t = tile(128, 512)
            xs = [load(x[k * 128 : k * 128 + 128]) for k in range(8)]
            ys = [load(y[k * 128 : k * 128 + 128]) for k in range(8)]
            nisa.nc_matmul(dst=junk, stationary=xs[0], moving=ys[0])
            for k in order:
                nisa.nc_matmul(dst=acc, stationary=xs[k], moving=ys[k])
            for at in reads:
                nisa.tensor_copy(dst=t[:, at : at + 256], src=acc[:, at : at + 256])
            nisa.dma_copy(dst=out, src=t)

        return us(body, ones(1024, 128), ones(1024, 512))

    assert summed([*range(1, 8), 0], places) >= 0.99 * summed(range(8), places)


@pytest.mark.parametrize("addresses", [True, False])
def test_a_tile_is_overwritten_after_all_that_read_it(addresses):
    """One more reader, which an engine may do first, is not the one to wait for."""

    def body(more):
        def kernel(out, x, y):
            at = (lambda i: {"address": (0, i * 2048)}) if addresses else (lambda i: {})
            t, z, r, s = (tile(128, 512, **at(i)) for i in range(4))
            nisa.dma_copy(dst=t, src=x)
            nisa.dma_copy(dst=z, src=y)
            for _ in range(8):
                nisa.tensor_scalar(
                    dst=z, data=z, op0=nl.multiply, operand0=1.0, engine=nisa.engine.gpsimd
                )
            nisa.tensor_tensor(dst=r, data1=t, data2=z, op=nl.add, engine=nisa.engine.vector)
            for columns in (8, 512)[: 2 * more]:
                nisa.tensor_scalar(
                    dst=s[:, 0:columns], data=t[:, 0:columns], op0=nl.multiply, operand0=2.0,
                    engine=nisa.engine.vector,
                )  # fmt: skip
            nisa.memset(t, 0.0, engine=nisa.engine.gpsimd)
            for _ in range(8):
                nisa.tensor_scalar(
                    dst=t, data=t, op0=nl.add, operand0=1.0, engine=nisa.engine.gpsimd
                )
            nisa.tensor_tensor(dst=r, data1=r, data2=t, op=nl.add)
            nisa.dma_copy(dst=out, src=r)

        return us(kernel, ones(128, 512), ones(128, 512))

    assert body(True) >= 0.99 * body(False)


def test_placed_tiles_and_others_share_one_sbuf():
    """Twice the bytes of SBUF, half of them at addresses, take as long as if all were automatic."""

    def two_passes(placed):
        def body(out, x):
            where = [{"address": (0, k * 16384)} if placed else {} for k in range(8)]
            first = [tile(128, 4096, **more) for more in where]
            tiles = [*first, *(tile(128, 4096) for _ in range(8))]
            total = tile(128, 16)
            for k, t in enumerate(tiles):
                nisa.dma_copy(dst=t, src=x[:, k * 4096 : k * 4096 + 4096])
                nisa.tensor_reduce(dst=total[:, k : k + 1], op=nl.add, data=t, axis=1)
            for t in tiles:
                nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=total[:, 0:1])
                nisa.dma_copy(dst=out, src=t[:, 0:512])

        return us(body, ones(128, 65536))

    assert two_passes(True) > 0.95 * two_passes(False)
