"""What the compiler may do: each option by itself, and nothing that changes what is computed."""

from __future__ import annotations

from collections import Counter

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import model_kernels as kernels
import nkisim
from model_kernels import ones
from nkisim import NkiError
from nkisim.chip import hw
from nkisim.simulation.launch import launch
from nkisim.timing.compiler import DEFAULT, OPTIONS, options, rewrite


@nki.jit
def rows_times_weights(a, w):
    """The same weights loaded in every iteration, into the same tile as something else."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(a.shape[1] // 64):
        at = slice(i * 64, (i + 1) * 64)
        t[...] = nl.load(w)
        half = nl.multiply(t, 0.5)
        t[...] = nl.load(a[:, at])
        nl.store(out[:, at], nl.multiply(t, half))
    return out


def predict(kernel, *args, **kwargs):
    return nkisim.profile(kernel, *args, compute=False, **{"target": "trn1", **kwargs})


def values(trace, inputs):
    """Return, for every byte of HBM, what was computed for it: a number per expression."""
    known: dict = {}
    memory = []
    for s in trace.storages:
        size = s.nparts * s.row_bytes
        if s.readonly:
            memory.append(np.arange(size) + 10**12 * (s.id + 1))
        else:
            memory.append(np.full(size, -1))
    for kind, _, _, operands in trace:
        views = [
            np.ndarray(
                (*p.shape, p.dtype.itemsize),
                np.int64,
                memory[s],
                8 * offset,
                (*(8 * n for n in p.strides), 8),
            )
            for p, (s, offset) in zip(kind.operands, operands)
        ]
        outs, srcs = views[: kind.outputs], views[kind.outputs :]
        if kind.engine == "dma":
            for out, src in zip(outs, [s.copy() for s in srcs]):
                out[...] = src.reshape(out.shape)
            continue
        read = tuple(v.tobytes() for v in srcs)
        for n, out in enumerate(outs):
            out[...] = known.setdefault((kind.row.name, kind.variant, read, n), len(known))
    return [memory[s.id] for s in trace.storages if s.memory == "hbm" and not s.readonly]


CASES = {
    "add": (kernels.add(4), (ones(128 * 64), ones(128 * 64))),
    "weights": (rows_times_weights, (ones(128, 1024), ones(128, 64))),
    "rows": (kernels.add(1, 1), (ones(40), ones(40))),
    "rounds": (kernels.rounds, (ones(128, 64),)),
    "transpose": (kernels.transpose, (ones(256, 256),)),
}


@pytest.mark.parametrize("name", ["hoist", "merge-dma"])
@pytest.mark.parametrize("case", CASES)
def test_changed_instructions_compute_the_same(case, name):
    kernel, args = CASES[case]
    trace = launch(kernel, args, {}, target="trn1", compute=False).trace
    changed = rewrite(trace, hw.TRN1, frozenset({name}))
    before, after = values(trace, args), values(changed, args)
    assert len(trace) >= len(changed)
    for a, b in zip(before, after):
        assert (a == b).all()


def test_sums_of_an_activation_are_an_activation_of_their_own():
    """All that leads up to it is done again, from the loads on; what it computes is the same."""

    @nki.jit
    def softmax(a, b):
        out = nl.ndarray((2, 128, 512), dtype=a.dtype, buffer=nl.shared_hbm)
        y = nl.load(b)
        for i in nl.affine_range(2):
            acc = nisa.tensor_copy(nisa.nc_matmul(nl.load(a[i]), y))
            sums = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.sbuf)
            e = nisa.activation(
                nl.exp,
                acc,
                bias=nisa.tensor_reduce(nl.max, acc, axis=1, negate=True),
                reduce_op=nl.add,
                reduce_res=sums,
                reduce_cmd=nisa.reduce_cmd.reset_reduce,
            )
            nl.store(out[i], nl.multiply(e, nisa.reciprocal(sums)))
        return out

    args = ones(2, 128, 128), ones(128, 512)
    trace = launch(softmax, args, {}, target="trn2", compute=False).trace
    changed = rewrite(trace, hw.TRN2, frozenset({"split-sums"}))
    before, after = (Counter(k.row.name for k, *_ in t) for t in (trace, changed))
    for name in ("load", "nc_matmul", "tensor_copy", "tensor_reduce", "activation"):
        assert after[name] == 2 * before[name]
    assert after["store"] == before["store"] and after["reciprocal"] == before["reciprocal"]
    for a, b in zip(values(trace, args), values(changed, args)):
        assert (a == b).all()
    assert "split-sums" in options(None, True, "trn2") - options(None, True, "trn1")


def test_a_load_that_does_not_change_is_done_once():
    kernel, args = CASES["weights"]
    plain, hoisted = (
        predict(kernel, *args, compiler=(*DEFAULT, *more)) for more in ((), ("hoist",))
    )
    assert plain.instructions["load"] == 32 and hoisted.instructions["load"] == 17
    assert hoisted.hbm_read_bytes == plain.hbm_read_bytes - 15 * 128 * 64 * 4
    assert hoisted.latency_us < plain.latency_us


def test_what_does_not_fit_is_not_kept():
    """Weights of 240 KiB a partition, used once a round, do not fit SBUF: all are loaded again."""

    @nki.jit
    def rounds_of_weights(w):
        out = nl.ndarray((2, 10, 128, 1), dtype=w.dtype, buffer=nl.shared_hbm)
        for r in nl.affine_range(2):
            for i in nl.affine_range(10):
                nl.store(out[r, i], nl.max(nl.load(w[i]), axis=1))
        return out

    for free, loads in ((6144, 20), (4096, 10)):
        prof = predict(rounds_of_weights, ones(10, 128, free), compiler=(*DEFAULT, "hoist"))
        assert prof.instructions["load"] == loads and prof.spill_bytes == 0


def test_neighbours_are_one_dma_of_the_same_bytes():
    x = ones(128 * 64)
    plain, merged = (
        predict(kernels.add(2), x, x, compiler=(*DEFAULT, *more)) for more in ((), ("merge-dma",))
    )
    assert (plain.dma_transfer_count, merged.dma_transfer_count) == (96, 6)
    assert merged.hbm_read_bytes == plain.hbm_read_bytes
    assert merged.hbm_write_bytes == plain.hbm_write_bytes
    assert merged.latency_us < plain.latency_us
    tl = merged.timeline  # what uses them comes after all of them
    loads = [i for i, (kind, *_) in enumerate(merged.trace) if kind.row.name == "load"]
    adds = [i for i, (kind, *_) in enumerate(merged.trace) if kind.row.name == "tensor_tensor"]
    assert min(tl.start_us[adds]) >= sorted(tl.end_us[loads])[1]


def test_strictly_as_written_every_engine_keeps_the_order():
    args = (ones(128, 128), ones(128, 512))
    strict = predict(kernels.crowd, *args, compiler=())
    tl = strict.timeline
    for e in range(4):
        instrs = np.flatnonzero(tl.engine == e)
        assert (np.diff(tl.start_us[instrs]) > 0).all()
    free = predict(kernels.crowd, *args)
    assert (strict.compiler, set(free.compiler)) == ((), options(None, True, "trn1"))
    assert strict.to_dict()["compiler"] == []


def test_an_engine_does_what_is_ready_while_something_earlier_is_not():
    @nki.jit
    def late(a, b):
        out = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.shared_hbm)
        x, large = nl.load(a), nl.load(b)
        most = nisa.tensor_reduce(nl.max, large, axis=1)
        for _ in range(20):
            x = nisa.tensor_tensor(x, x, nl.add)
        nl.store(out, nl.multiply(x, most))
        return out

    args = ones(128, 64), ones(128, 8192)
    strict, free = (predict(late, *args, compiler=c) for c in ((), ("reorder",)))
    assert free.latency_us < strict.latency_us - 2.0


def test_copies_go_to_the_engine_that_is_named_first_unless_they_are_balanced():
    @nki.jit
    def copies(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        t = nl.load(a)
        for i in nl.affine_range(4):
            nl.store(out[:, i * 16 : (i + 1) * 16], nisa.tensor_copy(t[:, i * 16 : (i + 1) * 16]))
        return out

    free, strict = (predict(copies, ones(128, 64), compiler=c) for c in (None, ()))
    assert strict.schedule.busy["vector"] > 0 and strict.schedule.busy["scalar"] == 0
    assert free.schedule.busy["scalar"] > 0


def test_a_tile_that_is_overwritten_waits_for_its_readers_unless_it_is_renamed():
    kernel, args = CASES["weights"]
    free, kept = (predict(kernel, *args, compiler=c) for c in (DEFAULT, ("reorder", "engines")))
    assert kept.latency_us > free.latency_us
    assert kept.sbuf_peak_bytes < free.sbuf_peak_bytes


def test_an_unknown_option_gets_a_sentence():
    with pytest.raises(NkiError, match="NKI-K10") as caught:
        predict(kernels.add(4), ones(512), ones(512), compiler=("reorder", "fuse"))
    assert "'fuse'" in str(caught.value) and "merge-dma" in str(caught.value)
    assert options("reorder, hoist") == {"reorder", "hoist"} and options("") == frozenset()
    assert all(name in OPTIONS for name in DEFAULT)
