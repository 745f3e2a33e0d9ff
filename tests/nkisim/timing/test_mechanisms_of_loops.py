"""What the order of loops does to a prediction, each on a kernel that shows it alone."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import pytest

import nkisim
from model_kernels import ones
from nkisim.dialect import BETA1
from nkisim.timing import compiler


@nki.jit
def nests(a):
    """Products that wait for exponentials, and then products that wait for nothing: each in two
    loops inside each other."""
    out = nl.ndarray((8, 128, 512), dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.load(a)
    for i in nl.affine_range(2):
        late = nl.exp(nl.exp(nl.exp(x)))
        for j in nl.affine_range(2):
            nl.store(out[2 * i + j], nl.copy(nisa.nc_matmul(late[:, 128 * j : 128 * j + 128], x)))
    for i in nl.affine_range(2):
        for j in nl.affine_range(2):
            nl.store(out[4 + 2 * i + j], nl.copy(nisa.nc_matmul(x[:, 128 * j : 128 * j + 128], x)))
    return out


@nki.jit
def loops(a):
    """The same, but each in one loop."""
    out = nl.ndarray((8, 128, 512), dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.load(a)
    for i in nl.affine_range(4):
        late = nl.exp(nl.exp(nl.exp(x)))
        nl.store(out[i], nl.copy(nisa.nc_matmul(late[:, :128], x)))
    for j in nl.affine_range(4):
        nl.store(out[4 + j], nl.copy(nisa.nc_matmul(x[:, 128 * j : 128 * j + 128], x)))
    return out


@nki.jit
def neighbours(a):
    """The same nests, in iterations of a loop that follow each other."""
    out = nl.ndarray((2, 4, 128, 512), dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.load(a)
    for i in nl.affine_range(2):
        late = nl.exp(nl.exp(nl.exp(x)))
        for j in nl.affine_range(4):
            nl.store(out[i, j], nl.copy(nisa.nc_matmul(late[:, :128], x)))
    return out


def products(kernel, name="nc_matmul", **how):
    """Return when each product begins (or instruction of a name), in program order."""
    prof = nkisim.profile(kernel, ones(128, 512), target="trn2", compute=False, **how)
    return [
        prof.schedule.issue[i] for i, (kind, *_) in enumerate(prof.trace) if kind.row.name == name
    ]


def test_a_nest_of_loops_begins_after_the_one_before():
    begin = products(nests)
    assert max(begin[:4]) < min(begin[4:])
    loose = set(compiler.options(None, True, "trn2", BETA1)) - {"nests"}
    begin = products(nests, compiler=loose)
    assert min(begin[4:]) < min(begin[:4])  # products fill the wait


@pytest.mark.parametrize("kernel, how", [(loops, {}), (nests, {"compiler": compiler.DEFAULT})])
def test_loops_without_others_in_them_fill_waits(kernel, how):
    begin = products(kernel, **how)
    assert min(begin[4:]) < min(begin[:4])


@nki.jit
def repeated(a):
    """Iterations of two nests each: sums of exponentials, and maxima of what is there before."""
    out = nl.ndarray((2, 2, 2, 2, 128, 1), dtype=a.dtype, buffer=nl.shared_hbm)
    x = nl.load(a)
    for i in nl.affine_range(2):
        for j in nl.affine_range(2):
            for k in nl.affine_range(2):
                nl.store(out[i, 0, j, k], nisa.tensor_reduce(nl.max, x, axis=1))
        for j in nl.affine_range(2):
            late = nl.exp(nl.exp(nl.exp(nl.exp(x))))
            for k in nl.affine_range(2):
                nl.store(out[i, 1, j, k], nisa.tensor_reduce(nl.add, late, axis=1))
    return out


def test_an_iteration_of_several_nests_begins_after_the_one_before():
    begin = products(repeated, name="tensor_reduce", compiler=(*compiler.DEFAULT, "nests"))
    assert all(max(begin[:at]) < min(begin[at:]) for at in (4, 8, 12))
    begin = products(repeated, name="tensor_reduce", compiler=compiler.DEFAULT)
    assert min(begin[8:12]) < max(begin[4:8])


def test_iterations_of_one_nest_do_not_wait_for_each_other():
    loose = set(compiler.options(None, True, "trn2", BETA1)) - {"nests"}
    assert products(neighbours) == products(neighbours, compiler=loose)


def test_a_window_goes_on_behind_a_nest():
    """Nests that are longer than the window, and shorter ones, are done to the last product."""

    @nki.jit
    def many(a):
        out = nl.ndarray((4, 40, 9, 128, 512), dtype=a.dtype, buffer=nl.shared_hbm)
        x = nl.load(a)
        for n, trips in enumerate((1, 3, 40, 2)):
            for i in nl.affine_range(trips):
                for j in nl.affine_range(9):
                    nl.store(out[n, i, j], nl.copy(nisa.nc_matmul(x[:, :128], x)))
        return out

    begin = products(many)
    assert len(begin) == 9 * 46
    for at in (9, 36, 396):
        assert max(begin[:at]) < min(begin[at:])
