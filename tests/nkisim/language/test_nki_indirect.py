"""`.indirect()`: columns of a tile that offsets choose, on trn3."""

from __future__ import annotations

import re

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim import NkiError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((32, 40)).astype(np.float32)


def index(partitions, columns, group, free=40):
    """Return a tile of offsets, no two of a group the same, and the offsets of each partition."""
    groups = [RNG.permutation(free)[: group * columns] for _ in range(partitions // group)]
    tile = np.concatenate([g.reshape(columns, group).T for g in groups]).astype(np.uint16)
    return tile, np.repeat(np.stack(groups), group, axis=0)


def run(body, *arrays, shape, target="trn3"):
    @nki.jit
    def kernel(*arrays):
        tiles = [nl.load(a) for a in arrays]
        dst = nl.ndarray(shape, dtype=nl.float32)
        body(dst, *tiles)
        out = nl.ndarray(shape, dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, dst)
        return out

    return nkisim.run(kernel, *arrays, target=target)


def errors(got):
    return [f.id for f in got.findings if f.severity != "note"]


@pytest.mark.parametrize("partitions, columns", [(16, 1), (16, 2), (32, 2)])
def test_a_gather_reads_the_columns_that_a_group_of_partitions_names(partitions, columns):
    tile, at = index(partitions, columns, 16)
    x, count = X[:partitions], 16 * columns - 3
    got = run(
        lambda d, x, i: nisa.tensor_copy(d, x.indirect(i, count)),
        x,
        tile,
        shape=(partitions, count),
    )
    assert (got.outputs == np.take_along_axis(x, at[:, :count], 1)).all() and not errors(got)


def test_a_scatter_writes_them_and_keeps_the_others():
    tile, at = index(32, 1, 16)

    def body(d, x, v, i):
        nisa.tensor_copy(d, x)
        nisa.activation(d.indirect(i, 16), nl.exp, v)

    value = RNG.standard_normal((32, 16)).astype(np.float32)
    want = X.copy()
    np.put_along_axis(want, at, np.exp(value), 1)
    np.testing.assert_allclose(run(body, X, value, tile, shape=(32, 40)).outputs, want, rtol=1e-5)


@pytest.mark.parametrize("filled", [True, False])
def test_what_a_scatter_leaves_out_stays_undefined(filled):
    tile, _ = index(32, 1, 16)

    def body(d, x, i):
        if filled:
            nisa.memset(d, 0.0)
        nisa.tensor_copy(d.indirect(i, 16), x[:, :16])

    found = errors(run(body, X, tile, shape=(32, 40)))
    assert found == ([] if filled else ["NKI-U02"])


def test_the_tensor_engine_has_groups_of_32():
    tile, at = index(32, 1, 32)

    def body(d, x, i):
        acc = nl.ndarray((32, 40), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(acc, stationary=x.indirect(i), moving=x)
        nisa.tensor_copy(d, acc)

    got = run(body, X, tile, shape=(32, 40)).outputs
    np.testing.assert_allclose(got, np.take_along_axis(X, at, 1).T @ X, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "rule, body, target, text",
    [
        ("NKI-E03", lambda d, x, i: nisa.tensor_copy(d, x.indirect(i, 16)), "trn2", "trn3"),
        ("NKI-N02", lambda d, x, i: nisa.tensor_copy(d, x.indirect(i)), "trn3", "give num_elem"),
        (
            "NKI-N02",
            lambda d, x, i: nisa.tensor_tensor(d, d, x.indirect(i, 16), nl.add),
            "trn3",
            "data1",
        ),
        (
            "NKI-I02",
            lambda d, x, i: nisa.tensor_copy(d, x[:, :4].indirect(i, 16)),
            "trn3",
            "0 .. 3",
        ),
        (
            "NKI-N02",
            lambda d, x, i: nisa.dma_copy(d, x.indirect(i, 16)),
            "trn3",
            "nisa.tensor_copy",
        ),
        ("NKI-N02", lambda d, x, i: x.indirect(i, 16)[0], "trn3", "run-time"),
    ],
)
def test_what_is_refused(rule, body, target, text):
    tile, _ = index(32, 1, 16)
    with pytest.raises(NkiError, match=rule) as caught:
        run(body, X, tile, shape=(32, 16), target=target)
    assert text in caught.value.render()


def test_an_offset_beyond_its_dim_is_said_with_the_dims_size():
    """The element address may well lie in the tensor, in another row: it said 8 of 16 elements."""

    @nki.jit
    def kernel(x, at):
        out = nl.ndarray((2, 2), dtype=x.dtype, buffer=nl.shared_hbm)
        i = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(dst=i, src=at)
        t = nl.ndarray((2, 2), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=t, src=x.ap([[4, 2], [1, 2]], scalar_offset=i, indirect_dim=1))
        nisa.dma_copy(dst=out, src=t)
        return out

    with pytest.raises(IndexError) as error:
        nkisim.simulate(kernel, np.zeros((4, 4), np.float32), np.array([[8]], np.int32))
    said = str(error.value.nki_error)
    assert "run-time offset 8" in said and "0 .. 3" in said
    # tests of AWS's documentation compare the whole text
    assert re.fullmatch(r"index \d+ is out of bounds for axis 0 with size \d+", str(error.value))
    assert "NKI-I02" in error.value.__notes__[0]


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("twice", [True, False])
def test_columns_that_go_to_one_place_are_found_where_they_differ(twice, same):
    """Twins: no document says which of them is left."""
    tile, at = index(32, 1, 16)
    if twice:
        tile[1::16] = tile[0::16]
    value = np.ones((32, 16), np.float32) if same else RNG.standard_normal((32, 16))

    def body(d, x, v, i):
        nisa.tensor_copy(d, x)
        nisa.tensor_copy(d.indirect(i, 16), v)

    got = run(body, X, value.astype(np.float32), tile, shape=(32, 40))
    assert errors(got) == (["NKI-I16"] if twice and not same else [])
