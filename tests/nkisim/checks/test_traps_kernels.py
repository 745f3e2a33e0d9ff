"""Traps of loops, PSUM, memory, launches and launchers.

What concerns the compiler and the chip a simulator cannot show: that outputs of a benchmark are
meaningless, what the compiler does to latency alone, bugs of it that made the device differ.
"""

from __future__ import annotations

import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import numpy as np
from neuronxcc import nki

import nkisim


def data(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def ids(run):
    return {f.id for f in run.findings}


def test_psum_accumulates_in_any_loop():
    """zeros and += over K is one matmul a step: no memset, no add, and no hazard."""

    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((128, 64), np.float32, buffer=nl.shared_hbm)
        psum = nl.zeros((128, 64), np.float32, buffer=nl.psum)
        for k in nl.affine_range(4):
            psum += nisa.nc_matmul(nl.load(a[k]), nl.load(b[k]))
        nl.store(out, nl.copy(psum))
        return out

    a, b = data(4, 128, 128), data(4, 128, 64, seed=1)
    run = nkisim.run(kernel, a, b)
    np.testing.assert_allclose(run.outputs, np.einsum("xkm,xkn->mn", a, b), rtol=1e-3, atol=1e-3)
    assert run.instructions == {"load": 8, "nc_matmul": 4, "tensor_copy": 1, "store": 1}
    assert not run.findings


def test_accumulating_without_zeros_is_reported():
    """On the chip `+=` into a fresh PSUM tensor adds to garbage; NumPy's empty() hides it."""

    @nki.jit
    def kernel(a, b, create):
        out = nl.ndarray((128, 64), np.float32, buffer=nl.shared_hbm)
        psum = create((128, 64), np.float32, buffer=nl.psum)
        psum += nisa.nc_matmul(nl.load(a), nl.load(b))
        nl.store(out, nl.copy(psum))
        return out

    a, b = data(128, 128), data(128, 64, seed=1)
    assert ids(nkisim.run(kernel, a, b, nl.ndarray)) == {"NKI-U03"}
    assert ids(nkisim.run(kernel, a, b, nl.zeros)) == set()


def test_affine_range_must_not_carry_values():
    """In order, a running sum in affine_range works by luck; on the chip it may not."""

    @nki.jit
    def kernel(x, loop):
        out = nl.ndarray((128, 8), x.dtype, buffer=nl.shared_hbm)
        t = nl.load(x)
        for i in loop(1, 8):
            t[:, i : i + 1] = nl.add(t[:, i : i + 1], t[:, i - 1 : i])
        nl.store(out, t)
        return out

    x = data(128, 8)
    run = nkisim.run(kernel, x, nl.affine_range)
    assert ids(run) == {"NKI-L02"}
    assert {f.where.text for f in run.findings} == {
        "t[:, i : i + 1] = nl.add(t[:, i : i + 1], t[:, i - 1 : i])"
    }
    run = nkisim.run(kernel, x, nl.sequential_range)
    assert not run.findings
    np.testing.assert_allclose(run.outputs, np.cumsum(x, 1), rtol=1e-5, atol=1e-5)


def test_two_iterations_write_one_place(breaks):
    """NumPy keeps the last value; for the chip there is no last one."""

    @nki.jit
    def wrong(x):
        out = nl.ndarray((128, 8), x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(2):
            nl.store(out, nl.load(x[i]))  # BUG
        return out

    @nki.jit
    def right(x):
        out = nl.ndarray((2, 128, 8), x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(2):
            nl.store(out[i], nl.load(x[i]))
        return out

    x = data(2, 128, 8)
    breaks(wrong, x, id="NKI-L04", name="err_unexpected_output_dependencies")
    np.testing.assert_array_equal(nkisim.simulate(right, x), x)


def test_accumulation_in_sbuf_may_meet():
    """+= -= *= /= into one tile is the exception: order does not matter."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((128, 8), x.dtype, buffer=nl.shared_hbm)
        acc = nl.zeros((128, 8), x.dtype)
        for i in nl.affine_range(4):
            acc += nl.load(x[i])
        nl.store(out, acc)
        return out

    x = data(4, 128, 8)
    run = nkisim.run(kernel, x)
    assert not run.findings
    np.testing.assert_allclose(run.outputs, x.sum(0), rtol=1e-5, atol=1e-5)


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


def test_a_loop_body_is_a_scope(breaks):
    """Python keeps the last tile of a loop; in NKI it ended with the loop."""

    @nki.jit
    def wrong(x):
        out = nl.ndarray((128, 8), x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(2):
            t = nl.load(x[i])
        nl.store(out, t)  # BUG
        return out

    @nki.jit
    def right(x):
        out = nl.ndarray((128, 8), x.dtype, buffer=nl.shared_hbm)
        t = nl.ndarray((128, 8), x.dtype)
        for i in nl.sequential_range(2):
            t[...] = nl.load(x[i])
        nl.store(out, t)
        return out

    x = data(2, 128, 8)
    breaks(wrong, x, id="NKI-L01", name="err_local_variable_used_out_of_scope")
    np.testing.assert_array_equal(nkisim.simulate(right, x), x[1])


def test_storing_a_psum_tile_costs_a_copy():
    """DMA does not read PSUM: since SDK 2.26 the compiler copies to SBUF, one instruction more."""

    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((128, 64), np.float32, buffer=nl.shared_hbm)
        nl.store(out, nisa.nc_matmul(nl.load(a), nl.load(b)))
        return out

    a, b = data(128, 128), data(128, 64, seed=1)
    run = nkisim.run(kernel, a, b)
    assert run.instructions["tensor_copy"] == 1
    np.testing.assert_allclose(run.outputs, a.T @ b, rtol=1e-3, atol=1e-3)


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


def test_two_instances_write_one_place(breaks):
    """NumPy keeps what the last instance wrote; the order of instances is not promised."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((2, 64, 4), x.dtype, buffer=nl.shared_hbm)
        nl.store(out[0], nl.load(x[nl.program_id(0)]))  # BUG
        nl.store(out[1], nl.load(x[0]))
        return out

    x = data(2, 64, 4)
    np.testing.assert_array_equal(nkisim.simulate(kernel[1], x), x[[0, 0]])
    breaks(kernel[2], x, id="NKI-L04", name="err_unexpected_output_dependencies")


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


def test_a_jitted_kernel_takes_arrays():
    """Calling the decorated function with arrays runs it and returns arrays."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x) * 2)
        return out

    x = data(4, 4)
    out = kernel(x)
    assert isinstance(out, np.ndarray)
    np.testing.assert_array_equal(out, 2 * x)


def test_kernels_call_kernels(breaks):
    """A nested kernel is inlined: it takes and returns tensors and tiles; it has no grid."""

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

    @nki.jit
    def wrong(x):
        return copy_hbm[2](x)  # BUG

    x = data(4, 4)
    np.testing.assert_array_equal(nkisim.simulate(right, x), 4 * x)
    breaks(wrong, x, id="NKI-K02", name="err_nested_kernel_with_spmd_grid")


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


def test_mutable_parameters_are_outputs(breaks):
    """A parameter annotated mutable is written and returned; NumPy code would just write it."""

    @nki.jit
    def right(x: nt.mutable_tensor):
        nl.store(x, nl.load(x) + 1)
        return x

    @nki.jit
    def unannotated(x):
        nl.store(x, nl.load(x) + 1)  # BUG
        return x

    @nki.jit
    def not_returned(x: nt.mutable_tensor, y):
        out = nl.ndarray(y.shape, y.dtype, buffer=nl.shared_hbm)
        nl.store(x, nl.load(y))
        nl.store(out, nl.load(y))
        return out

    x = data(4, 4)
    before = x.copy()
    np.testing.assert_array_equal(nkisim.simulate(right, x), before + 1)
    np.testing.assert_array_equal(x, before + 1)
    breaks(unannotated, x, id="NKI-O01", name="err_cannot_update_immutable_parameter")
    breaks(not_returned, x, x, id="NKI-O06", name="err_mutable_parameter_not_returned")


def test_a_psum_tensor_may_span_banks(breaks):
    """psum_fmax is one bank: a tensor may be larger, a matmul's result may not cross."""

    @nki.jit
    def kernel(a, b, width):
        out = nl.ndarray((128, 1024), np.float32, buffer=nl.shared_hbm)
        psum = nl.zeros((128, 1024), np.float32, buffer=nl.psum)
        assert nl.tile_size.psum_fmax == 512
        for lo in range(0, 1024, width):
            moving = nl.load(b[:, lo : lo + width])
            psum[:, lo : lo + width] = nisa.nc_matmul(nl.load(a), moving)  # BUG
        nl.store(out, nl.copy(psum))
        return out

    a, b = data(128, 128), data(128, 1024, seed=1)
    np.testing.assert_allclose(nkisim.simulate(kernel, a, b, 512), a.T @ b, rtol=1e-3, atol=1e-3)
    breaks(kernel, a, b, 384, id="NKI-M06")


def test_destination_equal_to_a_source():
    """In place is allowed for elementwise instructions, also through reuse of one tile."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        t = nl.load(x)
        t[...] = nl.add(t, t)
        t[...] = nl.exp(t)
        t[...] = nisa.tensor_tensor(t, t, nl.multiply)
        nl.store(out, t)
        return out

    x = data(4, 4)
    np.testing.assert_allclose(nkisim.simulate(kernel, x), np.exp(2 * x) ** 2, rtol=1e-5)


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


def test_tensors_that_share_bytes():
    """Two allocations at one address are the same bytes, also with another dtype."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, np.uint16, buffer=nl.shared_hbm)
        a = nl.ndarray((128, 4), np.float32, buffer=ncc.sbuf.mod_alloc(base_addr=64))
        b = nl.ndarray((128, 8), np.uint16, buffer=ncc.sbuf.mod_alloc(base_addr=64))
        a[...] = nl.load(x[:, 0:4])
        nl.store(out, b)
        return out

    x = data(128, 8)
    out = nkisim.simulate(kernel, x)
    np.testing.assert_array_equal(out, np.ascontiguousarray(x[:, :4]).view(np.uint16))


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
