"""A timing-only run continues loops that repeat; its record is the one of all iterations."""
from __future__ import annotations

import copy
import fractions
import functools
import math
import numbers
import operator
from pathlib import Path

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.inputs import make_inputs
from labkit.load import load_lab, load_module
from nkisim import NkiError
from nkisim.launch import launch
from nkisim.machine.index import as_int
from nkisim.machine.loopindex import LoopIndex, Watch

from . import model_kernels as kernels
from .model_kernels import ones

LABS = Path(__file__).resolve().parents[2] / "labs"
N = 20                                  # iterations of most loops here


def record(kernel, *args, replays, **kwargs):
    """Return everything that a timing-only run notes."""
    run = launch(kernel, args, kwargs, target="trn2", compute=False, replays=replays)
    t = run.trace
    return {"rows": t.rows, "starts": t.starts, "storages": t.storages.data,
            "nodes": (t.node_parent, t.node_loop, t.node_iter), "loops": (t.loop_kind, t.loop_line),
            "kinds": [k.row.name for k in t.kinds], "lines": list(map(str, t.lines)),
            "findings": list(map(str, run.findings))}


def executed(kernel, *args, **kwargs):
    """Return how many loop bodies a timing-only run executes; bodies report through BODIES."""
    BODIES.clear()
    record(kernel, *args, replays=True, **kwargs)
    return len(BODIES)


def same_record(kernel, *args, **kwargs):
    """Assert that the record does not depend on continuing loops."""
    assert record(kernel, *args, replays=True, **kwargs) == \
        record(kernel, *args, replays=False, **kwargs)


BODIES: list[int] = []


def body():
    BODIES.append(1)


@nki.jit
def rows(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 8):
        body()
        nl.store(out[8 * i:8 * i + 8], nl.load(x[8 * i:8 * i + 8]) * 2.0)
    return out


@nki.jit
def nested(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.sequential_range(x.shape[0] // 8):
        total = nl.zeros((8, 16), dtype=nl.float32, buffer=nl.sbuf)
        for j in nl.affine_range(x.shape[1] // 16):
            body()
            i_p, i_f = nl.mgrid[0:8, 0:16]
            total += nl.load(x[8 * i + i_p, 16 * j + i_f], mask=16 * j + i_f < x.shape[1] - 8)
        for j in nl.affine_range(x.shape[1] // 16):
            nl.store(out[nl.ds(i * 8, 8), 16 * j:16 * (j + 1)], total)
    return out


def test_a_loop_that_repeats_is_continued():
    same_record(rows, ones(8 * N, 4))
    assert executed(rows, ones(8 * N, 4)) == 5


def test_so_are_loops_in_loops():
    same_record(nested, ones(8 * N, 16 * N))
    assert executed(nested, ones(8 * N, 16 * N)) == 25


def test_a_short_loop_is_executed():
    same_record(rows, ones(8 * 7, 4))
    assert executed(rows, ones(8 * 7, 4)) == 7


def kernel_of(visit):
    """Return a kernel that calls `visit(i, x, out)` in a loop."""
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(N):
            body()
            visit(i, x, out)
        return out
    return kernel


def double(i, x, out):
    nl.store(out[i], nl.load(x[i]))


def only_five(i, x, out):
    if i == 5:
        double(i, x, out)
    double(i, x, out)


def by_turns(i, x, out):
    double(i, x, out)
    if i % 2:
        double(i, x, out)


def last_is_short(i, x, out):
    n = min(64, 20 * 64 - 40 - i * 64)
    nl.store(out[i, 0:n], nl.load(x[i, 0:n]))


def squares(i, x, out):
    j = i * i - (N - 1) * i
    nl.store(out[i, 0:4], nl.load(x[j + 100, 0:4]))


def named(i, x, out):
    tile = {f"tile{i}": 1, "tile7": 2}.get(f"tile{i}")
    nl.store(out[i], nl.load(x[i]) * float(tile))


def halves(i, x, out):
    nl.store(out[i], nl.load(x[int(i * 0.5)]))


def deep(i, x, out):
    later = 3 * i + 2
    if not later < 40:
        double(i, x, out)
    double(i, x, out)


#: what a table says at the first, second, third and at the two last iterations is the same
SIZES = [64] * 7 + [32] * 6 + [64] * (N - 13)


def wide(n, i, x, out):
    nl.store(out[i, 0:n], nl.load(x[i, 0:n]))


def by_table(lookup):
    """Return a body that takes its size from a table, looked up by the index in some way."""
    def visit(i, x, out):
        wide(int(lookup(i)), i, x, out)
    return visit


TABLES = {
    "list": lambda i: SIZES[i],
    "tuple": lambda i: tuple(SIZES)[i],
    "a multiple": lambda i: SIZES[2 * i - i],
    "slice": lambda i: SIZES[i:i + 1][0],
    "numpy": lambda i: np.array(SIZES)[i],
    "numpy slice": lambda i: np.array(SIZES)[i:][0],
    "numpy take": lambda i: np.take(SIZES, i),
    "numpy ufunc": lambda i: 64 - 32 * np.equal(np.add(i, 1), 8),
    "numpy scalar": lambda i: SIZES[np.int64(i)],
    "numpy scalar times": lambda i: SIZES[np.int64(1) * i],
    "numpy array": lambda i: SIZES[int(np.array([i])[0])],
    "arange": lambda i: SIZES[len(np.arange(i))],
    "array times": lambda i: SIZES[(np.ones(1, int) * i)[0]],
    "zeros": lambda i: SIZES[np.zeros((i, 2)).shape[0]],
    "dict": lambda i: dict(enumerate(SIZES))[i],
    "range": lambda i: SIZES[len(range(i))],
    "range of a range": lambda i: SIZES[range(N)[i]],
    "format": lambda i: SIZES[int(f"{i}")],
    "percent": lambda i: SIZES[int("%d" % i)],
    "str": lambda i: SIZES[int(str(i))],
    "bytes": lambda i: SIZES[len(bytes(i))],
    "repeated list": lambda i: SIZES[len([0] * i)],
    "int": lambda i: 32 if int(i) == 8 else 64,
    "float": lambda i: SIZES[round(float(i))],
    "bit_length": lambda i: 64 if i.bit_length() != 3 else 32,
    "numerator": lambda i: SIZES[i.numerator],
    "sqrt": lambda i: SIZES[int(math.sqrt(i) ** 2 + 0.5)],
    "isinstance": lambda i: 64 if isinstance(i, int) else 32,
    "class": lambda i: 64 if i.__class__ is int else 32,
    "number": lambda i: 64 if isinstance(i, numbers.Integral) else 32,
    "deepcopy": lambda i: SIZES[copy.deepcopy({"i": i})["i"]],
    "min": lambda i: SIZES[min(i, 12)],
    "in": lambda i: 32 if i in (8, 9) else 64,
    "match": lambda i: {7: 32}.get(i, 64),
    "fraction": lambda i: SIZES[int(fractions.Fraction(1) * i)],
    "half": lambda i: SIZES[int(i * 0.5) * 2],
    "half before": lambda i: SIZES[int(0.5 * i) * 2],
    "less than half": lambda i: 32 if 6.5 < i < 7.5 else 64,
    "shift": lambda i: SIZES[i << 1 >> 1],
    "a cache": functools.lru_cache(lambda i: 32 if 7 <= i <= 9 else 64),
}


@pytest.mark.parametrize("way", TABLES)
def test_a_table_that_is_looked_up_by_the_index_is_seen(way):
    kernel = kernel_of(by_table(TABLES[way]))
    same_record(kernel, ones(128, 64))
    assert executed(kernel, ones(128, 64)) == N


@pytest.mark.parametrize("visit", [only_five, by_turns, last_is_short, squares, named, deep,
                                   halves])
def test_what_python_decides_by_the_index_is_executed(visit):
    kernel = kernel_of(visit)
    same_record(kernel, ones(128, 64))
    assert executed(kernel, ones(128, 64)) >= N


def test_nothing_of_the_kind_is_continued():
    kernel = kernel_of(double)
    assert executed(kernel, ones(N, 64)) == 5


@nki.jit
def collects(x):
    out = nl.ndarray((N, 128, 4), dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = []
    tile = nl.load(x)
    for i in nl.affine_range(N):
        nl.store(out[i], tile)
        tiles.append(i)
    for i in range(len(tiles)):
        nl.store(out[i], tile)
    return out


@nki.jit
def comprehends(x):
    out = nl.ndarray((N, 128, 4), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    stored = [(nl.store(out[i], tile), i) for i in nl.affine_range(N)]
    for _, i in stored:
        nl.store(out[i], tile)
    return out


@nki.jit
def counts(x):
    out = nl.ndarray((N, 128, 4), dtype=x.dtype, buffer=nl.shared_hbm)
    n, tile = 0, nl.load(x)
    for i in nl.affine_range(N):
        nl.store(out[i], tile)
        n += 1
    for i in range(n):
        nl.store(out[i], tile)
    return out


@nki.jit
def enumerates(x):
    out = nl.ndarray((N, 128, 4), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for k, i in enumerate(nl.affine_range(N)):
        nl.store(out[k], tile)
        if k == 7:
            nl.store(out[i], tile)
    return out


@nki.jit
def carries(x):
    out = nl.ndarray((N, 128, 4), dtype=x.dtype, buffer=nl.shared_hbm)
    last = nl.load(x)
    for i in nl.sequential_range(N):
        tile = last * 2.0
        nl.store(out[i], tile)
        last = tile
    return out


@nki.jit
def breaks(x):
    out = nl.ndarray((N, 128, 4), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for i in nl.sequential_range(N):
        nl.store(out[i], tile)
        if i > 12:
            break
    return out


@nki.jit
def places(x):
    out = nl.ndarray((N, 128, 4), dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = nl.ndarray((N, nl.par_dim(128), 4), dtype=x.dtype,
                       buffer=ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(3,)))
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


@pytest.mark.parametrize("kernel", [collects, comprehends, counts, enumerates, carries, breaks,
                                    places, multiplies], ids=lambda k: k.__name__)
def test_what_a_loop_leaves_to_python_is_kept(kernel):
    same_record(kernel, ones(128, 4))


@pytest.mark.parametrize("rows_of_x", [8 * N - 4, 8 * (N - 1) - 4, 60])
def test_an_error_in_any_iteration_is_the_error_of_the_whole_run(rows_of_x):
    @nki.jit
    def leaves(x):
        out = nl.ndarray((8 * N, 4), dtype=x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(N):
            nl.store(out[8 * i:8 * i + 8], nl.load(x[8 * i:8 * i + 8]))
        return out
    with pytest.raises(NkiError, match="NKI-I01") as whole:
        record(leaves, ones(rows_of_x, 4), replays=False)
    with pytest.raises(NkiError) as continued:
        record(leaves, ones(rows_of_x, 4), replays=True)
    assert str(continued.value) == str(whole.value)


def test_kernels_with_the_structures_of_the_model():
    same_record(kernels.add(100), ones(128 * 2000), ones(128 * 2000))
    same_record(kernels.add_in_place_of(2, 10), ones(128 * 200), ones(128 * 200))
    same_record(kernels.transpose, ones(1024, 256))


@pytest.mark.parametrize("lab", ["vecadd", "ffnn", "conv2d"])
def test_the_labs(lab, monkeypatch):
    spec = load_lab(LABS / lab)
    module = load_module(LABS / lab / "kernels.py")
    for name in sorted({c.kernel for c in spec.cases}):
        case = next(c for c in spec.cases if c.kernel == name)
        for constant, value in case.constants.items():
            monkeypatch.setattr(module, constant, value)
        same_record(getattr(module, name), *make_inputs(case, 0), **case.kwargs,
                    **case.kernel_kwargs)


INDEX = st.integers(-1000, 1000)


@given(INDEX, INDEX, st.sampled_from(["add", "sub", "mul", "floordiv", "mod", "lt", "le", "eq",
                                      "ne", "gt", "ge", "and_", "or_", "xor"]), st.booleans())
def test_a_watched_index_is_an_int(a, b, name, right):
    f = getattr(operator, name)
    if name in ("floordiv", "mod"):
        a, b = a or 1, b or 1
    watch = Watch()
    i = LoopIndex(a, frozenset((watch,)))
    assert as_int(f(b, i) if right else f(i, b)) == (f(b, a) if right else f(a, b))
    assert watch.escaped == (name not in ("add", "sub", "mul"))


def test_what_comes_of_a_watched_index_is_watched():
    outer, inner = Watch(), Watch()
    i, j = (LoopIndex(3, frozenset((w,))) for w in (outer, inner))
    both = 4 * i + j - 1
    assert not outer.escaped and not inner.escaped
    assert both == 14 and outer.escaped and inner.escaped
    i * i
    assert {str(-i), f"{j}"} == {"-3", "3"}
