"""`neuronxcc.nki.typing` (nt): annotations of kernel parameters and tensors."""

from __future__ import annotations

from typing import Any

from ...chip import dtypes
from ...errors import fail
from ...machine.context import NeedsValues, machine
from ...machine.limits import integer
from ...machine.tensor import Tensor
from ...simulation.host_arrays import TensorSpec
from ..public_names import show_public_names_only


class _TensorType(type):
    def __getitem__(cls, shape: Any) -> Any:
        """Annotate a shape: `x: nt.tensor[128, 512] = nl.load(...)`.

        `nt.tensor[[128, 512], nl.float32]` is an argument as well: a tensor of that shape and
        dtype, for nki.benchmark and nki.profile. `nt.tensor[nt.mutable]` is nt.mutable_tensor.
        """
        if shape is mutable:
            return mutable_tensor
        if isinstance(shape, tuple) and len(shape) == 2 and isinstance(shape[0], (list, tuple)):
            return TensorSpec(
                tuple(integer(n, "a size of nt.tensor") for n in shape[0]),
                dtypes.normalize(shape[1]),
            )
        return cls


class tensor(metaclass=_TensorType):
    """A tensor; `nt.tensor[shape]` says its shape."""


class mutable_tensor(metaclass=_TensorType):
    """A kernel parameter that the kernel writes to; it must be returned as well."""


class mutable:
    """`nt.tensor[nt.mutable]`: the kernel writes to the parameter, and returns it."""


class immutable:
    """`nt.tensor[nt.immutable]`: the kernel only reads the parameter, as without it."""


class scalar(metaclass=_TensorType):
    """A number; `nt.scalar[dtype]` says its dtype.

    In a kernel `nt.scalar(tile)` is the number that a tile of one element holds when the kernel
    runs: a bound of `range`, or the condition of a `while`. It is not documented; AWS's paged
    attention (nki-samples, contributed) loops so, with an experimental flag of nki.jit.
    """

    def __new__(cls, tile: Any) -> Any:
        m = machine("nt.scalar")
        m.flush()
        if not isinstance(tile, Tensor) or tile.size != 1:
            raise fail(
                "NKI-S09",
                "nt.scalar takes one element",
                given=f"{tile!r}"[:80],
                limit="a (1, 1) tile, or one element of a tile",
            )
        if not m.compute:
            raise NeedsValues
        m.catch_up()
        m.undefined.refuse((tile,))
        m.memory.unseen.add(tile.storage.id)  # type: ignore[union-attr]
        return tile.np.reshape(-1)[0].item()


def __getattr__(name: str) -> Any:
    """Say that the module has no such name."""
    from .missing import missing

    raise missing("nt", name, globals())


__all__ = ["immutable", "mutable", "mutable_tensor", "scalar", "tensor"]
show_public_names_only(__name__)
