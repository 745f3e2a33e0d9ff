"""Forms of kernels that inference frameworks run: run-time indices beside slices, integer sums."""

from __future__ import annotations

import neuronxcc.nki as beta1
import neuronxcc.nki.isa as beta1_isa
import neuronxcc.nki.language as beta1_nl
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim

X = np.random.default_rng(0).standard_normal((128, 6, 16)).astype(np.float32)


# -- h[:, index]: slices beside one run-time index ------------------------------------------------


@beta1.jit
def swap_slabs(x, chosen):
    """Copy slab chosen[0, 0] of dim 1 to slab chosen[0, 1]; all others are zero."""
    out = beta1_nl.ndarray(x.shape, dtype=x.dtype, buffer=beta1_nl.shared_hbm)
    for i in beta1_nl.static_range(x.shape[1]):
        beta1_nl.store(out[:, i], value=0.0)
    at = beta1_nl.load(chosen)
    tile = beta1_nl.load(x[:, at[0, 0]])
    beta1_nl.store(out[:, at[0, 1]], value=tile)
    return out


def test_one_run_time_index_stands_beside_slices():
    right = np.zeros_like(X)
    right[:, 4] = X[:, 2]
    got = nkisim.simulate(swap_slabs, X, np.array([[2, 4]], np.int32))
    np.testing.assert_array_equal(got, right)


def test_one_run_time_index_beyond_its_dim_is_an_error():
    with pytest.raises(IndexError):  # element (0, 6, 0) is (1, 0, 0)
        nkisim.simulate(swap_slabs, X, np.array([[6, 4]], np.int32))


def test_the_index_may_choose_the_first_dim():
    @beta1.jit
    def kernel(x, chosen):
        out = beta1_nl.ndarray((2, 16), dtype=x.dtype, buffer=beta1_nl.shared_hbm)
        at = beta1_nl.load(chosen)
        beta1_nl.store(out, value=beta1_nl.load(x[at[0, 0], 1:3, :]))
        return out

    got = nkisim.simulate(kernel, X, np.array([[77]], np.int32))
    np.testing.assert_array_equal(got, X[77, 1:3])


# -- integers that GpSimd adds up ------------------------------------------------------------------


def test_a_sum_of_integers_takes_a_transposed_tile():
    """nl.transpose leaves its result in PSUM, which GpSimd does not reach: functions copy it."""

    @beta1.jit
    def kernel(x, y):
        out = beta1_nl.ndarray((64, 32), dtype=x.dtype, buffer=beta1_nl.shared_hbm)
        turned = beta1_nl.transpose(beta1_nl.load(y))
        beta1_nl.store(out, value=beta1_nl.load(x) * 3 + turned)
        return out

    x = np.random.default_rng(1).integers(0, 2**20, (64, 32), dtype=np.int32)
    y = np.random.default_rng(2).integers(0, 2**10, (32, 64), dtype=np.int32)
    np.testing.assert_array_equal(nkisim.simulate(kernel, x, y), x * 3 + y.T)


def test_the_instruction_itself_does_not_copy():
    @beta1.jit
    def kernel(x):
        out = beta1_nl.ndarray((32, 32), dtype=x.dtype, buffer=beta1_nl.shared_hbm)
        tile = beta1_nl.load(x)
        turned = beta1_isa.nc_transpose(tile, engine=beta1_isa.tensor_engine)
        beta1_nl.store(out, value=beta1_isa.tensor_tensor(tile, turned, beta1_nl.add))
        return out

    with pytest.raises(nkisim.NkiError) as caught:
        nkisim.simulate(kernel, np.ones((32, 32), np.int32))
    assert caught.value.id == "NKI-E02"


# -- gathers whose last rows reach beyond the tensor -----------------------------------------------


def gather(mode, width=3):
    @nki.jit
    def kernel(x, rows):
        """Gather `width` neighbouring rows of x for each index."""
        n = x.shape[1]
        at = nl.ndarray((128, 1), dtype=rows.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=at, src=rows)
        tile = nl.ndarray((128, width * n), dtype=x.dtype, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=-1.0)
        nisa.dma_copy(
            dst=tile,
            src=x.ap(
                pattern=[[n, 128], [1, width * n]], offset=0, vector_offset=at, indirect_dim=0
            ),
            oob_mode=mode,
        )
        out = nl.ndarray(tile.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    return kernel


def test_what_a_gather_reads_beyond_the_tensor_is_skipped():
    x = np.arange(200 * 4, dtype=np.float32).reshape(200, 4)
    rows = np.arange(128, dtype=np.int32)[:, None] + 72  # the last ones need rows 200, 201
    right = np.concatenate([x, np.full((3, 4), -1, np.float32)])[rows + np.arange(3)]
    got = nkisim.simulate(gather(nisa.oob_mode.skip), x, rows, target="trn2")
    np.testing.assert_array_equal(got, right.reshape(128, 12))


def test_what_a_gather_reads_beyond_the_tensor_is_an_error_otherwise():
    rows = np.arange(128, dtype=np.int32)[:, None] + 72
    with pytest.raises(IndexError) as caught:
        nkisim.simulate(
            gather(nisa.oob_mode.error), np.ones((200, 4), np.float32), rows, target="trn2"
        )
    assert caught.value.nki_error.id == "NKI-I02"


def test_an_input_whose_rows_are_gathered_is_read():
    @beta1.jit
    def embedding(table, ids):
        out = beta1_nl.ndarray((128, 16), dtype=table.dtype, buffer=beta1_nl.shared_hbm)
        at = beta1_nl.load(ids)
        p, f = beta1_nl.arange(128)[:, None], beta1_nl.arange(16)[None, :]
        beta1_nl.store(out, beta1_nl.load(table[at[p, 0], f]))
        return out

    table, ids = X.reshape(-1, 16)[:700], np.arange(128, dtype=np.int32)[:, None] * 5
    run = nkisim.run(embedding, table, ids)
    np.testing.assert_array_equal(run.outputs, table[ids[:, 0]])
    rows = np.arange(128, dtype=np.int32)[:, None] + 72
    skip = nkisim.run(
        gather(nisa.oob_mode.skip), np.ones((200, 4), np.float32), rows, target="trn2"
    )
    assert not [f for f in (*run.findings, *skip.findings) if f.id == "NKI-O07"]


def test_annotations_name_the_module_of_dtypes():
    assert nki.dtype.bfloat16 == nl.bfloat16


# -- constants of NKI 0.1 and 0.2 ------------------------------------------------------------------


def test_constants_are_made_by_the_modules_of_older_releases():
    import nki.meta.tensor as later
    import nki.tensor as ntensor

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        rows, turned = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf) for _ in range(2))
        unit = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=unit, src=nl.shared_constant(ntensor.identity(64, dtype=nl.float32)))
        nisa.dma_copy(dst=rows, src=x)
        product = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=product, stationary=unit, moving=rows)
        nisa.tensor_copy(dst=turned, src=product)
        nisa.dma_copy(dst=out, src=turned)
        return out

    x = X[:64, :, 0].copy()
    np.testing.assert_array_equal(nkisim.simulate(kernel, x), x)
    assert (later.zeros((2, 3), nl.int32) == np.zeros((2, 3))).all()
    assert later.arange(4, dtype=nl.bfloat16).tolist() == [0, 1, 2, 3]
