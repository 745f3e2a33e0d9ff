"""Sums are made in the chip's order, which published outputs tell from sums in pairs."""

from __future__ import annotations

from pathlib import Path

import neuronxcc.nki as old
import neuronxcc.nki.isa as old_isa
import neuronxcc.nki.language as old_nl
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.chip.ops import ACTIVATIONS
from nkisim.chip.semantics import fold
from nkisim.isa.table import ROWS
from nkisim.language.nki import isa as _all_rows  # noqa: F401

RNG = np.random.default_rng(3)
PAGE = Path(__file__).parents[3] / "docs" / "numerics.md"


def one_by_one(op, x, start=None):
    """Return the sum or product of each row of x, one element after the other in float32."""
    rows = x.reshape(x.shape[0], -1)
    out = rows[:, 0].copy() if start is None else op(start, rows[:, 0])
    for k in range(1, rows.shape[1]):
        out = op(out, rows[:, k])
    return out[:, None]


@pytest.mark.parametrize(
    "shape",
    [
        (128, 512),
        (128, 3),
        (128, 2047),
        (1, 4096),
        (5, 300),
        (128, 4, 33),
        (2, 2, 2),
        (128, 17, 1),
        (64, 1, 900),
    ],
    ids=str,
)
@pytest.mark.parametrize("dialect", ["nki", "beta1"])
def test_a_row_is_summed_from_its_first_element_to_its_last(shape, dialect):
    @nki.jit
    def kernel(x):
        t, s = nl.load(x), nl.ndarray((x.shape[0], 1), dtype=nl.float32)
        nisa.tensor_reduce(s, op=nl.add, data=t, axis=tuple(range(1, len(x.shape))))
        out = nl.ndarray(s.shape, dtype=s.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, s)
        return out

    @old.jit
    def kernel_old(x):
        axes = tuple(range(1, len(x.shape)))
        out = old_nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=old_nl.shared_hbm)
        old_nl.store(out, old_isa.tensor_reduce(np.add, old_nl.load(x), axis=axes))
        return out

    x = RNG.standard_normal(shape).astype(np.float32)
    want = one_by_one(np.add, x)
    assert (nkisim.simulate(kernel if dialect == "nki" else kernel_old, x) == want).all()
    if x[0].size > 1000 and shape[0] > 100:  # and it tells the two orders apart
        assert (want[:, 0] != x.reshape(shape[0], -1).sum(axis=1)).any()


@pytest.mark.parametrize("op", [np.add, np.multiply, np.subtract], ids=lambda o: o.__name__)
def test_any_axes_of_any_view(op):
    for _ in range(60):
        x = RNG.standard_normal(RNG.integers(1, 20, RNG.integers(1, 5))).astype(np.float32)
        x = np.moveaxis(x[..., :: int(RNG.integers(1, 3))], -1, int(RNG.integers(x.ndim)))
        many = RNG.integers(1, x.ndim + 1)
        axes = tuple(sorted(RNG.choice(x.ndim, many, replace=False).tolist()))
        kept = [k for k in range(x.ndim) if k not in axes]
        rows = x.transpose(*kept, *axes).reshape(int(np.prod([x.shape[k] for k in kept])), -1)
        want = one_by_one(op, rows).reshape([x.shape[k] for k in kept])
        assert (fold(op, x, axes) == want).all()


def test_registers_go_on_from_what_they_hold():
    """reset_reduce, then reduce: the second sum begins with the register, not with 0."""

    @nki.jit
    def kernel(x, y):
        s = nl.ndarray((128, 1), dtype=nl.float32)
        for t, cmd in ((x, nisa.reduce_cmd.reset_reduce), (y, nisa.reduce_cmd.reduce)):
            nisa.activation(
                dst=nl.ndarray((128, 700), dtype=nl.float32),
                op=nl.copy,
                data=nl.load(t),
                reduce_op=nl.add,
                reduce_res=s,
                reduce_cmd=cmd,
            )
        out = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, s)
        return out

    x, y = RNG.standard_normal((2, 128, 700)).astype(np.float32)
    want = one_by_one(np.add, y, one_by_one(np.add, x)[:, 0])
    assert (nkisim.simulate(kernel, x, y) == want).all()


#: rows whose results are no sum: they choose, move, or work on one element at a time
NO_SUMS = {
    "tensor_copy",
    "memset",
    "tensor_copy_predicated",
    "tensor_tensor",
    "tensor_scalar",
    "scalar_tensor_tensor",
    "reciprocal",
    "tensor_unary",
    "select_reduce",
    "range_select",
    "dropout",
    "max8",
    "nc_find_index8",
    "nc_match_replace8",
    "nc_stream_shuffle",
    "nc_transpose",
    "nc_transpose_dve",
    "partition_broadcast",
    "iota",
    "affine_select",
    "local_gather",
    "gather_flattened",
    "sequence_bounds",
    "load",
    "store",
    "load_transpose2d",
    "dma_transpose",
    "tensor_copy_dynamic_src",
    "tensor_copy_dynamic_dst",
    "rand",
    "random_seed",
    "rng",
    "rand2",
    "set_rng_seed",
    "rand_set_state",
    "rand_get_state",
    "nonzero_with_count",
    "topk",
    "sendrecv",
    "core_barrier",
    "quantize_mx",
    "indirect_gather",
    "indirect_scatter",
}


@pytest.mark.parametrize("name", sorted(ROWS))
def test_every_row_says_how_it_adds(name):
    row = ROWS[name]
    assert (row.sums is None) == (name in NO_SUMS)
    if row.sums is not None:
        lines = [line for line in PAGE.read_text().splitlines() if f"`{name}`" in line]
        assert any(
            row.sums.order in line and row.sums.dtype in line and row.sums.known in line
            for line in lines
        ), f"{name}: {row.sums}"


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("function", ["negative", "exp", "square", "abs", "ceil"])
def test_functions_of_columns_that_lie_apart(step, function):
    """np.negative of NumPy 2.4 is wrong for some steps."""
    n = 9

    @old.jit
    def kernel(x):
        u = old_nl.zeros((4, n * step), dtype=old_nl.float32, buffer=old_nl.sbuf)
        i, j = old_nl.arange(4)[:, None], step * old_nl.arange(n)[None, :]
        u[i, j] = getattr(old_nl, function)(old_nl.load(x)[i, j])
        out = old_nl.ndarray((4, n * step), dtype=old_nl.float32, buffer=old_nl.shared_hbm)
        old_nl.store(out, u)
        return out

    x = RNG.standard_normal((4, n * step)).astype(np.float32)
    want = getattr(np, function)(x[:, ::step].copy())
    np.testing.assert_allclose(nkisim.simulate(kernel, x)[:, ::step], want, rtol=1e-6)


@pytest.mark.parametrize("step", range(1, 9))
@pytest.mark.parametrize("name", ["negative", "abs", "square", "relu"])
def test_a_function_writes_into_columns_that_lie_apart(step, name):
    x = RNG.standard_normal((9, step)).astype(np.float32)[:, -1]
    want = np.array([ACTIVATIONS[name].fn(np.array([v]))[0] for v in x], np.float32)
    out = np.zeros((9, step), np.float32)[:, 0]
    function = ACTIVATIONS[name].fn
    assert (function(x, out=out) == want).all() and (function(x, out=x) == want).all()
