"""`nl.tile_size`: the limits of a tile on the target that is being simulated."""
from __future__ import annotations

from ...chip import hw
from ...machine.context import current


class _TileSize:
    """Attributes; values of the running target, else of the default one."""

    psum_min_align, sbuf_min_align = 4, 1

    def _hw(self) -> hw.NeuronCore:
        m = current.get()
        return m.hw if m is not None else hw.get()

    @property
    def pmax(self) -> int:
        """Partitions of SBUF and PSUM."""
        return self._hw().pmax

    @property
    def psum_bank_fmax(self) -> int:
        """float32 elements per partition of one PSUM bank."""
        return self._hw().psum_fmax

    psum_fmax = psum_bank_fmax

    @property
    def psum_bank_fmax_bytes(self) -> int:
        """Bytes per partition of one PSUM bank."""
        return self._hw().psum_bank_bytes

    @property
    def psum_num_banks(self) -> int:
        """Banks of PSUM."""
        return self._hw().psum_banks

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
    def sbuf_size_bytes(self) -> int:
        """Bytes of SBUF, all partitions."""
        return self._hw().sbuf_total_bytes

    @property
    def sbuf_fmax_bytes(self) -> int:
        """Usable bytes of SBUF per partition."""
        return self._hw().sbuf_usable_bytes

    @property
    def sbuf_fmax(self) -> int:
        """The same, in float32 elements."""
        return self._hw().sbuf_usable_bytes // 4

    total_available_sbuf_size = sbuf_fmax_bytes


tile_size = _TileSize()
