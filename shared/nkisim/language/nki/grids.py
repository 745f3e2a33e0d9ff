"""Grids of tiles and of blocks of tiles over a tensor (NKI 0.7): `nl.tiles`, `nl.blocks` ...

A grid is a view: it says where tiles lie and makes nothing. Its subscripts count tiles (or blocks);
`.data` is the tensor that instructions take. On chip `nl.alloc_tiles` puts the tiles of a larger
array side by side in the free dim, each with room for a whole one.
"""

from __future__ import annotations

from math import ceil, prod
from typing import Any, NamedTuple

from ...errors import NkiError, fail
from ...indexing.index import as_int
from ...isa.dma import TRANSPOSES
from ...lint import level
from ...machine.context import machine
from .create import create, is_hbm
from .enums import MemoryRegion
from .registers import held
from .tensor import NKIObject, NkiTensor

_SINCE = "0.7"
Cell = tuple[tuple[int, int], ...]  # the tiles in it along a dim, each from and to an element
Box = tuple[tuple[int, int], ...]  # the elements of each dim, from and to


class _Plain(NamedTuple):
    """A tensor as it is."""

    tensor: NkiTensor

    def fits(self, box: Box) -> bool:
        return True

    def view(self, box: Box) -> NkiTensor:
        return self.tensor[tuple(slice(a, b) for a, b in box)]


class _Packed(NamedTuple):
    """Tiles side by side in a tensor of two dims on chip, in the order of their coordinates."""

    tensor: NkiTensor
    tile: tuple[int, ...]
    counts: tuple[int, ...]  # tiles along each dim

    def fits(self, box: Box) -> bool:
        """Return whether a box is one view: it lies in one row of tiles, or in one tile."""
        within = [a // n == (b - 1) // n for (a, b), n in zip(box, self.tile)]
        return all(within) or len(box) == 2 and within[0]

    def view(self, box: Box) -> NkiTensor:
        at = 0
        for (a, _), n, count in zip(box, self.tile, self.counts):
            at = at * count + a // n
        first = [a % n for (a, _), n in zip(box, self.tile)]
        sizes = [b - a for a, b in box]
        column, free = at * prod(self.tile[1:]), self.tile[1:]
        rows = self.tensor[first[0] : first[0] + sizes[0]]
        if len(box) == 2:
            return rows[:, column + first[1] : column + first[1] + sizes[1]]
        one = rows[:, column : column + prod(free)].reshape((sizes[0], *free))
        part = (slice(a, a + n) for a, n in zip((0, *first[1:]), sizes))
        return one[tuple(part)]


class NkiGrid(NKIObject):
    """A part of a tensor in cells: tiles (NkiTileGrid) or blocks of them (NkiBlockGrid).

    An integer subscript chooses a cell of a dim, whose coordinate is then gone; a slice keeps it.
    Cells at the end of a dim are as large as what is left.
    """

    def __init__(
        self,
        place: _Plain | _Packed,
        cells: tuple[tuple[Cell, ...], ...],
        tile_shape: tuple[int, ...],
        block_shape: tuple[int, ...] | None = None,
        left: tuple[int, ...] | None = None,
    ):
        self._place, self._cells, self.tile_shape = place, cells, tile_shape
        self._block = block_shape or (1,) * len(tile_shape)
        self._left = tuple(range(len(cells))) if left is None else left  # dims with a coordinate

    # -- what kernels may ask -------------------------------------------------------------------
    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of cells along each dim that has a coordinate."""
        return tuple(len(self._cells[d]) for d in self._left)

    @property
    def element_shape(self) -> tuple[int, ...]:
        """Return the number of elements along each dim of the tensor, cut at its end."""
        return tuple(sum(map(_size, dim)) for dim in self._cells)

    @property
    def index_step_elements(self) -> tuple[int, ...]:
        """Return how many elements a cell of each coordinate has."""
        return tuple(map(self._step, self._left))

    @property
    def is_remainder(self) -> bool:
        """Return whether a cell of the selection is cut."""
        return any(_size(cell) < self._step(d) for d, dim in enumerate(self._cells) for cell in dim)

    @property
    def dtype(self) -> str:
        return self._place.tensor.dtype

    @property
    def buffer(self) -> MemoryRegion:
        return self._place.tensor.buffer

    @property
    def is_data_representable(self) -> bool:
        """Return whether `data` can show the selection."""
        box = self._box()
        return box is not None and self._place.fits(box)

    @property
    def data(self) -> NkiTensor:
        """Return the selection as the tensor that an instruction takes.

        Raises NKI-N13 for cells with gaps between them, and for tiles of several rows of tiles on
        chip, which lie side by side.
        """
        box = self._box()
        if box is None:
            raise fail(
                "NKI-N13",
                "cells with gaps between them are no one tensor",
                given=f"{self!r}",
                limit="cells that follow each other, or one",
                hint="a loop over the cells, or nl.empty_like(g), which packs them",
            )
        if not self._place.fits(box):
            raise fail(
                "NKI-N13",
                "tiles on chip are no one tensor together",
                given=f"{self!r}",
                limit="tiles that follow each other in the last dim, or one tile",
                hint="a loop over the tiles: for i in range(g.shape[0]): g[i, :].data",
            )
        return self._place.view(box)

    def _step(self, dim: int) -> int:
        return self.tile_shape[dim] * self._block[dim]

    def _tiles(self) -> tuple[Cell, ...]:
        """Return the tiles of the selection along each dim."""
        return tuple(tuple(tile for cell in dim for tile in cell) for dim in self._cells)

    def _box(self) -> Box | None:
        """Return the elements of the selection, None if they do not follow each other."""
        dims = self._tiles()
        if any(a[1] != b[0] for dim in dims for a, b in zip(dim, dim[1:])):
            return None
        return tuple((dim[0][0], dim[-1][1]) for dim in dims)

    def __getitem__(self, key: Any) -> Any:
        keys = key if isinstance(key, tuple) else (key,)
        if len(keys) > len(self._left):
            raise fail(
                "NKI-I02",
                "a grid has fewer coordinates than the subscript",
                given=f"{len(keys)} for {self!r}",
                limit=f"{len(self._left)}",
                hint="a coordinate that an integer has chosen is gone; nl.tiles(g) gives "
                "all of them again",
            )
        cells, left = list(self._cells), list(self._left)
        for d, k in zip(self._left, keys):
            if isinstance(k, slice):
                cells[d] = cells[d][self._slice(k, len(cells[d]))]
            else:
                cells[d] = (cells[d][self._index(k, len(cells[d]))],)
                left.remove(d)
        return self._same(self._place, tuple(cells), tuple(left))

    def _same(
        self,
        place: _Plain | _Packed,
        cells: tuple[tuple[Cell, ...], ...],
        left: tuple[int, ...],
        order: tuple[int, ...] = (),
    ) -> Any:
        """Return a grid of this kind, with its dims in another order if one is given."""
        new = type(self).__new__(type(self))
        tile, block = (
            tuple(n[d] for d in order or range(len(n))) for n in (self.tile_shape, self._block)
        )
        NkiGrid.__init__(new, place, cells, tile, block, left)
        return new

    def _index(self, k: Any, n: int) -> int:
        at = as_int(k)
        if at is None or isinstance(k, bool):
            raise fail(
                "NKI-N13",
                "a subscript of a grid is no integer and no slice",
                given=f"{k!r}"[:60] if held(k) is None else type(k).__name__,
                limit="integers that are known when the kernel is traced, and slices",
                hint="g.data.ap(pattern, scalar_offset=...) with g.index_step_elements"
                if held(k) is not None
                else "",
            )
        if not -n <= at < n:
            raise fail(
                "NKI-I01",
                f"cell {at} is outside of a grid",
                given=f"{self!r}",
                limit=f"0 .. {n - 1}",
            )
        return at % n

    def _slice(self, k: slice, n: int) -> slice:
        a, b, by = (
            d if x is None else as_int(x) for x, d in ((k.start, 0), (k.stop, n), (k.step, 1))
        )
        if by is None or by < 1:
            raise fail(
                "NKI-N13",
                "a slice of a grid has a step that is not positive",
                given=f"step {k.step}",
            )
        if a is None or b is None or not 0 <= a < b <= n:
            raise fail(
                "NKI-I01",
                "a slice is outside of a grid, or empty",
                given=f"{k.start}:{k.stop} of {n} cells",
                limit=f"0 .. {n}",
            )
        return slice(a, b, by)

    def __iter__(self) -> Any:
        raise fail(
            "NKI-I08",
            "a grid cannot be looped over",
            hint="loop over its coordinates: for i in range(g.shape[0])",
        )

    def __eq__(self, other: Any) -> Any:
        return self is other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(shape={self.shape}, tile_shape={self.tile_shape}, "
            f"element_shape={self.element_shape}, buffer={self.buffer.value})"
        )


class NkiTileGrid(NkiGrid):
    """A grid whose cells are tiles: what nl.tiles and nl.alloc_tiles return."""


class NkiBlockGrid(NkiGrid):
    """A grid whose cells are blocks of tiles: what nl.blocks and nl.alloc_blocks return."""

    @property
    def block_shape(self) -> tuple[int, ...]:
        """Return the number of tiles along each dim of a block."""
        return self._block


# -- what makes them -----------------------------------------------------------------------------


def _shape(api: str, name: str, given: Any) -> tuple[int, ...]:
    """Return a shape that a call was given, or raise NKI-N13."""
    if not isinstance(given, tuple) or any(type(n) is not int for n in given):
        raise fail(
            "NKI-N13",
            f"{api}: {name} is no tuple of integers",
            given=f"{given!r}"[:60],
            limit="a tuple of Python's integers",
        )
    if any(n < 1 for n in given):
        raise fail("NKI-N13", f"{api}: {name} has an entry below 1", given=f"{given}")
    return given


def _tile(api: str, given: Any, rank: int) -> tuple[int, ...]:
    """Return a shape of tiles for a tensor of so many dims, or raise NKI-N13."""
    tile = _shape(api, "tile_shape", given)
    if not 2 <= len(tile) <= rank:
        raise fail(
            "NKI-N13",
            f"{api}: tile_shape has {len(tile)} dims",
            given=f"tile_shape={tile} of a tensor of {rank} dims",
            limit="two dims at least, and no more than the tensor has",
        )
    if len(tile) < rank:
        raise fail(
            "NKI-N13",
            f"{api}: dims before those of the tile",
            given=f"tile_shape={tile} of a tensor of {rank} dims",
            limit="as many dims as the tensor has (NKI takes fewer; what .element_shape and "
            ".data are then is not modelled)",
            hint="choose the slab first: nl.tiles(x[b], tile_shape=...)",
        )
    return tile


def _block(api: str, given: Any, tile: tuple[int, ...]) -> tuple[int, ...]:
    block = _shape(api, "block_shape", given)
    if len(block) != len(tile):
        raise fail(
            "NKI-N13",
            f"{api}: block_shape has another rank than the tiles",
            given=f"block_shape={block}, tile_shape={tile}",
            limit="tiles along each dim",
        )
    return block


def _size(cell: Cell) -> int:
    return sum(b - a for a, b in cell)


def _cut(a: int, b: int, step: int) -> Cell:
    """Return the tiles from one element to another."""
    return tuple((i, min(i + step, b)) for i in range(a, b, step))


def _grouped(dims: tuple[Cell, ...], block: tuple[int, ...]) -> tuple[tuple[Cell, ...], ...]:
    """Return the cells that tiles along each dim make."""
    return tuple(
        tuple(dim[i : i + n] for i in range(0, len(dim), n)) for dim, n in zip(dims, block)
    )


def _source(
    api: str, source: Any, tile_shape: Any
) -> tuple[_Plain | _Packed, tuple[Cell, ...], tuple[int, ...]]:
    """Return where the elements of a tensor or a grid lie, its tiles, and their shape."""
    _asked(api)
    if isinstance(source, NkiGrid):
        if tile_shape in (None, source.tile_shape):
            return source._place, source._tiles(), source.tile_shape
        tile, box = _tile(api, tile_shape, len(source._cells)), source._box()
        if box is None:
            raise fail(
                "NKI-N13",
                f"{api}: other tiles over cells with gaps between them",
                given=f"tile_shape={tile} over {source!r}"[:120],
                limit="cells that follow each other",
            )
    elif isinstance(source, NkiTensor):
        source, tile = _Plain(source), _tile(api, tile_shape, source.ndim)
        return source, _tiled(source.tensor.shape, tile), tile
    else:
        raise fail(
            "NKI-N13",
            f"{api} takes a tensor or a grid",
            given=type(source).__name__,
            limit="an NkiTensor, an NkiTileGrid or an NkiBlockGrid",
        )
    return source._place, tuple(_cut(a, b, n) for (a, b), n in zip(box, tile)), tile


def _tiled(extent: tuple[int, ...], tile: tuple[int, ...]) -> tuple[Cell, ...]:
    """Return the tiles of a whole tensor along each dim."""
    return tuple(_cut(0, n, t) for n, t in zip(extent, tile))


def _asked(api: str) -> None:
    """Raise where the release that is asked about does not have grids."""
    machine(api)
    if level.release() < _SINCE:
        raise fail(
            "NKI-N13",
            f"{api} came with NKI {_SINCE}",
            limit=f"NKI {level.release()}, which {level.VERSION_VARIABLE} asks for",
            hint="slices: x[i * 128:(i + 1) * 128, ...]",
        )


def tiles(source: Any, *, tile_shape: Any = None) -> NkiTileGrid:
    """View a tensor as a grid of tiles, or the tiles in a grid's selection."""
    place, dims, tile = _source("nl.tiles", source, tile_shape)
    return NkiTileGrid(place, _grouped(dims, (1,) * len(tile)), tile)


def blocks(source: Any, *, tile_shape: Any = None, block_shape: Any) -> NkiBlockGrid:
    """View a tensor, or a grid's selection, as a grid of blocks of `block_shape` tiles each."""
    place, dims, tile = _source("nl.blocks", source, tile_shape)
    block = _block("nl.blocks", block_shape, tile)
    return NkiBlockGrid(place, _grouped(dims, block), tile, block)


def alloc_tiles(
    *,
    tile_shape: Any,
    element_shape: Any,
    buffer: Any,
    dtype: Any,
    address: Any = None,
    name: str = "",
) -> NkiTileGrid:
    """Create a tensor of undefined content as a grid of tiles.

    In HBM it has `element_shape`; on chip the partitions of a tile, and tiles side by side.
    """
    api = "nl.alloc_tiles"
    _asked(api)
    extent = _shape(api, "element_shape", element_shape)
    tile = _tile(api, tile_shape, len(extent))
    place = _new(api, extent, tile, buffer, dtype, address, name)
    return NkiTileGrid(place, _grouped(_tiled(extent, tile), (1,) * len(tile)), tile)


def alloc_blocks(
    *,
    tile_shape: Any,
    block_shape: Any,
    element_shape: Any,
    buffer: Any,
    dtype: Any,
    address: Any = None,
    name: str = "",
) -> NkiBlockGrid:
    """Create a tensor as nl.alloc_tiles does, as a grid of blocks of `block_shape` tiles each."""
    api = "nl.alloc_blocks"
    _asked(api)
    extent = _shape(api, "element_shape", element_shape)
    tile = _tile(api, tile_shape, len(extent))
    block = _block(api, block_shape, tile)
    place = _new(api, extent, tile, buffer, dtype, address, name)
    return NkiBlockGrid(place, _grouped(_tiled(extent, tile), block), tile, block)


def _new(
    api: str,
    extent: tuple[int, ...],
    tile: tuple[int, ...],
    buffer: Any,
    dtype: Any,
    address: Any,
    name: str,
) -> _Plain | _Packed:
    """Create the tensor that holds the elements of a grid."""
    m = machine(api)
    m.flush()
    if is_hbm(buffer):
        return _Plain(create(m, extent, dtype, buffer, name, address))
    counts = tuple(ceil(n / t) for n, t in zip(extent, tile))
    stored = (tile[0], prod(counts) * prod(tile[1:]))
    return _Packed(create(m, stored, dtype, buffer, name, address), tile, counts)


def empty_like(
    x: Any,
    dtype: Any = None,
    buffer: Any = None,
    name: str = "",
    *,
    transpose_axes: Any = None,
    address: Any = None,
) -> Any:
    """Create a tensor of undefined content with the shape, dtype and memory of another.

    Of a grid (since 0.7) the same kind of grid, whose cells lie one after another. With
    `transpose_axes`, (1, 0), (2, 1, 0) or (3, 1, 2, 0), what nisa.dma_transpose writes, in SBUF.
    """
    api = "nl.empty_like"
    m = machine(api)
    m.flush()
    if not hasattr(x, "shape"):
        raise fail("NKI-M02", f"{api} takes a tensor or a grid", given=f"{type(x).__name__}")
    region = x.buffer if buffer is None else buffer
    kind = x.dtype if dtype is None else dtype
    if isinstance(x, NkiGrid) or transpose_axes is not None or address is not None:
        _asked(api)
    rank = len(x._cells) if isinstance(x, NkiGrid) else len(x.shape)
    order = _order(transpose_axes, rank, region)
    if not isinstance(x, NkiGrid):
        return create(m, tuple(x.shape[d] for d in order), kind, region, name, address)
    dims = [x._cells[d] for d in order]
    tile = tuple(x.tile_shape[d] for d in order)
    extent = tuple(x.element_shape[d] for d in order)
    place = _new(api, extent, tile, region, kind, address, name)
    return x._same(
        place,
        tuple(map(_packed, dims, tile)),
        tuple(i for i, d in enumerate(order) if d in x._left),
        order,
    )


def _packed(dim: tuple[Cell, ...], step: int) -> tuple[Cell, ...]:
    """Return cells of the same sizes whose tiles follow each other; only the last may be cut."""
    at, out = 0, []
    for cell in dim:
        out.append(tuple((at + i * step, at + i * step + b - a) for i, (a, b) in enumerate(cell)))
        at += len(cell) * step
    return tuple(out)


def _order(axes: Any, rank: int, region: Any) -> tuple[int, ...]:
    """Return the order of the dims of what nl.empty_like makes."""
    if axes is None:
        return tuple(range(rank))
    if axes != TRANSPOSES.get(rank):
        raise fail(
            "NKI-N13",
            "nl.empty_like: no transpose by DMA has these axes",
            given=f"transpose_axes={axes!r} of {rank} dims"[:80],
            limit=", ".join(map(str, TRANSPOSES.values())),
        )
    if region is not MemoryRegion.sbuf:
        raise fail(
            "NKI-N13",
            "nl.empty_like with transpose_axes makes a tensor in SBUF",
            given=f"buffer={region!r}"[:60],
            limit="buffer=nl.sbuf",
        )
    return axes


def instead(grid: NkiGrid, what: str) -> NkiError:
    """Return the error for a grid where a tensor is taken."""
    return fail(
        "NKI-N13",
        f"{what} takes a tensor, and is given a grid",
        given=f"{grid!r}"[:120],
        limit="an NkiTensor",
        hint="g.data, or one tile of it: g[i, j].data",
    )
