"""nl.tiles, nl.blocks, nl.alloc_tiles, nl.alloc_blocks: views by the coordinates of tiles."""

from __future__ import annotations

from math import ceil

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nkisim
from nkisim import NkiError

X = np.arange(300 * 700, dtype=np.float32).reshape(300, 700)
TILE = (128, 256)


def seen(look, x=X):
    """Return what a function says of an array in a kernel."""
    said = []

    def kernel(x):
        said.append(look(x))
        nl.store(x[0:1, 0:1], 0.0)

    nkisim.run(nki.jit(kernel), x.copy())
    return said[0]


def test_a_grid_counts_tiles_and_cuts_the_last():
    def look(x):
        g = nl.tiles(x, tile_shape=TILE)
        assert isinstance(g, nl.NkiTileGrid) and isinstance(g, nl.NkiGrid)
        row, one, last = g[1, :], g[0, 1], g[2, -1]
        assert all(type(v) is nl.NkiTileGrid for v in (row, one, last))
        return [
            (v.shape, v.element_shape, v.index_step_elements, v.is_remainder, v.data.shape)
            for v in (g, row, g[:, 2], g[0:2, 1:3], one, last)
        ]

    assert seen(look) == [
        ((3, 3), (300, 700), (128, 256), True, (300, 700)),
        ((3,), (128, 700), (256,), True, (128, 700)),
        ((3,), (300, 188), (128,), True, (300, 188)),
        ((2, 2), (256, 444), (128, 256), True, (256, 444)),
        ((), (128, 256), (), False, (128, 256)),
        ((), (44, 188), (), True, (44, 188)),
    ]


def test_a_grid_of_blocks_groups_tiles_and_shows_them_again():
    def look(x):
        b = nl.blocks(x, tile_shape=TILE, block_shape=(2, 2))
        assert isinstance(b, nl.NkiBlockGrid) and b.block_shape == (2, 2) and b.tile_shape == TILE
        again = nl.blocks(nl.tiles(x, tile_shape=TILE), block_shape=(2, 2))
        assert again.shape == b.shape == (2, 2) and b.index_step_elements == (256, 512)
        inner = nl.tiles(b[1, 0])
        assert inner.shape == (1, 2) and inner[0, 1].element_shape == (44, 256)
        assert nl.blocks(b[0, :], block_shape=(1, 3)).shape == (2, 1)
        return b[0, 0].element_shape, b[1, 1].element_shape, b[0, 0].is_remainder, b[0, 1].shape

    assert seen(look) == ((256, 512), (44, 188), False, ())


def copied(src):
    """The kernel of the reference, for tiles: each through SBUF."""
    src_tiles = nl.tiles(src, tile_shape=TILE)
    dst = nl.ndarray(src.shape, dtype=src.dtype, buffer=nl.shared_hbm)
    dst_tiles = nl.tiles(dst, tile_shape=TILE)
    for i in range(src_tiles.shape[0]):
        for j in range(src_tiles.shape[1]):
            src_tile = src_tiles[i, j]
            tile = nl.ndarray(src_tile.element_shape, dtype=src.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile.data, src=src_tile.data)
            nisa.dma_copy(dst=dst_tiles[i, j].data, src=tile.data)
    return dst


def sliced(src):
    """The same with slices."""
    dst = nl.ndarray(src.shape, dtype=src.dtype, buffer=nl.shared_hbm)
    for i in range(0, src.shape[0], TILE[0]):
        for j in range(0, src.shape[1], TILE[1]):
            at = slice(i, min(i + TILE[0], src.shape[0])), slice(j, min(j + TILE[1], src.shape[1]))
            tile = nl.ndarray(src[at].shape, dtype=src.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=src[at])
            nisa.dma_copy(dst=dst[at], src=tile)
    return dst


def test_tiles_are_the_same_as_slices_in_values_and_in_time():
    np.testing.assert_array_equal(nki.simulate(copied)(X), X)
    one, two = (nkisim.profile(nki.jit(k), X, compute=False) for k in (copied, sliced))
    assert one.instructions == two.instructions and one.body_us == two.body_us


def test_tiles_on_chip_lie_side_by_side():
    """A row of them is one operand, and blocks of a row are."""

    @nki.jit
    def kernel(x):
        out = nl.alloc_tiles(
            tile_shape=TILE, element_shape=x.shape, buffer=nl.shared_hbm, dtype=x.dtype
        )
        here = nl.alloc_blocks(
            tile_shape=TILE,
            block_shape=(1, 2),
            element_shape=x.shape,
            buffer=nl.sbuf,
            dtype=x.dtype,
        )
        t, src = nl.tiles(here), nl.tiles(x, tile_shape=TILE)
        pairs = nl.blocks(src, block_shape=(1, 2))
        assert t.shape == (3, 3) and here.shape == (3, 2) and t.element_shape == x.shape
        assert not t.is_data_representable and t[1, :].is_data_representable
        for i in range(3):
            for j in range(2):
                nisa.dma_copy(dst=here[i, j].data, src=pairs[i, j].data)
            nisa.tensor_scalar(dst=t[i, :].data, data=t[i, :].data, op0=nl.multiply, operand0=3.0)
            for j in range(3):
                nisa.dma_copy(dst=out[i, j].data, src=t[i, j].data)
        return out.data

    run = nkisim.run(kernel, X)
    np.testing.assert_array_equal(run.outputs, 3 * X)


def test_the_last_tiles_on_chip_have_room_for_whole_ones():
    """129 rows of 700 are two rows of three tiles of 1 KiB a partition, whatever is cut."""

    def kernel(x, n):
        g = nl.alloc_tiles(
            tile_shape=(128, n), element_shape=(129, 2 * n + 1), buffer=nl.sbuf, dtype=x.dtype
        )
        assert g.shape == (2, 3)
        nl.store(x[0:1, 0:1], 0.0)

    nkisim.run(nki.jit(kernel), X.copy(), 8_192)  # 6 x 32 KiB of 208 KiB - 8
    with pytest.raises(NkiError, match="NKI-M04"):
        nkisim.run(nki.jit(kernel), X.copy(), 9_000)


def test_what_no_one_wrote_of_a_grid_is_found():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
        t = nl.alloc_tiles(tile_shape=TILE, element_shape=(128, 512), buffer=nl.sbuf, dtype=x.dtype)
        nisa.dma_copy(dst=t[0, 0].data, src=x[0:128, 0:256])
        nisa.dma_copy(dst=out, src=t.data)
        return out

    (found,) = nkisim.run(kernel, X).findings
    assert (found.id, found.severity) == ("NKI-U02", "error") and "[0:128, 256:512]" in found.text


def test_tiles_of_three_dims():
    x = np.arange(130 * 5 * 9, dtype=np.float32).reshape(130, 5, 9)

    @nki.jit
    def kernel(x):
        shape = (64, 2, 4)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        here = nl.alloc_tiles(
            tile_shape=shape, element_shape=x.shape, buffer=nl.sbuf, dtype=x.dtype
        )
        src, dst = nl.tiles(x, tile_shape=shape), nl.tiles(out, tile_shape=shape)
        for i in range(3):
            for j in range(3):
                for k in range(3):
                    nisa.dma_copy(dst=here[i, j, k].data, src=src[i, j, k].data)
                    nisa.dma_copy(dst=dst[i, j, k].data, src=here[i, j, k].data)
        return out

    np.testing.assert_array_equal(nki.simulate(kernel)(x), x)


sizes = st.integers(1, 40)


@settings(max_examples=40, deadline=None)
@given(
    extent=st.tuples(sizes, sizes),
    tile=st.tuples(sizes, sizes),
    block=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    seed=st.integers(0, 9),
)
def test_cells_are_what_slices_of_numpy_are(extent, tile, block, seed):
    """Every tile of every block, by its coordinates and by NumPy's."""
    x = np.random.default_rng(seed).random(extent, dtype=np.float32)

    @nki.jit
    def kernel(x):
        out = nl.ndarray(extent, dtype=x.dtype, buffer=nl.shared_hbm)
        here = nl.alloc_blocks(
            tile_shape=tile, block_shape=block, element_shape=extent, buffer=nl.sbuf, dtype=x.dtype
        )
        grid = nl.blocks(x, tile_shape=tile, block_shape=block)
        assert (
            grid.shape
            == here.shape
            == tuple(ceil(ceil(n / t) / b) for n, t, b in zip(extent, tile, block))
        )
        for i in range(grid.shape[0]):
            for j in range(grid.shape[1]):
                src, dst = nl.tiles(grid[i, j]), nl.tiles(here[i, j])
                assert src.shape == dst.shape and src.element_shape == dst.element_shape
                for k in range(src.shape[0]):
                    for n in range(src.shape[1]):
                        a, b = ((c * w + d) * t for c, w, d, t in zip((i, j), block, (k, n), tile))
                        part = (
                            slice(a, min(a + tile[0], extent[0])),
                            slice(b, min(b + tile[1], extent[1])),
                        )
                        assert src[k, n].data.shape == x[part].shape
                        nisa.dma_copy(dst=dst[k, n].data, src=src[k, n].data)
                        nisa.dma_copy(dst=out[part], src=dst[k, n].data)
        return out

    np.testing.assert_array_equal(nki.simulate(kernel)(x), x)


def alloc(**changes):
    return nl.alloc_tiles(
        **{
            **dict(tile_shape=TILE, element_shape=(300, 700), buffer=nl.sbuf, dtype=nl.float32),
            **changes,
        }
    )


MISTAKES = [
    ("NKI-N13", lambda x: nl.tiles(x, tile_shape=[128, 256]), "no tuple of integers"),
    ("NKI-N13", lambda x: nl.tiles(x, tile_shape=(128, True)), "no tuple of integers"),
    ("NKI-N13", lambda x: nl.tiles(x, tile_shape=(128, 0)), "below 1"),
    ("NKI-N13", lambda x: nl.tiles(x), "no tuple"),
    ("NKI-N13", lambda x: nl.tiles(x, tile_shape=(128,)), "two dims at least"),
    ("NKI-N13", lambda x: nl.tiles(x, tile_shape=(2, 128, 256)), "no more than the tensor"),
    ("NKI-N13", lambda x: nl.tiles(x.reshape((3, 100, 700)), tile_shape=(50, 70)), "nl.tiles(x[b]"),
    ("NKI-N13", lambda x: nl.tiles(X, tile_shape=TILE), "takes a tensor or a grid"),
    ("NKI-N13", lambda x: nl.blocks(x, tile_shape=TILE, block_shape=(2,)), "another rank"),
    ("NKI-N01", lambda x: nl.tiles(x, TILE), "1 of them by place"),
    ("NKI-N01", lambda x: nl.blocks(x, tile_shape=TILE), "block_shape"),
    ("NKI-N01", lambda x: nl.alloc_tiles(TILE, (300, 700)), "0 of them by place"),
    ("NKI-M05", lambda x: alloc(buffer="sbuf"), "not a memory"),
    ("NKI-P01", lambda x: alloc(tile_shape=(256, 256)), "128"),
    ("NKI-I01", lambda x: nl.tiles(x, tile_shape=TILE)[3, 0], "outside of a grid"),
    ("NKI-I01", lambda x: nl.tiles(x, tile_shape=TILE)[1:1, 0], "or empty"),
    ("NKI-I01", lambda x: nl.tiles(x, tile_shape=TILE)[0:9], "outside of a grid"),
    ("NKI-I02", lambda x: nl.tiles(x, tile_shape=TILE)[0, 0][0], "fewer coordinates"),
    ("NKI-N13", lambda x: nl.tiles(x, tile_shape=TILE)[::-1], "a step that is not positive"),
    ("NKI-N13", lambda x: nl.tiles(x, tile_shape=TILE)[::2].data, "gaps between them"),
    ("NKI-N13", lambda x: nl.tiles(nl.tiles(x, tile_shape=TILE)[::2], tile_shape=(64, 64)), "gaps"),
    ("NKI-N13", lambda x: nl.empty_like(x, buffer=nl.sbuf, transpose_axes=(0, 1)), "(1, 0)"),
    ("NKI-N13", lambda x: nl.empty_like(x, transpose_axes=(1, 0)), "buffer=nl.sbuf"),
    ("NKI-P01", lambda x: nl.empty_like(x, buffer=nl.sbuf, transpose_axes=(1, 0)), "128"),
    ("NKI-N13", lambda x: nl.tiles(x, tile_shape=TILE)[1.0], "no integer and no slice"),
    (
        "NKI-N13",
        lambda x: nl.fori_loop(0, 2, lambda i: nl.tiles(x, tile_shape=TILE)[i]),
        "g.index_step_elements",
    ),
    ("NKI-N13", lambda x: alloc().data, "no one tensor together"),
    ("NKI-N13", lambda x: nisa.dma_copy(dst=alloc()[0, 0], src=x[0:128, 0:256]), "g.data"),
    ("NKI-N13", lambda x: nl.load(nl.tiles(x, tile_shape=TILE)[0, 0]), "g.data"),
    ("NKI-I08", lambda x: list(alloc()), "range(g.shape[0])"),
]


@pytest.mark.parametrize("id, use, says", MISTAKES)
def test_mistakes_say_what_a_grid_is(id, use, says):
    def kernel(x):
        use(x)
        nl.store(x[0:1, 0:1], 0.0)

    with pytest.raises(NkiError) as caught:
        nkisim.run(nki.jit(kernel), X.copy())
    assert (caught.value.id, says in caught.value.render()) == (id, True), caught.value.render()


def test_slices_with_a_step_choose_cells_with_gaps():
    def look(x):
        g = nl.tiles(x, tile_shape=(64, 100))
        some = g[::2, 1::3]
        inner = nl.tiles(nl.blocks(g, block_shape=(2, 2))[::2, 3])
        return [
            (v.shape, v.element_shape, v.is_remainder, v.is_data_representable)
            for v in (g, some, some[2, 0], some[1:, 1], inner)
        ]

    assert seen(look) == [
        ((5, 7), (300, 700), True, True),
        ((3, 2), (64 + 64 + 44, 200), True, False),
        ((), (44, 100), True, True),
        ((2,), (64 + 44, 100), True, False),
        ((3, 1), (172, 100), True, False),
    ]


@pytest.mark.parametrize("buffer", ["sbuf", "shared_hbm"])
def test_empty_like_packs_the_cells_of_a_grid(buffer):
    """Cells with gaps lie one after another in it; kind, coordinates and cuts stay."""

    @nki.jit
    def kernel(x):
        g = nl.blocks(x, tile_shape=(64, 100), block_shape=(1, 2))[::2, 1]
        like = nl.empty_like(g, buffer=getattr(nl, buffer))
        assert type(like) is nl.NkiBlockGrid and like.shape == g.shape == (3,)
        assert (like.element_shape, like.block_shape) == (g.element_shape, g.block_shape)
        out = nl.ndarray(like.element_shape, dtype=x.dtype, buffer=nl.shared_hbm)
        at = 0
        for i in range(3):
            nisa.dma_copy(dst=like[i].data, src=g[i].data)
            n = g[i].element_shape[0]
            nisa.dma_copy(dst=out[at : at + n], src=like[i].data)
            at += n
        assert like.is_data_representable is (buffer == "shared_hbm")
        return out

    want = np.concatenate([X[0:64, 200:400], X[128:192, 200:400], X[256:300, 200:400]])
    np.testing.assert_array_equal(nki.simulate(kernel)(X), want)


def test_empty_like_makes_room_for_a_transpose():
    x = np.random.default_rng(1).random((128, 512), dtype=np.float32).astype(np.float16)

    @nki.jit
    def kernel(x):
        out = nl.ndarray((512, 128), dtype=x.dtype, buffer=nl.shared_hbm)
        g = nl.tiles(x, tile_shape=(128, 128))
        like = nl.empty_like(g, buffer=nl.sbuf, transpose_axes=(1, 0))
        assert like.shape == (4, 1) and like.element_shape == (512, 128)
        for j in range(4):
            one = nl.empty_like(g[0, j].data, buffer=nl.sbuf, transpose_axes=(1, 0))
            assert one.shape == like[j, 0].element_shape == (128, 128)
            nisa.dma_transpose(dst=like[j, 0].data, src=g[0, j].data)
            nisa.dma_copy(dst=out[j * 128 : (j + 1) * 128], src=like[j, 0].data)
        return out

    np.testing.assert_array_equal(nki.simulate(kernel)(x), x.T)


def test_a_kernel_returns_tensors_and_not_grids():
    with pytest.raises(NkiError, match="NKI-N13.*what a kernel returns"):
        nki.simulate(lambda x: nl.tiles(x, tile_shape=TILE))(X)


def test_grids_came_with_0_7(monkeypatch):
    monkeypatch.setenv("NKI_LANGUAGE_VERSION", "0.6")
    with pytest.raises(NkiError, match="nl.tiles came with NKI 0.7"):
        nki.simulate(copied)(X)
    monkeypatch.setenv("NKI_LANGUAGE_VERSION", "0.7")
    monkeypatch.setenv("NKI_COMPILER_FRONTEND", "custom")
    np.testing.assert_array_equal(nki.simulate(copied)(X), X)
