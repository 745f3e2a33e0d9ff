"""What people write in their first hours of the package nki: line, cause and remedy of each."""

from __future__ import annotations

import inspect

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim import NkiError

X = np.ones((256, 512), np.float32)


def tile(x):
    return nl.load(x[0:128])


def new(*shape, buffer=nl.sbuf):
    return nl.ndarray(shape, dtype=nl.float32, buffer=buffer)


def psum(*shape):
    return new(*shape, buffer=nl.psum)


#: (rule, what the line does, words that the hint has); the line is the body of a kernel of `x`
MISTAKES = [
    # no dst, or another order of arguments
    ("NKI-N01", lambda x: nisa.activation(nl.exp, tile(x)), "comes first"),
    ("NKI-N01", lambda x: nisa.activation(op=nl.exp, data=tile(x)), "nisa.activation(dst=..."),
    ("NKI-N01", lambda x: nisa.tensor_reduce(nl.add, tile(x), 1), "comes first"),
    ("NKI-N01", lambda x: nisa.tensor_scalar(tile(x), nl.multiply, 2.0), "destination comes first"),
    ("NKI-N01", lambda x: nisa.memset((128, 512), 0.0, nl.float32), "nl.ndarray(shape"),
    ("NKI-M02", lambda x: nisa.reciprocal(nl.exp, tile(x)), "dst comes first"),
    (
        "NKI-M02",
        lambda x: nisa.tensor_tensor(new(128, 512), tile(x), nl.add, tile(x)),
        "order of the arguments",
    ),
    # results
    (
        "NKI-M02",
        lambda x: nisa.tensor_copy(new(128, 512), nisa.memset(new(128, 512), 0.0)),
        "returns a handle",
    ),
    ("NKI-O02", lambda x: None, "return out"),
    ("NKI-O03", lambda x: new(128, 512, buffer=nl.shared_hbm), "nisa.dma_copy(dst=out"),
    # operators and values
    ("NKI-N04", lambda x: new(128, 512, buffer=nl.psum).__iadd__(tile(x)), "nisa.nc_matmul(dst="),
    ("NKI-N02", lambda x: x[tile(x)[:, 0:1]], "vector_select"),
    ("NKI-N02", lambda x: x.vector_select(0, nl.ndarray((8, 2), nl.int32)), "index[:, 0:1]"),
    ("NKI-N02", lambda x: x.vector_select(0, nl.ndarray((8, 1), nl.float32)), "a tile of int32"),
    # memories
    (
        "NKI-M01",
        lambda x: nisa.nc_matmul(psum(128, 512), psum(128, 128), tile(x)),
        "nisa.tensor_copy",
    ),
    (
        "NKI-P07",
        lambda x: nisa.nc_matmul(psum(128, 512), tile(x), tile(x)[:, 0:128]),
        "exchanged",
    ),
    (
        "NKI-P07",
        lambda x: nisa.nc_matmul(psum(128, 512), tile(x), tile(x)),
        "loop over tiles of 128 columns",
    ),
    (
        "NKI-M01",
        lambda x: nisa.nc_matmul(psum(128, 512), tile(x)[:, 0:128], psum(128, 512)),
        "nisa.tensor_copy",
    ),
    ("NKI-M02", lambda x: nl.store(tile(x), x[0:128]), "nisa.dma_copy(dst=out"),
    ("NKI-P07", lambda x: nisa.nc_transpose(new(128, 128), tile(x)[:, 0:128]), "buffer=nl.psum"),
    # shapes
    (
        "NKI-S01",
        lambda x: nisa.nc_stream_shuffle(new(32, 256), tile(x)[0:32], [0] * 32),
        "slice both",
    ),
    ("NKI-S01", lambda x: nisa.tensor_copy(new(64, 1024), tile(x)), "shape of the source: "),
    ("NKI-P02", lambda x: new(), "(1, 1)"),
    ("NKI-S10", lambda x: nl.sum(tile(x), axis=3), ""),
    ("NKI-K05", lambda x: nl.sum(tile(x), axis="1"), ""),
    ("NKI-K05", lambda x: tile(x).expand_dim("1"), ""),
    ("NKI-K05", lambda x: nl.affine_range(x.shape), "shape[0] here is 256"),
    ("NKI-S09", lambda x: nisa.memset(new(128, 512), nl.zeros), "nisa.memset(dst=t, value=0.0)"),
    ("NKI-D06", lambda x: nl.invert(tile(x)), "cast to an integer dtype"),
    ("NKI-M02", lambda x: nisa.tensor_copy(None, tile(x)), "dst comes first"),
    ("NKI-M02", lambda x: nisa.memset(None, 0.0), "dst comes first"),
    ("NKI-S09", lambda x: nisa.affine_select(new(128, 512), [[1, 512]], 0, tile(x), None), ""),
    ("NKI-M02", lambda x: nisa.affine_select(new(128, 512), [[1, 512]], 0, 0, tile(x)), ""),
    ("NKI-N03", lambda x: nisa.iota(new(128, 512), [1, 512], 0), "pattern=[[1, n]]"),
    ("NKI-N03", lambda x: nisa.iota(new(128, 512), None, 0), "pattern=[[1, n]]"),
    ("NKI-N04", lambda x: tile(x) // 2, "nl.floor"),
    ("NKI-K14", lambda x: tile(x).astype(nl.bfloat16), "nisa.tensor_copy"),
    ("NKI-K14", lambda x: tile(x)[:, 0:1].broadcast_to((128, 512)), "t.broadcast(dim, size)"),
    # access patterns
    ("NKI-N03", lambda x: tile(x).ap([1, 128]), "get_pattern"),
    ("NKI-N03", lambda x: tile(x).ap([[1, 128], [1, 4]]), "[[512, 128]"),
    (
        "NKI-N03",
        lambda x: tile(x).ap([[512, 128], [1, 4]], nl.full((1, 1), 3, nl.int32)),
        "scalar_offset=",
    ),
    # names and members
    ("NKI-N01", lambda x: nisa.tensor_copy(new(128, 512), tile(x), dtype="float"), "since 0.1"),
    ("NKI-N01", lambda x: nisa.dma_copy(new(128, 512), x[0:128], mask=None), "since 0.1"),
    ("NKI-N01", lambda x: nisa.activation(new(128, 512), "exp", tile(x)), "op=nl.exp"),
    (
        "NKI-N01",
        lambda x: nisa.tensor_copy(new(128, 512), tile(x), engine="vecto"),
        "engine=nisa.engine.vector",
    ),
    # a keyword of another instruction: what there is instead, and who has it
    (
        "NKI-N01",
        lambda x: nisa.activation(new(128, 512), nl.exp, tile(x), engine=nisa.engine.vector),
        "nisa.activation runs on the Scalar Engine alone; engine= is an argument of "
        "nisa.tensor_copy, nisa.tensor_scalar, nisa.tensor_tensor",
    ),
    (
        "NKI-N01",
        lambda x: nisa.iota(new(128, 512), [[1, 512]], engine=nisa.engine.vector),
        "nisa.iota runs on the GpSimd Engine alone",
    ),
    (
        "NKI-N01",
        lambda x: nisa.dma_transpose(new(128, 128), x[0:128, 0:128], engine=nisa.engine.scalar),
        "nisa.dma_transpose runs in the DMA queues",
    ),
    (
        "NKI-N01",
        lambda x: nisa.tensor_tensor(new(128, 512), tile(x), tile(x), nl.add, scale=2.0),
        "scale= is an argument of nisa.activation",
    ),
    (
        "NKI-N01",
        lambda x: nisa.tensor_copy(new(128, 512), tile(x), accumulate=True),
        "accumulate= is an argument of nisa.nc_matmul",
    ),
    ("NKI-E11", lambda x: nisa.activation(new(128, 512), nl.exp(tile(x)), tile(x)), "op=nl.exp"),
    ("NKI-K06", lambda x: nl.program_id(1), "in the kernel"),
    ("NKI-S01", lambda x: new(4, nl.par_dim(128), 4), "a list of tiles"),
    (AttributeError, lambda x: nl.arange(128), "nl.ds"),
    (AttributeError, lambda x: nl.static_cast(x, nl.bfloat16), "nisa.tensor_copy(dst, src)"),
    (AttributeError, lambda x: nisa.dge_mode.hwdg, "nisa.dge_mode.hwdge"),
]


@pytest.mark.parametrize("id, line, remedy", MISTAKES, ids=range(len(MISTAKES)))
def test_a_mistake_is_told_with_its_line_and_what_to_write(id, line, remedy):
    wanted = id if isinstance(id, type) else NkiError
    with pytest.raises(wanted) as caught:
        nkisim.run(nki.jit(line), X.copy())
    error = caught.value
    if wanted is not NkiError:
        assert remedy in str(error)
        return
    assert error.id == id and remedy in error.hint
    lines, first = inspect.getsourcelines(line)
    assert error.where.file == __file__ and (
        error.where.function == "new" or first <= error.where.line < first + len(lines)
    )
    for old in ("mask=(", "t[...] =", "nl.par_dim(", "affine_range", "np.add"):
        assert old not in error.hint


@pytest.mark.parametrize(
    "line",
    [
        lambda x: nisa.tensor_copy(new(128, 256), tile(x)),
        lambda x: nisa.nc_stream_shuffle(new(32, 256), tile(x)[0:32], [0] * 32),
        lambda x: nisa.nc_stream_shuffle(tile(x)[0:32], tile(x)[0:32], [40] * 32),
        lambda x: nisa.nc_stream_shuffle(tile(x)[0:32], tile(x)[0:32], [0, 1]),
        lambda x: nl.invert(tile(x)),
    ],
    ids=range(5),
)
def test_a_mistake_is_told_without_arithmetic_as_well(line):
    with pytest.raises(NkiError):
        nkisim.profile(nki.jit(line), X.copy(), compute=False)


def test_what_an_instruction_takes_is_told_in_this_dialect():
    def kernel(x):
        nisa.dropout(new(128, 512), tile(x), prob="most of them")

    with pytest.raises(NkiError) as caught:
        nkisim.run(nki.jit(kernel), X.copy())
    assert "mask" not in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        lambda t, c: nisa.tensor_copy(t, c),
        lambda t, c: nisa.dma_copy(t, c),
        lambda t, c: nisa.dma_copy(t, t[0:1]),
        lambda t, c: nisa.scalar_tensor_tensor(t, t, nl.add, 1.0, nl.multiply, c),
        lambda t, c: nisa.tensor_tensor_scan(t, t, c, 0.0, nl.multiply, nl.add),
    ],
    ids=range(5),
)
def test_instructions_of_two_tiles_do_not_broadcast(line):
    def column(x):
        t = tile(x)
        c = new(128, 1)
        nisa.tensor_copy(c, t[:, 0:1])
        line(t, c)
        nl.store(x[0:128], t)

    with pytest.raises(NkiError, match="NKI-R11") as caught:
        nkisim.run(nki.jit(column), X.copy())
    assert "column.broadcast(1, n)" in caught.value.hint


def test_a_copy_may_group_the_elements_otherwise():

    def regrouped(x):
        t = new(128, 512)
        nisa.tensor_copy(t.reshape((128, 8, 64)), tile(x))
        nl.store(x[0:128], t)

    assert "NKI-R11" not in {f.id for f in nkisim.run(nki.jit(regrouped), X.copy()).findings}


def test_a_selection_may_group_the_elements_otherwise():
    def kernel(x):
        t = new(128, 512)
        nisa.affine_select(t, [[1, 512]], -1, tile(x).reshape((128, 8, 64)), 0.0, nl.greater_equal)
        out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, t)
        return out

    got = nkisim.simulate(nki.jit(kernel), X.copy())
    assert (got == np.triu(X[0:128])).all()


def test_a_predicated_copy_casts():
    def kernel(x):
        t, chosen = (nl.ndarray((128, 512), dtype=d, buffer=nl.sbuf) for d in (nl.int32, nl.uint8))
        nisa.memset(t, 7)
        nisa.memset(chosen, 1)
        nisa.tensor_copy_predicated(t, tile(x), chosen)
        out = nl.ndarray((128, 512), dtype=nl.int32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, t)
        return out

    got = nkisim.simulate(nki.jit(kernel), 2.6 * X)
    assert (got == 3).all()  # to the nearest, as every cast


def test_what_is_reported_and_runs(monkeypatch):
    def column(x):
        t = tile(x)
        nisa.tensor_tensor(t, t, t[:, 0:1], nl.add)
        nl.store(x[0:128], t)

    monkeypatch.setenv("NKI_LANGUAGE", "teach")
    found = {f.id: f for f in nkisim.run(nki.jit(column), X.copy()).findings}
    assert "nisa.tensor_scalar" in found["NKI-R11"].text

    def view(x):
        t = tile(x)
        nisa.tensor_tensor(t, t, t[:, 0:1].broadcast(1, 512), nl.add)
        nl.store(x[0:128], t)

    assert "NKI-R11" not in {f.id for f in nkisim.run(nki.jit(view), X.copy()).findings}


def test_a_finding_is_cured_in_the_words_of_its_dialect():
    def half(x):
        out = nl.ndarray((256, 512), dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out[0:128], src=tile(x))
        return out

    (found,) = [f for f in nkisim.run(nki.jit(half), X).findings if f.id == "NKI-O04"]
    assert "min(start + tile, size)" in found.suggestion() and "mask" not in found.suggestion()

    def by_a_number(x):
        t = tile(x)
        nisa.tensor_copy(t, t, engine=5)
        nl.store(x[0:128], t)

    (found,) = [f for f in nkisim.run(nki.jit(by_a_number), X.copy()).findings if f.id == "NKI-G36"]
    assert found.suggestion() == "engine=nisa.engine.vector"


def test_an_error_about_a_kernel_names_its_def_and_not_its_decorator():
    @nki.jit
    def kernel(x):
        tile(x)

    with pytest.raises(NkiError, match="NKI-O02") as caught:
        nkisim.run(kernel, X)
    assert caught.value.where.text == "def kernel(x):"


@pytest.mark.parametrize("low", [0.0, 3, 40.5])
def test_a_number_as_a_bound_of_range_select(low):
    """Published kernels that run on a chip pass bound0=0.0, where AWS documents a tile."""

    def kernel(x, low, bare):
        t, u, high = tile(x), new(128, 512), new(128, 1)
        nisa.memset(high, 100.0)
        bound = low
        if not bare:
            bound = new(128, 1)
            nisa.memset(bound, low)
        nisa.range_select(u, t, nl.greater_equal, nl.less, bound, high)
        out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, u)
        return out

    bare = nkisim.run(nki.jit(kernel), X.copy(), low, True, target="trn2")
    whole = nkisim.run(nki.jit(kernel), X.copy(), low, False, target="trn2")
    assert (bare.outputs == whole.outputs).all()
    assert ((bare.outputs == 1).sum(1) == 100 - np.ceil(low)).all()
    assert [f.severity for f in bare.findings if f.id == "NKI-R14"] == ["note"]
    assert "NKI-R14" not in {f.id for f in whole.findings}
