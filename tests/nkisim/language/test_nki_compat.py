"""Kernels of NKI 0.1 and 0.2: what 0.3 changed in a call means what it did, if it is asked for."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim import NkiError
from nkisim.lint.level import VERSION_VARIABLE

X = np.random.default_rng(0).standard_normal((32, 4, 6)).astype(np.float32)


def tile(*shape, dtype=nl.float32, buffer=nl.sbuf):
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


def stored(t):
    out = tile(*t.shape, dtype=t.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=t)
    return out


@nki.jit
def sums(x, axis=1):
    t, total = tile(32, 4, 6), tile(32, 4 if axis == 1 else 1)
    nisa.dma_copy(dst=t, src=x)
    nisa.tensor_reduce(dst=total, op=nl.add, data=t, axis=axis)
    return stored(total)


@nki.jit
def seven():
    t = tile(32, 4, dtype=nl.int32)
    nisa.memset(t, 7.0)
    return stored(t)


@nki.jit
def added(x):
    t, total = tile(32, 24), tile(32, 24)
    nisa.dma_copy(t, x.reshape((32, 24)), None)
    nisa.dma_compute(total, [t, t], [1.0, 1.0], nl.add)
    return stored(total)


@nki.jit
def triangle(x):
    t, low = tile(32, 24), tile(32, 24)
    nisa.dma_copy(dst=t, src=x.reshape((32, 24)))
    nisa.affine_select(low, [[-1, 24]], 0, 1, t, 0.0, nl.greater_equal)
    return stored(low)


@nki.jit
def out_of_psum(x):
    t, product = tile(32, 24), tile(24, 24, buffer=nl.psum)
    nisa.dma_copy(dst=t, src=x.reshape((32, 24)))
    nisa.nc_matmul(product, t, t)
    out = tile(24, 24, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=product)
    return out


@nki.jit
def copied(x, dtype=nl.float32):
    t, again = tile(32, 24), tile(32, 24)
    nisa.dma_copy(dst=t, src=x.reshape((32, 24)))
    nisa.tensor_copy(dst=again, src=t, dtype=dtype)
    return stored(again)


@nki.jit
def exchanged(x):
    out = tile(2, 32, 24, buffer=nl.shared_hbm)
    me, t, other = nl.program_id(0), tile(32, 24), tile(32, 24)
    nisa.dma_copy(dst=t, src=x.reshape((32, 24)))
    nisa.sendrecv(
        src=t, dst=other, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0, use_gpsimd_dma=True
    )
    nisa.dma_copy(dst=out[me], src=other)
    return out


FLAT = X.reshape(32, 24)
#: kernel, arguments, what it returned in 0.2
KERNELS = [
    (sums, (X,), X.sum(2)),
    (sums, (X, [1, 2]), X.sum((1, 2))[:, None]),
    (seven, (), np.full((32, 4), 7)),
    (added, (X,), 2 * FLAT),
    (triangle, (X,), np.tril(FLAT)),
    (exchanged[2], (X,), np.stack([FLAT, FLAT])),
    (copied, (X,), FLAT),
]


@nki.jit
def added_twice(x):
    total = tile(32, 24)
    for k in range(3):
        nisa.dma_copy(
            dst=total,
            src=x.reshape((32, 24)),
            unique_indices=True,
            dst_rmw_op=None if k == 0 else nl.add,
        )
    nisa.dma_copy(total, x.reshape((32, 24)), dst_rmw_op=nl.add)
    return stored(total)


@nki.jit
def moved(x):
    r, count = nisa.register_alloc(), tile(1, 1, dtype=nl.int32)
    nisa.register_move(r, imm=5)
    nisa.register_store(count, r)
    total = tile(1, 1, dtype=nl.int32)
    nisa.register_store(total, nisa.register_alloc(count))
    return stored(total)


@nki.jit
def dynamic(x):
    t, column = tile(32, 24), tile(32, 1)
    nisa.dma_copy(dst=t, src=x.reshape((32, 24)))
    nisa.tensor_copy_dynamic_src(
        dst=column,
        src=t.ap([[24, 32], [1, 1]], scalar_offset=nisa.register_alloc(7), indirect_dim=1),
    )
    return stored(column)


@nki.jit
def marked(x):
    t = tile(nl.par_dim(32), 24)
    nisa.dma_copy(dst=t, src=x.reshape((32, 24)))
    return stored(t)


#: what later releases refuse, as their documents say
REFUSED = [(out_of_psum, (X,), FLAT.T @ FLAT)]


@nki.jit
def square_sums(x):
    return reduced(x, 1, 32, 4)


KERNELS += [
    (square_sums, (X[:, :, :4].copy(),), X[:, :, :4].sum(2)),
    (added_twice, (X,), 4 * FLAT),
    (moved, (X,), np.array([[5]])),
    (dynamic, (X,), FLAT[:, 7:8]),
    (marked, (X,), FLAT),
]


@pytest.mark.parametrize("version", ["0.1", "0.2"])
@pytest.mark.parametrize("kernel, args, right", KERNELS + REFUSED)
def test_a_call_means_what_it_did(monkeypatch, kernel, args, right, version):
    monkeypatch.setenv(VERSION_VARIABLE, version)
    run = nkisim.run(kernel, *args)
    np.testing.assert_allclose(run.outputs, right, rtol=1e-5, atol=1e-5)
    assert "NKI-G43" not in {f.id for f in run.findings}
    assert nkisim.profile(kernel, *args, compute=False).latency_us > 0


@pytest.mark.parametrize("version", ["0.3", "0.6", ""])
@pytest.mark.parametrize("kernel, args, right", KERNELS, ids=range(len(KERNELS)))
def test_later_it_runs_with_a_warning_where_it_can_mean_nothing_else(
    monkeypatch, kernel, args, right, version
):
    monkeypatch.setenv(VERSION_VARIABLE, version)
    run = nkisim.run(kernel, *args)
    np.testing.assert_allclose(run.outputs, right, rtol=1e-5, atol=1e-5)
    said = [f for f in run.findings if f.id == "NKI-G43"]
    assert bool(said) == (not (version == "0.3" and kernel is dynamic) and args[1:] != ([1, 2],))
    assert {f.severity for f in said} <= {"warning"} and all(f.where for f in said)
    monkeypatch.setenv("NKI_LANGUAGE", "strict")
    if said:
        with pytest.raises(NkiError, match="NKI-G43"):
            nkisim.run(kernel, *args)
    monkeypatch.setenv("NKI_LANGUAGE", "off")
    assert not [f for f in nkisim.run(kernel, *args).findings if f.severity == "warning"]


@pytest.mark.parametrize("kernel, args, right", REFUSED)
def test_what_is_documented_as_an_error_names_the_version(kernel, args, right):
    with pytest.raises(NkiError, match="NKI_LANGUAGE_VERSION=0.2"):
        nkisim.run(kernel, *args)


def test_what_was_told_is_told_again():
    @nki.jit
    def kernel(x):
        t, again = tile(32, 24), tile(32, 24)
        nisa.dma_copy(dst=t, src=x.reshape((32, 24)))
        nisa.tensor_copy(dst=again, src=t, dtype=nl.float32)
        nisa.tensor_copy(dst=t, src=again, dtype=nl.float32)
        return stored(t)

    said = [f for f in nkisim.run(kernel, X).findings if f.id == "NKI-G43"]
    assert len({str(f.where) for f in said}) == 2


def test_the_forms_of_0_3(monkeypatch):
    """dma_copy had no priority, and dma_transpose filled up the dims of dst."""

    @nki.jit
    def kernel(x):
        t = tile(32, 16, dtype=nl.bfloat16)
        nisa.dma_transpose(t, x.reshape((16, 1, 1, 32)), (3, 1, 2, 0), nisa.dge_mode.unknown)
        out = tile(32, 16, dtype=nl.bfloat16, buffer=nl.shared_hbm)
        nisa.dma_copy(out, t, nisa.oob_mode.skip, nisa.dge_mode.none)
        return out

    x = np.arange(512).reshape(16, 32).astype(nl.bfloat16)
    with pytest.raises(NkiError, match="priority"):
        nkisim.run(kernel, x)
    monkeypatch.setenv(VERSION_VARIABLE, "0.3")
    assert np.array_equal(nkisim.simulate(kernel, x), x.T)


def reduced(x, axis, *shape):
    t, total = tile(*x.shape), tile(*shape)
    nisa.dma_copy(dst=t, src=x)
    nisa.tensor_reduce(dst=total, op=nl.add, data=t, axis=axis)
    return stored(total)


@pytest.mark.parametrize(
    "shape, axis, dst",
    [
        ((32, 4, 6), 1, (32, 6)),  # what the axis says, which no release since 0.3 does
        ((32, 4, 6), 1, (32, 24)),
        ((32, 4, 6, 2), (1, 2), (32, 2)),
    ],
)
def test_axes_that_dst_does_not_fit_are_refused(shape, axis, dst):
    with pytest.raises(NkiError, match="NKI_LANGUAGE_VERSION=0.2"):
        nkisim.run(nki.jit(reduced), np.ones(shape, np.float32), axis, *dst)


def test_axes_of_today_keep_their_meaning():
    run = nkisim.run(nki.jit(reduced), X, 2, 32, 4)
    np.testing.assert_allclose(run.outputs, X.sum(2), rtol=1e-5, atol=1e-5)
    assert "NKI-G43" not in {f.id for f in run.findings}


def test_what_every_release_refuses_is_refused(monkeypatch):
    monkeypatch.setenv(VERSION_VARIABLE, "0.2")

    @nki.jit
    def kernel():
        t = tile(32, 4, dtype=nl.int32)
        nisa.memset(t, 0.5)
        return stored(t)

    with pytest.raises(NkiError, match="NKI-N07"):
        nkisim.run(kernel)


@pytest.mark.parametrize("version", ["0.2", ""])
def test_the_dtype_of_dst_is_that_of_the_result(monkeypatch, version):
    """0.1 did not look at a dtype=, and AWS's own kernels give others than that of dst."""
    monkeypatch.setenv(VERSION_VARIABLE, version)
    assert np.array_equal(nkisim.simulate(copied, X, nl.bfloat16), FLAT)
    for wrong in ("float", 3, None):
        with pytest.raises(NkiError, match="NKI-N01"):
            nkisim.run(copied, X, wrong)


def test_programs_outside_of_kernels(monkeypatch):
    """Names for a parser said nothing there; today it is an error."""
    for ask in (nl.program_ndim, nl.num_programs, nl.program_id):
        with pytest.raises(NkiError, match="NKI-K01"):
            ask()
    monkeypatch.setenv(VERSION_VARIABLE, "0.2")
    assert (nl.program_ndim(), nl.num_programs(axes=0), nl.program_id(0)) == (None, None, None)


def test_a_partition_dim_that_is_not_the_first_one(monkeypatch):
    @nki.jit
    def kernel(x):
        t = tile(4, nl.par_dim(32), 24)
        return stored(t)

    with pytest.raises(NkiError, match="list of tiles.*NKI_LANGUAGE_VERSION=0.2"):
        nkisim.run(kernel, X)


@nki.jit
def halves(x):
    """Each core writes its half of an output in nl.hbm, and says where its input lies."""
    out = tile(*x.shape, dtype=x.dtype, buffer=nl.hbm)
    rows = x.shape[0] // nl.num_programs(0)
    at = nl.ds(nl.program_id(0) * rows, rows)
    t = tile(rows, x.shape[1])
    nisa.dma_copy(dst=t, src=x[at])
    if x.buffer == nl.hbm:
        nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out[at], src=t)
    return out


@pytest.mark.parametrize("cores", [1, 2])
def test_hbm_was_shared_by_the_cores(monkeypatch, cores):
    x = np.ones((32, 24), np.float32)
    monkeypatch.setenv(VERSION_VARIABLE, "0.2")
    run = nkisim.run(halves[cores], x, target="trn2")
    assert (run.outputs == 2).all() and not [f for f in run.findings if f.severity == "error"]


def test_hbm_is_private_since_0_3_and_that_is_said(monkeypatch):
    x = np.ones((32, 24), np.float32)
    monkeypatch.setenv("NKI_LANGUAGE", "teach")
    for version in ("0.3", "0.7"):
        monkeypatch.setenv(VERSION_VARIABLE, version)
        assert nl.hbm is nl.private_hbm
        found = {f.id for f in nkisim.run(halves[2], x, target="trn2").findings}
        assert {"NKI-O04", "NKI-R07"} <= found


@nki.jit
def second_row(x):
    t = tile(1, x.shape[1])
    nisa.dma_copy(dst=t, src=x.ap([[x.shape[1], 1], [1, x.shape[1]]], scalar_offset=1))
    return stored(t)


def test_a_number_of_python_was_a_run_time_offset_as_well(monkeypatch):
    x = np.arange(32 * 4, dtype=np.float32).reshape(32, 4)
    monkeypatch.setenv(VERSION_VARIABLE, "0.2")
    assert (nkisim.simulate(second_row, x) == x[1:2]).all()
    monkeypatch.delenv(VERSION_VARIABLE)
    with pytest.raises(NkiError) as caught:
        nkisim.simulate(second_row, x)
    assert caught.value.id == "NKI-N02" and "offset=" in caught.value.hint
