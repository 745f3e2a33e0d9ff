"""The same as test_loops_random.py in the dialect of today, in which sums in PSUM have a state."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from random_loops import compiled, kernels, same_as_one_by_one, times_run_once

ROWS, WIDTH = 64, 32
SOURCE = """
def kernel(x):
    out = nl.ndarray(({rows}, {width}), dtype=x.dtype, buffer=nl.shared_hbm)
    i = j = k = 0
    a, b, size = 1, 2, 4
    ring = nl.ndarray((8, 4, 32), dtype=x.dtype, buffer=nl.sbuf)
    acc = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.psum)
    wide = nl.ndarray((8, 4, 8), dtype=nl.float32, buffer=nl.psum)
    old = nl.ndarray((8, 32), dtype=x.dtype, buffer=nl.sbuf)
    new = nl.ndarray((8, 32), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=old, src=x[0:8])
    table = (1, 0, 3, 2, 1, 0, 2, 1)
{body}
    nisa.tensor_copy(dst=new[:, 0:8], src=acc)
    nisa.tensor_copy(dst=new[:, 0:8], src=wide[:, a])
    nisa.dma_copy(dst=out[0:8], src=new)
    return out
"""

_index = st.sampled_from(
    [
        "i",
        "j",
        "k",
        "a",
        "b",
        "2*i",
        "i + j",
        "i + k",
        "a + j",
        "3 - i",
        "b*j",
        "i*j",
        "table[i]",
        "table[a]",
        "i % 2",
        "0",
        "1",
    ]
)
_row = st.builds("{}*({})".format, st.integers(1, 8), _index)
_slot = st.one_of(_index, st.builds("({}) % 4".format, _index))
_tile = st.one_of(st.sampled_from(["old", "new", "t"]), st.builds("ring[:, {}]".format, _slot))
_place = st.one_of(st.sampled_from(["new", "old", "t"]), st.builds("ring[:, {}]".format, _slot))
_sum = st.one_of(st.just("acc"), st.builds("wide[:, {}]".format, _slot))
_new = "t = nl.ndarray((8, 32), dtype=x.dtype, buffer=nl.sbuf); "
_onto = st.sampled_from(
    [
        "",
        "",
        ", accumulate=True",
        ", accumulate=False",
        ", accumulate=(i > 0)",
        ", accumulate=(i + j > 0)",
        ", accumulate=(j != 1)",
        ", accumulate=a > 1",
    ]
)
_line = st.one_of(
    st.builds(
        "{}nisa.dma_copy(dst=t, src=x[{}:{} + 8])".format,
        st.just(_new),
        st.just("8*i"),
        st.just("8*i"),
    ),
    st.builds(
        "{}nisa.tensor_copy(dst=t, src={}); nisa.dma_copy(dst=out[{}:{} + 8], src=t)".format,
        st.just(_new),
        st.sampled_from(["old", "new"]),
        st.just("4*j"),
        st.just("4*j"),
    ),
    st.builds(
        "nisa.activation(dst={}, op=nl.exp, data={})".format,
        _place,
        st.sampled_from(["old", "new"]),
    ),
    st.builds(
        "nisa.tensor_tensor(dst={}, data1={}, data2=old, op=nl.add)".format,
        _place,
        st.sampled_from(["old", "new"]),
    ),
    st.builds(
        "nisa.dma_copy(dst=out[{0}:{0} + 8], src={1})".format, _row, st.sampled_from(["old", "new"])
    ),
    st.builds("nisa.dma_copy(dst={1}, src=x[nl.ds({0}, 8)])".format, _row, _place),
    st.builds(
        "nisa.nc_matmul(dst={}, stationary=old[:, {}:{} + 8], moving=new[:, 0:8]{})".format,
        _sum,
        st.just("i"),
        st.just("i"),
        _onto,
    ),
    st.builds("nisa.nc_matmul({}, ring[:, {}, 0:8], new[:, 0:8]{})".format, _sum, _slot, _onto),
    st.builds(
        "p = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.psum); "
        "nisa.nc_matmul(p, old[:, {0}:{0} + 8], new[:, 0:8]); "
        "nisa.tensor_copy(ring[:, {1}, 0:8], p)".format,
        _index,
        _slot,
    ),
    st.builds("nisa.tensor_copy(dst=new[:, 0:8], src={})".format, _sum),
    st.builds(
        "r = {}; s = r + 1; nisa.nc_matmul(dst={}, stationary=old[:, r:s + 7], "
        "moving=new[:, 0:8]{})".format,
        _index,
        _sum,
        _onto,
    ),
    st.builds(
        "v = ring[:, {1}].slice(dim=1, start={0}, end={0} + 8).reshape((8, 2, 4)); "
        "nisa.tensor_copy(dst=new[:, 0:4], src=v[:, 1])".format,
        _index,
        _slot,
    ),
    st.builds(
        "v = ring[:, 0:2, 0:16]; v = v.permute((0, 2, 1)); "
        "nisa.tensor_copy(dst=new[:, {0}:{0} + 2], src=v[:, {0}])".format,
        _index,
    ),
    st.builds("v = ring.select(dim=1, index={}); nisa.tensor_copy(dst=new, src=v)".format, _index),
    st.builds("r = {} * b; nisa.dma_copy(dst=out[r:r + 8], src=new)".format, _index),
    st.builds("nisa.memset(dst={}, value=0.0)".format, _sum),
    st.sampled_from(
        [
            "size = 4 + a",
            "s = i + 1",
            "a = i",
            "v = old[:, i:i + 8]; nisa.tensor_copy(ring[:, j % 4, 0:8], v[:, 0:8])",
        ]
    ),
)


_kernels = kernels(SOURCE, _line, rows=ROWS, width=WIDTH)


def checked(source):
    same_as_one_by_one(compiled(source, nki, nl=nl, nisa=nisa), ROWS, WIDTH)


@settings(
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(_kernels)
def test_random_kernels(source):
    checked(source)


def test_loops_of_random_kernels_run_once_now_and_then(monkeypatch):
    """Else the test above would say nothing."""
    assert times_run_once(monkeypatch, _kernels, checked) > 10
