"""Random kernels of loops: a run that executes loops once records what one by one does.

In the newer dialect sums in PSUM have a state.
"""

from __future__ import annotations

import neuronxcc.nki as beta1
import neuronxcc.nki.isa as beta1_isa
import neuronxcc.nki.language as beta1_nl
import nki
import nki.isa as nisa
import nki.language as nl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from random_loops import compiled, kernels, same_as_one_by_one, times_run_once

ROWS, WIDTH = 64, 32
BETA1 = """
def kernel(x):
    out = nl.ndarray(({rows}, {width}), dtype=x.dtype, buffer=nl.shared_hbm)
    i = j = k = 0
    a, b, size = 1, 2, 4
    ring = nl.zeros((8, 4, 32), dtype=nl.float32, buffer=nl.sbuf)
    acc = nl.zeros((8, 8), dtype=nl.float32, buffer=nl.psum)
    wide = nl.zeros((8, 4, 8), dtype=nl.float32, buffer=nl.psum)
    old = nl.load(x[0:8])
    new = nl.copy(old)
    table = (1, 0, 3, 2, 1, 0, 2, 1)
    i_p, i_f = nl.mgrid[0:8, 0:16]
{body}
    nl.store(out[0:8], old)
    nl.store(out[0:8, 0:8], acc)
    nl.store(out[0:8], new)
    nl.store(out[0:8, 0:8], wide[:, 1])
    nl.store(out[0:8], ring[:, a])
    return out
"""
NKI = """
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
    "i j k a b 2*i i+j i+k a+j 3-i i-1 b*j i*j table[i] table[a] i%2 0 1".split()
)
_row = st.builds("{}*({})".format, st.integers(1, 8), _index)
_slot = st.one_of(_index, st.builds("({}) % 4".format, _index))
_sum = st.one_of(st.just("acc"), st.builds("wide[:, {}]".format, _slot))
_tile = st.one_of(
    st.sampled_from(["old", "new", "nl.load(x[0:8])", "old[:, 0:32]"]),
    st.builds("nl.load(x[{0}:{0} + 8])".format, _row),
    st.builds("nl.load(x[nl.ds({0}, 8)])".format, _row),
    st.builds("ring[:, {}]".format, _slot),
    st.builds("nl.exp({})".format, st.sampled_from(["old", "new", "ring[:, 1]", "ring[:, i % 4]"])),
    st.builds(
        "nl.add({}, {})".format,
        st.sampled_from(["old", "new"]),
        st.sampled_from(["old", "new", "1.0", "ring[:, j % 4]", "i"]),
    ),
)
_beta1_line = st.one_of(
    st.builds("t = {}".format, _tile),
    st.builds("t = {}; nl.store(out[{}:{} + 8], t)".format, _tile, st.just("8*i"), st.just("8*i")),
    st.builds("u = {}; ring[:, {}] = u".format, _tile, _slot),
    st.builds("ring[:, {}] = {}".format, _slot, _tile),
    st.builds("nl.store(out[{0}:{0} + 8], {1})".format, _row, _tile),
    st.builds("nl.store(out[0:8, {0}:{0} + 8], {1})".format, _index, _sum),
    st.builds("new[...] = {}".format, _tile),
    st.just("new += old"),
    st.builds("ring[:, {}] += {}".format, _slot, st.sampled_from(["old", "new", "ring[:, a]"])),
    st.builds("ring[:, {}, 0:8] += {}".format, _slot, _sum),
    st.builds("r = {}; s = r + 1; ring[:, s % 4] = old; nl.store(out[r:r + 8], new)".format, _row),
    st.builds(
        "r = {} * b; f = nl.arange(8)[None, :]; p = nl.arange(8)[:, None]; "
        "acc[...] += nisa.nc_matmul(old[p, r + f], new[p, f])".format,
        _index,
    ),
    st.just("nl.store(out[i_p, a + i_f], old[i_p, b + i_f])"),
    st.builds(
        "v = {}; v = v.reshape((8, 4, 8)); ring[:, {}, 0:8] = nl.copy(v[:, {}])".format,
        _tile,
        _slot,
        _slot,
    ),
    st.builds(
        "acc += nisa.nc_matmul(old[:, 0:8], ring[:, {}].reshape((8, 2, 16))[:, {}, 0:8])".format,
        _slot,
        _index,
    ),
    st.builds(
        "v = ring[:, {}, 0:1].broadcast_to((8, 32)); new[...] = nl.add(v, old)".format, _slot
    ),
    st.builds(
        "acc += nisa.nc_matmul(old[:, {0}:{0} + 8], ring[:, {1}, 0:8])".format, _index, _slot
    ),
    st.builds(
        "wide[:, {}] += nisa.nc_matmul(old[:, 0:8], new[:, {}:{} + 8])".format,
        _slot,
        st.just("i"),
        st.just("i"),
    ),
    st.builds(
        "p = nl.zeros((8, 8), dtype=nl.float32, buffer=nl.psum); "
        "p += nisa.nc_matmul(old[:, {0}:{0} + 8], new[:, 0:8]); "
        "ring[:, {1}, 0:8] = nl.copy(p)".format,
        _index,
        _slot,
    ),
    st.builds(
        "m = nisa.nc_matmul(old[:, 0:8], new[:, 0:8]); acc[...] += m; "
        "ring[:, {}, 0:8] = nl.copy(m)".format,
        _slot,
    ),
    st.sampled_from(
        [
            "size = 4 + a",
            "s = i + 1",
            "new = nl.copy(old)",
            "a = i",
            "v = ring[:, i % 4]; nl.store(out[8:16], v)",
            "v = old[:, i:i + 8]; ring[:, j % 4, 0:8] = nl.copy(v[:, 0:8])",
        ]
    ),
)

_place = st.one_of(st.sampled_from(["new", "old", "t"]), st.builds("ring[:, {}]".format, _slot))
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
_nki_line = st.one_of(
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

SETTINGS = settings(
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
_beta1_kernels = kernels(BETA1, _beta1_line, rows=ROWS, width=WIDTH)
_nki_kernels = kernels(NKI, _nki_line, rows=ROWS, width=WIDTH)


def checked_beta1(source):
    same_as_one_by_one(compiled(source, beta1, nl=beta1_nl, nisa=beta1_isa), ROWS, WIDTH)


def checked_nki(source):
    same_as_one_by_one(compiled(source, nki, nl=nl, nisa=nisa), ROWS, WIDTH)


@SETTINGS
@given(_beta1_kernels)
def test_random_kernels_of_beta1(source):
    checked_beta1(source)


@SETTINGS
@given(_nki_kernels)
def test_random_kernels_of_nki(source):
    checked_nki(source)


@pytest.mark.full
@pytest.mark.parametrize(
    "sources, check", [(_beta1_kernels, checked_beta1), (_nki_kernels, checked_nki)]
)
def test_loops_of_random_kernels_run_once_now_and_then(monkeypatch, sources, check):
    """Else the tests above would say nothing."""
    assert times_run_once(monkeypatch, sources, check) > 10
