"""Products that wait are computed before anything can notice that they had not been."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.lazy import products, stacks
from nkisim.simulation.launch import launch


def adding(body):
    """Return a kernel in which body(acc, stationary, moving) adds products of a and b to a sum."""

    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
        acc = nl.zeros((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.psum)
        body(acc, nl.load(a), nl.load(b))
        nl.store(out, value=nl.copy(acc))
        return out

    return kernel


@adding
def rewritten_operand(acc, stationary, moving):
    """Accumulate a.T @ b and then a.T @ (b + 1), with b changed in place in between."""
    acc += nisa.nc_matmul(stationary, moving)
    moving[...] = nl.add(moving, 1.0)
    acc += nisa.nc_matmul(stationary, moving)


@adding
def rewritten_half(acc, stationary, moving):
    """As above, but the operands are halves of one tile, and the other half is changed."""
    both = nl.ndarray((moving.shape[0], 2, moving.shape[1]), dtype=moving.dtype, buffer=nl.sbuf)
    for i in nl.sequential_range(4):
        both[:, 0] = nl.copy(moving)
        both[:, 1] = nl.multiply(both[:, 0], float(i))
        acc += nisa.nc_matmul(stationary, both[:, 1])


@adding
def ring_of_two(acc, stationary, moving):
    """Load into one slot while products with the other one wait; come back to the first."""
    ring = nl.ndarray((moving.shape[0], 2, moving.shape[1]), dtype=moving.dtype, buffer=nl.sbuf)
    for i in nl.static_range(5):
        ring[:, i % 2] = nl.multiply(moving, float(i))
        acc += nisa.nc_matmul(stationary, ring[:, i % 2])


@nki.jit
def windows_at_one_place(a, b):
    """Let two banks accumulate windows that begin at one element and have different shapes."""
    out = nl.ndarray((2, a.shape[1], 16), dtype=nl.float32, buffer=nl.shared_hbm)
    wide = nl.zeros((a.shape[1], 2, 8), dtype=nl.float32, buffer=nl.psum)
    tall = nl.zeros((a.shape[1], 8, 2), dtype=nl.float32, buffer=nl.psum)
    stationary = nl.load(a)
    moving = nl.load(b.reshape((b.shape[0], b.shape[1] // 8, 8)))
    for _ in nl.affine_range(2):
        wide += nisa.nc_matmul(stationary, moving[:, 0:2, 0:8])
        tall += nisa.nc_matmul(stationary, moving[:, 0:8, 0:2])
    nl.store(out[0], value=nl.copy(wide.reshape((a.shape[1], 16))))
    nl.store(out[1], value=nl.copy(tall.reshape((a.shape[1], 16))))
    return out


@nki.jit
def read_in_between(a, b):
    """Return the sum after one product, and after two."""
    outs = nl.ndarray((2, a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    acc = nl.zeros((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.psum)
    stationary, moving = nl.load(a), nl.load(b)
    for i in nl.static_range(2):
        acc += nisa.nc_matmul(stationary, moving)
        nl.store(outs[i], value=nl.copy(acc))
    return outs


@nki.jit
def banks_in_turn(a, b):
    """Let 4 banks accumulate in turn, 40 products each: more rows than one BLAS call takes."""
    out = nl.ndarray((4, a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    acc = nl.zeros((4, nl.par_dim(a.shape[1]), b.shape[1]), dtype=nl.float32, buffer=nl.psum)
    stationary, moving = nl.load(a), nl.load(b)
    for _ in nl.affine_range(40):
        for bank in nl.affine_range(4):
            acc[bank] += nisa.nc_matmul(stationary, moving)
    for bank in nl.affine_range(4):
        nl.store(out[bank], value=nl.copy(acc[bank]))
    return out


@adding
def overwritten_result(acc, stationary, moving):
    """Accumulate, then write the bank anew: the sum that waited must not come back."""
    for _ in nl.affine_range(3):
        acc += nisa.nc_matmul(stationary, moving)
    acc[...] = nisa.nc_matmul(stationary, moving)


def test_device_print_sees_the_sum(capsys):
    @nki.jit
    def printing(a, b):
        out = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.shared_hbm)
        acc = nl.zeros((1, 1), dtype=nl.float32, buffer=nl.psum)
        stationary, moving = nl.load(a), nl.load(b)
        for _ in nl.affine_range(3):
            acc += nisa.nc_matmul(stationary, moving)
        nl.device_print("sum", acc)
        nl.store(out, value=nl.copy(acc))
        return out

    nkisim.simulate(printing, np.ones((2, 1), np.float32), np.ones((2, 1), np.float32))
    assert "6." in capsys.readouterr().out


@adding
def kept_result(acc, stationary, moving):
    """Hold the tile that a product was bound to while the bank goes on."""
    first = nisa.nc_matmul(stationary, moving)
    acc += first
    acc += nisa.nc_matmul(stationary, moving)


@adding
def reversed_operand(acc, stationary, moving):
    """A product with the columns of a tile from right to left waits; the leftmost is changed."""
    p, f = nl.mgrid[0 : moving.shape[0], 0 : moving.shape[1]]
    acc += nisa.nc_matmul(stationary, moving[p, moving.shape[1] - 1 - f])
    moving[:, 0:1] = 0


@nki.jit
def the_same_weights_again(a, b):
    """Use the same stationary tiles for four results, and change one of them before the last."""
    outs = nl.ndarray((4, a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    weights = nl.ndarray((a.shape[0], 2, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
    weights[:, 0] = nl.load(a)
    weights[:, 1] = nl.multiply(weights[:, 0], 2.0)
    for i in nl.static_range(4):
        acc = nl.zeros((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.psum)
        if i == 3:
            weights[:, 1] = nl.multiply(weights[:, 0], 4.0)
        moving = nl.multiply(nl.load(b), float(i + 1), dtype=b.dtype)
        for k in nl.static_range(2):
            acc += nisa.nc_matmul(weights[:, k], moving)
        nl.store(outs[i], value=nl.copy(acc))
    return outs


#: what a kernel returns, of p = a.T @ b, a and b
KERNELS = {
    rewritten_operand: lambda p, a, b: 2 * p + a.sum(axis=0)[:, None],
    rewritten_half: lambda p, a, b: 6 * p,
    ring_of_two: lambda p, a, b: 10 * p,
    windows_at_one_place: lambda p, a, b: (
        2 * np.stack([p[:, :16], p.reshape(64, 12, 8)[:, 0:8, 0:2].reshape(64, 16)])
    ),
    read_in_between: lambda p, a, b: np.stack([p, 2 * p]),
    banks_in_turn: lambda p, a, b: np.stack([40 * p] * 4),
    overwritten_result: lambda p, a, b: p,
    kept_result: lambda p, a, b: 2 * p,
    reversed_operand: lambda p, a, b: a.T @ b[:, ::-1],
    the_same_weights_again: lambda p, a, b: np.stack([3 * p, 6 * p, 9 * p, 20 * p]),
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_sums_are_those_of_program_order(kernel, dtype, monkeypatch):
    """Whole numbers: a sum in any order is exact, so both ways must give each bit of it."""
    a, b = (
        np.random.default_rng(s).integers(-3, 4, (128, n)).astype(dtype)
        for s, n in ((0, 64), (1, 96))
    )
    wide = a.astype(np.float64), b.astype(np.float64)
    exact = KERNELS[kernel](wide[0].T @ wide[1], *wide)
    together = nkisim.simulate(kernel, a, b)
    np.testing.assert_array_equal(together, exact)
    monkeypatch.setattr(products, "MAX_PRODUCTS", 1)  # each is computed when it is issued
    assert nkisim.simulate(kernel, a, b).tobytes() == together.tobytes()


#: rows and columns of a sum that two products are added to, in this order
OVERLAPS = [
    ((slice(0, 8), slice(0, 4)), (slice(0, 32), slice(0, 16))),
    ((slice(0, 32), slice(0, 16)), (slice(0, 8), slice(0, 4))),
    ((slice(0, 32), slice(0, 8)), (slice(0, 32), slice(4, 12))),
    ((slice(0, 32), slice(0, 8)), (slice(0, 32), slice(0, 16, 2))),
    ((slice(0, 32), slice(0, 16, 2)), (slice(0, 32), slice(0, 8))),
]


@nki.jit
def into_each_other(a, b, parts, times):
    """Add a product to each of some parts of a sum, which have bytes in common, several times."""
    out = nl.ndarray((32, 16), dtype=nl.float32, buffer=nl.shared_hbm)
    acc = nl.zeros((32, 16), dtype=nl.float32, buffer=nl.psum)
    other = nl.zeros((32, 16), dtype=nl.float32, buffer=nl.psum)
    stationary, moving = nl.load(a), nl.load(b)
    other += nisa.nc_matmul(stationary, moving)
    for _ in range(times):
        for rows, columns in parts:
            acc[rows, columns] += nisa.nc_matmul(stationary[:, rows], moving[:, columns])
    nl.store(out, value=nl.subtract(nl.copy(acc), nl.copy(other)))
    return out


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("parts", OVERLAPS)
def test_sums_that_have_bytes_in_common(monkeypatch, parts, times, every, threads):
    monkeypatch.setenv("NKISIM_THREADS", threads)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((64, 32), (64, 16)))
    whole = a.T @ b
    want = -whole
    for part in parts:
        want[part] += times * whole[part]
    got = launch(into_each_other, (a, b, parts, times), {}, every_iteration=every)
    assert np.array_equal(got.outputs, want)


@nki.jit
def tiles_of_a_row(a, b, width, turned):
    """a.T @ b in tiles of 64 rows and `width` columns; `turned`: a row of tiles from its end."""
    out = nl.ndarray((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = nl.load(a), nl.load(b)
    starts = list(range(0, b.shape[1], width))
    for row in range(0, a.shape[1], 64):
        for start in starts[::-1] if turned else starts:
            acc = nl.zeros((64, width), dtype=nl.float32, buffer=nl.psum)
            acc += nisa.nc_matmul(left[:, row : row + 64], right[:, start : start + width])
            nl.store(out[row : row + 64, start : start + width], value=nl.copy(acc))
    return out


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_tiles_of_a_row_are_one_product_up_to_a_width(monkeypatch, dtype, turned, threads):
    monkeypatch.setenv("NKISIM_THREADS", threads)
    monkeypatch.setattr(products, "MAX_WIDTH", 70)
    widths, multiply = [], products.multiply

    def noted(product):
        widths.append(product[2])
        multiply(product)

    monkeypatch.setattr(products, "multiply", noted)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(dtype) for shape in ((128, 128), (128, 120)))
    want = a.astype(np.float64).T @ b.astype(np.float64)
    assert np.array_equal(nkisim.simulate(tiles_of_a_row, a, b, 24, turned), want)
    if threads == "1":
        assert widths == ([24] * 5 if turned else [48, 48, 24])


def test_matrices_side_by_side():
    """Only views of one memory whose rows go on from one to the other are one matrix."""
    whole = np.arange(80, dtype=np.float32).reshape(4, 20)
    join = stacks.side_by_side
    left, right = whole[:, 2:5], whole[:, 5:9]
    assert np.array_equal(join(left, right, 7), whole[:, 2:9])
    assert np.array_equal(join(join(left, right, 20), whole[:, 9:], 20), whole[:, 2:])
    assert join(left, right, 6) is None  # too wide
    assert join(right, left, 20) is None and join(left, whole[:, 6:9], 20) is None
    assert join(left, whole[:3, 5:9], 20) is None  # other rows
    assert join(left, whole[:, 5:9:2], 20) is None
    assert join(left, right.copy(), 20) is None  # another memory
