"""A timing-only run continues loops that repeat; its record is the one of all iterations."""
from __future__ import annotations

import copy
import fractions
import functools
import itertools
import json
import math
import numbers
import operator
from collections import deque
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
from nkisim.machine import replay
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
    "percent": lambda i: SIZES[int("%d" % i)],   # noqa: UP031
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


def over(loop):
    """Return a kernel whose sizes come along with the iterations of `loop()`."""
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i, n in loop():
            wide(n, i, x, out)
        return out
    return kernel


def numbered():
    for i in nl.affine_range(N):
        yield i, SIZES[BODIES.append(i) or len(BODIES) - 1]


@pytest.mark.parametrize("loop", [
    lambda: zip(nl.affine_range(N), SIZES), lambda: zip(nl.sequential_range(N), iter(SIZES)),
    lambda: ((i, SIZES[k]) for k, i in enumerate(nl.affine_range(N))),
    lambda: map(lambda i, n: (i, n), nl.affine_range(N), SIZES),
    lambda: itertools.zip_longest(nl.affine_range(N), SIZES), numbered],
    ids=["zip", "zip of an iterator", "enumerate", "map", "zip_longest", "generator"])
def test_what_counts_the_iterations_beside_the_loop_is_seen(loop):
    BODIES.clear()
    whole = record(over(loop), ones(128, 64), replays=False)
    BODIES.clear()
    assert record(over(loop), ones(128, 64), replays=True) == whole


class Counter:
    def __init__(self):
        self.n = 0


def stateful(make, size):
    """Return a kernel whose body changes an object of its frame and takes a size from it."""
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        state = make()
        for i in nl.affine_range(N):
            body()
            wide(size(state), i, x, out)
        return out
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


STATES = {"iterator": (lambda: iter(SIZES), next), "object": (Counter, count),
          "dict": (lambda: {"n": 0}, count_in_dict), "deque": (lambda: deque(SIZES), turn),
          "list": (lambda: list(SIZES), pop), "count": (itertools.count, lambda c: SIZES[next(c)])}


@pytest.mark.parametrize("state", STATES)
def test_state_in_the_frame_of_the_loop_is_seen_before_anything_is_skipped(state):
    kernel = stateful(*STATES[state])
    same_record(kernel, ones(128, 64))
    assert executed(kernel, ones(128, 64)) == N


@nki.jit
def scales(x):
    """A float decides, which no one takes for a counter."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    scale = 1.0
    for i in nl.affine_range(N):
        body()
        scale = scale / 2 if scale > 1e-3 else 2.0
        wide(32 if scale > 1.5 else 64, i, x, out)
    return out


@nki.jit
def toggles(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    even = True
    for i in nl.affine_range(N):
        body()
        wide(64 if even else 32, i, x, out)
        even = not even
    return out


@pytest.mark.parametrize("kernel", [scales, toggles], ids=lambda k: k.__name__)
def test_variables_that_move_by_themselves_are_seen_before_anything_is_skipped(kernel):
    same_record(kernel, ones(128, 64))
    assert executed(kernel, ones(128, 64)) == N


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
        body()
        nl.store(out[i], nl.exp(tile, mask=8 * 9 + i_p >= 8 * i + i_f))
    return out


def places_by(table):
    """Return a kernel whose tiles lie where a table says."""
    @nki.jit
    def kernel(x):
        out = nl.ndarray((N, 128, 4), dtype=x.dtype, buffer=nl.shared_hbm)
        tiles = nl.ndarray((N, nl.par_dim(128), 4), dtype=x.dtype, buffer=ncc.sbuf.alloc(
            lambda idx, pdim_size, fdim_size: (0, table[idx[0]] * fdim_size)))
        for i in nl.affine_range(N):
            tiles[i] = nl.load(x[:, 0:4])
            nl.store(out[i], tiles[i])
        return out
    return kernel


@nki.jit
def triangle(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(N):
        nl.store(out[i], nl.load(x[i]))
        for j in nl.affine_range(i - 7):
            nl.store(out[i, j:j + 1], nl.load(x[i, j:j + 1]))
    return out


@nki.jit
def leaves_early(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    done = nl.ndarray((N, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in nl.affine_range(N):
        try:
            nl.store(out[i], nl.load(x[i + 3]))
        except NkiError:
            break
    nl.store(done[0:1], nl.load(x[0:1, 0:1]))
    return out


@nki.jit
def previous(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    before = 0
    for i in nl.sequential_range(N):
        nl.store(out[before], nl.load(x[i]))
        before = i
    nl.store(out[before], nl.load(x[0]))
    return out


@nki.jit
def total_of(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    total = 0
    for i in nl.sequential_range(N):
        nl.store(out[i], nl.load(x[i]))
        total += i
    nl.store(out[total % N], nl.load(x[0]))
    return out


SWAPPED = [*range(6), 9, 7, 8, 6, *range(10, N)]


@pytest.mark.parametrize("kernel", [window, band, diagonal, places_by(range(N)),
                                    places_by(SWAPPED), triangle, leaves_early, previous, total_of],
                         ids=["window", "band", "diagonal", "places", "places swapped", "triangle",
                              "leaves early", "previous", "total"])
def test_what_is_otherwise_in_the_middle_is_recorded(kernel):
    same_record(kernel, ones(N if kernel is leaves_early else 128, 64))


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


def failing_at(place, error=ZeroDivisionError):
    """Return a kernel that prints and then fails: before, in or after a loop of N iterations."""
    @nki.jit
    def kernel(x):
        print("begins")
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        if place == "before":
            raise error("before")
        for i in nl.affine_range(N):
            nl.store(out[i], nl.load(x[i]))
            if place == "in":
                raise error("in the first iteration")
            if place == "last" and len(BODIES) == 4:
                raise error("in the last iteration")
            body()
        raise error("after")
    return kernel


@pytest.mark.parametrize("place", ["before", "in", "last", "after"])
def test_a_kernel_that_fails_runs_once(place, capsys):
    BODIES.clear()
    with pytest.raises(ZeroDivisionError, match=place):
        record(failing_at(place), ones(128, 64), replays=True)
    assert capsys.readouterr().out == "begins\n"


def test_a_kernel_that_breaks_a_rule_runs_once(capsys):
    @nki.jit
    def kernel(x):
        print("begins")
        out = nl.ndarray((N, 64), dtype=x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(N):
            nl.store(out[i + 1], nl.load(x[i]))         # leaves `out` in the last iteration
        return out
    with pytest.raises(NkiError, match="NKI-I01"):
        record(kernel, ones(128, 64), replays=True)
    assert capsys.readouterr().out == "begins\n"


def test_c_code_that_takes_nothing_but_ints_gets_them():
    """array("q") would take anything with an __index__; json does not."""
    def visit(i, x, out):
        wide(64 if json.dumps(i) != "7" else 32, i, x, out)
    same_record(kernel_of(visit), ones(128, 64))


def test_an_error_of_the_simulator_itself_is_not_hidden(monkeypatch):
    def broken(*args):
        raise RuntimeError("a bug")
    monkeypatch.setattr(replay, "_step", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        record(rows, ones(8 * N, 4), replays=True)
    record(rows, ones(8 * N, 4), replays=False)


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
