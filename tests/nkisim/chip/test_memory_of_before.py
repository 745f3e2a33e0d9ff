"""No value of a run comes from the memory of another one: every instruction, both dialects.

An instruction that writes only a part of its destination (a mask, indices out of range, a
predicate) leaves the rest as it was. In a new tile that is memory which nothing has written: it has
to read as such, whatever lay there before.
"""

from __future__ import annotations

from collections import Counter

import neuronxcc.nki as old
import neuronxcc.nki.isa as old_isa
import neuronxcc.nki.language as old_nl
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from neuronxcc.nki.isa import oob_mode as old_mode
from test_nki_row_matrix import Trial as NkiTrial
from test_row_matrix import SPECS, dtypes_of

import nkisim
from nkisim.chip import memory
from nkisim.errors import NkiError
from rowmatrix import masks
from rowmatrix.check import kernel_of
from rowmatrix.nki_rows import ROWS as NKI_ROWS
from rowmatrix.trial import Trial

GIVEN = np.arange(128 * 64).reshape(128, 64)
INSIDE = np.arange(128, dtype=np.uint32)[:, None]
OUTSIDE = np.where((INSIDE >= 5) & (INSIDE < 9), 1000, INSIDE).astype(np.uint32)
SKIP = nisa.oob_mode.skip


@pytest.fixture(params=[0x3B, 0x00])
def before(request, monkeypatch):
    """Let every piece of memory hold the bytes of a run before."""
    monkeypatch.setattr(memory, "room", lambda size: np.full(size, request.param, np.uint8))
    return request.param


def _out(t):
    out = nl.ndarray(t.shape, dtype=t.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, t)
    return out


@nki.jit
def copied(x, index, filled):
    rows, t = nl.load(index), nl.ndarray((128, 64), dtype=x.dtype)
    if filled:
        nisa.memset(t, 7)
    nisa.dma_copy(dst=t, src=x.ap([[64, 128], [1, 64]], vector_offset=rows), oob_mode=SKIP)
    return _out(t)


@nki.jit
def turned(x, index, filled):
    rows, t = nl.load(index), nl.ndarray((64, 128), dtype=x.dtype)
    if filled:
        nisa.memset(t, 7)
    nisa.dma_transpose(dst=t, src=x.ap([[64, 128], [1, 64]], vector_offset=rows), oob_mode=SKIP)
    return _out(t)


@old.jit
def loaded(x, index, filled):
    rows, i_f = old_nl.load(index), old_nl.arange(64)[None, :]
    t = old_nl.ndarray((128, 64), x.dtype, buffer=old_nl.sbuf)
    if filled:
        t[...] = old_isa.memset((128, 64), 7, x.dtype)
    t[...] = old_nl.load(x[rows[old_nl.arange(128)[:, None], 0], i_f], mode=old_mode.skip)
    out = old_nl.ndarray((128, 64), x.dtype, buffer=old_nl.shared_hbm)
    old_nl.store(out, t)
    return out


@old.jit
def copied_old(x, index, filled):
    rows, i_f = old_nl.load(index), old_nl.arange(64)[None, :]
    t = old_nl.ndarray((128, 64), x.dtype, buffer=old_nl.sbuf)
    if filled:
        t[...] = old_isa.memset((128, 64), 7, x.dtype)
    old_isa.dma_copy(
        dst=t[old_nl.arange(128)[:, None], i_f],
        src=x[rows[old_nl.arange(128)[:, None], 0], i_f],
        oob_mode=old_mode.skip,
    )
    out = old_nl.ndarray((128, 64), x.dtype, buffer=old_nl.shared_hbm)
    old_nl.store(out, t)
    return out


def errors(run):
    return [f.id for f in run.findings if f.severity == "error"]


@pytest.mark.parametrize("kernel", [copied, turned, loaded, copied_old], ids=lambda k: k.__name__)
@pytest.mark.parametrize("dtype", ["float32", "int32", "int16", "bfloat16"])
def test_rows_that_a_gather_skips_were_never_written(kernel, dtype, before):
    if kernel is turned and np.dtype(getattr(np, dtype, np.float16)).itemsize == 4:
        dtype = "float16"  # it moves 2-byte elements
    x = GIVEN.astype(getattr(np, dtype, np.float16))
    run = nkisim.run(kernel, x, OUTSIDE, False)
    assert errors(run) == ["NKI-U02"]
    assert "5:9" in next(f.text for f in run.findings if f.id == "NKI-U02")
    right = nkisim.run(kernel, x, OUTSIDE, True)
    want = x.copy()
    want[5:9] = 7
    assert (right.outputs == (want.T if kernel is turned else want)).all() and not errors(right)
    whole = nkisim.run(kernel, x, INSIDE, False)
    assert (whole.outputs == (x.T if kernel is turned else x)).all() and not errors(whole)


@nki.jit
def in_turn(x, index):
    outs = nl.ndarray((2, 128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(2):
        rows, t = nl.load(index[i]), nl.ndarray((128, 64), dtype=x.dtype)
        nisa.dma_copy(dst=t, src=x.ap([[64, 128], [1, 64]], vector_offset=rows), oob_mode=SKIP)
        nisa.dma_copy(dst=outs[i], src=t)
    return outs


@old.jit
def in_turn_old(x, index):
    outs = old_nl.ndarray((2, 128, 64), dtype=x.dtype, buffer=old_nl.shared_hbm)
    for i in old_nl.affine_range(2):
        rows, i_f = old_nl.load(index[i]), old_nl.arange(64)[None, :]
        t = old_nl.load(x[rows[old_nl.arange(128)[:, None], 0], i_f], mode=old_mode.skip)
        old_nl.store(outs[i], t)
    return outs


@pytest.mark.parametrize("kernel", [in_turn, in_turn_old])
def test_skipped_rows_in_a_loop(kernel, before):
    """The second iteration's tile holds nothing of the first one's."""
    run = nkisim.run(kernel, GIVEN.astype(np.float32), np.stack([INSIDE, OUTSIDE]))
    assert errors(run) == ["NKI-U02"] and np.isnan(run.outputs[1, 5:9]).all()
    assert (run.outputs[0] == GIVEN).all()


# -- what a gather reads ---------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, 64, 128])
def test_a_gather_from_memory_that_was_not_wholly_written(rows):
    @nki.jit
    def kernel(x, index):
        rows_at, h = nl.load(index), nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.hbm)
        if rows:
            nisa.dma_copy(dst=h[0:rows], src=x[0:rows])
        t = nl.ndarray((128, 64), dtype=x.dtype)
        nisa.dma_copy(dst=t, src=h.ap([[64, 128], [1, 64]], vector_offset=rows_at))
        return _out(t)

    x = GIVEN.astype(np.float32)
    if not rows:
        with pytest.raises(NkiError, match="NKI-U01"):
            nkisim.run(kernel, x, INSIDE)
        return
    assert errors(nkisim.run(kernel, x, INSIDE)) == (["NKI-U02"] if rows == 64 else [])
    assert errors(nkisim.run(kernel, x, INSIDE // 2)) == []


def test_a_gather_waits_for_what_has_written_its_rows():
    @nki.jit
    def kernel(x, index, waits):
        rows = nl.load(index)
        h, other = (nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.hbm) for _ in range(2))
        nisa.dma_copy(dst=other, src=x)
        t = nl.load(x)
        for _ in range(40):
            nisa.activation(dst=t, op=nl.exp, data=t)
        nisa.dma_copy(dst=h, src=t)
        got = nl.ndarray((128, 64), dtype=x.dtype)
        nisa.dma_copy(
            dst=got, src=(h if waits else other).ap([[64, 128], [1, 64]], vector_offset=rows)
        )
        return _out(got), _out(t)

    x = np.full((128, 64), -9.0, np.float32)
    waits, free = (nkisim.profile(kernel, x, INSIDE, w).latency_us for w in (True, False))
    assert waits > free


# -- transposing transfers -------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [2**32 - 1, 128])
def test_a_transposing_gather_checks_its_indices(bad):
    @nki.jit
    def kernel(x, index):
        rows, t = nl.load(index), nl.ndarray((64, 128), dtype=x.dtype)
        nisa.dma_transpose(dst=t, src=x.ap([[64, 128], [1, 64]], vector_offset=rows))
        return _out(t)

    x = GIVEN.astype(np.float16)
    index = INSIDE.copy()
    assert (nkisim.simulate(kernel, x, index) == x.T).all()
    index[17] = bad
    with pytest.raises(IndexError, match="out of bounds"):
        nkisim.simulate(kernel, x, index)


# -- every row -------------------------------------------------------------------------------------


def _values(kernel, arrays, target):
    try:
        out = nkisim.run(kernel, *(a.copy() for a in arrays), target=target).outputs
    except NkiError as exc:  # what is not documented may be refused
        return exc.id
    return [
        np.ascontiguousarray(x).view(np.uint8) for x in (out if isinstance(out, tuple) else (out,))
    ]


def _alike(kernel, arrays, target, monkeypatch):
    """Return whether a kernel gives the same bytes after two other runs."""
    got = []
    for byte in (0x3B, 0xC2):
        monkeypatch.setattr(memory, "room", lambda size, byte=byte: np.full(size, byte, np.uint8))
        got.append(_values(kernel, arrays, target))
    return (
        got[0] == got[1]
        if isinstance(got[0], str) or isinstance(got[1], str)
        else all((a == b).all() for a, b in zip(*got, strict=True))
    )


@pytest.mark.sample(8)
@pytest.mark.parametrize("spec", SPECS, ids=lambda s: s.name + "-" + "-".join(s.grids))
def test_no_row_shows_what_lay_there_before(spec, monkeypatch):
    for mask in spec.masks:
        for rank, grid in spec.grids.items():
            case = masks.of(mask, spec.domain(grid) or (1, 1), spec.step, spec.low)
            if case is None:
                continue
            dtype = dtypes_of(spec)[0]
            fitting = [s for s in spec.samples if s.fits(dtype)]
            for turn in range(2):
                trial = Trial(spec, fitting[turn % len(fitting)], grid, case, dtype, 3 * turn)
                # its result is a new tile; under a mask of a loop it cannot be the call's value
                trial.assigned = case.always is not None
                expected = trial.expected()
                given = {
                    **trial.arrays,
                    **{
                        n: np.zeros(e.value.shape, e.value.dtype)
                        for n, e in expected.items()
                        if n not in trial.arrays
                    },
                }
                kernel = kernel_of(trial, list(given), expected)
                assert _alike(kernel, list(given.values()), spec.target, monkeypatch), (
                    f"{trial} {rank}"
                )


@pytest.mark.sample(8)
@pytest.mark.parametrize("row", NKI_ROWS, ids=lambda r: r.id)
def test_no_row_of_the_newer_dialect_does(row, monkeypatch):
    for grid in row.grids.values():
        for turn, sample in enumerate(row.samples):
            trial = NkiTrial(row, sample, grid, row.dtypes[0], "cut", turn)
            trial.fresh = True
            assert _alike(
                trial.kernel(Counter()), list(trial.arrays.values()), row.target, monkeypatch
            ), str(trial)
