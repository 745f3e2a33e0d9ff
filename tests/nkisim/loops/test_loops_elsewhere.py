"""Bodies that keep something elsewhere: with values and without, the same program is recorded."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import nki as new
import nki.isa as new_isa
import nki.language as new_nl
import pytest

from looping import N, P, count, data, record, same
from random_loops import compiled

HELPERS = """
seen = 0
class Counter:
    n = 0
counter, table, numbers = Counter(), [], {{}}

def by_global():
    global seen
    seen += 1
    return seen == 10

def by_attribute():
    counter.n += 1
    return counter.n == 10

def by_list():
    table.append(1)
    return len(table) == 10

def by_default(own=[]):
    own += [1]
    return len(own) == 10

def by_dict():
    numbers[0] = numbers.get(0, 0) + 1
    return numbers[0] == 10

def by_own_attribute():
    by_own_attribute.n = getattr(by_own_attribute, "n", 0) + 1
    return by_own_attribute.n == 10

def by_function():
    return by_global()

def kernel(x):
    out = nl.ndarray((64, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in {loop}(20):
        {body}
    return out
"""
OLD = (
    "tile = nl.load(x[i:i + 1])\n        if {way}():\n            tile = nl.exp(tile)\n"
    "        nl.store(out[i:i + 1], tile)"
)
NEW = (
    "tile = nl.ndarray((1, 64), dtype=x.dtype, buffer=nl.sbuf)\n"
    "        nisa.dma_copy(dst=tile, src=x[i:i + 1])\n        if {way}():\n"
    "            nisa.activation(dst=tile, op=nl.exp, data=tile)\n"
    "        nisa.dma_copy(dst=out[i:i + 1], src=tile)"
)
WAYS = [
    "by_global",
    "by_attribute",
    "by_list",
    "by_default",
    "by_dict",
    "by_own_attribute",
    "by_function",
]


@pytest.mark.parametrize("loop", ["nl.affine_range", "nl.sequential_range", "range"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dialect", ["beta1", "nki"])
def test_what_a_body_keeps_elsewhere_decides_as_with_values(way, loop, dialect):
    old = dialect == "beta1"
    source = HELPERS.format(loop=loop, body=(OLD if old else NEW).format(way=way))
    names = {"nl": nl, "nisa": nisa} if old else {"nl": new_nl, "nisa": new_isa}
    rows = [
        record(
            compiled(source, nki if old else new, **names),
            data(64, 64),
            compute=compute,
            every_iteration=False,
        )["rows"]
        for compute in (True, False)
    ]
    assert rows[0] == rows[1]


def move(out, x, i, scale=2.0):
    """Copy a row, scaled."""
    tile = nl.load(x[i])
    nl.store(out[i], nl.multiply(tile, scale))


def sums_up(acc, left, right, i):
    acc += nisa.nc_matmul(left[:, i], right[:, i])


@nki.jit
def moves(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(N):
        move(out, x, i)
    return out


@nki.jit
def multiplies(x):
    out = nl.ndarray((P, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = nl.load(x[:, 0:4]), nl.load(x[:, 4:8, 0:8])
    acc = nl.zeros((P, 8), dtype=nl.float32, buffer=nl.psum)
    for i in nl.affine_range(4):
        sums_up(acc, left, right, i)
    nl.store(out, nl.copy(acc))
    return out


@pytest.mark.parametrize("kernel, shape", [(moves, (N, 64)), (multiplies, (P, 8, P))])
def test_functions_that_do_no_more_than_a_loop_may_hinder_nothing(monkeypatch, kernel, shape):
    done = count(monkeypatch)
    assert isinstance(same(kernel, data(*shape)), dict)
    assert done
