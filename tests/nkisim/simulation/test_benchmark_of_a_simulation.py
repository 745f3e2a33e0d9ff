"""A harness may benchmark a function that calls simulate_kernel: its kernel's time comes out."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import numpy as np

import nkisim


@nki.jit
def double(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, value=nl.multiply(nl.load(a), 2.0))
    return out


def wrapper(*args, **kwargs):
    return nki.simulate_kernel(double, *args, **kwargs)


def test_benchmark_of_a_wrapper_is_that_of_its_kernel(capsys):
    a = np.zeros((128, 2048), np.float32)
    times = []
    for function in (double, wrapper):
        bench = nki.benchmark(warmup=5, iters=20)(function)
        bench(a)
        times.append(bench.benchmark_result.nc_latency.get_latency_percentile(99))
    assert times[0] == times[1] == nkisim.profile(double, a, compute=False).latency_us
    np.testing.assert_array_equal(wrapper(a + 1), np.full_like(a, 2))


def test_a_benchmark_takes_a_shape_and_a_dtype_for_an_array(capsys):
    """AWS's documents pass nt.tensor[[rows, columns], dtype]: no data is needed to measure."""

    def kernel(x: nt.tensor[128, 64]):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        return out

    times = []
    for argument in (nt.tensor[[128, 64], nl.float16], np.zeros((128, 64), np.float16)):
        bench = nki.benchmark(kernel)
        bench(argument)
        times.append(bench.benchmark_result.nc_latency.get_latency_percentile(50))
    assert times[0] == times[1]
    assert nt.tensor[128, 64] is nt.tensor
