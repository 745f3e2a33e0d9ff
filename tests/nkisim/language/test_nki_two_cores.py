"""Two cores that run a kernel of `import nki` together: what each of them has of its own."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np

import nkisim

X = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)


def _placed(x, buffer, address):
    return nl.ndarray(x, dtype=nl.float32, buffer=buffer, address=address)


@nki.jit
def exchange(x):
    """Each core sums what it and the other have loaded, in tiles at addresses of the kernel's."""
    me = nl.program_id(0)
    out = nl.ndarray((2, x.shape[0], x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    mine = _placed(x.shape, nl.sbuf, (0, 0))
    other = _placed(x.shape, nl.sbuf, (0, 4 * x.shape[1]))
    nisa.dma_copy(dst=mine, src=x)
    nisa.tensor_scalar(dst=mine, data=mine, op0=nl.multiply, operand0=float(me + 1))
    nisa.sendrecv(src=mine, dst=other, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
    nisa.tensor_tensor(dst=mine, data1=mine, data2=other, op=nl.add)
    nisa.sendrecv(src=mine, dst=other, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
    nisa.tensor_tensor(dst=mine, data1=mine, data2=other, op=nl.subtract)
    nl.store(out[me], mine if me else other)
    return out


def test_the_same_address_on_two_cores_is_two_places():
    run = nkisim.run(exchange[2], X)
    assert run.findings == []
    np.testing.assert_allclose(run.outputs[0], 3 * X, rtol=1e-6)
    assert not run.outputs[1].any()


@nki.jit
def sums_in_psum(x):
    """Each core adds up products in the same bank of its own PSUM, and waits in between."""
    me = nl.program_id(0)
    out = nl.ndarray((2, x.shape[0], x.shape[0]), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load_transpose2d(x)
    acc = _placed((x.shape[0], x.shape[0]), nl.psum, (0, 2048))
    for _ in range(me + 1):
        nisa.nc_matmul(dst=acc, stationary=tile, moving=tile)
    nisa.core_barrier(out, (0, 1))
    nisa.nc_matmul(dst=acc, stationary=tile, moving=tile)
    nl.store(out[me], nl.copy(acc))
    return out


def test_each_core_has_its_own_psum():
    run = nkisim.run(sums_in_psum[2], X)
    assert run.findings == []
    for core, count in enumerate((2, 3)):
        np.testing.assert_allclose(run.outputs[core], count * (X @ X.T), rtol=1e-4, atol=1e-4)


@nki.jit
def own_addresses(x):
    """The second core has one tile more, and so places the last one elsewhere."""
    me = nl.program_id(0)
    out = nl.ndarray((2, x.shape[0], x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    size = 4 * x.shape[1]
    first = _placed(x.shape, nl.sbuf, (0, 0))
    nisa.dma_copy(dst=first, src=x)
    between, at = first, size
    if me == 1:
        between, at = _placed(x.shape, nl.sbuf, (0, size)), 2 * size
        nisa.dma_copy(dst=between, src=x)
    last = _placed(x.shape, nl.sbuf, (0, at))
    nisa.memset(last, 1.0)
    nisa.tensor_tensor(dst=last, data1=last, data2=between, op=nl.add)
    nl.store(out[me], last)
    return out


def test_each_core_places_its_tiles_itself():
    run = nkisim.run(own_addresses[2], X)
    assert run.findings == []
    assert (run.outputs == 1 + X).all()


@nki.jit
def sends_a_part(x, rows):
    """Send a tile whose last rows nothing has written; store what has arrived."""
    me = nl.program_id(0)
    out = nl.ndarray((2, x.shape[0], x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    mine = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    other = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=mine[0:rows], src=x[0:rows])
    nisa.sendrecv(src=mine, dst=other, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
    nisa.dma_copy(dst=out[me], src=other)
    return out


def test_what_nothing_has_written_is_undefined_on_the_other_core_as_well():
    assert nkisim.run(sends_a_part[2], X, 64).findings == []
    (found,) = nkisim.run(sends_a_part[2], X, 32).findings
    assert found.id == "NKI-U02" and found.severity == "error"
    assert "2,048 of 4,096 elements" in found.text and "sendrecv reads" in found.text
