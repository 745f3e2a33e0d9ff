"""Arguments that a kernel writes and does not return (NKI-O06), in import nki."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.simulation.launch import launch

X = np.random.default_rng(1).random((128, 64), dtype=np.float32)


def said(kernel, *args, compute=True):
    run = launch(nki.jit(kernel), args, {}, compute=compute)
    return [f for f in run.findings if f.id == "NKI-O06"]


def put(dst, src):
    t = nl.ndarray(src.shape, dtype=src.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=src)
    nisa.dma_copy(dst=dst, src=t)


def result(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    put(out, x)
    return out


def another_is_returned(cache, x):
    put(cache[0:64], x[0:64])
    return result(x)


def one_of_two_is_returned(cache, x):
    y = result(x)
    put(cache[0:64], x[0:64])
    put(x[0:64], y[0:64])
    return y, x


def nothing_is_returned(cache, x):
    put(cache, x)


def written_by_a_kernel_that_returns_it(cache, x):
    nki.jit(all_are_returned)(cache, x)
    return result(x)


def written_by_one_of_two_cores(cache, x):
    if nl.program_id(0) == 0:
        put(cache[0:64], x[0:64])
    return result(x)


LOST = (
    another_is_returned,
    one_of_two_is_returned,
    nothing_is_returned,
    written_by_a_kernel_that_returns_it,
    written_by_one_of_two_cores,
)


@pytest.mark.parametrize("compute", [True, False])
@pytest.mark.parametrize("kernel", LOST, ids=lambda k: k.__name__)
def test_a_write_that_is_not_returned_is_said_with_its_line(kernel, compute):
    (found,) = said(kernel, X.copy(), X.copy(), compute=compute)
    assert found.severity == "warning" and "argument cache" in found.text
    assert found.where.text == "nisa.dma_copy(dst=dst, src=t)"
    assert "return the argument as well" in found.suggestion()


def test_each_argument_in_a_list_is_one():
    def kernel(caches, x):
        for cache in caches:
            put(cache, x)
        return result(x), caches[1]

    (found,) = said(kernel, [X.copy(), X.copy()], X)
    assert "argument caches" in found.text


def all_are_returned(cache, x):
    put(cache[0:64], x[0:64])
    return result(x), cache


def it_alone(cache, x):
    put(cache, x)
    return cache


def in_other_sizes(cache, x):
    put(cache, x)
    return cache.reshape((64, 128))


def deeper(cache, x):
    put(cache, x)
    return {"new": [result(x), cache]}


def read_alone(cache, x):
    put(nl.ndarray(cache.shape, dtype=cache.dtype, buffer=nl.private_hbm), cache)
    return result(x)


def written_by_a_kernel_that_does_not_return_it(cache, x):
    return nki.jit(another_is_returned)(cache, x), cache


RETURNED = (
    all_are_returned,
    it_alone,
    in_other_sizes,
    deeper,
    read_alone,
    written_by_a_kernel_that_does_not_return_it,
)


@pytest.mark.parametrize("kernel", RETURNED, ids=lambda k: k.__name__)
def test_what_is_returned_or_only_read_is_not_said(kernel):
    assert not said(kernel, X.copy(), X.copy())


def test_the_host_sees_the_write_here_as_in_the_simulator_of_aws():
    cache = np.zeros_like(X)
    nkisim.run(nki.jit(another_is_returned), cache, X)
    assert (cache[0:64] == X[0:64]).all() and not cache[64:].any()
