"""How much DMAs move whose rows are chosen at run time: as much as the same rows one by one."""

from __future__ import annotations

import neuronxcc.nki as beta1
import neuronxcc.nki.isa as beta1_isa
import neuronxcc.nki.language as beta1_nl
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim

ROWS, COLUMNS, INDICES = 64, 256, 64 * 4
MOVED = ROWS * COLUMNS * 4
X = np.zeros((4096, COLUMNS), np.float32)
AT = np.arange(ROWS, dtype=np.int32)[:, None]
V = np.ones((ROWS, COLUMNS), np.float32)


def rows_of(h, at):
    return h.ap(pattern=[[COLUMNS, ROWS], [1, COLUMNS]], vector_offset=at, indirect_dim=0)


def loaded(h):
    t = nl.ndarray(h.shape, dtype=h.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=h)
    return t


@nki.jit
def gathered(x, at):
    t = nl.ndarray((ROWS, COLUMNS), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=rows_of(x, loaded(at)))
    out = nl.ndarray((ROWS, COLUMNS), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=t)
    return out


@nki.jit
def gathered_in_hbm(x, at):
    out = nl.ndarray((ROWS, COLUMNS), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=rows_of(x, loaded(at)))
    return out


@nki.jit
def scattered(x, at, v):
    nisa.dma_copy(dst=rows_of(x, loaded(at)), src=loaded(v))
    return x


@beta1.jit
def gathered_beta1(x, at):
    out = beta1_nl.ndarray((ROWS, COLUMNS), dtype=x.dtype, buffer=beta1_nl.shared_hbm)
    rows = beta1_nl.load(at)
    beta1_nl.store(out, beta1_nl.load(x[rows, beta1_nl.arange(COLUMNS)[None, :]]))
    return out


@beta1.jit
def scattered_beta1(x, at, v):
    out = beta1_nl.ndarray(x.shape, dtype=x.dtype, buffer=beta1_nl.shared_hbm)
    rows = beta1_nl.load(at)
    beta1_nl.store(out[rows, beta1_nl.arange(COLUMNS)[None, :]], beta1_nl.load(v))
    return out


@pytest.mark.parametrize("kernel", [gathered, gathered_in_hbm, gathered_beta1])
def test_a_gather_reads_the_rows_that_it_takes(kernel):
    prof = nkisim.profile(kernel, X, AT, target="trn2", compute=False)
    assert (prof.hbm_read_bytes, prof.hbm_write_bytes) == (MOVED + INDICES, MOVED)


@pytest.mark.parametrize("kernel", [scattered, scattered_beta1])
def test_a_scatter_writes_the_rows_that_it_has(kernel):
    prof = nkisim.profile(kernel, X, AT, V, target="trn2", compute=False)
    assert (prof.hbm_read_bytes, prof.hbm_write_bytes) == (MOVED + INDICES, MOVED)


def test_a_scatter_takes_the_engines_of_its_partitions():
    """One partition is served by one DMA engine, however large the tensor is."""

    @nki.jit
    def one_row(x, at, v):
        t = loaded(v)
        offset = loaded(at)
        nisa.dma_copy(
            dst=x.ap(pattern=[[COLUMNS, 1], [1, COLUMNS]], scalar_offset=offset, indirect_dim=0),
            src=t,
        )
        return x

    prof = nkisim.profile(one_row, X, AT[:1], V[:1], target="trn2", compute=False)
    engines = [
        t.engines for k, t in zip(prof.trace.op_specs, prof.schedule.transfers) if k.scatters
    ]
    assert engines == [1]


# -- both sides by index, or one of them in small pieces: what moves is charged --------------------

SQUARE = np.arange(256 * 256, dtype=np.float32).reshape(256, 256)
EDGE = SQUARE.shape[0]


def zero():
    t = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(dst=t, value=0)
    return t


def moved_by(h, pattern):
    """Return an access pattern whose start the chip says: 0."""
    return h.ap(pattern=pattern, scalar_offset=zero(), indirect_dim=0)


def square(like):
    return nl.ndarray((EDGE, EDGE), dtype=like.dtype, buffer=nl.shared_hbm)


def whole(h):
    return h


def flipped(h):
    return h.permute((1, 0))


def by_rows(h):
    return moved_by(h, [[EDGE, EDGE], [1, EDGE]])


def by_columns(h):
    return moved_by(h, [[1, EDGE], [EDGE, EDGE]])


def between(src, dst):
    """Return a kernel that copies a square, with such views of the input and of the output."""

    @nki.jit
    def kernel(x):
        out = square(x)
        nisa.dma_copy(dst=dst(out), src=src(x))
        return out

    return kernel


COPIED, TURNED = between(whole, whole), between(flipped, whole)


@nki.jit
def turned_in_a_sum(x):
    out, zeros = square(x), nl.ndarray((EDGE, EDGE), dtype=x.dtype, buffer=nl.hbm)
    for r in range(0, EDGE, 128):
        t = nl.ndarray((128, EDGE), dtype=x.dtype, buffer=nl.sbuf)
        nisa.memset(dst=t, value=0.0)
        nisa.dma_copy(dst=zeros[r : r + 128], src=t)
    nisa.dma_compute(dst=out, srcs=[zeros, x.permute((1, 0))], reduce_op=nl.add)
    return out


@beta1.jit
def copied_rows_beta1(x):
    out = beta1_nl.ndarray(x.shape, dtype=x.dtype, buffer=beta1_nl.shared_hbm)
    columns = beta1_nl.arange(EDGE)[None, :]
    for r in beta1_nl.affine_range(EDGE // 128):
        at = beta1_isa.iota(r * 128 + beta1_nl.arange(128)[:, None], dtype=beta1_nl.int32)
        beta1_isa.dma_copy(dst=out[at, columns], src=x[at, columns])
    return out


@beta1.jit
def constant_rows_beta1(x):
    out = beta1_nl.ndarray(x.shape, dtype=x.dtype, buffer=beta1_nl.shared_hbm)
    columns = beta1_nl.arange(EDGE)[None, :]
    for r in beta1_nl.affine_range(EDGE // 128):
        at = beta1_isa.iota(r * 128 + beta1_nl.arange(128)[:, None], dtype=beta1_nl.int32)
        beta1_nl.store(out[at, columns], 3.0)
    return out


@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize(
    ("kernel", "plain", "right"),
    [
        (between(by_rows, by_rows), COPIED, SQUARE),
        (copied_rows_beta1, COPIED, SQUARE),
        (between(by_columns, by_rows), TURNED, SQUARE.T),
        (between(flipped, by_rows), TURNED, SQUARE.T),
        (between(by_rows, flipped), TURNED, SQUARE.T),
        (turned_in_a_sum, TURNED, SQUARE.T),
    ],
)
def test_an_index_or_a_sum_makes_no_copy_cheaper(kernel, plain, right, target):
    same, prof = (nkisim.profile(k, SQUARE, target=target) for k in (plain, kernel))
    assert np.array_equal(prof.outputs, right) and np.array_equal(same.outputs, right)
    assert prof.body_us >= same.body_us
    assert prof.hbm_read_bytes >= same.hbm_read_bytes
    assert prof.hbm_write_bytes >= same.hbm_write_bytes


def test_a_constant_that_is_scattered_is_written():
    prof = nkisim.profile(constant_rows_beta1, SQUARE, target="trn2")
    assert (prof.outputs == 3).all() and prof.hbm_write_bytes == SQUARE.nbytes


@nki.jit
def gathered_and_added(x, y, at):
    t = nl.ndarray((ROWS, COLUMNS), dtype=x.dtype, buffer=nl.sbuf)
    rows = loaded(at)
    nisa.dma_compute(dst=t, srcs=[rows_of(x, rows), rows_of(y, rows)], reduce_op=nl.add)
    out = nl.ndarray((ROWS, COLUMNS), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=t)
    return out


def test_a_sum_of_gathers_reads_each_of_them():
    prof = nkisim.profile(gathered_and_added, X, X, AT, target="trn2", compute=False)
    assert prof.hbm_read_bytes == 2 * MOVED + INDICES


def test_a_sum_into_rows_has_the_rows_among_its_sources():
    """Nothing else can be added on the way: the twin with dst is right."""

    def kernel(own):
        @nki.jit
        def added(x, y, at):
            rows = rows_of(x, loaded(at))
            nisa.dma_compute(
                dst=rows, srcs=[loaded(y), rows if own else loaded(y)], reduce_op=nl.add
            )
            return x

        return added

    got = nkisim.simulate(kernel(True), X, V, AT, target="trn2")
    assert (got[:ROWS] == 1).all() and not got[ROWS:].any()
    with pytest.raises(nkisim.NkiError, match="NKI-E04"):
        nkisim.simulate(kernel(False), X, V, AT, target="trn2")
