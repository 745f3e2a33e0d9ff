"""NKISIM_SHUFFLE: kernels that keep the promise of affine_range do not notice; others do."""

from __future__ import annotations

import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from neuronxcc import nki

import nkisim

X = np.random.default_rng(0).random((128, 1024), dtype=np.float32)


def running(x, carried):
    out = nl.ndarray((8, 128, 128), dtype=x.dtype, buffer=nl.shared_hbm)
    acc = nl.zeros((128, 128), nl.float32)
    for i in nl.affine_range(8):
        t = nl.load(x[:, i * 128 : (i + 1) * 128])
        if carried:
            acc += t
            nl.store(out[i], acc)
        else:
            nl.store(out[i], t)
    return out


@pytest.fixture
def outputs(monkeypatch):
    def run(body, seed, *args):
        monkeypatch.setenv("NKISIM_SHUFFLE", seed)
        return nkisim.run(nki.jit(body), X, *args).outputs

    return run


def test_a_kernel_that_keeps_the_promise_gives_the_same(outputs):
    want = outputs(running, "", False)
    for seed in "123":
        np.testing.assert_array_equal(outputs(running, seed, False), want)


def test_a_kernel_that_depends_on_the_order_gives_other_numbers_the_same_each_time(outputs):
    want = outputs(running, "", True)
    got = [outputs(running, seed, True) for seed in ("1", "1", "2")]
    np.testing.assert_array_equal(got[0], got[1])
    assert not np.array_equal(got[0], want) and not np.array_equal(got[0], got[2])
    np.testing.assert_allclose(got[0].max(axis=0), want.max(axis=0), rtol=1e-5)  # all are added


def test_a_directive_that_keeps_the_order_and_timing_alone_are_left_as_they_are(outputs):
    want = outputs(running, "", True)
    ordered = ncc.skip_middle_end_transformations(nki.jit(running))
    np.testing.assert_array_equal(nkisim.run(ordered, X, True).outputs, want)
    outputs(running, "3", False)  # the variable is set from here on
    np.testing.assert_array_equal(nkisim.run(ordered, X, True).outputs, want)
    assert nkisim.profile(nki.jit(running), X, True).latency_us > 0


def test_instances_of_a_grid_run_in_any_order_too(monkeypatch):
    def kernel(x):
        out = nl.ndarray((8, 128, 128), dtype=x.dtype, buffer=nl.shared_hbm)
        i = nl.program_id(0)
        order.append(i)
        nl.store(out[i], nl.load(x[:, nl.ds(i * 128, 128)]))
        return out

    seen = []
    for seed in ("", "1"):
        monkeypatch.setenv("NKISIM_SHUFFLE", seed)
        order: list[int] = []
        seen.append(nkisim.run(nki.jit(kernel)[8], X).outputs)
        assert sorted(order) == list(range(8)) and (order == sorted(order)) == (not seed)
    np.testing.assert_array_equal(*seen)


def test_a_seed_is_a_number(outputs):
    with pytest.raises(nkisim.NkiError, match="NKI-K15.*NKISIM_SHUFFLE=often") as caught:
        outputs(running, "often", False)
    assert caught.value.where is None, "no line of the kernel is to blame"
