"""Arithmetic that does not change in a loop, and rows that are broadcast over partitions."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim
from model_kernels import ones
from nkisim.chip import hw
from nkisim.simulation.launch import launch
from nkisim.timing.invariant import hoist_arithmetic


def predict(kernel, *args, **kwargs):
    return nkisim.profile(kernel, *args, compute=False, **{"target": "trn2", **kwargs})


def engines(prof, name):
    return [k.engine for k, *_ in prof.trace if k.row.name == name]


@nki.jit
def scaled(a, b):
    """Each row of b times the same product, which each iteration computes anew."""
    out = nl.ndarray((8, 128, 64), dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.load(a)
    for i in nl.affine_range(8):
        square = nisa.tensor_tensor(x, x, nl.multiply)
        twice = nisa.tensor_tensor(square, x, nl.add)
        nl.store(out[i], nisa.tensor_tensor(twice, nl.load(b[i]), nl.subtract))
    return out


def rounds(inner):
    """The product changes with the inner loop, and is the same for each round of the outer one.

    `inner`: the range of the inner loop; one over static_range is none for the compiler.
    """

    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((4, 4, 128, 64), dtype=a.dtype, buffer=nl.shared_hbm)
        x = nl.load(a)
        y = nl.ndarray((4, nl.par_dim(128), 64), dtype=a.dtype, buffer=nl.sbuf)
        for j in nl.affine_range(4):
            y[j] = nl.load(b[j])
        for i in nl.affine_range(4):
            for j in inner(4):
                nl.store(out[i, j], nisa.tensor_tensor(x, y[j], nl.multiply))
        return out

    return kernel


@nki.jit
def changing(a):
    """What an iteration reads, the one before has written."""
    out = nl.ndarray((4, 128, 64), dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.load(a)
    for i in nl.sequential_range(4):
        y = nisa.tensor_tensor(x, x, nl.add)
        nl.store(out[i], y)
        x[...] = nl.copy(y)
    return out


@pytest.mark.parametrize(
    "kernel, count, was",
    [(scaled, 1 + 1 + 8, 24), (rounds(nl.affine_range), 16, 16), (rounds(nl.static_range), 4, 16)],
)
def test_what_is_the_same_in_all_iterations_is_computed_once(kernel, count, was):
    args = ones(128, 64), ones(8, 128, 64)
    for options, n in ((("hoist-arithmetic",), count), ((), was)):
        assert len(engines(predict(kernel, *args, compiler=options), "tensor_tensor")) == n


def test_what_an_iteration_changes_is_not():
    assert len(engines(predict(changing, ones(128, 64)), "tensor_tensor")) == 4


def test_results_are_read_where_they_are_computed():
    """Whoever used a product of its own reads the first one, which no one else writes."""
    trace = launch(
        scaled, (ones(128, 64), ones(8, 128, 64)), {}, target="trn2", compute=False
    ).trace
    changed = hoist_arithmetic(trace, hw.TRN2)
    places = [
        [o for o in operands] for k, _, _, operands in changed if k.row.name == "tensor_tensor"
    ]
    square, twice, *rest = places
    assert twice[1] == square[0] and {tuple(p[1]) for p in rest} == {tuple(twice[0])}
    assert len({p[0][0] for p in rest}) == 8 and not {p[0][0] for p in rest} & {twice[0][0]}


def test_without_room_for_it_every_iteration_computes_its_own():
    @nki.jit
    def full(a, b):
        out = nl.ndarray((4, 128, a.shape[1]), dtype=a.dtype, buffer=nl.shared_hbm)
        x, y = nl.load(a), nl.load(b)
        for i in nl.affine_range(4):
            nl.store(out[i], nisa.tensor_tensor(x, y, nl.multiply))
        return out

    for columns, count in (1024, 1), (14336, 4):
        prof = predict(full, ones(128, columns), ones(128, columns))
        assert len(engines(prof, "tensor_tensor")) == count


@nki.jit
def numbered(a, b):
    """Products of one tile with other numbers, and by other operators; parts of one sum."""
    out = nl.ndarray((8, 128, 64), dtype=a.dtype, buffer=nl.shared_hbm)
    x, y = nl.load(a), nl.load(b[0])
    for _ in nl.affine_range(1):
        both = nisa.tensor_tensor(x, y, nl.add)
        for k in nl.static_range(8):
            nl.store(out[k], nisa.tensor_scalar(x, nl.multiply, 2.0 + k))
            nl.store(out[k], nisa.tensor_scalar(x, nl.subtract, 2.0, reverse0=k % 2 == 0))
            nl.store(out[k, :, k : k + 8], nisa.tensor_scalar(both[:, k : k + 8], nl.add, 1.0))
    return out


@nki.jit
def by_turns(a, b):
    """Four products; each is computed in two iterations out of eight."""
    out = nl.ndarray((8, 128, 64), dtype=a.dtype, buffer=nl.shared_hbm)
    x, numbers = nl.load(a), iter([1.0, 2.0, 3.0, 4.0] * 2)
    for i in nl.affine_range(8):
        nl.store(out[i], nisa.tensor_scalar(x, nl.multiply, next(numbers)))
    return out


@pytest.mark.parametrize("kernel, count", [(numbered, 24), (by_turns, 8)])
def test_only_what_all_iterations_compute_alike_is_left_out(kernel, count):
    """Equal operands are not enough: numbers, flags and parts of a tile have to be equal too."""
    args = ones(128, 64), ones(8, 128, 64)
    assert len(engines(predict(kernel, *args), "tensor_scalar")) == count


# -- broadcast rows --------------------------------------------------------------------------------


def weighted(columns, product=False):
    @nki.jit
    def kernel(a, w):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        x = nl.load(a)
        row = nl.load(w).broadcast_to((128, columns))
        if product:  # the Tensor Engine reads SBUF alone
            nl.store(out[:, :128], nl.copy(nisa.nc_matmul(row[:, :128], x[:, :128])))
        nl.store(out, nisa.tensor_tensor(x, row, nl.multiply))
        return out

    return kernel, ones(128, columns), ones(1, columns)


@pytest.mark.parametrize(
    "columns, product, copies", [(512, False, 0), (128, False, 0), (1024, False, 2), (512, True, 2)]
)
def test_a_broadcast_row_is_read_out_of_psum_if_a_bank_holds_it(columns, product, copies):
    kernel, *args = weighted(columns, product)
    prof = predict(kernel, *args)
    assert len(engines(prof, "partition_broadcast")) == max(1, columns // 512)
    assert len(engines(prof, "tensor_copy")) == copies
    (operands,) = {
        tuple(p.memory for p in k.operands) for k, *_ in prof.trace if k.row.name == "tensor_tensor"
    }
    assert operands == ("sbuf", "sbuf", "sbuf" if copies else "psum")


def test_the_result_does_not_depend_on_it():
    kernel, *args = weighted(512)
    x = np.arange(128 * 512, dtype=np.float32).reshape(128, 512)
    assert (nki.simulate_kernel(kernel, x, args[1]) == x).all()
