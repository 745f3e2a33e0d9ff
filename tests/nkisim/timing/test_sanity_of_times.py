"""What must hold of predicted times whatever the constants are: order only, no times.

Small random kernels of loads, arithmetic on two engines and stores.
"""

from __future__ import annotations

import random

import neuronxcc.nki as beta1
import neuronxcc.nki.isa as beta1_isa
import neuronxcc.nki.language as beta1_language
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim

TILES, WIDTH = 4, 512
HARDLY = 0.01  # of the time: an instruction more may change the order of others by so much
#: (what, tile written, tile or block read, tile read)
Op = tuple[str, int, int, int]


def chain(rng: random.Random, kinds=("load", "add", "scale", "store")) -> list[Op]:
    """Return random instructions on tiles 0 to 3."""
    return [
        (rng.choice(kinds), *(rng.randrange(TILES) for _ in range(3)))
        for _ in range(rng.randrange(3, 12))
    ]


def kernel(ops: list[Op], rows: int = 128, times: int = 1):
    """Return a kernel of such instructions, over and over; tile 4 is of no use to the others."""

    @nki.jit
    def made(x):
        out = nl.ndarray((TILES * rows, WIDTH), dtype=x.dtype, buffer=nl.shared_hbm)
        tiles = [nl.ndarray((rows, WIDTH), dtype=x.dtype, buffer=nl.sbuf) for _ in range(TILES + 1)]
        for tile in tiles:
            nisa.memset(dst=tile, value=1.0)
        for _ in range(times):
            for what, to, one, other in ops:
                there = slice(one * rows, (one + 1) * rows)
                if what == "load":
                    nisa.dma_copy(dst=tiles[to], src=x[there])
                elif what == "store":
                    nisa.dma_copy(dst=out[there], src=tiles[to])
                elif what == "add":
                    nisa.tensor_tensor(
                        dst=tiles[to], data1=tiles[one], data2=tiles[other], op=nl.add
                    )
                else:
                    nisa.tensor_scalar(
                        dst=tiles[to], data=tiles[one], op0=nl.multiply, operand0=2.0
                    )
        for n in range(TILES):
            nisa.dma_copy(dst=out[n * rows : (n + 1) * rows], src=tiles[n])
        return out

    return made


def us(ops: list[Op], rows: int = 128, times: int = 1) -> float:
    x = np.ones((TILES * rows, WIDTH), np.float32)
    return nkisim.profile(kernel(ops, rows, times), x, target="trn2", compute=False).body_us


@pytest.mark.parametrize("seed", range(12))
def test_one_more_instruction_never_makes_a_kernel_faster(seed):
    """It uses what is there, and nothing uses what it makes: so it breaks no other chain."""
    rng = random.Random(seed)
    ops = chain(rng)
    before = us(ops)
    for what in ("load", "add", "scale"):
        more = list(ops)
        more.insert(
            rng.randrange(len(ops) + 1), (what, TILES, rng.randrange(TILES), rng.randrange(TILES))
        )
        assert us(more) >= before * (1 - HARDLY)


@pytest.mark.parametrize("seed", range(4))
def test_a_partition_more_is_never_faster(seed):
    ops = chain(random.Random(100 + seed))
    for rows in (32, 64, 96):
        assert us(ops, rows + 1) >= us(ops, rows)


@pytest.mark.parametrize("seed", range(4))
def test_twice_the_work_takes_longer_and_no_more_than_twice_as_long(seed):
    ops = chain(random.Random(200 + seed))
    once, twice = us(ops), us(ops, times=2)
    assert once <= twice <= 2 * once * (1 + HARDLY)


def stream(loop):
    """Return a kernel of twelve independent tiles, in a loop of `loop`."""

    @nki.jit
    def made(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for n in loop(12):
            tile = nl.ndarray((128, WIDTH), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[n * 128 : (n + 1) * 128])
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
            nisa.dma_copy(dst=out[n * 128 : (n + 1) * 128], src=tile)
        return out

    return made


def in_order(order):
    """Return a kernel of the same tiles by hand, in an order."""
    return stream(lambda count: order)


X = np.ones((12 * 128, WIDTH), np.float32)


def stream_us(made) -> float:
    return nkisim.profile(made, X, target="trn2", compute=False).body_us


def test_a_loop_unrolled_by_hand_takes_as_long():
    assert stream_us(stream(range)) == pytest.approx(stream_us(stream(nl.affine_range)), rel=HARDLY)


def test_the_order_of_independent_tiles_is_no_matter():
    order = list(range(12))
    random.Random(1).shuffle(order)
    assert stream_us(in_order(order)) == pytest.approx(stream_us(stream(range)), rel=HARDLY)


@beta1.jit
def beta1_stream(x):
    out = beta1_language.ndarray(x.shape, dtype=x.dtype, buffer=beta1_language.shared_hbm)
    for n in range(12):
        tile = beta1_language.load(x[n * 128 : (n + 1) * 128])
        tile = beta1_isa.tensor_scalar(tile, np.add, 1.0)
        beta1_language.store(out[n * 128 : (n + 1) * 128], tile)
    return out


def test_both_dialects_take_the_same_time_for_the_same_instructions():
    on = ("engines", "rename", "reorder", "late-loads")
    one, other = (
        nkisim.profile(made, X, target="trn2", compute=False, compiler=on).body_us
        for made in (beta1_stream, stream(range))
    )
    assert one == pytest.approx(other, rel=HARDLY)
