"""Calls with arguments that fit by chance: what is refused is refused in a sentence of ours."""

from __future__ import annotations

import neuronxcc.nki as old
import neuronxcc.nki.isa as old_isa
import neuronxcc.nki.language as old_nl
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.errors import NkiError
from random_calls import INDEX, Call, X, internal, names

SEEDS = 8


@pytest.mark.parametrize("dialect, name", [(d, n) for d in ("nki", "beta1") for n in names(d)])
def test_no_call_ends_in_an_error_from_inside(dialect, name, request):
    seeds = 100 if request.config.getoption("--full") else SEEDS
    bad = []
    for seed in range(seeds):
        call = Call(dialect, name, seed)
        if internal(exc := call.run()):
            bad.append(f"{call}\n  {type(exc).__name__}: {exc}")
    assert not bad, "\n".join(bad)


def test_an_error_from_inside_would_be_found(monkeypatch):
    def broken(*args, **kwargs):
        raise ZeroDivisionError

    monkeypatch.setattr(nkisim, "run", broken)
    assert internal(Call("nki", "nisa.memset", 0).run())
    assert not internal(NkiError("NKI-X01", "nisa.memset was not given what it takes"))


# -- those that it has found -----------------------------------------------------------------------


def rows(x, index):
    i_p, i_f = old_nl.arange(128)[:, None], old_nl.arange(64)[None, :]
    return x[old_nl.load(index)[i_p, 0], i_f]


BROKEN = {
    "a reduction that the registers do not have": (
        "NKI-E06",
        "nki",
        lambda x, t, i: nisa.tensor_scalar_reduce(
            t, t, nl.add, 1.0, nl.less, nl.ndarray((128, 1), nl.float32)
        ),
    ),
    "bits of floats across partitions": (
        "NKI-D06",
        "beta1",
        lambda x, t, i: old_isa.tensor_partition_reduce(old_nl.bitwise_and, t),
    ),
    "fewer than 8 elements left by a mask": (
        "NKI-P08",
        "beta1",
        lambda x, t, i: old_isa.max8(src=t, mask=old_nl.arange(64)[None, :] < 3),
    ),
    "a mask over other elements": (
        "NKI-I07",
        "beta1",
        lambda x, t, i: old_nl.exp(
            t, mask=old_nl.arange(100)[:, None] >= old_nl.arange(7)[None, :]
        ),
    ),
    "a predicate over other elements": (
        "NKI-I07",
        "beta1",
        lambda x, t, i: old_isa.affine_select(
            pred=old_nl.arange(100)[:, None] >= old_nl.arange(7)[None, :],
            on_true_tile=t,
            on_false_value=0.0,
        ),
    ),
    "one number into a tile by DMA": (
        "NKI-S01",
        "beta1",
        lambda x, t, i: old_isa.dma_copy(dst=t, src=x[3, 4]),
    ),
    "a shuffle by a number": ("NKI-S13", "nki", lambda x, t, i: nisa.nc_stream_shuffle(t, t, 3)),
    "rows that do not fit where they go": (
        "NKI-S01",
        "nki",
        lambda x, t, i: nisa.dma_copy(
            dst=x.ap([[64, 128], [1, 64]], vector_offset=nl.load(i)), src=t[:, 0:3]
        ),
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_mistake_has_a_rule(what):
    rule, dialect, call = BROKEN[what]

    def kernel(x, index):
        lang = nl if dialect == "nki" else old_nl
        call(x, lang.load(x), index)
        return x

    with pytest.raises(NkiError) as caught:
        nkisim.run((nki if dialect == "nki" else old).jit(kernel), X, INDEX)
    assert caught.value.id == rule and "broadcast together" not in str(caught.value)


def test_a_number_is_stored_where_an_index_tile_says():
    @old.jit
    def kernel(x, index):
        out = old_nl.ndarray((128, 64), dtype=x.dtype, buffer=old_nl.shared_hbm)
        old_nl.store(out, old_nl.load(x))
        i_p, i_f = old_nl.arange(128)[:, None], old_nl.arange(64)[None, :]
        old_nl.store(out[old_nl.load(index)[i_p, 0], i_f], -3.0)
        return out

    want = X.copy()
    want[::2] = -3
    assert (nkisim.simulate(kernel, X, INDEX // 2 * 2) == want).all()


def test_dma_compute_into_rows_that_nothing_has_set():
    """It adds to them: undefined, and so are the others; it was a TypeError of Python."""

    @nki.jit
    def kernel(x, index):
        t, rows = nl.load(x), nl.load(index)
        out = nl.ndarray((256, 64), dtype=x.dtype, buffer=nl.shared_hbm)
        if SET:
            nisa.dma_copy(out[0:128], x)
            nisa.dma_copy(out[128:256], x)
        chosen = out.ap([[64, 128], [1, 64]], vector_offset=rows)
        nisa.dma_compute(chosen, [t, chosen], nl.add)
        return out

    SET = False
    found = {f.id for f in nkisim.run(kernel, X, INDEX).findings}
    assert "NKI-U02" in found
    SET = True
    right = nkisim.run(kernel, X, INDEX)
    assert not right.findings and (right.outputs == np.concatenate([2 * X, X])).all()
