"""Calls of `import nki` that look like one before are issued without another look at the call: what
is said of them, and what they do, is the same as if each were the first."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim


def found(kernel, *arrays, target="trn2"):
    """Return (id, line) of what a run finds, in order."""
    return [(f.id, f.where.line) for f in nkisim.run(kernel, *arrays, target=target).findings]


@nki.jit
def summed(x, again):
    """Add up products of one form; `again`: read the sum between the last two of them."""
    out = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    left = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=x)
    for _ in range(3):
        acc = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
        kept = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
        for _ in range(3):
            nisa.nc_matmul(dst=acc, stationary=left, moving=left)
        nisa.tensor_copy(dst=kept, src=acc)
    if again:
        nisa.nc_matmul(dst=acc, stationary=left, moving=left)
        nisa.tensor_copy(dst=kept, src=acc)
    nisa.dma_copy(dst=out, src=kept)
    return out


@pytest.mark.parametrize("again", [False, True])
def test_a_sum_that_is_read_early_is_found_in_a_call_like_others(again):
    x = np.eye(128, dtype=np.float32)
    run = nkisim.run(summed, x, again, target="trn2")
    assert ("NKI-R06" in {f.id for f in run.findings}) == again
    assert (run.outputs == (4 if again else 3) * x).all()


@nki.jit
def two_lines(x):
    """Add an operand that is not float32 (NKI-R02), from two lines."""
    out = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    half = nl.ndarray((128, 1), dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.memset(half, 0)
    for _ in range(2):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=half)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=half)
    nisa.dma_copy(dst=out, src=tile)
    return out


def test_a_finding_is_said_at_each_line(monkeypatch):
    monkeypatch.setenv("NKI_LANGUAGE", "teach")
    lines = [
        line for id, line in found(two_lines, np.zeros((128, 128), np.float32)) if id == "NKI-R02"
    ]
    assert len(lines) == 2 and lines[1] == lines[0] + 1


def crowded(apart):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        one = nl.ndarray((128, 30_000), dtype=nl.float32, buffer=nl.sbuf)
        two = nl.ndarray((128, 30_000), dtype=nl.float32, buffer=nl.sbuf) if apart else one
        nisa.dma_copy(dst=one[:, :8], src=x)
        nisa.tensor_copy(dst=one[:, 8:16], src=one[:, :8])
        nisa.tensor_copy(dst=two[:, 8:16], src=one[:, :8])
        nisa.dma_copy(dst=out, src=two[:, 8:16])
        return out

    return kernel


@pytest.mark.parametrize("apart", [False, True])
def test_tiles_that_do_not_fit_together_are_found_after_a_call_like_it_on_one_tile(
    monkeypatch, apart
):
    monkeypatch.setenv("NKI_LANGUAGE", "teach")
    assert (
        "NKI-R01" in {id for id, _ in found(crowded(apart), np.zeros((128, 8), np.float32))}
    ) == apart


@nki.jit
def biased(x):
    """Add biases that are numbers; the tile of each is made once."""
    out = nl.ndarray((4, 128, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 8), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    for i in range(4):
        kept = nl.ndarray((128, 8), dtype=x.dtype, buffer=nl.sbuf)
        nisa.activation(dst=kept, op=nl.copy, data=tile, bias=float(i % 2 + 1))
        nisa.dma_copy(dst=out[i], src=kept)
    return out


def test_constants_belong_to_their_calls():
    x = np.arange(1024, dtype=np.float32).reshape(128, 8)
    run = nkisim.run(biased, x)
    assert (run.outputs == np.stack([x + 1, x + 2, x + 1, x + 2])).all()
    assert sum(kind.row.name == "memset" for kind, *_ in run.trace) == 2


@nki.jit
def signed_zeros(x):
    """Multiply by 0.0 and by -0.0."""
    out = nl.ndarray((2, 128, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 8), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    for i in range(2):
        kept = nl.ndarray((128, 8), dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=kept, data=tile, op0=nl.multiply, operand0=-0.0 if i else 0.0)
        nisa.dma_copy(dst=out[i], src=kept)
    return out


def test_a_call_with_another_number_is_another_call():
    signs = np.signbit(nkisim.run(signed_zeros, np.ones((128, 8), np.float32)).outputs)
    assert not signs[0].any() and signs[1].all()


@nki.jit
def same_tile_twice(x, y):
    """Add a tile to itself, then two tiles."""
    out = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    a = nl.ndarray((128, 8), dtype=x.dtype, buffer=nl.sbuf)
    b = nl.ndarray((128, 8), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=a, src=x)
    nisa.dma_copy(dst=b, src=y)
    nisa.tensor_tensor(dst=a, data1=a, data2=a, op=nl.add)
    nisa.tensor_tensor(dst=a, data1=a, data2=b, op=nl.add)
    nisa.dma_copy(dst=out, src=a)
    return out


def test_tiles_are_told_apart_by_their_places():
    x = np.ones((128, 8), np.float32)
    assert (nkisim.run(same_tile_twice, x, 5 * x).outputs == 7).all()


def test_a_tile_that_is_read_past_its_end_is_refused_as_ever():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        tile = nl.ndarray((128, 16), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile[:, 0:8], src=x)
        for i in range(3):
            nisa.dma_copy(dst=out, src=tile[:, 8 * i : 8 * i + 8])
        return out

    with pytest.raises(nkisim.NkiError):
        nkisim.run(kernel, np.zeros((128, 8), np.float32))


@nki.jit
def placed(x, partition):
    """Place tiles of one form at one address, one after the other, and one at another address."""
    out = nl.ndarray((3, 128, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    for i in range(3):
        tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf, address=(0, 4096))
        nisa.dma_copy(dst=tile, src=x)
        other = nl.ndarray(
            (128, 8), dtype=nl.float32, buffer=nl.sbuf, address=(partition if i == 2 else 0, 8192)
        )
        nisa.activation(dst=other, op=nl.copy, data=tile, scale=float(i))
        nisa.dma_copy(dst=out[i], src=other)
    return out


def test_a_tile_that_is_placed_again_is_another_one_at_the_same_place():
    x = np.arange(1024, dtype=np.float32).reshape(128, 8)
    run = nkisim.run(placed, x, 0)
    assert (run.outputs == np.stack([0 * x, x, 2 * x])).all()
    assert not [f for f in run.findings if f.severity != "note"]
    with pytest.raises(nkisim.NkiError, match="NKI-A01"):
        nkisim.run(placed, x, 16)


def test_a_placed_tile_that_was_overwritten_by_one_like_it_is_found():
    @nki.jit
    def kernel(x, overwrite):
        out = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        tiles = []
        for i in range(2):
            tiles.append(nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf, address=(0, 4096)))
            if i == 0 or overwrite:
                nisa.dma_copy(dst=tiles[i], src=x)
        nisa.dma_copy(dst=out, src=tiles[0])
        return out

    x = np.zeros((128, 8), np.float32)
    assert [len(nkisim.run(kernel, x, o).findings) > 0 for o in (False, True)] == [False, True]
