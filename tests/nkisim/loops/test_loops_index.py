"""Whoever looks at the value of a loop's index is seen, and the loop then runs whole."""

from __future__ import annotations

import copy
import fractions
import functools
import math
import numbers
import operator

import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from looping import SIZES, N, double, kernel_of, same_record
from model_kernels import ones
from nkisim.indexing.index import as_int
from nkisim.loops.loopindex import LoopIndex, ObservedLoop


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


TABLES = {
    "list": lambda i: SIZES[i],
    "tuple": lambda i: tuple(SIZES)[i],
    "a multiple": lambda i: SIZES[2 * i - i],
    "slice": lambda i: SIZES[i : i + 1][0],
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
    "percent": lambda i: SIZES[int("%d" % i)],  # noqa: UP031
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
    watch, lookup = ObservedLoop(), TABLES[way]
    assert int(lookup(LoopIndex(8, {watch: 1}))) == int(lookup(8))
    assert watch.escaped


@pytest.mark.parametrize(
    "visit", [only_five, by_turns, last_is_short, squares, named, deep, halves]
)
def test_what_python_decides_by_the_index_is_executed(visit):
    kernel = kernel_of(visit)
    same_record(kernel, ones(128, 64))


INDEX = st.integers(-1000, 1000)


@given(
    INDEX,
    INDEX,
    st.sampled_from(
        [
            "add",
            "sub",
            "mul",
            "floordiv",
            "mod",
            "lt",
            "le",
            "eq",
            "ne",
            "gt",
            "ge",
            "and_",
            "or_",
            "xor",
        ]
    ),
    st.booleans(),
)
def test_a_watched_index_is_an_int(a, b, name, right):
    f = getattr(operator, name)
    if name in ("floordiv", "mod"):
        a, b = a or 1, b or 1
    watch = ObservedLoop()
    i = LoopIndex(a, {watch: 1})
    got = f(b, i) if right else f(i, b)
    assert (got.value if type(got) is LoopIndex else as_int(got)) == (f(b, a) if right else f(a, b))
    assert watch.escaped == (name not in ("add", "sub", "mul"))


def test_what_comes_of_a_watched_index_is_watched():
    outer, inner = ObservedLoop(), ObservedLoop()
    i, j = (LoopIndex(3, {w: 1}) for w in (outer, inner))
    both = 4 * i + j - 1
    assert not outer.escaped and not inner.escaped
    assert both == 14 and outer.escaped and inner.escaped
    i * i
    assert {str(-i), f"{j}"} == {"-3", "3"}
