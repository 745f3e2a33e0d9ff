"""What registers and loops of the chip cost: no instruction shows it, and it takes time."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim

#: of a 0.96 GHz clock: a copy whose start is data takes 600 cycles, an instruction 64
LOAD, STEP = 600 / 960, 64 / 960


def copied(between):
    """Return a kernel that copies a row, and does something with its first element meanwhile."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x)
        between(x, t)
        nisa.dma_copy(dst=out, src=t)
        return out

    return kernel


def us(between, first=5):
    x = np.full((1, 8), first, np.int32)
    prof = nkisim.profile(copied(between), x, target="trn2")
    assert np.array_equal(prof.outputs, x)
    return prof.latency_us


def load(x, t):
    register = nisa.register_alloc()
    nisa.register_load(register, t[0:1, 0:1])
    return register


def nothing(x, t):
    return None


def test_a_number_in_a_register_has_a_way_to_go():
    assert us(load) - us(nothing) == pytest.approx(LOAD)
    assert us(lambda x, t: nisa.scalar_load(t[0:1, 0:1])) - us(nothing) == pytest.approx(LOAD)
    assert us(lambda x, t: [load(x, t) for _ in range(4)]) - us(nothing) == pytest.approx(4 * LOAD)
    hbm = us(lambda x, t: nisa.register_load(nisa.register_alloc(), x[0:1, 0:1])) - us(nothing)
    assert hbm == pytest.approx(LOAD + 1.1 + 0.35 + 0.45)  # and the way of a DMA


@pytest.mark.parametrize("count", [0, 1, 900])
def test_an_empty_loop_of_the_chip_takes_time(count):
    """Its length is a number of the input: to count it is to read it."""

    def loop(x, t):
        nl.fori_loop(0, nisa.scalar_load(t[0:1, 0:1]), lambda i: None)

    assert us(loop, count) - us(nothing) == pytest.approx(LOAD + count * STEP)


def test_a_loop_of_the_chip_that_is_known_pays_its_branches_and_python_has_none():
    assert us(lambda x, t: nl.fori_loop(0, 100, lambda i: None)) - us(nothing) == pytest.approx(
        100 * STEP
    )
    assert us(lambda x, t: [None for _ in range(100)]) == us(nothing)
    assert us(lambda x, t: nisa.register_alloc(7)) == us(nothing)
