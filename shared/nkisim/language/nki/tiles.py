"""`nl.tile_size`: the limits of a tile on the target that is being simulated."""

from __future__ import annotations

from ..tilesize import TileSize


class _TileSize(TileSize):
    """What this dialect has besides."""

    psum_min_align, sbuf_min_align = 4, 1
    psum_bank_fmax = TileSize.psum_fmax
    sbuf_fmax_bytes = TileSize.total_available_sbuf_size

    @property
    def psum_bank_fmax_bytes(self) -> int:
        """Bytes per partition of one PSUM bank."""
        return self._hw().psum_bank_bytes

    @property
    def psum_num_banks(self) -> int:
        """Banks of PSUM."""
        return self._hw().psum_banks

    @property
    def sbuf_size_bytes(self) -> int:
        """Bytes of SBUF, all partitions."""
        return self._hw().sbuf_total_bytes

    @property
    def sbuf_fmax(self) -> int:
        """Usable float32 elements of SBUF per partition."""
        return self._hw().sbuf_usable_bytes // 4


tile_size = _TileSize()
