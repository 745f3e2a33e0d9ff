"""Traps of loops, memory, launches and launchers: what is right; the wrong is in the catalogue.

What concerns the compiler and the chip a simulator cannot show: that outputs of a benchmark are
meaningless, what the compiler does to latency alone, bugs of it that made the device differ.
"""

from __future__ import annotations

import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import numpy as np
from neuronxcc import nki

import nkisim


def data(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def ids(run):
    return {f.id for f in run.findings}


def test_comparisons_of_loop_variables():
    """`if i == 0` on a loop variable is decided for each iteration."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((3, 128, 8), x.dtype, buffer=nl.shared_hbm)
        for i in nl.sequential_range(3):
            t = nl.load(x[i])
            if i == 0:
                t = nl.negative(t)
            nl.store(out[i], t)
        return out

    x = data(3, 128, 8)
    np.testing.assert_array_equal(nkisim.simulate(kernel, x), np.stack([-x[0], x[1], x[2]]))


def test_device_print_takes_prefix_and_tile(capsys):
    """print() would show the tensor object: there is no data at trace time on the device."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        t = nl.load(x)
        nl.device_print("the tile", t)
        nl.store(out, t)
        return out

    nkisim.run(kernel, np.full((2, 2), 42.5, np.float32))
    said = capsys.readouterr().out
    assert "the tile" in said and said.count("42.5") == 4


def test_instances_of_a_grid_share_only_shared_hbm():
    """Each instance runs the kernel anew; shared_hbm is one tensor, private_hbm is not."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        mine = nl.ndarray(x.shape[2:], x.dtype, buffer=nl.private_hbm)
        i, j = nl.program_id(0), nl.program_id(1)
        assert nl.num_programs() == 6 and nl.num_programs(0) == 2 and nl.program_ndim() == 2
        nl.store(mine, nl.load(x[i, j]) * (3 * i + j))
        nl.store(out[i, j], nl.load(mine))
        return out

    x = data(2, 3, 64, 4)
    factor = np.arange(6, dtype=np.float32).reshape(2, 3, 1, 1)
    np.testing.assert_array_equal(nkisim.simulate(kernel[2, 3], x), x * factor)


def test_benchmark_calls_the_kernel_once(capsys, tmp_path, monkeypatch):
    """The kernel is traced once and launched warmup + iters times: side effects occur once."""
    monkeypatch.chdir(tmp_path)
    calls = []

    def kernel(x):
        calls.append(1)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        return out

    nki.benchmark(kernel, warmup=5, iters=20)(data(4, 4))
    assert len(calls) == 1


def test_kernels_call_kernels():
    """A nested kernel is inlined: it takes and returns tensors and tiles."""

    @nki.jit
    def double(t):
        return nl.multiply(t, 2)

    @nki.jit
    def copy_hbm(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.hbm)
        nl.store(out, double(nl.load(x)))
        return out

    @nki.jit
    def right(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, double(nl.load(copy_hbm(x))))
        return out

    x = data(4, 4)
    np.testing.assert_array_equal(nkisim.simulate(right, x), 4 * x)


def test_outputs_in_any_number():
    """One tensor, or tuples and lists of them, also reshaped; old kernels write parameters."""

    @nki.jit
    def several(x):
        a = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        b = nl.ndarray(x.shape, x.dtype, buffer=nl.hbm)
        nl.store(a, nl.load(x))
        nl.store(b, nl.load(x) + 1)
        return a, b.reshape((x.shape[0] * x.shape[1],))

    @nki.trace
    def old(x, out):
        nl.store(out, nl.load(x) + 2)

    x = data(4, 4)
    a, b = nkisim.simulate(several, x)
    np.testing.assert_array_equal(a, x)
    np.testing.assert_array_equal(b, (x + 1).reshape(16))
    out = np.zeros_like(x)
    nki.simulate_kernel(old, x, out)
    np.testing.assert_array_equal(out, x + 2)


def test_mutable_parameters_are_outputs():
    """A parameter annotated mutable is written and returned; NumPy code would just write it."""

    @nki.jit
    def right(x: nt.mutable_tensor):
        nl.store(x, nl.load(x) + 1)
        return x

    x = data(4, 4)
    before = x.copy()
    np.testing.assert_array_equal(nkisim.simulate(right, x), before + 1)
    np.testing.assert_array_equal(x, before + 1)


def test_hbm_is_sequentially_consistent():
    """A store is seen by a later load of the same HBM tensor."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        scratch = nl.ndarray(x.shape, x.dtype, buffer=nl.private_hbm)
        nl.store(scratch, nl.load(x) + 1)
        nl.store(out, nl.load(scratch) + 1)
        nl.store(scratch, nl.load(x))
        return out

    x = data(4, 4)
    np.testing.assert_array_equal(nkisim.simulate(kernel, x), x + 1 + 1)


def test_launcher_options_are_accepted(tmp_path, monkeypatch):
    """Options of the compiler change nothing here; files that scripts move exist afterwards."""
    monkeypatch.chdir(tmp_path)

    @ncc.skip_middle_end_transformations
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        return out

    x = data(4, 4)
    run = nki.baremetal(
        kernel,
        disable_allocation_opt=True,
        save_neff_name="a.neff",
        save_trace_name="a.ntff",
        additional_compile_opt="--disable-dge",
    )
    np.testing.assert_array_equal(run(x), x)
    bench = nki.benchmark(
        kernel,
        warmup=2,
        iters=2,
        save_neff_name="b.neff",
        disable_allocation_opt=True,
        additional_compile_opt="--disable-dge",
    )
    assert bench.__name__ == "kernel"
    bench(x)
    assert {"a.neff", "a.ntff", "b.neff"} <= {p.name for p in tmp_path.iterdir()}
