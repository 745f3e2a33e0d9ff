"""What is written in part keeps the rest: who reads the tile waits for both that wrote it."""

from __future__ import annotations

import neuronxcc.nki as beta1
import neuronxcc.nki.isa as beta1_isa
import neuronxcc.nki.language as beta1_nl
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim

P, F = 128, 2048
X = np.ones((P, F), np.float32)


def kernel_beta1(write):
    """Return a kernel that computes a tile, writes into it by `write`, and stores it."""

    @beta1.jit
    def kernel(x):
        out = beta1_nl.ndarray(x.shape, dtype=x.dtype, buffer=beta1_nl.shared_hbm)
        t = beta1_nl.load(x)
        for _ in range(8):
            t[...] = beta1_isa.activation(op=beta1_nl.copy, data=t, scale=0.5)
        write(t, x)
        beta1_nl.store(out, t)
        return out

    return kernel


def kernel_nki(write):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x)
        for _ in range(8):
            nisa.activation(dst=t, op=nl.copy, data=t, scale=0.5)
        write(t, x)
        nisa.dma_copy(dst=out, src=t)
        return out

    return kernel


def nothing(t, x):
    """Leave the tile as it is."""


def masked_constant(t, x):
    i, f = beta1_nl.arange(P)[:, None], beta1_nl.arange(F)[None, :]
    t[i, f] = beta1_isa.memset((P, F), 3.0, np.float32, mask=(i + f < 9))


def masked_load(t, x):
    i, f = beta1_nl.arange(P)[:, None], beta1_nl.arange(F)[None, :]
    t[i, f] = beta1_nl.load(x[i, f], mask=(i + f < 9))


def skipping_load(t, x):
    far = beta1_isa.memset((P, 1), 10 * P, np.int32)
    t[...] = beta1_nl.load(x[far, beta1_nl.arange(F)[None, :]], mode=beta1_isa.oob_mode.skip)


def scattered_row(t, x):
    at = beta1_isa.iota(beta1_nl.arange(1)[:, None] + 5, dtype=beta1_nl.int32)
    beta1_isa.dma_copy(dst=t[at, beta1_nl.arange(F)[None, :]], src=x[5:6])


def skipping_copy(t, x):
    far = nl.ndarray((P, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(dst=far, value=10 * P)
    nisa.dma_copy(
        dst=t,
        src=x.ap([[F, P], [1, F]], vector_offset=far, indirect_dim=0),
        oob_mode=nisa.oob_mode.skip,
    )


@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize(
    ("kernel", "write"),
    [
        (kernel_beta1, masked_constant),
        (kernel_beta1, masked_load),
        (kernel_beta1, skipping_load),
        (kernel_beta1, scattered_row),
        (kernel_nki, skipping_copy),
    ],
)
def test_who_reads_a_tile_waits_for_what_was_kept_in_it(kernel, write, target):
    alone, more = (nkisim.profile(kernel(w), X, target=target) for w in (nothing, write))
    assert (more.outputs == 0.5**8).sum() >= X.size - F  # most of the tile is kept
    assert more.body_us >= alone.body_us


def test_loads_of_other_elements_are_not_one_load():
    """Two masked loads that differ by their masks are both done."""

    @beta1.jit
    def kernel(x):
        out = beta1_nl.ndarray((2, P, F), dtype=x.dtype, buffer=beta1_nl.shared_hbm)
        i, f = beta1_nl.arange(P)[:, None], beta1_nl.arange(F)[None, :]
        for n in range(2):
            t = beta1_nl.zeros((P, F), x.dtype)
            t[i, f] = beta1_nl.load(x[i, f], mask=(i + f < 9 + n))
            beta1_nl.store(out[n], t)
        return out

    prof = nkisim.profile(kernel, X, target="trn2")
    done = prof.schedule.trace
    assert sum(n for k, n in done.counts().items() if done.op_specs[k].engine == "dma") == 4


# -- accumulator registers: who reads a sum out waits for all of it --------------------------------

BLOCKS = 8
WIDE = np.ones((P, BLOCKS * F), np.float32)


def summed_by(add, read):
    """Return a kernel that adds up blocks in the registers, and reads them out at the end."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((P, 1), dtype=x.dtype, buffer=nl.shared_hbm)
        total = nl.ndarray((P, 1), dtype=x.dtype, buffer=nl.sbuf)
        for b in range(BLOCKS):
            t = nl.ndarray((P, F), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=t, src=x[:, b * F : (b + 1) * F])
            last = b + 1 == BLOCKS and not read
            add(
                t,
                nisa.reduce_cmd.reduce if b else nisa.reduce_cmd.reset_reduce,
                total if last else None,
            )
        if read:
            none = nl.ndarray((P, 1), dtype=x.dtype, buffer=nl.sbuf)
            nisa.memset(dst=none, value=0.0)
            add(none, nisa.reduce_cmd.reduce, total)
        nisa.dma_copy(dst=out, src=total)
        return out

    return kernel


def on_scalar(t, cmd, total):
    nisa.activation(dst=t, op=nl.copy, data=t, reduce_op=nl.add, reduce_cmd=cmd, reduce_res=total)


def on_vector(t, cmd, total):
    nisa.tensor_scalar_reduce(
        dst=t,
        data=t,
        op0=nl.multiply,
        operand0=1.0,
        reduce_op=nl.add,
        reduce_cmd=cmd,
        reduce_res=total,
    )


@pytest.mark.parametrize("add", [on_scalar, on_vector])
def test_a_sum_that_is_read_out_by_another_instruction_is_waited_for(add):
    at_once, later = (
        nkisim.profile(summed_by(add, read), WIDE, target="trn2") for read in (False, True)
    )
    assert (at_once.outputs == BLOCKS * F).all() and (later.outputs == BLOCKS * F).all()
    assert later.body_us >= at_once.body_us


def test_sums_that_begin_by_themselves_wait_for_none():
    """A twin: each instruction resets the registers, so what is ready goes first."""
    prof = nkisim.profile(
        summed_by(lambda t, cmd, total: on_scalar(t, nisa.reduce_cmd.reset_reduce, total), False),
        WIDE,
        target="trn2",
    )
    forms = [k.variant.registers for k in prof.trace.op_specs if k.row.name == "activation"]
    assert set(forms) == {1}
