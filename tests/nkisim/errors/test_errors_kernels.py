"""Named conditions that concern whole kernels: where calls are, what is returned, grids, targets.

Twins again: a kernel with the bug is refused, the same without it runs.
"""

from __future__ import annotations

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from neuronxcc import nki

import nkisim

X = np.random.default_rng(0).random((256, 512), dtype=np.float32) + 0.5


def test_nki_api_outside_of_a_kernel():
    """err_nki_api_outside_of_nki_kernel"""
    from nkisim.errors import is_ours

    with pytest.raises(nkisim.NkiError) as caught:
        nl.add(X, X)
    assert caught.value.name == "err_nki_api_outside_of_nki_kernel"
    assert caught.value.where.file == __file__ and caught.value.given == "nl.add(X, X)"
    assert not is_ours(str(caught.traceback[-1].path))


@pytest.mark.parametrize("output", ["unwritten", "nothing", "on chip", "number"])
def test_outputs(output, breaks):
    @nki.jit
    def kernel(x, loops):
        out = nl.ndarray((128, 512), np.float32, buffer=nl.shared_hbm)
        for _ in nl.affine_range(loops):
            nl.store(out, nl.load(x[0:128]))
        if output == "on chip" and not loops:
            return nl.load(x[0:128])
        if output == "number" and not loops:
            return 3
        return out if loops or output == "unwritten" else None

    nkisim.run(kernel, X, 1)
    if output == "unwritten":
        error = breaks(kernel, X, 0, id="NKI-O03", name="err_tensor_output_not_written_to")
        assert error.where.text.startswith("out = nl.ndarray")
    else:
        breaks(kernel, X, 0, id="NKI-O02")


def test_range_select_needs_trn2(breaks):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((128, 512), np.float32, buffer=nl.shared_hbm)
        lo, hi = nl.full((128, 1), 3, np.float32), nl.full((128, 1), 9, np.float32)
        ops = {"comp_op0": np.greater_equal, "comp_op1": np.less, "bound0": lo, "bound1": hi}
        t = nisa.range_select(on_true_tile=nl.load(x[0:128]), **ops)  # BUG
        nl.store(out, t)
        return out

    out = nkisim.simulate(kernel, X, target="trn2")
    np.testing.assert_array_equal(out[:, 3:9], X[:128, 3:9])
    assert (out[:, 9:] < -1e38).all()
    breaks(kernel, X, id="NKI-E03", target="trn1")


def test_run_time_index_out_of_bound():
    """The SDK's simulator raises IndexError; the five slots travel in `nki_error`."""

    @nki.jit
    def kernel(x, start):
        out = nl.ndarray((8, 512), np.float32, buffer=nl.shared_hbm)
        idx = nisa.tensor_scalar(nisa.iota(nl.arange(8)[:, None], np.int32), nl.add, start)
        nl.store(out, nl.load(x[idx[nl.arange(8)[:, None], 0], nl.arange(512)[None, :]]))
        return out

    np.testing.assert_array_equal(nkisim.simulate(kernel, X, 248), X[248:256])
    with pytest.raises(IndexError) as caught:
        nkisim.run(kernel, X, 249)
    error = caught.value.nki_error
    assert error.id == "NKI-I02" and error.where.text.startswith("nl.store(out, nl.load(x[idx")
    assert all((error.what, error.limit, error.given, error.hint))


def test_a_tensor_of_another_launch_is_no_output(breaks):
    """A kernel that keeps its output would return it again without an instruction."""
    kept = []

    @nki.jit
    def keeps(x):
        if not kept:
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            nl.store(out[0:128], value=nl.load(x[0:128]))
            nl.store(out[128:256], value=nl.load(x[128:256]))
            kept.append(out)
        return kept[0]

    assert (keeps(X) == X).all()
    breaks(keeps, X, id="NKI-O02")
    kept.clear()
    assert (keeps(X) == X).all()
