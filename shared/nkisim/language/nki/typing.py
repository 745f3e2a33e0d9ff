"""`nki.typing` (nt): annotations of kernel parameters."""

from __future__ import annotations

from typing import Any

from ...errors import Where, fail
from ...machine.limits import integer


class Shape:
    """`nt.tensor[128, 512]`: a tensor of that shape; a launch checks its arguments."""

    def __init__(self, shape: tuple[int, ...] | None = None):
        self.shape = shape

    def __getitem__(self, shape: Any) -> Shape:
        dims = shape if isinstance(shape, tuple) else (shape,)
        return Shape(tuple(integer(n, "a size of nt.tensor") for n in dims))

    def check(self, name: str, given: tuple[int, ...], where: Where | None = None) -> None:
        """Raise if an argument of the kernel at `where` has another shape."""
        if self.shape is not None and given != self.shape:
            raise fail(
                "NKI-S05",
                f"argument {name} has another shape than its annotation",
                given=f"shape {given}",
                limit=f"shape {self.shape}",
                where=where,
            )

    def __repr__(self) -> str:
        return f"nt.tensor{list(self.shape)}" if self.shape else "nt.tensor"


tensor = Shape()


def __getattr__(name: str) -> Any:
    """Say that the module has no such name."""
    from .versions import missing

    raise missing("nt", name, globals())


__all__ = ["tensor"]
