"""How much arithmetic an instruction stands for."""
from __future__ import annotations

from typing import Any


def matmul_flops(kind: Any) -> tuple[float, bool]:
    """Return (floating-point operations of a matmul, do they count as the model's?).

    A transpose on the Tensor Engine is a matmul with the identity: work, but not the model's.
    """
    sources = kind.operands[kind.outputs:]
    if kind.engine != "tensor" or not sources:
        return 0.0, True
    if kind.row.name == "nc_transpose":
        return 2.0 * sources[0].shape[0] * sources[0].elements, False
    if kind.row.name == "nc_matmul":
        result, stationary = kind.operands[0], sources[0]
        contraction = stationary.elements / result.shape[0]
        return 2.0 * contraction * result.elements, not kind.form.transposes
    return 0.0, True


def elementwise(kind: Any) -> int:
    """Return the elements that a Vector, Scalar or GpSimd instruction goes through."""
    if kind.engine not in ("vector", "scalar", "gpsimd"):
        return 0
    return max((p.elements for p in kind.operands), default=0)
