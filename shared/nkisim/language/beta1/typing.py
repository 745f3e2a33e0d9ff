"""`neuronxcc.nki.typing` (nt): annotations of kernel parameters and tensors."""
from __future__ import annotations

from typing import Any

from ...chip import dtypes
from ...launch import TensorSpec
from ...machine.machine import integer


class _TensorType(type):
    def __getitem__(cls, shape: Any) -> Any:
        """Annotate a shape: `x: nt.tensor[128, 512] = nl.load(...)`.

        `nt.tensor[[128, 512], nl.float32]` is an argument as well: a tensor of that shape and
        dtype, for nki.benchmark and nki.profile.
        """
        if isinstance(shape, tuple) and len(shape) == 2 and isinstance(shape[0], (list, tuple)):
            return TensorSpec(tuple(integer(n, "a size of nt.tensor") for n in shape[0]),
                              dtypes.normalize(shape[1]))
        return cls


class tensor(metaclass=_TensorType):
    """A tensor; `nt.tensor[shape]` says its shape."""


class mutable_tensor(metaclass=_TensorType):
    """A kernel parameter that the kernel writes to; it must be returned as well."""


class scalar(metaclass=_TensorType):
    """A number; `nt.scalar[dtype]` says its dtype."""
