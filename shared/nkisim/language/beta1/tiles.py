"""`nl.tile_size`: the limits of a tile on the target that is being simulated."""

from __future__ import annotations

from ..tilesize import TileSize


class _TileSize(TileSize):
    """What is this dialect's own."""

    # byte alignments that the SDK has never published; 4 suits every dtype [assumed]
    psum_min_align = 4
    sbuf_min_align = 4


tile_size = _TileSize()
