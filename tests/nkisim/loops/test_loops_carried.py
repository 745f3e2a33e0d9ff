"""What an iteration leaves in a variable for the next one, in a loop inside of another."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

import nkisim

P = 128


@nki.jit
def steps(a):
    """Add 1 four times to each tile; what one step makes, the next one reads."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in range(a.shape[0]):
        y = nl.ndarray(a.shape[1:], dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=y, src=a[i])
        for _ in range(4):
            z = nl.ndarray(a.shape[1:], dtype=a.dtype, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=z, data=y, op0=nl.add, operand0=1.0)
            y = nl.ndarray(a.shape[1:], dtype=a.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=y, src=z)
        nisa.dma_copy(dst=out[i], src=y)
    return out


def test_a_variable_that_is_bound_before_an_inner_loop_and_in_it_is_followed():
    a = np.zeros((3, P, 8), np.float32)
    assert (nkisim.run(steps, a).outputs == 4).all()
    whole, timing_only = (nkisim.profile(steps, a, compute=c) for c in (True, False))
    assert timing_only.latency_us == whole.latency_us
    one, other = (p.trace.operands() for p in (whole, timing_only))
    assert (one.storage == other.storage).all()
