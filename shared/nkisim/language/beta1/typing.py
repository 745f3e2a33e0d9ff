"""`neuronxcc.nki.typing` (nt): annotations of kernel parameters and tensors."""
from __future__ import annotations

from typing import Any


class _TensorType(type):
    def __getitem__(cls, shape: Any) -> Any:
        """Annotate a shape: `x: nt.tensor[128, 512] = nl.load(...)`."""
        return cls


class tensor(metaclass=_TensorType):
    """A tensor; `nt.tensor[shape]` says its shape."""


class mutable_tensor(metaclass=_TensorType):
    """A kernel parameter that the kernel writes to; it must be returned as well."""


class scalar(metaclass=_TensorType):
    """A number; `nt.scalar[dtype]` says its dtype."""
