"""Random kernels of loops whose indices decide things: the record is that of all iterations."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from looping import same
from random_loops import compiled, times_run_once

ROWS, WIDTH = 256, 16
X = np.ones((ROWS, WIDTH), np.float32)
TABLE = [3] * 3 + [1, 2, 5, 4] + [3] * 40  # the same at both ends
SOURCE = """
def kernel(x):
    out = nl.ndarray(({rows}, {width}), dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:4, 0:{width}]
    i = j = count = last = 0
    flag, items = False, []
    acc = nl.zeros((4, {width}), dtype=nl.float32, buffer=nl.sbuf)
    tile = nl.load(x[0:4])
{body}
    nl.store(out[0:4], acc)
    nl.store(out[count:count + 4], tile)
    nl.store(out[last:last + 4], tile)
    for k in range(len(items)):
        nl.store(out[k:k + 4], items[k])
    return out
"""

_constant = st.integers(0, 40).map(str)
_factor = st.integers(0, 6)
_affine = st.one_of(
    _constant,
    st.builds("{}*i + {}".format, _factor, _constant),
    st.builds("{}*i + {}*j + {}".format, _factor, _factor, _constant),
    st.builds("{} - {}*i".format, st.integers(40, 90), _factor),
    st.just("8*(i - j) + 100"),
)
#: what Python makes of an index, or of other variables
_other = st.one_of(
    st.just("TABLE[i]"),
    st.just("ARRAY[i]"),
    st.just("np.minimum(i, 5)"),
    st.just("count"),
    st.just("last"),
    st.just("len(range(j))"),
    st.just("int(f'{i}')"),
    st.just("i*j"),
    st.just("i*i"),
    st.just("min(i, 9)"),
    st.just("max(0, i - 6)"),
    st.builds("i % {}".format, st.integers(1, 9)),
    st.builds("j // {}".format, st.integers(1, 9)),
    st.just("len(items)"),
    st.just("(last + i)"),
    st.just("(7 if flag else 4)"),
)
_place = st.one_of(_affine, _affine, _affine, _other)
_compare = st.builds(
    "{} + {} {} {}".format,
    _affine,
    st.sampled_from(["i_f", "i_p", "i_f - i_p"]),
    st.sampled_from(["<", ">=", "<=", ">"]),
    st.integers(0, 100),
)
_mask = st.one_of(_compare, st.builds("({}) & ({})".format, _compare, _compare))
_condition = st.one_of(
    st.builds("i == {}".format, st.integers(0, 12)),
    st.just("flag"),
    st.just("i % 2"),
    st.just("j > i"),
    st.just("TABLE[i] == 2"),
    st.just("count == 7"),
    st.just("j"),
    st.just("isinstance(i, int)"),
    st.just("i in (5, 6)"),
)
_line = st.one_of(
    st.builds("nl.store(out[{0}], nl.load(x[{1}]))".format, _place, _place),
    st.builds("nl.store(out[nl.ds({0}, 4)], nl.load(x[{1}:{1} + 4]))".format, _place, _place),
    st.builds(
        "nl.store(out[{0} + i_p, i_f], nl.load(x[{1} + i_p, i_f]), mask={2})".format,
        _place,
        _affine,
        _mask,
    ),
    st.builds("acc += nl.load(x[{0} + i_p, i_f], mask={1})".format, _affine, _mask),
    st.builds("acc += nl.load(x[{0}:{0} + 4])".format, _place),
    st.builds("tile = nl.load(x[{0}:{0} + 4])".format, _place),
    st.builds(
        "nl.store(out[{0}:{0} + 4, 0:{1}], tile[:, 0:{1}])".format,
        _place,
        st.one_of(st.integers(1, WIDTH), st.just("TABLE[i]")),
    ),
    st.builds(
        "nl.store(out[{0} + i_p, ({1} + i_f) % {2}], tile)".format,
        _place,
        _affine,
        st.sampled_from([16, 32, 64]),
    ),
    st.sampled_from(
        [
            "count += 1",
            "last = i",
            "last = 2*j + 1",
            "flag = not flag",
            "items.append(tile)",
            "nl.store(out[last], nl.load(x[count]))",
            "pass",
        ]
    ),
)


def _indent(lines, by="    "):
    return [by + line for line in lines]


def _branch(condition, lines):
    return [f"if {condition}:", *_indent(lines)]


def _loop(index, kind, bounds, lines):
    return [f"for {index} in nl.{kind}({bounds}):", *_indent(lines)]


_kind = st.sampled_from(["affine_range", "sequential_range"])
_simple = st.one_of(
    _line.map(lambda line: [line]),
    _line.map(lambda line: [line]),
    st.builds(_branch, _condition, _line.map(lambda line: [line])),
)
_several = st.lists(_simple, min_size=1, max_size=3).map(lambda parts: sum(parts, []))
_inner = st.builds(
    _loop,
    st.just("j"),
    _kind,
    st.one_of(
        st.integers(1, 11).map(str), st.sampled_from(["i", "i - 5", "9 - i", "2, i", "TABLE[i]"])
    ),
    _several,
)
_body = st.lists(st.one_of(_simple, _simple, _inner), min_size=1, max_size=3).map(
    lambda parts: sum(parts, [])
)
_outer = st.builds(
    _loop,
    st.just("i"),
    _kind,
    st.one_of(
        st.integers(8, 16).map(str), st.sampled_from(["2, 14", "0, 30, 3", "-3, 9", "12, 0, -1"])
    ),
    _body,
)
_kernels = st.lists(_outer, min_size=1, max_size=2).map(
    lambda loops: SOURCE.format(rows=ROWS, width=WIDTH, body="\n".join(_indent(sum(loops, []))))
)


def checked(source):
    kernel = compiled(source, nki, nl=nl, np=np, TABLE=TABLE, ARRAY=np.array(TABLE))
    same(kernel, X, computes=(False,))


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(_kernels)
def test_random_kernels(source):
    checked(source)


@pytest.mark.full
def test_the_random_kernels_run_once_now_and_then(monkeypatch):
    """Else the test above would say nothing."""
    assert times_run_once(monkeypatch, _kernels, checked) > 10
