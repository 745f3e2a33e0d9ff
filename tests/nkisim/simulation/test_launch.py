"""Loops and launches: hazards of iterations, grids, arguments, outputs, timing-only runs, torch."""

from __future__ import annotations

import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import numpy as np
import pytest
from neuronxcc import nki

import nkisim


def data(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def ids(run):
    return sorted(f.id for f in run.findings)


def output(shape=(128, 8), dtype=np.float32):
    return nl.ndarray(shape, dtype, buffer=nl.shared_hbm)


X = data(128, 8)


# -- loops -----------------------------------------------------------------------------------------


def shared_tile(x, loop):
    out = output((4, 128, 8))
    t = nl.ndarray((128, 8), np.float32)
    for i in loop(4):
        t[...] = nl.load(x[i])
        nl.store(out[i], t)
    return out


def tile_each(x, loop):
    out = output((4, 128, 8))
    for i in loop(4):
        t = nl.ndarray((128, 8), np.float32)
        t[...] = nl.load(x[i])
        nl.store(out[i], t)
    return out


@pytest.mark.parametrize(
    "body, loop, want",
    [
        (shared_tile, nl.affine_range, ["NKI-L05"]),
        (shared_tile, nl.sequential_range, []),
        (shared_tile, range, []),
        (shared_tile, nl.static_range, []),
        (tile_each, nl.affine_range, []),
    ],
)
def test_tiles_shared_by_iterations(body, loop, want):
    x = data(4, 128, 8)
    run = nkisim.run(body, x, loop)
    assert ids(run) == want
    np.testing.assert_array_equal(run.outputs, x)


def test_nested_loops_only_blame_the_affine_one():
    """Accumulating over an inner sequential loop into a tile of the outer iteration is fine."""

    @nki.jit
    def kernel(x):
        out = output((2, 128, 8))
        for i in nl.affine_range(2):
            acc = nl.zeros((128, 8), np.float32)
            for j in nl.sequential_range(3):
                acc[...] = nl.add(acc, nl.load(x[i, j]))
            nl.store(out[i], acc)
        return out

    x = data(2, 3, 128, 8)
    run = nkisim.run(kernel, x)
    assert not run.findings
    np.testing.assert_allclose(run.outputs, x.sum(1), rtol=1e-5, atol=1e-5)


def test_skip_middle_end_keeps_affine_loops_in_order():
    """With the decorator the compiler keeps the order, so what was an error is a note."""

    def body(x):
        out = output()
        for i in nl.affine_range(2):
            nl.store(out, nl.load(x[i]))
        return out

    x = data(2, 128, 8)
    with pytest.raises(nkisim.NkiError, match="NKI-L04"):
        nkisim.run(nki.jit(body), x)
    run = nkisim.run(ncc.skip_middle_end_transformations(nki.jit(body)), x)
    assert [(f.id, f.severity) for f in run.findings] == [("NKI-L05", "note")]
    np.testing.assert_array_equal(run.outputs, x[1])


# -- launches --------------------------------------------------------------------------------------


def test_grids_of_logical_cores():
    """nl.nc(2) spreads a grid dim over two cores; the programs are the same in number."""

    @nki.jit
    def kernel(x):
        out = output((4, 64, 8))
        i = nl.program_id(0)
        nl.store(out[i], nl.load(x[i]))
        return out

    x = data(4, 64, 8)
    for grid in (
        4,
        (4,),
        nl.nc(2) * 2,
        2 * nl.nc(2),
        nl.spmd_dim(nl.nc(2), 2),
        nl.spmd_dim(2, nl.nc(2)),
    ):
        np.testing.assert_array_equal(nkisim.simulate(kernel[grid], x, target="trn2"), x)
        np.testing.assert_array_equal(nki.simulate_kernel(kernel[grid], x), x)


def test_arguments_keep_their_structure():
    """Tuples, lists and dicts of arrays arrive as such, of tensors; other values as they are."""

    @nki.jit
    def kernel(pair, named, *more, act=nl.exp, bias=None):
        out = output()
        total = nl.load(pair[0]) + nl.load(pair[1]) + nl.load(named["x"])
        for m in more:
            total = total + nl.load(m)
        assert bias is None
        nl.store(out, act(total))
        return {"out": out}

    got = nkisim.simulate(kernel, (X, X), {"x": X, "n": 3}, X, X, act=nl.square)
    np.testing.assert_allclose(got["out"], (5 * X) ** 2, rtol=1e-5)


def test_inputs_are_left_alone():
    """Results never share memory with the caller's arrays, whatever their layout."""

    @nki.jit
    def kernel(x):
        out = output(x.shape)
        t = nl.load(x)
        t[...] = nl.multiply(t, 0)
        nl.store(out, t)
        return out

    for x in (X.copy(), np.asfortranarray(X), X[::2], np.broadcast_to(X[:1], (128, 8))):
        before = x.copy()
        assert (nkisim.simulate(kernel, x) == 0).all()
        np.testing.assert_array_equal(x, before)


def test_timing_only_runs_record_the_same_instructions():
    """A kernel's control flow does not depend on data: without arithmetic the trace is the same."""
    from nkisim.simulation.launch import launch

    @nki.jit
    def kernel(a, b):
        out = output()
        psum = nl.zeros((128, 8), np.float32, buffer=nl.psum)
        for _ in nl.affine_range(3):
            psum += nisa.nc_matmul(nl.load(a), nl.load(b))
        nl.store(out, nl.softmax(nl.copy(psum), axis=1))
        return out

    a = data(128, 128)
    full = nkisim.run(kernel, a, X)
    bare = launch(kernel, (a, X), {}, compute=False)
    assert bare.outputs is None
    assert bare.instructions == full.instructions
    assert (bare.hbm_read_bytes, bare.hbm_write_bytes) == (
        full.hbm_read_bytes,
        full.hbm_write_bytes,
    )
    assert full.hbm_read_bytes == 3 * (a.nbytes + X.nbytes)
    assert full.hbm_write_bytes == X.nbytes and full.dma_transfers == 7


def test_device_print(capsys):
    @nki.jit
    def kernel(x):
        out = output()
        t = nl.load(x)
        nl.device_print("t[0] is", t[0:1, 0:2])
        nl.device_print("shape", x.shape[0])
        nl.store(out, t)
        return out

    nkisim.run(kernel, np.full((128, 8), 2.5, np.float32))
    said = capsys.readouterr().out
    assert "t[0] is" in said and said.count("2.5") == 2 and "shape 128" in said


def test_torch_in_torch_out():
    torch = pytest.importorskip(
        "torch", reason="PyTorch is not installed: TRAINIUM_LABS_TORCH=1 nox -s tests installs it"
    )

    @nki.jit
    def kernel(x):
        out = output(x.shape, x.dtype)
        nl.store(out, nl.multiply(nl.load(x), 2, dtype=x.dtype))
        return out

    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = torch.ones((128, 8), dtype=dtype)
        out = nkisim.simulate(kernel, x)
        assert isinstance(out, torch.Tensor) and out.dtype == dtype and (out == 2).all()


def test_outputs_share_no_bytes_with_each_other_or_the_inputs():
    @nki.jit
    def kernel(x, y: nt.mutable_tensor):
        out = output((128, 8))
        nl.store(out, nl.load(x))
        nl.store(y, nl.load(x))
        return out, out, y

    x, y = data(128, 8), data(128, 8)
    first, second, third = nkisim.simulate(kernel, x, y)
    first[...] = second[0, 0] + 1
    np.testing.assert_array_equal(second, x)
    third[...] = -1
    np.testing.assert_array_equal(second, x)
    np.testing.assert_array_equal(y, x)
