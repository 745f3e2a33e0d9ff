"""Kernels as what programs do with functions: bind, pickle, fill in, call with None."""

from __future__ import annotations

import copy
import functools
import multiprocessing
import pickle

import neuronxcc.nki as old
import neuronxcc.nki.language as old_nl
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim import NkiError

X = np.arange(128 * 4, dtype=np.float32).reshape(128, 4)


@nki.jit
def scaled(x, factor=2.0, other=None):
    """Return x * factor, or + other."""
    t = nl.load(x)
    nisa.tensor_scalar(t, t, op0=nl.multiply, operand0=factor)
    if other is not None:
        nisa.tensor_tensor(t, t, nl.load(other), op=nl.add)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, t)
    return out


@old.jit
def scaled_old(x, factor=2.0):
    out = old_nl.ndarray(x.shape, dtype=x.dtype, buffer=old_nl.shared_hbm)
    old_nl.store(out, old_nl.load(x) * factor)
    return out


def plain(x, factor=2.0):
    t = nl.load(x)
    nisa.tensor_scalar(t, t, op0=nl.multiply, operand0=factor)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, t)
    return out


both = pytest.mark.parametrize("kernel", [scaled, scaled_old], ids=["nki", "beta1"])


# -- pickling --------------------------------------------------------------------------------------


@both
def test_a_kernel_is_pickled_by_its_name(kernel):
    assert pickle.loads(pickle.dumps(kernel)) is kernel
    assert copy.copy(kernel) is not kernel and copy.copy(kernel).func is kernel.func


@both
def test_a_kernel_with_a_grid_keeps_it(kernel):
    again = pickle.loads(pickle.dumps(kernel[2]))
    assert again.grid == (2,) and again.func is kernel.func and kernel.grid == ()


def test_kernels_go_to_the_workers_of_a_pool():
    with multiprocessing.get_context("fork").Pool(1) as pool:
        for kernel in (scaled, scaled_old):
            assert (pool.apply(kernel, (X,)) == 2 * X).all()


def test_a_kernel_without_a_name_in_its_module():
    inside = nki.jit(lambda x: x)
    with pytest.raises(pickle.PicklingError, match="top of a module"):
        pickle.dumps(inside)


# -- partial ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [scaled, scaled_old, plain], ids=["nki", "beta1", "function"])
def test_a_partial_of_a_kernel(kernel):
    three = functools.partial(kernel, factor=3.0)
    assert (nkisim.simulate(three, X) == 3 * X).all()
    assert nkisim.profile(three, X).latency_us > 0
    assert (nkisim.simulate(functools.partial(kernel, X)) == 2 * X).all()


def test_a_partial_of_a_kernel_that_a_launcher_is_given():
    assert (old.simulate_kernel(functools.partial(scaled_old, factor=3.0), X) == 3 * X).all()
    assert (old.baremetal(functools.partial(scaled_old, factor=3.0))(X) == 3 * X).all()


def test_a_partial_that_is_made_a_kernel_keeps_its_arguments():
    for make in (nki.jit, nki.simulate):
        made = make(functools.partial(scaled.func, factor=3.0))
        assert (made(X) == 3 * X).all()
        assert (make(functools.partial(scaled, factor=4.0))(X) == 4 * X).all()


def test_a_partial_is_tuned_and_evaluated():
    three = functools.partial(scaled, factor=3.0)
    found = nkisim.tune(three, X, choices={"factor": [3.0, 5.0]}, reference=lambda x, factor: 5 * x)
    assert found.best.values == {"factor": 5.0} and len(found.wrong) == 1
    assert nkisim.evaluate(three, X, reference=lambda x: 3 * x).verdict == "right"


def test_nki_simulator_runs_a_kernel_as_frameworks_do():
    from nki.simulator import simulate_kernel

    assert (simulate_kernel(scaled, (X,), {"factor": 3.0}) == 3 * X).all()
    assert (simulate_kernel(scaled, args=[], kwargs={"x": X}, lnc=1) == 2 * X).all()
    assert (simulate_kernel(lambda x: scaled.func(x), (X,), {}, _lnc=1) == 2 * X).all()
    with pytest.raises(NkiError, match="NKI-K04"):
        simulate_kernel(scaled, (X,), {"size": 3})


@pytest.mark.full
def test_torch_tensors_run_with_nki_simulator_set(monkeypatch):
    torch = pytest.importorskip("torch")
    from nki.simulator import simulate_kernel

    monkeypatch.setenv("NKI_SIMULATOR", "1")
    x = torch.from_numpy(X)
    for out in (scaled(x), simulate_kernel(scaled, (x,), {}), nki.simulate(scaled)(x)):
        assert isinstance(out, torch.Tensor) and (out.numpy() == 2 * X).all()
    wide = scaled(x.to(torch.bfloat16))
    assert wide.dtype == torch.bfloat16


def test_a_partial_with_arguments_that_the_kernel_does_not_have():
    with pytest.raises(NkiError, match="NKI-K04"):
        nkisim.simulate(functools.partial(scaled, size=3), X)


# -- methods ---------------------------------------------------------------------------------------


class Layer:
    """Has kernels as methods, and one as an attribute."""

    factor = 5.0
    shared = scaled

    @nki.jit
    def forward(self, x):
        t = nl.load(x)
        nisa.tensor_scalar(t, t, op0=nl.multiply, operand0=self.factor)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, t)
        return out

    @old.jit
    def forward_old(self, x):
        out = old_nl.ndarray(x.shape, dtype=x.dtype, buffer=old_nl.shared_hbm)
        old_nl.store(out, old_nl.load(x) * self.factor)
        return out

    @staticmethod
    @nki.jit
    def alone(x):
        return plain(x)


def test_a_method_is_bound():
    layer = Layer()
    assert (layer.forward(X) == 5 * X).all() and (layer.forward_old(X) == 5 * X).all()
    assert (Layer.forward(layer, X) == 5 * X).all()
    assert (nkisim.simulate(layer.forward, X) == 5 * X).all()


@pytest.mark.parametrize("name", ["forward", "forward_old"])
def test_a_method_is_evaluated_and_pickled_with_its_object(name):
    method = getattr(Layer(), name)
    found = nkisim.evaluate(method, X, reference=lambda x: 5 * x, target="trn2", fixes=False)
    assert (found.verdict, found.kernel) == ("right", name)
    assert nkisim.evaluate(method, X, reference=lambda x: 4 * x, fixes=False).verdict == "wrong"
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        (out,) = pool.map(method, [X])
    assert (out == 5 * X).all()


def test_a_kernel_that_a_class_has_takes_no_self():
    assert (Layer().shared(X) == 2 * X).all() and (Layer().alone(X) == 2 * X).all()


# -- None for a tensor -----------------------------------------------------------------------------


@nki.jit
def asks_for_the_shape(x, other=None):
    rows = other.shape[0]
    return scaled(x) if rows else None


@pytest.mark.parametrize("given", [(X, None), (X,)], ids=["given", "left out"])
def test_none_for_a_tensor(given):
    with pytest.raises(NkiError) as caught:
        nkisim.simulate(asks_for_the_shape, *given)
    assert caught.value.id == "NKI-K04" and "argument other of asks_for" in caught.value.what
    assert "is not None" in caught.value.hint and "rows = " in caught.value.where.text


def test_none_that_a_call_returns_is_not_the_arguments():
    @nki.jit
    def kernel(x, other=None):
        t = nl.load(x)
        return nisa.memset(t, 0.0).shape

    with pytest.raises(Exception) as caught:
        nkisim.simulate(kernel, X)
    assert "argument other" not in str(caught.value)


# -- which output ----------------------------------------------------------------------------------


def test_the_output_that_is_not_all_stored_is_named():
    @nki.jit
    def kernel(x):
        t = nl.load(x)
        outs = []
        for rows in (128, 96):
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            nisa.dma_copy(out[0:rows], t[0:rows])
            outs.append(out)
        return tuple(outs)

    (found,) = nkisim.run(kernel, X).findings
    assert found.id == "NKI-O04" and "(the result[1], float32[128, 4])" in found.text
    assert "nl.ndarray" in found.where.text and "dma_copy" in found.other.text
