"""What `nl.tile_size` has in both dialects: the limits of a tile on the target at hand."""

from __future__ import annotations

from ..chip import hw
from ..machine.context import current


class TileSize:
    """Attributes, not calls; values of the running target, else of the default one."""

    def _hw(self) -> hw.NeuronCore:
        m = current.get()
        return m.hw if m is not None else hw.get()

    @property
    def pmax(self) -> int:
        """Partitions of SBUF and PSUM."""
        return self._hw().pmax

    @property
    def psum_fmax(self) -> int:
        """float32 elements per partition of one PSUM bank."""
        return self._hw().psum_fmax

    @property
    def gemm_stationary_fmax(self) -> int:
        """Free elements of a stationary tile."""
        return self._hw().gemm_stationary_fmax

    @property
    def gemm_moving_fmax(self) -> int:
        """Free elements of a moving tile."""
        return self._hw().gemm_moving_fmax

    @property
    def bn_stats_fmax(self) -> int:
        """Free elements of a bn_stats tile."""
        return self._hw().bn_stats_fmax

    @property
    def total_available_sbuf_size(self) -> int:
        """Usable SBUF bytes per partition."""
        return self._hw().sbuf_usable_bytes
