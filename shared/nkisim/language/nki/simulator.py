"""`nki.simulator`: the call by which frameworks run a kernel on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .kernel import as_nki_kernel

__simulator__ = True


def simulate_kernel(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    lnc: int | None = None,
    _lnc: int | None = None,
) -> Any:
    """Run a kernel with positional arguments and arguments by name; return what it returns.

    Args:
        func: a kernel, or a plain function: what calls a kernel is one itself.
        args, kwargs: NumPy arrays (or torch tensors on the CPU) and plain values.
        lnc: 1 or 2, the cores that run it together; `_lnc` is its name in AWS's kernel library.

    Raises: NkiError when the kernel breaks a rule of NKI or of the chip.
    """
    kernel, cores = as_nki_kernel(func), _lnc if lnc is None else lnc
    if cores is not None and kernel.lnc is None:
        kernel = kernel[cores]
    return kernel(*args, **(kwargs or {}))


__all__ = ["simulate_kernel"]
