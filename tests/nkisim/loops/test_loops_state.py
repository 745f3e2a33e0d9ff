"""What a loop leaves to Python, and what is otherwise in its middle, is recorded all the same."""

from __future__ import annotations

import itertools
from collections import deque

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

from looping import SIZES, N, same_record, wide
from model_kernels import ones
from nkisim import NkiError


def storing(body):
    """Return a kernel: body(out, tile) stores a tile at places of `out`."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((N, 128, 4), dtype=x.dtype, buffer=nl.shared_hbm)
        body(out, nl.load(x))
        return out

    kernel.__name__ = body.__name__
    return kernel


def of_its_shape(body):
    """Return a kernel: body(out, x) fills a tensor of the input's shape."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        body(out, x)
        return out

    kernel.__name__ = body.__name__
    return kernel


@storing
def comprehends(out, tile):
    stored = [(nl.store(out[i], tile), i) for i in nl.affine_range(N)]
    for _, i in stored:
        nl.store(out[i], tile)


@storing
def comprehends_in_two(out, tile):
    for i in [(nl.store(out[i, k], tile[k]), i)[1] for k in range(1) for i in nl.affine_range(N)]:
        nl.store(out[i], tile)


@storing
def enumerates(out, tile):
    for k, i in enumerate(nl.affine_range(N)):
        nl.store(out[k], tile)
        if k == 7:
            nl.store(out[i], tile)


@storing
def carries(out, tile):
    last = tile
    for i in nl.sequential_range(N):
        now = last * 2.0
        nl.store(out[i], now)
        last = now


@storing
def breaks(out, tile):
    for i in nl.sequential_range(N):
        nl.store(out[i], tile)
        if i > 12:
            break


@nki.jit
def places(x):
    out = nl.ndarray((N, 128, 4), dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = nl.ndarray(
        (N, nl.par_dim(128), 4),
        dtype=x.dtype,
        buffer=ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(3,)),
    )
    for i in nl.affine_range(N):
        tiles[i] = nl.load(x)
        nl.store(out[i], tiles[i])
    return out


@nki.jit
def multiplies(x):
    out = nl.ndarray((N, 128, 4), dtype=np.float32, buffer=nl.shared_hbm)
    a = nl.load(x)
    for i in nl.affine_range(N):
        psum = nl.zeros((4, 4), dtype=nl.float32, buffer=nl.psum)
        for _ in nl.affine_range(N):
            psum += nisa.nc_matmul(a, a)
        nl.store(out[i, 0:4], nisa.tensor_copy(psum))
    return out


@pytest.mark.parametrize(
    "kernel",
    [
        comprehends,
        comprehends_in_two,
        enumerates,
        carries,
        breaks,
        places,
        multiplies,
    ],
    ids=lambda k: k.__name__,
)
def test_what_a_loop_leaves_to_python_is_kept(kernel):
    same_record(kernel, ones(128, 4))


def over(loop):
    """Return a kernel whose sizes come along with the iterations of `loop()`."""

    @of_its_shape
    def kernel(out, x):
        for i, n in loop():
            wide(n, i, x, out)

    return kernel


def numbered():
    seen = []
    for i in nl.affine_range(N):
        yield i, SIZES[seen.append(i) or len(seen) - 1]


@pytest.mark.parametrize(
    "loop",
    [
        lambda: zip(nl.affine_range(N), SIZES),
        lambda: zip(nl.sequential_range(N), iter(SIZES)),
        lambda: ((i, SIZES[k]) for k, i in enumerate(nl.affine_range(N))),
        lambda: map(lambda i, n: (i, n), nl.affine_range(N), SIZES),
        lambda: itertools.zip_longest(nl.affine_range(N), SIZES),
        numbered,
    ],
    ids=["zip", "zip of an iterator", "enumerate", "map", "zip_longest", "generator"],
)
def test_what_counts_the_iterations_beside_the_loop_is_seen(loop):
    same_record(over(loop), ones(128, 64))


class Counter:
    def __init__(self):
        self.n = 0


def stateful(make, size):
    """Return a kernel whose body changes an object of its frame and takes a size from it."""

    @of_its_shape
    def kernel(out, x):
        state = make()
        for i in nl.affine_range(N):
            wide(size(state), i, x, out)

    return kernel


def count(c):
    c.n += 1
    return SIZES[c.n - 1]


def count_in_dict(d):
    d["n"] += 1
    return SIZES[d["n"] - 1]


def turn(d):
    d.rotate(-1)
    return d[-1]


def pop(d):
    return d.pop(0)


STATES = {
    "iterator": (lambda: iter(SIZES), next),
    "object": (Counter, count),
    "dict": (lambda: {"n": 0}, count_in_dict),
    "deque": (lambda: deque(SIZES), turn),
    "list": (lambda: list(SIZES), pop),
    "count": (itertools.count, lambda c: SIZES[next(c)]),
}


@pytest.mark.parametrize("state", STATES)
def test_state_in_the_frame_of_the_loop_is_seen_before_anything_is_skipped(state):
    kernel = stateful(*STATES[state])
    same_record(kernel, ones(128, 64))


@of_its_shape
def scales(out, x):
    """A float in a tuple decides, which no one takes for a counter, nor for a number."""
    scale = (1.0,)
    for i in nl.affine_range(N):
        scale = (scale[0] / 2,) if scale[0] > 1e-3 else (2.0,)
        wide(32 if scale[0] > 1.5 else 64, i, x, out)


@of_its_shape
def toggles(out, x):
    even = [True]
    for i in nl.affine_range(N):
        wide(64 if even[0] else 32, i, x, out)
        even = [not even[0]]


@of_its_shape
def halves(out, x):
    """A number is put back for each iteration: the SDK traces the body once."""
    scale = 1.0
    for i in nl.affine_range(N):
        scale = scale / 2 if scale > 1e-3 else 2.0
        wide(32 if scale > 1.5 else 64, i, x, out)


@pytest.mark.parametrize("kernel", [scales, toggles, halves], ids=lambda k: k.__name__)
def test_variables_that_move_by_themselves_are_seen_before_anything_is_skipped(kernel):
    same_record(kernel, ones(128, 64))


@nki.jit
def window(x):
    """A mask selects something in the middle iterations only."""
    out = nl.ndarray((N, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:1, 0:8]
    for i in nl.affine_range(N):
        tile = nl.load(x[i + i_p, i_f])
        nl.store(out[i + i_p, i_f], tile, mask=(8 * i + i_f >= 41) & (8 * i + i_f < 66))
    return out


@nki.jit
def band(x):
    """A band of two sides, as in attention with a window: only in its middle is no mask needed."""
    out = nl.ndarray((N, 8, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:8, 0:8]
    tile = nl.load(x[i_p, i_f])
    for i in nl.affine_range(N):
        key = 8 * i + i_f
        near = (8 * 10 + i_p >= key - 8) & (key + 8 >= 8 * 10 + i_p)
        nl.store(out[i], nl.exp(tile, mask=near))
    return out


@nki.jit
def diagonal(x):
    """Masked below the diagonal only."""
    out = nl.ndarray((N, 8, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:8, 0:8]
    tile = nl.load(x[i_p, i_f])
    for i in nl.affine_range(N):
        nl.store(out[i], nl.exp(tile, mask=8 * 9 + i_p >= 8 * i + i_f))
    return out


def places_by(table):
    """Return a kernel whose tiles lie where a table says."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((N, 128, 4), dtype=x.dtype, buffer=nl.shared_hbm)
        tiles = nl.ndarray(
            (N, nl.par_dim(128), 4),
            dtype=x.dtype,
            buffer=ncc.sbuf.alloc(lambda idx, pdim_size, fdim_size: (0, table[idx[0]] * fdim_size)),
        )
        for i in nl.affine_range(N):
            tiles[i] = nl.load(x[:, 0:4])
            nl.store(out[i], tiles[i])
        return out

    return kernel


@of_its_shape
def triangle(out, x):
    for i in nl.affine_range(N):
        nl.store(out[i], nl.load(x[i]))
        for j in nl.affine_range(i - 7):
            nl.store(out[i, j : j + 1], nl.load(x[i, j : j + 1]))


@of_its_shape
def leaves_early(out, x):
    done = nl.ndarray((N, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(N):
        try:
            nl.store(out[i], nl.load(x[i + 3]))
        except NkiError:
            break
    nl.store(done[0:1], nl.load(x[0:1, 0:1]))


@of_its_shape
def total_of(out, x):
    total = 0
    for i in nl.sequential_range(N):
        nl.store(out[i], nl.load(x[i]))
        total += i
    nl.store(out[total % N], nl.load(x[0]))


@nki.jit
def sums_columns(x):
    """Each instruction drives the accumulator registers, and writes where the loop says."""
    out = nl.ndarray((128, N, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    copies = nl.ndarray((nl.par_dim(128), N, 64), dtype=x.dtype, buffer=nl.sbuf)
    tile, sums = nl.load(x), nl.ndarray((128, N), dtype=nl.float32, buffer=nl.sbuf)
    for i in nl.affine_range(N):
        copies[:, i, :] = nisa.tensor_scalar_reduce(
            data=tile, op0=nl.multiply, operand0=1.0, reduce_op=nl.add, reduce_res=sums[:, i]
        )
    nl.store(out, copies)
    return out


SWAPPED = [*range(6), 9, 7, 8, 6, *range(10, N)]


MIDDLES = {
    "window": window,
    "band": band,
    "diagonal": diagonal,
    "places": places_by(range(N)),
    "places swapped": places_by(SWAPPED),
    "triangle": triangle,
    "leaves early": leaves_early,
    "total": total_of,
    "sums of columns": sums_columns,
}


@pytest.mark.parametrize("name", MIDDLES)
def test_what_is_otherwise_in_the_middle_is_recorded(name):
    same_record(MIDDLES[name], ones(N if name == "leaves early" else 128, 64))
