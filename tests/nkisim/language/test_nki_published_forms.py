"""Forms of `import nki` that published kernels use: each was met in the wild."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim import NkiError

RNG = np.random.default_rng(0)


def data(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def constant(rows, value):
    tile = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(tile, value)
    return tile


@nki.jit
def shifted(x, rows):
    """Add 3 by each instruction that takes a vector; keep columns 0 to 2."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    zero, three = constant(rows, 0.0), constant(rows, 3.0)
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
    nisa.activation(dst=t, op=nl.copy, data=t, bias=three)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=three)
    most = nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.sbuf)
    nisa.range_select(
        dst=t,
        on_true_tile=t,
        comp_op0=nl.greater_equal,
        comp_op1=nl.less,
        bound0=zero,
        bound1=three,
        reduce_res=most,
    )
    nisa.dma_copy(dst=out, src=t)
    return out


def test_a_vector_may_have_more_partitions_than_the_last_tile():
    """One constant of 128 partitions serves tiles of any height: those of the tile are read."""
    x = data(40, 8)
    run = nkisim.run(shifted, x, 128)
    np.testing.assert_allclose(run.outputs[:, :3], x[:, :3] + 6, rtol=1e-5)
    assert (run.outputs[:, 3:] == np.finfo(np.float32).min).all()
    said = [f for f in run.findings if "of which the first 40 are read" in str(f)]
    assert {f.severity for f in said} == {"note"} and len(said) == 3
    exact = nkisim.run(shifted, x, 40)
    assert (exact.outputs == run.outputs).all()
    assert not [f for f in exact.findings if "are read" in str(f)]


def test_a_vector_of_fewer_partitions_is_refused():
    with pytest.raises(NkiError) as error:
        nkisim.run(shifted, data(40, 8), 32)
    assert error.value.id in ("NKI-E08", "NKI-S09")


@nki.jit
def own_half(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows = x.shape[0] // nl.num_programs(0)
    mine = nl.ds(nl.program_id(0) * rows, rows)
    t = nl.ndarray((rows, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x[mine])
    nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=float(nl.num_programs(0)))
    nisa.dma_copy(dst=out[mine], src=t)
    return out


def test_cores_are_chosen_before_or_after_simulate():
    x = data(64, 16)
    for cores in (1, 2):
        assert (nki.simulate(own_half[cores])(x) == x + cores).all()
        assert (nki.simulate(own_half)[cores](x) == x + cores).all()


@nki.jit
def added(x, y, use):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    if y.shape[0] > 0 or use:
        nisa.tensor_tensor(dst=t, data1=t, data2=nl.load(y), op=nl.add)
    nisa.dma_copy(dst=out, src=t)
    return out


def test_an_argument_without_elements_has_a_shape_to_ask_for():
    """Models pass torch.empty(0) where nothing is to be passed."""
    x = data(8, 4)
    for shape in ((0, 4), (0,)):
        assert (nkisim.simulate(added, x, np.zeros(shape, np.float32), False) == x).all()
    assert (nkisim.simulate(added, x, x, False) == 2 * x).all()


def test_using_an_argument_without_elements_is_an_error_about_the_argument():
    with pytest.raises(NkiError, match="argument y has no elements") as error:
        nkisim.simulate(added, data(8, 4), np.zeros((0, 4), np.float32), True)
    assert error.value.id == "NKI-K04"


# -- copies between groupings ----------------------------------------------------------------------


@nki.jit
def regrouped(x):
    """Rows 0, 32, 64, 96 side by side, and back: in HBM the groups cannot be one dim."""
    t = nl.ndarray((32, 4 * x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    groups = x.reshape((4, 32, x.shape[1])).permute((1, 0, 2))
    nisa.dma_copy(dst=t, src=groups)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out.reshape((4, 32, x.shape[1])).permute((1, 0, 2)), src=t)
    copy = nl.ndarray(t.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=copy, src=t)
    return out, copy


def test_a_copy_takes_other_groupings_of_as_many_elements():
    x = data(128, 6)
    out, copy = nkisim.simulate(regrouped, x)
    assert np.array_equal(out, x)
    assert np.array_equal(copy, x.reshape(4, 32, 6).transpose(1, 0, 2).reshape(32, 24))
    assert nkisim.profile(regrouped, x, compute=False).latency_us > 0


def test_a_copy_that_no_view_can_regroup_is_refused():
    @nki.jit
    def kernel(x):
        t = nl.ndarray((16, 48), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x[:, :3])
        return t

    with pytest.raises(NkiError, match="NKI-S07"):
        nkisim.run(kernel, data(256, 6))


def test_a_broken_constraint_is_what_the_package_calls_it():
    """Tests of others ask for nisa.NkiValidationError."""
    with pytest.raises(nisa.NkiValidationError, match="256 partitions"):
        nkisim.run(lambda: nl.ndarray((256, 4), dtype=nl.float32, buffer=nl.sbuf))
    with pytest.raises(nisa.NkiValidationError):
        shifted[3]
