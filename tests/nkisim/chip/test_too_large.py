"""Numbers beyond what the chip has bits or memory for: refused by a rule, with the user's line."""

from __future__ import annotations

import neuronxcc.nki as beta1
import neuronxcc.nki.isa as old_isa
import neuronxcc.nki.language as old
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim

X = np.ones((128, 4), np.float32)
HUGE = 1 << 70

BETA1 = {
    "a stride of an index": ("NKI-D03", lambda x, t, p, f: old.store(x[p, f * HUGE], t[p, f])),
    "a stride of a partition": ("NKI-D03", lambda x, t, p, f: old.store(x[p * HUGE, f], t[p, f])),
    "an offset": ("NKI-D03", lambda x, t, p, f: old.store(x[p, f + HUGE], t[p, f])),
    "under a mask": (
        "NKI-D03",
        lambda x, t, p, f: old.store(x[p, f * HUGE], t[p, f], mask=f * HUGE < 4),
    ),
    "iota": ("NKI-D03", lambda x, t, p, f: old_isa.iota(f * HUGE, dtype=old.int32)),
    "memset": (
        "NKI-D03",
        lambda x, t, p, f: old.store(x, old_isa.memset(X.shape, HUGE, old.int32)),
    ),
    "a subscript": ("NKI-I01", lambda x, t, p, f: t[0:1, HUGE]),
    "a tensor": ("NKI-M11", lambda x, t, p, f: old.ndarray((1 << 62, 4), x.dtype, buffer=old.hbm)),
    "no shape": ("NKI-S06", lambda x, t, p, f: old.zeros(None, x.dtype, buffer=old.sbuf)),
    "no shape of full": ("NKI-S06", lambda x, t, p, f: old.full(None, 1.0, x.dtype)),
    "no shape of rand": ("NKI-S06", lambda x, t, p, f: old.rand(None)),
}

NKI = {
    "memset": ("NKI-D03", lambda x, t, i: nisa.memset(i, 1 << 40)),
    "a float of memset": ("NKI-D03", lambda x, t, i: nisa.memset(t, 10**400)),
    "a constant": (
        "NKI-D03",
        lambda x, t, i: nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=10**400),
    ),
    "iota": ("NKI-D03", lambda x, t, i: nisa.iota(dst=i, pattern=[[HUGE, 4]], offset=0)),
    "where iota begins": (
        "NKI-D03",
        lambda x, t, i: nisa.iota(dst=i, pattern=[[1, 4]], offset=HUGE),
    ),
    "affine_select": (
        "NKI-D03",
        lambda x, t, i: nisa.affine_select(
            dst=t,
            pattern=[[1, 4]],
            offset=HUGE,
            channel_multiplier=0,
            on_true_tile=t,
            on_false_value=0.0,
        ),
    ),
    "a stride of a pattern": (
        "NKI-D03",
        lambda x, t, i: nisa.dma_copy(dst=t[0:1, 0:1], src=x.ap([[4, 1], [HUGE, 1]])),
    ),
    "a subscript": ("NKI-I01", lambda x, t, i: t[0:1, HUGE]),
    "a tensor": (
        "NKI-M11",
        lambda x, t, i: nl.ndarray((1 << 62, 4), dtype=x.dtype, buffer=nl.shared_hbm),
    ),
    "no shape": ("NKI-S06", lambda x, t, i: nl.zeros(None, dtype=x.dtype, buffer=nl.sbuf)),
    "no shape of ndarray": (
        "NKI-S06",
        lambda x, t, i: nl.ndarray(None, dtype=x.dtype, buffer=nl.sbuf),
    ),
    "a number for a shape": (
        "NKI-P02",
        lambda x, t, i: nl.ndarray(128, dtype=x.dtype, buffer=nl.sbuf),
    ),
}


def refused(kernel) -> nkisim.NkiError:
    with pytest.raises(nkisim.NkiError) as caught:
        nkisim.run(kernel, X, target="trn2")
    error = caught.value
    assert error.where is not None and error.where.file == __file__
    assert error.limit and error.given and error.hint
    assert "C long" not in str(error) and "NoneType" not in str(error)
    return error


@pytest.mark.parametrize("case", BETA1)
def test_in_neuronxcc(case):
    id, call = BETA1[case]

    @beta1.jit
    def kernel(x):
        out = old.ndarray(x.shape, dtype=x.dtype, buffer=old.shared_hbm)
        t = old.load(x)
        call(out, t, old.arange(1)[:, None], old.arange(4)[None, :])
        old.store(out, t)
        return out

    assert refused(kernel).id == id


@pytest.mark.parametrize("case", NKI)
def test_in_nki(case):
    id, call = NKI[case]

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        i = nl.ndarray(x.shape, dtype=nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x)
        call(x, t, i)
        nisa.dma_copy(dst=out, src=t)
        return out

    assert refused(kernel).id == id


def test_in_what_is_executed_last():
    """It runs when the kernel has returned: there is no line of the user's then but its own."""

    @beta1.jit
    def kernel(x):
        far = old.arange(4)[:, None] * (1 << 60) * (1 << 60)
        old.load(x[far, old.arange(4)[None, :]])

    error = refused(kernel)
    assert error.id == "NKI-D03" and "old.load" in error.where.text
    assert "_run_instances" not in str(error)


@nki.jit
def large_and_right(x):
    """What is large and still means something: a step of a slice of one, all bits of a word."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    bits = nl.ndarray(x.shape, dtype=nl.uint32, buffer=nl.sbuf)
    nl.ndarray((1 << 20, 1 << 12), dtype=x.dtype, buffer=nl.private_hbm)
    nisa.memset(bits, 0xFFFFFFFF)
    nisa.memset(t, 1 << 40)
    nisa.dma_copy(dst=t[0:1, 0:1:HUGE], src=x[0:1, 0:1])
    nisa.dma_copy(dst=out, src=t)
    return out


def test_what_has_room_runs():
    out = nkisim.simulate(large_and_right, X, target="trn2")
    assert out[0, 0] == 1 and (out[1:] == 2.0**40).all()
