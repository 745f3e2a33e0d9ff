"""Products of operands that masks cut, `x[i_p, i_f][i_f < n]`, in neuronxcc.nki.

"Operand masking" (the NKI API Common Fields): the result is as large as without the masks.
"""

from __future__ import annotations

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim


def numbers(shape, scale=5):
    return (np.arange(np.prod(shape)).reshape(shape) % scale).astype(np.float32)


def out(tile):
    t = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nl.store(t, tile)
    return t


@pytest.mark.parametrize("accumulates", [True, False])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
def test_a_product_of_masked_operands_goes_into_a_tile_of_the_whole_size(
    accumulates, whole, transposed
):
    """The result of masked operands has the shape that it has without masks, by the page."""
    m, n = 4, 9

    def kernel(x, v):
        i_m, i_k, i_n = nl.arange(6), nl.arange(8), nl.arange(10)[None, :]
        left, right = nl.load(x), nl.load(v)[i_k[:, None], i_n][i_n < n]
        left = (
            left[i_k[:, None], i_m[None, :]][i_m[None, :] < m]
            if transposed
            else left[i_m[:, None], i_k[None, :]][i_m[:, None] < m]
        )
        shape = (6, 10) if whole else (m, n)
        acc = (
            nl.zeros(shape, nl.float32, buffer=nl.psum)
            if accumulates
            else nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)
        )
        if accumulates:
            for _ in nl.affine_range(2):
                acc += nl.matmul(left, right, transpose_x=transposed)
        else:
            acc[...] = nl.matmul(left, right, transpose_x=transposed)
        copied = nl.copy(acc)
        result = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.shared_hbm)
        i_p, i_f = nl.arange(m)[:, None], nl.arange(n)[None, :]
        nl.store(result, copied[i_p, i_f])
        return result

    x, v = numbers((8, 6) if transposed else (6, 8)), numbers((8, 10), scale=7)
    got = nkisim.run(kernel, x, v)
    want = ((x.T if transposed else x)[:m].astype(float) @ v[:, :n]) * (1 + accumulates)
    np.testing.assert_allclose(got.outputs, want, rtol=1e-5)
    assert not got.findings


def test_what_masks_of_operands_leave_out_of_a_product_was_never_written():
    def kernel(s, v):
        i_p, i_n = nl.arange(8)[:, None], nl.arange(10)[None, :]
        acc = nl.ndarray((6, 10), dtype=nl.float32, buffer=nl.psum)
        acc[...] = nisa.nc_matmul(nl.load(s), nl.load(v)[i_p, i_n][i_n < 9])
        return out(nl.copy(acc))

    found = nkisim.run(kernel, numbers((8, 6)), numbers((8, 10), scale=7)).findings
    assert [f.id for f in found] == ["NKI-U02"] and "[0:6, 9:10]" in found[0].text


def test_a_tile_of_neither_size_is_refused():
    def kernel(s, v):
        i_p, i_n = nl.arange(8)[:, None], nl.arange(10)[None, :]
        acc = nl.zeros((6, 7), dtype=nl.float32, buffer=nl.psum)
        acc += nisa.nc_matmul(nl.load(s), nl.load(v)[i_p, i_n][i_n < 9])
        return out(nl.copy(acc))

    with pytest.raises(nkisim.NkiError, match="NKI-S01"):
        nkisim.run(kernel, numbers((8, 6)), numbers((8, 10), scale=7))
