"""`neuronxcc.nki.compiler` (ncc): direct allocation and compiler options."""

from __future__ import annotations

from typing import Any

from ...chip import memory
from ...machine import arena
from ..public_names import show_public_names_only


class _Sbuf:
    """`ncc.sbuf`: where a tensor lies in SBUF."""

    @staticmethod
    def alloc(func: Any) -> memory.DirectBuffer:
        """Place by func(block index, pdim size, fdim bytes) -> (start partition, byte address)."""
        return arena.alloc(memory.SBUF, func)

    @staticmethod
    def mod_alloc(
        *,
        base_addr: Any,
        base_partition: Any = 0,
        num_par_tiles: Any = (),
        num_free_tiles: Any = (),
    ) -> memory.DirectBuffer:
        """Place block i at base_addr + (i mod number of tiles) * bytes of a tile."""
        return arena.mod_alloc(
            memory.SBUF, base_addr, base_partition, num_par_tiles, num_free_tiles
        )

    @staticmethod
    def auto_alloc() -> memory.Buffer:
        """Let the compiler place the tensor; the same as nl.sbuf."""
        return memory.sbuf


class _Psum:
    """`ncc.psum`: where a tensor lies in PSUM."""

    @staticmethod
    def alloc(func: Any) -> memory.DirectBuffer:
        """Place by func(block index, pdim size, fdim bytes) -> (bank, 0, 0)."""
        return arena.alloc(memory.PSUM, func)

    @staticmethod
    def mod_alloc(
        *,
        base_bank: Any,
        base_addr: Any = 0,
        base_partition: Any = 0,
        num_bank_tiles: Any = (),
        num_par_tiles: Any = (),
        num_free_tiles: Any = (),
    ) -> memory.DirectBuffer:
        """Place block i in bank base_bank + (i mod number of tiles)."""
        return arena.mod_alloc(
            memory.PSUM,
            base_addr,
            base_partition,
            num_par_tiles,
            num_free_tiles,
            base_bank,
            num_bank_tiles,
        )

    @staticmethod
    def auto_alloc() -> memory.Buffer:
        """Let the compiler place the tensor; the same as nl.psum."""
        return memory.psum


sbuf, psum = _Sbuf(), _Psum()


def _option(name: str) -> Any:
    def decorator(func: Any = None, *args: Any, **kwargs: Any) -> Any:
        if func is None or isinstance(func, int):
            return decorator
        func.nki_options = (*getattr(func, "nki_options", ()), name)
        return func

    decorator.__name__ = decorator.__qualname__ = name
    return decorator


skip_middle_end_transformations = _option("skip_middle_end_transformations")
skip_middle_end_transformations.__doc__ = "Keep the order of statements; affine loops run in order."
enable_stack_allocator = _option("enable_stack_allocator")
enable_stack_allocator.__doc__ = "Accepted; placement by the compiler is not modelled."
force_auto_alloc = _option("force_auto_alloc")
force_auto_alloc.__doc__ = "Accepted; direct allocations are kept."


def multi_buffer(factor: int = 2) -> tuple[str, int]:
    """Directive for sequential_range; accepted, the model keeps the kernel's own buffers."""
    return ("multi_buffer", factor)


def no_reorder() -> tuple[str]:
    """Directive for sequential_range; accepted, the simulator never reorders."""
    return ("no_reorder",)


def __getattr__(name: str) -> Any:
    """Say that a name of the SDK is not modelled, or that it does not exist."""
    from .missing import missing

    raise missing("ncc", name, globals())


__all__ = [
    "enable_stack_allocator",
    "force_auto_alloc",
    "multi_buffer",
    "no_reorder",
    "psum",
    "sbuf",
    "skip_middle_end_transformations",
]
show_public_names_only(__name__)
